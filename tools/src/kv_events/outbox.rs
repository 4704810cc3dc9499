//! Batches on their way to the socket, and those kept for replays. Both are bounded.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;

/// A batch as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its number.
    pub sequence: u64,
    /// The msgpack payload.
    pub payload: Bytes,
}

/// The last batches, kept for replays.
#[derive(Clone, Debug)]
pub struct Kept {
    messages: Arc<Mutex<VecDeque<Message>>>,
    most: u64,
}

impl Kept {
    /// Keeps the last `most` batches.
    pub fn new(most: u64) -> Kept {
        Kept { messages: Arc::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Message>> {
        // What is kept is whole after each change, whoever panicked.
        self.messages.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, message: Message) {
        let mut messages = self.lock();
        messages.push_back(message);
        while messages.len() as u64 > self.most {
            messages.pop_front();
        }
    }

    /// The batches that are kept, from a number on.
    pub fn from(&self, sequence: u64) -> Vec<Message> {
        self.lock().iter().filter(|message| message.sequence >= sequence).cloned().collect()
    }
}

/// Batches that wait for slow subscribers. Those that find it full are dropped, but stay replayable.
#[derive(Debug)]
pub struct Outbox {
    waiting: VecDeque<Message>,
    /// The most that may wait; 0 is no limit.
    hwm: u64,
    kept: Option<Kept>,
    dropped: u64,
}

impl Outbox {
    /// An empty one.
    pub fn new(hwm: u64, kept: Option<Kept>) -> Outbox {
        Outbox { waiting: VecDeque::new(), hwm, kept, dropped: 0 }
    }

    /// Takes a batch.
    pub fn push(&mut self, message: Message) {
        if let Some(kept) = &self.kept {
            kept.push(message.clone());
        }
        if self.hwm > 0 && self.waiting.len() as u64 >= self.hwm {
            self.dropped += 1;
        } else {
            self.waiting.push_back(message);
        }
    }

    /// The batch that has waited longest.
    pub fn pop(&mut self) -> Option<Message> {
        self.waiting.pop_front()
    }

    /// Counts a batch that was given up.
    pub fn give_up(&mut self) {
        self.dropped += 1;
    }

    /// Gives up all that wait.
    pub fn give_up_all(&mut self) {
        self.dropped += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Batches that were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sequence: u64) -> Message {
        Message { sequence, payload: Bytes::new() }
    }

    #[test]
    fn what_finds_the_outbox_full_is_dropped_and_counted_but_can_be_replayed() {
        let kept = Kept::new(3);
        let mut outbox = Outbox::new(2, Some(kept.clone()));
        (0..5).for_each(|sequence| outbox.push(message(sequence)));
        assert_eq!(outbox.dropped(), 3);
        assert_eq!([outbox.pop(), outbox.pop(), outbox.pop()], [Some(message(0)), Some(message(1)), None]);
        let numbers = |from| kept.from(from).iter().map(|message| message.sequence).collect::<Vec<u64>>();
        assert_eq!(numbers(0), [2, 3, 4]);
        assert_eq!(numbers(4), [4]);
        assert!(numbers(5).is_empty());
    }

    #[test]
    fn zero_is_no_limit_of_what_waits_and_nothing_of_what_is_kept() {
        let kept = Kept::new(0);
        let mut outbox = Outbox::new(0, Some(kept.clone()));
        (0..1000).for_each(|sequence| outbox.push(message(sequence)));
        assert_eq!((outbox.dropped(), kept.from(0).len()), (0, 0));
        outbox.give_up();
        outbox.give_up_all();
        assert_eq!((outbox.dropped(), outbox.is_empty()), (1001, true));
    }
}

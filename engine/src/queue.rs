//! The waiting queue and what has been asked of the worker since the last iteration.

use std::collections::VecDeque;

use crate::journal::{Journal, Op};
use crate::request::RequestKey;

/// The single numbers of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct QueueNumbers {
    /// Entries to the queue over the worker's life; orders requests by entry.
    pub(crate) entries: u64,
    /// Draws made by the `random` policy.
    pub(crate) draws: u64,
}

/// The waiting queue of a worker.
#[derive(Debug, Default)]
pub struct Queue {
    waiting: VecDeque<RequestKey>,
    pub(crate) numbers: QueueNumbers,
}

impl Queue {
    /// The waiting requests in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = RequestKey> + '_ {
        self.waiting.iter().copied()
    }

    /// How many requests wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The request at a position.
    pub(crate) fn at(&self, index: usize) -> RequestKey {
        self.waiting[index]
    }

    /// Puts a request at the back and returns its place in the order of entries.
    pub(crate) fn put(&mut self, request: RequestKey, journal: &mut Journal) -> u64 {
        self.waiting.push_back(request);
        journal.record(Op::QueuePut);
        self.numbers.entries += 1;
        self.numbers.entries
    }

    /// Takes the first `count` requests out.
    pub(crate) fn take_front(&mut self, count: usize, journal: &mut Journal) {
        for request in self.waiting.drain(..count) {
            journal.record(Op::QueueTaken(request));
        }
    }

    /// Takes the request at a position out.
    pub(crate) fn remove_at(&mut self, at: usize, journal: &mut Journal) {
        if let Some(request) = self.waiting.remove(at) {
            journal.record(Op::QueueRemoved { at: at as u32, request });
        }
    }

    /// The position of a request, if it waits.
    pub(crate) fn position(&self, request: RequestKey) -> Option<usize> {
        self.waiting.iter().position(|&waiting| waiting == request)
    }

    /// Gives the queue a new order of the same requests.
    pub(crate) fn reorder(&mut self, journal: &mut Journal, sort: impl FnOnce(&mut [RequestKey])) {
        journal.save_order(self.waiting.iter().copied());
        sort(self.waiting.make_contiguous());
    }

    /// Takes back [`Op::QueueTaken`].
    pub(crate) fn undo_taken(&mut self, request: RequestKey) {
        self.waiting.push_front(request);
    }

    /// Takes back [`Op::QueuePut`].
    pub(crate) fn undo_put(&mut self) {
        self.waiting.pop_back();
    }

    /// Takes back [`Op::QueueRemoved`].
    pub(crate) fn undo_removed(&mut self, at: u32, request: RequestKey) {
        self.waiting.insert(at as usize, request);
    }

    /// Takes back [`Op::QueueSorted`].
    pub(crate) fn undo_sorted(&mut self, order: impl Iterator<Item = RequestKey>) {
        for (place, request) in self.waiting.iter_mut().zip(order) {
            *place = request;
        }
    }
}

/// One thing asked of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Submit(RequestKey),
    Cancel(RequestKey),
    Release(RequestKey),
    GiveUp(RequestKey),
}

/// What was asked since the last iteration, in order.
#[derive(Debug, Default)]
pub struct Inbox {
    pub(crate) asked: Vec<Asked>,
}

/// Requests of a prefill-role worker whose transfer runs, in the order in which they were held.
#[derive(Debug, Default)]
pub struct Held {
    pub(crate) requests: Vec<RequestKey>,
}

//! KV events: block hashes from scratch, and the queue that merges neighbours.

use servesim_scenarios::case::EventLog;
use sha2::{Digest, Sha256};

/// The event hash of each whole page of a token sequence, in order.
pub fn page_hashes(tokens: &[u32], page: usize) -> Vec<i64> {
    let mut hashes = Vec::new();
    let mut previous: Option<Vec<u8>> = None;
    for block in tokens.chunks_exact(page) {
        let mut sha = Sha256::new();
        if let Some(digest) = &previous {
            sha.update(digest);
        }
        for token in block {
            sha.update(token.to_le_bytes());
        }
        let digest = sha.finalize().to_vec();
        hashes.push(digest[..8].iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)) as i64);
        previous = Some(digest);
    }
    hashes
}

/// Events that have not been published yet.
#[derive(Clone, Debug)]
pub struct EventQueue {
    events: Vec<EventLog>,
}

impl Default for EventQueue {
    fn default() -> EventQueue {
        // A new cache says first that it is empty.
        EventQueue { events: vec![EventLog::Cleared] }
    }
}

impl EventQueue {
    /// The pages of a new leaf came in; `path` is all tokens to its end, `start` where the leaf starts.
    pub fn stored(&mut self, path: &[u32], start: usize, page: usize) {
        let hashes = page_hashes(path, page);
        for index in start / page..hashes.len() {
            let parent = (index > 0).then(|| hashes[index - 1]);
            self.push_block(parent, hashes[index], page as u32);
        }
    }

    /// All pages of a node left; `path` is all tokens to its end, `start` where the node starts.
    pub fn removed(&mut self, path: &[u32], start: usize, page: usize) {
        let gone = page_hashes(path, page).split_off(start / page);
        if let Some(EventLog::Removed { hashes }) = self.events.last_mut() {
            hashes.extend(gone);
        } else {
            self.events.push(EventLog::Removed { hashes: gone });
        }
    }

    /// Takes all events out.
    pub fn take(&mut self) -> Vec<EventLog> {
        std::mem::take(&mut self.events)
    }

    fn push_block(&mut self, parent: Option<i64>, hash: i64, size: u32) {
        if let Some(EventLog::Stored { hashes, tokens, block_size, .. }) = self.events.last_mut()
            && *block_size == size
            && parent.is_some()
            && hashes.last().copied() == parent
        {
            hashes.push(hash);
            *tokens += u64::from(size);
            return;
        }
        self.events.push(EventLog::Stored { parent, hashes: vec![hash], tokens: u64::from(size), block_size: size });
    }
}

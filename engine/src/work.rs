//! What was done, as counts over a worker's life: beside what it cost the host, and as what the reference would have had to do.
//!
//! Counts of work are not taken back when a pass is undone: the work was done.

/// Counts of work over a worker's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Tree nodes visited by walks.
    pub nodes_walked: u64,
    /// Runs of token ids compared by walks.
    pub runs_compared: u64,
    /// Nodes split.
    pub splits: u64,
    /// Leaves added.
    pub leaves_added: u64,
    /// Leaves evicted.
    pub leaves_evicted: u64,
    /// Entries of the undo journal.
    pub journal_entries: u64,
    /// Waiting requests that were matched for the order or tested for admission.
    pub requests_examined: u64,
    /// Tokens that those matches found in the cache, summed.
    pub tokens_matched: u64,
    /// Pages taken from the pool.
    pub pages_taken: u64,
    /// Bytes hashed for KV events.
    pub bytes_hashed: u64,
    /// Locks of a path to the root, and releases of locks.
    pub locks: u64,
    /// Nodes from a pinned or unpinned node up to the root, as the tree is at the end of the call: the reference visits them for
    /// each lock and release of a lock. Counted only in calls that a probe reads system by system.
    pub path_nodes: u64,
    /// Times that memory ran short and leaves were evicted: calls of the reference's eviction.
    pub eviction_calls: u64,
    /// Evictable leaves at those calls, summed: the reference makes a heap of all of them each time.
    pub eviction_leaves: u64,
}

impl Work {
    /// What was done since an earlier count.
    pub fn since(&self, earlier: &Work) -> Work {
        Work {
            nodes_walked: self.nodes_walked - earlier.nodes_walked,
            runs_compared: self.runs_compared - earlier.runs_compared,
            splits: self.splits - earlier.splits,
            leaves_added: self.leaves_added - earlier.leaves_added,
            leaves_evicted: self.leaves_evicted - earlier.leaves_evicted,
            journal_entries: self.journal_entries - earlier.journal_entries,
            requests_examined: self.requests_examined - earlier.requests_examined,
            tokens_matched: self.tokens_matched - earlier.tokens_matched,
            pages_taken: self.pages_taken - earlier.pages_taken,
            bytes_hashed: self.bytes_hashed - earlier.bytes_hashed,
            locks: self.locks - earlier.locks,
            path_nodes: self.path_nodes - earlier.path_nodes,
            eviction_calls: self.eviction_calls - earlier.eviction_calls,
            eviction_leaves: self.eviction_leaves - earlier.eviction_leaves,
        }
    }
}

//! What a worker's passes cost the host and how much work they were.

use super::Worker;
use crate::cache::Cache;
use crate::laps::{Probe, Spent};
use crate::work::Work;

impl Worker {
    pub(super) fn start_lap(&mut self) {
        if self.probed {
            self.engine_mut().laps.start();
        }
    }

    pub(super) fn finish_lap(&mut self) {
        if self.probed {
            self.engine_mut().laps.finish();
        }
    }

    /// Has the host's counters read at the end of each system, or no longer. What was spent before is forgotten.
    pub fn set_probe(&mut self, probe: Option<Box<dyn Probe>>) {
        self.probed = probe.is_some();
        let engine = self.engine_mut();
        engine.laps.set_probe(probe);
        engine.cache.tree.work.counts_paths = engine.laps.are_read();
    }

    /// What the host spent since this was last asked; nothing without a probe.
    pub fn take_spent(&mut self) -> Spent {
        self.engine_mut().laps.take()
    }

    /// What was done over the worker's life.
    pub fn work(&self) -> Work {
        let Cache { tree, pool, hashes, journal, requests_examined, eviction_calls, eviction_leaves, .. } =
            self.cache();
        let done = tree.work;
        Work {
            nodes_walked: done.nodes_walked,
            runs_compared: done.runs_compared,
            splits: done.splits,
            leaves_added: done.leaves_added,
            leaves_evicted: done.leaves_evicted,
            journal_entries: journal.recorded(),
            requests_examined: *requests_examined,
            pages_taken: pool.pages_taken,
            bytes_hashed: hashes.bytes_hashed,
            path_nodes: done.path_nodes,
            eviction_calls: *eviction_calls,
            eviction_leaves: *eviction_leaves,
        }
    }
}

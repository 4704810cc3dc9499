//! What a worker's passes cost the host and how much work they were.

use super::Worker;
use crate::batch::BatchMode;
use crate::laps::{PROBES, Probe, Spent};
use crate::record::PassRecord;
use crate::request::RequestKey;
use crate::work::Work;

/// What a profiler wants to know after each call, at the price of one look.
#[derive(Clone, Copy, Debug)]
pub struct Profiled<'w> {
    /// What the call did.
    pub record: &'w PassRecord,
    /// What the host spent since the probe was set or [`Worker::take_spent`] was called last.
    pub spent: &'w Spent,
    /// Requests that wait.
    pub waiting: u64,
}

impl Worker {
    pub(super) fn start_lap(&mut self) {
        if PROBES && self.probed {
            let engine = self.engine_mut();
            engine.laps.start();
            engine.cache.tree.work.counts_paths = engine.laps.by_system();
        }
    }

    pub(super) fn finish_lap(&mut self) {
        if PROBES && self.probed {
            let engine = self.engine_mut();
            engine.laps.finish();
            engine.cache.tree.work.counts_paths = false;
            engine.cache.tree.count_noted_paths();
        }
    }

    /// Has the host's counters read at the end of each system, or no longer. What was spent before is forgotten.
    pub fn set_probe(&mut self, probe: Option<Box<dyn Probe>>) {
        self.probed = probe.is_some();
        self.engine_mut().laps.set_probe(probe);
    }

    /// What the host spent since this was last asked; nothing without a probe.
    pub fn take_spent(&mut self) -> Spent {
        self.engine_mut().laps.take()
    }

    /// KV tokens that the decode rows of the last pass read, their new ones included.
    pub fn decode_kv_tokens(&self) -> u64 {
        let scheduler = self.scheduler();
        match scheduler.batches.last.mode {
            BatchMode::Idle => 0,
            BatchMode::Decode => scheduler.running.committed_tokens(),
            BatchMode::Extend => self.mixed().iter().filter_map(|&row| self.kv_tokens(row)).sum(),
        }
    }

    /// Tokens of a request whose KV is in the pool, of one that is still known: those that ended in the last pass are.
    pub fn kv_tokens(&self, request: RequestKey) -> Option<u64> {
        let requests = &self.scheduler().requests;
        requests.knows(request).then(|| u64::from(self.scheduler().running.committed(requests.get(request))))
    }

    /// The length of a request's prompt in tokens, of one that is still known: those that ended in the last pass are.
    pub fn prompt_tokens(&self, request: RequestKey) -> Option<u32> {
        let requests = &self.scheduler().requests;
        requests.knows(request).then(|| requests.spec(request).prompt_tokens)
    }

    /// What the last call did and what all cost so far.
    pub fn profiled(&self) -> Profiled<'_> {
        let engine = self.engine();
        Profiled {
            record: &engine.pass.record,
            spent: engine.laps.spent(),
            waiting: engine.scheduler.queue.iter().len() as u64,
        }
    }

    /// What was done over the worker's life.
    pub fn work(&self) -> Work {
        let cache = self.cache();
        let done = cache.tree.work;
        Work {
            nodes_walked: done.nodes_walked,
            runs_compared: done.runs_compared,
            splits: done.splits,
            leaves_added: done.leaves_added,
            leaves_evicted: done.leaves_evicted,
            journal_entries: cache.journal.recorded(),
            requests_examined: cache.requests_examined,
            tokens_matched: cache.tokens_matched,
            pages_taken: cache.pool.pages_taken,
            bytes_hashed: cache.hashes.bytes_hashed,
            locks: done.locks,
            path_nodes: done.path_nodes,
            eviction_calls: cache.eviction_calls,
            eviction_leaves: cache.eviction_leaves,
        }
    }
}

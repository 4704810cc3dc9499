//! `commit`: the pass has a duration, so what it changed stays; then the results of a batch are taken.
//!
//! Reads the plan; closes the journal, and writes the clock and all that results change: requests, the running batch, the
//! cache. Without overlap the results are those of this pass; with it, those of the pass before (`behaviour.md` section 1).

use crate::batch::{BatchMode, Batches};
use crate::cache::Cache;
use crate::engine::Engine;
use crate::iteration::Pass;
use crate::queue::Held;
use crate::ratio::NewTokenRatio;
use crate::record::{Gauges, PassRecord};
use crate::requests::Requests;
use crate::results;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::timing::{Clock, PassTime};

/// What a commit reads and writes.
pub(crate) struct Commit<'a> {
    pub(crate) cache: &'a mut Cache,
    pub(crate) requests: &'a mut Requests,
    pub(crate) running: &'a mut Running,
    pub(crate) batches: &'a mut Batches,
    pub(crate) record: &'a mut PassRecord,
    pub(crate) held: &'a mut Held,
    pub(crate) clock: &'a mut Clock,
    ratio: &'a NewTokenRatio,
    time: PassTime,
}

/// Commits the pass and takes results.
pub(crate) fn commit(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, .. } = engine;
    let Scheduler { requests, running, batches, held, .. } = scheduler;
    let Pass { plan, record, ratio, clock, mark } = pass;
    *mark = None;
    let time = plan.time;
    let mut commit = Commit { cache, requests, running, batches, record, held, clock, ratio, time };
    commit.close_transaction();
    commit.launch();
    if commit.cache.config.disable_overlap_schedule {
        let batch = std::mem::take(&mut commit.batches.next);
        results::take(&mut commit, &batch);
        commit.batches.next = batch;
    } else {
        let batch = std::mem::take(&mut commit.batches.last);
        results::take(&mut commit, &batch);
        commit.batches.last = batch;
    }
}

/// The sizes now.
pub(crate) fn gauges(cache: &Cache, ratio: &NewTokenRatio) -> Gauges {
    Gauges {
        free_tokens: cache.pool.free_tokens(),
        evictable_tokens: cache.tree.numbers.evictable_tokens,
        protected_tokens: cache.tree.numbers.protected_tokens,
        new_token_ratio: ratio.current(),
    }
}

impl Commit<'_> {
    fn close_transaction(&mut self) {
        self.cache.journal.commit();
        let Cache { tree, pool, contents, hashes, .. } = &mut *self.cache;
        if hashes.are_kept() {
            tree.detached().for_each(|leaf| hashes.forget(leaf));
        }
        tree.commit(contents);
        pool.commit();
        self.record.after_schedule = gauges(self.cache, self.ratio);
    }

    /// The batch runs: it is noted, and the growth counter of `hrrn` moves by its tokens.
    fn launch(&mut self) {
        self.clock.pass(self.time, !self.cache.config.disable_overlap_schedule);
        let next = &self.batches.next;
        self.record.mode = next.mode;
        self.record.extend.extend_from_slice(&next.extend);
        self.record.decode_rows = next.decode_rows + next.mixed.len() as u32;
        self.record.duration_ns = self.time.device_ns;
        let numbers = &mut self.running.numbers;
        match next.mode {
            BatchMode::Idle => {}
            BatchMode::Extend => {
                numbers.processed_tokens += next.new_tokens;
                numbers.prefill_defer = self.cache.config.prefill_decode_interval;
            }
            BatchMode::Decode => numbers.processed_tokens += numbers.founder_tokens,
        }
    }
}

//! `commit`: the pass has a duration, so what it changed stays; then the results of a batch are taken.
//!
//! Reads the plan; closes the journal, and writes the clock and all that results change: requests, the running batch, the
//! cache. Without overlap the results are those of this pass; with it, those of the pass before (`behaviour.md` section 1).

use bevy_ecs::prelude::{Res, ResMut};
use bevy_ecs::system::SystemParam;

use crate::batch::{BatchMode, Batches, Plan};
use crate::cache::Cache;
use crate::iteration::OpenMark;
use crate::queue::Held;
use crate::ratio::NewTokenRatio;
use crate::record::{Gauges, PassRecord};
use crate::requests::Requests;
use crate::results;
use crate::running::Running;
use crate::timing::Clock;

/// What a commit reads and writes.
#[derive(SystemParam)]
pub(crate) struct Commit<'w> {
    pub(crate) cache: Cache<'w>,
    pub(crate) requests: ResMut<'w, Requests>,
    pub(crate) running: ResMut<'w, Running>,
    pub(crate) batches: ResMut<'w, Batches>,
    pub(crate) record: ResMut<'w, PassRecord>,
    pub(crate) held: ResMut<'w, Held>,
    pub(crate) clock: ResMut<'w, Clock>,
    ratio: Res<'w, NewTokenRatio>,
    plan: Res<'w, Plan>,
    mark: ResMut<'w, OpenMark>,
}

/// Commits the pass and takes results.
pub(crate) fn commit(mut commit: Commit) {
    if commit.plan.refusal.is_some() {
        return;
    }
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
        self.mark.take();
        self.cache.journal.commit();
        let Cache { tree, pool, contents, .. } = &mut self.cache;
        tree.commit(contents);
        pool.commit();
        self.record.after_schedule = gauges(&self.cache, &self.ratio);
    }

    /// Without overlap the clock moves to the end of this pass; with it, to the end of the one before, whose results are taken
    /// now.
    fn pass_time(&mut self) {
        let duration_ns = self.plan.duration_ns;
        if self.cache.config.disable_overlap_schedule {
            self.clock.now_ns += duration_ns;
        } else {
            self.clock.now_ns += std::mem::replace(&mut self.clock.in_flight_ns, duration_ns);
        }
    }

    /// The batch runs: it is noted, and the growth counter of `hrrn` moves by its tokens.
    fn launch(&mut self) {
        self.pass_time();
        let next = &self.batches.next;
        self.record.mode = next.mode;
        self.record.extend.extend_from_slice(&next.extend);
        self.record.decode_rows = next.decode_rows + next.mixed.len() as u32;
        self.record.duration_ns = self.plan.duration_ns;
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

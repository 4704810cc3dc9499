//! `stride`: decode passes between two things that matter, where a pass only counts.
//!
//! Reads the queue, the event queue and the batches; asks the timing model; writes the clocks of the running batch, the pool's
//! counts, the ratio and the clock. A pass of a stride does what a single pass would: each row commits and produces a token,
//! the ratio decays by one subtraction, the clock moves. It costs O(1) whatever the batch. A pass is priced before it changes
//! anything, so that a refused one leaves no trace.

use bevy_ecs::resource::Resource;

use crate::batch::{BatchMode, Batches, Plan, Refusal};
use crate::cache::Cache;
use crate::config::Role;
use crate::iteration::Pass;
use crate::queue::{Inbox, Queue};
use crate::ratio::NewTokenRatio;
use crate::record::{Gauges, PassRecord};
use crate::requests::Requests;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::systems::price::fits_clock;
use crate::timing::{Clock, PassShape, Timing};
use crate::worker::StepError;
use bevy_ecs::prelude::{Res, ResMut};

/// How far a stride may go.
#[derive(Resource, Clone, Copy, Debug, Default)]
pub(crate) struct StrideLimits {
    /// No pass starts at or after this time, in nanoseconds: something arrives then.
    pub(crate) until_ns: u64,
    /// The most passes.
    pub(crate) passes: u64,
}

/// What a stride reads and writes.
pub(crate) struct Stride<'a> {
    cache: &'a mut Cache,
    limits: &'a StrideLimits,
    inbox: &'a Inbox,
    queue: &'a Queue,
    requests: &'a Requests,
    running: &'a mut Running,
    ratio: &'a mut NewTokenRatio,
    clock: &'a mut Clock,
    batches: &'a mut Batches,
    timing: &'a mut Timing,
    plan: &'a mut Plan,
    record: &'a mut PassRecord,
}

/// Runs as many quiet decode passes as there are, none if the next pass is not one.
pub(crate) fn stride(
    mut cache: ResMut<Cache>,
    mut scheduler: ResMut<Scheduler>,
    mut pass: ResMut<Pass>,
    mut timing: ResMut<Timing>,
    limits: Res<StrideLimits>,
) {
    let Scheduler { inbox, queue, requests, running, batches, .. } = &mut *scheduler;
    let Pass { plan, record, ratio, clock, .. } = &mut *pass;
    let (cache, timing) = (&mut *cache, &mut *timing);
    let mut stride =
        Stride { cache, limits: &limits, inbox, queue, requests, running, ratio, clock, batches, timing, plan, record };
    stride.record.passes = 0;
    if !stride.only_counts() {
        return;
    }
    let mut passes = 0;
    let started_ns = stride.clock.now_ns;
    while passes < stride.limits.passes && stride.next_is_quiet() {
        match stride.price() {
            Ok(duration_ns) => stride.pass(duration_ns),
            Err(refusal) if passes == 0 => {
                stride.plan.refusal = Some(refusal);
                return;
            }
            // A refused pass ends the stride before it. It is the next one, and the model is asked for it again then.
            Err(_) => break,
        }
        passes += 1;
    }
    if passes > 0 {
        stride.note(passes, started_ns);
    }
}

impl Stride<'_> {
    /// What holds for a whole stride: nothing but the running rows can change.
    fn only_counts(&self) -> bool {
        let numbers = &self.running.numbers;
        let queue_moves = !self.queue.is_empty() && (!numbers.full || self.cache.config.preempts());
        self.cache.config.role == Role::Unified
            && self.batches.last.mode == BatchMode::Decode
            && numbers.chunked.is_none()
            && numbers.chunked_abort.is_none()
            && numbers.finished_rows == 0
            && numbers.prefill_defer == 0
            && !numbers.prefill_only
            && !self.running.rows().is_empty()
            && !queue_moves
            && self.inbox.asked.is_empty()
            && self.requests.ended() == 0
    }

    /// What must hold for each pass: no row ends, no page runs short, nothing is published, nothing arrives.
    fn next_is_quiet(&self) -> bool {
        let numbers = &self.running.numbers;
        let rows = self.running.rows().len() as u64;
        let publishes = !self.cache.events.is_empty()
            && (self.clock.decode_batches + 1).is_multiple_of(u64::from(self.cache.config.decode_log_interval));
        numbers.results + 1 < numbers.next_end
            && self.cache.pool.free_tokens() >= rows * u64::from(self.cache.config.page_size)
            && self.clock.now_ns < self.limits.until_ns
            && !publishes
    }

    fn price(&mut self) -> Result<u64, Refusal> {
        let rows = self.running.rows().len();
        let shape = PassShape {
            decode_rows: rows as u32,
            decode_kv_tokens: self.running.committed_tokens() + rows as u64,
            ..PassShape::default()
        };
        let starts_ns = self.clock.now_ns.saturating_add(self.clock.in_flight_ns);
        let answer = self.timing.model.duration_ns(&shape);
        answer.and_then(|duration_ns| fits_clock(starts_ns, duration_ns)).map_err(|error| {
            let request = self.running.rows()[0];
            let tag = self.requests.spec(request).tag;
            Refusal::Error(StepError::Timing { mode: BatchMode::Decode, shape, tag, request, error })
        })
    }

    fn pass(&mut self, duration_ns: u64) {
        self.ratio.decay();
        let pages = self.running.rows_at_page_end();
        self.cache.pool.take_for_decode(pages);
        self.running.launch();
        let numbers = &mut self.running.numbers;
        numbers.results += 1;
        numbers.processed_tokens += numbers.founder_tokens;
        if self.cache.config.disable_overlap_schedule {
            self.clock.now_ns += duration_ns;
        } else {
            self.clock.now_ns += std::mem::replace(&mut self.clock.in_flight_ns, duration_ns);
        }
        self.clock.decode_batches += 1;
        self.clock.iteration += 1;
    }

    /// Notes the stride in the record and in the last batch.
    fn note(&mut self, passes: u64, started_ns: u64) {
        if self.cache.config.preempts() {
            self.running.numbers.full = false;
        }
        let rows = self.running.rows().len() as u32;
        self.batches.last.number += passes;
        self.batches.last.decode_rows = rows;
        self.batches.next.number += passes;
        let gauges = Gauges {
            free_tokens: self.cache.pool.free_tokens(),
            evictable_tokens: self.cache.tree.numbers.evictable_tokens,
            protected_tokens: self.cache.tree.numbers.protected_tokens,
            new_token_ratio: self.ratio.current(),
        };
        let record = &mut *self.record;
        record.reset();
        record.passes = passes;
        record.mode = BatchMode::Decode;
        record.decode_rows = rows;
        record.duration_ns = self.clock.now_ns - started_ns;
        record.after_schedule = gauges;
        record.after_results = gauges;
        record.iteration = self.clock.iteration - 1;
        record.committed = true;
    }
}

//! `stride`: decode passes between two things that matter, where a pass only counts.
//!
//! Reads the queue, the event queue and the batches; asks the timing model; writes the clocks of the running batch, the pool's
//! counts, the ratio and the clock. A pass of a stride does what a single pass would: each row commits and produces a token,
//! the ratio decays by one subtraction, the clock moves. It costs O(1) whatever the batch. A pass is priced before it changes
//! anything, so that a refused one leaves no trace. A pass in which rows end is the last one of its stride. Rows that have
//! finished are dropped by the first pass, as by any decode. Without overlap the first pass may also be the one that merges
//! the rows of an extend batch, if nobody waits: then an agent's turn costs one ordinary pass and one stride.

use crate::batch::{BatchMode, Batches, Plan, Refusal};
use crate::cache::Cache;
use crate::config::Role;
use crate::engine::Engine;
use crate::iteration::Pass;
use crate::queue::{Inbox, Queue};
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::request::RequestKey;
use crate::requests::{Progress, Requests};
use crate::results;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::systems::commit::gauges;
use crate::systems::settle::merge_last;
use crate::timing::{Clock, PassShape, PassTime, Timing};
use crate::worker::StepError;

/// What a stride reads and writes.
pub(crate) struct Stride<'a> {
    cache: &'a mut Cache,
    inbox: &'a Inbox,
    queue: &'a Queue,
    requests: &'a mut Requests,
    running: &'a mut Running,
    ratio: &'a mut NewTokenRatio,
    clock: &'a mut Clock,
    batches: &'a mut Batches,
    timing: &'a mut Timing,
    plan: &'a mut Plan,
    record: &'a mut PassRecord,
}

/// Runs as many quiet decode passes as there are, none if the next pass is not one.
pub(crate) fn stride(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, timing, .. } = engine;
    let Scheduler { inbox, queue, requests, running, batches, .. } = scheduler;
    let Pass { plan, record, ratio, clock, .. } = pass;
    let mut stride = Stride { cache, inbox, queue, requests, running, ratio, clock, batches, timing, plan, record };
    stride.plan.stride_passes = 0;
    if !stride.only_counts() {
        return;
    }
    let started_ns = stride.clock.now_ns;
    while stride.plan.stride_passes < stride.plan.stride.passes && stride.next_is_quiet() {
        let before_ns = stride.clock.now_ns;
        match stride.price() {
            Ok(time) => stride.pass(time),
            Err(refusal) if stride.plan.stride_passes == 0 => {
                stride.plan.refusal = Some(refusal);
                return;
            }
            // A refused pass ends the stride before it. It is the next one, and the model is asked for it again then.
            Err(_) => break,
        }
        stride.record.note_clock(stride.clock.now_ns - before_ns);
        if !stride.record.finished.is_empty() {
            break;
        }
    }
    if stride.plan.stride_passes > 0 {
        stride.note(started_ns);
    }
}

impl Stride<'_> {
    /// What holds for a whole stride: nothing but the running rows can change.
    fn only_counts(&self) -> bool {
        let numbers = &self.running.numbers;
        self.cache.config.role == Role::Unified
            && (self.batches.last.mode == BatchMode::Decode || self.may_merge())
            && numbers.chunked.is_none()
            && numbers.chunked_abort.is_none()
            && numbers.prefill_defer == 0
            && !numbers.prefill_only
            && self.rows_left() > 0
            && self.inbox.asked.is_empty()
    }

    /// Whether the next pass only has to merge the last batch, an extend batch without chunks whose results are taken.
    fn may_merge(&self) -> bool {
        let last = &self.batches.last;
        last.mode == BatchMode::Extend
            && self.cache.config.disable_overlap_schedule
            && last.mixed.is_empty()
            && last.middle.is_none()
            && !last.prefill_only
            && self.queue.is_empty()
    }

    /// The rows that the next pass merges.
    fn joining(&self) -> impl Iterator<Item = (RequestKey, &Progress)> {
        let rows = if self.batches.last.mode == BatchMode::Extend { self.batches.last.extend.as_slice() } else { &[] };
        let progress = rows.iter().map(|row| (row.request, self.requests.get(row.request)));
        progress.filter(|(_, progress)| progress.finish.is_none())
    }

    /// Rows that decode: those that have finished are dropped first.
    fn rows_left(&self) -> u64 {
        let rows = self.running.rows().len() as u64 - u64::from(self.running.numbers.finished_rows);
        rows + self.joining().count() as u64
    }

    /// Whether rows end in the next pass.
    fn next_ends(&self) -> bool {
        let numbers = &self.running.numbers;
        let last_token = |(request, progress): (RequestKey, &Progress)| {
            progress.aborting || self.requests.end_length(request) - progress.produced <= 1
        };
        numbers.results + 1 >= numbers.next_end || self.joining().any(last_token)
    }

    /// What must hold for each pass: the queue does not move, no page runs short, nothing is published or arrives.
    fn next_is_quiet(&self) -> bool {
        let numbers = &self.running.numbers;
        let rows = self.rows_left();
        let queue_moves = !self.queue.is_empty() && (!numbers.full || self.cache.config.preempts());
        let publishes = (!self.cache.events.is_empty() || self.next_ends())
            && (self.clock.decode_batches + 1).is_multiple_of(u64::from(self.cache.config.decode_log_interval));
        self.cache.pool.free_tokens() >= rows * u64::from(self.cache.config.page_size)
            && self.clock.now_ns < self.plan.stride.until_ns
            && !publishes
            && !queue_moves
    }

    fn price(&mut self) -> Result<PassTime, Refusal> {
        let rows = self.rows_left();
        let shape = PassShape {
            decode_rows: rows as u32,
            decode_kv_tokens: self.running.committed_tokens() - self.finished_tokens() + self.joining_tokens() + rows,
            ..PassShape::default()
        };
        let overlap = !self.cache.config.disable_overlap_schedule;
        self.timing.ask(&shape, self.clock, overlap).map_err(|error| {
            let left = |&&row: &&RequestKey| self.requests.get(row).finish.is_none();
            let joining = self.joining().map(|(request, _)| request).next();
            let request = self.running.rows().iter().find(left).copied().or(joining).expect("a row is left");
            let tag = self.requests.spec(request).tag;
            Refusal::Error(StepError::Timing { mode: BatchMode::Decode, shape: Box::new(shape), tag, request, error })
        })
    }

    /// KV tokens of rows that have finished and are still counted.
    fn finished_tokens(&self) -> u64 {
        if self.running.numbers.finished_rows == 0 {
            return 0;
        }
        let rows = self.running.rows().iter().map(|&row| self.requests.get(row));
        rows.filter(|row| row.finish.is_some()).map(|row| u64::from(self.running.committed(row))).sum()
    }

    /// KV tokens of the rows that the next pass merges.
    fn joining_tokens(&self) -> u64 {
        self.joining().map(|(_, progress)| u64::from(self.running.committed(progress))).sum()
    }

    /// Merges the last batch if it was an extend batch, and makes it the decode batch that the stride is.
    fn merge(&mut self) {
        if self.batches.last.mode == BatchMode::Extend {
            merge_last(self.cache, &self.batches.last, self.requests, self.running);
            let number = self.batches.last.number;
            self.batches.last.reset(number);
            self.batches.last.mode = BatchMode::Decode;
        }
    }

    /// Drops the rows that have finished; a batch that lost rows is no longer latched.
    fn drop_finished(&mut self) {
        if self.running.numbers.finished_rows > 0 {
            self.running.leave_all(self.requests, &mut self.cache.journal, |_, progress| progress.finish.is_some());
            self.running.numbers.full = false;
        }
    }

    fn pass(&mut self, time: PassTime) {
        if self.plan.stride_passes == 0 {
            self.record.reset();
            self.merge();
        }
        self.plan.stride_passes += 1;
        self.drop_finished();
        self.ratio.decay();
        let pages = self.running.rows_at_page_end();
        self.cache.pool.take_for_decode(pages);
        self.running.launch();
        let numbers = &mut self.running.numbers;
        numbers.results += 1;
        numbers.processed_tokens += numbers.founder_tokens;
        self.clock.pass(time, !self.cache.config.disable_overlap_schedule);
        self.clock.decode_batches += 1;
        self.clock.iteration += 1;
        if self.running.numbers.results >= self.running.numbers.next_end {
            self.record.after_schedule = gauges(self.cache, self.ratio);
            results::end_rows(self.cache, self.requests, self.running, self.record, &[]);
        }
    }

    /// Notes the stride in the record and in the last batch.
    fn note(&mut self, started_ns: u64) {
        let passes = self.plan.stride_passes;
        if self.cache.config.preempts() {
            self.running.numbers.full = false;
        }
        let rows = self.running.rows().len() as u32;
        self.batches.last.number += passes;
        self.batches.last.decode_rows = rows;
        self.batches.next.number += passes;
        let contents = &mut self.cache.contents;
        self.requests.drop_ended(self.batches.last.number, |_, spec| contents.release(spec.content));
        let gauges = gauges(self.cache, self.ratio);
        let record = &mut *self.record;
        record.passes = passes;
        record.mode = BatchMode::Decode;
        record.decode_rows = rows;
        record.decode_tokens = rows;
        record.duration_ns = self.clock.now_ns - started_ns;
        if record.finished.is_empty() {
            record.after_schedule = gauges;
        }
        record.after_results = gauges;
        record.iteration = self.clock.iteration - 1;
    }
}

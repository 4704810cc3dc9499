//! `decode`: one token for every running request, or retraction when the pool has no room (`behaviour.md` section 5).
//!
//! Reads the settings; writes the running batch, the pool (by eviction too), the ratio, the queue, and the requests that are
//! retracted or run out of memory.

use std::cmp::Reverse;

use bumpalo::Bump;
use slotmap::Key;

use crate::batch::{BatchMode, Batches, Plan, Refusal};
use crate::cache::Cache;
use crate::config::{RetractionPolicy, Role};
use crate::engine::Engine;
use crate::iteration::Pass;
use crate::queue::Queue;
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::request::RequestKey;
use crate::requests::Requests;
use crate::results::pending;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::systems::enter::{preference, put_in_queue};
use crate::systems::preempt::retract_row;
use crate::worker::StepError;

/// What a decode pass reads and writes.
pub(crate) struct Decode<'a> {
    cache: &'a mut Cache,
    requests: &'a mut Requests,
    running: &'a mut Running,
    queue: &'a mut Queue,
    batches: &'a mut Batches,
    record: &'a mut PassRecord,
    ratio: &'a mut NewTokenRatio,
    plan: &'a mut Plan,
}

/// Decodes if nothing prefills.
pub(crate) fn decode(engine: &mut Engine, scratch: &mut Bump) {
    let Engine { cache, scheduler, pass, .. } = engine;
    let Scheduler { requests, running, queue, batches, .. } = scheduler;
    let Pass { record, ratio, plan, .. } = pass;
    let idle = batches.next.mode == BatchMode::Idle && plan.refusal.is_none();
    let may_run = cache.config.role == Role::Unified && !running.numbers.prefill_only;
    if idle && may_run && !running.rows().is_empty() {
        scratch.reset();
        let mut decode = Decode { cache, requests, running, queue, batches, record, ratio, plan };
        decode.update_running(scratch);
    }
}

impl Decode<'_> {
    fn update_running(&mut self, scratch: &Bump) {
        let rows = self.running.rows().len();
        if self.running.numbers.finished_rows > 0 {
            self.running.leave_all(self.requests, &mut self.cache.journal, |_, progress| progress.finish.is_some());
        }
        if self.running.rows().is_empty() {
            self.running.numbers.full = false;
            return;
        }
        if self.fits(self.running.rows_at_page_end()) {
            self.ratio.decay();
        } else {
            self.retract(scratch);
        }
        if self.running.rows().len() < rows {
            self.running.numbers.full = false;
        }
        if !self.running.rows().is_empty() {
            self.take_one_token_each();
        }
    }

    /// Makes room for pages by eviction, and says whether there is enough.
    fn fits(&mut self, pages: u64) -> bool {
        let wanted = pages * u64::from(self.cache.config.page_size);
        self.cache.make_room(wanted);
        self.cache.pool.free_tokens() >= wanted
    }

    fn take_one_token_each(&mut self) {
        let rows = self.running.rows().len();
        let pages = self.running.rows_at_page_end();
        // An over-estimate for pages of more than one token, as in the reference.
        self.cache.make_room(rows as u64 * u64::from(self.cache.config.page_size));
        if pages > self.cache.pool.numbers.free_pages {
            self.plan.refusal = Some(Refusal::Error(StepError::PoolExhausted {
                tag: self.requests.spec(self.running.rows()[0]).tag,
                request: self.running.rows()[0],
                wanted_tokens: pages * u64::from(self.cache.config.page_size),
                free_tokens: self.cache.pool.free_tokens(),
            }));
            return;
        }
        self.cache.pool.take_for_decode(pages);
        self.running.launch();
        self.batches.next.mode = BatchMode::Decode;
        self.batches.next.decode_rows = rows as u32;
    }

    /// Retracts requests from the least preferred on until the decode need of those left fits. One always stays; if it does
    /// not fit alone, it is aborted.
    fn retract(&mut self, scratch: &Bump) {
        let mut kept = self.retraction_order(scratch);
        let mut retracted = bumpalo::collections::Vec::new_in(scratch);
        let mut first = true;
        while kept.len() > 1 && (first || !self.fits_rows(&kept)) {
            first = false;
            let Some(request) = kept.pop() else { break };
            self.release(request, kept.len());
            self.record.retracted.push(self.requests.spec(request).tag);
            retracted.push(request);
        }
        if kept.len() == 1 && !self.fits_rows(&kept) {
            let last = kept[0];
            self.release(last, 0);
            kept.clear();
            // The reference counts this as a retraction too.
            self.record.retracted.push(self.requests.spec(last).tag);
            self.record.dropped.push(self.requests.spec(last).tag);
            self.requests.end(last, &mut self.cache.journal);
        }
        self.reorder_rows(&kept);
        self.estimate_ratio();
        for request in retracted {
            put_in_queue(
                &self.cache.config,
                self.requests,
                self.queue,
                self.running,
                self.record,
                &mut self.cache.journal,
                request,
            );
        }
    }

    /// The rows from the most to the least preferred to keep.
    fn retraction_order<'b>(&self, scratch: &'b Bump) -> bumpalo::collections::Vec<'b, RequestKey> {
        let mut order = bumpalo::collections::Vec::new_in(scratch);
        order.extend_from_slice(self.running.rows());
        let by_priority = self.cache.config.retraction_policy == RetractionPolicy::Priority;
        // A stable sort in reverse: among equals the earlier row is kept.
        order.sort_by_key(|&request| {
            let worst = if by_priority { preference(&self.cache.config, self.requests, request) } else { 0 };
            let produced = self.running.produced(self.requests.get(request));
            (worst, Reverse(produced), self.requests.spec(request).prompt_tokens)
        });
        order
    }

    fn fits_rows(&mut self, rows: &[RequestKey]) -> bool {
        let page = self.cache.config.page_size;
        let at_page_end = |&&row: &&RequestKey| self.running.committed(self.requests.get(row)).is_multiple_of(page);
        let pages = rows.iter().filter(at_page_end).count();
        self.fits(pages as u64)
    }

    /// Releases a row without insertion and makes room for what the rows left will decode.
    fn release(&mut self, request: RequestKey, rows_left: usize) {
        let at = self.running.rows().iter().position(|&row| row == request).expect("a kept row is in the batch");
        retract_row(self.cache, self.requests, self.running, at);
        self.cache.make_room(rows_left as u64 * u64::from(self.cache.config.retract_decode_steps));
    }

    /// The rows left stand in the order of retraction from now on.
    fn reorder_rows(&mut self, order: &[RequestKey]) {
        let pending = pending(self.batches, !self.cache.config.disable_overlap_schedule);
        if pending && self.batches.last.mode == BatchMode::Decode {
            self.batches.launch_order.extend_from_slice(self.running.rows());
        }
        self.running.leave_all(self.requests, &mut self.cache.journal, |_, _| true);
        for &request in order {
            debug_assert!(!request.is_null());
            self.running.join(self.requests, request, &mut self.cache.journal);
        }
    }

    fn estimate_ratio(&mut self) {
        let mut produced = 0;
        let mut max_new = 0;
        for &request in self.running.rows() {
            produced += u64::from(self.running.produced(self.requests.get(request)));
            max_new += u64::from(self.requests.spec(request).max_new_tokens);
        }
        let rows = self.running.rows().len() as u64;
        self.ratio.retracted(rows, produced, max_new, self.cache.config.retract_decode_steps);
    }
}

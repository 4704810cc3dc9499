//! `allocate`: pages and slots for the rows of an extend batch, and in mixed mode one token more for the running rows.
//!
//! Reads the batch; writes the pool (by eviction too), the requests' lengths and slots, the running batch. A pool that cannot
//! provide is a refusal of the pass.

use crate::batch::{BatchMode, Batches, Plan, Refusal};
use crate::cache::Cache;
use crate::engine::Engine;
use crate::pool::Owner;
use crate::request::RequestKey;
use crate::requests::Requests;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::worker::StepError;

/// What allocation reads and writes.
pub(crate) struct Allocate<'a> {
    cache: &'a mut Cache,
    requests: &'a mut Requests,
    running: &'a mut Running,
    batches: &'a mut Batches,
    plan: &'a mut Plan,
}

/// Allocates for an extend batch.
pub(crate) fn allocate(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, .. } = engine;
    if scheduler.batches.next.mode != BatchMode::Extend {
        return;
    }
    let Scheduler { requests, running, batches, .. } = scheduler;
    let mut allocate = Allocate { cache, requests, running, batches, plan: &mut pass.plan };
    if allocate.extend_rows() && allocate.cache.config.mixes() {
        allocate.mix_running_rows();
    }
}

impl Allocate<'_> {
    /// Makes room with one page too many for each row, as the reference does, then takes exactly the pages needed.
    fn extend_rows(&mut self) -> bool {
        let page = self.cache.config.page_size;
        let rows = &self.batches.next.extend;
        let tokens: u64 = rows.iter().map(|row| u64::from(row.end - row.prefix)).sum();
        let spare = if page > 1 { rows.len() as u64 * u64::from(page) } else { 0 };
        let pages: u64 = rows.iter().map(|row| u64::from(row.end.div_ceil(page) - row.prefix.div_ceil(page))).sum();
        self.cache.make_room(tokens + spare);
        if pages > self.cache.pool.numbers.free_pages {
            let leader = rows[0].request;
            self.refuse(leader, pages);
            return false;
        }
        let mut prefill_only = true;
        for index in 0..self.batches.next.extend.len() {
            let row = self.batches.next.extend[index];
            prefill_only &= self.requests.spec(row.request).max_new_tokens == 0;
            self.take_row(row.request, row.end.div_ceil(page) - row.prefix.div_ceil(page), row.end);
        }
        self.batches.next.new_tokens = tokens;
        self.batches.next.prefill_only = prefill_only;
        true
    }

    fn take_row(&mut self, request: RequestKey, pages: u32, end: u32) {
        let progress = *self.requests.get(request);
        let run = self.cache.pool.take(progress.run, Owner::Request(request), pages, &mut self.cache.journal);
        if !progress.has_slot {
            self.running.numbers.free_slots -= 1;
        }
        self.requests.update(request, &mut self.cache.journal, |progress| {
            progress.run = run;
            progress.has_slot = true;
            progress.committed = i64::from(end);
        });
    }

    /// The running rows decode inside the batch and become part of it.
    fn mix_running_rows(&mut self) {
        self.running.leave_all(self.requests, &mut self.cache.journal, |_, progress| progress.finish.is_some());
        let rows = self.running.rows().len() as u64;
        if rows == 0 {
            return;
        }
        let page = u64::from(self.cache.config.page_size);
        let pages = self.running.rows_at_page_end();
        self.cache.make_room(rows * page);
        if pages > self.cache.pool.numbers.free_pages {
            let leader = self.running.rows()[0];
            self.refuse(leader, pages);
            return;
        }
        self.cache.pool.take_for_decode(pages);
        self.running.launch();
        let number = self.batches.next.number;
        let mut mixed = std::mem::take(&mut self.batches.next.mixed);
        mixed.extend_from_slice(self.running.rows());
        self.running.leave_all(self.requests, &mut self.cache.journal, |_, _| true);
        for &request in &mixed {
            let committed = self.running.committed(self.requests.get(request));
            self.cache.settle_pages(self.requests, request, committed);
            let fill = self.requests.fill_tokens(request);
            self.requests.update(request, &mut self.cache.journal, |progress| {
                progress.batch = number;
                progress.tested_total = fill;
            });
        }
        self.batches.next.mixed = mixed;
        self.batches.next.new_tokens += rows;
        self.batches.next.prefill_only = false;
        let numbers = &mut self.running.numbers;
        numbers.prefill_only = false;
        numbers.founder_tokens = 0;
    }

    fn refuse(&mut self, leader: RequestKey, pages: u64) {
        self.plan.refusal = Some(Refusal::Error(StepError::PoolExhausted {
            tag: self.requests.spec(leader).tag,
            request: leader,
            wanted_tokens: pages * u64::from(self.cache.config.page_size),
            free_tokens: self.cache.pool.free_tokens(),
        }));
    }
}

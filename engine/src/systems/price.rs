//! `price`: how long the pass takes.
//!
//! Reads the batch, requests and the running batch, and for a look also the tree, the event queue and the record; asks the
//! timing model; writes the plan's duration or its refusal.

use crate::batch::{Batch, BatchMode, Batches, ExtendRow, Peek, Plan, Refusal};
use crate::cache::Cache;
use crate::engine::Engine;
use crate::iteration::Pass;
use crate::record::PassRecord;
use crate::requests::Requests;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::timing::{Clock, PassShape, PassTime, Timing};
use crate::worker::StepError;

/// What pricing reads and writes.
pub(crate) struct Price<'a> {
    batches: &'a Batches,
    requests: &'a Requests,
    running: &'a Running,
    clock: &'a Clock,
    cache: &'a Cache,
    record: &'a PassRecord,
    evicted_before: u64,
    timing: &'a mut Timing,
    plan: &'a mut Plan,
}

/// Asks the timing model for the duration of the next batch, unless it is only looked at.
pub(crate) fn price(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, timing, .. } = engine;
    let Scheduler { requests, running, batches, .. } = &*scheduler;
    let evicted_before = pass.mark.as_ref().map_or(0, |mark| mark.tree.evicted_tokens);
    let Pass { plan, record, clock, .. } = pass;
    let cache = &*cache;
    let mut price = Price { batches, requests, running, clock, cache, record, evicted_before, timing, plan };
    price.plan.time = PassTime::default();
    if price.plan.refusal.is_some() {
        return;
    }
    if price.plan.peeking {
        price.plan.refusal = Some(Refusal::Peek(price.look()));
    } else if price.batches.next.mode != BatchMode::Idle {
        price.ask();
    }
}

impl Price<'_> {
    fn ask(&mut self) {
        let shape = shape_of(&self.batches.next, self.requests, self.running);
        let overlap = !self.cache.config.disable_overlap_schedule;
        match self.timing.ask(&shape, self.clock, overlap) {
            Ok(time) => self.plan.time = time,
            Err(error) => {
                let mode = self.batches.next.mode;
                let first = self.batches.next.extend.first().map(|row| row.request);
                let request = first.unwrap_or_else(|| self.running.rows()[0]);
                let tag = self.requests.spec(request).tag;
                self.plan.refusal =
                    Some(Refusal::Error(StepError::Timing { mode, shape: Box::new(shape), tag, request, error }));
            }
        }
    }

    /// What the pass has come to so far.
    fn look(&self) -> Peek {
        let batch = &self.batches.next;
        let row = |row: &ExtendRow| (self.requests.spec(row.request).tag, row.prefix, row.end);
        Peek {
            mode: batch.mode,
            extend: batch.extend.iter().map(row).collect(),
            decode_rows: batch.decode_rows + batch.mixed.len() as u32,
            retracted: self.record.retracted.clone(),
            evicted_tokens: self.cache.tree.evicted_tokens() - self.evicted_before,
            events: self.cache.events.waiting().collect(),
        }
    }
}

/// The exact sums over a batch's rows.
fn shape_of(batch: &Batch, requests: &Requests, running: &Running) -> PassShape {
    let mut shape = PassShape::default();
    for row in &batch.extend {
        let new_tokens = u64::from(row.end - row.prefix);
        shape.extend_rows += 1;
        shape.extend_tokens += new_tokens;
        shape.cached_tokens += u64::from(row.prefix);
        shape.extend_attention += u128::from(new_tokens) * u128::from(row.end);
        shape.extend_squares += u128::from(new_tokens) * u128::from(new_tokens);
    }
    if batch.mode == BatchMode::Decode {
        shape.decode_rows = batch.decode_rows;
        shape.decode_kv_tokens = running.committed_tokens();
    } else {
        shape.decode_rows = batch.mixed.len() as u32;
        shape.decode_kv_tokens = batch.mixed.iter().map(|&request| requests.get(request).committed as u64).sum();
    }
    shape
}

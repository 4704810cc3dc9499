//! `observe`: the iteration is over.
//!
//! Releases transfers that have ended, notes the sizes, drops the rows of ended requests, and makes this batch the last one.

use crate::engine::Engine;
use crate::iteration::Pass;
use crate::results;
use crate::scheduler::Scheduler;
use crate::systems::commit::gauges;

/// Closes the iteration.
pub(crate) fn observe(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, .. } = engine;
    let Scheduler { requests, running, held, batches, .. } = scheduler;
    let Pass { record, clock, ratio, .. } = pass;
    if !held.requests.is_empty() {
        results::end_transfers(cache, requests, running, held, record, clock);
    }
    record.after_results = gauges(cache, ratio);
    record.iteration = clock.iteration;
    clock.iteration += 1;
    std::mem::swap(&mut batches.next, &mut batches.last);
    let last = batches.last.number;
    batches.next.reset(last + 1);
    requests.drop_ended(last, |_, spec| cache.contents.release(spec.content));
}

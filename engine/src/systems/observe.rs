//! `observe`: the iteration is over.
//!
//! Releases transfers that have ended, notes the sizes, drops the rows of ended requests, and makes this batch the last one.

use bevy_ecs::prelude::ResMut;

use crate::cache::Cache;
use crate::iteration::Pass;
use crate::results;
use crate::scheduler::Scheduler;
use crate::systems::commit::gauges;

/// Closes the iteration.
pub(crate) fn observe(mut cache: ResMut<Cache>, mut scheduler: ResMut<Scheduler>, mut pass: ResMut<Pass>) {
    let cache = &mut *cache;
    let Scheduler { requests, running, held, batches, .. } = &mut *scheduler;
    let Pass { record, clock, ratio, .. } = &mut *pass;
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

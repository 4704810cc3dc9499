//! `observe`: the iteration is over.
//!
//! Releases transfers that have ended, notes the sizes, drops the rows of ended requests, and makes this batch the last one.

use bevy_ecs::prelude::{Res, ResMut};
use bevy_ecs::system::SystemParam;

use crate::batch::{Batches, Plan};
use crate::cache::Cache;
use crate::queue::Held;
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::requests::Requests;
use crate::results;
use crate::running::Running;
use crate::systems::commit::gauges;
use crate::timing::Clock;

/// What observing reads and writes.
#[derive(SystemParam)]
pub(crate) struct Observe<'w> {
    cache: Cache<'w>,
    requests: ResMut<'w, Requests>,
    running: ResMut<'w, Running>,
    held: ResMut<'w, Held>,
    batches: ResMut<'w, Batches>,
    record: ResMut<'w, PassRecord>,
    clock: ResMut<'w, Clock>,
    ratio: Res<'w, NewTokenRatio>,
    plan: Res<'w, Plan>,
}

/// Closes the iteration.
pub(crate) fn observe(mut observe: Observe) {
    if observe.plan.refusal.is_some() {
        return;
    }
    let Observe { cache, requests, running, held, batches, record, clock, ratio, .. } = &mut observe;
    if !held.requests.is_empty() {
        results::end_transfers(cache, requests, running, held, record, clock);
    }
    record.after_results = gauges(cache, ratio);
    record.iteration = clock.iteration;
    record.committed = true;
    clock.iteration += 1;
    let batches = &mut **batches;
    std::mem::swap(&mut batches.next, &mut batches.last);
    let last = batches.last.number;
    batches.next.reset(last + 1);
    requests.drop_ended(last, |_, spec| cache.contents.release(spec.content));
}

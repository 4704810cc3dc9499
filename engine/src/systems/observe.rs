//! `observe`: the iteration is over.
//!
//! Releases transfers that have ended, notes the sizes, drops the rows of ended requests, and makes this batch the last one.

use bevy_ecs::prelude::{Res, ResMut};

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

/// Closes the iteration.
pub(crate) fn observe(
    mut cache: Cache,
    mut requests: ResMut<Requests>,
    mut running: ResMut<Running>,
    mut held: ResMut<Held>,
    mut batches: ResMut<Batches>,
    mut record: ResMut<PassRecord>,
    mut clock: ResMut<Clock>,
    ratio: Res<NewTokenRatio>,
    plan: Res<Plan>,
) {
    if plan.refusal.is_some() {
        return;
    }
    if !held.requests.is_empty() {
        results::end_transfers(&mut cache, &mut requests, &mut running, &mut held, &mut record, &clock);
    }
    record.after_results = gauges(&cache, &ratio);
    record.iteration = clock.iteration;
    record.committed = true;
    clock.iteration += 1;
    let batches = &mut *batches;
    std::mem::swap(&mut batches.next, &mut batches.last);
    let last = batches.last.number;
    batches.next.reset(last + 1);
    requests.drop_ended(last, |_, spec| cache.contents.release(spec.content));
}

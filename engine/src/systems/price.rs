//! `price`: how long the pass takes.
//!
//! Reads the batch, requests and the running batch; asks the timing model; writes the plan's duration or its refusal.

use bevy_ecs::prelude::{Res, ResMut};

use crate::batch::{Batch, BatchMode, Batches, Plan};
use crate::requests::Requests;
use crate::running::Running;
use crate::timing::{Clock, PassShape, Timing, TimingError};
use crate::worker::StepError;

/// Asks the timing model for the duration of the next batch.
pub(crate) fn price(
    batches: Res<Batches>,
    requests: Res<Requests>,
    running: Res<Running>,
    clock: Res<Clock>,
    mut timing: ResMut<Timing>,
    mut plan: ResMut<Plan>,
) {
    plan.duration_ns = 0;
    if plan.refusal.is_some() || batches.next.mode == BatchMode::Idle {
        return;
    }
    let shape = shape_of(&batches.next, &requests, &running);
    let starts_ns = clock.now_ns.saturating_add(clock.in_flight_ns);
    let answer = timing.model.duration_ns(&shape).and_then(|duration_ns| match starts_ns.checked_add(duration_ns) {
        Some(_) => Ok(duration_ns),
        None => Err(TimingError::ClockOverflow { now_ns: starts_ns, duration_ns }),
    });
    match answer {
        Ok(duration_ns) => plan.duration_ns = duration_ns,
        Err(error) => {
            let leader = batches.next.extend.first().map(|row| row.request).or(running.rows().first().copied());
            let tag = leader.map(|request| requests.spec(request).tag);
            plan.refusal = Some(StepError::Timing { mode: batches.next.mode, shape, tag, error });
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
    }
    if batch.mode == BatchMode::Decode {
        shape.decode_rows = batch.decode_rows;
        shape.decode_kv_tokens = running.committed_tokens();
    } else {
        shape.decode_rows = batch.mixed.len() as u32;
        shape.decode_kv_tokens =
            batch.mixed.iter().map(|&request| requests.get(request).committed as u64).sum();
    }
    shape
}

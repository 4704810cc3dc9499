//! Plays a trace with servesim, as `servesim run` does.

use anyhow::Result;
use servesim_engine::timing::Constant;
use servesim_scenarios::player::{Pace, Player};
use servesim_scenarios::summary::{EventCounts, Tally};

use crate::case::{Counts, Events, Trace};

/// Plays to the end.
///
/// # Errors
/// A trace that cannot be read, or a run that cannot go on.
pub fn play(trace: Trace, page_size: u32) -> Result<Counts> {
    let scenario = trace.scenario(page_size)?;
    let pass_ns = trace.pass_ns();
    let timing = Box::new(Constant { extend_ns: pass_ns.extend, decode_ns: pass_ns.decode });
    let workload = scenario.build_workload()?;
    let mut player = Player::new(scenario.engine, timing, workload, Pace::Model)?;
    let mut tally = Tally::default();
    player.run(|played| tally.add(played))?;
    let summary = tally.summary();
    Ok(Counts {
        finished: summary.requests.completed,
        rejected: summary.requests.rejected,
        retracted: summary.retracted,
        extend_passes: summary.passes.extend,
        decode_passes: summary.passes.decode,
        hit_tokens: summary.tokens.cached,
        output_tokens: summary.tokens.output,
        stored: events(&summary.kv_events.stored),
        removed: events(&summary.kv_events.removed),
    })
}

/// The sums of one kind of event.
pub fn events(counts: &EventCounts) -> Events {
    Events { events: counts.events, blocks: counts.blocks }
}

//! The closed loop around the peer's engine: submits what is due, runs a pass, counts what it says, moves the clock.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use aisimulate_core::engine::generalized::{EngineIdentity, SchedulerCommand};
use aisimulate_core::engine::{
    Command, Engine, EngineFactory, KvEvent, KvEventData, PassCompletionEffects, PassStartEffects,
};
use anyhow::{Result, bail};
use uuid::Uuid;

use super::settings::settings;
use crate::case::{Counts, Trace};
use crate::requests::Source;

/// Passes in a row that take no time after which the peer is taken for stuck. Its reservation for outputs shrinks from pass
/// to pass for 600 passes, so that a request may enter after some that did nothing.
const MOST_FRUITLESS: u32 = 1000;

/// The only rank.
const RANK: u32 = 0;

/// Plays to the end.
///
/// # Errors
/// A trace that cannot be read, a setting that the peer does not have, or a run that cannot go on.
pub fn play(trace: Trace, page_size: u32, emit_kv_events: bool) -> Result<Counts> {
    let scenario = trace.scenario(page_size)?;
    let config = settings(&scenario.engine, trace.pass_ns(), emit_kv_events)?;
    let engine = EngineFactory::new(config)?.build(EngineIdentity::new(0), NonZeroU32::MIN)?;
    let source = Source::open(trace, page_size)?;
    let mut playing =
        Playing { engine, source, now_ns: 0, in_flight: 0, admitted: BTreeSet::new(), counts: Counts::default() };
    playing.run()?;
    Ok(playing.counts)
}

struct Playing {
    engine: Engine,
    source: Source,
    now_ns: u64,
    in_flight: u64,
    /// Requests in flight that were admitted before: a retracted one is admitted again.
    admitted: BTreeSet<Uuid>,
    counts: Counts,
}

impl Playing {
    fn run(&mut self) -> Result<()> {
        let mut fruitless = 0;
        loop {
            let submitted = self.submit_due()?;
            let worked = self.pass()?;
            fruitless = if submitted > 0 || worked { 0 } else { fruitless + 1 };
            if self.in_flight > 0 && fruitless <= MOST_FRUITLESS {
                continue;
            }
            match self.source.next_due_ns()? {
                Some(due_ns) => self.now_ns = self.now_ns.max(due_ns),
                None if self.in_flight == 0 => return Ok(()),
                None => bail!("{} requests can make no progress", self.in_flight),
            }
        }
    }

    fn now_ms(&self) -> f64 {
        self.now_ns as f64 / 1e6
    }

    fn submit_due(&mut self) -> Result<usize> {
        let now_ms = self.now_ms();
        let (engine, counts) = (&mut self.engine, &mut self.counts);
        let submitted = self.source.take_due(self.now_ns, |request| {
            let command = SchedulerCommand::new(RANK, Command::Submit(request));
            for rank in engine.apply_command_effects(command, now_ms)?.into_by_rank() {
                count_events(counts, &rank.effects.kv_events);
            }
            Ok(())
        })?;
        self.in_flight += submitted as u64;
        Ok(submitted)
    }

    /// One pass, if the engine has work for one; says whether it took simulated time or ended a request.
    fn pass(&mut self) -> Result<bool> {
        let Some(started) = self.engine.execute_pass(self.now_ms())? else { return Ok(false) };
        for rank in &started.by_rank {
            self.started(&rank.effects);
        }
        let completed = self.engine.complete_pass(started.pass_id, started.end_ms)?;
        let before = (self.now_ns, self.in_flight);
        self.now_ns = self.now_ns.max((started.end_ms * 1e6).round() as u64);
        for rank in completed.effects.into_by_rank() {
            self.completed(&rank.effects);
        }
        Ok(before != (self.now_ns, self.in_flight))
    }

    fn started(&mut self, effects: &PassStartEffects) {
        for admission in &effects.admissions {
            if self.admitted.insert(admission.request_id) {
                self.counts.hit_tokens += admission.reused_input_tokens as u64;
            }
        }
        self.counts.retracted += effects.pressure_events.len() as u64;
        count_events(&mut self.counts, &effects.kv_events);
    }

    fn completed(&mut self, effects: &PassCompletionEffects) {
        count_events(&mut self.counts, &effects.kv_events);
        let pass = &effects.forward_pass_metrics;
        self.counts.extend_passes += u64::from(pass.num_prefill_requests > 0);
        self.counts.decode_passes += u64::from(pass.num_decode_requests > 0);
        for output in &effects.outputs {
            self.counts.output_tokens += u64::from(output.token_id.is_some());
            if output.completed {
                self.ended(output.request_id, output.rejected);
            }
        }
    }

    fn ended(&mut self, request_id: Uuid, rejected: bool) {
        self.admitted.remove(&request_id);
        self.in_flight -= 1;
        self.counts.finished += u64::from(!rejected);
        self.counts.rejected += u64::from(rejected);
        self.source.ended(request_id, self.now_ns);
    }
}

fn count_events(counts: &mut Counts, events: &[KvEvent]) {
    for event in events {
        match &event.data {
            KvEventData::Stored(stored) => counts.stored.add(stored.blocks.len()),
            KvEventData::Removed { block_hashes } => counts.removed.add(block_hashes.len()),
        }
    }
}

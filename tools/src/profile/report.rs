//! The report as `profile.json` holds it.

use std::collections::BTreeMap;

use serde::Serialize;
use servesim_engine::laps::{Reading, Spent, Stage};
use servesim_engine::work::Work;
use servesim_scenarios::summary::Summary;

use super::call::{Call, Shape, named};
use super::growth::{self, Growth};
use super::reference::ReferenceCost;
use super::tally::{Buckets, Group, KINDS, ProfileTally, Sizes, Spread, bounds, bucket_label};
use crate::host::HostCost;

/// The word that says what the file is.
pub const KIND: &str = "servesim-profile";
/// The version of its form.
pub const VERSION: u32 = 1;

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`KIND`].
    pub kind: &'static str,
    /// [`VERSION`].
    pub version: u32,
    /// The scenario's name.
    pub scenario: String,
    /// Calls of the worker: an iteration, or a stride of decode passes.
    pub calls: u64,
    /// Iterations, those in strides and idle ones included.
    pub passes: u64,
    /// Requests that entered.
    pub requests: u64,
    /// Tokens computed by prefills and produced.
    pub tokens: u64,
    /// What measuring cost.
    pub timer: Timer,
    /// All calls.
    pub total: SystemCost,
    /// By system.
    pub systems: Vec<SystemCost>,
    /// The share of the time of the calls read by system that the systems make up.
    pub covered_share: f64,
    /// By stage of SGLang's scheduler.
    pub sglang_stages: Vec<StageCost>,
    /// Passes by nanoseconds.
    pub passes_by_ns: Vec<NsBucket>,
    /// By what was run; of this and the sizes, calls that were read by system.
    pub by_kind: Vec<GroupCost>,
    /// Prefill passes, mixed ones included, by their sizes.
    pub prefill: SizeCosts,
    /// Decode passes that are no part of a stride, by their sizes.
    pub decode: SizeCosts,
    /// Systems whose cost grows with a size.
    pub growth: Vec<Growth>,
    /// The dearest calls by nanoseconds a pass.
    pub dearest: Vec<CallCost>,
    /// Counts of work over the run.
    pub work: BTreeMap<&'static str, u64>,
    /// What the reference would pay.
    pub reference: Reference,
    /// What the whole command cost.
    pub host: HostCost,
}

/// Passes of a kind by their sizes.
#[derive(Debug, Serialize)]
pub struct SizeCosts {
    /// By rows of the batch.
    pub by_batch_size: Vec<GroupCost>,
    /// By requests that waited.
    pub by_waiting: Vec<GroupCost>,
    /// By nodes of the cache.
    pub by_cache_nodes: Vec<GroupCost>,
}

/// What measuring cost, taken off everywhere else.
#[derive(Debug, Serialize)]
pub struct Timer {
    /// Calls that were read system by system; all others at their start and end.
    pub calls_by_system: u64,
    /// The mean time of one of these over that of all calls: above 1 by what the readings disturb, and by chance.
    pub by_system_over_all: f64,
    /// Readings.
    pub readings: u64,
    /// Nanoseconds of one, the median of many in a row.
    pub ns_per_reading: u64,
    /// What they come to.
    pub total_ns: u64,
    /// Whether instructions and cycles were counted.
    pub counters: bool,
    /// Calls in which the kernel ran something else. Their times are left out everywhere else.
    pub interrupted_calls: u64,
    /// Their passes.
    pub interrupted_passes: u64,
    /// Their time, whoever had it.
    pub interrupted_ns: u64,
}

/// The cost of a system, or of all.
#[derive(Debug, Serialize)]
pub struct SystemCost {
    /// The system, or `total`.
    pub name: &'static str,
    /// The stage of SGLang's scheduler that does this there.
    pub sglang_stage: &'static str,
    /// How often it was seen to run; of the total, passes.
    pub runs: u64,
    /// Nanoseconds over the run: of a system, its share of what all calls took.
    pub total_ns: u64,
    /// The share of the time of the calls that were read by system.
    pub share: f64,
    /// Of a run, or of a pass for the total: mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// A pass of the run.
    pub ns_per_pass: f64,
    /// A request of the run.
    pub ns_per_request: f64,
    /// A token of the run.
    pub ns_per_token: f64,
    /// Instructions of what was seen, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Cycles of what was seen, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
}

/// The cost of the systems that a stage of SGLang's scheduler stands for.
#[derive(Debug, Serialize)]
pub struct StageCost {
    /// The stage.
    pub stage: &'static str,
    /// Its systems.
    pub systems: Vec<&'static str>,
    /// Nanoseconds over the run.
    pub total_ns: u64,
    /// Their share of the time of the calls that were read by system.
    pub share: f64,
}

/// Passes that took from `from_ns` to `to_ns`.
#[derive(Debug, Serialize)]
pub struct NsBucket {
    /// From.
    pub from_ns: u64,
    /// To, included.
    pub to_ns: u64,
    /// How many.
    pub passes: u64,
}

/// Calls that have something in common.
#[derive(Debug, Serialize)]
pub struct GroupCost {
    /// What: a kind, a number, or a range of numbers.
    pub bucket: String,
    /// Calls.
    pub calls: u64,
    /// Passes.
    pub passes: u64,
    /// Mean nanoseconds a pass.
    pub mean_ns: f64,
    /// 99th percentile of nanoseconds a pass.
    pub p99_ns: u64,
    /// Mean nanoseconds a pass by system.
    pub systems_ns: BTreeMap<&'static str, f64>,
}

/// One call.
#[derive(Debug, Serialize)]
pub struct CallCost {
    /// Its shape.
    #[serde(flatten)]
    pub shape: Shape,
    /// Nanoseconds of the call.
    pub total_ns: u64,
    /// Nanoseconds a pass.
    pub ns_per_pass: u64,
    /// Nanoseconds by system; empty if it was not read by system.
    pub systems_ns: BTreeMap<&'static str, u64>,
    /// Counts of work.
    pub work: BTreeMap<&'static str, u64>,
    /// What the reference would pay, in nanoseconds; none if the call was not read by system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference_ns: Option<f64>,
}

/// What the reference would pay.
#[derive(Debug, Serialize)]
pub struct Reference {
    /// What a unit costs.
    pub costs: ReferenceCost,
    /// By kind of work.
    pub parts: Vec<ReferencePart>,
    /// Nanoseconds over the run.
    pub total_ns: f64,
    /// A pass of the run.
    pub ns_per_pass: f64,
    /// The calls that would cost it the most, of those read by system.
    pub dearest: Vec<CallCost>,
}

/// A kind of the reference's work.
#[derive(Debug, Serialize)]
pub struct ReferencePart {
    /// The setting that prices it.
    pub key: &'static str,
    /// What it is.
    pub what: &'static str,
    /// The counter that counts it.
    pub counter: &'static str,
    /// How often.
    pub count: u64,
    /// Nanoseconds of one.
    pub unit_ns: f64,
    /// Nanoseconds over the run.
    pub total_ns: f64,
}

/// The stage of SGLang's scheduler that does there what a system does here, as its `scheduler_stage_seconds_total` names it.
pub fn sglang_stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Enter => "process_input_requests",
        Stage::Settle | Stage::Order | Stage::Admit | Stage::Allocate | Stage::Decode => "get_next_batch_to_run",
        Stage::Price => "run_batch",
        Stage::Commit | Stage::Publish | Stage::Observe => "process_batch_result",
        Stage::Stride => "(whole decode passes)",
        Stage::Undo => "(none)",
    }
}

/// A division that gives 0 where there is nothing to divide by.
pub fn ratio(value: f64, by: f64) -> f64 {
    if by == 0.0 { 0.0 } else { value / by }
}

/// Makes the report.
pub struct Maker<'a> {
    /// What was kept.
    pub tally: &'a ProfileTally,
    /// What the run came to.
    pub summary: &'a Summary,
    /// What a reading costs.
    pub reading: Reading,
    /// Whether instructions and cycles were counted.
    pub counters: bool,
    /// What the reference pays for a unit of work.
    pub costs: ReferenceCost,
}

impl Maker<'_> {
    /// The report on a scenario.
    pub fn report(&self, scenario: &str, host: HostCost) -> Report {
        let tally = self.tally;
        let systems: Vec<SystemCost> =
            Stage::ALL.into_iter().map(|stage| self.system(stage)).filter(|system| system.runs > 0).collect();
        let buckets = tally.passes_by_ns.iter();
        let kinds = KINDS.iter().zip(&tally.kinds).filter(|(_, group)| group.calls > 0);
        Report {
            kind: KIND,
            version: VERSION,
            scenario: scenario.to_owned(),
            calls: tally.spent.calls,
            passes: tally.passes,
            requests: self.summary.requests.submitted,
            tokens: self.tokens(),
            timer: self.timer(),
            total: self.total(),
            covered_share: covered_share(&systems),
            sglang_stages: stages(&systems),
            passes_by_ns: buckets
                .map(|(bucket, passes)| NsBucket { from_ns: bounds(bucket).0, to_ns: bounds(bucket).1, passes })
                .collect(),
            by_kind: kinds.map(|(kind, group)| group_cost(kind.as_str().to_owned(), group)).collect(),
            prefill: size_costs(&tally.prefills),
            decode: size_costs(&tally.decodes),
            growth: self.growth(&systems),
            systems,
            dearest: tally.dearest.iter().map(call_cost).collect(),
            work: named(&self.work()).into_iter().collect(),
            reference: self.reference(),
            host,
        }
    }

    fn timer(&self) -> Timer {
        let spent = &self.tally.spent;
        Timer {
            calls_by_system: spent.calls_by_system,
            by_system_over_all: self.by_system_over_all(),
            readings: spent.readings,
            ns_per_reading: self.reading.host_ns,
            total_ns: self.reading.host_ns * spent.readings,
            counters: self.counters,
            interrupted_calls: self.tally.interrupted.calls,
            interrupted_passes: self.tally.interrupted.passes,
            interrupted_ns: self.tally.interrupted.ns,
        }
    }

    /// The work of the run. Nodes to the root are counted in calls that are read by system alone, and brought up to all.
    fn work(&self) -> Work {
        let Spent { calls, calls_by_system, .. } = self.tally.spent;
        let all = ratio(self.tally.work.path_nodes as f64 * calls as f64, calls_by_system as f64);
        Work { path_nodes: all.round() as u64, ..self.tally.work }
    }

    /// What all calls took for what those that were read by system took.
    fn brought_up(&self) -> f64 {
        ratio(self.tally.all(self.reading).host_ns as f64, self.tally.all_by_system(self.reading).host_ns as f64)
    }

    fn by_system_over_all(&self) -> f64 {
        let calls = self.tally.spent.calls - self.tally.interrupted.calls;
        ratio(calls as f64, self.tally.by_system.calls_by_system as f64 * self.brought_up())
    }

    fn tokens(&self) -> u64 {
        self.summary.tokens.computed + self.summary.tokens.output
    }

    fn total(&self) -> SystemCost {
        let spread = &self.tally.total;
        let all = self.tally.all(self.reading);
        SystemCost {
            runs: spread.count(),
            mean_ns: spread.mean_ns(),
            ..self.cost("total", "", all, spread, (1.0, 1.0))
        }
    }

    fn system(&self, stage: Stage) -> SystemCost {
        let runs = self.tally.by_system.runs[stage as usize];
        let spread = &self.tally.systems[stage as usize];
        let seen = self.tally.system(stage, self.reading);
        let share = ratio(seen.host_ns as f64, self.tally.all_by_system(self.reading).host_ns as f64);
        let mean_ns = ratio(seen.host_ns as f64, runs as f64);
        SystemCost {
            runs,
            mean_ns,
            ..self.cost(stage.as_str(), sglang_stage(stage), seen, spread, (share, self.brought_up()))
        }
    }

    fn cost(
        &self,
        name: &'static str,
        sglang_stage: &'static str,
        seen: Reading,
        spread: &Spread,
        (share, brought_up): (f64, f64),
    ) -> SystemCost {
        let total_ns = seen.host_ns as f64 * brought_up;
        SystemCost {
            name,
            sglang_stage,
            runs: 0,
            total_ns: total_ns.round() as u64,
            share,
            mean_ns: 0.0,
            p50_ns: spread.percentile_ns(50.0),
            p99_ns: spread.percentile_ns(99.0),
            max_ns: spread.max_ns(),
            ns_per_pass: ratio(total_ns, self.tally.passes as f64),
            ns_per_request: ratio(total_ns, self.summary.requests.submitted as f64),
            ns_per_token: ratio(total_ns, self.tokens() as f64),
            instructions: self.counters.then_some(seen.instructions),
            cycles: self.counters.then_some(seen.cycles),
        }
    }

    /// What grows, of the systems that take a share worth a look.
    fn growth(&self, systems: &[SystemCost]) -> Vec<Growth> {
        let matters =
            |stage: &Stage| systems.iter().any(|system| system.name == stage.as_str() && system.share >= MATTERS);
        let stages: Vec<Stage> = Stage::ALL.into_iter().filter(matters).collect();
        growth::growth(&self.tally.prefills, &self.tally.decodes, &stages, self.reading.host_ns)
    }

    fn reference(&self) -> Reference {
        let work = self.work();
        let (parts, total_ns) = (self.costs.parts(&work), self.costs.ns(&work));
        Reference {
            costs: self.costs,
            total_ns,
            ns_per_pass: ratio(total_ns, self.tally.passes as f64),
            dearest: self.tally.reference_dearest.iter().map(call_cost).collect(),
            parts: parts
                .iter()
                .map(|part| ReferencePart {
                    key: part.key,
                    what: part.what,
                    counter: part.counter,
                    count: part.count,
                    unit_ns: part.unit_ns,
                    total_ns: part.ns(),
                })
                .collect(),
        }
    }
}

/// The share of all from which on a system is looked at.
const MATTERS: f64 = 0.02;

/// The sum of no shares would be -0.
fn covered_share(systems: &[SystemCost]) -> f64 {
    systems.iter().map(|system| system.share).sum::<f64>() + 0.0
}

fn size_costs(sizes: &Sizes) -> SizeCosts {
    SizeCosts {
        by_batch_size: bucket_costs(&sizes.rows),
        by_waiting: bucket_costs(&sizes.waiting),
        by_cache_nodes: bucket_costs(&sizes.nodes),
    }
}

fn bucket_costs(buckets: &Buckets) -> Vec<GroupCost> {
    buckets.iter().map(|(bucket, group)| group_cost(bucket_label(bucket), group)).collect()
}

fn group_cost(bucket: String, group: &Group) -> GroupCost {
    let systems = Stage::ALL.into_iter().zip(group.systems_ns).filter(|&(_, ns)| ns > 0);
    GroupCost {
        bucket,
        calls: group.calls,
        passes: group.passes,
        mean_ns: group.spread.mean_ns(),
        p99_ns: group.spread.percentile_ns(99.0),
        systems_ns: systems.map(|(stage, ns)| (stage.as_str(), ratio(ns as f64, group.passes as f64))).collect(),
    }
}

fn stages(systems: &[SystemCost]) -> Vec<StageCost> {
    let mut stages: Vec<StageCost> = Vec::new();
    for system in systems {
        let (total_ns, share) = (system.total_ns, system.share);
        match stages.iter_mut().find(|stage| stage.stage == system.sglang_stage) {
            Some(stage) => {
                stage.systems.push(system.name);
                stage.total_ns += total_ns;
                stage.share += share;
            }
            None => stages.push(StageCost { stage: system.sglang_stage, systems: vec![system.name], total_ns, share }),
        }
    }
    stages
}

fn call_cost(call: &Call) -> CallCost {
    CallCost {
        shape: call.shape,
        total_ns: call.cost.total.host_ns,
        ns_per_pass: call.ns_per_pass(),
        systems_ns: call.cost.named().collect(),
        work: named(&call.work).into_iter().filter(|&(_, count)| count > 0).collect(),
        reference_ns: call.reference_ns,
    }
}

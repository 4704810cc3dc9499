//! `servesim profile`: what each pass costs the host, by system, beside the work that it was.
//!
//! - [`clock`], [`counters`], [`probe`]: the host's clock, the processor's counters, and the readings of both.
//! - [`call`]: one call of the worker.
//! - [`tally`]: sums, distributions, groups and the dearest calls, in bounded memory.
//! - [`growth`]: which systems cost more where a size is larger.
//! - [`reference`]: what the reference would pay for the same work.
//! - [`report`], [`text`], [`rows`]: the report as `profile.json`, as text, and its file of passes.
//! - [`compare`]: two profiles side by side.

mod call;
mod clock;
mod compare;
mod counters;
mod growth;
mod probe;
mod reference;
mod report;
mod rows;
mod tally;
mod text;

use std::path::Path;
use std::process::ExitCode;

use servesim_engine::laps::{Reading, Spent};
use servesim_engine::work::Work;
use servesim_engine::worker::Worker;
use servesim_engine::worker::profile::Profiled;
use servesim_scenarios::output::table::{Format, Table};
use servesim_scenarios::player::Player;
use servesim_scenarios::scenario::Scenario;
use servesim_scenarios::summary::{Summary, Tally};

use self::call::{Call, Cost, Kind, Shape};
use self::clock::{HostClock, Moment};
use self::counters::Counters;
use self::probe::HostProbe;
use self::reference::ReferenceCost;
use self::report::Maker;
use self::rows::PassRow;
use self::tally::ProfileTally;
use crate::arguments::{PassesFormat, ProfileOptions};
use crate::chrome_trace::ChromeTrace;
use crate::host::{Stopwatch, interruptions};
use crate::progress::Progress;
use crate::run::{self, json, print};
use crate::{FAILED, Failure, note, source};

/// The least time of a call that may have been interrupted: to switch to something else and back takes longer.
const INTERRUPTED_NS: u64 = 3_000;

/// Profiles a scenario, or compares two profiles.
pub fn profile(options: &ProfileOptions) -> Result<ExitCode, Failure> {
    match (&options.compare[..], &options.scenario) {
        ([a, b], _) => compare_files(options, [a, b]),
        (_, Some(scenario)) => profile_scenario(options, scenario),
        // The command line asks for one of the two.
        _ => Err(Failure::BadInput(anyhow::anyhow!("SCENARIO: found nothing, expected a scenario"))),
    }
}

fn compare_files(options: &ProfileOptions, paths: [&Path; 2]) -> Result<ExitCode, Failure> {
    let comparison = compare::compare(paths)?;
    if options.json {
        print(&format!("{}\n", json(&comparison).map_err(|error| Failure::Run(error.into()))?))?;
    } else {
        print(&comparison.render())?;
    }
    let most = options.fail_above.unwrap_or(f64::INFINITY);
    match comparison.total_ratio() {
        Some(ratio) if ratio > most => {
            note(&format!("a pass costs {ratio:.2} times as much, expected at most {most}"));
            Ok(ExitCode::from(FAILED))
        }
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn profile_scenario(options: &ProfileOptions, name: &str) -> Result<ExitCode, Failure> {
    let costs = ReferenceCost::default().with(&options.reference_cost);
    let costs = costs.map_err(|error| Failure::BadInput(error.into()))?;
    // The clock is calibrated by the time that loading takes.
    let started = Moment::now();
    let scenario = source::load(name, &options.set, options.lenient)?;
    let out = options.out.as_deref();
    if let Some(folder) = out {
        run::make_folder(folder)?;
    }
    let stopwatch = Stopwatch::start();
    let trace = ChromeTrace::create(&options.trace, true)?;
    let mut profiler = Profiler::start(&scenario, options, costs, trace, &started)?;
    let summary = profiler.play()?;
    let cost = stopwatch.cost(summary.requests.submitted, summary.passes.total);
    let Profiler { tally, reading, counters, passes, trace, player, .. } = profiler;
    let maker = Maker { tally: &tally, summary: &summary, reading, counters, costs };
    let report = maker.report(&scenario.name, cost);
    if let Some(passes) = passes {
        passes.finish().map_err(|error| Failure::Run(error.into()))?;
    }
    if let Some(trace) = trace {
        trace.finish().map_err(Failure::Run)?;
    }
    let text = json(&report).map_err(|error| Failure::Run(error.into()))?;
    if let Some(folder) = out {
        run::write_files(folder, &scenario, &summary, &report.host).map_err(Failure::Run)?;
        run::write_beside(&folder.join("profile.json"), &format!("{text}\n")).map_err(Failure::Run)?;
    }
    run::note_rows(player.skipped_rows());
    note(&report.host.to_string());
    print(&if options.json { format!("{text}\n") } else { text::render(&report) })?;
    Ok(ExitCode::SUCCESS)
}

/// A scenario being played and measured.
struct Profiler<'o> {
    scenario: &'o Scenario,
    player: Player,
    costs: ReferenceCost,
    reading: Reading,
    counters: bool,
    clock: HostClock,
    tally: ProfileTally,
    passes: Option<Table<PassRow>>,
    trace: Option<ChromeTrace>,
    waited: u64,
    work: Work,
    /// What was spent up to the last call.
    spent: Spent,
    /// Interruptions of this process at the last look.
    interruptions: u64,
}

impl<'o> Profiler<'o> {
    fn start(
        scenario: &'o Scenario,
        options: &ProfileOptions,
        costs: ReferenceCost,
        trace: Option<ChromeTrace>,
        started: &Moment,
    ) -> Result<Profiler<'o>, Failure> {
        let format = match options.passes_format {
            PassesFormat::Csv => Format::Csv,
            PassesFormat::Parquet => Format::Parquet,
        };
        let passes = options.out.as_deref().map(|folder| Table::create(folder, "profile", format)).transpose();
        let passes = passes.map_err(|error| Failure::BadInput(error.into()))?;
        let mut player = run::player(scenario)?;
        let counters = if options.counters { start_counters() } else { None };
        let has_counters = counters.is_some();
        let clock = HostClock::since(started);
        let mut probe = HostProbe::new(clock, counters, options.every);
        let reading = probe.calibrate();
        player.set_probe(Some(Box::new(probe)));
        Ok(Profiler {
            scenario,
            player,
            costs,
            reading,
            counters: has_counters,
            clock,
            tally: ProfileTally::default(),
            passes,
            trace,
            waited: 0,
            work: Work::default(),
            spent: Spent::default(),
            interruptions: interruptions(),
        })
    }

    /// Plays to the end.
    fn play(&mut self) -> Result<Summary, Failure> {
        let mut progress = Progress::new(self.player.jobs_total());
        let mut tally = Tally::new(self.scenario.metrics_config(false));
        let outcome = loop {
            let mut noted = None;
            let trace = &mut self.trace;
            let played = self.player.iterate(&mut |played| {
                tally.add(played);
                progress.tick(tally.ended(), played.now_ns);
                if let Some(trace) = trace {
                    trace.add(played);
                }
                noted = Some((played.now_ns, played.submitted.len() as u64));
            });
            if let Some((now_ns, submitted)) = noted {
                let added = self.add(now_ns, submitted);
                added.inspect_err(|_| progress.finish())?;
            }
            match played {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        progress.finish();
        (self.tally.spent, self.tally.work) = (self.spent, self.work);
        run::note_skipped(&self.player);
        outcome.map_err(run::failure)?;
        let summary = tally.summary();
        run::check_any(&self.scenario.workload, &summary)?;
        Ok(summary)
    }

    /// Takes what a call cost, and keeps what is wanted of it. `submitted` requests came in at its start.
    fn add(&mut self, now_ns: u64, submitted: u64) -> Result<(), Failure> {
        let worker = self.player.worker();
        let Profiled { record, spent: all, waiting } = worker.profiled();
        let (passes, waited) = (record.passes.max(1), self.waited + submitted);
        self.waited = waiting;
        let by_system = all.calls_by_system > self.spent.calls_by_system;
        let total_ns = call::total(all, &self.spent, self.reading).host_ns;
        let looks = by_system || self.tally.dearest.takes(total_ns / passes);
        let slow = looks && total_ns >= INTERRUPTED_NS;
        let interrupted = slow && was_interrupted(&mut self.interruptions);
        self.tally.add_total(total_ns, passes, interrupted);
        if !looks && self.passes.is_none() && self.trace.is_none() {
            self.spent.follow_totals(all);
            self.work = worker.work();
            return Ok(());
        }
        let spent = all.since(&self.spent);
        if by_system {
            self.spent = *all;
        } else {
            self.spent.follow_totals(all);
        }
        if let Some(trace) = &mut self.trace {
            // A little after its end; as what lies between is after every end, the calls stay in order and apart.
            trace.add_host(self.clock.now_ns(), &spent, Kind::of(record).as_str(), record.iteration);
        }
        let work = worker.work();
        let done = work.since(&self.work);
        self.work = work;
        let cost = Cost::of(&spent, self.reading);
        let shape = Shape::of(worker, waited, now_ns);
        let reference_ns = by_system.then(|| self.costs.ns(&done));
        let call = Call { shape, cost, work: done, reference_ns };
        if !interrupted {
            self.tally.add(&call, &spent);
        }
        if let Some(passes) = &mut self.passes {
            let row = PassRow { call, var_decode_kv_tokens: var_decode_kv_tokens(worker), counters: self.counters };
            passes.write(&row).map_err(|error| Failure::Run(error.into()))?;
        }
        Ok(())
    }
}

/// Whether the kernel ran something else since this was last asked. It is asked after each slow call that is read by system,
/// and after each that is dear: to ask costs as much as a quick call.
fn was_interrupted(last: &mut u64) -> bool {
    let before = std::mem::replace(last, interruptions());
    *last > before
}

/// The variance over the decode rows of the last pass of the KV tokens that they read.
fn var_decode_kv_tokens(worker: &Worker) -> f64 {
    let rows = if worker.mixed().is_empty() { worker.running() } else { worker.mixed() };
    let tokens = || rows.iter().filter_map(|&row| worker.kv_tokens(row)).map(|tokens| tokens as f64);
    if worker.record().decode_rows > 0 { call::variance(tokens) } else { 0.0 }
}

fn start_counters() -> Option<Counters> {
    let started = Counters::start();
    let why = |error: &std::io::Error| {
        note(&format!("--counters: this machine does not count instructions and cycles ({error}); going on without"));
    };
    started.inspect_err(why).ok()
}

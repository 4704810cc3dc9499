//! `servesim run`: plays a scenario and sums it up.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use servesim_scenarios::audit::Audit;
use servesim_scenarios::output::RunFiles;
use servesim_scenarios::player::{Pace, PlayError, Player};
use servesim_scenarios::scenario::{Scenario, WorkloadConfig};
use servesim_scenarios::summary::{Summary, Tally};

use crate::arguments::RunOptions;
use crate::chrome_trace::ChromeTrace;
use crate::host::{HostCost, Stopwatch};
use crate::kv_events::{Delivery, KvEventsOutput, Patience};
use crate::progress::Progress;
use crate::realtime::{LONGEST_STRIDE, Realtime};
use crate::{Failure, note, report, source};

/// Plays the scenario.
pub fn run(options: &RunOptions) -> Result<ExitCode, Failure> {
    let scenario = source::load(&options.scenario, &options.overrides(), options.lenient)?;
    if let Some(pool) = &scenario.pool {
        let used = scenario.engine.max_total_tokens;
        let less =
            if used < pool.tokens { format!("; engine.max_total_tokens makes it {used}") } else { String::new() };
        note(&format!("pool: {pool}{less}"));
    }
    if options.print_config {
        print(&scenario.render_config())?;
        return Ok(ExitCode::SUCCESS);
    }
    play_scenario(&scenario, options)
}

/// Plays a scenario that is loaded, and sums it up as the options say.
pub fn play_scenario(scenario: &Scenario, options: &RunOptions) -> Result<ExitCode, Failure> {
    let out = options.out.clone().or_else(|| scenario.output.dir.clone());
    if let Some(folder) = &out {
        // Before the run, so that a wrong folder does not cost one.
        make_folder(folder)?;
    }
    if let Some(warning) = scenario.warning() {
        note(&format!("warning: {warning}"));
    }
    let stopwatch = Stopwatch::start();
    let (summary, skipped_rows, kv_events) = play(scenario, options, out.as_deref())?;
    let cost = HostCost { kv_events, ..stopwatch.cost(summary.requests.submitted, summary.passes.total) };
    if let Some(folder) = out {
        write_files(&folder, scenario, &summary, &cost).map_err(Failure::Run)?;
    }
    note_rows(skipped_rows);
    note(&cost.to_string());
    if options.json {
        let text = json(&summary).map_err(|error| Failure::Run(error.into()))?;
        print(&format!("{text}\n"))?;
    } else {
        print(&report::render(&scenario.name, &summary))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A player of the scenario at time 0.
pub fn player(scenario: &Scenario) -> Result<Player, Failure> {
    let workload = scenario.build_workload().map_err(|error| Failure::BadInput(error.into()))?;
    let timing = scenario.build_timing().map_err(|error| Failure::BadInput(error.into()))?;
    let player = Player::new(scenario.engine.clone(), timing, workload, Pace::Model)
        .map_err(|error| Failure::BadInput(anyhow::Error::from(error).context(scenario.name.clone())))?;
    Ok(player.on_error(scenario.on_error).event_detail(KvEventsOutput::detail(scenario)))
}

fn play(
    scenario: &Scenario,
    options: &RunOptions,
    out: Option<&Path>,
) -> Result<(Summary, u64, Option<Delivery>), Failure> {
    let files = out.map(|folder| RunFiles::create(folder, &scenario.output)).transpose();
    let mut files = files.map_err(|error| Failure::BadInput(error.into()))?;
    let metrics = scenario.metrics_config(files.is_some());
    let mut trace = ChromeTrace::create(&options.trace, false)?;
    let mut player = player(scenario)?.watch_intervals(metrics.interval_ns);
    if options.realtime.is_some() {
        player = player.longest_stride(LONGEST_STRIDE);
    }
    let patience = Patience {
        subscriber: options.kv_events_wait.unwrap_or_default(),
        replay: options.kv_events_linger.unwrap_or_default(),
    };
    let mut kv_events = KvEventsOutput::open(scenario, out, patience)?;
    let realtime = options.realtime.map(Realtime::start);
    let mut progress = Progress::new(player.jobs_total());
    let mut tally = Tally::new(metrics);
    let mut audit = options.check.then(Audit::default);
    let outcome = loop {
        let played = player.iterate(&mut |played| {
            if let Some(realtime) = &realtime {
                realtime.wait_until(played.now_ns);
            }
            if let Some(kv_events) = &mut kv_events {
                kv_events.add(played);
            }
            tally.add(played);
            progress.tick(tally.ended(), played.now_ns);
            if let Some(trace) = &mut trace {
                trace.add(played);
            }
            if let Some(audit) = &mut audit {
                audit.note(played);
            }
        });
        if let Some(files) = &mut files {
            let written = files.add(tally.metrics_mut());
            written.inspect_err(|_| progress.finish()).map_err(|error| Failure::Run(error.into()))?;
        }
        let broken = audit.as_ref().and_then(|audit| audit.first_violation());
        if let Some(violation) = broken {
            progress.finish();
            let place = format!("after iteration {}", player.worker().clock().iteration);
            return Err(Failure::Run(anyhow::Error::from(violation.clone()).context(place)));
        }
        kv_events.as_mut().map_or(Ok(()), KvEventsOutput::check)?;
        match played {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    progress.finish();
    note_skipped(&player);
    if let Some(trace) = trace {
        // Also after a failure: the trace may show what led to it.
        trace.finish().map_err(Failure::Run)?;
    }
    match outcome {
        Ok(()) => {
            let summary = tally.summary();
            check_any(&scenario.workload, &summary)?;
            if let Some(files) = files {
                files.finish(tally.metrics_mut()).map_err(|error| Failure::Run(error.into()))?;
            }
            let delivery = kv_events.map_or(Ok(None), KvEventsOutput::finish)?;
            Ok((summary, player.skipped_rows(), delivery))
        }
        Err(error) => Err(failure(error)),
    }
}

/// What a run that could not go on comes to.
pub fn failure(error: PlayError) -> Failure {
    match error {
        PlayError::Input(_) | PlayError::Config(_) => Failure::BadInput(error.into()),
        error => Failure::Run(error.into()),
    }
}

/// Says how many rows of a trace were skipped, if any were.
pub fn note_rows(skipped_rows: u64) {
    if skipped_rows > 0 {
        let rows = if skipped_rows == 1 { "row" } else { "rows" };
        note(&format!("skipped {skipped_rows} {rows} that cannot be used"));
    }
}

/// Says in one line how many requests were dropped because their pass was refused, with the first few.
pub fn note_skipped(player: &Player) {
    let (count, few) = (player.skipped_requests(), player.skipped());
    if count == 0 {
        return;
    }
    let requests = if count == 1 { "request" } else { "requests" };
    let few: Vec<String> = few.iter().map(|skipped| format!("request {}: {}", skipped.tag, skipped.reason)).collect();
    let more = if count > few.len() as u64 { "; ..." } else { "" };
    note(&format!("dropped {count} {requests} whose pass was refused: {}{more}", few.join("; ")));
}

/// A trace without a row to play is not what was meant.
pub fn check_any(workload: &WorkloadConfig, summary: &Summary) -> Result<(), Failure> {
    match workload.source() {
        Some(source) if summary.requests.submitted == 0 => {
            let path = source.path.display();
            let error = anyhow::anyhow!("{path}: found no row that can be used, expected at least one");
            Err(Failure::BadInput(error))
        }
        _ => Ok(()),
    }
}

/// A value as JSON for people.
pub fn json<T: Serialize>(value: &T) -> serde_json::Result<String> {
    serde_json::to_string_pretty(value)
}

/// Prints a result; a reader that has gone away is no error.
pub fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::Run(error.into())),
        _ => Ok(()),
    }
}

/// Makes a folder of results.
pub fn make_folder(folder: &Path) -> Result<(), Failure> {
    let made = std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot be made", folder.display()));
    made.map_err(Failure::BadInput)
}

/// Writes the summary, the settings and what the run cost the host.
pub fn write_files(folder: &Path, scenario: &Scenario, summary: &Summary, cost: &HostCost) -> anyhow::Result<()> {
    let files = [
        ("summary.json", format!("{}\n", json(summary)?)),
        ("config.toml", scenario.render_config()),
        ("host.json", format!("{}\n", json(cost)?)),
    ];
    for (name, text) in &files {
        write_beside(&folder.join(name), text)?;
    }
    Ok(())
}

/// Writes a file beside its place and renames it, so that a file is there whole or not at all.
pub fn write_beside(path: &Path, text: &str) -> anyhow::Result<()> {
    let beside = path.with_extension("partial");
    std::fs::write(&beside, text).with_context(|| format!("{}: cannot be written", beside.display()))?;
    std::fs::rename(&beside, path).with_context(|| format!("{}: cannot be put in place", path.display()))
}

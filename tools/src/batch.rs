//! `servesim batch` and `servesim merge`: many scenarios at once, and their results as one.
//!
//! - [`plan`]: from paths to cases; [`file`]: a batch file; [`overrides`], [`case`], [`identity`], [`shard`]: what a case is.
//! - [`pool`], [`child`], [`limits`], [`display`], [`endpoints`]: how cases run.
//! - [`folder`], [`lock`], [`manifest`], [`outcome`]: what a batch's folder holds, and how it stays whole.
//! - [`table`], [`results`], [`columns`], [`report`]: what comes out.
//! - [`merge`]: folders of shards as one.

mod case;
pub mod child;
mod columns;
mod display;
mod endpoints;
mod file;
mod folder;
mod identity;
mod limits;
mod lock;
mod manifest;
pub mod merge;
mod outcome;
mod overrides;
mod plan;
mod pool;
mod report;
mod results;
pub mod shard;
pub mod table;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;

use self::case::Case;
use self::display::Display;
use self::folder::Folder;
use self::lock::Lock;
use self::manifest::Manifest;
use self::outcome::Outcome;
use self::plan::Plan;
use self::table::{Status, Table};
use crate::arguments::BatchOptions;
use crate::{FAILED, Failure, host, note};

/// Runs a batch.
pub fn batch(options: &BatchOptions) -> Result<ExitCode, Failure> {
    let plan = Plan::new(options).map_err(Failure::BadInput)?;
    let manifest = Manifest::new(&plan, options.shard);
    let own: Vec<&Case> =
        plan.cases.iter().enumerate().filter(|(index, _)| manifest.has(*index)).map(|(_, case)| case).collect();
    let jobs = options.jobs.map_or_else(cores, |jobs| jobs.get());
    if jobs > 1 {
        endpoints::check_apart(own.iter().copied()).map_err(Failure::BadInput)?;
    }
    let folder = Folder::at(&options.out);
    if folder.is_used() && !options.resume {
        let place = options.out.display();
        let expected = "an empty folder, or --resume to go on with it";
        return Err(Failure::BadInput(anyhow!("{place}: found the results of a batch, expected {expected}")));
    }
    folder.make().map_err(Failure::BadInput)?;
    let _lock = Lock::take(&options.out).map_err(Failure::BadInput)?;
    folder.clear_partial().map_err(Failure::BadInput)?;
    manifest.write(&folder).map_err(Failure::Run)?;
    let is_done = |case: &&Case| folder.done(&case.name).is_some_and(|outcome| outcome.digest == case.digest);
    let left: Vec<&Case> = own.iter().copied().filter(|case| !is_done(case)).collect();
    let started = Instant::now();
    let mut lifetimes = Duration::ZERO;
    let ran = run(&left, own.len(), &folder, jobs, &mut lifetimes);
    say_cost(started, jobs.min(left.len()), lifetimes);
    say_strangers(&folder, &manifest);
    ran.map_err(Failure::Run)?;
    let table = results::write(&folder, &manifest).map_err(Failure::Run)?;
    folder.remove_partial();
    Ok(sum_up(&table, &folder))
}

/// Runs the cases that are left, and puts each in place as it ends.
fn run(left: &[&Case], own: usize, folder: &Folder, jobs: usize, lifetimes: &mut Duration) -> anyhow::Result<()> {
    let display = Display::new(own, own - left.len());
    if left.len() < own {
        note(&format!("{} of {own} cases are done already", own - left.len()));
    }
    let mut failures = 0;
    let outcome = pool::run(left, folder, jobs, &display, |ended| {
        let case = left[ended.place];
        *lifetimes += ended.lifetime;
        let (name, digest) = (case.name.clone(), case.digest.clone());
        let outcome = Outcome { case: name, digest, reason: ended.reason, notes: ended.notes };
        failures += usize::from(outcome.reason.is_some());
        match outcome.reason {
            None => folder.finish(&ended.partial, &outcome)?,
            Some(_) => folder.fail(&ended.partial, &outcome)?,
        }
        display.end(&case.name, outcome.reason.as_deref(), failures);
        Ok(())
    });
    display.finish();
    outcome
}

/// How many cases run at a time unless the user says so: one a core.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// What the cases cost the host, as far as this process ran them, and how much of the time that many were running.
fn say_cost(started: Instant, jobs: usize, lifetimes: Duration) {
    let (wall_s, cpu_s) = (started.elapsed().as_secs_f64(), host::children_cpu_s());
    if jobs > 0 {
        let busy = 100.0 * lifetimes.as_secs_f64() / (wall_s * jobs as f64);
        note(&format!(
            "host: {wall_s:.2} s wall, {cpu_s:.2} s CPU in cases; {jobs} at a time, {busy:.0} % of the time"
        ));
    }
}

/// Says if the folder holds cases of an earlier batch that this one has not.
fn say_strangers(folder: &Folder, manifest: &Manifest) {
    let known: std::collections::BTreeSet<&str> = manifest.cases.iter().map(|case| case.name.as_str()).collect();
    let strangers = folder.names().iter().filter(|name| !known.contains(name.as_str())).count();
    if strangers > 0 {
        note(&format!(
            "{strangers} cases in the folder are not part of this batch; they are left alone and not in its results"
        ));
    }
}

/// Says how the cases stand, and where the results are.
fn sum_up(table: &Table, folder: &Folder) -> ExitCode {
    let (failed, missing) = (table.count(Status::Failed), table.count(Status::Missing));
    for row in table.rows.iter().filter(|row| row.status == Status::Failed) {
        note(&format!("failed {}: {}", row.case, row.reason.as_deref().unwrap_or("no reason").replace('\n', "\\n")));
    }
    let missing = if missing > 0 { format!(", {missing} missing") } else { String::new() };
    let done = table.count(Status::Done);
    let report = folder.root().join("report.html");
    note(&format!("{done} of {} cases done, {failed} failed{missing}; see {}", table.rows.len(), report.display()));
    if done == table.rows.len() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

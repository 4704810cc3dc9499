//! One case in a process of its own: so that its memory is its own, and no crash takes others along.
//!
//! The parent writes one line of JSON to the child's stdin and keeps it open. When it closes, the parent has ended, in whatever
//! way, and the child ends too. The child says everything on stderr; its exit code is that of `servesim run`.

use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use servesim_scenarios::scenario::Scenario;

use super::limits::Limits;
use crate::arguments::RunOptions;
use crate::{FAILED, Failure, note, progress, run};

/// The name of the hidden command.
pub const COMMAND: &str = "run-case";

/// What a child is told.
#[derive(Serialize, Deserialize)]
pub struct Job {
    /// The scenario's file.
    pub file: String,
    /// Its text, as it was when the batch was planned.
    pub text: String,
    /// What is set, as arguments of `--set`.
    pub overrides: Vec<String>,
    /// Where the results go.
    pub out: PathBuf,
    /// What the case may use.
    pub limits: Limits,
    /// Whether to say on the way how far the run has come.
    pub progress: bool,
}

/// Runs the case that stdin names.
pub fn run_case() -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let job = read_job().map_err(Failure::BadInput)?;
    std::thread::spawn(end_with_parent);
    job.limits.watch(started, |reason| {
        note(&format!("error: {reason}"));
        std::process::exit(FAILED.into());
    });
    if job.progress {
        progress::report_lines();
    }
    let scenario = Scenario::from_str(&job.text, &job.file, &job.overrides);
    let scenario = scenario.map_err(|error| Failure::BadInput(error.into()))?;
    let code = run::play_scenario(&scenario, &options(&job.file, &job.out))?;
    // A case that ends between two looks of the watch is held to its memory all the same.
    match (Limits { max_wall_s: None, ..job.limits }).exceeded(started) {
        Some(reason) => Err(Failure::Run(anyhow!(reason))),
        None => Ok(code),
    }
}

fn options(scenario: &str, out: &Path) -> RunOptions {
    RunOptions { scenario: scenario.to_owned(), out: Some(out.to_owned()), json: true, ..RunOptions::default() }
}

fn read_job() -> anyhow::Result<Job> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).context("stdin: cannot be read")?;
    serde_json::from_str(&line).context("stdin: found no case, expected one line of JSON")
}

/// Waits until stdin closes, which is when the parent has ended.
fn end_with_parent() {
    let mut buffer = [0; 64];
    let mut stdin = std::io::stdin().lock();
    while matches!(stdin.read(&mut buffer), Ok(count) if count > 0) {}
    std::process::exit(FAILED.into());
}

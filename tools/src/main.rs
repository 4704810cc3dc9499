//! The program `servesim`. Each command is a file of its own; results go to stdout or files, progress and host costs to stderr.

mod arguments;
mod host;
mod progress;
mod report;
mod run;
mod source;
mod trace;
mod verify;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command, TraceCommand};

/// Exit code of a run that failed, or of a check that found a difference.
const FAILED: u8 = 1;
/// Exit code of input that cannot be used.
const BAD_INPUT: u8 = 2;

/// Why a command ended without its result.
enum Failure {
    /// The input cannot be used.
    BadInput(anyhow::Error),
    /// The run failed.
    Run(anyhow::Error),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Verify(options) => verify::verify(&options),
        Command::Trace(TraceCommand::Info(options)) => trace::info(&options),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure::BadInput(error)) => say(&error, BAD_INPUT),
        Err(Failure::Run(error)) => say(&error, FAILED),
    }
}

fn say(error: &anyhow::Error, code: u8) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(code)
}

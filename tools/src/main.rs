//! The program `servesim`. Each command is a file of its own; results go to stdout or files, progress and host costs to stderr.

mod arguments;
mod batch;
mod chrome_trace;
mod compare;
mod events;
mod host;
mod kv_events;
mod library;
mod profile;
mod progress;
mod realtime;
mod report;
mod run;
mod source;
mod timing;
mod trace;
mod verify;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command, EventsCommand, TimingCommand, TraceCommand};

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
        Command::Profile(options) => profile::profile(&options),
        Command::Verify(options) => verify::verify(&options),
        Command::Trace(TraceCommand::Info(options)) => trace::info(&options),
        Command::Events(EventsCommand::Info(options)) => events::info(&options),
        Command::Events(EventsCommand::Check(options)) => events::check(&options),
        Command::Events(EventsCommand::Compare(options)) => events::compare(&options),
        Command::Timing(TimingCommand::Fit(options)) => timing::fit(&options),
        Command::Batch(options) => batch::batch(&options),
        Command::Merge(options) => batch::merge::merge(&options),
        Command::Compare(options) => compare::compare(&options),
        Command::Scenarios(command) => library::scenarios(&command),
        Command::RunCase => batch::child::run_case(),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure::BadInput(error)) => say(&error, BAD_INPUT),
        Err(Failure::Run(error)) => say(&error, FAILED),
    }
}

fn say(error: &anyhow::Error, code: u8) -> ExitCode {
    note(&format!("error: {}", in_one_line(error)));
    ExitCode::from(code)
}

/// Prints a line to stderr; a reader that has gone away is no error.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// An error and its causes. Most errors say their cause themselves, and it is not said twice.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text.replace('\n', "\\n")
}

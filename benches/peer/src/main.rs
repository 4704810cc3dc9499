//! servesim and the published simulator `aisimulate-core` on the same traces, side by side.
//!
//! - [`case`]: what is measured, and what comes out of it.
//! - [`measure`]: a process for each case, [`host`] what it costs.
//! - [`ours`], [`peer`]: how each of the two plays, [`requests`] what the peer is asked.
//! - [`recorded`]: what SGLang's own classes came to.
//! - [`table`]: the tables.

mod case;
mod host;
mod measure;
mod ours;
mod peer;
mod recorded;
mod requests;
mod table;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::case::{Case, Trace};
use crate::measure::Row;

/// servesim and aisimulate-core 0.13.0 on the same traces: CPU time, memory and results.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    /// Only this trace; may be repeated.
    #[arg(long)]
    trace: Vec<Trace>,
    /// Only this page size in tokens; may be repeated.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=8192))]
    page_size: Vec<u32>,
    /// How often each case runs; the run with the median CPU time is shown.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Plays one case in this process and prints its outcome; the program calls itself so.
    #[command(hide = true)]
    Case {
        /// The case in JSON.
        case: String,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(Task::Case { case }) = &arguments.command {
        let case: Case = serde_json::from_str(case).context("the case")?;
        println!("{}", serde_json::to_string(&measure::play(case)?)?);
        return Ok(());
    }
    let mut rows = Vec::new();
    let mut recorded = Vec::new();
    for trace in Trace::ALL.into_iter().filter(|trace| arguments.trace.is_empty() || arguments.trace.contains(trace)) {
        if !trace.is_here() {
            eprintln!("skipped: {}, since SERVESIM_TRACES names no folder of traces", trace.name());
            continue;
        }
        let page_sizes = if arguments.page_size.is_empty() { trace.page_sizes() } else { &arguments.page_size };
        for &page_size in page_sizes {
            rows.push(Row::measure(trace, page_size, arguments.runs)?);
            recorded.push(recorded::counts(trace, page_size)?);
        }
    }
    println!("CPU time in microseconds a request, reading of the trace included; ratio: peer to servesim\n");
    println!("{}\n", table::costs(&rows));
    println!("Results; in brackets the difference from SGLang where it was recorded, else from servesim\n");
    println!("{}", table::results(&rows, &recorded));
    Ok(())
}

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// A GPU-free simulator of an LLM serving engine: SGLang's scheduler, radix cache and KV events, pass by pass.
#[derive(Parser)]
#[command(name = "servesim", version)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Play a scenario and sum it up
    Run(RunOptions),
    /// Play recorded logs and compare every pass
    Verify(VerifyOptions),
    /// Look into a trace
    #[command(subcommand)]
    Trace(TraceCommand),
}

/// What `run` is told.
#[derive(Args)]
pub struct RunOptions {
    /// A scenario file, or the name of one that comes with the program (coding-agent, agents16, weka, ...)
    pub scenario: String,
    /// Set any key of the scenario, e.g. engine.page_size=16
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Print the summary as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write the summary, requests, time series, sessions, turns, settings and host costs to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Form of the file of requests below --out: jsonl, parquet or none
    #[arg(long, value_name = "FORMAT")]
    pub requests: Option<String>,
    /// Form of the time series below --out: csv, parquet or none
    #[arg(long, value_name = "FORMAT")]
    pub timeseries: Option<String>,
    /// Print the resolved settings with where each comes from, and stop
    #[arg(long)]
    pub print_config: bool,
    /// Skip rows of a trace that cannot be used, and count them
    #[arg(long)]
    pub lenient: bool,
    /// Check every invariant after each pass, at a cost that grows with the cache
    #[arg(long)]
    pub check: bool,
}

/// What `verify` is told.
#[derive(Args)]
pub struct VerifyOptions {
    /// Recorded cases (.json, .json.gz) and totals (.json)
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Folder of the traces that totals name [default: the SERVESIM_TRACES variable]
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,
    /// Refuse random passes of cases, each then tried again: a refused pass must leave no trace
    #[arg(long, value_name = "SEED")]
    pub refuse: Option<u64>,
    /// Print differences and the last line only
    #[arg(long)]
    pub quiet: bool,
}

/// The commands about traces.
#[derive(Subcommand)]
pub enum TraceCommand {
    /// Format, sums and ideal prefix hit of a trace
    Info(InfoOptions),
}

/// What `trace info` is told.
#[derive(Args)]
pub struct InfoOptions {
    /// A trace file, or a folder of Weka plays
    pub file: PathBuf,
    /// Tokens in a block of a Mooncake trace [default: 512]
    #[arg(long, value_name = "TOKENS")]
    pub block_size: Option<u32>,
    /// Skip rows that cannot be used, and count them
    #[arg(long)]
    pub lenient: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::realtime::speed;

use crate::batch::shard::Shard;

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
    /// Play a scenario and say where the host's time goes, pass by pass; or compare two profiles
    Profile(ProfileOptions),
    /// Play recorded logs and compare every pass
    Verify(VerifyOptions),
    /// Look into a trace
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Look into a file of KV events
    #[command(subcommand)]
    Events(EventsCommand),
    /// Make timing models
    #[command(subcommand)]
    Timing(TimingCommand),
    /// Run many scenarios at once, and report on all of them
    Batch(BatchOptions),
    /// Join the shards of a batch
    Merge(MergeOptions),
    /// Put the metrics of two runs side by side, and say in which settings they differ
    Compare(CompareOptions),
    /// The scenarios and batches that come with the program
    #[command(subcommand)]
    Scenarios(ScenariosCommand),
    /// Run one case of a batch, which stdin names
    #[command(hide = true)]
    RunCase,
}

/// What `run` is told.
#[derive(Args, Default)]
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
    /// What is done with KV events: count, jsonl or msgpack (files in the --out folder), zmq
    #[arg(long, value_name = "SINK")]
    pub kv_events: Option<String>,
    /// Publish KV events over ZeroMQ, as SGLang's flag of this name
    #[arg(long, value_name = "JSON")]
    pub kv_events_config: Option<String>,
    /// Put token ids into stored KV events
    #[arg(long)]
    pub emit_token_ids: bool,
    /// Before the first pass, wait at most so long for a subscriber of KV events
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub kv_events_wait: Option<Duration>,
    /// After the last pass, go on answering replays of KV events for so long
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub kv_events_linger: Option<Duration>,
    /// Play simulated time against the wall clock, SPEED times as fast [default: 1]
    #[arg(long, value_name = "SPEED", num_args = 0..=1, default_missing_value = "1", value_parser = speed)]
    pub realtime: Option<f64>,
    /// A trace of the run.
    #[command(flatten)]
    pub trace: TraceOptions,
}

impl RunOptions {
    /// What `--set` and the flags that stand for keys set, in that order.
    pub fn overrides(&self) -> Vec<String> {
        let mut overrides = self.set.clone();
        let sink = match (&self.kv_events, &self.kv_events_config) {
            (Some(sink), _) => Some(sink.as_str()),
            (None, Some(_)) => Some("zmq"),
            (None, None) => None,
        };
        overrides.extend(sink.map(|sink| format!("output.kv_events={}", quoted(sink))));
        overrides.extend(self.kv_events_config.iter().map(|json| format!("output.kv_events_config={}", quoted(json))));
        overrides.extend(self.requests.iter().map(|form| format!("output.requests={}", quoted(form))));
        overrides.extend(self.timeseries.iter().map(|form| format!("output.timeseries={}", quoted(form))));
        overrides.extend(self.emit_token_ids.then(|| "output.emit_token_ids=true".to_owned()));
        overrides
    }
}

/// A text as a TOML string, which a JSON string is.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reads a number of seconds, at most a day.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("found {text}, expected seconds from 0 to 86400"))
}

/// Where a trace of the run goes.
#[derive(Args, Default)]
pub struct TraceOptions {
    /// Write a trace for Perfetto or chrome://tracing to this file, gzipped if its name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub trace_out: Option<PathBuf>,
    /// Events after which the trace is cut, at the end of an iteration
    #[arg(long, value_name = "EVENTS", default_value_t = 1_000_000, requires = "trace_out")]
    pub trace_limit: u64,
}

/// What `profile` is told.
#[derive(Args)]
pub struct ProfileOptions {
    /// A scenario file, or the name of one that comes with the program (coding-agent, agents16, weka, ...)
    #[arg(required_unless_present = "compare", conflicts_with = "compare")]
    pub scenario: Option<String>,
    /// Set any key of the scenario, e.g. engine.page_size=16
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Skip rows of a trace that cannot be used, and count them
    #[arg(long)]
    pub lenient: bool,
    /// Read one call of the worker in N system by system, the others at their start and end; 1 reads all and costs the most
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,
    /// Count instructions and cycles too, where the kernel does
    #[arg(long)]
    pub counters: bool,
    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Write the report (profile.json), a row a call of the worker (profile.csv), and what `run` writes to this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Form of the file of passes below --out
    #[arg(long, value_name = "FORMAT", default_value = "csv")]
    pub passes_format: PassesFormat,
    /// What a unit of the reference's work costs: eviction_leaf_ns, leaf_insert_ns, lock_ns, path_node_ns,
    /// queue_entry_ns or matched_token_ns
    #[arg(long, value_name = "KEY=NS")]
    pub reference_cost: Vec<String>,
    /// A trace of the run.
    #[command(flatten)]
    pub trace: TraceOptions,
    /// Compare two files profile.json, system by system
    #[arg(long, value_names = ["A", "B"], num_args = 2)]
    pub compare: Vec<PathBuf>,
    /// With --compare: exit with 1 if a pass costs more than this many times as much in B
    #[arg(long, value_name = "RATIO", requires = "compare")]
    pub fail_above: Option<f64>,
}

/// The form of a profile's file of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PassesFormat {
    /// Comma-separated values
    Csv,
    /// Parquet
    Parquet,
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

/// The commands about files of KV events.
#[derive(Subcommand)]
pub enum EventsCommand {
    /// Batches, events, blocks an event
    Info(EventsInfoOptions),
    /// Follow a file as a consumer does, and say what is wrong with it
    Check(EventsCheckOptions),
    /// Say where two files differ first, and count both
    Compare(EventsCompareOptions),
}

/// What `events info` is told.
#[derive(Args)]
pub struct EventsInfoOptions {
    /// A file of KV events: JSON lines, frames, or recorded payloads
    pub file: PathBuf,
    /// Requests to share the events out over [default: those of summary.json beside the file]
    #[arg(long, value_name = "COUNT")]
    pub requests: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `events check` is told.
#[derive(Args)]
pub struct EventsCheckOptions {
    /// A file of KV events: JSON lines, frames, or recorded payloads
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `events compare` is told.
#[derive(Args)]
pub struct EventsCompareOptions {
    /// A file of KV events
    pub left: PathBuf,
    /// Another one, in whatever form
    pub right: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The commands about timing models.
#[derive(Subcommand)]
pub enum TimingCommand {
    /// Fit a linear model or a table to measured passes, and print it as the [timing] section of a scenario
    Fit(FitArguments),
}

/// A model that can be fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FitModel {
    /// A cost per pass, token and row
    Linear,
    /// A grid that is interpolated
    Table,
}

/// What `timing fit` is told.
#[derive(Args)]
pub struct FitArguments {
    /// Measured passes, .csv or .parquet: mode, rows, new_tokens, cached_tokens, kv_tokens, attention, duration_ms
    pub passes: PathBuf,
    /// What to fit
    #[arg(long, value_enum)]
    pub model: FitModel,
    /// Share of the passes that is held out to measure the error
    #[arg(long, value_name = "SHARE", default_value_t = 0.2)]
    pub holdout: f64,
    /// Seeds the choice of what is held out
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Write the section of a linear model, or the grid of a table, to this file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// What `batch` is told.
#[derive(Args)]
pub struct BatchOptions {
    /// Scenario files, batch files, folders of them, or names that `servesim scenarios list` shows
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Folder of the results
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Cases at a time [default: one a core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Go on with a batch that was ended: what is done stays, what has changed or failed is run again
    #[arg(long)]
    pub resume: bool,
    /// Run every N-th case only, from the I-th on; `servesim merge` joins the folders
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// Set any key of every case, e.g. engine.page_size=16
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// End a case that has more resident memory, in MB (10^6 bytes)
    #[arg(long, value_name = "MB", value_parser = above_zero)]
    pub max_rss_mb: Option<f64>,
    /// End a case that runs longer, in seconds on the clock
    #[arg(long, value_name = "SECONDS", value_parser = above_zero)]
    pub max_wall_s: Option<f64>,
    /// Skip rows of traces that cannot be used, and count them
    #[arg(long)]
    pub lenient: bool,
}

/// A limit of the command line.
fn above_zero(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    value.ok_or_else(|| "expected a number above 0".into())
}

/// What `merge` is told.
#[derive(Args)]
pub struct MergeOptions {
    /// The folders of the shards
    #[arg(required = true, value_name = "DIR")]
    pub shards: Vec<PathBuf>,
    /// Folder of the joined results
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// What `compare` is told.
#[derive(Args)]
pub struct CompareOptions {
    /// A run: the folder of `run --out`, or a case's folder of a batch
    pub run_a: PathBuf,
    /// Another one
    pub run_b: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The commands about what comes with the program.
#[derive(Subcommand)]
pub enum ScenariosCommand {
    /// Name and purpose of each
    List,
    /// Print one
    Show {
        /// Its name
        name: String,
    },
    /// Write one to a file, to be changed
    Copy {
        /// Its name
        name: String,
        /// The file, or the folder for it [default: the current folder]
        to: Option<PathBuf>,
        /// Write over a file that is there
        #[arg(long)]
        force: bool,
    },
}

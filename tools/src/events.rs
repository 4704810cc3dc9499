//! `servesim events`: what a file of KV events holds, whether a consumer could follow it, and where two differ.

use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use servesim_scenarios::kv_events::check::{Check, CheckReport};
use servesim_scenarios::kv_events::compare::{Comparison, compare as compare_streams};
use servesim_scenarios::kv_events::error::KvEventError;
use servesim_scenarios::kv_events::info::{InfoTally, StreamInfo, TypeInfo};
use servesim_scenarios::kv_events::reader::EventReader;

use crate::arguments::{EventsCheckOptions, EventsCompareOptions, EventsInfoOptions};
use crate::report::count;
use crate::run::print;
use crate::{FAILED, Failure};

/// The most sizes of the mirror that a person is shown.
const SHOWN_SIZES: usize = 8;

/// Runs `events info`.
pub fn info(options: &EventsInfoOptions) -> Result<ExitCode, Failure> {
    let mut reader = open(&options.file)?;
    let mut tally = InfoTally::default();
    let broken = read(&mut reader, |sent| tally.add(sent));
    let info = tally.info(options.requests.or_else(|| requests_beside(&options.file)));
    let text = || format!("{}: {}\n{}", options.file.display(), reader.form().as_str(), render_info(&info));
    show(options.json, &info, text)?;
    ended(broken, ExitCode::SUCCESS)
}

/// Runs `events check`.
pub fn check(options: &EventsCheckOptions) -> Result<ExitCode, Failure> {
    let mut reader = open(&options.file)?;
    let mut check = Check::default();
    let broken = read(&mut reader, |sent| check.add(sent));
    let report = check.report();
    show(options.json, &report, || render_check(&options.file, &report))?;
    let clean = report.problems.total() == 0;
    ended(broken, if clean { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

/// Runs `events compare`.
pub fn compare(options: &EventsCompareOptions) -> Result<ExitCode, Failure> {
    let (mut left, mut right) = (open(&options.left)?, open(&options.right)?);
    let (comparison, errors) = compare_streams(&mut left, &mut right);
    show(options.json, &comparison, || render_comparison(&comparison))?;
    let code = if comparison.equal { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
    ended(errors.into_iter().next(), code)
}

fn open(path: &Path) -> Result<EventReader, Failure> {
    EventReader::open(path).map_err(|error| Failure::BadInput(error.into()))
}

/// Reads to the end, or to the first error, which comes back.
fn read(
    reader: &mut EventReader,
    mut each: impl FnMut(&servesim_scenarios::kv_events::batch::SentBatch),
) -> Option<KvEventError> {
    loop {
        match reader.next_batch() {
            Ok(Some(sent)) => each(sent),
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
}

/// What was readable has been reported; an error is said now.
fn ended(broken: Option<KvEventError>, code: ExitCode) -> Result<ExitCode, Failure> {
    match broken {
        None => Ok(code),
        Some(error) => Err(Failure::BadInput(error.into())),
    }
}

fn show<T: Serialize>(json: bool, value: &T, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if !json {
        return print(&text());
    }
    let json = serde_json::to_string_pretty(value).map_err(|error| Failure::Run(error.into()))?;
    print(&format!("{json}\n"))
}

/// The completed requests of the `summary.json` beside a file, as `servesim run --out` writes it.
fn requests_beside(file: &Path) -> Option<u64> {
    let text = std::fs::read(file.with_file_name("summary.json")).ok()?;
    let summary: serde_json::Value = serde_json::from_slice(&text).ok()?;
    summary.get("requests")?.get("completed")?.as_u64()
}

fn row(text: &mut String, name: &str, cells: &[(&str, String)]) {
    let cells: Vec<String> = cells.iter().map(|(name, value)| format!("{name} {value}")).collect();
    // A text takes all that is written to it.
    let _ = writeln!(text, "  {name:<10} {}", cells.join("  "));
}

fn render_info(info: &StreamInfo) -> String {
    let mut text = String::new();
    let number = |number: Option<u64>| number.map_or("none".to_owned(), count);
    let time = |ns: Option<u64>| ns.map_or("none".to_owned(), |ns| format!("{:.3} s", ns as f64 / 1e9));
    row(
        &mut text,
        "batches",
        &[
            ("total", count(info.batches)),
            ("sequence", format!("{} to {}", number(info.first_sequence), number(info.last_sequence))),
            ("time", format!("{} to {}", time(info.first_time_ns), time(info.last_time_ns))),
        ],
    );
    render_type(&mut text, "stored", &info.stored);
    render_type(&mut text, "removed", &info.removed);
    row(&mut text, "cleared", &[("events", count(info.cleared))]);
    row(&mut text, "tokens", &[("ids", count(info.token_ids))]);
    if let Some(requests) = info.requests {
        row(&mut text, "requests", &[("completed", count(requests))]);
    }
    text
}

fn render_type(text: &mut String, name: &str, info: &TypeInfo) {
    let mut cells = vec![("events", count(info.events)), ("blocks", count(info.blocks))];
    if let Some(per_request) = info.events_per_request {
        cells.push(("events a request", format!("{per_request:.2}")));
    }
    cells.push(("blocks an event, mean", format!("{:.1}", info.mean_blocks)));
    cells.push(("median", format!("{:.1}", info.median_blocks)));
    cells.push(("p90", count(info.p90_blocks)));
    cells.push(("p99", count(info.p99_blocks)));
    cells.push(("max", count(info.max_blocks)));
    row(text, name, &cells);
}

fn render_check(file: &Path, report: &CheckReport) -> String {
    let mut text = String::new();
    let problems = &report.problems;
    let verdict =
        if problems.total() == 0 { "clean".to_owned() } else { format!("{} problems", count(problems.total())) };
    let _ = writeln!(text, "{}: {verdict}", file.display());
    row(&mut text, "read", &[("batches", count(report.batches)), ("events", count(report.events))]);
    row(
        &mut text,
        "problems",
        &[
            ("sequence gaps", count(problems.sequence_gaps)),
            ("repeats", count(problems.sequence_repeats)),
            ("unknown parents", count(problems.unknown_parents)),
            ("broken chains", count(problems.broken_chains)),
            ("duplicate stores", count(problems.duplicate_stores)),
            ("unknown removals", count(problems.unknown_removals)),
        ],
    );
    row(&mut text, "hashes", &[("blocks recomputed from token ids", count(report.verified_blocks))]);
    row(
        &mut text,
        "mirror",
        &[("blocks at the end", count(report.last_blocks)), ("at most", count(report.peak_blocks))],
    );
    let step = report.mirror.len().div_ceil(SHOWN_SIZES).max(1);
    for size in report.mirror.iter().step_by(step) {
        let time = format!("{:.3} s", size.time_ns as f64 / 1e9);
        let _ = writeln!(text, "    {time:>14}  {:>12} blocks", count(size.blocks));
    }
    for found in &report.first_problems {
        let event = found.event.map_or(String::new(), |event| format!(" event {event}"));
        let _ = writeln!(text, "  batch {}{event}: {}", found.sequence, found.problem);
    }
    text
}

fn render_comparison(comparison: &Comparison) -> String {
    let mut text = String::new();
    let (left, right) = (&comparison.left, &comparison.right);
    match &comparison.difference {
        None if comparison.equal => text.push_str("equal\n"),
        None => text.push_str("equal as far as both could be read\n"),
        Some(difference) => {
            let event = difference.event.map_or(String::new(), |event| format!(" event {event}"));
            let (field, a, b) = (&difference.field, &difference.left, &difference.right);
            let _ = writeln!(text, "differs at batch {}{event}: {field}: {a} and {b}", difference.batch);
        }
    }
    let rows = [
        ("batches", left.batches, right.batches),
        ("stored events", left.stored.events, right.stored.events),
        ("stored blocks", left.stored.blocks, right.stored.blocks),
        ("removed events", left.removed.events, right.removed.events),
        ("removed blocks", left.removed.blocks, right.removed.blocks),
        ("cleared events", left.cleared, right.cleared),
        ("token ids", left.token_ids, right.token_ids),
    ];
    for (name, a, b) in rows {
        let mark = if a == b { "" } else { "  differs" };
        let _ = writeln!(text, "  {name:<15} {:>14} {:>14}{mark}", count(a), count(b));
    }
    text
}

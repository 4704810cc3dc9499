//! `servesim compare`: the metrics of two runs side by side, and in which settings they differ.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::{Map, Value};
use servesim_scenarios::scenario::source;

use crate::Failure;
use crate::arguments::CompareOptions;
use crate::batch::table::numbers_of;
use crate::run::print;

/// Two runs.
#[derive(Serialize)]
struct Comparison {
    run_a: String,
    run_b: String,
    settings: Vec<Difference>,
    metrics: Vec<Metric>,
}

/// A setting that differs.
#[derive(Serialize)]
struct Difference {
    key: String,
    a: Option<String>,
    b: Option<String>,
}

/// A metric of either run.
#[derive(Serialize)]
struct Metric {
    name: String,
    a: Option<Value>,
    b: Option<Value>,
    /// `b / a`; absent where one is missing or `a` is 0.
    ratio: Option<f64>,
}

/// What is read of a run.
struct Run {
    settings: BTreeMap<String, String>,
    metrics: Map<String, Value>,
}

/// Compares.
pub fn compare(options: &CompareOptions) -> Result<ExitCode, Failure> {
    let read = |folder: &Path| read(folder).map_err(Failure::BadInput);
    let (a, b) = (read(&options.run_a)?, read(&options.run_b)?);
    let comparison = Comparison {
        run_a: options.run_a.display().to_string(),
        run_b: options.run_b.display().to_string(),
        settings: differences(&a, &b),
        metrics: metrics(&a, &b),
    };
    if options.json {
        let text = serde_json::to_string_pretty(&comparison).map_err(|error| Failure::Run(error.into()))?;
        print(&format!("{text}\n"))?;
    } else {
        print(&render(&comparison))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(folder: &Path) -> anyhow::Result<Run> {
    let file = |name: &str| -> PathBuf { folder.join(name) };
    let summary = file("summary.json");
    if !summary.is_file() {
        let expected = "the folder of `run --out`, or a folder under `cases` of a batch";
        return Err(anyhow!("{}: found no summary.json, expected {expected}", folder.display()));
    }
    let metrics = numbers_of(&summary);
    if metrics.is_empty() {
        return Err(anyhow!("{}: found no number, expected a summary as JSON", summary.display()));
    }
    let config = file("config.toml");
    let name = config.display().to_string();
    let text = std::fs::read_to_string(&config).with_context(|| format!("{name}: cannot be read"))?;
    let entries = source::read(&text, &name, &[])?;
    let settings = entries.into_iter().map(|(key, entry)| (key, entry.value.to_string())).collect();
    Ok(Run { settings, metrics })
}

fn differences(a: &Run, b: &Run) -> Vec<Difference> {
    let keys: std::collections::BTreeSet<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    let of = |run: &Run, key: &String| run.settings.get(key).cloned();
    let differing = keys.into_iter().filter(|key| a.settings.get(*key) != b.settings.get(*key));
    differing.map(|key| Difference { key: key.clone(), a: of(a, key), b: of(b, key) }).collect()
}

fn metrics(a: &Run, b: &Run) -> Vec<Metric> {
    let only_b = b.metrics.keys().filter(|name| !a.metrics.contains_key(*name));
    let names = a.metrics.keys().chain(only_b);
    let metric = |name: &String| {
        let (a, b) = (a.metrics.get(name).cloned(), b.metrics.get(name).cloned());
        let number = |value: &Option<Value>| value.as_ref().and_then(Value::as_f64);
        let ratio = match (number(&a), number(&b)) {
            (Some(a), Some(b)) if a == b => Some(1.0),
            (Some(a), Some(b)) if a != 0.0 => Some(b / a),
            _ => None,
        };
        Metric { name: name.clone(), a, b, ratio }
    };
    names.map(metric).collect()
}

fn render(comparison: &Comparison) -> String {
    let mut text = format!("A: {}\nB: {}\n\n", comparison.run_a, comparison.run_b);
    if comparison.settings.is_empty() {
        text.push_str("no setting differs\n\n");
    } else {
        let cell = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".into());
        let rows = comparison.settings.iter().map(|one| [one.key.clone(), cell(&one.a), cell(&one.b), String::new()]);
        write_rows(&mut text, ["setting", "A", "B", ""], rows.collect());
        text.push('\n');
    }
    let cell = |value: &Option<Value>| value.as_ref().map_or_else(|| "-".into(), shown);
    let ratio = |ratio: Option<f64>| ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.4}"));
    let rows = comparison.metrics.iter().map(|one| [one.name.clone(), cell(&one.a), cell(&one.b), ratio(one.ratio)]);
    write_rows(&mut text, ["metric", "A", "B", "B/A"], rows.collect());
    text
}

/// A number as a person reads it.
fn shown(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if !value.is_u64() && !value.is_i64() => format!("{number:.4}"),
        _ => value.to_string(),
    }
}

/// Writes columns, the first one to the left and the others to the right.
fn write_rows(text: &mut String, head: [&str; 4], rows: Vec<[String; 4]>) {
    let rows: Vec<[String; 4]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    for [name, a, b, ratio] in &rows {
        let line = format!("{name:<0$}  {a:>1$}  {b:>2$}  {ratio:>3$}", widths[0], widths[1], widths[2], widths[3]);
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

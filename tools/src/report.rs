//! The summary as a person reads it.

use std::fmt::Write;

use servesim_scenarios::metrics::serving::Latencies;
use servesim_scenarios::summary::{EventCounts, Summary};

/// The summary as lines of text.
pub fn render(name: &str, summary: &Summary) -> String {
    let mut text = String::new();
    let requests = &summary.requests;
    let _ = writeln!(text, "{name}: {:.3} s simulated", summary.duration_ms / 1e3);
    row(
        &mut text,
        "requests",
        &[
            ("submitted", count(requests.submitted)),
            ("completed", count(requests.completed)),
            ("rejected", count(requests.rejected)),
            ("dropped", count(requests.dropped)),
            ("aborted", count(requests.aborted)),
            ("retractions", count(summary.retracted)),
        ],
    );
    let passes = &summary.passes;
    row(
        &mut text,
        "passes",
        &[
            ("total", count(passes.total)),
            ("extend", count(passes.extend)),
            ("decode", count(passes.decode)),
            ("idle", count(passes.idle)),
        ],
    );
    let tokens = &summary.tokens;
    row(
        &mut text,
        "tokens",
        &[
            ("input", count(tokens.input)),
            ("cached", count(tokens.cached)),
            ("computed", count(tokens.computed)),
            ("output", count(tokens.output)),
            ("evicted", count(summary.evicted_tokens)),
        ],
    );
    let hit = if tokens.input == 0 { 0.0 } else { tokens.cached as f64 / tokens.input as f64 };
    row(&mut text, "cache", &[("hit rate at first admission", format!("{:.2} %", hit * 100.0))]);
    events(&mut text, "stored", &summary.kv_events.stored);
    events(&mut text, "removed", &summary.kv_events.removed);
    row(&mut text, "published", &[("batches", count(summary.kv_events.publishes))]);
    throughput(&mut text, summary);
    latencies(&mut text, &summary.serving.latencies);
    text
}

fn throughput(text: &mut String, summary: &Summary) {
    let totals = &summary.serving.totals;
    let cells = [
        ("requests", format!("{:.2}", totals.request_throughput)),
        ("input tokens", format!("{:.1}", totals.input_throughput)),
        ("output tokens", format!("{:.1}", totals.output_throughput)),
        ("concurrency", format!("{:.2}", totals.concurrency)),
    ];
    row(text, "per second", &cells);
    if let Some(slo) = &summary.slo {
        let cells = [
            ("requests", count(slo.requests)),
            ("share", format!("{:.2} %", slo.share_pct)),
            ("goodput a second", format!("{:.2}", slo.request_goodput)),
        ];
        row(text, "within slo", &cells);
    }
}

/// A table with a line for each latency.
fn latencies(text: &mut String, latencies: &Latencies) {
    let heads = ["mean", "median", "std", "p90", "p95", "p99"];
    let _ = writeln!(text, "  {:<10} {}", "ms", heads.map(|head| format!("{head:>12}")).concat());
    for (name, stats) in latencies.by_name() {
        let name = match name {
            "e2e_latency" => "E2E",
            "ttft" => "TTFT",
            "tpot" => "TPOT",
            "itl" => "ITL",
            _ => "queue time",
        };
        let values = [stats.mean_ms, stats.median_ms, stats.std_ms, stats.p90_ms, stats.p95_ms, stats.p99_ms];
        let _ = writeln!(text, "  {name:<10} {}", values.map(|value_ms| format!("{value_ms:>12.3}")).concat());
    }
}

fn events(text: &mut String, name: &str, counts: &EventCounts) {
    row(
        text,
        name,
        &[
            ("events", count(counts.events)),
            ("blocks", count(counts.blocks)),
            ("events a request", format!("{:.2}", counts.events_per_request)),
            ("blocks an event, mean", format!("{:.1}", counts.mean_blocks)),
            ("median", format!("{:.1}", counts.median_blocks)),
        ],
    );
}

fn row(text: &mut String, name: &str, cells: &[(&str, String)]) {
    let cells: Vec<String> = cells.iter().map(|(name, value)| format!("{name} {value}")).collect();
    let _ = writeln!(text, "  {name:<10} {}", cells.join("  "));
}

/// A number with its thousands apart.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

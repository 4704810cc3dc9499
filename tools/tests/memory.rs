//! Memory of whole runs, as the program reports it: it follows what is live, not how long a run is.
//!
//! The kernel's figure differs by some 0.4 MB between equal runs, so the least of three counts, and half a megabyte beside each
//! bound.

use serde_json::Value;

use crate::program::servesim;

const JITTER_MB: f64 = 0.5;

/// Least peak memory of three runs, in MB.
fn peak_memory_mb(arguments: &[&str]) -> f64 {
    peak_memory_mb_of("run", arguments)
}

fn peak_memory_mb_of(command: &str, arguments: &[&str]) -> f64 {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    let peak = |_| {
        servesim(&[&[command], arguments, &["--out", &out]].concat()).succeeds();
        let host = std::fs::read(folder.path().join("host.json")).expect("host costs are written");
        let host: Value = serde_json::from_slice(&host).expect("they are JSON");
        host["peak_memory_mb"].as_f64().expect("a number")
    };
    (0..3).map(peak).fold(f64::INFINITY, f64::min)
}

#[test]
fn ten_rounds_of_a_trace_take_the_memory_of_two() {
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/agents16.toml");
    let two = peak_memory_mb(&[scenario, "--set", "workload.loops=2"]);
    let ten = peak_memory_mb(&[scenario, "--set", "workload.loops=10"]);
    assert!(ten <= 1.05 * two + JITTER_MB, "{ten} MB after ten rounds, {two} MB after two");
}

#[test]
fn ten_times_the_requests_take_the_memory_of_the_tenth() {
    let set = ["--set", "workload.lanes=64", "--set", "engine.max_total_tokens=2000000"];
    let peak = |requests: &str| {
        let requests = format!("workload.requests={requests}");
        peak_memory_mb(&[&["coding-agent", "--set", &requests], &set[..]].concat())
    };
    let (few, many) = (peak("5000"), peak("50000"));
    assert!(many <= 1.2 * few + JITTER_MB, "{many} MB for ten times the requests of {few} MB");
}

#[test]
fn a_profile_of_ten_times_the_requests_takes_the_memory_of_the_tenth() {
    let set = ["--set", "workload.lanes=64", "--set", "engine.max_total_tokens=2000000", "--every", "1"];
    let peak = |requests: &str| {
        let requests = format!("workload.requests={requests}");
        peak_memory_mb_of("profile", &[&["coding-agent", "--set", &requests], &set[..]].concat())
    };
    let (few, many) = (peak("2000"), peak("20000"));
    assert!(many <= 1.2 * few + JITTER_MB, "{many} MB for ten times the requests of {few} MB");
}

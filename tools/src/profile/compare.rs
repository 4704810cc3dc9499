//! `servesim profile --compare A B`: two profiles side by side, by system.

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::report::{KIND, VERSION, ratio};
use super::text::{append, table, time};
use crate::Failure;

/// What is read of a `profile.json`.
#[derive(Deserialize)]
struct Profile {
    kind: String,
    version: u32,
    scenario: String,
    passes: u64,
    requests: u64,
    total: System,
    systems: Vec<System>,
}

#[derive(Deserialize)]
struct System {
    name: String,
    total_ns: u64,
    ns_per_pass: f64,
    p99_ns: u64,
}

/// Two profiles side by side.
#[derive(Debug, Serialize)]
pub struct Comparison {
    /// The scenarios.
    pub scenarios: [String; 2],
    /// Passes.
    pub passes: [u64; 2],
    /// Requests.
    pub requests: [u64; 2],
    /// By system, the total last.
    pub systems: Vec<Ratio>,
}

/// A system in two profiles.
#[derive(Debug, Serialize)]
pub struct Ratio {
    /// The system, or `total`.
    pub name: String,
    /// Nanoseconds a pass.
    pub ns_per_pass: [f64; 2],
    /// 99th percentile of a run of the system, of a pass for the total.
    pub p99_ns: [u64; 2],
    /// Nanoseconds a pass, the second over the first; absent if the first has none.
    pub ratio: Option<f64>,
    /// The difference of nanoseconds over the run as a share of the first's total.
    pub share_of_change: f64,
}

/// Compares two files.
///
/// # Errors
/// A file that is no profile.
pub fn compare(paths: [&Path; 2]) -> Result<Comparison, Failure> {
    let [a, b] = paths.map(load);
    let (a, b) = (a?, b?);
    let mut names: Vec<&str> = a.systems.iter().map(|system| system.name.as_str()).collect();
    names.extend(
        b.systems
            .iter()
            .map(|system| system.name.as_str())
            .filter(|name| a.systems.iter().all(|system| system.name != *name)),
    );
    let all = a.total.total_ns as f64;
    let of = |profile: &Profile, name: &str| {
        let system = profile.systems.iter().chain([&profile.total]).find(|system| system.name == name);
        system.map_or((0.0, 0, 0.0), |system| (system.ns_per_pass, system.p99_ns, system.total_ns as f64))
    };
    let systems = names.into_iter().chain(["total"]).map(|name| {
        let (a, b) = (of(&a, name), of(&b, name));
        Ratio {
            name: name.to_owned(),
            ns_per_pass: [a.0, b.0],
            p99_ns: [a.1, b.1],
            ratio: (a.0 > 0.0).then(|| b.0 / a.0),
            share_of_change: ratio(b.2 - a.2, all),
        }
    });
    Ok(Comparison {
        systems: systems.collect(),
        passes: [a.passes, b.passes],
        requests: [a.requests, b.requests],
        scenarios: [a.scenario, b.scenario],
    })
}

fn load(path: &Path) -> Result<Profile, Failure> {
    read(path).map_err(Failure::BadInput)
}

fn read(path: &Path) -> anyhow::Result<Profile> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let profile: Profile = serde_json::from_slice(&bytes).with_context(|| {
        format!("{}: expected the profile.json that `servesim profile --out` writes", path.display())
    })?;
    anyhow::ensure!(
        profile.kind == KIND && profile.version == VERSION,
        "{}: kind: found {:?} version {}, expected {KIND:?} version {VERSION}",
        path.display(),
        profile.kind,
        profile.version
    );
    Ok(profile)
}

impl Comparison {
    /// The ratio of the totals.
    pub fn total_ratio(&self) -> Option<f64> {
        self.systems.last().and_then(|total| total.ratio)
    }

    /// The comparison as lines of text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let [a, b] = &self.scenarios;
        let _ = writeln!(text, "A: {a}, {} passes, {} requests", self.passes[0], self.requests[0]);
        let _ = writeln!(text, "B: {b}, {} passes, {} requests", self.passes[1], self.requests[1]);
        if a != b || self.passes[0] != self.passes[1] {
            text.push_str("These are different runs: a ratio is of the work as well as of its cost.\n");
        }
        let mut table = table(&["system", "A a pass", "B a pass", "B / A", "A p99", "B p99", "of A's total"], 1);
        for system in &self.systems {
            table.add_row([
                system.name.clone(),
                time(system.ns_per_pass[0]),
                time(system.ns_per_pass[1]),
                system.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                time(system.p99_ns[0] as f64),
                time(system.p99_ns[1] as f64),
                format!("{:+.1} %", 100.0 * system.share_of_change),
            ]);
        }
        append(&mut text, &table);
        text
    }
}

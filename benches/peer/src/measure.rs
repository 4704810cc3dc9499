//! Runs each case in a process of its own, so that no case finds memory or caches that another one has warmed.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::case::{Case, Outcome, Side, Trace};
use crate::{host, ours, peer, requests};

/// The outcomes of all sides at one trace and page size.
pub struct Row {
    /// The workload.
    pub trace: Trace,
    /// Tokens in a KV page.
    pub page_size: u32,
    /// servesim.
    pub servesim: Outcome,
    /// The peer without KV events.
    pub peer: Outcome,
    /// The peer with KV events.
    pub peer_with_events: Outcome,
    /// The requests alone.
    pub requests_alone: Outcome,
}

impl Row {
    /// Measures all sides, each `runs` times in turn.
    ///
    /// # Errors
    /// A case that fails, or that comes to something else when it is run again.
    pub fn measure(trace: Trace, page_size: u32, runs: u32) -> Result<Row> {
        let side = |side| measure(Case { trace, page_size, side }, runs);
        let [servesim, peer, peer_with_events, requests_alone] = Side::ALL.map(side);
        Ok(Row {
            trace,
            page_size,
            servesim: servesim?,
            peer: peer?,
            peer_with_events: peer_with_events?,
            requests_alone: requests_alone?,
        })
    }
}

/// The run of a case with the median CPU time, the lower one of two.
fn measure(case: Case, runs: u32) -> Result<Outcome> {
    let mut outcomes = Vec::new();
    for run in 1..=runs.max(1) {
        let (trace, page_size, side) = (case.trace.name(), case.page_size, case.side.name());
        eprintln!("{trace}, page size {page_size}: {side}, run {run} of {runs}");
        outcomes.push(in_a_child(case).with_context(|| format!("{trace}, page size {page_size}, {side}"))?);
    }
    if outcomes.iter().any(|outcome| outcome.counts != outcomes[0].counts) {
        eprintln!("  its results differ from run to run; those of the median run are shown");
    }
    outcomes.sort_by_key(|outcome| outcome.cpu_us);
    Ok(outcomes[(outcomes.len() - 1) / 2])
}

fn in_a_child(case: Case) -> Result<Outcome> {
    let program = std::env::current_exe()?;
    let output =
        Command::new(program).arg("case").arg(serde_json::to_string(&case)?).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        bail!("its process ended with {}", output.status);
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Plays a case in this process.
///
/// # Errors
/// A trace that cannot be read, or a run that cannot go on.
pub fn play(case: Case) -> Result<Outcome> {
    let Case { trace, page_size, side } = case;
    let before_us = host::cpu_us()?;
    let counts = match side {
        Side::Servesim => ours::play(trace, page_size)?,
        Side::Peer => peer::play::play(trace, page_size, false)?,
        Side::PeerWithEvents => peer::play::play(trace, page_size, true)?,
        Side::RequestsAlone => requests::make_all(trace, page_size)?,
    };
    Ok(Outcome { counts, cpu_us: host::cpu_us()? - before_us, peak_bytes: host::peak_bytes()? })
}

//! What is measured: a trace at a page size, played by one of the two simulators, and what comes out of it.

use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use servesim_scenarios::scenario::build::traces_folder;
use servesim_scenarios::scenario::{EMBEDDED, Scenario};

/// A workload that both simulators play.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Trace {
    /// Sessions of coding agents on 16 lanes, the trace beside its scenario.
    Agents16,
    /// Mooncake's conversations on 32 lanes.
    MooncakeConversation,
    /// Recorded sessions of coding agents with sub-agents on 32 lanes; page size 64 only, unless told.
    Weka,
}

impl Trace {
    /// Every trace, in the order of the table.
    pub const ALL: [Trace; 3] = [Trace::Agents16, Trace::MooncakeConversation, Trace::Weka];

    /// The name of its scenario.
    pub fn name(self) -> &'static str {
        match self {
            Trace::Agents16 => "agents16",
            Trace::MooncakeConversation => "mooncake-conversation",
            Trace::Weka => "weka",
        }
    }

    /// The page sizes that are measured unless others are asked for. The peer hashes every prompt anew: the 6.04 billion
    /// prompt tokens of Weka a token at a time would take it most of an hour.
    pub fn page_sizes(self) -> &'static [u32] {
        match self {
            Trace::Agents16 | Trace::MooncakeConversation => &[1, 16, 64],
            Trace::Weka => &[64],
        }
    }

    /// How long every prefill pass and every decode pass takes, in simulated nanoseconds: as in the scenario.
    pub fn pass_ns(self) -> PassNs {
        match self {
            Trace::Agents16 => PassNs { extend: 1_000_000, decode: 1_000_000 },
            Trace::MooncakeConversation => PassNs { extend: 120_000_000, decode: 20_000_000 },
            Trace::Weka => PassNs { extend: 60_000_000, decode: 15_000_000 },
        }
    }

    /// Whether its file can be had: one lies in the repository, the others in the folder that `SERVESIM_TRACES` names.
    pub fn is_here(self) -> bool {
        self == Trace::Agents16 || traces_folder().is_some()
    }

    /// Its scenario at a page size, without the overlap schedule, which the peer does not have.
    ///
    /// # Errors
    /// A page size that the engine does not take.
    pub fn scenario(self, page_size: u32) -> Result<Scenario> {
        let file = format!("{}.toml", self.name());
        let (_, text) = EMBEDDED.iter().find(|(name, _)| *name == file).context("no such scenario")?;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let set = [format!("engine.page_size={page_size}"), "engine.disable_overlap_schedule=true".to_owned()];
        Ok(Scenario::from_str(text, &folder.join(file).display().to_string(), &set)?)
    }
}

/// The constant duration of passes, in simulated nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct PassNs {
    /// A prefill pass.
    pub extend: u64,
    /// A decode pass.
    pub decode: u64,
}

/// Who plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// servesim, which always counts its KV events.
    Servesim,
    /// The peer without KV events.
    Peer,
    /// The peer with KV events.
    PeerWithEvents,
    /// Nobody: every request is made for the peer, token by token, and has ended at once. This part of the peer's CPU time
    /// is not its own.
    RequestsAlone,
}

impl Side {
    /// Every side, in the order in which they are measured.
    pub const ALL: [Side; 4] = [Side::Servesim, Side::Peer, Side::PeerWithEvents, Side::RequestsAlone];

    /// What progress lines call it.
    pub fn name(self) -> &'static str {
        match self {
            Side::Servesim => "servesim",
            Side::Peer => "aisimulate-core, events off",
            Side::PeerWithEvents => "aisimulate-core, events on",
            Side::RequestsAlone => "requests alone",
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Case {
    /// The workload.
    pub trace: Trace,
    /// Tokens in a KV page.
    pub page_size: u32,
    /// Who plays.
    pub side: Side,
}

/// Events of one kind, and the blocks in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Events.
    pub events: u64,
    /// Blocks of a page each.
    pub blocks: u64,
}

impl Events {
    /// Adds one event.
    pub fn add(&mut self, blocks: usize) {
        self.events += 1;
        self.blocks += blocks as u64;
    }
}

/// What a run comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Requests that finished.
    pub finished: u64,
    /// Requests that were turned away.
    pub rejected: u64,
    /// Retractions.
    pub retracted: u64,
    /// Passes that ran a prefill batch.
    pub extend_passes: u64,
    /// Passes that ran a decode batch.
    pub decode_passes: u64,
    /// Prompt tokens found in the cache at a request's first admission.
    pub hit_tokens: u64,
    /// Tokens produced.
    pub output_tokens: u64,
    /// Blocks that came into the cache.
    pub stored: Events,
    /// Blocks that left it.
    pub removed: Events,
}

/// A run and its cost.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// What it came to.
    pub counts: Counts,
    /// User and system CPU time in microseconds, reading of the trace included.
    pub cpu_us: u64,
    /// Largest resident memory of the process in bytes.
    pub peak_bytes: u64,
}

//! Golden totals: sums over a whole recorded run of a session trace, and how they are checked.

use std::path::Path;

use serde::Deserialize;
use servesim_engine::config::{EngineConfig, SchedulePolicy};
use servesim_engine::timing::Constant;

use crate::case::{CaseError, read_maybe_gzip};
use crate::player::{Pace, PlayError, Player};
use crate::replay::{ReplayError, named};
use crate::summary::{EventCounts, Summary, Tally};
use crate::trace::sessions::SessionTable;
use crate::workload::lanes::{InTurn, Lanes};
use crate::workload::sessions::SessionLanes;
use crate::workload::{InputError, Workload};

/// The time that the recorder gave every iteration, in nanoseconds.
const ITERATION_NS: u64 = 1_000_000;

/// Settings and sums of one recorded run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Totals {
    /// Its settings.
    pub config: TotalsConfig,
    /// Its sums.
    pub totals: Sums,
    /// What the recorder cost its host; for people.
    #[serde(default)]
    pub host_of_the_reference_run: serde_json::Value,
}

/// Settings of a recorded run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TotalsConfig {
    /// File name of the session trace.
    pub trace: String,
    /// The pool in tokens.
    pub kv_tokens: u64,
    /// Tokens in a page.
    pub page_size: u32,
    /// Whether the overlap schedule was on.
    pub overlap: bool,
    /// Chunk budget in tokens.
    pub chunked_prefill_size: i64,
    /// Token budget of an extend batch.
    pub max_prefill_tokens: i64,
    /// Slots for requests.
    pub max_running_requests: u32,
    /// Context length in tokens.
    pub max_context_len: u32,
    /// Schedule policy by name.
    pub schedule_policy: String,
    /// Decode batches between publications.
    pub decode_log_interval: u32,
}

/// Sums of a recorded run.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sums {
    /// Iterations.
    pub passes: u64,
    /// Those that ran an extend batch.
    pub extend: u64,
    /// Those that ran a decode batch.
    pub decode: u64,
    /// Requests that finished.
    pub finished: u64,
    /// Retractions.
    pub retracted: u64,
    /// Stored events.
    pub stored: EventCounts,
    /// Removed events.
    pub removed: EventCounts,
    /// Prompt tokens cached at first admission.
    pub hit_tokens: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Batches of events published.
    pub publishes: u64,
}

impl Sums {
    /// The same sums of a run of ours.
    pub fn of(summary: &Summary) -> Sums {
        Sums {
            passes: summary.passes.total,
            extend: summary.passes.extend,
            decode: summary.passes.decode,
            finished: summary.requests.completed,
            retracted: summary.retracted,
            stored: summary.kv_events.stored.clone(),
            removed: summary.kv_events.removed.clone(),
            hit_tokens: summary.tokens.cached,
            input_tokens: summary.tokens.input,
            output_tokens: summary.tokens.output,
            publishes: summary.kv_events.publishes,
        }
    }

    /// The first sum that differs: its name, what was recorded, what we got.
    pub fn first_difference(&self, got: &Sums) -> Option<(&'static str, String, String)> {
        let counts = [
            ("passes", self.passes, got.passes),
            ("extend", self.extend, got.extend),
            ("decode", self.decode, got.decode),
            ("finished", self.finished, got.finished),
            ("retracted", self.retracted, got.retracted),
            ("stored.events", self.stored.events, got.stored.events),
            ("stored.blocks", self.stored.blocks, got.stored.blocks),
            ("removed.events", self.removed.events, got.removed.events),
            ("removed.blocks", self.removed.blocks, got.removed.blocks),
            ("hit_tokens", self.hit_tokens, got.hit_tokens),
            ("input_tokens", self.input_tokens, got.input_tokens),
            ("output_tokens", self.output_tokens, got.output_tokens),
            ("publishes", self.publishes, got.publishes),
        ];
        let means = [
            ("stored.events_per_request", self.stored.events_per_request, got.stored.events_per_request),
            ("stored.mean_blocks", self.stored.mean_blocks, got.stored.mean_blocks),
            ("stored.median_blocks", self.stored.median_blocks, got.stored.median_blocks),
            ("removed.events_per_request", self.removed.events_per_request, got.removed.events_per_request),
            ("removed.mean_blocks", self.removed.mean_blocks, got.removed.mean_blocks),
            ("removed.median_blocks", self.removed.median_blocks, got.removed.median_blocks),
        ];
        let count = counts.iter().find(|(_, expected, got)| expected != got);
        let mean = means.iter().find(|(_, expected, got)| expected != got);
        count
            .map(|&(name, expected, got)| (name, expected.to_string(), got.to_string()))
            .or_else(|| mean.map(|&(name, expected, got)| (name, expected.to_string(), got.to_string())))
    }
}

/// Why totals could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum TotalsError {
    /// The file is not one of totals, or cannot be read.
    #[error(transparent)]
    File(#[from] CaseError),
    /// A setting that the engine does not know.
    #[error(transparent)]
    Setting(#[from] ReplayError),
    /// The run did not come to its end.
    #[error(transparent)]
    Play(#[from] PlayError),
}

impl Totals {
    /// Reads totals from a file.
    ///
    /// # Errors
    /// An unreadable file, or one that does not hold totals.
    pub fn load(path: &Path) -> Result<Totals, CaseError> {
        let bytes = read_maybe_gzip(path)?;
        serde_json::from_slice(&bytes).map_err(|source| CaseError::Format { path: path.display().to_string(), source })
    }

    /// The engine settings of the run.
    ///
    /// # Errors
    /// A schedule policy that is not known.
    pub fn engine(&self) -> Result<EngineConfig, ReplayError> {
        let config = &self.config;
        Ok(EngineConfig {
            page_size: config.page_size,
            max_total_tokens: config.kv_tokens,
            disable_overlap_schedule: !config.overlap,
            chunked_prefill_size: config.chunked_prefill_size,
            max_prefill_tokens: config.max_prefill_tokens,
            max_running_requests: config.max_running_requests,
            context_length: config.max_context_len,
            schedule_policy: named(&SchedulePolicy::NAMES, "schedule_policy", &config.schedule_policy)?,
            decode_log_interval: config.decode_log_interval,
            ..EngineConfig::default()
        })
    }

    /// The workload: the session trace, in `folder`, in closed loop by lane.
    ///
    /// # Errors
    /// A trace that cannot be read, or a row of it that cannot be used.
    pub fn workload(&self, folder: &Path) -> Result<Box<dyn Workload>, InputError> {
        let path = folder.join(&self.config.trace);
        let lanes = SessionLanes::new(SessionTable::read(&path, false)?, &path.display().to_string(), None, 1);
        let count = lanes.lanes();
        Ok(Box::new(Lanes::new(InTurn(lanes), count, None)))
    }

    /// Plays the workload as the recorder did, and sums it up.
    ///
    /// # Errors
    /// The run did not come to its end.
    pub fn play(&self, workload: Box<dyn Workload>) -> Result<Sums, TotalsError> {
        // The clock is the recorder's: time passes by iterations, so the model has nothing to add.
        let timing = Box::new(Constant { extend_ns: 0, decode_ns: 0 });
        let pace = Pace::FixedIteration(ITERATION_NS);
        let mut player = Player::new(self.engine()?, timing, workload, pace).map_err(PlayError::from)?;
        let mut tally = Tally::default();
        player.run(|played| tally.add(played))?;
        Ok(Sums::of(&tally.summary()))
    }
}

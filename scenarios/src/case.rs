//! Golden cases: one recorded run of a real scheduler, as JSON or gzipped JSON.
//!
//! A case is settings, who asks for what and when, and one record an iteration. Fields that are empty in a record are left
//! out of the file.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use servesim_engine::content::Run;

/// One recorded run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The case's name.
    pub case: String,
    /// The settings it ran with.
    pub config: CaseConfig,
    /// Closed loops: a lane's next request enters at the first iteration after its previous one ended.
    #[serde(default)]
    pub lanes: Vec<Vec<CaseRequest>>,
    /// Requests that enter at a given iteration, in file order.
    #[serde(default)]
    pub arrivals: Vec<Arrival>,
    /// Cancellations, after the arrivals of their iteration.
    #[serde(default)]
    pub aborts: Vec<Abort>,
    /// One record an iteration.
    pub passes: Vec<PassLog>,
}

/// Settings as the recorder names them; [`CaseConfig::engine`] gives them SGLang's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseConfig {
    /// Tokens in a page.
    pub page_size: u32,
    /// The pool in tokens.
    pub kv_tokens: u64,
    /// Chunk budget in tokens, -1 for none.
    pub chunked_prefill_size: i64,
    /// Token budget of an extend batch.
    pub max_prefill_tokens: i64,
    /// Schedule policy by name.
    pub schedule_policy: String,
    /// Scale of the first new-token ratio.
    pub schedule_conservativeness: f64,
    /// Decode batches between publications.
    pub decode_log_interval: u32,
    /// Whether the overlap schedule is on.
    pub overlap: bool,
    /// Slots for requests.
    pub max_running_requests: u32,
    /// Context length in tokens.
    pub max_context_len: u32,
    /// Eviction policy by name.
    pub eviction_policy: String,
    /// Settings of the eviction policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eviction_policy_config: Option<serde_json::Value>,
    /// Clip of the new-token estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip_max_new_tokens: Option<u32>,
    /// Whether the checks at entry are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intake: Option<bool>,
    /// Most waiting requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_queued_requests: Option<u32>,
    /// Whether running requests decode inside extend batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_chunk: Option<bool>,
    /// Whether the prefix cache is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_radix_cache: Option<bool>,
    /// Whether requests have priorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_scheduling: Option<bool>,
    /// Whether waiting requests may preempt running ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_preemption: Option<bool>,
    /// By how much a priority must be better to preempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption_threshold: Option<i64>,
    /// Whether low values are preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_priority_values_first: Option<bool>,
    /// Retraction policy by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retraction_policy: Option<String>,
    /// Iterations without prefill after an extend batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_decode_interval: Option<u32>,
    /// `prefill` for the prefill role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// One request of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseRequest {
    /// Its name.
    pub rid: String,
    /// The prompt.
    pub input: Vec<Run>,
    /// What the model says.
    pub output: Vec<Run>,
    /// Most tokens to produce.
    pub max_new_tokens: u32,
    /// Whether its last output token is a stop token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_at_end: Option<bool>,
    /// Priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    /// Namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extra_key: Option<String>,
    /// Routing key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key: Option<String>,
    /// In the prefill role: iterations from the prefill's end to the transfer's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<u64>,
}

/// A request that enters at iteration `at_pass`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// The iteration.
    pub at_pass: u64,
    /// The request.
    pub request: CaseRequest,
}

/// A cancellation at iteration `at_pass`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// The iteration.
    pub at_pass: u64,
    /// The request.
    pub rid: String,
}

/// What one iteration did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassLog {
    /// Its number, from 0.
    pub pass: u64,
    /// Requests that were submitted at its start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub submitted: Vec<String>,
    /// Requests turned away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<String>,
    /// Cancellations asked for at its start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abort_requested: Vec<String>,
    /// Requests that left without finishing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<String>,
    /// The batch that ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchLog>,
    /// Requests retracted or preempted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retracted: Vec<String>,
    /// Requests that finished: name, how, tokens produced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<(String, String, u64)>,
    /// In the prefill role: who is held after the iteration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<String>,
    /// Sizes after scheduling.
    pub after_schedule: Gauges,
    /// The waiting queue after scheduling, when it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Vec<String>>,
    /// Sizes after the results, when they differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_results: Option<Gauges>,
    /// Batches of KV events published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishLog>,
}

/// A batch of requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchLog {
    /// `extend` or `decode`.
    pub mode: String,
    /// Its rows in order.
    pub rows: Vec<RowLog>,
}

/// A row of a batch: the request alone for a decode row, with the computed range for an extend row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RowLog {
    /// Name, tokens that were cached before, tokens that are computed after.
    Extend(String, u64, u64),
    /// Name alone.
    Decode((String,)),
}

/// Sizes in tokens, and the new-token ratio rounded to nine digits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gauges {
    /// Free tokens of the pool.
    pub free: u64,
    /// The new-token ratio.
    pub ratio: f64,
    /// Tokens in unlocked nodes; absent without a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evictable: Option<u64>,
    /// Tokens in locked nodes; absent without a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<u64>,
}

/// One published batch of KV events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishLog {
    /// `prefill`, `decode_interval` or `idle`.
    pub why: String,
    /// The events in order.
    pub events: Vec<EventLog>,
}

/// One KV event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum EventLog {
    /// Blocks came into the cache.
    Stored {
        /// Hash of the block before the first, none at the root.
        parent: Option<i64>,
        /// Hashes in chain order.
        hashes: Vec<i64>,
        /// Tokens in all.
        tokens: u64,
        /// Tokens in a block.
        block_size: u32,
    },
    /// Blocks left the cache.
    Removed {
        /// Their hashes.
        hashes: Vec<i64>,
    },
    /// The cache is new and empty.
    Cleared,
}

/// Why a case could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The file could not be opened or read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not a case.
    #[error("{path}: {source}")]
    Format {
        /// The file.
        path: String,
        /// Where and why.
        source: serde_json::Error,
    },
}

/// Reads a file whole, through gzip when its name ends in `.gz`.
///
/// # Errors
/// What the system or the decoder said, with the file's name.
pub fn read_maybe_gzip(path: &Path) -> Result<Vec<u8>, CaseError> {
    let fail = |source| CaseError::Io { path: path.display().to_string(), source };
    let file = BufReader::new(File::open(path).map_err(fail)?);
    let mut bytes = Vec::new();
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::bufread::MultiGzDecoder::new(file).read_to_end(&mut bytes).map_err(fail)?;
    } else {
        let mut file = file;
        file.read_to_end(&mut bytes).map_err(fail)?;
    }
    Ok(bytes)
}

impl Case {
    /// Reads a case from `.json` or `.json.gz`.
    ///
    /// # Errors
    /// An unreadable file, or one that is not a case; the message has the line and the field.
    pub fn load(path: &Path) -> Result<Case, CaseError> {
        let bytes = read_maybe_gzip(path)?;
        serde_json::from_slice(&bytes).map_err(|source| CaseError::Format { path: path.display().to_string(), source })
    }
}

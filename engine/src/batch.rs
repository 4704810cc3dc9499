//! The batch that an iteration chooses, and the one before it.

use crate::request::RequestKey;
use crate::timing::PassTime;

/// What a batch does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BatchMode {
    /// Nothing runs.
    #[default]
    Idle,
    /// A prefill, in mixed mode with decode rows behind it.
    Extend,
    /// One token for each running request.
    Decode,
}

/// A row of an extend batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExtendRow {
    /// The request.
    pub request: RequestKey,
    /// Tokens whose KV was there before.
    pub prefix: u32,
    /// Tokens whose KV is there after.
    pub end: u32,
    /// Whether this is the request's first admission: not a later chunk, nor after a retraction.
    pub first: bool,
}

/// One batch. The rows of a decode batch are those of the running batch.
#[derive(Clone, Debug, Default, PartialEq, Hash)]
pub(crate) struct Batch {
    /// Its number, counted over batches and idle iterations.
    pub(crate) number: u64,
    pub(crate) mode: BatchMode,
    /// The prefill rows of an extend batch.
    pub(crate) extend: Vec<ExtendRow>,
    /// The decode rows of a mixed extend batch.
    pub(crate) mixed: Vec<RequestKey>,
    /// The request whose row is a middle chunk.
    pub(crate) middle: Option<RequestKey>,
    /// Whether every row is prefill-only.
    pub(crate) prefill_only: bool,
    /// How many rows a decode batch has.
    pub(crate) decode_rows: u32,
    /// New tokens that the batch computes.
    pub(crate) new_tokens: u64,
}

impl Batch {
    /// Makes it an idle batch with a number, keeping its memory.
    pub(crate) fn reset(&mut self, number: u64) {
        self.number = number;
        self.mode = BatchMode::Idle;
        self.extend.clear();
        self.mixed.clear();
        self.middle = None;
        self.prefill_only = false;
        self.decode_rows = 0;
        self.new_tokens = 0;
    }
}

/// The batch being chosen and the one of the last iteration.
#[derive(Debug, Default)]
pub struct Batches {
    pub(crate) next: Batch,
    pub(crate) last: Batch,
    /// The rows of the last decode batch in the order of its launch, where a retraction of this pass has reordered them and
    /// its results are still to be taken; else empty.
    pub(crate) launch_order: Vec<RequestKey>,
}

/// Why a pass is undone.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// It cannot run.
    Error(crate::worker::StepError),
    /// It was only looked at.
    Peek(Peek),
}

/// What an iteration would do now, learned from a pass that was undone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Peek {
    /// What would run.
    pub mode: BatchMode,
    /// The prefill rows, by tag: prefix and end in tokens.
    pub extend: Vec<(u64, u32, u32)>,
    /// How many rows would decode.
    pub decode_rows: u32,
    /// Requests that would be retracted or preempted, by tag.
    pub retracted: Vec<u64>,
    /// Tokens that would be evicted.
    pub evicted_tokens: u64,
    /// The events that would wait for publication before the results are taken.
    pub events: Vec<crate::events::Event>,
}

/// How far a stride may go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StrideLimits {
    /// No pass starts at or after this time, in nanoseconds: something arrives then.
    pub(crate) until_ns: u64,
    /// The most passes.
    pub(crate) passes: u64,
}

/// What the systems of an iteration tell each other before a batch is complete.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Whether the pass is only looked at.
    pub(crate) peeking: bool,
    /// How far a stride may go.
    pub(crate) stride: StrideLimits,
    /// How many passes the last stride had.
    pub(crate) stride_passes: u64,
    /// Whether `admit` shall try waiting requests.
    pub(crate) admitting: bool,
    /// Why the pass is undone, if it is.
    pub(crate) refusal: Option<Refusal>,
    /// What the timing model said that the pass takes.
    pub(crate) time: PassTime,
    /// Requests preempted in this pass, in the order of their release.
    pub(crate) preempted: Vec<RequestKey>,
}

//! What an iteration did, as the caller reads it.

use crate::batch::{BatchMode, ExtendRow};
use crate::events::Published;
use crate::request::{Finish, Reject, RequestKey};

/// Sizes of the pool and the cache in tokens, and the new-token ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Free tokens of the pool.
    pub free_tokens: u64,
    /// Tokens in unlocked nodes.
    pub evictable_tokens: u64,
    /// Tokens in locked nodes.
    pub protected_tokens: u64,
    /// The new-token ratio.
    pub new_token_ratio: f64,
}

/// A request that finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The request.
    pub request: RequestKey,
    /// Its caller's tag.
    pub tag: u64,
    /// How it ended.
    pub finish: Finish,
    /// Tokens it produced.
    pub produced_tokens: u32,
}

/// Passes in a row that moved the clock alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockRun {
    /// How far each of them moved it, in simulated nanoseconds.
    pub moved_ns: u64,
    /// How many there were, at least 1.
    pub passes: u64,
}

/// One iteration. Lists are empty where nothing happened.
#[derive(Debug, Default)]
pub struct PassRecord {
    /// The iteration's number, from 0; of a stride, that of its last pass.
    pub iteration: u64,
    /// How many passes the record stands for: more than 1 only for a stride of quiet decode passes.
    pub passes: u64,
    /// What ran.
    pub mode: BatchMode,
    /// The rows of an extend batch, without the decode rows of a mixed one.
    pub extend: Vec<ExtendRow>,
    /// The decode rows: of a decode batch, or behind the others in a mixed extend batch.
    pub decode_rows: u32,
    /// How long the pass takes on the device, in simulated nanoseconds; 0 when idle. Of a stride, how far the clock moved.
    pub duration_ns: u64,
    /// Of a stride, how its passes moved the clock, in order; empty for a single pass.
    pub clock_runs: Vec<ClockRun>,
    /// Decode rows that got a token: of a decode batch whose results were taken, or behind the others in a mixed extend batch;
    /// of a stride, in each of its passes.
    pub decode_tokens: u32,
    /// Requests turned away, with the reason.
    pub rejected: Vec<(u64, Reject)>,
    /// Requests that left without finishing: cancelled while waiting or between chunks, or out of memory.
    pub dropped: Vec<u64>,
    /// Requests that were retracted or preempted, in the order of their tags.
    pub retracted: Vec<u64>,
    /// Requests that finished, in row order.
    pub finished: Vec<Finished>,
    /// Requests that produced their first token in this iteration.
    pub first_tokens: Vec<u64>,
    /// Requests that got a token, not their first, at the end of a prefill: they had been retracted.
    pub resumed: Vec<u64>,
    /// Sizes after the batch was chosen.
    pub after_schedule: Gauges,
    /// Sizes after the results were taken.
    pub after_results: Gauges,
    /// What was published.
    pub published: Published,
}

impl PassRecord {
    /// Empties the record for an iteration. What `enter` noted stays, since it belongs to the iteration that follows.
    pub(crate) fn reset(&mut self) {
        self.passes = 1;
        self.mode = BatchMode::Idle;
        self.extend.clear();
        self.decode_rows = 0;
        self.duration_ns = 0;
        self.clock_runs.clear();
        self.decode_tokens = 0;
        self.retracted.clear();
        self.finished.clear();
        self.first_tokens.clear();
        self.resumed.clear();
        self.published.clear();
    }

    /// Notes how far a pass of a stride moved the clock.
    pub(crate) fn note_clock(&mut self, moved_ns: u64) {
        match self.clock_runs.last_mut() {
            Some(run) if run.moved_ns == moved_ns => run.passes += 1,
            _ => self.clock_runs.push(ClockRun { moved_ns, passes: 1 }),
        }
    }
}

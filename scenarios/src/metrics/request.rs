//! What becomes of one request: its times, its tokens and how it ended.

use crate::workload::Job;

/// How a request ended, in the word that files use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served; the word says how: `stop`, `length` or `transferred`.
    Completed(&'static str),
    /// It was cancelled while it ran.
    Aborted,
    /// It left without finishing.
    Dropped,
    /// It was turned away, or given up after a refused pass.
    Rejected,
}

impl Outcome {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Completed(word) => word,
            Outcome::Aborted => "abort",
            Outcome::Dropped => "dropped",
            Outcome::Rejected => "rejected",
        }
    }
}

/// A request on its way. Times are simulated nanoseconds from the start of the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestProgress {
    /// Its session, counted from 0.
    pub session: u64,
    /// Its turn in the session, from 0.
    pub turn: u32,
    /// Whether no later turn of the session will come.
    pub ends_session: bool,
    /// When it was sent: when it was due.
    pub submit_ns: u64,
    /// When the pass of its first admission started on the device.
    pub admit_ns: Option<u64>,
    /// When its first token was there.
    pub first_token_ns: Option<u64>,
    /// Length of its prompt in tokens.
    pub prompt_tokens: u32,
    /// Tokens of it that were in the device's cache at the first admission.
    pub cached_tokens: u32,
    /// How often it was retracted or preempted.
    pub retractions: u32,
}

impl RequestProgress {
    /// A request that was just submitted.
    pub fn new(job: &Job) -> RequestProgress {
        RequestProgress {
            session: job.session,
            turn: job.turn,
            ends_session: job.ends_session,
            submit_ns: job.due_ns,
            admit_ns: None,
            first_token_ns: None,
            prompt_tokens: job.request.prompt_tokens,
            cached_tokens: 0,
            retractions: 0,
        }
    }
}

/// A request that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EndedRequest {
    /// Its number, in the order of submission.
    pub id: u64,
    /// What became of it.
    pub progress: RequestProgress,
    /// When its last token was there, or when it left otherwise, in simulated nanoseconds.
    pub end_ns: u64,
    /// Tokens it produced; 0 unless it completed or was aborted.
    pub output_tokens: u32,
    /// How it ended.
    pub outcome: Outcome,
}

impl EndedRequest {
    /// Whether it was served.
    pub fn completed(&self) -> bool {
        matches!(self.outcome, Outcome::Completed(_))
    }

    /// First admission minus submission.
    pub fn queue_time_ns(&self) -> Option<u64> {
        Some(self.progress.admit_ns?.saturating_sub(self.progress.submit_ns))
    }

    /// TTFT: first token minus submission.
    pub fn ttft_ns(&self) -> Option<u64> {
        Some(self.progress.first_token_ns?.saturating_sub(self.progress.submit_ns))
    }

    /// E2E: last token minus submission.
    pub fn e2e_latency_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.progress.submit_ns)
    }

    /// TPOT: time from the first to the last token, divided by the tokens after the first, rounded to the nearest nanosecond;
    /// none for a request of one token.
    pub fn tpot_ns(&self) -> Option<u64> {
        let after_first = u64::from(self.output_tokens).checked_sub(1).filter(|&tokens| tokens > 0)?;
        let decoding_ns = self.end_ns.saturating_sub(self.progress.first_token_ns?);
        Some((decoding_ns + after_first / 2) / after_first)
    }
}

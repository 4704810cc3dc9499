//! Sums by turn and by session.

use std::collections::BTreeMap;

use super::request::EndedRequest;

/// The last turn that has a row of its own; later turns share it, so that the table stays small.
pub const LAST_TURN: u32 = 1023;

/// Sums over requests that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestSums {
    /// Requests that ended in any way.
    pub requests: u64,
    /// Those that were served; the sums below are over them.
    pub completed: u64,
    /// Prompt tokens.
    pub input_tokens: u64,
    /// Prompt tokens found in the device's cache at the first admission.
    pub cached_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// Retractions, of all requests.
    pub retractions: u64,
    /// Sum of the times to the first token, in nanoseconds.
    pub ttft_ns: u128,
    /// Sum of the end-to-end latencies, in nanoseconds.
    pub e2e_latency_ns: u128,
}

impl RequestSums {
    /// Adds a request.
    pub fn add(&mut self, ended: &EndedRequest) {
        self.requests += 1;
        self.retractions += u64::from(ended.progress.retractions);
        if ended.completed() {
            self.completed += 1;
            self.input_tokens += u64::from(ended.progress.prompt_tokens);
            self.cached_tokens += u64::from(ended.progress.cached_tokens);
            self.output_tokens += u64::from(ended.output_tokens);
            self.ttft_ns += u128::from(ended.ttft_ns().unwrap_or_default());
            self.e2e_latency_ns += u128::from(ended.e2e_latency_ns());
        }
    }

    /// Cached tokens in percent of the prompts'.
    pub fn cache_hit_rate_pct(&self) -> f64 {
        ratio(self.cached_tokens as f64 * 100.0, self.input_tokens)
    }

    /// Mean time to the first token, in milliseconds.
    pub fn mean_ttft_ms(&self) -> f64 {
        ratio(self.ttft_ns as f64 / 1e6, self.completed)
    }

    /// Mean end-to-end latency, in milliseconds.
    pub fn mean_e2e_latency_ms(&self) -> f64 {
        ratio(self.e2e_latency_ns as f64 / 1e6, self.completed)
    }
}

fn ratio(value: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { value / count as f64 }
}

/// Sums by turn, up to [`LAST_TURN`].
#[derive(Clone, Debug, Default)]
pub struct Turns(Vec<RequestSums>);

impl Turns {
    /// Adds a request.
    pub fn add(&mut self, ended: &EndedRequest) {
        let turn = ended.progress.turn.min(LAST_TURN) as usize;
        if self.0.len() <= turn {
            self.0.resize(turn + 1, RequestSums::default());
        }
        self.0[turn].add(ended);
    }

    /// The sums by turn from 0.
    pub fn rows(&self) -> &[RequestSums] {
        &self.0
    }
}

/// A session with its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// Its number.
    pub session: u64,
    /// When its first request was sent, in simulated nanoseconds.
    pub start_ns: u64,
    /// When its last request ended, in simulated nanoseconds.
    pub end_ns: u64,
    /// Sums over its requests.
    pub sums: RequestSums,
    /// How many requests it has in all, once that is known.
    requests: Option<u64>,
}

/// Sessions under way. One leaves when its turns have ended, where the workload knows which that is.
#[derive(Clone, Debug, Default)]
pub struct Sessions(BTreeMap<u64, SessionRow>);

impl Sessions {
    /// Adds a request; returns its session if that is over.
    pub fn add(&mut self, ended: &EndedRequest) -> Option<SessionRow> {
        let (session, submit_ns) = (ended.progress.session, ended.progress.submit_ns);
        let fresh =
            SessionRow { session, start_ns: submit_ns, end_ns: 0, sums: RequestSums::default(), requests: None };
        let row = self.0.entry(session).or_insert(fresh);
        row.start_ns = row.start_ns.min(submit_ns);
        row.end_ns = row.end_ns.max(ended.end_ns);
        row.sums.add(ended);
        if ended.progress.ends_session {
            // In an open loop the last turn may end before the others.
            row.requests = Some(u64::from(ended.progress.turn) + 1);
        }
        if row.requests == Some(row.sums.requests) { self.0.remove(&session) } else { None }
    }

    /// The sessions that are left, by number: those whose end nobody knew, or that a limit cut off.
    pub fn take_rest(&mut self) -> impl Iterator<Item = SessionRow> {
        std::mem::take(&mut self.0).into_values()
    }
}

//! What a run comes to as a client sees it. `docs/metrics.md` has the definitions.
//!
//! - [`request`]: the times and tokens of one request.
//! - [`gaps`]: gaps between tokens (ITL), counted by weight.
//! - [`distribution`]: mean, deviation and percentiles in bounded memory.
//! - [`serving`]: the names of SGLang's serving benchmark.
//! - [`slo`]: requests within bounds.
//! - [`seconds`]: the best second.
//! - [`tables`]: sums by turn and by session.
//! - [`timeline`]: samples at equal intervals.
//!
//! Time is the client's. A request is sent when it is due, though a worker that is in the middle of a pass takes it in at the
//! next iteration. A token is there when the results of its pass are taken, which is the clock after that iteration: without
//! overlap the end of the pass itself, with overlap the end of the pass before the one that was launched meanwhile. A request
//! is admitted when the first pass with a part of it starts on the device.

pub mod distribution;
pub mod gaps;
pub mod request;
pub mod seconds;
pub mod serving;
pub mod slo;
pub mod tables;
pub mod timeline;

use std::collections::BTreeMap;

use servesim_engine::record::PassRecord;
use servesim_engine::request::Finish;

use self::distribution::Distribution;
use self::gaps::TokenGaps;
use self::request::{EndedRequest, Outcome, RequestProgress};
use self::seconds::Seconds;
use self::serving::{CacheReport, Labels, Latencies, Serving, Totals};
use self::slo::{Goodput, Slo};
use self::tables::{RequestSums, SessionRow, Sessions, Turns};
use self::timeline::{Admitted, Sample, Timeline};
use crate::player::Played;

/// What is measured beyond the summary.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsConfig {
    /// What the run is called.
    pub labels: Labels,
    /// Bounds to hold requests against.
    pub slo: Slo,
    /// The interval of the timeline, in simulated nanoseconds; absent is no timeline.
    pub interval_ns: Option<u64>,
    /// Whether sums by turn and by session are kept.
    pub tables: bool,
}

/// Measures a run as it goes. Memory follows the requests under way, not the length of the run.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    config: MetricsConfig,
    under_way: BTreeMap<u64, RequestProgress>,
    sums: RequestSums,
    good: u64,
    most_under_way: u64,
    ttft: Distribution,
    tpot: Distribution,
    e2e_latency: Distribution,
    queue_time: Distribution,
    gaps: TokenGaps,
    seconds: Seconds,
    timeline: Option<Timeline>,
    turns: Turns,
    sessions: Sessions,
    /// Requests and sessions that ended in the last iteration.
    ended: Vec<EndedRequest>,
    closed: Vec<SessionRow>,
    now_ns: u64,
    last_end_ns: u64,
}

impl Metrics {
    /// Nothing measured yet.
    pub fn new(config: MetricsConfig) -> Metrics {
        Metrics { timeline: config.interval_ns.map(Timeline::new), config, ..Metrics::default() }
    }

    /// The requests that ended in the last iteration.
    pub fn ended(&self) -> &[EndedRequest] {
        &self.ended
    }

    /// The sessions that ended in the last iteration.
    pub fn closed_sessions(&self) -> &[SessionRow] {
        &self.closed
    }

    /// Sums by turn.
    pub fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Intervals of the timeline that ended since the last call.
    pub fn take_samples(&mut self) -> impl Iterator<Item = Sample> + '_ {
        self.timeline.iter_mut().flat_map(Timeline::take_samples)
    }

    /// The run is over: the last interval and the sessions that are left end.
    pub fn finish(&mut self) {
        if let Some(timeline) = &mut self.timeline {
            timeline.finish();
        }
        self.ended.clear();
        self.closed.clear();
        self.closed.extend(self.sessions.take_rest());
    }

    /// Adds one iteration.
    pub fn add(&mut self, played: &Played) {
        let (record, now_ns) = (played.record, played.now_ns);
        self.now_ns = now_ns;
        self.ended.clear();
        self.closed.clear();
        if !played.submitted.is_empty() {
            self.note_submitted(played);
        }
        for tag in &record.retracted {
            self.note_retracted(*tag);
        }
        let mut admitted = self.note_admitted(played);
        self.note_tokens(record, now_ns);
        for finished in &record.finished {
            let outcome = match finished.finish {
                Finish::Abort => Outcome::Aborted,
                finish => Outcome::Completed(finish.as_str()),
            };
            admitted.completed += u64::from(outcome != Outcome::Aborted);
            self.note_ended(finished.tag, outcome, finished.produced_tokens);
        }
        for &tag in &record.dropped {
            self.note_ended(tag, Outcome::Dropped, 0);
        }
        for &(tag, _) in &record.rejected {
            self.note_ended(tag, Outcome::Rejected, 0);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.add(played, admitted);
        }
    }

    fn note_submitted(&mut self, played: &Played) {
        for job in played.submitted {
            self.under_way.insert(job.request.tag, RequestProgress::new(job));
        }
        self.most_under_way = self.most_under_way.max(self.under_way.len() as u64);
    }

    fn note_retracted(&mut self, tag: u64) {
        if let Some(progress) = self.under_way.get_mut(&tag) {
            progress.retractions += 1;
            if progress.first_token_ns.is_some() {
                self.gaps.retracted(tag);
            }
        }
    }

    /// First admissions: the pass starts on the device where the clock stands with overlap, and one duration before without.
    fn note_admitted(&mut self, played: &Played) -> Admitted {
        let mut admitted = Admitted::default();
        for row in played.record.extend.iter().filter(|row| row.first) {
            let Some(tag) = played.worker.tag(row.request) else { continue };
            let Some(progress) = self.under_way.get_mut(&tag) else { continue };
            let before = played.worker.config().disable_overlap_schedule;
            let back_ns = if before { played.record.duration_ns } else { 0 };
            progress.admit_ns = Some(played.now_ns.saturating_sub(back_ns));
            progress.cached_tokens = row.prefix;
            admitted.prompt_tokens += u64::from(progress.prompt_tokens);
            admitted.cached_tokens += u64::from(row.prefix);
        }
        admitted
    }

    fn note_tokens(&mut self, record: &PassRecord, now_ns: u64) {
        let rows = u64::from(record.decode_tokens);
        if record.clock_runs.is_empty() {
            self.gaps.decoded(rows, now_ns);
            self.seconds.add(rows + (record.first_tokens.len() + record.resumed.len()) as u64, now_ns);
        } else {
            let started_ns = now_ns.saturating_sub(record.duration_ns);
            self.gaps.strode(rows, &record.clock_runs, started_ns);
            self.seconds.strode(rows, &record.clock_runs, started_ns);
        }
        for &tag in &record.first_tokens {
            if let Some(progress) = self.under_way.get_mut(&tag) {
                progress.first_token_ns = Some(now_ns);
            }
            self.gaps.prefilled(tag, now_ns);
        }
        for &tag in &record.resumed {
            self.gaps.prefilled(tag, now_ns);
        }
    }

    fn note_ended(&mut self, id: u64, outcome: Outcome, output_tokens: u32) {
        let Some(progress) = self.under_way.remove(&id) else { return };
        self.gaps.ended(id);
        self.last_end_ns = self.now_ns;
        let ended = EndedRequest { id, progress, end_ns: self.now_ns, output_tokens, outcome };
        self.sums.add(&ended);
        if ended.completed() {
            self.note_latencies(&ended);
        }
        if self.config.tables {
            self.turns.add(&ended);
            self.closed.extend(self.sessions.add(&ended));
        }
        self.ended.push(ended);
    }

    fn note_latencies(&mut self, ended: &EndedRequest) {
        let tpot_ns = ended.tpot_ns();
        self.e2e_latency.add(ended.e2e_latency_ns());
        tpot_ns.into_iter().for_each(|tpot_ns| self.tpot.add(tpot_ns));
        ended.queue_time_ns().into_iter().for_each(|queue_ns| self.queue_time.add(queue_ns));
        if let Some(ttft_ns) = ended.ttft_ns() {
            self.ttft.add(ttft_ns);
            self.good += u64::from(self.config.slo.is_set() && self.config.slo.holds(ttft_ns, tpot_ns));
        }
    }

    /// To the end of the last request, as a client's clock would say; under overlap one more pass may run after that.
    fn duration_s(&self) -> f64 {
        self.last_end_ns as f64 / 1e9
    }

    /// All gaps between tokens so far.
    pub fn gaps(&self) -> &Distribution {
        self.gaps.gaps()
    }

    /// Requests within the objective, if there is one.
    pub fn goodput(&self) -> Option<Goodput> {
        self.config.slo.goodput(self.good, self.sums.requests, self.duration_s())
    }

    /// What the run comes to so far.
    pub fn serving(&self) -> Serving {
        let (sums, duration) = (&self.sums, self.duration_s());
        let per_second = |amount: f64| if duration > 0.0 { amount / duration } else { 0.0 };
        Serving {
            labels: self.config.labels.clone(),
            totals: Totals {
                duration,
                completed: sums.completed,
                total_input_tokens: sums.input_tokens,
                total_input_text_tokens: sums.input_tokens,
                total_input_vision_tokens: 0,
                total_output_tokens: sums.output_tokens,
                total_output_tokens_retokenized: sums.output_tokens,
                request_throughput: per_second(sums.completed as f64),
                input_throughput: per_second(sums.input_tokens as f64),
                output_throughput: per_second(sums.output_tokens as f64),
                total_throughput: per_second((sums.input_tokens + sums.output_tokens) as f64),
                concurrency: per_second(sums.e2e_latency_ns as f64 / 1e9),
                accept_length: None,
                max_output_tokens_per_s: self.seconds.most() as f64,
                max_concurrent_requests: self.most_under_way,
                total_cached_tokens: sums.cached_tokens,
                cache_hit_rate_pct: sums.cache_hit_rate_pct(),
                cache_report: CacheReport::of_device(sums.input_tokens, sums.cached_tokens, sums.cache_hit_rate_pct()),
            },
            latencies: Latencies {
                e2e_latency: self.e2e_latency.stats(),
                ttft: self.ttft.stats(),
                tpot: self.tpot.stats(),
                itl: self.gaps.gaps().stats(),
                queue_time: self.queue_time.stats(),
            },
        }
    }
}

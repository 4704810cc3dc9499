//! What a run comes to: counts of requests, passes, tokens and KV events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use servesim_engine::batch::BatchMode;
use servesim_engine::events::EventKind;
use servesim_engine::record::PassRecord;
use servesim_engine::request::Finish;

use crate::metrics::serving::Serving;
use crate::metrics::slo::Goodput;
use crate::metrics::{Metrics, MetricsConfig};
use crate::player::Played;

/// How requests ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// Handed to the worker.
    pub submitted: u64,
    /// Ended by a stop token or at their length.
    pub completed: u64,
    /// Turned away.
    pub rejected: u64,
    /// Left without finishing.
    pub dropped: u64,
    /// Cancelled while running.
    pub aborted: u64,
}

/// Iterations by what they ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PassCounts {
    /// All iterations.
    pub total: u64,
    /// Those that ran an extend batch.
    pub extend: u64,
    /// Those that ran a decode batch.
    pub decode: u64,
    /// Those that ran nothing.
    pub idle: u64,
}

/// Tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TokenCounts {
    /// Prompt tokens of requests that were not turned away at entry.
    pub input: u64,
    /// Tokens produced by requests that ended.
    pub output: u64,
    /// Prompt tokens found in the cache at a request's first admission.
    pub cached: u64,
    /// Tokens computed by extend batches, decode rows of mixed ones left out.
    pub computed: u64,
}

/// Counts of one kind of KV event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventCounts {
    /// Events.
    pub events: u64,
    /// Blocks in them, of a page each.
    pub blocks: u64,
    /// Events per completed request.
    pub events_per_request: f64,
    /// Blocks per event, mean.
    pub mean_blocks: f64,
    /// Blocks per event, median.
    pub median_blocks: f64,
}

/// KV events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KvEventCounts {
    /// Batches published.
    pub publishes: u64,
    /// Blocks that came into the cache.
    pub stored: EventCounts,
    /// Blocks that left it.
    pub removed: EventCounts,
}

/// What a run comes to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Latencies and throughputs, under the names of SGLang's serving benchmark.
    #[serde(flatten)]
    pub serving: Serving,
    /// Requests within the service level objective, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slo: Option<Goodput>,
    /// How requests ended.
    pub requests: RequestCounts,
    /// Iterations.
    pub passes: PassCounts,
    /// Tokens.
    pub tokens: TokenCounts,
    /// KV events.
    pub kv_events: KvEventCounts,
    /// Retractions, preemptions included.
    pub retracted: u64,
    /// Tokens evicted from the cache.
    pub evicted_tokens: u64,
    /// The most tokens of the pool that running requests held at once.
    pub peak_used_tokens: u64,
    /// Simulated time in milliseconds.
    pub duration_ms: f64,
}

/// Exact sizes of events: how many had each number of blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizes {
    counts: BTreeMap<u64, u64>,
    events: u64,
    blocks: u64,
}

impl Sizes {
    /// Adds an event.
    pub(crate) fn add(&mut self, blocks: u64) {
        *self.counts.entry(blocks).or_default() += 1;
        self.events += 1;
        self.blocks += blocks;
    }

    /// The size at a rank from 0.
    fn at(&self, rank: u64) -> u64 {
        let mut before = 0;
        for (&blocks, &count) in &self.counts {
            before += count;
            if rank < before {
                return blocks;
            }
        }
        0
    }

    /// The size that `percent` of events do not pass, by the nearest rank; 0 without events.
    pub(crate) fn percentile(&self, percent: u64) -> u64 {
        self.at((self.events * percent).div_ceil(100).saturating_sub(1))
    }

    /// The sums, per request where there are any.
    pub(crate) fn counts(&self, requests: u64) -> EventCounts {
        if self.events == 0 {
            return EventCounts::default();
        }
        let (low, high) = (self.at((self.events - 1) / 2), self.at(self.events / 2));
        EventCounts {
            events: self.events,
            blocks: self.blocks,
            events_per_request: if requests == 0 { 0.0 } else { self.events as f64 / requests as f64 },
            mean_blocks: self.blocks as f64 / self.events as f64,
            median_blocks: (low + high) as f64 / 2.0,
        }
    }
}

/// Sums a run up as it goes.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    requests: RequestCounts,
    passes: PassCounts,
    tokens: TokenCounts,
    publishes: u64,
    stored: Sizes,
    removed: Sizes,
    retracted: u64,
    evicted_tokens: u64,
    peak_used_tokens: u64,
    now_ns: u64,
    metrics: Metrics,
}

impl Tally {
    /// A tally that also measures what `config` says.
    pub fn new(config: MetricsConfig) -> Tally {
        Tally { metrics: Metrics::new(config), ..Tally::default() }
    }

    /// What was measured as a client sees it.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The same, to take samples from it.
    pub fn metrics_mut(&mut self) -> &mut Metrics {
        &mut self.metrics
    }

    /// Requests that have ended in whatever way.
    pub fn ended(&self) -> u64 {
        let RequestCounts { completed, rejected, dropped, aborted, .. } = self.requests;
        completed + rejected + dropped + aborted
    }

    /// Adds one iteration.
    pub fn add(&mut self, played: &Played) {
        let record = played.record;
        self.requests.submitted += played.submitted.len() as u64;
        self.tokens.input += played.submitted.iter().map(|job| u64::from(job.request.prompt_tokens)).sum::<u64>();
        self.requests.rejected += record.rejected.len() as u64;
        self.requests.dropped += record.dropped.len() as u64;
        self.retracted += record.retracted.len() as u64;
        for finished in &record.finished {
            match finished.finish {
                Finish::Abort => self.requests.aborted += 1,
                _ => self.requests.completed += 1,
            }
            self.tokens.output += u64::from(finished.produced_tokens);
        }
        self.add_pass(record);
        self.add_events(record);
        self.evicted_tokens = played.worker.tree().evicted_tokens();
        let gauges = &record.after_schedule;
        let idle_tokens = gauges.free_tokens + gauges.evictable_tokens;
        let used_tokens = played.worker.pool().total_tokens().saturating_sub(idle_tokens);
        self.peak_used_tokens = self.peak_used_tokens.max(used_tokens);
        self.now_ns = played.now_ns;
        self.metrics.add(played);
    }

    fn add_pass(&mut self, record: &PassRecord) {
        self.passes.total += record.passes;
        match record.mode {
            BatchMode::Idle => self.passes.idle += record.passes,
            BatchMode::Decode => self.passes.decode += record.passes,
            BatchMode::Extend => self.passes.extend += record.passes,
        }
        for row in &record.extend {
            self.tokens.computed += u64::from(row.end - row.prefix);
            if row.first {
                self.tokens.cached += u64::from(row.prefix);
            }
        }
    }

    fn add_events(&mut self, record: &PassRecord) {
        self.publishes += record.published.batches.len() as u64;
        for event in &record.published.events {
            match event.kind {
                EventKind::Cleared => {}
                EventKind::Stored | EventKind::StoredAtRoot => self.stored.add(event.blocks),
                EventKind::Removed => self.removed.add(event.blocks),
            }
        }
    }

    /// What it comes to.
    pub fn summary(&self) -> Summary {
        let completed = self.requests.completed;
        Summary {
            serving: self.metrics.serving(),
            slo: self.metrics.goodput(),
            requests: self.requests.clone(),
            passes: self.passes.clone(),
            tokens: self.tokens.clone(),
            kv_events: KvEventCounts {
                publishes: self.publishes,
                stored: self.stored.counts(completed),
                removed: self.removed.counts(completed),
            },
            retracted: self.retracted,
            evicted_tokens: self.evicted_tokens,
            peak_used_tokens: self.peak_used_tokens,
            duration_ms: self.now_ns as f64 / 1e6,
        }
    }
}

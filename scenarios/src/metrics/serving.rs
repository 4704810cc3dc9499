//! Latencies and throughputs under the names of SGLang's serving benchmark (`sglang.benchmark.serving`, v0.5.21), so that
//! scripts that read its JSON read this one.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::distribution::Stats;

/// The rate at which requests are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RequestRate {
    /// As fast as lanes let them: a closed loop.
    #[default]
    Unlimited,
    /// At the times of a trace.
    Trace,
    /// Requests a second.
    PerSecond(f64),
}

impl Serialize for RequestRate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            RequestRate::Unlimited => serializer.serialize_str("inf"),
            RequestRate::Trace => serializer.serialize_str("trace"),
            RequestRate::PerSecond(rate) => serializer.serialize_f64(*rate),
        }
    }
}

/// What a run is called, and how it was loaded.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Labels {
    /// What served the requests.
    pub backend: &'static str,
    /// The scenario's name.
    pub dataset_name: String,
    /// The rate of an open loop; `"inf"` in a closed one.
    pub request_rate: RequestRate,
    /// The lanes of a closed loop.
    pub max_concurrency: Option<u32>,
}

impl Default for Labels {
    fn default() -> Labels {
        let (request_rate, max_concurrency) = (RequestRate::Unlimited, None);
        Labels { backend: "servesim", dataset_name: String::new(), request_rate, max_concurrency }
    }
}

/// Totals of the requests that were served, and throughputs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Totals {
    /// Simulated seconds from the start of the run to the end of its last request.
    pub duration: f64,
    /// Requests served.
    pub completed: u64,
    /// Their prompt tokens.
    pub total_input_tokens: u64,
    /// The same: all input is text.
    pub total_input_text_tokens: u64,
    /// Always 0.
    pub total_input_vision_tokens: u64,
    /// Their output tokens.
    pub total_output_tokens: u64,
    /// The same: nothing is tokenized again here.
    pub total_output_tokens_retokenized: u64,
    /// Requests served a second.
    pub request_throughput: f64,
    /// Their prompt tokens a second.
    pub input_throughput: f64,
    /// Their output tokens a second.
    pub output_throughput: f64,
    /// Both a second.
    pub total_throughput: f64,
    /// Sum of their end-to-end latencies over the duration: how many of them were under way on average.
    pub concurrency: f64,
    /// Always absent: there is no speculative decoding.
    pub accept_length: Option<f64>,
    /// The most tokens in one second of simulated time.
    pub max_output_tokens_per_s: f64,
    /// The most requests under way at once.
    pub max_concurrent_requests: u64,
    /// Prompt tokens found in a cache at the first admission.
    pub total_cached_tokens: u64,
    /// Them in percent of the prompt tokens.
    pub cache_hit_rate_pct: f64,
    /// The same as SGLang's benchmark has it with `--cache-report`.
    pub cache_report: CacheReport,
}

/// Where prompt tokens were found in a cache. In SGLang's benchmark, storage without tokens is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheReport {
    /// Prompt tokens of the requests that were served.
    pub total_prompt_tokens: u64,
    /// Those found in a cache at the first admission.
    pub total_cached_tokens: u64,
    /// Them in percent, to two digits.
    pub cache_hit_rate_pct: f64,
    /// Those found on the device, which are all.
    pub device_cached_tokens: u64,
    /// Always 0: there is no host tier.
    pub host_cached_tokens: u64,
    /// Always absent: there is no storage tier.
    pub storage_cached_tokens: Option<u64>,
    /// Always absent.
    pub storage_backend: Option<String>,
}

impl CacheReport {
    /// The report of a device cache alone.
    pub fn of_device(total_prompt_tokens: u64, total_cached_tokens: u64, cache_hit_rate_pct: f64) -> CacheReport {
        CacheReport {
            total_prompt_tokens,
            total_cached_tokens,
            cache_hit_rate_pct: (cache_hit_rate_pct * 100.0).round() / 100.0,
            device_cached_tokens: total_cached_tokens,
            ..CacheReport::default()
        }
    }
}

/// The latencies of the requests that were served. ITL pools the gaps of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latencies {
    /// Last token minus submission.
    pub e2e_latency: Stats,
    /// First token minus submission.
    pub ttft: Stats,
    /// Per request, the time after the first token over the tokens after it.
    pub tpot: Stats,
    /// Gaps between tokens.
    pub itl: Stats,
    /// First admission minus submission.
    pub queue_time: Stats,
}

impl Latencies {
    /// All of them with their names.
    pub fn by_name(&self) -> [(&'static str, &Stats); 5] {
        [
            ("e2e_latency", &self.e2e_latency),
            ("ttft", &self.ttft),
            ("tpot", &self.tpot),
            ("itl", &self.itl),
            ("queue_time", &self.queue_time),
        ]
    }
}

/// One flat map: `mean_ttft_ms`, `p99_itl_ms` and so on.
impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, stats) in self.by_name() {
            let values = [
                ("mean", stats.mean_ms),
                ("median", stats.median_ms),
                ("std", stats.std_ms),
                ("p90", stats.p90_ms),
                ("p95", stats.p95_ms),
                ("p99", stats.p99_ms),
                ("max", stats.max_ms),
            ];
            for (statistic, value_ms) in values {
                map.serialize_entry(&format!("{statistic}_{name}_ms"), &value_ms)?;
            }
        }
        map.end()
    }
}

/// What a run comes to as a client sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Serving {
    /// What was run.
    #[serde(flatten)]
    pub labels: Labels,
    /// Totals and throughputs.
    #[serde(flatten)]
    pub totals: Totals,
    /// Latencies.
    #[serde(flatten)]
    pub latencies: Latencies,
}

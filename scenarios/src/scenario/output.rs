//! The `[slo]` and `[output]` sections, and what a scenario says about how it is measured.

use std::path::PathBuf;

use super::Scenario;
use super::kv_events::{self, KvEventsOutput};
use super::settings::Settings;
use super::workload::{Load, Pace, Rate, WorkloadConfig};
use crate::metrics::MetricsConfig;
use crate::metrics::serving::{Labels, RequestRate};
use crate::metrics::slo::Slo;
use crate::output::{RequestFormat, TimeseriesFormat};
use crate::workload::InputError;

/// Where results go, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputConfig {
    /// The folder for result files; absent writes none.
    pub dir: Option<PathBuf>,
    /// The file of requests.
    pub requests: RequestFormat,
    /// The file of intervals.
    pub timeseries: TimeseriesFormat,
    /// The length of an interval, in simulated nanoseconds.
    pub interval_ns: u64,
    /// What is done with KV events.
    pub kv_events: KvEventsOutput,
}

/// Takes the `[output]` section out of `settings`.
///
/// # Errors
/// A value that its key cannot have.
pub fn read(settings: &mut Settings) -> Result<OutputConfig, InputError> {
    let dir = settings.text("output.dir", None)?.map(PathBuf::from);
    let (requests, _) = settings.choice("output.requests", "jsonl", &RequestFormat::NAMES)?;
    let (timeseries, _) = settings.choice("output.timeseries", "csv", &TimeseriesFormat::NAMES)?;
    let fits = |value| (0.001..=1e9).contains(&value);
    let interval_s = settings.number("output.interval_s", 1.0, fits, "a number from 0.001 to 10^9 seconds")?;
    Ok(OutputConfig {
        dir,
        requests: RequestFormat::ALL[requests],
        timeseries: TimeseriesFormat::ALL[timeseries],
        interval_ns: (interval_s * 1e9).round() as u64,
        kv_events: kv_events::read(settings)?,
    })
}

/// Takes the `[slo]` section out of `settings`.
///
/// # Errors
/// A value that its key cannot have.
pub fn read_slo(settings: &mut Settings) -> Result<Slo, InputError> {
    let mut bound = |key| {
        let bound_ms = settings.optional_number(key, |value| (0.0..=1e9).contains(&value), "0 to 10^9 ms")?;
        Ok(bound_ms.map(|bound_ms| (bound_ms * 1e6).round() as u64))
    };
    Ok(Slo { ttft_ns: bound("slo.ttft_ms")?, tpot_ns: bound("slo.tpot_ms")? })
}

impl Scenario {
    /// How a run is measured; `files` says whether its result files are written.
    pub fn metrics_config(&self, files: bool) -> MetricsConfig {
        let timeline = files && self.output.timeseries != TimeseriesFormat::None;
        MetricsConfig {
            labels: self.labels(),
            slo: self.slo,
            interval_ns: timeline.then_some(self.output.interval_ns),
            tables: files,
        }
    }

    fn labels(&self) -> Labels {
        let (request_rate, max_concurrency) = load_of(&self.workload);
        Labels { dataset_name: self.name.clone(), request_rate, max_concurrency, ..Labels::default() }
    }

    /// What deserves a word before the run: sessions without a prefix cache.
    pub fn warning(&self) -> Option<&'static str> {
        let sessions = match &self.workload {
            WorkloadConfig::Sessions { .. } | WorkloadConfig::Weka { .. } | WorkloadConfig::CodingAgent(_) => true,
            WorkloadConfig::Mooncake { .. }
            | WorkloadConfig::Azure { .. }
            | WorkloadConfig::SharedPrefix { .. }
            | WorkloadConfig::Random { .. } => false,
        };
        (sessions && self.engine.disable_radix_cache).then_some(
            "the prefix cache is off (engine.disable_radix_cache) though sessions are played: every turn computes its \
             whole history again",
        )
    }
}

/// The rate of an open loop, and the lanes of a closed one.
fn load_of(workload: &WorkloadConfig) -> (RequestRate, Option<u32>) {
    match workload {
        WorkloadConfig::Sessions { lanes, .. } => (RequestRate::Unlimited, *lanes),
        WorkloadConfig::Weka { pace: Pace::Open { .. }, .. } => (RequestRate::Trace, None),
        WorkloadConfig::Weka { lanes, .. } => (RequestRate::Unlimited, Some(*lanes)),
        WorkloadConfig::Mooncake { pace, .. } | WorkloadConfig::Azure { pace, .. } => match *pace {
            Pace::Closed { lanes, .. } => (RequestRate::Unlimited, Some(lanes)),
            Pace::Open { .. } => (RequestRate::Trace, None),
            Pace::Rate(Rate { rate_per_s, .. }) => (RequestRate::PerSecond(rate_per_s), None),
        },
        WorkloadConfig::CodingAgent(config) => (RequestRate::Unlimited, Some(config.lanes)),
        WorkloadConfig::SharedPrefix { load, .. } | WorkloadConfig::Random { load, .. } => match *load {
            Load::Lanes(lanes) => (RequestRate::Unlimited, Some(lanes)),
            Load::Rate(Rate { rate_per_s, .. }) => (RequestRate::PerSecond(rate_per_s), None),
        },
    }
}

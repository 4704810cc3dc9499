//! Which metrics a reader looks for first, and what they are called.

use serde_json::{Map, Value};

/// Metrics whose columns are shown from the start, in this order.
pub const HEADLINE: [&str; 19] = [
    "completed",
    "cache_hit_rate_pct",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "mean_tpot_ms",
    "mean_itl_ms",
    "p99_itl_ms",
    "mean_e2e_latency_ms",
    "request_throughput",
    "output_throughput",
    "slo.goodput",
    "retracted",
    "evicted_tokens",
    "kv_events.stored.events_per_request",
    "kv_events.stored.mean_blocks",
    "kv_events.removed.events_per_request",
    "passes.total",
    "peak_used_tokens",
    "duration_ms",
];

/// A metric that plots show, and which way is better.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The heading of its plot.
    pub title: &'static str,
    /// The axis, with its unit.
    pub axis: &'static str,
    /// Its value in a row.
    pub of: fn(&Map<String, Value>) -> Option<f64>,
}

/// The share of prompt tokens that were found in the cache.
pub const HIT_RATE: Shown = Shown { title: "Cache hit rate", axis: "hit rate, %", of: hit_rate_pct };
/// The time to the first token.
pub const TTFT: Shown = Shown { title: "Mean TTFT", axis: "TTFT, ms", of: |metrics| number(metrics, "mean_ttft_ms") };
/// Its worst hundredth.
pub const TTFT_P99: Shown =
    Shown { title: "TTFT, 99th percentile", axis: "TTFT, ms", of: |metrics| number(metrics, "p99_ttft_ms") };
/// The gap between two tokens that one in a hundred exceeds.
pub const ITL_P99: Shown =
    Shown { title: "ITL, 99th percentile", axis: "ITL, ms", of: |metrics| number(metrics, "p99_itl_ms") };
/// Tokens that came out, a second.
pub const THROUGHPUT: Shown = Shown {
    title: "Output throughput",
    axis: "output tokens a second",
    of: |metrics| number(metrics, "output_throughput"),
};
/// KV events a request.
pub const EVENTS: Shown = Shown { title: "KV events a request", axis: "events a request", of: events_per_request };
/// Retractions.
pub const RETRACTIONS: Shown =
    Shown { title: "Retractions", axis: "retractions", of: |metrics| number(metrics, "retracted") };

/// What is plotted against each setting that varies.
pub const AGAINST_SETTINGS: [Shown; 7] = [HIT_RATE, TTFT, TTFT_P99, ITL_P99, THROUGHPUT, EVENTS, RETRACTIONS];

fn number(metrics: &Map<String, Value>, name: &str) -> Option<f64> {
    metrics.get(name).and_then(Value::as_f64)
}

fn hit_rate_pct(metrics: &Map<String, Value>) -> Option<f64> {
    number(metrics, "cache_hit_rate_pct").or_else(|| {
        let (cached, input) = (number(metrics, "tokens.cached")?, number(metrics, "tokens.input")?);
        (input > 0.0).then(|| 100.0 * cached / input)
    })
}

fn events_per_request(metrics: &Map<String, Value>) -> Option<f64> {
    let of = |kind: &str| number(metrics, &format!("kv_events.{kind}.events_per_request"));
    Some(of("stored")? + of("removed").unwrap_or(0.0))
}

/// A number as a person reads it: at most four digits after the point, and none that say nothing.
pub fn shown(value: f64) -> String {
    if value == value.trunc() && value.abs() < 1e15 {
        return format!("{value:.0}");
    }
    let digits = if value.abs() >= 1000.0 {
        1
    } else if value.abs() >= 10.0 {
        2
    } else {
        4
    };
    let text = format!("{value:.digits$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number as short as a tick of an axis has to be.
pub fn tick(value: f64) -> String {
    let scaled = |divisor: f64, unit: &str| format!("{}{unit}", shown((value / divisor * 100.0).round() / 100.0));
    match value.abs() {
        size if size >= 1e9 => scaled(1e9, " G"),
        size if size >= 1e6 => scaled(1e6, " M"),
        size if size >= 1e4 => scaled(1e3, " k"),
        _ => shown((value * 1e4).round() / 1e4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let cases =
            [(0.0, "0"), (1.0, "1"), (12.3456, "12.35"), (0.12345, "0.1235"), (12345.67, "12345.7"), (-2.5, "-2.5")];
        for (value, text) in cases {
            assert_eq!(shown(value), text);
        }
        assert_eq!((tick(65536.0).as_str(), tick(2.5e6).as_str(), tick(0.3).as_str()), ("65.54 k", "2.5 M", "0.3"));
    }

    #[test]
    fn the_hit_rate_is_computed_where_it_is_not_given() {
        let metrics = |value: Value| value.as_object().cloned().unwrap_or_default();
        assert_eq!(hit_rate_pct(&metrics(serde_json::json!({"tokens.cached": 3, "tokens.input": 4}))), Some(75.0));
        assert_eq!(hit_rate_pct(&metrics(serde_json::json!({"cache_hit_rate_pct": 12.5}))), Some(12.5));
        assert_eq!(hit_rate_pct(&metrics(serde_json::json!({"tokens.cached": 3, "tokens.input": 0}))), None);
    }
}

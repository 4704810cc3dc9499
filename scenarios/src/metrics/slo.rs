//! A service level objective: how many requests were served within it.

use serde::Serialize;

/// Bounds that a request must keep.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slo {
    /// Longest time to the first token, in nanoseconds; absent is no bound.
    pub ttft_ns: Option<u64>,
    /// Longest time per output token, in nanoseconds; absent is no bound. A request of one token has none and keeps any.
    pub tpot_ns: Option<u64>,
}

impl Slo {
    /// Whether anything is bounded.
    pub fn is_set(&self) -> bool {
        self.ttft_ns.is_some() || self.tpot_ns.is_some()
    }

    /// Whether these times are within the bounds.
    pub fn holds(&self, ttft_ns: u64, tpot_ns: Option<u64>) -> bool {
        self.ttft_ns.is_none_or(|bound_ns| ttft_ns <= bound_ns)
            && self.tpot_ns.zip(tpot_ns).is_none_or(|(bound_ns, tpot_ns)| tpot_ns <= bound_ns)
    }

    /// How `good` requests of `ended` stand in a run of `duration_s`; nothing where there are no bounds.
    pub fn goodput(&self, good: u64, ended: u64, duration_s: f64) -> Option<Goodput> {
        let ms = |bound_ns: u64| bound_ns as f64 / 1e6;
        self.is_set().then(|| Goodput {
            ttft_ms: self.ttft_ns.map(ms),
            tpot_ms: self.tpot_ns.map(ms),
            requests: good,
            share_pct: if ended == 0 { 0.0 } else { good as f64 / ended as f64 * 100.0 },
            request_goodput: if duration_s > 0.0 { good as f64 / duration_s } else { 0.0 },
        })
    }
}

/// Requests within the objective.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goodput {
    /// The bound of the time to the first token, in milliseconds.
    pub ttft_ms: Option<f64>,
    /// The bound of the time per output token, in milliseconds.
    pub tpot_ms: Option<f64>,
    /// Completed requests that kept both.
    pub requests: u64,
    /// Their share of all requests that ended in any way, in percent.
    pub share_pct: f64,
    /// Them per second of the run.
    pub request_goodput: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive_and_one_token_has_no_tpot() {
        let slo = Slo { ttft_ns: Some(10), tpot_ns: Some(3) };
        assert!(slo.holds(10, Some(3)) && slo.holds(0, None));
        assert!(!slo.holds(11, None) && !slo.holds(10, Some(4)));
        assert!(Slo { ttft_ns: None, tpot_ns: Some(3) }.holds(u64::MAX, Some(1)));
        let goodput = slo.goodput(3, 4, 1.5).expect("bounds are set");
        assert_eq!((goodput.share_pct, goodput.request_goodput), (75.0, 2.0));
        assert_eq!(Slo::default().goodput(3, 4, 1.5), None);
    }
}

//! What a case may use of its host, and the watch that ends a case which uses more.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::host;

/// Between two looks at what a case uses.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Limits of one case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Largest resident memory in MB (10^6 bytes).
    pub max_rss_mb: Option<f64>,
    /// Longest time on the clock in seconds.
    pub max_wall_s: Option<f64>,
}

impl Limits {
    /// These, and what they leave out from `other`.
    pub fn or(self, other: Limits) -> Limits {
        Limits { max_rss_mb: self.max_rss_mb.or(other.max_rss_mb), max_wall_s: self.max_wall_s.or(other.max_wall_s) }
    }

    /// Whether there is any.
    pub fn any(self) -> bool {
        self.max_rss_mb.is_some() || self.max_wall_s.is_some()
    }

    /// What is over its limit. The text holds no measured number, so that a failure reads the same each time.
    pub fn exceeded(self, started: Instant) -> Option<String> {
        if let Some(most) = self.max_rss_mb
            && host::peak_memory_mb() > most
        {
            return Some(format!("max_rss_mb: found more resident memory, expected at most {most} MB"));
        }
        if let Some(most) = self.max_wall_s
            && started.elapsed().as_secs_f64() > most
        {
            return Some(format!("max_wall_s: found a longer run, expected at most {most} s"));
        }
        None
    }

    /// Watches from a thread of its own, and calls `over` with what is over its limit.
    pub fn watch(self, started: Instant, over: impl Fn(String) + Send + 'static) {
        if !self.any() {
            return;
        }
        std::thread::spawn(move || {
            loop {
                if let Some(reason) = self.exceeded(started) {
                    over(reason);
                    return;
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
    }
}

//! Plays simulated time against the clock on the wall, for consumers that live in it. Results do not change.

use std::time::{Duration, Instant};

/// The slowest speed.
pub const SLOWEST: f64 = 1e-3;
/// The fastest speed.
pub const FASTEST: f64 = 1e9;
/// The most decode passes that are done together, so that a long quiet stretch is not one long sleep.
pub const LONGEST_STRIDE: u64 = 256;

/// A clock that runs `speed` times as fast as the one on the wall.
pub struct Realtime {
    started: Instant,
    speed: f64,
}

impl Realtime {
    /// Starts now.
    pub fn start(speed: f64) -> Realtime {
        Realtime { started: Instant::now(), speed }
    }

    /// Sleeps until simulated time is due.
    pub fn wait_until(&self, now_ns: u64) {
        // The slowest speed and the longest time fit into a duration; a longer one would be slept for ever anyway.
        let due = Duration::try_from_secs_f64(now_ns as f64 / 1e9 / self.speed).unwrap_or(Duration::MAX);
        let left = due.saturating_sub(self.started.elapsed());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }
}

/// Reads the speed of the command line.
pub fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (SLOWEST..=FASTEST).contains(speed));
    speed.ok_or_else(|| format!("found {text}, expected a speed from {SLOWEST} to {FASTEST:e}"))
}

//! The progress line on stderr; silent when stderr is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Iterations between two looks at the clock.
const STRIDE: u64 = 4096;

/// Shows how far a run has come.
pub struct Progress {
    bar: ProgressBar,
    iterations: u64,
}

impl Progress {
    /// A line for a run of `jobs` requests, where that is known.
    pub fn new(jobs: Option<u64>) -> Progress {
        let bar = match jobs {
            Some(jobs) => ProgressBar::new(jobs),
            None => ProgressBar::no_length(),
        };
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let template = if jobs.is_some() {
            "{wide_bar} {pos}/{len} requests, {msg}, {eta} left"
        } else {
            "{spinner} {pos} requests, {msg}, {elapsed}"
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Progress { bar, iterations: 0 }
    }

    /// Notes an iteration.
    pub fn tick(&mut self, ended: u64, now_ns: u64) {
        self.iterations += 1;
        if self.iterations.is_multiple_of(STRIDE) && !self.bar.is_hidden() {
            self.bar.set_position(ended);
            let simulated = Duration::from_secs(now_ns / 1_000_000_000);
            self.bar.set_message(format!("{} s simulated", simulated.as_secs()));
        }
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

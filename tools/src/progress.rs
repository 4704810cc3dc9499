//! The progress line on stderr; silent when stderr is not a terminal.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Iterations between two looks at the clock.
const STRIDE: u64 = 4096;

/// Starts a line that says how far a run has come, for a batch that runs it.
pub const LINE: &str = "progress: ";
/// Between two such lines.
const LINE_EVERY: Duration = Duration::from_millis(250);

/// Whether runs of this process say lines.
static LINES: AtomicBool = AtomicBool::new(false);

/// From now on, a run says lines that start with [`LINE`] to stderr.
pub fn report_lines() {
    LINES.store(true, Ordering::Relaxed);
}

/// Shows how far a run has come.
pub struct Progress {
    bar: ProgressBar,
    iterations: u64,
    jobs: Option<u64>,
    last_line: Option<Instant>,
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
        let last_line = LINES.load(Ordering::Relaxed).then(Instant::now);
        Progress { bar, iterations: 0, jobs, last_line }
    }

    /// Notes an iteration.
    pub fn tick(&mut self, ended: u64, now_ns: u64) {
        self.iterations += 1;
        if !self.iterations.is_multiple_of(STRIDE) {
            return;
        }
        if let Some(last) = self.last_line.filter(|last| last.elapsed() >= LINE_EVERY) {
            self.last_line = Some(last + last.elapsed());
            let of = self.jobs.map_or_else(String::new, |jobs| format!("/{jobs}"));
            let simulated_s = now_ns / 1_000_000_000;
            let _ = writeln!(std::io::stderr().lock(), "{LINE}{ended}{of} requests, {simulated_s} s simulated");
        }
        if !self.bar.is_hidden() {
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

//! What a person sees of a running batch: a line for each running case and one for all, or plain lines where stderr is no
//! terminal.

use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::note;

/// Shows a batch on stderr.
pub struct Display {
    lines: MultiProgress,
    total: ProgressBar,
    cases: usize,
}

/// The line of a running case.
pub struct Line {
    bar: ProgressBar,
}

impl Display {
    /// A display of a batch of so many cases, of which `done` are done.
    pub fn new(cases: usize, done: usize) -> Display {
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        let total = lines.add(ProgressBar::new(cases as u64));
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} cases, {elapsed}, {eta} left{msg}") {
            total.set_style(style);
        }
        // The estimate counts what this run does, not what an earlier one has done.
        total.set_position(done as u64);
        total.reset_eta();
        total.enable_steady_tick(Duration::from_millis(250));
        Display { lines, total, cases }
    }

    /// Whether anybody sees the lines.
    pub fn is_shown(&self) -> bool {
        !self.lines.is_hidden()
    }

    /// A case starts.
    pub fn start(&self, name: &str) -> Line {
        let bar = self.lines.insert_before(&self.total, ProgressBar::new(0));
        if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix} {elapsed} {wide_msg}") {
            bar.set_style(style);
        }
        bar.set_prefix(name.to_owned());
        if self.is_shown() {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        Line { bar }
    }

    /// A case has ended. `failures` counts those that failed until now.
    pub fn end(&self, name: &str, reason: Option<&str>, failures: usize) {
        self.total.inc(1);
        if failures > 0 {
            self.total.set_message(format!(", {failures} failed"));
        }
        let text = match reason {
            None => format!("done {name}"),
            Some(reason) => format!("failed {name}: {}", reason.replace('\n', "\\n")),
        };
        if !self.is_shown() {
            note(&format!("[{}/{}] {text}", self.total.position(), self.cases));
        } else if reason.is_some() {
            // What went well needs no line of its own where the total is seen.
            let _ = self.lines.println(text);
        }
    }

    /// Removes all lines.
    pub fn finish(&self) {
        self.total.finish_and_clear();
        let _ = self.lines.clear();
    }
}

impl Line {
    /// Shows what a run says of itself.
    pub fn tell(&self, text: &str) {
        self.bar.set_message(text.to_owned());
    }

    /// Removes the line.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

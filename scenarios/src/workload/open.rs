//! The open loop: requests enter by their timestamps, whatever has become of the ones before.

use servesim_engine::content::Contents;

use super::turn::Turn;
use super::{InputError, Job, Workload};

/// A request with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedTurn {
    /// When it is due, in simulated nanoseconds.
    pub due_ns: u64,
    /// The turn.
    pub turn: Turn,
}

/// Requests in the order of their times.
pub trait OpenSource {
    /// The next request; none at the end, and then nothing is held any more. Times do not go back.
    ///
    /// # Errors
    /// A row of the trace that cannot be used.
    fn next_timed(&mut self, contents: &mut Contents) -> Result<Option<TimedTurn>, InputError>;

    /// Releases all content that the source still holds.
    fn close(&mut self, contents: &mut Contents);

    /// How many requests there are in all, where known.
    fn jobs_total(&self) -> Option<u64> {
        None
    }

    /// Rows skipped so far.
    fn skipped_rows(&self) -> u64 {
        0
    }
}

/// How much faster than written a trace is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speedup(f64);

impl Speedup {
    /// A factor; 2 halves all times. Anything but a finite number above 0 counts as 1.
    pub fn new(factor: f64) -> Speedup {
        Speedup(if factor.is_finite() && factor > 0.0 { factor } else { 1.0 })
    }

    /// The simulated time of a written one, in nanoseconds, rounded to the nearest.
    pub fn scale_ns(self, time_ns: u64) -> u64 {
        // The common case must stay exact: a double holds only 53 bits.
        if self.0 == 1.0 { time_ns } else { (time_ns as f64 / self.0).round() as u64 }
    }
}

/// An open loop; one request is read ahead.
#[derive(Debug)]
pub struct OpenLoop<S> {
    source: S,
    next: Option<TimedTurn>,
    finished: bool,
    limit: Option<u64>,
    submitted: u64,
}

impl<S: OpenSource> OpenLoop<S> {
    /// A loop that submits at most `limit` jobs.
    pub fn new(source: S, limit: Option<u64>) -> OpenLoop<S> {
        OpenLoop { source, next: None, finished: false, limit, submitted: 0 }
    }

    fn look_ahead(&mut self, contents: &mut Contents) -> Result<Option<TimedTurn>, InputError> {
        if self.next.is_none() && !self.finished {
            if self.limit.is_some_and(|limit| self.submitted >= limit) {
                self.source.close(contents);
            } else {
                self.next = self.source.next_timed(contents)?;
            }
            self.finished = self.next.is_none();
        }
        Ok(self.next)
    }
}

impl<S: OpenSource> Workload for OpenLoop<S> {
    fn take_due(&mut self, now_ns: u64, contents: &mut Contents, jobs: &mut Vec<Job>) -> Result<(), InputError> {
        while let Some(next) = self.look_ahead(contents)?.filter(|next| next.due_ns <= now_ns) {
            self.next = None;
            jobs.push(next.turn.job(self.submitted, self.submitted, next.due_ns));
            self.submitted += 1;
        }
        Ok(())
    }

    fn next_due_ns(&mut self, contents: &mut Contents) -> Result<Option<u64>, InputError> {
        Ok(self.look_ahead(contents)?.map(|next| next.due_ns))
    }

    fn ended(&mut self, _tag: u64, _now_ns: u64, _contents: &mut Contents) {}

    fn jobs_total(&self) -> Option<u64> {
        let total = self.source.jobs_total()?;
        Some(self.limit.map_or(total, |limit| limit.min(total)))
    }

    fn skipped_rows(&self) -> u64 {
        self.source.skipped_rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speedup_divides_times_and_one_is_exact() {
        let time_ns = 3_999_999_999_999_999_999;
        assert_eq!(Speedup::new(1.0).scale_ns(time_ns), time_ns);
        assert_eq!(Speedup::new(2.0).scale_ns(1_000_000_001), 500_000_001);
        assert_eq!(Speedup::new(f64::NAN).scale_ns(7), 7);
    }
}

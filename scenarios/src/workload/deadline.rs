//! An end to submissions: what is due later is never sent.

use servesim_engine::content::Contents;

use super::{InputError, Job, Workload};

/// A workload that submits nothing that is due after a time. What was sent before is played to its end.
pub struct Deadline<W> {
    workload: W,
    last_ns: u64,
}

impl<W: Workload> Deadline<W> {
    /// The last submissions of `workload` are due at `last_ns`, in simulated nanoseconds.
    pub fn new(workload: W, last_ns: u64) -> Deadline<W> {
        Deadline { workload, last_ns }
    }
}

impl<W: Workload> Workload for Deadline<W> {
    fn take_due(&mut self, now_ns: u64, contents: &mut Contents, jobs: &mut Vec<Job>) -> Result<(), InputError> {
        // A job may be due before the end and be taken after it, when a pass was under way.
        self.workload.take_due(now_ns.min(self.last_ns), contents, jobs)
    }

    fn next_due_ns(&mut self, contents: &mut Contents) -> Result<Option<u64>, InputError> {
        Ok(self.workload.next_due_ns(contents)?.filter(|&due_ns| due_ns <= self.last_ns))
    }

    fn ended(&mut self, tag: u64, now_ns: u64, contents: &mut Contents) {
        // What follows on a job that ends later is never due in time.
        if now_ns <= self.last_ns {
            self.workload.ended(tag, now_ns, contents);
        }
    }

    fn jobs_total(&self) -> Option<u64> {
        None
    }

    fn skipped_rows(&self) -> u64 {
        self.workload.skipped_rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::Span;
    use crate::generate::arrivals::{Arrivals, AtRate, Gaps, Spacing};
    use crate::generate::random::RandomLengths;
    use crate::workload::lanes::{InTurn, Lanes};
    use crate::workload::open::OpenLoop;

    const SECOND_NS: u64 = 1_000_000_000;

    fn lengths() -> RandomLengths {
        RandomLengths { seed: 1, requests: 100, input_tokens: Span::new(5, 5), output_tokens: Span::new(2, 2) }
    }

    #[test]
    fn what_is_due_at_the_end_is_sent_and_nothing_after() {
        let open = OpenLoop::new(AtRate::new(Arrivals::new(lengths()), Gaps::new(1.0, Spacing::Constant, 0)), None);
        let mut workload = Deadline::new(open, 3 * SECOND_NS);
        let (mut contents, mut jobs) = (Contents::default(), Vec::new());
        assert_eq!(workload.next_due_ns(&mut contents), Ok(Some(0)));
        // The worker comes back late: what was due in time is sent all the same.
        workload.take_due(50 * SECOND_NS, &mut contents, &mut jobs).expect("bounded");
        assert_eq!(jobs.iter().map(|job| job.due_ns / SECOND_NS).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(workload.next_due_ns(&mut contents), Ok(None));
    }

    #[test]
    fn lanes_stop_when_their_requests_end_after_it() {
        let lanes = Lanes::new(InTurn(Arrivals::new(lengths())), 2, None);
        let mut workload = Deadline::new(lanes, SECOND_NS);
        let (mut contents, mut jobs) = (Contents::default(), Vec::new());
        workload.take_due(0, &mut contents, &mut jobs).expect("bounded");
        workload.ended(0, SECOND_NS / 2, &mut contents);
        workload.ended(1, SECOND_NS + 1, &mut contents);
        assert_eq!(workload.next_due_ns(&mut contents), Ok(Some(SECOND_NS / 2)));
        workload.take_due(2 * SECOND_NS, &mut contents, &mut jobs).expect("bounded");
        workload.ended(2, 2 * SECOND_NS, &mut contents);
        assert_eq!((jobs.len(), workload.next_due_ns(&mut contents)), (3, Ok(None)));
    }
}

//! The closed loop: lanes side by side, each asking for its next request when its previous one has ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::mem::take;

use servesim_engine::content::Contents;

use super::turn::Turn;
use super::{InputError, Job, Workload};

/// A turn that waits for its time. Sorted by time, then lane, then strand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiting {
    /// When it is due, in simulated nanoseconds.
    pub due_ns: u64,
    /// Its lane.
    pub lane: u32,
    /// Which of the lane's requests side by side it is; 0 where there is only one.
    pub strand: u32,
    /// The turn.
    pub turn: Turn,
}

/// What the lanes of a closed loop do.
pub trait LaneScript {
    /// Adds what lane `lane` waits for at the start of the run.
    ///
    /// # Errors
    /// A row of the trace that cannot be used.
    fn start(&mut self, lane: u32, contents: &mut Contents, waiting: &mut Vec<Waiting>) -> Result<(), InputError>;

    /// Adds what lane `lane` waits for now that its request of strand `strand` has ended at `now_ns`.
    ///
    /// # Errors
    /// A row of the trace that cannot be used.
    fn ended(
        &mut self,
        lane: u32,
        strand: u32,
        now_ns: u64,
        contents: &mut Contents,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), InputError>;

    /// Releases all content that the script still holds; nothing else is asked of it afterwards.
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

/// Requests of lanes that run one after the other.
pub trait LaneSource {
    /// The next request of a lane, with its delay after the lane's previous one ended (the first: after the start), in
    /// nanoseconds; none when the lane is done, and then nothing of it is held any more.
    ///
    /// # Errors
    /// A row of the trace that cannot be used.
    fn next_turn(&mut self, lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError>;

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

/// The script of lanes that run one request after the other.
#[derive(Debug)]
pub struct InTurn<S>(pub S);

impl<S: LaneSource> InTurn<S> {
    fn ask(
        &mut self,
        lane: u32,
        now_ns: u64,
        contents: &mut Contents,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), InputError> {
        if let Some((delay_ns, turn)) = self.0.next_turn(lane, contents)? {
            waiting.push(Waiting { due_ns: now_ns.saturating_add(delay_ns), lane, strand: 0, turn });
        }
        Ok(())
    }
}

impl<S: LaneSource> LaneScript for InTurn<S> {
    fn start(&mut self, lane: u32, contents: &mut Contents, waiting: &mut Vec<Waiting>) -> Result<(), InputError> {
        self.ask(lane, 0, contents, waiting)
    }

    fn ended(
        &mut self,
        lane: u32,
        _strand: u32,
        now_ns: u64,
        contents: &mut Contents,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), InputError> {
        self.ask(lane, now_ns, contents, waiting)
    }

    fn close(&mut self, contents: &mut Contents) {
        self.0.close(contents);
    }

    fn jobs_total(&self) -> Option<u64> {
        self.0.jobs_total()
    }

    fn skipped_rows(&self) -> u64 {
        self.0.skipped_rows()
    }
}

/// A closed loop over lanes.
#[derive(Debug)]
pub struct Lanes<S> {
    script: S,
    lanes: u32,
    started: bool,
    closed: bool,
    limit: Option<u64>,
    submitted: u64,
    /// Ends that the script has not been told of: time, lane, strand.
    ended: Vec<(u64, u32, u32)>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    running: BTreeMap<u64, (u32, u32)>,
    scratch: Vec<Waiting>,
}

impl<S: LaneScript> Lanes<S> {
    /// A loop over `lanes` lanes that submits at most `limit` jobs.
    pub fn new(script: S, lanes: u32, limit: Option<u64>) -> Lanes<S> {
        Lanes {
            script,
            lanes,
            started: false,
            closed: false,
            limit,
            submitted: 0,
            ended: Vec::new(),
            waiting: BinaryHeap::new(),
            running: BTreeMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Tells the script what has ended, by time and lane, and queues what it answers.
    fn settle(&mut self, contents: &mut Contents) -> Result<(), InputError> {
        if !self.started {
            self.started = true;
            for lane in 0..self.lanes {
                self.script.start(lane, contents, &mut self.scratch)?;
            }
        }
        self.ended.sort_unstable();
        for &(now_ns, lane, strand) in &self.ended {
            self.script.ended(lane, strand, now_ns, contents, &mut self.scratch)?;
        }
        self.ended.clear();
        self.waiting.extend(self.scratch.drain(..).map(Reverse));
        Ok(())
    }

    /// Moves what is due into `scratch`, in lane order.
    fn collect_due(&mut self, now_ns: u64) {
        while let Some(Reverse(next)) = self.waiting.peek() {
            if next.due_ns > now_ns {
                break;
            }
            self.scratch.push(*next);
            self.waiting.pop();
        }
        self.scratch.sort_unstable_by_key(|waiting| (waiting.lane, waiting.strand));
    }

    /// Once the limit is reached, lets go of everything that will not be submitted.
    fn close(&mut self, contents: &mut Contents) {
        self.closed = true;
        self.ended.clear();
        self.running.clear();
        for Reverse(waiting) in self.waiting.drain() {
            contents.release(waiting.turn.content);
        }
        self.script.close(contents);
    }
}

impl<S: LaneScript> Workload for Lanes<S> {
    fn take_due(&mut self, now_ns: u64, contents: &mut Contents, jobs: &mut Vec<Job>) -> Result<(), InputError> {
        if self.closed {
            return Ok(());
        }
        self.settle(contents)?;
        self.collect_due(now_ns);
        let mut due = take(&mut self.scratch);
        for waiting in due.drain(..) {
            if self.limit.is_some_and(|limit| self.submitted >= limit) {
                contents.release(waiting.turn.content);
                continue;
            }
            let tag = self.submitted;
            self.submitted += 1;
            self.running.insert(tag, (waiting.lane, waiting.strand));
            jobs.push(waiting.turn.job(tag, waiting.lane.into(), waiting.due_ns));
        }
        self.scratch = due;
        if self.limit.is_some_and(|limit| self.submitted >= limit) {
            self.close(contents);
        }
        Ok(())
    }

    fn next_due_ns(&mut self, contents: &mut Contents) -> Result<Option<u64>, InputError> {
        if self.closed {
            return Ok(None);
        }
        self.settle(contents)?;
        Ok(self.waiting.peek().map(|next| next.0.due_ns))
    }

    fn ended(&mut self, tag: u64, now_ns: u64, _contents: &mut Contents) {
        if let Some((lane, strand)) = self.running.remove(&tag) {
            self.ended.push((now_ns, lane, strand));
        }
    }

    fn jobs_total(&self) -> Option<u64> {
        let total = self.script.jobs_total()?;
        Some(self.limit.map_or(total, |limit| limit.min(total)))
    }

    fn skipped_rows(&self) -> u64 {
        self.script.skipped_rows()
    }
}

#[cfg(test)]
mod tests {
    use servesim_engine::content::{Namespace, Run};

    use super::*;

    /// Lanes of `left[lane]` requests; the delay of each is its lane number in milliseconds.
    struct Countdown(Vec<u32>);

    impl LaneSource for Countdown {
        fn next_turn(&mut self, lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError> {
            let left = &mut self.0[lane as usize];
            if *left == 0 {
                return Ok(None);
            }
            *left -= 1;
            let content = contents.create(Namespace::default());
            contents.append(content, Run { first: lane * 100, count: 3 }).expect("small");
            Ok(Some((u64::from(lane) * 1_000_000, Turn::new(content, 2, 1, lane.into(), *left))))
        }

        fn close(&mut self, _contents: &mut Contents) {}

        fn jobs_total(&self) -> Option<u64> {
            Some(self.0.iter().map(|left| u64::from(*left)).sum())
        }
    }

    fn due(lanes: &mut impl Workload, now_ms: u64, contents: &mut Contents) -> Vec<(u64, u64, u64)> {
        let mut jobs = Vec::new();
        lanes.take_due(now_ms * 1_000_000, contents, &mut jobs).expect("no rows to be wrong");
        jobs.iter().map(|job| (job.request.tag, job.order, job.due_ns / 1_000_000)).collect()
    }

    #[test]
    fn jobs_come_in_lane_order_at_their_delay_after_the_end_before() {
        let mut contents = Contents::default();
        let mut lanes = Lanes::new(InTurn(Countdown(vec![2, 1, 2])), 3, None);
        assert_eq!(lanes.jobs_total(), Some(5));
        assert_eq!(due(&mut lanes, 0, &mut contents), [(0, 0, 0)]);
        assert_eq!(lanes.next_due_ns(&mut contents), Ok(Some(1_000_000)));
        lanes.ended(0, 2_000_000, &mut contents);
        // All three are due now: lane 0 after its first, lanes 1 and 2 after their first delays.
        assert_eq!(due(&mut lanes, 2, &mut contents), [(1, 0, 2), (2, 1, 1), (3, 2, 2)]);
        assert_eq!(lanes.next_due_ns(&mut contents), Ok(None));
        lanes.ended(3, 7_000_000, &mut contents);
        lanes.ended(1, 7_000_000, &mut contents);
        assert_eq!(lanes.next_due_ns(&mut contents), Ok(Some(9_000_000)));
        assert_eq!(due(&mut lanes, 8, &mut contents), []);
        assert_eq!(due(&mut lanes, 9, &mut contents), [(4, 2, 9)]);
    }

    #[test]
    fn the_limit_ends_the_run_and_frees_what_waits() {
        let mut contents = Contents::default();
        let mut lanes = Lanes::new(InTurn(Countdown(vec![9, 9, 9])), 3, Some(2));
        let mut jobs = Vec::new();
        lanes.take_due(1_000_000, &mut contents, &mut jobs).expect("no rows to be wrong");
        assert_eq!(jobs.len(), 2);
        lanes.ended(0, 5_000_000, &mut contents);
        assert_eq!(lanes.next_due_ns(&mut contents), Ok(None));
        assert_eq!(due(&mut lanes, 50, &mut contents), []);
        assert_eq!(contents.streams(), 2);
    }
}

//! Follows a stream as a consumer does, and keeps what is wrong with it: gaps in the sequence, unknown parents, broken chains,
//! duplicate stores, unknown removals. Also how large the consumer's mirror was over time.

use serde::Serialize;

use super::batch::SentBatch;
use super::mirror::{Mirror, Problem};

/// How many problems are kept in full.
const KEPT: usize = 20;
/// How many sizes of the mirror are kept at most.
const SIZES: usize = 64;

/// How often each problem occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProblemCounts {
    /// Places where batches are missing.
    pub sequence_gaps: u64,
    /// Batches whose number is not above the last one's.
    pub sequence_repeats: u64,
    /// Stored events below a block that is not cached.
    pub unknown_parents: u64,
    /// Blocks whose hash is not that of their tokens.
    pub broken_chains: u64,
    /// Blocks stored while they are cached.
    pub duplicate_stores: u64,
    /// Blocks removed while they are not cached.
    pub unknown_removals: u64,
}

impl ProblemCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.sequence_gaps
            + self.sequence_repeats
            + self.unknown_parents
            + self.broken_chains
            + self.duplicate_stores
            + self.unknown_removals
    }
}

/// A problem and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// The number of the batch.
    pub sequence: u64,
    /// The event in it, from 0; none if it is the batch.
    pub event: Option<u64>,
    /// What is wrong.
    pub problem: String,
}

/// The size of the mirror after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MirrorSize {
    /// The batch's time in nanoseconds.
    pub time_ns: u64,
    /// Blocks cached.
    pub blocks: u64,
}

/// What a check came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Batches read.
    pub batches: u64,
    /// Events in them.
    pub events: u64,
    /// How often each problem occurred.
    pub problems: ProblemCounts,
    /// The first problems.
    pub first_problems: Vec<Found>,
    /// Blocks whose hash was compared with their token ids.
    pub verified_blocks: u64,
    /// The most blocks that were cached after a batch.
    pub peak_blocks: u64,
    /// Blocks cached at the end.
    pub last_blocks: u64,
    /// Sizes of the mirror at even distances in batches, at most 64, and the last one.
    pub mirror: Vec<MirrorSize>,
}

/// A consumer that looks for problems.
#[derive(Clone, Debug, Default)]
pub struct Check {
    mirror: Mirror,
    next_sequence: Option<u64>,
    batches: u64,
    events: u64,
    problems: ProblemCounts,
    first_problems: Vec<Found>,
    peak_blocks: u64,
    sizes: Sizes,
}

impl Check {
    /// Follows a batch.
    pub fn add(&mut self, sent: &SentBatch) {
        self.check_sequence(sent.sequence);
        self.batches += 1;
        for (index, event) in sent.batch.events.iter().enumerate() {
            self.events += 1;
            let (problems, first_problems) = (&mut self.problems, &mut self.first_problems);
            self.mirror.apply(event, |problem| {
                let text = count(problems, problem);
                keep(first_problems, sent.sequence, Some(index as u64), text);
            });
        }
        self.peak_blocks = self.peak_blocks.max(self.mirror.len());
        self.sizes.add(MirrorSize { time_ns: sent.batch.ts_ns, blocks: self.mirror.len() });
    }

    fn check_sequence(&mut self, sequence: u64) {
        match self.next_sequence {
            Some(expected) if sequence > expected => {
                self.problems.sequence_gaps += 1;
                let text = || format!("sequence gap: {} batches from {expected} on are missing", sequence - expected);
                keep(&mut self.first_problems, sequence, None, text);
            }
            Some(expected) if sequence < expected => {
                self.problems.sequence_repeats += 1;
                let text = || format!("sequence: found {sequence}, expected {expected}");
                keep(&mut self.first_problems, sequence, None, text);
            }
            _ => {}
        }
        self.next_sequence = Some(sequence.saturating_add(1));
    }

    /// The blocks that a consumer now holds.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// What it came to.
    pub fn report(&self) -> CheckReport {
        CheckReport {
            batches: self.batches,
            events: self.events,
            problems: self.problems,
            first_problems: self.first_problems.clone(),
            verified_blocks: self.mirror.verified_blocks(),
            peak_blocks: self.peak_blocks,
            last_blocks: self.mirror.len(),
            mirror: self.sizes.points(),
        }
    }
}

fn keep(first_problems: &mut Vec<Found>, sequence: u64, event: Option<u64>, problem: impl FnOnce() -> String) {
    if first_problems.len() < KEPT {
        first_problems.push(Found { sequence, event, problem: problem() });
    }
}

/// Counts a problem, and says how to put it in words.
fn count(counts: &mut ProblemCounts, problem: Problem) -> impl FnOnce() -> String {
    match problem {
        Problem::UnknownParent { .. } => counts.unknown_parents += 1,
        Problem::BrokenChain { .. } => counts.broken_chains += 1,
        Problem::DuplicateStore { .. } => counts.duplicate_stores += 1,
        Problem::UnknownRemoval { .. } => counts.unknown_removals += 1,
    }
    move || match problem {
        Problem::UnknownParent { hash } => format!("unknown parent: block {hash} is not cached"),
        Problem::BrokenChain { hash, computed } => {
            format!("broken chain: block {hash} has tokens whose hash is {computed}")
        }
        Problem::DuplicateStore { hash } => format!("duplicate store: block {hash} is cached already"),
        Problem::UnknownRemoval { hash } => format!("unknown removal: block {hash} is not cached"),
    }
}

/// Sizes at even distances: when there are too many, every second one goes.
#[derive(Clone, Debug, Default)]
struct Sizes {
    points: Vec<MirrorSize>,
    seen: u64,
    /// Every `2^distance`-th size is kept.
    distance: u32,
    last: Option<MirrorSize>,
}

impl Sizes {
    fn add(&mut self, size: MirrorSize) {
        self.last = Some(size);
        if self.seen.is_multiple_of(1 << self.distance) {
            if self.points.len() == SIZES {
                let mut index = 0;
                self.points.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.distance += 1;
            }
            if self.seen.is_multiple_of(1 << self.distance) {
                self.points.push(size);
            }
        }
        self.seen += 1;
    }

    fn points(&self) -> Vec<MirrorSize> {
        let mut points = self.points.clone();
        if let Some(last) = self.last
            && points.last() != Some(&last)
        {
            points.push(last);
        }
        points
    }
}

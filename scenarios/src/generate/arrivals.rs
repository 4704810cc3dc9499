//! Plays requests that a generator makes by number: in lanes, each taking the next number, or at a rate.

use servesim_engine::content::{Contents, Run};

use super::sample::Sampler;
use crate::workload::InputError;
use crate::workload::lanes::LaneSource;
use crate::workload::open::{OpenSource, TimedTurn};
use crate::workload::turn::{Place, Turn, create};

/// A request as a generator makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// What it shares with others; may be empty.
    pub shared: Run,
    /// The rest of its prompt; may be empty if `shared` is not.
    pub own: Run,
    /// What the model says.
    pub output: Run,
    /// Its session.
    pub session: u64,
    /// Turn in its session.
    pub turn: u32,
    /// Whether it is the session's last one.
    pub ends_session: bool,
}

/// A generator of requests that depend on nothing but their number.
pub trait Numbered {
    /// How many requests there are.
    fn requests(&self) -> u64;

    /// Request `index`, counted from 0.
    fn make(&self, index: u64) -> Made;
}

/// How requests follow each other in an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// With exponential gaps: a Poisson process.
    #[default]
    Poisson,
    /// With equal gaps.
    Constant,
}

/// The stream of draws for gaps; requests draw from the streams with their number.
const GAP_STREAM: u64 = u64::MAX;

/// When requests at a rate are due, one after another.
#[derive(Debug)]
pub struct Gaps {
    spacing: Spacing,
    mean_ns: f64,
    sampler: Sampler,
    index: u64,
    due_ns: f64,
}

impl Gaps {
    /// Requests at `rate_per_s`, which is finite and above 0. The first comes at time 0 with equal gaps, and after one gap
    /// otherwise.
    pub fn new(rate_per_s: f64, spacing: Spacing, seed: u64) -> Gaps {
        let sampler = Sampler::new(seed, GAP_STREAM);
        Gaps { spacing, mean_ns: 1e9 / rate_per_s, sampler, index: 0, due_ns: 0.0 }
    }

    /// When the next one is due, in simulated nanoseconds.
    fn next_due_ns(&mut self) -> u64 {
        match self.spacing {
            // Multiplying, not adding up, keeps the error of a long run below a nanosecond's rounding.
            Spacing::Constant => self.due_ns = self.index as f64 * self.mean_ns,
            Spacing::Poisson => self.due_ns += self.sampler.exponential(self.mean_ns),
        }
        self.index += 1;
        self.due_ns.round() as u64
    }
}

/// Plays a source in order at a rate, whatever times it has of its own.
#[derive(Debug)]
pub struct AtRate<S> {
    source: S,
    gaps: Gaps,
}

impl<S: LaneSource> AtRate<S> {
    /// The requests of `source`, as of one lane, with these gaps.
    pub fn new(source: S, gaps: Gaps) -> AtRate<S> {
        AtRate { source, gaps }
    }
}

impl<S: LaneSource> OpenSource for AtRate<S> {
    fn next_timed(&mut self, contents: &mut Contents) -> Result<Option<TimedTurn>, InputError> {
        let next = self.source.next_turn(0, contents)?;
        Ok(next.map(|(_, turn)| TimedTurn { due_ns: self.gaps.next_due_ns(), turn }))
    }

    fn close(&mut self, contents: &mut Contents) {
        self.source.close(contents);
    }

    fn jobs_total(&self) -> Option<u64> {
        self.source.jobs_total()
    }

    fn skipped_rows(&self) -> u64 {
        self.source.skipped_rows()
    }
}

/// Requests of a generator, in order.
#[derive(Debug)]
pub struct Arrivals<G> {
    generator: G,
    next: u64,
}

impl<G: Numbered> Arrivals<G> {
    /// All requests of `generator`.
    pub fn new(generator: G) -> Arrivals<G> {
        Arrivals { generator, next: 0 }
    }
}

impl<G: Numbered> LaneSource for Arrivals<G> {
    fn next_turn(&mut self, _lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError> {
        if self.next == self.generator.requests() {
            return Ok(None);
        }
        let made = self.generator.make(self.next);
        self.next += 1;
        let content = create(contents, [made.shared, made.own, made.output], || Place::new("generator", 0))?;
        let prompt_tokens = made.shared.count + made.own.count;
        let turn = Turn::new(content, prompt_tokens, made.output.count, made.session, made.turn);
        Ok(Some((0, turn.ending_session(made.ends_session))))
    }

    fn close(&mut self, _contents: &mut Contents) {}

    fn jobs_total(&self) -> Option<u64> {
        Some(self.generator.requests())
    }
}

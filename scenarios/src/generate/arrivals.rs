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

/// Requests of a generator, in order.
#[derive(Debug)]
pub struct Arrivals<G> {
    generator: G,
    next: u64,
    spacing: Spacing,
    mean_gap_ns: f64,
    gaps: Sampler,
    due_ns: f64,
}

impl<G: Numbered> Arrivals<G> {
    /// Requests for lanes.
    pub fn in_lanes(generator: G) -> Arrivals<G> {
        Arrivals::at_rate(generator, 1.0, Spacing::Constant, 0)
    }

    /// Requests at `rate_per_s`, which is finite and above 0. The first comes at time 0 with equal gaps, and after one gap
    /// otherwise.
    pub fn at_rate(generator: G, rate_per_s: f64, spacing: Spacing, seed: u64) -> Arrivals<G> {
        let gaps = Sampler::new(seed, GAP_STREAM);
        Arrivals { generator, next: 0, spacing, mean_gap_ns: 1e9 / rate_per_s, gaps, due_ns: 0.0 }
    }

    fn next_made(&mut self, contents: &mut Contents) -> Result<Option<Turn>, InputError> {
        if self.next == self.generator.requests() {
            return Ok(None);
        }
        let made = self.generator.make(self.next);
        self.next += 1;
        let content = create(contents, [made.shared, made.own, made.output], || Place::new("generator", 0))?;
        let prompt_tokens = made.shared.count + made.own.count;
        Ok(Some(Turn::new(content, prompt_tokens, made.output.count, made.session, made.turn)))
    }
}

impl<G: Numbered> LaneSource for Arrivals<G> {
    fn next_turn(&mut self, _lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError> {
        Ok(self.next_made(contents)?.map(|turn| (0, turn)))
    }

    fn close(&mut self, _contents: &mut Contents) {}

    fn jobs_total(&self) -> Option<u64> {
        Some(self.generator.requests())
    }
}

impl<G: Numbered> OpenSource for Arrivals<G> {
    fn next_timed(&mut self, contents: &mut Contents) -> Result<Option<TimedTurn>, InputError> {
        let index = self.next;
        let Some(turn) = self.next_made(contents)? else { return Ok(None) };
        match self.spacing {
            // Multiplying, not adding up, keeps the error of a long run below a nanosecond's rounding.
            Spacing::Constant => self.due_ns = index as f64 * self.mean_gap_ns,
            Spacing::Poisson => self.due_ns += self.gaps.exponential(self.mean_gap_ns),
        }
        Ok(Some(TimedTurn { due_ns: self.due_ns.round() as u64, turn }))
    }

    fn close(&mut self, _contents: &mut Contents) {}

    fn jobs_total(&self) -> Option<u64> {
        Some(self.generator.requests())
    }
}

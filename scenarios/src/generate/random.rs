//! Requests of random lengths whose content nothing else has.

use servesim_engine::content::Run;

use super::Span;
use super::arrivals::{Made, Numbered};
use super::sample::Sampler;

/// The settings of the generator. Each request draws its lengths from the stream with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomLengths {
    /// Seeds all draws.
    pub seed: u64,
    /// How many requests.
    pub requests: u64,
    /// Prompt lengths in tokens, all equally likely; at least 1.
    pub input_tokens: Span,
    /// Output lengths in tokens, all equally likely; at least 1. The longest prompt and output together are at most 2^31.
    pub output_tokens: Span,
}

impl Numbered for RandomLengths {
    fn requests(&self) -> u64 {
        self.requests
    }

    /// Request `index` has the ids of a slot that is as long as the longest request; slots start again when they have
    /// filled 2^32 ids.
    fn make(&self, index: u64) -> Made {
        let mut sampler = Sampler::new(self.seed, index);
        let input = sampler.uniform(self.input_tokens);
        let output = sampler.uniform(self.output_tokens);
        let slot = u64::from(self.input_tokens.high) + u64::from(self.output_tokens.high);
        let first = (index % ((1 << 32) / slot).max(1) * slot) as u32;
        Made {
            shared: Run { first: 0, count: 0 },
            own: Run { first, count: input },
            output: Run { first: first + input, count: output },
            session: index,
            turn: 0,
            ends_session: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use servesim_engine::content::Contents;

    use super::*;
    use crate::generate::arrivals::{Arrivals, AtRate, Gaps, Spacing};
    use crate::workload::Workload;
    use crate::workload::open::OpenLoop;

    const CONFIG: RandomLengths =
        RandomLengths { seed: 5, requests: 2000, input_tokens: Span::new(10, 90), output_tokens: Span::new(1, 20) };

    fn times(spacing: Spacing, limit: Option<u64>) -> Vec<u64> {
        let mut contents = Contents::default();
        let mut open = OpenLoop::new(AtRate::new(Arrivals::new(CONFIG), Gaps::new(4.0, spacing, 5)), limit);
        let mut jobs = Vec::new();
        while let Some(due_ns) = open.next_due_ns(&mut contents).expect("bounded") {
            open.take_due(due_ns, &mut contents, &mut jobs).expect("bounded");
        }
        jobs.iter().map(|job| job.due_ns).collect()
    }

    #[test]
    fn lengths_lie_in_their_ranges_and_content_is_distinct() {
        let made: Vec<Made> = (0..2000).map(|index| CONFIG.make(index)).collect();
        assert!(made.iter().all(|made| (10..=90).contains(&made.own.count) && (1..=20).contains(&made.output.count)));
        assert!(made.windows(2).all(|pair| pair[0].output.first + pair[0].output.count <= pair[1].own.first));
        assert_eq!(CONFIG.make(77), made[77]);
        assert_ne!(made[3].own.count, made[4].own.count);
    }

    #[test]
    fn a_constant_rate_has_equal_gaps_and_a_poisson_rate_the_same_mean() {
        assert_eq!(times(Spacing::Constant, Some(3)), [0, 250_000_000, 500_000_000]);
        let poisson = times(Spacing::Poisson, None);
        assert_eq!(poisson.len(), 2000);
        assert_eq!(poisson, times(Spacing::Poisson, None));
        let mean_s = poisson[1999] as f64 / 2000e9;
        assert!((0.23..0.27).contains(&mean_s), "{mean_s}");
    }
}

//! Tokens by second of simulated time: the best second of a run.

use servesim_engine::record::ClockRun;

const SECOND_NS: u64 = 1_000_000_000;

/// Tokens of the second under way, and of the best one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seconds {
    second: u64,
    tokens: u64,
    most: u64,
}

impl Seconds {
    /// Tokens that came at `now_ns`; times do not go back.
    pub fn add(&mut self, tokens: u64, now_ns: u64) {
        let second = now_ns / SECOND_NS;
        if second != self.second {
            self.most = self.most.max(self.tokens);
            (self.second, self.tokens) = (second, 0);
        }
        self.tokens += tokens;
    }

    /// `rows` tokens from each pass of a stride that started at `started_ns`. Costs what the seconds are, not the passes.
    pub fn strode(&mut self, rows: u64, runs: &[ClockRun], started_ns: u64) {
        let mut now_ns = started_ns;
        for run in runs {
            let mut left = run.passes;
            while left > 0 {
                let next_ns = now_ns + run.moved_ns;
                let end_ns = (next_ns / SECOND_NS + 1) * SECOND_NS;
                let fit = (end_ns - 1 - now_ns).checked_div(run.moved_ns).unwrap_or(left);
                let passes = fit.clamp(1, left);
                self.add(passes * rows, next_ns);
                now_ns += passes * run.moved_ns;
                left -= passes;
            }
        }
    }

    /// The most tokens of a second so far.
    pub fn most(&self) -> u64 {
        self.most.max(self.tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_falls_into_the_seconds_of_its_passes() {
        for (moved_ns, passes, started_ns) in
            [(300_000_000, 20, 100), (SECOND_NS, 3, 0), (2_500_000_000, 4, 7), (0, 5, 9), (1, 1000, SECOND_NS - 500)]
        {
            let (mut single, mut stride) = (Seconds::default(), Seconds::default());
            for pass in 1..=passes {
                single.add(8, started_ns + pass * moved_ns);
            }
            stride.strode(8, &[ClockRun { moved_ns, passes }], started_ns);
            assert_eq!(single.most(), stride.most(), "{moved_ns}");
            assert_eq!((single.second, single.tokens), (stride.second, stride.tokens));
        }
        let mut seconds = Seconds::default();
        seconds.strode(2, &[ClockRun { moved_ns: 300_000_000, passes: 10 }], 0);
        // 3 passes at 0.3, 0.6, 0.9; 3 at 1.2, 1.5, 1.8; 3 from 2.1 on; 1 at 3.0.
        assert_eq!(seconds.most(), 6);
    }
}

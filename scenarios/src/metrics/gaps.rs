//! Gaps between the tokens of a request (ITL), counted by weight: no row is looked at while rows only decode.
//!
//! Every row of the running batch gets a token from each decode result, so all rows but a few got their last token at the
//! same time: the last decode result. The few are kept one by one: *fresh* ones, whose last token came out of a prefill since,
//! and those *away*, which were retracted and have not come back.

use std::collections::BTreeMap;

use servesim_engine::record::ClockRun;

use super::distribution::Distribution;

/// Who got the last token when.
#[derive(Clone, Debug, Default)]
pub struct TokenGaps {
    /// When the last decode result came, in simulated nanoseconds.
    decoded_ns: u64,
    /// Requests whose last token came out of a prefill after that.
    fresh: Vec<Fresh>,
    /// Last tokens of requests that were retracted.
    away: BTreeMap<u64, u64>,
    gaps: Distribution,
}

#[derive(Clone, Copy, Debug)]
struct Fresh {
    tag: u64,
    token_ns: u64,
}

impl TokenGaps {
    /// All gaps so far.
    pub fn gaps(&self) -> &Distribution {
        &self.gaps
    }

    /// A request that has had a token was retracted.
    pub fn retracted(&mut self, tag: u64) {
        let token_ns = match self.take_fresh(tag) {
            Some(fresh) => fresh.token_ns,
            None => self.decoded_ns,
        };
        // One that is retracted again before it got a token keeps its time.
        self.away.entry(tag).or_insert(token_ns);
    }

    /// `rows` rows got a token from a decode result at `now_ns`, those with a fresh token among them.
    pub fn decoded(&mut self, rows: u64, now_ns: u64) {
        if rows == 0 {
            return;
        }
        let in_step = rows.saturating_sub(self.fresh.len() as u64);
        if in_step > 0 {
            self.gaps.add_many(now_ns - self.decoded_ns, in_step);
        }
        for fresh in self.fresh.drain(..) {
            self.gaps.add(now_ns - fresh.token_ns);
        }
        self.decoded_ns = now_ns;
    }

    /// `rows` rows got a token from each pass of a stride that started at `started_ns`.
    pub fn strode(&mut self, rows: u64, runs: &[ClockRun], started_ns: u64) {
        let mut now_ns = started_ns;
        for (index, run) in runs.iter().enumerate() {
            let mut passes = run.passes;
            if index == 0 {
                self.decoded(rows, started_ns + run.moved_ns);
                passes -= 1;
            }
            self.gaps.add_many(run.moved_ns, passes * rows);
            now_ns += run.moved_ns * run.passes;
        }
        self.decoded_ns = now_ns;
    }

    /// A request got a token at the end of a prefill: its first, or the next one after a retraction.
    pub fn prefilled(&mut self, tag: u64, now_ns: u64) {
        if let Some(token_ns) = self.away.remove(&tag) {
            self.gaps.add(now_ns - token_ns);
        }
        self.fresh.push(Fresh { tag, token_ns: now_ns });
    }

    /// A request has ended in whatever way.
    pub fn ended(&mut self, tag: u64) {
        self.take_fresh(tag);
        if !self.away.is_empty() {
            self.away.remove(&tag);
        }
    }

    fn take_fresh(&mut self, tag: u64) -> Option<Fresh> {
        let at = self.fresh.iter().position(|fresh| fresh.tag == tag)?;
        Some(self.fresh.swap_remove(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn rows_in_step_are_counted_and_fresh_ones_have_gaps_of_their_own() {
        let mut gaps = TokenGaps::default();
        gaps.prefilled(1, 10 * MS);
        gaps.prefilled(2, 14 * MS);
        gaps.decoded(2, 15 * MS);
        // 5 and 1; then two of 3.
        gaps.decoded(2, 18 * MS);
        let stats = gaps.gaps().stats();
        assert_eq!((gaps.gaps().count(), gaps.gaps().sum_ns()), (4, u128::from(12 * MS)));
        assert_eq!((stats.median_ms, stats.max_ms), (3.0, 5.0));
    }

    #[test]
    fn a_retracted_request_has_one_long_gap() {
        let mut gaps = TokenGaps::default();
        gaps.prefilled(1, MS);
        gaps.prefilled(2, MS);
        gaps.decoded(2, 2 * MS);
        gaps.retracted(2);
        gaps.decoded(1, 3 * MS);
        gaps.prefilled(2, 9 * MS);
        // Gaps so far: 1, 1, 1 and 7; the next of request 1 is 7, of request 2 is 1.
        gaps.decoded(2, 10 * MS);
        assert_eq!((gaps.gaps().count(), gaps.gaps().sum_ns()), (6, u128::from(18 * MS)));
        assert_eq!(gaps.gaps().stats().max_ms, 7.0);
    }

    #[test]
    fn a_stride_is_its_single_passes() {
        let (mut single, mut stride) = (TokenGaps::default(), TokenGaps::default());
        for gaps in [&mut single, &mut stride] {
            gaps.prefilled(1, MS);
            gaps.decoded(1, 4 * MS);
            gaps.prefilled(2, 6 * MS);
        }
        for now_ms in [8, 10, 12, 15] {
            single.decoded(2, now_ms * MS);
        }
        let runs = [ClockRun { moved_ns: 2 * MS, passes: 3 }, ClockRun { moved_ns: 3 * MS, passes: 1 }];
        stride.strode(2, &runs, 6 * MS);
        for gaps in [&mut single, &mut stride] {
            gaps.decoded(2, 16 * MS);
        }
        assert_eq!(single.gaps().stats(), stride.gaps().stats());
        assert_eq!((single.gaps().count(), single.gaps().sum_ns()), (stride.gaps().count(), stride.gaps().sum_ns()));
    }
}

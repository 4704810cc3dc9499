//! Hands out token ids that nothing else has.

use servesim_engine::content::Run;

/// A running counter of token ids in a range. After the range's last id it starts again with the first, so content is
/// distinct as long as no more tokens are live or cached than the range holds.
#[derive(Clone, Copy, Debug)]
pub struct TokenIds {
    first: u64,
    end: u64,
    next: u64,
}

impl TokenIds {
    /// Ids from `first` to below `end`, which is at most 2^32 and above `first`.
    pub fn new(first: u64, end: u64) -> TokenIds {
        let end = end.min(1 << 32);
        let first = first.min(end - 1);
        TokenIds { first, end, next: first }
    }

    /// The part `index` of `parts` equal parts of the range, as a counter of its own.
    pub fn part(&self, index: u32, parts: u32) -> TokenIds {
        let size = (self.end - self.first) / u64::from(parts.max(1));
        let first = self.first + size * u64::from(index);
        TokenIds::new(first, first + size.max(1))
    }

    /// How many ids the range has.
    pub fn size(&self) -> u64 {
        self.end - self.first
    }

    /// The next `count` ids in a row; a run longer than the range is cut to it.
    pub fn take(&mut self, count: u32) -> Run {
        let count = u64::from(count).min(self.size());
        if self.next + count > self.end {
            self.next = self.first;
        }
        let run = Run { first: self.next as u32, count: count as u32 };
        self.next += count;
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_and_start_again_before_a_run_that_does_not_fit() {
        let mut ids = TokenIds::new((1 << 32) - 10, 1 << 32);
        let first = u32::MAX - 9;
        assert_eq!(ids.take(6), Run { first, count: 6 });
        assert_eq!(ids.take(4), Run { first: first + 6, count: 4 });
        assert_eq!(ids.take(3), Run { first, count: 3 });
        assert_eq!(ids.take(8), Run { first, count: 8 });
    }

    #[test]
    fn parts_do_not_overlap() {
        let whole = TokenIds::new(100, 1 << 32);
        let (mut low, mut high) = (whole.part(6, 7), whole.part(5, 7));
        assert_eq!(u64::from(high.take(1).first) + high.size(), u64::from(low.take(1).first));
        assert!(whole.part(6, 7).first + low.size() <= 1 << 32);
    }
}

//! Which ids have been seen, as intervals: cost follows runs, not ids.

use std::collections::BTreeMap;

/// A set of ids as disjoint intervals that do not touch.
#[derive(Debug, Default)]
pub struct Covered {
    /// End (exclusive) by start.
    intervals: BTreeMap<u64, u64>,
}

impl Covered {
    /// How many of the ids from `first` to `first + count` are in the set before the first that is not.
    pub fn leading(&self, first: u64, count: u64) -> u64 {
        match self.intervals.range(..=first).next_back() {
            Some((_, &end)) if end > first => (end - first).min(count),
            _ => 0,
        }
    }

    /// Adds the ids from `first` to `first + count`; returns how many of them are new.
    pub fn add(&mut self, first: u64, count: u64) -> u64 {
        let (mut start, mut end) = (first, first + count);
        if self.leading(first, count) == count {
            return 0;
        }
        let mut known = 0;
        // Every interval that overlaps or touches the new one is merged with it.
        while let Some((&from, &to)) = self.intervals.range(..=end).next_back() {
            if to < start {
                break;
            }
            known += to - from;
            self.intervals.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.intervals.insert(start, end);
        end - start - known
    }

    /// Forgets all ids.
    pub fn clear(&mut self) {
        self.intervals.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_equal_a_plain_set() {
        let (mut covered, mut plain) = (Covered::default(), std::collections::BTreeSet::new());
        let mut state = 1_u64;
        for _ in 0..500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (first, count) = ((state >> 33) % 300, (state >> 50) % 9 + 1);
            let leading = (first..first + count).take_while(|id| plain.contains(id)).count() as u64;
            assert_eq!(covered.leading(first, count), leading);
            let fresh = (first..first + count).filter(|id| plain.insert(*id)).count() as u64;
            assert_eq!(covered.add(first, count), fresh);
        }
        covered.clear();
        assert_eq!(covered.leading(0, 300), 0);
    }
}

//! The distribution of a time: mean and standard deviation exact, quantiles exact or to three digits, in bounded memory.

use hdrhistogram::Histogram;

/// Distinct values that are kept one by one. With more of them, a histogram of fixed relative precision takes over.
pub const EXACT_VALUES: usize = 4096;
/// Significant digits of that histogram: a quantile is off by less than 0.1 %.
pub const HISTOGRAM_DIGITS: u8 = 3;

/// Times in whole nanoseconds, each with a weight. The order in which they come changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    values: Values,
    /// The value that came last and how often it came, not yet among the values: many come in a row.
    last_ns: u64,
    last_count: u64,
    count: u64,
    sum_ns: u128,
    sum_of_squares: u128,
    max_ns: u64,
}

#[derive(Clone, Debug)]
enum Values {
    Exact(Counted),
    Rounded(Box<Histogram<u64>>),
}

/// Values with how often each came.
#[derive(Clone, Debug, Default)]
struct Counted {
    /// Each value once, in order.
    sorted: Vec<(u64, u64)>,
    /// What came since that was sorted.
    recent: Vec<(u64, u64)>,
}

impl Counted {
    fn sort(&mut self) {
        self.sorted.append(&mut self.recent);
        self.sorted.sort_unstable_by_key(|&(value_ns, _)| value_ns);
        self.sorted.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            kept.1 += if same { later.1 } else { 0 };
            same
        });
    }
}

impl Default for Values {
    fn default() -> Values {
        Values::Exact(Counted::default())
    }
}

impl Values {
    fn add(&mut self, value_ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        match self {
            Values::Exact(values) => {
                values.recent.push((value_ns, count));
                if values.recent.len() == EXACT_VALUES {
                    self.settle();
                }
            }
            Values::Rounded(histogram) => record(histogram, value_ns, count),
        }
    }

    /// Sorts what is exact, and rounds it if there are too many values. When that is done changes nothing in the end.
    fn settle(&mut self) {
        let Values::Exact(values) = self else { return };
        values.sort();
        if values.sorted.len() > EXACT_VALUES {
            self.round();
        }
    }

    fn round(&mut self) {
        let Values::Exact(values) = self else { return };
        // It grows with the largest value, so a time of nanoseconds or of days is no error.
        let Ok(mut histogram) = Histogram::new(HISTOGRAM_DIGITS) else { return };
        for &(value_ns, count) in &values.sorted {
            record(&mut histogram, value_ns, count);
        }
        *self = Values::Rounded(Box::new(histogram));
    }
}

fn record(histogram: &mut Histogram<u64>, value_ns: u64, count: u64) {
    histogram.record_n(value_ns, count).expect("a histogram that resizes takes any value");
}

impl Distribution {
    /// Adds a value.
    pub fn add(&mut self, value_ns: u64) {
        self.add_many(value_ns, 1);
    }

    /// Adds a value that came `count` times.
    pub fn add_many(&mut self, value_ns: u64, count: u64) {
        if value_ns == self.last_ns {
            self.last_count += count;
        } else {
            self.values.add(self.last_ns, self.last_count);
            (self.last_ns, self.last_count) = (value_ns, count);
        }
        let (value, weight) = (u128::from(value_ns), u128::from(count));
        self.count += count;
        self.sum_ns += value * weight;
        self.sum_of_squares = self.sum_of_squares.saturating_add((value * value).saturating_mul(weight));
        if count > 0 {
            self.max_ns = self.max_ns.max(value_ns);
        }
    }

    /// How many values there are, weights counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum in nanoseconds.
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// What they come to; all zero when there are none.
    pub fn stats(&self) -> Stats {
        if self.count == 0 {
            return Stats::default();
        }
        let mut values = self.values.clone();
        values.add(self.last_ns, self.last_count);
        values.settle();
        let [median, p90, p95, p99] =
            [50, 90, 95, 99].map(|percent| quantile_ns(&values, self.count, percent) / NS_PER_MS);
        Stats {
            mean_ms: self.sum_ns as f64 / self.count as f64 / NS_PER_MS,
            median_ms: median,
            std_ms: self.standard_deviation_ns() / NS_PER_MS,
            p90_ms: p90,
            p95_ms: p95,
            p99_ms: p99,
            max_ms: self.max_ns as f64 / NS_PER_MS,
        }
    }

    /// Of the whole population, as numpy's `std`. In whole numbers up to the last division, so that equal values have none.
    fn standard_deviation_ns(&self) -> f64 {
        let count = u128::from(self.count);
        let (mean, rest) = (self.sum_ns / count, self.sum_ns % count);
        // The sum of squared distances from the whole part of the mean.
        let around = self.sum_of_squares.saturating_add(mean.saturating_mul(mean).saturating_mul(count));
        let around = around.saturating_sub((2 * mean).saturating_mul(self.sum_ns)) as f64;
        let rest = rest as f64 / count as f64;
        (around / count as f64 - rest * rest).max(0.0).sqrt()
    }
}

const NS_PER_MS: f64 = 1e6;

/// numpy's default percentile: linear between the two values around rank `percent / 100 * (count - 1)`.
fn quantile_ns(values: &Values, count: u64, percent: u64) -> f64 {
    let scaled = u128::from(percent) * u128::from(count - 1);
    let (rank, part) = ((scaled / 100) as u64, (scaled % 100) as f64 / 100.0);
    let (low, high) = (value_at(values, rank), value_at(values, (rank + 1).min(count - 1)));
    low as f64 + (high as f64 - low as f64) * part
}

/// The value at a rank from 0, of settled values.
fn value_at(values: &Values, rank: u64) -> u64 {
    match values {
        Values::Exact(values) => {
            let mut before = 0;
            for &(value_ns, count) in &values.sorted {
                before += count;
                if rank < before {
                    return value_ns;
                }
            }
            0
        }
        Values::Rounded(histogram) => {
            let mut before = 0;
            for bucket in histogram.iter_recorded() {
                before += bucket.count_at_value();
                if rank < before {
                    return histogram.median_equivalent(bucket.value_iterated_to());
                }
            }
            0
        }
    }
}

/// What a distribution comes to, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// 50th percentile.
    pub median_ms: f64,
    /// Standard deviation of the population.
    pub std_ms: f64,
    /// 90th percentile.
    pub p90_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// The largest value.
    pub max_ms: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values_ms: &[u64]) -> Distribution {
        let mut distribution = Distribution::default();
        values_ms.iter().for_each(|value_ms| distribution.add(value_ms * 1_000_000));
        distribution
    }

    #[test]
    fn a_percentile_lies_between_its_two_neighbours_as_in_numpy() {
        // numpy.percentile([1, 2, 3, 4, 10], [50, 90, 95, 99]) = 3, 7.6, 8.8, 9.76; numpy.std = sqrt(10).
        let stats = of(&[4, 1, 10, 3, 2]).stats();
        let expected =
            [(stats.mean_ms, 4.0), (stats.median_ms, 3.0), (stats.std_ms, 10_f64.sqrt()), (stats.max_ms, 10.0)];
        let percentiles = [(stats.p90_ms, 7.6), (stats.p95_ms, 8.8), (stats.p99_ms, 9.76)];
        for (found, expected) in expected.into_iter().chain(percentiles) {
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
        assert_eq!(of(&[1, 2]).stats().median_ms, 1.5);
        assert_eq!(of(&[]).stats(), Stats::default());
    }

    #[test]
    fn a_weight_is_as_many_single_values_and_the_order_does_not_matter() {
        let mut weighted = Distribution::default();
        weighted.add_many(7_000_000, 3);
        weighted.add_many(2_000_000, 2);
        weighted.add_many(9_000_000, 0);
        assert_eq!(weighted.stats(), of(&[2, 7, 7, 2, 7]).stats());
        assert_eq!((weighted.count(), weighted.sum_ns()), (5, 25_000_000));
    }

    #[test]
    fn equal_values_have_no_deviation_however_many() {
        let mut distribution = Distribution::default();
        distribution.add_many(20_000_001, 1 << 40);
        let stats = distribution.stats();
        assert_eq!((stats.std_ms, stats.mean_ms, stats.p99_ms), (0.0, 20.000001, 20.000001));
    }

    #[test]
    fn many_distinct_values_are_kept_to_a_thousandth_in_any_order() {
        let count = 20_000_u64;
        let value = |index: u64| 1_000_000 + index * index * 1_000;
        let (mut up, mut down) = (Distribution::default(), Distribution::default());
        (0..count).for_each(|index| up.add(value(index)));
        (0..count).rev().for_each(|index| down.add(value(index)));
        let stats = up.stats();
        assert_eq!(stats, down.stats());
        for (found_ms, percent) in [(stats.median_ms, 50), (stats.p90_ms, 90), (stats.p99_ms, 99)] {
            let exact_ms = value((count - 1) * percent / 100) as f64 / 1e6;
            assert!((found_ms / exact_ms - 1.0).abs() < 1e-3, "{found_ms} against {exact_ms}");
        }
        let mean_ms = (0..count).map(value).sum::<u64>() as f64 / count as f64 / 1e6;
        assert!((stats.mean_ms / mean_ms - 1.0).abs() < 1e-12);
    }
}

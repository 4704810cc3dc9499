//! Sums a profile up as it goes, in memory that does not grow with the run.

use hdrhistogram::Histogram;
use servesim_engine::laps::{Reading, Spent, Stage};
use servesim_engine::work::Work;

use super::call::{Call, Kind, times, total};

/// Calls that are kept as the dearest.
pub const DEAREST: usize = 10;
/// Significant digits of percentiles: they are off by less than 1 %.
const DIGITS: u8 = 2;
/// Buckets of powers of two: 0, 1, 2 to 3, 4 to 7 and so on.
pub const BUCKETS: usize = 65;

/// The bucket of a number.
pub fn bucket_of(value: u64) -> usize {
    (u64::BITS - value.leading_zeros()) as usize
}

/// The least and the largest number of a bucket.
pub fn bounds(bucket: usize) -> (u64, u64) {
    match bucket {
        0 => (0, 0),
        _ => (1 << (bucket - 1), (u64::MAX >> (BUCKETS - 1 - bucket))),
    }
}

/// A bucket as it is shown.
pub fn bucket_label(bucket: usize) -> String {
    match bounds(bucket) {
        (least, largest) if least == largest => least.to_string(),
        (least, largest) => format!("{least}-{largest}"),
    }
}

/// The distribution of a time in nanoseconds.
pub struct Spread {
    histogram: Histogram<u32>,
    sum_ns: u64,
    count: u64,
    max_ns: u64,
}

impl Default for Spread {
    fn default() -> Spread {
        let histogram = Histogram::new_with_bounds(1, 1 << 24, DIGITS).expect("bounds and digits are in range");
        let mut spread = Spread { histogram, sum_ns: 0, count: 0, max_ns: 0 };
        spread.histogram.auto(true);
        spread
    }
}

impl Spread {
    /// Adds a time that came `count` times.
    pub fn add(&mut self, ns: u64, count: u64) {
        // A host time too large for the histogram would be one of years: it is left at the largest that fits.
        let _ = self.histogram.record_n(ns, count.min(u64::from(u32::MAX)) as u32);
        self.sum_ns += ns * count;
        self.count += count;
        self.max_ns = self.max_ns.max(ns);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The mean; 0 when there is none.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 }
    }

    /// A percentile; 0 when there is none.
    pub fn percentile_ns(&self, percent: f64) -> u64 {
        self.histogram.value_at_percentile(percent).min(self.max_ns)
    }

    /// The largest.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

/// Calls that have something in common.
#[derive(Default)]
pub struct Group {
    /// Calls.
    pub calls: u64,
    /// Passes.
    pub passes: u64,
    /// Nanoseconds a pass.
    pub spread: Spread,
    /// Nanoseconds by system.
    pub systems_ns: [u64; Stage::COUNT],
}

impl Group {
    fn add(&mut self, call: &Call, systems: &[Reading; Stage::COUNT]) {
        self.calls += 1;
        self.passes += call.shape.passes;
        self.spread.add(call.ns_per_pass(), call.shape.passes);
        for (sum, system) in self.systems_ns.iter_mut().zip(systems) {
            *sum += system.host_ns;
        }
    }
}

/// Calls by the power of two that a size of theirs lies below.
#[derive(Default)]
pub struct Buckets(Vec<Option<Group>>);

impl Buckets {
    fn add(&mut self, size: u64, call: &Call, systems: &[Reading; Stage::COUNT]) {
        let bucket = bucket_of(size);
        if self.0.len() <= bucket {
            self.0.resize_with(bucket + 1, || None);
        }
        self.0[bucket].get_or_insert_default().add(call, systems);
    }

    /// The buckets that hold something, by number.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &Group)> {
        self.0.iter().enumerate().filter_map(|(bucket, group)| Some((bucket, group.as_ref()?)))
    }
}

/// The dearest calls by some nanoseconds, the dearest first; of equal ones the earlier.
#[derive(Default)]
pub struct Dearest<N>(Vec<(N, Call)>);

impl<N: PartialOrd + Copy> Dearest<N> {
    /// Whether a call of so many nanoseconds would be among them.
    pub fn takes(&self, ns: N) -> bool {
        self.0.len() < DEAREST || self.0.last().is_some_and(|&(least_ns, _)| ns > least_ns)
    }

    fn add(&mut self, ns: N, call: &Call) {
        if !self.takes(ns) {
            return;
        }
        let place = self.0.partition_point(|&(other_ns, _)| other_ns >= ns);
        self.0.insert(place, (ns, *call));
        self.0.truncate(DEAREST);
    }

    /// The calls.
    pub fn iter(&self) -> impl Iterator<Item = &Call> {
        self.0.iter().map(|(_, call)| call)
    }
}

/// Iterations of some kinds by their sizes.
#[derive(Default)]
pub struct Sizes {
    /// By rows of the batch.
    pub rows: Buckets,
    /// By requests that waited.
    pub waiting: Buckets,
    /// By nodes of the cache.
    pub nodes: Buckets,
}

impl Sizes {
    /// Adds a call that was read by system.
    pub fn add(&mut self, call: &Call, systems: &[Reading; Stage::COUNT]) {
        self.rows.add(call.shape.rows(), call, systems);
        self.waiting.add(call.shape.waiting, call, systems);
        self.nodes.add(call.shape.cache_nodes, call, systems);
    }
}

/// Calls in which the kernel ran something else.
#[derive(Clone, Copy, Default)]
pub struct Interrupted {
    /// Calls.
    pub calls: u64,
    /// Passes.
    pub passes: u64,
    /// Nanoseconds.
    pub ns: u64,
}

/// Everything that is kept of a profile.
#[derive(Default)]
pub struct ProfileTally {
    /// Passes, idle iterations included.
    pub passes: u64,
    /// What was spent, readings and all.
    pub spent: Spent,
    /// Calls that were interrupted: all that follows is of the others.
    pub interrupted: Interrupted,
    /// The same of the calls that were read by system.
    pub by_system: Spent,
    /// By system: nanoseconds of a run.
    pub systems: [Spread; Stage::COUNT],
    /// Nanoseconds of a pass.
    pub total: Spread,
    /// Passes by the power of two that their nanoseconds lie below.
    pub passes_by_ns: PassesByNs,
    /// Calls by what they ran; of these and the sizes, those that were read by system.
    pub kinds: [Group; 5],
    /// Prefills, mixed ones included.
    pub prefills: Sizes,
    /// Single decode passes.
    pub decodes: Sizes,
    /// The calls that took the most a pass.
    pub dearest: Dearest<u64>,
    /// The calls that would take the reference the most, of those read by system.
    pub reference_dearest: Dearest<f64>,
    /// The work done.
    pub work: Work,
}

/// Numbers of passes by bucket.
pub struct PassesByNs([u64; BUCKETS]);

impl Default for PassesByNs {
    fn default() -> PassesByNs {
        PassesByNs([0; BUCKETS])
    }
}

impl PassesByNs {
    /// The buckets from the first to the last that holds something: number and passes.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> {
        let holds = |&bucket: &usize| self.0[bucket] > 0;
        let first = (0..BUCKETS).find(holds).unwrap_or(BUCKETS);
        let last = (0..BUCKETS).rfind(holds).map_or(0, |last| last + 1);
        (first..last).map(|bucket| (bucket, self.0[bucket]))
    }
}

/// The kinds in the order of [`ProfileTally::kinds`].
pub const KINDS: [Kind; 5] = [Kind::Idle, Kind::Extend, Kind::Mixed, Kind::Decode, Kind::Stride];

impl ProfileTally {
    /// Adds what every call has: its time, and its passes. The time of one that was interrupted says nothing.
    pub fn add_total(&mut self, total_ns: u64, passes: u64, interrupted: bool) {
        let ns_per_pass = total_ns / passes;
        self.passes += passes;
        if interrupted {
            self.interrupted.calls += 1;
            self.interrupted.passes += passes;
            self.interrupted.ns += total_ns;
            return;
        }
        self.total.add(ns_per_pass, passes);
        self.passes_by_ns.0[bucket_of(ns_per_pass)] += passes;
    }

    /// Adds a call that is wanted whole, with what it spent before the cost of the readings was taken off.
    pub fn add(&mut self, call: &Call, spent: &Spent) {
        self.dearest.add(call.ns_per_pass(), call);
        let Some(systems) = &call.cost.systems else { return };
        if let Some(ns) = call.reference_ns.filter(|&ns| ns > 0.0) {
            self.reference_dearest.add(ns, call);
        }
        add_spent(&mut self.by_system, spent);
        for ((spread, system), &runs) in self.systems.iter_mut().zip(systems).zip(&spent.runs) {
            if let Some(each_ns) = system.host_ns.checked_div(runs) {
                spread.add(each_ns, runs);
            }
        }
        self.kinds[call.shape.kind as usize].add(call, systems);
        match call.shape.kind {
            Kind::Extend | Kind::Mixed => self.prefills.add(call, systems),
            Kind::Decode => self.decodes.add(call, systems),
            Kind::Idle | Kind::Stride => {}
        }
    }

    /// What a system came to in the calls that were read by system, the cost of the readings taken off.
    pub fn system(&self, stage: Stage, reading: Reading) -> Reading {
        let spent = &self.by_system;
        spent.stages[stage as usize].since(times(reading, spent.readings_in[stage as usize]))
    }

    /// What all calls but the interrupted ones came to, the cost of the readings taken off.
    pub fn all(&self, reading: Reading) -> Reading {
        let all = total(&self.spent, &Spent::default(), reading);
        Reading { host_ns: all.host_ns.saturating_sub(self.interrupted.ns), ..all }
    }

    /// The same of the calls that were read by system.
    pub fn all_by_system(&self, reading: Reading) -> Reading {
        total(&self.by_system, &Spent::default(), reading)
    }
}

fn add_spent(sum: &mut Spent, spent: &Spent) {
    for index in 0..Stage::COUNT {
        sum.stages[index].add(spent.stages[index]);
        sum.runs[index] += spent.runs[index];
        sum.readings_in[index] += spent.readings_in[index];
    }
    sum.total.add(spent.total);
    sum.readings += spent.readings;
    sum.calls += spent.calls;
    sum.calls_by_system += spent.calls_by_system;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        for (value, bucket) in [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (u64::MAX, 64)] {
            assert_eq!(bucket_of(value), bucket, "{value}");
            let (least, largest) = bounds(bucket);
            assert!((least..=largest).contains(&value), "{value} in {least} to {largest}");
        }
        assert_eq!((bounds(2), bounds(64).1), ((2, 3), u64::MAX));
    }

    #[test]
    fn a_spread_knows_mean_percentiles_and_the_largest() {
        let mut spread = Spread::default();
        (1..=100).for_each(|value| spread.add(value * 1_000, 1));
        spread.add(50_000_000_000, 1);
        let near = |found: u64, expected: f64| (found as f64 / expected - 1.0).abs() < 0.01;
        assert!(near(spread.percentile_ns(50.0), 51_000.0), "{}", spread.percentile_ns(50.0));
        assert!(near(spread.percentile_ns(99.0), 100_000.0), "{}", spread.percentile_ns(99.0));
        assert_eq!((spread.max_ns(), spread.count()), (50_000_000_000, 101));
        let mut zero = Spread::default();
        zero.add(0, 3);
        assert_eq!((zero.mean_ns(), zero.percentile_ns(99.0), Spread::default().percentile_ns(50.0)), (0.0, 0, 0));
    }
}

//! Which systems cost more where a size is larger.

use serde::Serialize;
use servesim_engine::laps::Stage;

use super::report::ratio;
use super::tally::{Buckets, Group, Sizes, bucket_label};

/// Calls that a bucket must hold for its mean to count.
const OFTEN: u64 = 50;
/// From which ratio on a cost is said to grow.
const GROWS: f64 = 2.0;

/// A system whose cost grows with a size.
#[derive(Debug, Serialize)]
pub struct Growth {
    /// The system.
    pub system: &'static str,
    /// The kind of pass.
    pub pass: &'static str,
    /// The size.
    pub by: &'static str,
    /// The smallest sizes that were met often enough.
    pub from: String,
    /// The largest.
    pub to: String,
    /// Mean nanoseconds a pass at the smallest.
    pub from_ns: f64,
    /// Mean nanoseconds a pass at the largest.
    pub to_ns: f64,
    /// The latter over the former.
    pub ratio: f64,
}

/// What grows of some systems, the steepest first. What is less than a reading cannot be told from an error of the cost that is
/// taken off for it.
pub fn growth(prefills: &Sizes, decodes: &Sizes, stages: &[Stage], reading_ns: u64) -> Vec<Growth> {
    let mut all = Vec::new();
    for (pass, sizes) in [("prefill", prefills), ("decode", decodes)] {
        let sizes = [("batch size", &sizes.rows), ("waiting requests", &sizes.waiting), ("cache nodes", &sizes.nodes)];
        all.extend(sizes.into_iter().flat_map(|(by, buckets)| grown(pass, by, buckets, stages)));
    }
    all.retain(|growth| growth.ratio >= GROWS && growth.to_ns - growth.from_ns > reading_ns as f64);
    all.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    all
}

/// How the means change from the smallest size that was met often to the largest. Whole strides are no part of a pass.
fn grown(pass: &'static str, by: &'static str, buckets: &Buckets, stages: &[Stage]) -> Vec<Growth> {
    let mut often = buckets.iter().filter(|(_, group)| group.calls >= OFTEN);
    let (Some((low, first)), Some((high, last))) = (often.next(), often.next_back()) else { return Vec::new() };
    let growth = |&stage: &Stage| {
        let mean = |group: &Group| ratio(group.systems_ns[stage as usize] as f64, group.passes as f64);
        let (from_ns, to_ns) = (mean(first), mean(last));
        let (system, from, to) = (stage.as_str(), bucket_label(low), bucket_label(high));
        Growth { system, pass, by, from, to, from_ns, to_ns, ratio: ratio(to_ns, from_ns) }
    };
    stages.iter().filter(|&&stage| stage != Stage::Stride).map(growth).collect()
}

#[cfg(test)]
mod tests {
    use servesim_engine::laps::Reading;
    use servesim_engine::work::Work;

    use super::super::call::{Call, Cost, Shape};
    use super::*;

    /// Prefills of so many rows, in which systems took so long.
    fn add(sizes: &mut Sizes, calls: u64, num_prefill_requests: u64, took_ns: [(Stage, u64); 3]) {
        let mut systems = [Reading::default(); Stage::COUNT];
        for (stage, host_ns) in took_ns {
            systems[stage as usize].host_ns = host_ns;
        }
        let shape = Shape { num_prefill_requests, passes: 1, ..Shape::default() };
        let cost = Cost { systems: Some(systems), ..Cost::default() };
        let call = Call { shape, cost, work: Work::default(), reference_ns: None };
        (0..calls).for_each(|_| sizes.add(&call, &systems));
    }

    #[test]
    fn it_takes_twice_the_mean_and_more_than_a_reading_at_sizes_met_often() {
        let [admit, commit, order] = [Stage::Admit, Stage::Commit, Stage::Order];
        let mut sizes = Sizes::default();
        add(&mut sizes, 60, 1, [(admit, 100), (commit, 100), (order, 2)]);
        add(&mut sizes, 60, 5, [(admit, 250), (commit, 150), (order, 9)]);
        add(&mut sizes, 49, 20, [(admit, 100), (commit, 900), (order, 900)]);
        let found = growth(&sizes, &Sizes::default(), &[admit, commit, order], 10);
        let steps: Vec<_> = found.iter().map(|found| (found.system, found.by, &*found.from, &*found.to)).collect();
        assert_eq!(steps, [("admit", "batch size", "1", "4-7")]);
        assert_eq!((found[0].from_ns, found[0].to_ns, found[0].ratio), (100.0, 250.0, 2.5));
        let found = growth(&sizes, &Sizes::default(), &[order, admit], 5);
        assert_eq!(
            found.iter().map(|found| found.system).collect::<Vec<_>>(),
            ["order", "admit"],
            "the steepest first"
        );
        add(&mut sizes, 1, 20, [(admit, 100), (commit, 900), (order, 900)]);
        let found = growth(&sizes, &Sizes::default(), &[commit], 10);
        assert_eq!(found.len(), 1, "twenty rows are met often now");
        assert!(growth(&sizes, &Sizes::default(), &[], 10).is_empty());
    }
}

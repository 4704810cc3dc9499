//! Claim: without a probe the places where it would be read cost at most 1 %. Paired: run this with and without the feature
//! `no-probe`, which leaves them out, and compare.

use criterion::Criterion;
use servesim_benches::decoding::Decoding;

use crate::{ROWS, single};

/// A decode pass by itself, no probe set.
pub fn at_most_1_percent(criterion: &mut Criterion) {
    let mut decoding = Decoding::new(ROWS, 1);
    criterion.bench_function("no_probe_at_most_1_percent", |bencher| {
        bencher.iter_custom(|passes| single(&mut decoding, passes));
    });
}

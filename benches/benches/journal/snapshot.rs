//! For comparison: the same pass if a copy of the cache were made before it. What is copied is [`Snapshot`]'s to say.

use criterion::{BenchmarkId, Criterion};
use servesim_benches::resident::{Batch, Resident, SIZES, Snapshot};

use crate::committed;

/// The fresh pass of `admitting_pass_flat_within_1.3x`, after a copy of as many nodes and leaves as the cache has.
pub fn instead_of_a_journal(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("snapshot_instead_of_journal");
    for (size, tokens) in SIZES {
        let mut resident = Resident::new(tokens, 1);
        let state = resident.snapshot();
        let mut kept = Snapshot::default();
        group.bench_function(BenchmarkId::new("fresh/page_1", size), |bencher| {
            bencher.iter_custom(|count| committed(&mut resident, Batch::Fresh, count, |_| state.copy_to(&mut kept)));
        });
    }
    group.finish();
}

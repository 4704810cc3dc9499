//! Claim: evicting one leaf costs at most 1 µs with a million leaves.

use criterion::{BenchmarkId, Criterion};
use servesim_benches::leaves::LeafCache;

/// One of the 256 leaves that an admitting pass evicts, with the pass's own cost shared among them.
pub fn at_most_1_us(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("evict_one_leaf_at_most_1_us");
    for (name, leaves) in [("1k", 1 << 10), ("64k", 1 << 16), ("1M", 1 << 20)] {
        let mut cache = LeafCache::new(leaves);
        group.bench_function(BenchmarkId::new("leaves", name), |bencher| {
            bencher.iter_custom(|count| cache.evict(count));
        });
    }
    group.finish();
}

//! Claim: a decode pass in a stride costs at most 50 ns whatever the batch.

use std::time::Instant;

use criterion::{BenchmarkId, Criterion};
use servesim_benches::decoding::Decoding;

use crate::ROWS;

/// One pass of a long stride.
pub fn at_most_50_ns_a_pass(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stride_pass_at_most_50_ns");
    for page_size in [1, 16] {
        for rows in ROWS {
            let mut decoding = Decoding::new(rows, page_size);
            group.bench_function(BenchmarkId::new(format!("page_{page_size}"), rows), |bencher| {
                bencher.iter_custom(|passes| {
                    let started = Instant::now();
                    decoding.stride(passes);
                    started.elapsed()
                });
            });
        }
    }
    group.finish();
}

//! For comparison: a decode pass that is stepped by itself. It claims nothing.

use std::time::Instant;

use criterion::{BenchmarkId, Criterion};
use servesim_benches::decoding::Decoding;

use crate::ROWS;

/// One pass, one step.
pub fn pass_by_pass(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("single_decode_pass");
    for rows in ROWS {
        let mut decoding = Decoding::new(rows, 1);
        group.bench_function(BenchmarkId::new("page_1", rows), |bencher| {
            bencher.iter_custom(|passes| {
                let started = Instant::now();
                decoding.single(passes);
                started.elapsed()
            });
        });
    }
    group.finish();
}

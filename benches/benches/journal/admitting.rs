//! Claim: a committed admitting pass costs the same against 10 M resident tokens as against 10 k, within 1.3 times.

use criterion::{BenchmarkId, Criterion};
use servesim_benches::resident::{Batch, PAGE_SIZES, Resident, SIZES};

use crate::committed;

/// One admitting pass of 8 prompts, at each resident size.
pub fn flat_in_the_resident_cache(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("admitting_pass_flat_within_1.3x");
    for page_size in PAGE_SIZES {
        for (name, batch) in Batch::ALL {
            for (size, tokens) in SIZES {
                let mut resident = Resident::new(tokens, page_size);
                resident.submit(Batch::Repeated);
                resident.step();
                group.bench_function(BenchmarkId::new(format!("{name}/page_{page_size}"), size), |bencher| {
                    bencher.iter_custom(|count| committed(&mut resident, batch, count, |_| {}));
                });
            }
        }
    }
    group.finish();
}

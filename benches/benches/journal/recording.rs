//! Claim: recording costs at most 5 % of a pass. Paired: run this with and without the feature `no-journal`, which compiles
//! the journal to nothing, and compare.

use criterion::{BenchmarkId, Criterion};
use servesim_benches::resident::{Batch, PAGE_SIZES, Resident};

use crate::committed;

/// Resident tokens.
const TOKENS: u64 = 1_000_000;

/// One admitting pass of 8 prompts against a million resident tokens.
pub fn at_most_5_percent(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("recording_at_most_5_percent");
    for page_size in PAGE_SIZES {
        for (name, batch) in Batch::ALL {
            let mut resident = Resident::new(TOKENS, page_size);
            resident.submit(Batch::Repeated);
            resident.step();
            let records = resident.worker().journal().recorded() > 0;
            assert_ne!(records, cfg!(feature = "no-journal"), "the feature decides whether anything is recorded");
            group.bench_function(BenchmarkId::new(name, format!("page_{page_size}")), |bencher| {
                bencher.iter_custom(|count| committed(&mut resident, batch, count, |_| {}));
            });
        }
    }
    group.finish();
}

//! Claim: a refused pass, with its undoing, costs at most twice what a committed one costs, at every resident size.

use criterion::{BenchmarkId, Criterion};
use servesim_benches::resident::{Batch, PAGE_SIZES, Resident, SIZES};

/// The admitting pass of `admitting_pass_flat_within_1.3x`, refused by the timing model each time.
pub fn at_most_twice_a_committed_pass(criterion: &mut Criterion) {
    if cfg!(feature = "no-journal") {
        eprintln!("skipped: without a journal a refused pass cannot be undone");
        return;
    }
    let mut group = criterion.benchmark_group("refused_pass_at_most_2x_committed");
    for page_size in PAGE_SIZES {
        for (name, batch) in Batch::ALL {
            for (size, tokens) in SIZES {
                let mut resident = Resident::new(tokens, page_size);
                resident.submit(Batch::Repeated);
                resident.step();
                resident.submit(batch);
                resident.refuse(true);
                group.bench_function(BenchmarkId::new(format!("{name}/page_{page_size}"), size), |bencher| {
                    bencher.iter(|| resident.step_refused());
                });
            }
        }
    }
    group.finish();
}

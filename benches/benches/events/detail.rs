//! Claim: who wants counts alone pays nothing for hashes. What hashes and token ids cost is the ratio of the others to `counts`:
//! a hash is a SHA-256 for each page stored, token ids are runs.

use criterion::{BenchmarkId, Criterion};
use servesim_benches::resident::{Batch, PAGE_SIZES, Resident};
use servesim_engine::block_hashes::EventDetail;

/// A batch of 8 new prompts of 768 tokens, which evicts as much as it stores: about 6,000 tokens of events each way.
pub fn cost_of_hashes_and_tokens(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("committed_batch_of_new_prompts");
    group.sample_size(30);
    for page_size in PAGE_SIZES {
        for (name, detail) in [
            ("counts", EventDetail::Counts),
            ("hashes", EventDetail::Hashes),
            ("hashes_and_tokens", EventDetail::HashesAndTokens),
        ] {
            let mut resident = Resident::with_detail(100_000, page_size, detail);
            group.bench_function(BenchmarkId::new(name, format!("page_{page_size}")), |bencher| {
                bencher.iter(|| one_batch(&mut resident));
            });
        }
    }
    group.finish();
}

fn one_batch(resident: &mut Resident) {
    resident.submit(Batch::Fresh);
    resident.step();
}

//! What making KV events costs: counts alone, with the hash of each block, with token ids too.

mod detail;

use criterion::{criterion_group, criterion_main};

criterion_group!(benches, detail::cost_of_hashes_and_tokens);
criterion_main!(benches);

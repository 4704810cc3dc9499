//! What evicting a leaf costs.

mod leaf;

use criterion::{criterion_group, criterion_main};

criterion_group!(benches, leaf::at_most_1_us);
criterion_main!(benches);

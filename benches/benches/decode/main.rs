//! What decoding costs a pass: in strides, and pass by pass.

mod single;
mod stride;

use criterion::{criterion_group, criterion_main};

/// Rows of the running batch that the benches go through.
const ROWS: [u32; 4] = [1, 16, 256, 4096];

criterion_group!(benches, stride::at_most_50_ns_a_pass, single::pass_by_pass);
criterion_main!(benches);

//! What a session's next turn costs.

mod turn;

use criterion::{criterion_group, criterion_main};

criterion_group!(benches, turn::flat_in_the_turns_before);
criterion_main!(benches);

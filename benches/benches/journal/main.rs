//! What the undo journal costs: admitting passes against resident caches of 10 k to 10 M tokens.

mod admitting;
mod recording;
mod refused;
mod snapshot;

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main};
use servesim_benches::resident::{Batch, Resident};

/// How long `count` committed passes take, without what comes before each. `before` stands for work that belongs to a pass.
fn committed(resident: &mut Resident, batch: Batch, count: u64, mut before: impl FnMut(&Resident)) -> Duration {
    let mut took = Duration::ZERO;
    for _ in 0..count {
        resident.submit(batch);
        let started = Instant::now();
        before(resident);
        resident.step();
        took += started.elapsed();
    }
    took
}

criterion_group!(
    benches,
    admitting::flat_in_the_resident_cache,
    refused::at_most_twice_a_committed_pass,
    recording::at_most_5_percent,
    snapshot::instead_of_a_journal,
);
criterion_main!(benches);

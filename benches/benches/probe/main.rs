//! What the places cost where a probe of the host is read: without one, and with the clock of the standard library in it.

mod off;
mod on;

use std::time::{Duration, Instant};

use criterion::{criterion_group, criterion_main};
use servesim_benches::decoding::Decoding;

/// Rows of the running batch; the cost of a pass does not follow them.
const ROWS: u32 = 16;

/// How long `passes` passes take, each a call of its own: the shortest calls there are, so that what is measured shows most.
fn single(decoding: &mut Decoding, passes: u64) -> Duration {
    let started = Instant::now();
    decoding.single(passes);
    started.elapsed()
}

criterion_group!(benches, off::at_most_1_percent, on::calls_read_by_system);
criterion_main!(benches);

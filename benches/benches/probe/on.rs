//! For comparison: the same pass while a probe is set, some or all calls read by system. It claims nothing; what `servesim
//! profile` adds to a whole run is in `docs/profile.md`.

use std::time::Instant;

use criterion::{BenchmarkId, Criterion};
use servesim_benches::decoding::Decoding;
use servesim_engine::laps::{Probe, Reading};

use crate::{ROWS, single};

/// Reads one call in `every` by system.
struct Timer {
    started: Instant,
    every: u64,
    calls: u64,
}

impl Probe for Timer {
    fn read(&mut self) -> Reading {
        Reading { host_ns: self.started.elapsed().as_nanos() as u64, ..Reading::default() }
    }

    fn reads_systems(&mut self) -> bool {
        self.calls += 1;
        self.calls.is_multiple_of(self.every)
    }
}

/// A decode pass by itself.
pub fn calls_read_by_system(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("probe_set");
    for every in [64, 1] {
        let mut decoding = Decoding::new(ROWS, 1);
        decoding.set_probe(Box::new(Timer { started: Instant::now(), every, calls: 0 }));
        decoding.single(64);
        assert_ne!(
            decoding.laps_are_read(),
            cfg!(feature = "no-probe"),
            "the feature decides whether anything is read"
        );
        group.bench_function(BenchmarkId::new("one_call_in", every), |bencher| {
            bencher.iter_custom(|passes| single(&mut decoding, passes));
        });
    }
    group.finish();
}

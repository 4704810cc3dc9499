//! Oracle, with a counting allocator: once warm, a pass allocates nothing, and what is held follows what is live.
//!
//! A binary of its own, since the counter counts for the whole process: it holds one test.

use std::alloc::System;

use servesim_engine::batch::BatchMode;
use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Namespace, Run, StreamKey};
use servesim_engine::request::RequestSpec;
use servesim_engine::timing::Constant;
use servesim_engine::worker::Worker;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Requests that go round for ever: each takes the content of one of a few streams, so that the cache hits, splits and evicts.
struct Rounds {
    worker: Worker,
    streams: Vec<StreamKey>,
    submitted: u64,
    in_flight: u64,
}

impl Rounds {
    fn new() -> Rounds {
        let config = EngineConfig {
            max_total_tokens: 4_000,
            context_length: 4_000,
            max_running_requests: 8,
            decode_log_interval: 7,
            ..EngineConfig::default()
        };
        let mut worker =
            Worker::new(config, Box::new(Constant { extend_ns: 1_000, decode_ns: 1_000 })).expect("good settings");
        let contents = worker.contents_mut();
        let mut streams = Vec::new();
        for index in 0..24 {
            let stream = contents.create(Namespace::default());
            for run in [(10, 100 + 10 * (index % 5)), (1_000_000 * (index + 1), 500)] {
                contents.append(stream, Run::from(run)).expect("small ids");
            }
            streams.push(stream);
        }
        Rounds { worker, streams, submitted: 0, in_flight: 0 }
    }

    /// Keeps four requests in flight, and runs an iteration. Returns its mode.
    fn step(&mut self) -> BatchMode {
        while self.in_flight < 4 {
            let stream = self.streams[(self.submitted * 7 % 24) as usize];
            let spec = RequestSpec::new(self.submitted, stream, 300, 40 + (self.submitted % 9) as u32);
            self.worker.submit(spec).expect("content as said");
            self.submitted += 1;
            self.in_flight += 1;
        }
        let record = self.worker.advance(u64::MAX, 5).expect("never refused");
        self.in_flight -= (record.finished.len() + record.rejected.len() + record.dropped.len()) as u64;
        record.mode
    }

    fn run(&mut self, iterations: u32) -> (Stats, u32) {
        let region = Region::new(ALLOCATOR);
        let extends = (0..iterations).filter(|_| self.step() == BatchMode::Extend).count();
        (region.change(), extends as u32)
    }
}

#[test]
fn a_warm_pass_allocates_nothing() {
    let mut rounds = Rounds::new();
    rounds.run(20_000);
    let (stats, extends) = rounds.run(20_000);
    assert!(extends > 1_000, "{extends} of the iterations admit");
    assert!(rounds.worker.tree().evicted_tokens() > 100_000, "the cache evicts");
    assert_eq!((stats.allocations, stats.reallocations), (0, 0), "{stats:?}");
}

//! Warm worlds that the benches share: workers whose state stays the same size however often an operation is measured.
//!
//! - [`resident`]: a full cache of a given size, and batches that are admitted against it.
//! - [`leaves`]: a cache of equal leaves, and a pass that evicts some of them.
//! - [`decoding`]: a batch of rows that decode for a long time.
//! - [`session`]: sessions of a given number of turns.

pub mod decoding;
pub mod leaves;
pub mod resident;
pub mod session;

use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Namespace, Run};
use servesim_engine::request::{RequestKey, RequestSpec};
use servesim_engine::timing::Constant;
use servesim_engine::worker::Worker;

/// Token ids that each generated content has for itself, handed out in order with one left out between two runs, so that none
/// join. They start again when they are used up, long after what had them has left the cache.
#[derive(Clone, Copy, Debug)]
pub struct FreshIds {
    next: u32,
}

impl FreshIds {
    /// Below are ids for content that is shared.
    const FIRST: u32 = 1 << 20;

    /// All ids.
    pub fn new() -> FreshIds {
        FreshIds { next: FreshIds::FIRST }
    }

    /// The next `count` ids.
    pub fn take(&mut self, count: u32) -> Run {
        if self.next >= u32::MAX - count {
            self.next = FreshIds::FIRST;
        }
        let first = self.next;
        self.next += count + 1;
        Run { first, count }
    }
}

impl Default for FreshIds {
    fn default() -> FreshIds {
        FreshIds::new()
    }
}

/// A worker whose every pass takes a simulated millisecond.
pub fn worker(config: EngineConfig) -> Worker {
    let timing = Constant { extend_ns: 1_000_000, decode_ns: 1_000_000 };
    Worker::new(config, Box::new(timing)).expect("the benches' settings are within bounds")
}

/// Submits a request whose content is `runs`: a prompt and, at its end, `output` tokens.
pub fn submit(worker: &mut Worker, tag: u64, runs: &[Run], output: u32) -> RequestKey {
    let contents = worker.contents_mut();
    let stream = contents.create(Namespace::default());
    for &run in runs {
        contents.append(stream, run).expect("ids and lengths are within bounds");
    }
    let prompt = contents.len(stream) - output;
    let request = worker.submit(RequestSpec::new(tag, stream, prompt, output)).expect("the content is as long as said");
    worker.contents_mut().release(stream);
    request
}

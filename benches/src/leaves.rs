//! A cache of equal leaves below the root that fills its pool, and a pass that evicts some of them.
//!
//! The pass prefills a chunk as long as many leaves: it evicts them all, and does little else. The request is then given up
//! between two chunks, so that nothing of it is inserted, and as many new leaves take the place of those that went.

use std::time::{Duration, Instant};

use servesim_engine::config::EngineConfig;
use servesim_engine::content::Run;
use servesim_engine::worker::Worker;

use crate::{FreshIds, submit, worker};

/// Tokens of a leaf.
const LEAF: u32 = 4;
/// Leaves that a pass evicts.
const EVICTED: u32 = 256;
/// Tokens of a chunk.
const CHUNK: u32 = EVICTED * LEAF;
/// What follows a prompt; it is not inserted.
const OUTPUT: Run = Run { first: 0, count: 1 };

/// A worker whose cache is full of leaves.
pub struct LeafCache {
    worker: Worker,
    ids: FreshIds,
    leaves: u32,
}

impl LeafCache {
    /// A cache of `leaves` leaves, a multiple of 256.
    pub fn new(leaves: u32) -> LeafCache {
        let config = EngineConfig {
            max_total_tokens: u64::from(leaves * LEAF),
            max_running_requests: EVICTED,
            chunked_prefill_size: i64::from(CHUNK),
            disable_overlap_schedule: true,
            ..EngineConfig::default()
        };
        let mut cache = LeafCache { worker: worker(config), ids: FreshIds::new(), leaves };
        while cache.worker.tree().evictable_leaves() < leaves as usize {
            cache.add_leaves();
        }
        cache
    }

    /// Adds as many leaves as a pass evicts.
    fn add_leaves(&mut self) {
        for _ in 0..EVICTED {
            let prompt = self.ids.take(LEAF);
            submit(&mut self.worker, 0, &[prompt, OUTPUT], OUTPUT.count);
        }
        self.step();
    }

    fn step(&mut self) {
        self.worker.step().expect("the model takes every pass");
    }

    /// Evicts at least `leaves` leaves, and returns how long the passes took, scaled to that number.
    pub fn evict(&mut self, leaves: u64) -> Duration {
        let passes = leaves.div_ceil(u64::from(EVICTED));
        let mut took = Duration::ZERO;
        for _ in 0..passes {
            took += self.evict_in_a_pass();
        }
        let nanos = took.as_nanos() * u128::from(leaves) / u128::from(passes * u64::from(EVICTED));
        Duration::from_nanos(nanos as u64)
    }

    fn evict_in_a_pass(&mut self) -> Duration {
        let before = self.worker.work().leaves_evicted;
        let prompt = self.ids.take(2 * CHUNK);
        let request = submit(&mut self.worker, 0, &[prompt, OUTPUT], OUTPUT.count);
        self.worker.enter();
        let started = Instant::now();
        self.step();
        let took = started.elapsed();
        let evicted = self.worker.work().leaves_evicted - before;
        assert_eq!(evicted, u64::from(EVICTED), "the pass evicts as many leaves as it is taken to");
        self.worker.give_up(request);
        self.add_leaves();
        assert_eq!(self.worker.tree().evictable_leaves(), self.leaves as usize, "the cache is full again");
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_leaves_are_evicted_as_asked_for_and_take_their_place_again() {
        let mut cache = LeafCache::new(1024);
        assert_eq!(cache.worker.pool().free_tokens(), 0);
        cache.evict(300);
        assert_eq!(cache.worker.work().leaves_evicted, 512);
        assert_eq!(cache.worker.tree().node_count(), 1024);
    }
}

//! A full cache of a given number of tokens, and batches that are admitted against it.
//!
//! A fresh batch makes every kind of change that an admission can: its prompts share a system prompt, half of them branch off
//! inside an edge of the batch before and split it, all of them evict leaves to make room. It is as large as what it evicts,
//! so that the cache keeps its size and its shape. A repeated batch is cached already, but for the last page of each prompt.

use servesim_engine::batch::BatchMode;
use servesim_engine::block_hashes::EventDetail;
use servesim_engine::config::EngineConfig;
use servesim_engine::content::Run;
use servesim_engine::timing::{Constant, PassShape, TimingError};
use servesim_engine::worker::Worker;

use crate::{FreshIds, submit, worker};

/// Resident sizes in tokens that the benches go through.
pub const SIZES: [(&str, u64); 4] = [("10k", 10_000), ("100k", 100_000), ("1M", 1_000_000), ("10M", 10_000_000)];
/// Page sizes that the benches go through.
pub const PAGE_SIZES: [u32; 2] = [1, 16];

/// Prompts of a batch.
const BATCH: usize = 8;
/// The prompt that all share.
const SYSTEM: Run = Run { first: 1, count: 240 };
/// Half of what a prompt adds to the system prompt: where a branch leaves it.
const HALF: u32 = 384;
/// What follows the prompt of a repeated batch; any token will do, since it is not inserted.
const OUTPUT: Run = Run { first: 0, count: 1 };

/// What is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// New prompts that split, add and evict.
    Fresh,
    /// The same prompts every time, all cached.
    Repeated,
}

impl Batch {
    /// Both, with their names.
    pub const ALL: [(&'static str, Batch); 2] = [("fresh", Batch::Fresh), ("repeated", Batch::Repeated)];
}

/// A worker with a full cache.
pub struct Resident {
    worker: Worker,
    ids: FreshIds,
    /// What the last fresh batch's first prompts hold beyond the system prompt.
    branches: Vec<Run>,
    repeated: Vec<Run>,
    submitted: u64,
}

impl Resident {
    /// A cache that fills a pool of `tokens`, with as many prompts as fit.
    pub fn new(tokens: u64, page_size: u32) -> Resident {
        Resident::with_detail(tokens, page_size, EventDetail::Counts)
    }

    /// The same with KV events of a given detail.
    pub fn with_detail(tokens: u64, page_size: u32, detail: EventDetail) -> Resident {
        let config = EngineConfig {
            max_total_tokens: tokens,
            page_size,
            disable_overlap_schedule: true,
            ..EngineConfig::default()
        };
        let mut worker = worker(config);
        worker.set_event_detail(detail);
        let mut ids = FreshIds::new();
        let mut draw = |count: usize| (0..count).map(|_| ids.take(2 * HALF)).collect::<Vec<Run>>();
        let (branches, repeated) = (draw(BATCH / 2), draw(BATCH));
        let mut resident = Resident { worker, ids, branches, repeated, submitted: 0 };
        resident.fill(tokens);
        resident
    }

    /// Admits batches until the pool is full and all of it has been evicted once, which is when its shape no longer changes.
    fn fill(&mut self, tokens: u64) {
        while self.worker.tree().evicted_tokens() < tokens {
            self.submit(Batch::Fresh);
            self.step();
        }
    }

    /// The worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Has a batch enter the waiting queue.
    pub fn submit(&mut self, batch: Batch) {
        match batch {
            Batch::Fresh => self.submit_fresh(),
            Batch::Repeated => self.submit_repeated(),
        }
        self.worker.enter();
    }

    fn submit_fresh(&mut self) {
        for index in 0..self.branches.len() {
            let branch = Run { count: HALF, ..self.branches[index] };
            let rest = self.ids.take(HALF);
            self.submit_prompt(&[SYSTEM, branch, rest]);
            self.branches[index] = self.ids.take(2 * HALF);
            self.submit_prompt(&[SYSTEM, self.branches[index]]);
        }
    }

    fn submit_repeated(&mut self) {
        for index in 0..self.repeated.len() {
            self.submit_prompt(&[SYSTEM, self.repeated[index]]);
        }
    }

    fn submit_prompt(&mut self, prompt: &[Run]) {
        let runs = [prompt, &[OUTPUT]].concat();
        submit(&mut self.worker, self.submitted, &runs, OUTPUT.count);
        self.submitted += 1;
    }

    /// The admitting pass, committed: every prompt is admitted, prefilled, inserted and ends.
    pub fn step(&mut self) {
        let record = self.worker.step().expect("the model takes every pass");
        assert_eq!((record.mode, record.finished.len()), (BatchMode::Extend, BATCH));
    }

    /// The admitting pass, refused and undone.
    pub fn step_refused(&mut self) {
        self.worker.step().expect_err("the model refuses every pass");
    }

    /// Has the timing model refuse every pass from now on, or none.
    pub fn refuse(&mut self, refuse: bool) {
        if refuse {
            let refusal = |_: &PassShape| Err(TimingError::NotFinite { duration_ns: f64::NAN });
            self.worker.set_timing(Box::new(refusal));
        } else {
            self.worker.set_timing(Box::new(Constant { extend_ns: 1_000_000, decode_ns: 1_000_000 }));
        }
    }

    /// A stand-in for a snapshot of this cache.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.worker.tree().node_count(), self.worker.tree().evictable_leaves())
    }
}

/// As much memory as a copy of the tree and the pool's runs takes, as plain arrays: the engine offers no copy, since it needs
/// none. Each node is a row of 72 bytes with the version of its slot, 32 bytes of cold columns, a table entry of 9 bytes and a
/// page run of 20; each evictable leaf a heap entry of 24. The content, the waiting queue, requests and events are left out,
/// and no array is hashed or linked again: a snapshot cannot cost less.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    rows: Vec<[u64; 9]>,
    stats: Vec<[u64; 4]>,
    table: Vec<u64>,
    table_tags: Vec<u8>,
    runs: Vec<[u32; 5]>,
    leaves: Vec<[u64; 3]>,
}

impl Snapshot {
    fn new(nodes: usize, leaves: usize) -> Snapshot {
        Snapshot {
            rows: vec![[1; 9]; nodes],
            stats: vec![[1; 4]; nodes],
            table: vec![1; nodes],
            table_tags: vec![1; nodes],
            runs: vec![[1; 5]; nodes],
            leaves: vec![[1; 3]; leaves],
        }
    }

    /// Copies it into memory that is kept from pass to pass, which is the cheapest way.
    pub fn copy_to(&self, kept: &mut Snapshot) {
        kept.rows.clone_from(&self.rows);
        kept.stats.clone_from(&self.stats);
        kept.table.clone_from(&self.table);
        kept.table_tags.clone_from(&self.table_tags);
        kept.runs.clone_from(&self.runs);
        kept.leaves.clone_from(&self.leaves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_leave_the_cache_as_large_as_it_was() {
        for page_size in PAGE_SIZES {
            let mut resident = Resident::new(100_000, page_size);
            let (nodes, splits) = (resident.worker.tree().node_count(), resident.worker.work().splits);
            for (_, batch) in [Batch::ALL, Batch::ALL].concat() {
                resident.submit(batch);
                resident.refuse(true);
                let before = resident.worker.digest();
                resident.step_refused();
                assert_eq!(resident.worker.digest(), before);
                resident.refuse(false);
                resident.step();
            }
            assert!(resident.worker.tree().node_count().abs_diff(nodes) < nodes / 10, "page size {page_size}");
            assert!(resident.worker.work().splits - splits >= 4, "fresh prompts branch off inside an edge");
            assert!(resident.worker.pool().free_tokens() < 10_000, "the cache is full");
        }
    }
}

//! A batch of rows that decode for a long time: nothing waits, nothing arrives, no row ends.

use servesim_engine::batch::BatchMode;
use servesim_engine::config::EngineConfig;
use servesim_engine::content::Run;
use servesim_engine::laps::Probe;
use servesim_engine::worker::Worker;

use crate::{submit, worker};

/// Tokens of each prompt: a page at least.
const PROMPT: u32 = 16;
/// Tokens that each row produces, more than a bench asks for at once.
const OUTPUT: u32 = 1 << 27;

/// A worker with a running batch.
pub struct Decoding {
    worker: Worker,
    rows: u32,
    page_size: u32,
    passes_left: u64,
}

impl Decoding {
    /// A running batch of `rows` rows.
    pub fn new(rows: u32, page_size: u32) -> Decoding {
        let config = EngineConfig {
            page_size,
            max_total_tokens: 1 << 40,
            context_length: 1 << 30,
            chunked_prefill_size: -1,
            max_prefill_tokens: 1 << 30,
            max_running_requests: rows,
            disable_overlap_schedule: true,
            ..EngineConfig::default()
        };
        let mut worker = worker(config);
        for row in 0..rows {
            let own = Run { first: row + 1, count: 1 };
            let common = Run { first: 1 << 20, count: PROMPT - 1 + OUTPUT };
            submit(&mut worker, u64::from(row), &[own, common], OUTPUT);
        }
        // The first decode pass publishes what the prefills stored or leaves it queued for an interval; both are over soon.
        while worker.clock().decode_batches < 64 {
            worker.step().expect("the model takes every pass");
        }
        assert_eq!(worker.running().len(), rows as usize, "all rows run");
        Decoding { worker, rows, page_size, passes_left: u64::from(OUTPUT) - 128 }
    }

    /// Decodes `passes` passes in strides.
    pub fn stride(&mut self, passes: u64) {
        self.make_sure_of(passes);
        let mut left = passes;
        while left > 0 {
            let record = self.worker.advance(u64::MAX, left).expect("the model takes every pass");
            assert_eq!(record.mode, BatchMode::Decode);
            left -= record.passes;
        }
    }

    /// Decodes `passes` passes one by one.
    pub fn single(&mut self, passes: u64) {
        self.make_sure_of(passes);
        for _ in 0..passes {
            self.worker.step().expect("the model takes every pass");
        }
    }

    /// Has each pass from here on read by `probe`.
    pub fn set_probe(&mut self, probe: Box<dyn Probe>) {
        self.worker.set_probe(Some(probe));
    }

    /// Whether passes were read by system since the probe was set.
    pub fn laps_are_read(&self) -> bool {
        self.worker.profiled().spent.calls_by_system > 0
    }

    /// Starts again when no row has as many tokens left to produce.
    fn make_sure_of(&mut self, passes: u64) {
        if self.passes_left < passes {
            *self = Decoding::new(self.rows, self.page_size);
        }
        self.passes_left = self.passes_left.checked_sub(passes).expect("a bench asks for fewer passes than a row has");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_stands_for_as_many_passes_as_asked_for() {
        let mut decoding = Decoding::new(16, 16);
        let before = decoding.worker.clock().decode_batches;
        decoding.stride(10_000);
        decoding.single(10);
        assert_eq!(decoding.worker.clock().decode_batches - before, 10_010);
    }
}

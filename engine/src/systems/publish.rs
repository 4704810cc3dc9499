//! `publish`: KV events go out after an extend batch, after every `decode_log_interval`-th decode batch, and when idle.
//!
//! Reads the batches, the queue, the running batch and who is held; writes the event queue, the record, the ratio and the
//! releases of held requests.

use crate::batch::{BatchMode, Batches};
use crate::cache::Cache;
use crate::config::Role;
use crate::engine::Engine;
use crate::events::Why;
use crate::iteration::Pass;
use crate::queue::{Held, Queue};
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::timing::Clock;

/// What publishing reads and writes.
pub(crate) struct Publish<'a> {
    cache: &'a mut Cache,
    batches: &'a Batches,
    queue: &'a Queue,
    running: &'a Running,
    held: &'a Held,
    clock: &'a mut Clock,
    record: &'a mut PassRecord,
    ratio: &'a mut NewTokenRatio,
}

/// Publishes what the batch whose results were just taken calls for.
pub(crate) fn publish(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, .. } = engine;
    let Scheduler { queue, running, batches, held, .. } = scheduler;
    let Pass { record, ratio, clock, .. } = pass;
    let mut publish = Publish { cache, batches, queue, running, held, clock, record, ratio };
    let overlap = !publish.cache.config.disable_overlap_schedule;
    let taken = if overlap { publish.batches.last.mode } else { publish.batches.next.mode };
    match taken {
        BatchMode::Extend => publish.publish(Why::Prefill),
        BatchMode::Decode => publish.count_decode(),
        BatchMode::Idle if publish.is_idle() => {
            publish.publish(Why::Idle);
            publish.ratio.reset();
        }
        BatchMode::Idle => {}
    }
}

impl Publish<'_> {
    fn publish(&mut self, why: Why) {
        self.cache.events.publish(why, &mut self.record.published);
    }

    fn count_decode(&mut self) {
        self.clock.decode_batches += 1;
        if self.clock.decode_batches.is_multiple_of(u64::from(self.cache.config.decode_log_interval)) {
            self.publish(Why::DecodeInterval);
        }
    }

    /// Nothing runs, waits, is chunked or held anywhere.
    fn is_idle(&self) -> bool {
        let nothing_runs = self.batches.next.mode == BatchMode::Idle && self.running.rows().is_empty();
        let nothing_held = self.cache.config.role == Role::Unified || self.held.requests.is_empty();
        nothing_runs && nothing_held && self.queue.is_empty() && self.running.numbers.chunked.is_none()
    }
}

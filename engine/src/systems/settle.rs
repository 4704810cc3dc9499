//! `settle`: what the last iteration left over (`behaviour.md` section 1, steps 2a to 2c). Opens the transaction.
//!
//! Reads the last batch; writes the chunked request, the running batch, the cache and the record.

use crate::batch::{Batch, BatchMode};
use crate::cache::Cache;
use crate::config::Role;
use crate::engine::Engine;
use crate::iteration::begin;
use crate::record::PassRecord;
use crate::request::RequestKey;
use crate::requests::Requests;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::systems::enter::{drop_if_waiting, mark_if_in_batch};

/// Carries out a pending abort of the chunked request, inserts its last chunk, and merges the last extend batch.
pub(crate) fn settle(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, .. } = engine;
    begin(cache, scheduler, pass);
    scheduler.batches.launch_order.clear();
    let Scheduler { requests, queue, running, batches, .. } = scheduler;
    let record = &mut pass.record;
    if let Some(request) = running.numbers.chunked_abort {
        if running.numbers.chunked == Some(request) {
            drop_chunked(cache, requests, running, record, request);
        } else {
            running.numbers.chunked_abort = None;
            if requests.knows(request) && requests.get(request).finish.is_none() && requests.get(request).has_slot {
                drop_if_waiting(requests, queue, record, &mut cache.journal, request);
                mark_if_in_batch(batches, requests, running, &mut cache.journal, request);
            }
        }
    }
    if let Some(request) = running.numbers.chunked {
        let progress = requests.get(request);
        let computed = progress.extend_end;
        if computed > progress.prefix {
            cache.insert_unfinished(requests, request, computed, false);
        }
    }
    match cache.config.role {
        Role::Unified => merge_last(cache, &batches.last, requests, running),
        Role::Prefill => running.numbers.full = false,
    }
}

/// Releases a cancelled request between two chunks without inserting anything.
fn drop_chunked(
    cache: &mut Cache,
    requests: &mut Requests,
    running: &mut Running,
    record: &mut PassRecord,
    request: RequestKey,
) {
    cache.release_without_insert(requests, request);
    free_slot(cache, requests, running, request);
    requests.end(request, &mut cache.journal);
    record.dropped.push(requests.spec(request).tag);
    running.numbers.chunked = None;
    running.numbers.chunked_abort = None;
}

/// Gives a request's slot back.
pub(crate) fn free_slot(cache: &mut Cache, requests: &mut Requests, running: &mut Running, request: RequestKey) {
    if requests.get(request).has_slot {
        requests.update(request, &mut cache.journal, |progress| progress.has_slot = false);
        running.numbers.free_slots += 1;
    }
}

/// Merges the last extend batch behind the running batch, without finished requests and without chunked ones.
pub(crate) fn merge_last(cache: &mut Cache, last: &Batch, requests: &mut Requests, running: &mut Running) {
    if last.mode == BatchMode::Extend {
        let chunked = running.numbers.chunked;
        let stays = |requests: &Requests, request: RequestKey| {
            Some(request) != chunked && Some(request) != last.middle && requests.get(request).finish.is_none()
        };
        let rows = || last.extend.iter().map(|row| row.request).chain(last.mixed.iter().copied());
        let kept = rows().filter(|&request| stays(requests, request)).count();
        if kept < last.extend.len() + last.mixed.len() {
            running.numbers.full = false;
        }
        if kept > 0 {
            found_or_join(running, last);
            for request in rows() {
                if stays(requests, request) {
                    running.join(requests, request, &mut cache.journal);
                }
            }
        }
    }
    if running.numbers.prefill_only {
        running.leave_all(requests, &mut cache.journal, |_, progress| progress.finish.is_some());
        running.numbers.full &= !running.rows().is_empty();
    }
}

/// The extend batch takes an empty running batch's place, with a clear latch; otherwise it becomes one more part of it.
fn found_or_join(running: &mut Running, last: &Batch) {
    let empty = running.rows().is_empty();
    let numbers = &mut running.numbers;
    if empty {
        numbers.full = false;
        numbers.prefill_only = last.prefill_only;
        numbers.founder_tokens = last.new_tokens;
    } else {
        numbers.prefill_only &= last.prefill_only;
    }
}

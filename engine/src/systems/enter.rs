//! `enter`: requests, cancellations and releases that have arrived by now (`behaviour.md` sections 2 and 8).
//!
//! Reads the inbox, the settings and the batches; writes requests, the queue, marks of cancellation and the record, and for
//! a request that is given up also the running batch and the cache. Runs
//! before the transaction of the iteration: what has entered stays, also when the pass is refused.

use crate::batch::Batches;
use crate::cache::Cache;
use crate::config::{EngineConfig, Role};
use crate::engine::Engine;
use crate::journal::Journal;
use crate::queue::{Asked, Inbox, Queue};
use crate::record::PassRecord;
use crate::request::{Finish, Reject, RequestKey};
use crate::requests::{LEAST_PREFERRED, Requests, State};
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::systems::settle::free_slot;

/// What entering reads and writes.
pub(crate) struct Entry<'a> {
    cache: &'a mut Cache,
    batches: &'a Batches,
    inbox: &'a mut Inbox,
    requests: &'a mut Requests,
    queue: &'a mut Queue,
    running: &'a mut Running,
    record: &'a mut PassRecord,
}

/// Takes everything out of the inbox, in order.
pub(crate) fn enter(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, .. } = engine;
    let Scheduler { inbox, requests, queue, running, batches, .. } = scheduler;
    let record = &mut pass.record;
    let mut entry = Entry { cache, batches, inbox, requests, queue, running, record };
    let mut asked = std::mem::take(&mut entry.inbox.asked);
    for asked in asked.drain(..) {
        entry.take(asked);
    }
    entry.inbox.asked = asked;
}

impl Entry<'_> {
    fn take(&mut self, asked: Asked) {
        if let Asked::GiveUp(request) = asked {
            self.give_up(request);
            return;
        }
        let Entry { cache, batches, requests, queue, running, record, .. } = self;
        let (config, journal) = (&cache.config, &mut cache.journal);
        match asked {
            Asked::Submit(request) => {
                if !config.entry_checks || fits(config, requests, record, journal, request) {
                    put_in_queue(config, requests, queue, running, record, journal, request);
                }
            }
            Asked::Cancel(request) if requests.knows(request) => {
                if running.numbers.chunked == Some(request) {
                    running.numbers.chunked_abort = Some(request);
                }
                drop_if_waiting(requests, queue, record, journal, request);
                mark_if_in_batch(batches, requests, running, journal, request);
            }
            Asked::Release(request) if requests.knows(request) => {
                requests.update(request, journal, |progress| progress.released = true);
            }
            Asked::Cancel(_) | Asked::Release(_) | Asked::GiveUp(_) => {}
        }
    }

    /// Releases a request without insertion, whatever its state.
    fn give_up(&mut self, request: RequestKey) {
        let Entry { cache, requests, queue, running, record, .. } = self;
        if !requests.knows(request) || requests.get(request).state == State::Ended {
            return;
        }
        if let Some(at) = queue.position(request) {
            queue.remove_at(at, &mut cache.journal);
        }
        if running.numbers.chunked == Some(request) {
            running.numbers.chunked = None;
            running.numbers.chunked_abort = None;
        }
        if let Some(at) = running.rows().iter().position(|&row| row == request) {
            running.leave(requests, at, &mut cache.journal);
            let committed = running.committed(requests.get(request));
            cache.settle_pages(requests, request, committed);
            running.numbers.full = false;
        }
        cache.release_without_insert(requests, request);
        free_slot(cache, requests, running, request);
        requests.update(request, &mut cache.journal, |progress| progress.finish = Some(Finish::Abort));
        requests.end(request, &mut cache.journal);
        record.rejected.push((requests.spec(request).tag, Reject::Refused));
    }
}

/// The checks between the tokenizer and the queue: rejects a prompt that can never fit, cuts `max_new_tokens`.
fn fits(
    config: &EngineConfig,
    requests: &mut Requests,
    record: &mut PassRecord,
    journal: &mut Journal,
    request: RequestKey,
) -> bool {
    let spec = requests.spec(request);
    let (tag, prompt) = (spec.tag, i64::from(spec.prompt_tokens));
    let pool = config.pool_tokens() as i64;
    let page = i64::from(config.page_size);
    let max_request_len = i64::from(config.context_length).min(pool) - 1;
    if prompt >= max_request_len - 5 {
        let longest = (max_request_len - 6).max(0) as u64;
        let prompt_tokens = spec.prompt_tokens;
        requests.end(request, journal);
        record.rejected.push((tag, Reject::PromptTooLong { prompt_tokens, longest }));
        return false;
    }
    let ceil_prompt = (prompt + page - 1) / page * page;
    let room = (max_request_len - prompt - 1).min(pool - ceil_prompt - page - 1);
    let wanted = i64::from(spec.max_new_tokens);
    requests.cut_max_new_tokens(request, wanted.min(room).max(0) as u32);
    true
}

/// Puts a request at the back of the queue, under the limit of waiting requests.
pub(crate) fn put_in_queue(
    config: &EngineConfig,
    requests: &mut Requests,
    queue: &mut Queue,
    running: &Running,
    record: &mut PassRecord,
    journal: &mut Journal,
    request: RequestKey,
) {
    let full = config.max_queued_requests.is_some_and(|limit| queue.len() + 1 > limit as usize);
    if full && config.role == Role::Unified {
        let Some(at) = displaced_by(config, requests, queue, request) else {
            turn_away(requests, record, journal, request, Reject::QueueFull);
            return;
        };
        let displaced = queue.at(at);
        queue.remove_at(at, journal);
        let cancelled = requests.get(displaced).aborting;
        let reason = Reject::Displaced { by: requests.spec(request).tag, cancelled };
        record.rejected.push((requests.spec(displaced).tag, reason));
        requests.end(displaced, journal);
    }
    let entry = queue.put(request, journal);
    let counter = running.numbers.processed_tokens;
    requests.update(request, journal, |progress| {
        progress.state = State::Waiting;
        progress.queue_entry = entry;
        progress.entry_counter = counter;
    });
}

/// Ends a request that has no place; one whose cancellation was under way is dropped rather than rejected.
pub(crate) fn turn_away(
    requests: &mut Requests,
    record: &mut PassRecord,
    journal: &mut Journal,
    request: RequestKey,
    reason: Reject,
) {
    let tag = requests.spec(request).tag;
    if requests.get(request).aborting {
        record.dropped.push(tag);
    } else {
        record.rejected.push((tag, reason));
    }
    requests.end(request, journal);
}

/// The position of the least preferred waiting request, if the newcomer is strictly preferred to it.
fn displaced_by(config: &EngineConfig, requests: &Requests, queue: &Queue, newcomer: RequestKey) -> Option<usize> {
    if !config.enable_priority_scheduling {
        return None;
    }
    let (at, worst) = queue
        .iter()
        .enumerate()
        .max_by_key(|&(_, waiting)| (preference(config, requests, waiting), requests.get(waiting).queue_entry))?;
    (preference(config, requests, newcomer) < preference(config, requests, worst)).then_some(at)
}

/// A request's priority as a number that is smaller for a preferred request. Absent is the least preferred.
pub(crate) fn preference(config: &EngineConfig, requests: &Requests, request: RequestKey) -> i64 {
    match requests.spec(request).priority {
        None => LEAST_PREFERRED,
        Some(priority) if config.schedule_low_priority_values_first => i64::from(priority),
        Some(priority) => -i64::from(priority),
    }
}

/// Drops a request that waits.
pub(crate) fn drop_if_waiting(
    requests: &mut Requests,
    queue: &mut Queue,
    record: &mut PassRecord,
    journal: &mut Journal,
    request: RequestKey,
) {
    if requests.get(request).state != State::Waiting {
        return;
    }
    if let Some(at) = queue.position(request) {
        queue.remove_at(at, journal);
        record.dropped.push(requests.spec(request).tag);
        requests.end(request, journal);
    }
}

/// Marks a request that has a row in the running or the last batch, so that its next result ends it; releases a held one.
pub(crate) fn mark_if_in_batch(
    batches: &Batches,
    requests: &mut Requests,
    running: &mut Running,
    journal: &mut Journal,
    request: RequestKey,
) {
    let progress = requests.get(request);
    if progress.finish.is_some() {
        return;
    }
    let held = progress.state == State::Held;
    let joined = progress.joined;
    if held || joined || progress.batch == batches.last.number {
        requests.update(request, journal, |progress| {
            progress.aborting = true;
            progress.released |= held;
        });
    }
    if joined {
        running.expect_end(requests, request);
    }
}

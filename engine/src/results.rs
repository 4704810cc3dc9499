//! The results of a batch: tokens appended, requests finished, prompts inserted (`behaviour.md` section 6).

use crate::batch::{Batch, BatchMode, Batches};
use crate::cache::Cache;
use crate::config::Role;
use crate::queue::Held;
use crate::record::{Finished, PassRecord};
use crate::request::{Finish, RequestKey};
use crate::requests::{Requests, State};
use crate::running::Running;
use crate::systems::commit::Commit;
use crate::systems::settle::free_slot;
use crate::timing::Clock;

/// Takes the results of a batch, row by row in batch order.
pub(crate) fn take(commit: &mut Commit, batch: &Batch) {
    match batch.mode {
        BatchMode::Idle => {}
        BatchMode::Extend => take_extend(commit, batch),
        BatchMode::Decode => take_decode(commit),
    }
}

fn take_extend(commit: &mut Commit, batch: &Batch) {
    for row in &batch.extend {
        if Some(row.request) != batch.middle && still_runs(commit.requests, row.request) {
            match commit.cache.config.role {
                Role::Unified => take_last_chunk(commit, row.request, row.end),
                Role::Prefill => hold(commit, row.request, row.end),
            }
        }
    }
    for &request in &batch.mixed {
        if still_runs(commit.requests, request) {
            append_token(commit, request);
            commit.record.decode_tokens += 1;
        }
    }
}

/// Whether a row's token counts: the request has not finished, and was not retracted since the launch.
fn still_runs(requests: &Requests, request: RequestKey) -> bool {
    requests.knows(request) && requests.get(request).finish.is_none() && requests.get(request).state == State::Running
}

fn take_last_chunk(commit: &mut Commit, request: RequestKey, computed: u32) {
    let ended = append_token(commit, request);
    if commit.record.first_tokens.last() != Some(&commit.requests.spec(request).tag) {
        commit.record.resumed.push(commit.requests.spec(request).tag);
    }
    if !ended {
        commit.cache.insert_unfinished(commit.requests, request, computed, true);
    }
}

/// Appends a token to a request that may be joined by now, and finishes it if that was its last. Says whether it was.
fn append_token(commit: &mut Commit, request: RequestKey) -> bool {
    let Commit { requests, running, cache, .. } = commit;
    requests.update(request, &mut cache.journal, |progress| progress.produced += 1);
    let produced = i64::from(running.produced(requests.get(request)));
    note_first_token(requests, commit.record, request, produced);
    match how_it_ends(requests, request, produced) {
        Some(finish) => {
            end(cache, requests, running, commit.record, request, finish, true);
            true
        }
        None => {
            if requests.get(request).joined {
                running.expect_end(requests, request);
            }
            false
        }
    }
}

fn note_first_token(requests: &Requests, record: &mut PassRecord, request: RequestKey, produced: i64) {
    if produced == 1 {
        record.first_tokens.push(requests.spec(request).tag);
    }
}

/// How a request ends with the token that was just appended, if it does.
fn how_it_ends(requests: &Requests, request: RequestKey, produced: i64) -> Option<Finish> {
    let spec = requests.spec(request);
    let most = i64::from(spec.max_new_tokens);
    if requests.get(request).aborting {
        Some(Finish::Abort)
    } else if spec.stop_at_end && produced == i64::from(spec.output_tokens) && produced <= most {
        Some(Finish::Stop)
    } else if produced >= most {
        // A stop token past the limit is reported as the limit: a prefill-only request's one token is.
        Some(Finish::Length)
    } else {
        None
    }
}

/// Every row of the running batch gets a token; rows are looked at only when one ends. Rows that went into the mixed batch
/// launched meanwhile are looked at one by one.
fn take_decode(commit: &mut Commit) {
    for index in 0..commit.batches.next.mixed.len() {
        let request = commit.batches.next.mixed[index];
        if still_runs(commit.requests, request) {
            append_token(commit, request);
            commit.record.decode_tokens += 1;
        }
    }
    let Commit { requests, running, cache, record, batches, .. } = commit;
    record.decode_tokens += running.rows().len() as u32 - running.numbers.finished_rows;
    running.numbers.results += 1;
    end_rows(cache, requests, running, record, &batches.launch_order);
}

/// Finishes the rows of the running batch whose last token was just produced, in row order, or in the order of their launch
/// where a retraction has changed it since. None is looked at before the earliest end.
pub(crate) fn end_rows(
    cache: &mut Cache,
    requests: &mut Requests,
    running: &mut Running,
    record: &mut PassRecord,
    launch_order: &[RequestKey],
) {
    if running.numbers.results < running.numbers.next_end {
        return;
    }
    for index in 0..running.rows().len().max(launch_order.len()) {
        let request = if launch_order.is_empty() { running.rows()[index] } else { launch_order[index] };
        let progress = requests.get(request);
        if !progress.joined || progress.finish.is_some() {
            continue;
        }
        let produced = i64::from(running.produced(progress));
        if let Some(finish) = how_it_ends(requests, request, produced) {
            end(cache, requests, running, record, request, finish, true);
        }
    }
    running.find_next_end(requests);
}

/// Finishes a request: its tokens go into the tree, its pages, lock and slot come free.
fn end(
    cache: &mut Cache,
    requests: &mut Requests,
    running: &mut Running,
    record: &mut PassRecord,
    request: RequestKey,
    finish: Finish,
    inserts: bool,
) {
    let progress = *requests.get(request);
    let (committed, produced) = (running.committed(&progress), running.produced(&progress));
    if progress.joined {
        cache.settle_pages(requests, request, committed);
        running.numbers.finished_rows += 1;
    }
    if inserts {
        cache.insert_finished(requests, request, committed);
    } else {
        cache.release_without_insert(requests, request);
    }
    requests.update(request, &mut cache.journal, |progress| {
        progress.finish = Some(finish);
        progress.produced = i64::from(produced);
    });
    free_slot(cache, requests, running, request);
    requests.end(request, &mut cache.journal);
    let tag = requests.spec(request).tag;
    record.finished.push(Finished { request, tag, finish, produced_tokens: produced });
}

/// The prefill role: the row gets its one token, its prompt is inserted and stays locked while the transfer runs.
fn hold(commit: &mut Commit, request: RequestKey, computed: u32) {
    let Commit { requests, running, cache, record, held, clock, .. } = commit;
    if requests.get(request).aborting {
        end(cache, requests, running, record, request, Finish::Abort, false);
        return;
    }
    requests.update(request, &mut cache.journal, |progress| progress.produced += 1);
    note_first_token(requests, record, request, requests.get(request).produced);
    cache.insert_unfinished(requests, request, computed, true);
    let since = (clock.iteration, clock.now_ns);
    requests.update(request, &mut cache.journal, |progress| {
        progress.state = State::Held;
        progress.held_since = since;
    });
    held.requests.push(request);
}

/// Releases held requests whose transfer has ended, in the order in which they were held.
pub(crate) fn end_transfers(
    cache: &mut Cache,
    requests: &mut Requests,
    running: &mut Running,
    held: &mut Held,
    record: &mut PassRecord,
    clock: &Clock,
) {
    held.requests.retain(|&request| {
        if !requests.transfer_ended(request, clock.iteration, clock.now_ns) {
            return true;
        }
        let finish = if requests.get(request).aborting { Finish::Abort } else { Finish::Transferred };
        end(cache, requests, running, record, request, finish, true);
        false
    });
}

/// Whether results of the last batch are still to be taken.
pub(crate) fn pending(batches: &Batches, overlap: bool) -> bool {
    overlap && batches.last.mode != BatchMode::Idle
}

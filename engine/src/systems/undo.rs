//! `undo`: takes back everything that a refused pass changed.
//!
//! Reads the plan's refusal; walks the journal backwards over every store, then restores their single numbers.

use crate::batch::{Batches, Plan};
use crate::cache::Cache;
use crate::engine::Engine;
use crate::iteration::Pass;
use crate::journal::{Mark, Op};
use crate::queue::Queue;
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::requests::Requests;
use crate::running::Running;
use crate::scheduler::Scheduler;

/// Every store that an iteration may change before its duration is known.
pub(crate) struct Undo<'a> {
    cache: &'a mut Cache,
    requests: &'a mut Requests,
    running: &'a mut Running,
    queue: &'a mut Queue,
    ratio: &'a mut NewTokenRatio,
    record: &'a mut PassRecord,
    batches: &'a mut Batches,
    plan: &'a mut Plan,
    mark: Mark,
}

/// Undoes the pass.
pub(crate) fn undo(engine: &mut Engine) {
    let Engine { cache, scheduler, pass, .. } = engine;
    let Scheduler { requests, running, queue, batches, .. } = scheduler;
    let Pass { plan, record, ratio, mark, .. } = pass;
    let mark = mark.take().expect("a transaction is open during a pass");
    let mut undo = Undo { cache, requests, running, queue, ratio, record, batches, plan, mark };
    undo.cache.journal.close_for_undo();
    while let Some(op) = undo.cache.journal.take_back() {
        undo.take_back(op);
    }
    undo.restore_numbers();
}

impl Undo<'_> {
    fn take_back(&mut self, op: Op) {
        let Cache { tree, pool, contents, hashes, events, journal, .. } = &mut *self.cache;
        match op {
            Op::RunMade(run) => pool.undo_made(run),
            Op::RunResized { run, pages } => pool.undo_resized(run, pages),
            Op::RunGone { run, was } => pool.undo_gone(run, was),
            Op::LeafAdded(leaf) => {
                hashes.forget(leaf);
                tree.undo_leaf(contents, leaf);
            }
            Op::NodeSplit { upper, lower, lower_tick } => {
                hashes.undo_split(upper, lower);
                tree.undo_split(contents, upper, lower, lower_tick);
            }
            Op::LeafEvicted { node, parent_touch } => tree.undo_evict(contents, node, parent_touch),
            Op::Pinned(node) => tree.unguard(node),
            Op::Unpinned(node) => tree.guard(node),
            Op::Touched { node, touch } => tree.undo_touch(node, touch),
            Op::Priority { node, priority } => tree.undo_stats(node, |stats| stats.priority = priority),
            Op::History { node, history } => tree.undo_stats(node, |stats| stats.history = history),
            Op::Progress(request) => {
                let was = journal.saved_progress();
                self.requests.undo_update(request, was);
            }
            Op::QueueTaken(request) => self.queue.undo_taken(request),
            Op::QueuePut => self.queue.undo_put(),
            Op::QueueRemoved { at, request } => self.queue.undo_removed(at, request),
            Op::QueueSorted { len } => self.queue.undo_sorted(journal.saved_order(len)),
            Op::RowAdded => self.running.undo_added(self.requests),
            Op::RowRemoved { at, request, committed } => self.running.undo_removed(at, request, committed),
            Op::EventQueued => events.undo_queued(),
            Op::EventMerged { blocks, last } => events.undo_merged(blocks, last),
        }
    }

    /// What is a single number comes back from the mark; what entered before the transaction stays in the record.
    fn restore_numbers(&mut self) {
        let mark = &self.mark;
        self.cache.pool.numbers = mark.pool;
        let undone = self.cache.tree.numbers;
        debug_assert_eq!(undone.evictable_tokens, mark.tree.evictable_tokens, "undone changes add up");
        debug_assert_eq!(undone.protected_tokens, mark.tree.protected_tokens, "undone changes add up");
        self.cache.tree.numbers = mark.tree;
        self.queue.numbers = mark.queue;
        self.running.numbers = mark.running;
        *self.ratio = mark.ratio;
        self.requests.undo_ended(mark.ended_requests);
        self.record.rejected.truncate(mark.rejected);
        self.record.dropped.truncate(mark.dropped);
        self.record.reset();
        let number = self.batches.next.number;
        self.batches.next.reset(number);
        self.plan.preempted.clear();
    }
}

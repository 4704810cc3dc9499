//! The invariants of a worker, recomputed from scratch.

use std::collections::BTreeMap;

use crate::batch::Batches;
use crate::block_hashes::BlockHashes;
use crate::cache::Cache;
use crate::config::EngineConfig;
use crate::content::Contents;
use crate::events::EventQueue;
use crate::leaves::NOT_A_CANDIDATE;
use crate::pool::{Owner, Pool};
use crate::queue::Queue;
use crate::request::RequestKey;
use crate::requests::{Progress, Requests, State};
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::tree::{NodeKey, Tree};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invariant broken: {invariant}: {detail}")]
pub struct Violation {
    /// What must hold.
    pub invariant: &'static str,
    /// What was found.
    pub detail: String,
}

type Checked = Result<(), Violation>;

fn holds<T: PartialEq + std::fmt::Debug>(invariant: &'static str, found: T, expected: T) -> Checked {
    if found == expected {
        return Ok(());
    }
    Err(Violation { invariant, detail: format!("found {found:?}, expected {expected:?}") })
}

/// The stores that the checks read.
struct Stores<'w> {
    config: &'w EngineConfig,
    contents: &'w Contents,
    pool: &'w Pool,
    tree: &'w Tree,
    requests: &'w Requests,
    running: &'w Running,
    queue: &'w Queue,
    hashes: &'w BlockHashes,
    events: &'w EventQueue,
    batches: &'w Batches,
}

/// Checks every invariant.
pub(crate) fn check(cache: &Cache, scheduler: &Scheduler) -> Checked {
    let Cache { config, contents, tree, pool, hashes, events, .. } = cache;
    let Scheduler { requests, queue, running, batches, .. } = scheduler;
    let stores = Stores { config, contents, pool, tree, requests, running, queue, hashes, events, batches };
    stores.pool_is_whole()?;
    stores.pages_have_owners()?;
    stores.tree_is_linked()?;
    stores.guards_are_right()?;
    stores.leaves_are_indexed()?;
    stores.running_counts_are_right()?;
    stores.queue_holds_who_waits()?;
    stores.mirror_equals_tree()?;
    stores.hashes_are_those_of_the_content()
}

impl Stores<'_> {
    /// Pages of a request beyond its locked path, whether they are in its own run yet or not.
    fn private_pages(&self, progress: &Progress) -> u64 {
        let committed = self.running.committed(progress);
        let live = progress.has_slot && progress.finish.is_none();
        let path = progress.protected / self.config.page_size;
        if live { u64::from(self.pool.pages_for(committed) - path) } else { 0 }
    }

    fn pool_is_whole(&self) -> Checked {
        let in_runs: u64 = self.pool.runs().map(|(_, run)| u64::from(run.pages)).sum();
        let numbers = self.pool.numbers;
        let page = u64::from(self.config.page_size);
        let total = (numbers.free_pages + numbers.decoding_pages + in_runs) * page;
        holds("free + held pages = pool", total, self.pool.total_tokens())?;
        let numbers = self.tree.numbers;
        let private: u64 = self.requests.iter().map(|(_, progress)| self.private_pages(progress)).sum();
        let tokens = self.pool.free_tokens() + numbers.evictable_tokens + numbers.protected_tokens + private * page;
        holds("free + evictable + protected + private = pool", tokens, self.pool.total_tokens())
    }

    fn pages_have_owners(&self) -> Checked {
        for (run, held) in self.pool.runs() {
            let (named, expected) = match held.owner {
                Owner::Node(node) => {
                    let row = self.tree.nodes.get(node);
                    (row.map(|row| row.run), row.map_or(0, |row| row.tokens() / self.config.page_size))
                }
                Owner::Request(request) if self.requests.knows(request) => {
                    (Some(self.requests.get(request).run), held.pages)
                }
                Owner::Request(_) => (None, 0),
            };
            holds("a page run is named by its owner", named, Some(run))?;
            holds("a node's run is as long as its edge", held.pages, expected)?;
        }
        Ok(())
    }

    fn tree_is_linked(&self) -> Checked {
        let mut children: BTreeMap<NodeKey, u32> = BTreeMap::new();
        for (key, node) in self.tree.iter() {
            *children.entry(node.parent).or_default() += 1;
            let parent = self.tree.nodes.get(node.parent);
            holds("an edge starts where its parent ends", Some(node.start), parent.map(|parent| parent.end))?;
            let aligned = node.tokens().is_multiple_of(self.config.page_size) && node.tokens() > 0;
            holds("an edge is whole pages", aligned, true)?;
            let found = self.tree.child_at(self.contents, node.parent, node.stream, node.start);
            holds("a node is found by its first page", found, Some(key))?;
        }
        for (key, node) in &self.tree.nodes {
            let expected = children.get(&key).copied().unwrap_or(0);
            holds("a node counts its children", node.children, expected)?;
        }
        Ok(())
    }

    fn guards_are_right(&self) -> Checked {
        let nodes = &self.tree.nodes;
        let mut pins: BTreeMap<NodeKey, u32> = BTreeMap::new();
        for (_, progress) in self.requests.iter().filter(|(_, progress)| nodes.contains_key(progress.pin)) {
            *pins.entry(progress.pin).or_default() += 1;
        }
        let mut by_depth: Vec<(u32, NodeKey)> = self.tree.iter().map(|(key, node)| (node.end, key)).collect();
        by_depth.sort_unstable();
        // From the leaves up: pins and protected children, and of joints what is protected right below them.
        let mut guards = pins.clone();
        let mut joint_guards = pins.clone();
        let (mut protected, mut evictable) = (0, 0);
        for &(_, key) in by_depth.iter().rev() {
            let node = &nodes[key];
            let is_protected = guards.contains_key(&key);
            if is_protected {
                *guards.entry(node.parent).or_default() += 1;
                protected += u64::from(node.tokens());
            } else {
                evictable += u64::from(node.tokens());
            }
            if node.is_link() {
                holds("a link has one child", (node.children, nodes[node.child].parent), (1, key))?;
                holds("a link is not pinned", pins.contains_key(&key), false)?;
                holds("a link counts nothing", node.guards, 0)?;
            } else {
                let expected = joint_guards.get(&key).copied().unwrap_or(0);
                holds("a joint's guards are its pins and the protected joints below it", node.guards, expected)?;
                holds("a joint with a guard is protected", expected > 0, is_protected)?;
                *joint_guards.entry(node.joint_above).or_default() += u32::from(is_protected);
            }
        }
        // From the root down: the joint above each node.
        let mut joints: BTreeMap<NodeKey, NodeKey> = BTreeMap::new();
        for &(_, key) in &by_depth {
            let node = &nodes[key];
            let above = if nodes[node.parent].is_link() { joints[&node.parent] } else { node.parent };
            joints.insert(key, above);
            if !node.is_link() {
                holds("a joint knows the joint above it", node.joint_above, above)?;
            }
        }
        holds("protected tokens are those of guarded nodes", self.tree.numbers.protected_tokens, protected)?;
        holds("evictable tokens are those of other nodes", self.tree.numbers.evictable_tokens, evictable)
    }

    fn leaves_are_indexed(&self) -> Checked {
        let mut candidates = 0;
        for (key, node) in self.tree.iter() {
            let candidate = node.guards == 0 && node.children == 0;
            holds("a leaf is indexed if it is not protected", node.leaf_position != NOT_A_CANDIDATE, candidate)?;
            if candidate {
                candidates += 1;
                let rank = self.tree.leaves.rank_at(node.leaf_position);
                holds("a leaf is indexed by its rank", rank, self.tree.rank(key))?;
            }
        }
        holds("the index holds nothing else", self.tree.leaves.len(), candidates)?;
        holds("the index is in order", self.tree.leaves.is_ordered(), true)
    }

    fn running_counts_are_right(&self) -> Checked {
        let numbers = self.running.numbers;
        let rows = self.running.rows();
        let page = i64::from(self.config.page_size);
        let mut residues = vec![0; self.config.page_size as usize];
        let (mut committed, mut finished, mut next_end) = (0, 0, i64::MAX);
        for &request in rows {
            let progress = self.requests.get(request);
            holds("a row's request is joined", progress.joined, true)?;
            residues[progress.committed.rem_euclid(page) as usize] += 1;
            committed += progress.committed;
            finished += u32::from(progress.finish.is_some());
            if progress.finish.is_none() {
                next_end = next_end.min(self.running.end_of(self.requests, request));
            }
        }
        holds("rows by length modulo the page size", self.running.residues(), residues.as_slice())?;
        holds("the sum of committed tokens", numbers.committed_sum, committed)?;
        holds("the count of finished rows", numbers.finished_rows, finished)?;
        holds("no row ends before the next end", numbers.next_end <= next_end, true)?;
        let joined = self.requests.iter().filter(|(_, progress)| progress.joined).count();
        holds("a joined request has a row", joined, rows.len())?;
        let slots = self.requests.iter().filter(|(_, progress)| progress.has_slot).count() as u32;
        holds("free slots", numbers.free_slots, self.config.max_running_requests - slots)?;
        let decoding: u64 = self.requests.iter().map(|(_, progress)| self.unsettled_pages(progress)).sum();
        holds("decode pages that no run counts", self.pool.numbers.decoding_pages, decoding)
    }

    fn unsettled_pages(&self, progress: &Progress) -> u64 {
        self.private_pages(progress).saturating_sub(u64::from(self.pool.pages(progress.run)))
    }

    fn queue_holds_who_waits(&self) -> Checked {
        let mut waiting: Vec<RequestKey> = self.queue.iter().collect();
        waiting.sort_unstable();
        let mut states: Vec<RequestKey> = self
            .requests
            .iter()
            .filter(|(_, progress)| progress.state == State::Waiting)
            .map(|(request, _)| request)
            .collect();
        states.sort_unstable();
        holds("who waits is in the queue once", waiting, states)?;
        let named = self.batches.last.extend.iter().all(|row| self.requests.knows(row.request));
        holds("the last batch names known requests", named, true)
    }

    /// What a consumer of all events, the unpublished ones included, would hold is what the tree holds.
    fn mirror_equals_tree(&self) -> Checked {
        if !self.events.is_enabled() {
            return Ok(());
        }
        let tokens = self.tree.numbers.evictable_tokens + self.tree.numbers.protected_tokens;
        let blocks = tokens / u64::from(self.config.page_size);
        holds("blocks stored less blocks removed = blocks in the tree", self.events.mirror_blocks(), blocks)
    }

    fn hashes_are_those_of_the_content(&self) -> Checked {
        if !self.hashes.are_kept() {
            return Ok(());
        }
        for (key, _) in self.tree.iter() {
            let recomputed = self.hashes.recomputed(self.tree, self.contents, key);
            holds("a node's hashes are those of its content", self.hashes.of(key), recomputed.as_slice())?;
        }
        Ok(())
    }
}

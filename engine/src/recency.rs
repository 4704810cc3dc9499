//! What the eviction policies read of a node: recency, hits, priority, branch history, and the rank that follows.
//!
//! Recency is a logical clock, but only a leaf's recency is ever compared. A walk leaves its tick as a *touch* at its end node
//! alone; a leaf that goes hands its touch to its parent, and the later one stays. The reference gives the nodes of one walk
//! slightly different ticks in the order of their depth; that order never shows, because two nodes of one walk are never
//! leaves at the same time. What a node got by itself, at its creation or at a split, is its `own_tick`.
//!
//! Hits, priority and branch history change on every node of a walk. They are kept only for the policies that read them.

use crate::config::{EvictionPolicy, EvictionPolicyConfig};
use crate::journal::{Journal, Op};
use crate::leaves::{LeafRank, NOT_A_CANDIDATE};
use crate::tree::{Node, NodeKey, NodeStats, Tree};

impl Tree {
    /// Gives the end node of a walk a fresh tick, and returns it.
    pub(crate) fn touch(&mut self, node: NodeKey, journal: &mut Journal) -> u64 {
        let tick = self.tick();
        let row = &mut self.nodes[node];
        journal.record(Op::Touched { node, touch: row.touch });
        row.touch = tick;
        self.refresh_rank(node);
        tick
    }

    /// Takes back [`Op::Touched`].
    pub(crate) fn undo_touch(&mut self, node: NodeKey, touch: u64) {
        self.nodes[node].touch = touch;
        self.refresh_rank(node);
    }

    /// What an insert of `priority` leaves on every node of its walk: a hit unless it was of a chunk, and the larger priority.
    pub(crate) fn count_insert(&mut self, end: NodeKey, priority: i64, counts_hit: bool, journal: &mut Journal) {
        let hits = counts_hit && matches!(self.policy, EvictionPolicy::Lfu | EvictionPolicy::Slru);
        let priorities = self.policy == EvictionPolicy::Priority;
        if !hits && !priorities {
            return;
        }
        // Only chunks are inserted before a pass has its duration, and they count no hit: hits need no entry.
        assert!(!hits || !journal.is_open(), "a hit is counted when results are taken");
        let mut node = end;
        while node != self.root() {
            let stats = &mut self.stats[node];
            if hits {
                stats.hits += 1;
            }
            if priorities && priority > stats.priority {
                journal.record(Op::Priority { node, priority: stats.priority });
                stats.priority = priority;
            }
            self.refresh_rank(node);
            node = self.nodes[node].parent;
        }
    }

    /// Raises the branch history of a new leaf's ancestors, for `tlru`.
    pub(crate) fn raise_history(&mut self, leaf: NodeKey, journal: &mut Journal) {
        if self.policy != EvictionPolicy::Tlru {
            return;
        }
        let depth = self.nodes[leaf].end;
        let mut node = self.nodes[leaf].parent;
        while node != self.root() && self.stats[node].history < depth {
            let stats = &mut self.stats[node];
            journal.record(Op::History { node, history: stats.history });
            stats.history = depth;
            self.refresh_rank(node);
            node = self.nodes[node].parent;
        }
    }

    /// Takes back [`Op::Priority`] and [`Op::History`].
    pub(crate) fn undo_stats(&mut self, node: NodeKey, change: impl FnOnce(&mut NodeStats)) {
        change(&mut self.stats[node]);
        self.refresh_rank(node);
    }

    /// Puts a node into the index of evictable leaves, if it is one.
    pub(crate) fn index_if_evictable(&mut self, node: NodeKey) {
        let row = &self.nodes[node];
        if row.guards == 0 && row.children == 0 && row.leaf_position == NOT_A_CANDIDATE {
            let rank = self.rank(node);
            self.leaves.insert(&mut self.nodes, node, rank);
        }
    }

    /// Moves a node in the index to where its rank now belongs.
    pub(crate) fn refresh_rank(&mut self, node: NodeKey) {
        let position = self.nodes[node].leaf_position;
        if position != NOT_A_CANDIDATE {
            let rank = self.rank(node);
            self.leaves.update(&mut self.nodes, position, rank);
        }
    }

    /// A leaf's place in the order of eviction (`behaviour.md` section 7).
    pub(crate) fn rank(&self, node: NodeKey) -> LeafRank {
        let row = &self.nodes[node];
        let recency = row.touch.max(row.own_tick);
        let stats = || &self.stats[node];
        let (class, tick) = match self.policy {
            EvictionPolicy::Lru => (0, recency),
            EvictionPolicy::Mru => (0, u64::MAX - recency),
            EvictionPolicy::Fifo => (0, stats().creation),
            EvictionPolicy::Filo => (0, u64::MAX - stats().creation),
            EvictionPolicy::Lfu => (u64::from(stats().hits), recency),
            EvictionPolicy::Slru => (u64::from(stats().hits >= self.policy_config.protected_threshold), recency),
            EvictionPolicy::Priority => (stats().priority.wrapping_sub(i64::MIN) as u64, recency),
            EvictionPolicy::Tlru => (u64::from(!self.may_go_first(row, stats().history)), recency),
        };
        LeafRank { class, tick }
    }

    /// `tlru`: whether the branch holds its time to first token without this node.
    fn may_go_first(&self, row: &Node, history: u32) -> bool {
        let EvictionPolicyConfig { threshold, next_prompt_estimate, .. } = self.policy_config;
        let budget = (u64::from(history) + u64::from(next_prompt_estimate)).saturating_sub(u64::from(threshold));
        u64::from(row.start) >= budget
    }
}

//! The index of evictable leaves: an indexed 4-ary heap by the eviction policy's key, smallest first.
//!
//! Every key is unique, so what the heap yields does not depend on how it came to be. A change costs O(log leaves) and, once
//! warm, allocates nothing. Each node knows its position, which the heap writes into the node as it moves.

use slotmap::SlotMap;

use crate::tree::{Node, NodeKey};

/// The position of a node that is not in the index.
pub(crate) const NOT_A_CANDIDATE: u32 = u32::MAX;

const ARITY: usize = 4;

/// A leaf's place in the order of eviction: the policy's class first, then its tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LeafRank {
    pub(crate) class: u64,
    pub(crate) tick: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    rank: LeafRank,
    node: NodeKey,
}

/// The evictable leaves in the order in which they would go.
#[derive(Debug, Default)]
pub(crate) struct Leaves {
    heap: Vec<Entry>,
}

impl Leaves {
    /// How many leaves could be evicted.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// The leaf that goes first.
    pub(crate) fn first(&self) -> Option<NodeKey> {
        self.heap.first().map(|entry| entry.node)
    }

    /// The rank that the index holds for the node at a position.
    pub(crate) fn rank_at(&self, position: u32) -> LeafRank {
        self.heap[position as usize].rank
    }

    /// The ranks and nodes, in no order that may be relied on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeafRank, NodeKey)> + '_ {
        self.heap.iter().map(|entry| (entry.rank, entry.node))
    }

    /// Whether every entry ranks after the one above it.
    pub(crate) fn is_ordered(&self) -> bool {
        (1..self.heap.len()).all(|at| self.heap[(at - 1) / ARITY].rank < self.heap[at].rank)
    }

    /// Adds a leaf.
    pub(crate) fn insert(&mut self, nodes: &mut SlotMap<NodeKey, Node>, node: NodeKey, rank: LeafRank) {
        let at = self.heap.len();
        self.heap.push(Entry { rank, node });
        self.rise(nodes, at);
    }

    /// Removes the leaf at a position.
    pub(crate) fn remove(&mut self, nodes: &mut SlotMap<NodeKey, Node>, position: u32) {
        let at = position as usize;
        let gone = self.heap.swap_remove(at);
        nodes[gone.node].leaf_position = NOT_A_CANDIDATE;
        if at < self.heap.len() {
            self.restore(nodes, at);
        }
    }

    /// Gives the leaf at a position a new rank.
    pub(crate) fn update(&mut self, nodes: &mut SlotMap<NodeKey, Node>, position: u32, rank: LeafRank) {
        let at = position as usize;
        self.heap[at].rank = rank;
        self.restore(nodes, at);
    }

    fn restore(&mut self, nodes: &mut SlotMap<NodeKey, Node>, at: usize) {
        if at > 0 && self.heap[at].rank < self.heap[(at - 1) / ARITY].rank {
            self.rise(nodes, at);
        } else {
            self.sink(nodes, at);
        }
    }

    fn rise(&mut self, nodes: &mut SlotMap<NodeKey, Node>, mut at: usize) {
        let entry = self.heap[at];
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent].rank <= entry.rank {
                break;
            }
            self.put(nodes, at, self.heap[parent]);
            at = parent;
        }
        self.put(nodes, at, entry);
    }

    fn sink(&mut self, nodes: &mut SlotMap<NodeKey, Node>, mut at: usize) {
        let entry = self.heap[at];
        loop {
            let first = at * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|&child| self.heap[child].rank) else {
                break;
            };
            if entry.rank <= self.heap[least].rank {
                break;
            }
            self.put(nodes, at, self.heap[least]);
            at = least;
        }
        self.put(nodes, at, entry);
    }

    fn put(&mut self, nodes: &mut SlotMap<NodeKey, Node>, at: usize, entry: Entry) {
        self.heap[at] = entry;
        nodes[entry.node].leaf_position = at as u32;
    }
}

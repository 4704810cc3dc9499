//! The radix tree: nodes, their links, pins, recency and the index of evictable leaves.
//!
//! An edge is a slice of a content stream. A node's depth in tokens is its offset in every stream that passes it, so a slice
//! is a stream and two offsets. What protects a node, and how that is counted, is in [`crate::pins`].
//!
//! Recency and what else the eviction policies read is in [`crate::recency`].

use hashbrown::HashTable;
use slotmap::{Key, SecondaryMap, SlotMap, new_key_type};

use crate::config::{EngineConfig, EvictionPolicy, EvictionPolicyConfig};
use crate::content::{Contents, StreamKey, mix};
use crate::journal::{Journal, Op};
use crate::leaves::{Leaves, NOT_A_CANDIDATE};
use crate::pool::RunKey;

new_key_type! {
    /// Names a node of the radix tree.
    pub struct NodeKey;
}

/// The hot row of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    /// The stream whose `[start, end)` is the edge, and whose `[0, end)` is the path from the root.
    pub(crate) stream: StreamKey,
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) parent: NodeKey,
    /// The pages of the edge.
    pub(crate) run: RunKey,
    /// Of a joint: pins on it, plus joints right below it that are protected. Of a link 0.
    pub(crate) guards: u32,
    pub(crate) children: u32,
    /// The child that came last; of a link, its only one.
    pub(crate) child: NodeKey,
    /// The next joint towards the root; null for a link and for the root.
    pub(crate) joint_above: NodeKey,
    /// Position in the index of evictable leaves.
    pub(crate) leaf_position: u32,
    /// Tick of the latest walk that ended here or was handed up from a leaf that went.
    pub(crate) touch: u64,
    /// Tick that this node got at its creation or at a split.
    pub(crate) own_tick: u64,
}

impl Node {
    pub(crate) fn tokens(&self) -> u32 {
        self.end - self.start
    }
}

/// The cold columns of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub(crate) struct NodeStats {
    /// Creation tick; also orders the children of a node by insertion.
    pub(crate) creation: u64,
    pub(crate) hits: u32,
    /// `tlru`: the largest depth in tokens that the branch ever had.
    pub(crate) history: u32,
    pub(crate) priority: i64,
}

/// The single numbers of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub(crate) struct TreeNumbers {
    /// The last tick given.
    pub(crate) clock: u64,
    /// Tokens in nodes without a guard.
    pub(crate) evictable_tokens: u64,
    /// Tokens in nodes with a guard.
    pub(crate) protected_tokens: u64,
    /// Tokens evicted over the worker's life.
    pub(crate) evicted_tokens: u64,
}

/// Where a walk ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    /// The last node whose whole path matched.
    pub(crate) node: NodeKey,
    /// The child of it that matched in part, and the page-aligned depth up to which it did.
    pub(crate) partial: Option<(NodeKey, u32)>,
}

/// Work done on the tree over the worker's life, for the profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeWork {
    pub(crate) nodes_walked: u64,
    pub(crate) runs_compared: u64,
    pub(crate) splits: u64,
    pub(crate) leaves_added: u64,
    pub(crate) leaves_evicted: u64,
    pub(crate) locks: u64,
    pub(crate) path_nodes: u64,
    /// Whether `path_nodes` is counted.
    pub(crate) counts_paths: bool,
}

/// The radix tree of a worker.
#[derive(Debug)]
pub struct Tree {
    page_size: u32,
    pub(crate) policy: EvictionPolicy,
    pub(crate) policy_config: EvictionPolicyConfig,
    root: NodeKey,
    pub(crate) nodes: SlotMap<NodeKey, Node>,
    pub(crate) stats: SecondaryMap<NodeKey, NodeStats>,
    /// Children by (parent, content of the first page).
    table: HashTable<NodeKey>,
    pub(crate) leaves: Leaves,
    /// The node where a stream's last walk ended: the next one starts there if it still lives.
    walk_ends: SecondaryMap<StreamKey, NodeKey>,
    /// Evicted nodes whose removal waits for the commit.
    detached: Vec<(NodeKey, Node)>,
    pub(crate) numbers: TreeNumbers,
    pub(crate) work: TreeWork,
    /// Nodes whose paths to the root are to be counted at the end of the call.
    pub(crate) paths_noted: Vec<NodeKey>,
}

impl Tree {
    /// A tree with a root only.
    pub(crate) fn new(config: &EngineConfig) -> Tree {
        let mut nodes = SlotMap::with_key();
        let root = nodes.insert(Node {
            stream: StreamKey::null(),
            start: 0,
            end: 0,
            parent: NodeKey::null(),
            run: RunKey::null(),
            guards: 1,
            children: 0,
            child: NodeKey::null(),
            joint_above: NodeKey::null(),
            leaf_position: NOT_A_CANDIDATE,
            touch: 0,
            own_tick: 0,
        });
        let mut stats = SecondaryMap::new();
        stats.insert(root, NodeStats::default());
        Tree {
            page_size: config.page_size,
            policy: config.radix_eviction_policy,
            policy_config: config.radix_eviction_policy_config,
            root,
            nodes,
            stats,
            table: HashTable::new(),
            leaves: Leaves::default(),
            walk_ends: SecondaryMap::new(),
            detached: Vec::new(),
            numbers: TreeNumbers::default(),
            work: TreeWork::default(),
            paths_noted: Vec::new(),
        }
    }

    /// The root: depth 0, always protected.
    pub(crate) fn root(&self) -> NodeKey {
        self.root
    }

    /// Depth of a node's end in tokens: what a path that ends there holds.
    pub(crate) fn depth(&self, node: NodeKey) -> u32 {
        self.nodes[node].end
    }

    /// The cold columns of a node.
    pub(crate) fn stats(&self, node: NodeKey) -> &NodeStats {
        &self.stats[node]
    }

    /// Tokens in unlocked nodes.
    pub fn evictable_tokens(&self) -> u64 {
        self.numbers.evictable_tokens
    }

    /// Tokens in locked nodes.
    pub fn protected_tokens(&self) -> u64 {
        self.numbers.protected_tokens
    }

    /// Tokens evicted over the worker's life.
    pub fn evicted_tokens(&self) -> u64 {
        self.numbers.evicted_tokens
    }

    /// Nodes without the root.
    pub fn node_count(&self) -> usize {
        self.nodes.len() - 1
    }

    /// Leaves that could be evicted now.
    pub fn evictable_leaves(&self) -> usize {
        self.leaves.len()
    }

    pub(crate) fn tick(&mut self) -> u64 {
        self.numbers.clock += 1;
        self.numbers.clock
    }

    fn floor(&self, tokens: u32) -> u32 {
        tokens - tokens % self.page_size
    }

    /// Follows the first `limit` tokens of a stream as far as the tree goes. `limit` is page-aligned.
    pub(crate) fn walk(&mut self, contents: &Contents, stream: StreamKey, limit: u32) -> Walk {
        let mut node = self.walk_start(stream, limit);
        loop {
            self.work.nodes_walked += 1;
            let at = self.nodes[node].end;
            if limit - at < self.page_size {
                return Walk { node, partial: None };
            }
            let Some(child) = self.child(contents, node, stream, at) else {
                return Walk { node, partial: None };
            };
            let edge = self.nodes[child];
            let stop = edge.end.min(limit);
            let same = contents.common_counted(stream, edge.stream, at, stop, &mut self.work.runs_compared);
            if same == edge.end {
                node = child;
            } else {
                return Walk { node, partial: Some((child, self.floor(same))) };
            }
        }
    }

    /// The deepest node known to lie on the stream's path, not below `limit`.
    fn walk_start(&self, stream: StreamKey, limit: u32) -> NodeKey {
        let Some(mut node) = self.walk_ends.get(stream).copied().filter(|&end| self.nodes.contains_key(end)) else {
            return self.root;
        };
        while self.nodes[node].end > limit {
            node = self.nodes[node].parent;
        }
        node
    }

    /// Remembers where a stream's walk ended.
    pub(crate) fn remember(&mut self, stream: StreamKey, node: NodeKey) {
        self.walk_ends.insert(stream, node);
    }

    fn child_hash(&self, contents: &Contents, parent: NodeKey, stream: StreamKey, at: u32) -> u64 {
        mix(parent.data().as_ffi() ^ contents.page_hash(stream, at, self.page_size).rotate_left(17))
    }

    fn child(&self, contents: &Contents, parent: NodeKey, stream: StreamKey, at: u32) -> Option<NodeKey> {
        let hash = self.child_hash(contents, parent, stream, at);
        let top = parent == self.root;
        let page_end = at + self.page_size;
        self.table
            .find(hash, |&child| {
                let node = &self.nodes[child];
                node.parent == parent
                    && (!top || contents.namespace_of(node.stream) == contents.namespace_of(stream))
                    && contents.common(stream, node.stream, at, page_end) == page_end
            })
            .copied()
    }

    /// The child that a page of content leads to, for the checks.
    pub(crate) fn child_at(&self, contents: &Contents, parent: NodeKey, stream: StreamKey, at: u32) -> Option<NodeKey> {
        self.child(contents, parent, stream, at)
    }

    fn table_insert(&mut self, contents: &Contents, node: NodeKey) {
        let row = self.nodes[node];
        let hash = self.child_hash(contents, row.parent, row.stream, row.start);
        let (nodes, page) = (&self.nodes, self.page_size);
        self.table.insert_unique(hash, node, |&other| {
            let row = &nodes[other];
            mix(row.parent.data().as_ffi() ^ contents.page_hash(row.stream, row.start, page).rotate_left(17))
        });
    }

    fn table_remove(&mut self, contents: &Contents, node: NodeKey) {
        let row = self.nodes[node];
        let hash = self.child_hash(contents, row.parent, row.stream, row.start);
        match self.table.find_entry(hash, |&other| other == node) {
            Ok(entry) => {
                entry.remove();
            }
            Err(_) => panic!("a node is missing from its parent's children"),
        }
    }

    /// Splits `lower` at depth `at`: a new node takes its upper part. The page run of the edge is split by the caller.
    /// Emits no event; keeps hits, creation and priority; both halves keep the lock.
    pub(crate) fn split(&mut self, contents: &mut Contents, lower: NodeKey, at: u32, journal: &mut Journal) -> NodeKey {
        let row = self.nodes[lower];
        assert!(row.start < at && at < row.end, "a split outside its edge");
        self.table_remove(contents, lower);
        contents.retain(row.stream);
        let own_tick = self.tick();
        let upper = self.nodes.insert(Node {
            end: at,
            run: RunKey::null(),
            guards: 0,
            children: 1,
            child: lower,
            joint_above: NodeKey::null(),
            leaf_position: NOT_A_CANDIDATE,
            touch: 0,
            own_tick,
            ..row
        });
        self.stats.insert(upper, self.stats[lower]);
        let lower_tick = self.tick();
        let changed = &mut self.nodes[lower];
        changed.start = at;
        changed.parent = upper;
        changed.own_tick = lower_tick;
        self.replace_child(row.parent, lower, upper);
        self.table_insert(contents, upper);
        self.table_insert(contents, lower);
        journal.record(Op::NodeSplit { upper, lower, lower_tick: row.own_tick });
        self.refresh_rank(lower);
        self.work.splits += 1;
        upper
    }

    /// Takes back [`Op::NodeSplit`].
    pub(crate) fn undo_split(&mut self, contents: &mut Contents, upper: NodeKey, lower: NodeKey, lower_tick: u64) {
        self.table_remove(contents, lower);
        self.table_remove(contents, upper);
        self.make_link(upper, lower);
        let above = self.nodes.remove(upper).expect("the upper half of a split lives until it is undone");
        self.stats.remove(upper);
        contents.release(above.stream);
        let changed = &mut self.nodes[lower];
        changed.start = above.start;
        changed.parent = above.parent;
        changed.own_tick = lower_tick;
        self.replace_child(above.parent, upper, lower);
        self.table_insert(contents, lower);
        self.refresh_rank(lower);
    }

    /// Adds a leaf for `stream[depth(parent)..end]` below `parent`, and keeps a reference to the stream. `walk_tick` is what
    /// the parent got in this insert.
    pub(crate) fn add_leaf(
        &mut self,
        contents: &mut Contents,
        parent: NodeKey,
        stream: StreamKey,
        end: u32,
        walk_tick: u64,
        journal: &mut Journal,
    ) -> NodeKey {
        let start = self.nodes[parent].end;
        let own_tick = self.tick();
        let creation = self.tick();
        contents.retain(stream);
        let leaf = self.nodes.insert(Node {
            stream,
            start,
            end,
            parent,
            run: RunKey::null(),
            guards: 0,
            children: 0,
            child: NodeKey::null(),
            joint_above: NodeKey::null(),
            leaf_position: NOT_A_CANDIDATE,
            touch: walk_tick,
            own_tick,
        });
        self.work.leaves_added += 1;
        self.stats.insert(leaf, NodeStats { creation, hits: 0, history: end, priority: i64::MIN });
        self.numbers.evictable_tokens += u64::from(end - start);
        let parent_slot = self.nodes[parent].leaf_position;
        if parent_slot != NOT_A_CANDIDATE {
            self.leaves.remove(&mut self.nodes, parent_slot);
        }
        self.gain_leaf(parent, leaf);
        self.table_insert(contents, leaf);
        journal.record(Op::LeafAdded(leaf));
        self.index_if_evictable(leaf);
        leaf
    }

    /// Takes back [`Op::LeafAdded`].
    pub(crate) fn undo_leaf(&mut self, contents: &mut Contents, leaf: NodeKey) {
        self.table_remove(contents, leaf);
        let position = self.nodes[leaf].leaf_position;
        if position != NOT_A_CANDIDATE {
            self.leaves.remove(&mut self.nodes, position);
        }
        let row = self.nodes.remove(leaf).expect("an added leaf lives until it is undone");
        self.numbers.evictable_tokens -= u64::from(row.tokens());
        self.stats.remove(leaf);
        contents.release(row.stream);
        self.lose_leaf(&row);
        self.index_if_evictable(row.parent);
    }

    /// Removes the leaf that goes first, and returns its key and row. Its page run is freed by the caller.
    pub(crate) fn evict_first(&mut self, contents: &Contents, journal: &mut Journal) -> Option<(NodeKey, Node)> {
        let leaf = self.leaves.first()?;
        let row = self.nodes[leaf];
        self.leaves.remove(&mut self.nodes, row.leaf_position);
        self.table_remove(contents, leaf);
        let row = self.nodes.detach(leaf).expect("a leaf of the index is a node of the tree");
        self.detached.push((leaf, row));
        let tokens = u64::from(row.tokens());
        self.numbers.evictable_tokens -= tokens;
        self.numbers.evicted_tokens += tokens;
        self.work.leaves_evicted += 1;
        let parent = &mut self.nodes[row.parent];
        journal.record(Op::LeafEvicted { node: leaf, parent_touch: parent.touch });
        parent.touch = parent.touch.max(row.touch);
        self.lose_leaf(&row);
        self.index_if_evictable(row.parent);
        Some((leaf, row))
    }

    /// Takes back [`Op::LeafEvicted`].
    pub(crate) fn undo_evict(&mut self, contents: &Contents, leaf: NodeKey, parent_touch: u64) {
        let (key, mut row) = self.detached.pop().expect("an evicted leaf is kept until commit");
        debug_assert_eq!(key, leaf);
        let position = self.nodes[row.parent].leaf_position;
        if position != NOT_A_CANDIDATE {
            self.leaves.remove(&mut self.nodes, position);
        }
        self.nodes[row.parent].touch = parent_touch;
        row.leaf_position = NOT_A_CANDIDATE;
        self.numbers.evictable_tokens += u64::from(row.tokens());
        self.nodes.reattach(leaf, row);
        self.gain_leaf(row.parent, leaf);
        self.table_insert(contents, leaf);
        self.index_if_evictable(leaf);
    }

    /// The leaves that were evicted in the transaction.
    pub(crate) fn detached(&self) -> impl Iterator<Item = NodeKey> + '_ {
        self.detached.iter().map(|&(leaf, _)| leaf)
    }

    /// Removes for good the leaves that were evicted in the transaction.
    pub(crate) fn commit(&mut self, contents: &mut Contents) {
        for (leaf, row) in self.detached.drain(..) {
            self.nodes.reattach(leaf, row);
            self.nodes.remove(leaf);
            self.stats.remove(leaf);
            contents.release(row.stream);
        }
    }

    /// All nodes but the root, in no order that may be relied on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeKey, &Node)> {
        self.nodes.iter().filter(|&(key, _)| key != self.root)
    }

    /// The page run of a node.
    pub(crate) fn set_run(&mut self, node: NodeKey, run: RunKey) {
        self.nodes[node].run = run;
    }
}

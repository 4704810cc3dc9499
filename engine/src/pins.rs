//! Which nodes of the tree are protected: pins, and what follows from them on the way to the root.
//!
//! A node is protected while it is pinned or has a protected child. A turn of a long session would walk hundreds of nodes that
//! have one child each, to protect them at its start and again to let go of them at its end. So a node with one child and no
//! pin may be a *link*: it is protected exactly if the next *joint* below it is, and nothing is counted on it. The other nodes
//! are joints: the root, leaves, pinned nodes, nodes with several children, and nodes that have been one of these and were not
//! made a link since. Each joint knows the joint above it, and in `guards` counts its pins and the protected joints right below
//! it. A pin goes from joint to joint, up to the first that is protected already; what lies between two joints is protected or
//! let go of as a whole, and its tokens are the difference of their depths.
//!
//! A link becomes a joint when it is pinned or gets a second child, for which the joint below it is looked up, link by link.
//! A joint becomes a link when it loses its last pin or gets its first child, but only if that child is a joint: so this takes
//! one step, and a node in the middle of a long chain that is pinned again and again stays a joint.

use slotmap::Key;

use crate::journal::{Journal, Op};
use crate::leaves::NOT_A_CANDIDATE;
use crate::tree::{Node, NodeKey, Tree};

impl Node {
    /// Whether this is a link. The root has no parent.
    pub(crate) fn is_link(&self) -> bool {
        self.joint_above.is_null() && !self.parent.is_null()
    }
}

impl Tree {
    /// Locks the path to a node once more.
    pub(crate) fn pin(&mut self, node: NodeKey, journal: &mut Journal) {
        journal.record(Op::Pinned(node));
        self.note_lock(node);
        self.guard(node);
    }

    /// Takes one lock off the path to a node.
    pub(crate) fn unpin(&mut self, node: NodeKey, journal: &mut Journal) {
        journal.record(Op::Unpinned(node));
        self.note_lock(node);
        self.unguard(node);
    }

    /// Counts a lock or a release, and notes the node for its path to the root to be counted.
    fn note_lock(&mut self, node: NodeKey) {
        self.work.locks += 1;
        if self.work.counts_paths {
            self.paths_noted.push(node);
        }
    }

    /// Counts the nodes up to the root from those noted. Nothing here has to visit them, so this is left to the end of a call,
    /// when its time has been taken. A node that has been evicted meanwhile has no path any more.
    pub(crate) fn count_noted_paths(&mut self) {
        let root = self.root();
        for mut node in self.paths_noted.drain(..) {
            while let Some(row) = self.nodes.get(node)
                && node != root
            {
                self.work.path_nodes += 1;
                node = row.parent;
            }
        }
    }

    /// Adds a guard to a node, and protects its unprotected ancestors. The root has a guard of its own, so this ends there.
    pub(crate) fn guard(&mut self, mut node: NodeKey) {
        self.make_joint(node);
        loop {
            let row = &mut self.nodes[node];
            row.guards += 1;
            if row.guards > 1 {
                return;
            }
            let (end, above, position) = (row.end, row.joint_above, row.leaf_position);
            if position != NOT_A_CANDIDATE {
                self.leaves.remove(&mut self.nodes, position);
            }
            let tokens = u64::from(end - self.nodes[above].end);
            self.numbers.evictable_tokens -= tokens;
            self.numbers.protected_tokens += tokens;
            node = above;
        }
    }

    /// Takes a guard off a node, and the protection off ancestors that had it from here alone.
    pub(crate) fn unguard(&mut self, pinned: NodeKey) {
        let mut node = pinned;
        loop {
            let row = &mut self.nodes[node];
            row.guards -= 1;
            if row.guards > 0 {
                break;
            }
            let (end, above, is_leaf) = (row.end, row.joint_above, row.children == 0);
            let tokens = u64::from(end - self.nodes[above].end);
            self.numbers.protected_tokens -= tokens;
            self.numbers.evictable_tokens += tokens;
            if is_leaf {
                self.index_if_evictable(node);
            }
            node = above;
        }
        self.make_link_if_near(pinned);
    }

    /// A leaf has come below `parent`.
    pub(crate) fn gain_leaf(&mut self, parent: NodeKey, leaf: NodeKey) {
        self.make_joint(parent);
        let row = &mut self.nodes[parent];
        row.children += 1;
        row.child = leaf;
        self.nodes[leaf].joint_above = parent;
        self.make_link_if_near(parent);
    }

    /// An unprotected leaf has gone from below its parent.
    pub(crate) fn lose_leaf(&mut self, leaf: &Node) {
        assert!(leaf.guards == 0, "only an unprotected leaf goes");
        let parent = &mut self.nodes[leaf.parent];
        parent.children -= 1;
        if parent.is_link() {
            parent.joint_above = leaf.joint_above;
        }
    }

    /// A child of `parent` is another node now, after a split or its undoing.
    pub(crate) fn replace_child(&mut self, parent: NodeKey, before: NodeKey, now: NodeKey) {
        let row = &mut self.nodes[parent];
        if row.child == before {
            row.child = now;
        }
    }

    /// Pins on a node plus children that are protected, whatever it is: what it would count as a joint.
    pub(crate) fn guards(&self, node: NodeKey) -> u32 {
        let row = &self.nodes[node];
        if row.is_link() { u32::from(self.nodes[self.joint_below(row.child)].guards > 0) } else { row.guards }
    }

    /// The first joint below a node all the way to which there is one child each.
    fn joint_below(&self, mut child: NodeKey) -> NodeKey {
        while self.nodes[child].is_link() {
            child = self.nodes[child].child;
        }
        child
    }

    /// Makes a joint of a node if it is a link.
    fn make_joint(&mut self, node: NodeKey) {
        let row = self.nodes[node];
        if !row.is_link() {
            return;
        }
        let below = self.joint_below(row.child);
        let joint = &mut self.nodes[below];
        let (above, protected) = (joint.joint_above, joint.guards > 0);
        joint.joint_above = node;
        let changed = &mut self.nodes[node];
        (changed.joint_above, changed.guards) = (above, u32::from(protected));
    }

    /// Makes a link of a joint that nobody pins and whose only child is a joint.
    fn make_link_if_near(&mut self, node: NodeKey) {
        let row = &self.nodes[node];
        if row.children != 1 || row.parent.is_null() {
            return;
        }
        // The child that came last may have gone, and then another one be left.
        let Some(child) = self.nodes.get(row.child).filter(|child| child.parent == node && !child.is_link()) else {
            return;
        };
        if row.guards == u32::from(child.guards > 0) {
            self.make_link(node, row.child);
        }
    }

    /// Makes a link of a node that nobody pins, whose only child is `child`, if it is none.
    pub(crate) fn make_link(&mut self, node: NodeKey, child: NodeKey) {
        let below = self.joint_below(child);
        let row = &mut self.nodes[node];
        if row.is_link() {
            return;
        }
        let above = std::mem::replace(&mut row.joint_above, NodeKey::null());
        (row.guards, row.child) = (0, child);
        self.nodes[below].joint_above = above;
    }
}

//! The prefix tree, with nodes in a plain list.

use super::events::EventQueue;
use super::settings::Eviction;

/// Names a node; 0 is the root.
pub type NodeId = usize;

/// The root.
pub const ROOT: NodeId = 0;

/// When a node was last used: a tick, less so many epsilons.
///
/// A match gives one tick to its whole path, less one epsilon a step up, so that a parent is always a little older than its child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recency {
    /// The tick.
    pub tick: i128,
    /// The epsilons.
    pub back: i128,
}

/// A node, and the edge that leads to it.
#[derive(Clone, Debug)]
pub struct Node {
    /// The tokens of its edge, whole pages.
    pub tokens: Vec<u32>,
    /// The namespace of everything below the root's child that it hangs under.
    pub space: Option<String>,
    /// Its parent; the root has none.
    pub parent: Option<NodeId>,
    /// Its children in order of insertion.
    pub children: Vec<NodeId>,
    /// How many requests lock it.
    pub locks: u64,
    /// When it was last used.
    pub recency: Recency,
    /// The tick when it was made.
    pub created: i128,
    /// How many inserts passed it.
    pub hits: i128,
    /// The highest priority that passed it.
    pub priority: i128,
    /// The largest depth in tokens that its branch ever had.
    pub history: usize,
    /// Whether it is still in the tree.
    pub alive: bool,
}

/// The tree.
#[derive(Clone, Debug)]
pub struct Tree {
    /// All nodes that there ever were.
    pub nodes: Vec<Node>,
    /// Tokens in a page.
    pub page: usize,
    /// Which leaf goes first.
    pub eviction: Eviction,
    /// What was not published yet.
    pub events: EventQueue,
    clock: i128,
}

impl Tree {
    /// A tree with nothing in it.
    pub fn new(page: usize, eviction: Eviction) -> Tree {
        let mut tree = Tree { nodes: Vec::new(), page, eviction, events: EventQueue::default(), clock: 0 };
        tree.new_node(Vec::new(), None, None);
        tree
    }

    /// The longest match of a token sequence in whole pages: its end and its length. It may split the edge where it ends.
    pub fn match_prefix(&mut self, space: Option<&str>, tokens: &[u32]) -> (NodeId, usize) {
        let tokens = self.whole_pages(tokens);
        if tokens.is_empty() {
            return (ROOT, 0);
        }
        let mut node = ROOT;
        let mut at = 0;
        while let Some(child) = self.child(node, space, &tokens[at..]) {
            let common = self.common(child, &tokens[at..]);
            at += common;
            if common < self.nodes[child].tokens.len() {
                node = self.split(child, common);
                break;
            }
            node = child;
        }
        self.touch_path(node);
        (node, at)
    }

    /// Puts a token sequence in, in whole pages. With `counts` it is a hit for each node on the way.
    pub fn insert(&mut self, space: Option<&str>, tokens: &[u32], priority: i128, counts: bool) {
        let tokens = self.whole_pages(tokens).to_vec();
        self.touch(ROOT);
        if tokens.is_empty() {
            return;
        }
        let mut node = ROOT;
        let mut at = 0;
        while let Some(child) = self.child(node, space, &tokens[at..]) {
            self.touch(child);
            let common = self.common(child, &tokens[at..]);
            node = if common < self.nodes[child].tokens.len() { self.split(child, common) } else { child };
            self.pass(node, priority, counts);
            at += common;
        }
        if at < tokens.len() {
            let leaf = self.new_node(tokens[at..].to_vec(), space.map(str::to_string), Some(node));
            self.nodes[node].children.push(leaf);
            self.nodes[leaf].priority = priority;
            self.nodes[leaf].hits = i128::from(counts);
            self.raise_history(leaf, tokens.len());
            self.events.stored(&tokens, at, self.page);
        }
    }

    /// Locks the path to a node.
    pub fn lock(&mut self, node: NodeId) {
        for id in self.path(node) {
            self.nodes[id].locks += 1;
        }
    }

    /// Unlocks the path to a node.
    pub fn unlock(&mut self, node: NodeId) {
        for id in self.path(node) {
            self.nodes[id].locks -= 1;
        }
    }

    /// Tokens in nodes without a lock.
    pub fn evictable(&self) -> i64 {
        self.count(|node| node.locks == 0)
    }

    /// Tokens in nodes with a lock.
    pub fn protected(&self) -> i64 {
        self.count(|node| node.locks > 0)
    }

    /// All tokens from the root to a node's end.
    pub fn path_tokens(&self, node: NodeId) -> Vec<u32> {
        let mut steps = self.path(node);
        steps.reverse();
        steps.into_iter().flat_map(|id| self.nodes[id].tokens.clone()).collect()
    }

    /// A node and its ancestors, without the root.
    pub fn path(&self, node: NodeId) -> Vec<NodeId> {
        let mut steps = Vec::new();
        let mut at = node;
        while let Some(parent) = self.nodes[at].parent {
            steps.push(at);
            at = parent;
        }
        steps
    }

    fn count(&self, which: impl Fn(&Node) -> bool) -> i64 {
        let here = self.nodes.iter().filter(|node| node.alive && node.parent.is_some() && which(node));
        here.map(|node| node.tokens.len() as i64).sum()
    }

    fn whole_pages<'t>(&self, tokens: &'t [u32]) -> &'t [u32] {
        &tokens[..tokens.len() / self.page * self.page]
    }

    fn tick(&mut self) -> i128 {
        self.clock += 1;
        self.clock
    }

    fn touch(&mut self, node: NodeId) {
        self.nodes[node].recency = Recency { tick: self.tick(), back: 0 };
    }

    fn touch_path(&mut self, end: NodeId) {
        let tick = self.tick();
        let mut steps = self.path(end);
        steps.push(ROOT);
        for (back, id) in steps.into_iter().enumerate() {
            self.nodes[id].recency = Recency { tick, back: back as i128 };
        }
    }

    fn pass(&mut self, node: NodeId, priority: i128, counts: bool) {
        self.nodes[node].priority = self.nodes[node].priority.max(priority);
        self.nodes[node].hits += i128::from(counts);
    }

    fn child(&self, node: NodeId, space: Option<&str>, rest: &[u32]) -> Option<NodeId> {
        let first = rest.get(..self.page)?;
        let matches =
            |id: &&NodeId| self.nodes[**id].space.as_deref() == space && self.nodes[**id].tokens[..self.page] == *first;
        self.nodes[node].children.iter().find(matches).copied()
    }

    fn common(&self, node: NodeId, rest: &[u32]) -> usize {
        let same = self.nodes[node].tokens.iter().zip(rest).take_while(|(a, b)| a == b).count();
        same / self.page * self.page
    }

    fn new_node(&mut self, tokens: Vec<u32>, space: Option<String>, parent: Option<NodeId>) -> NodeId {
        let recency = Recency { tick: self.tick(), back: 0 };
        let created = self.tick();
        let node = Node {
            tokens,
            space,
            parent,
            children: Vec::new(),
            locks: 0,
            recency,
            created,
            hits: 0,
            priority: 0,
            history: 0,
            alive: true,
        };
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// Cuts an edge after `length` tokens; the new node is the upper half, the lower half keeps its name.
    fn split(&mut self, lower: NodeId, length: usize) -> NodeId {
        let old = self.nodes[lower].clone();
        let upper = self.new_node(old.tokens[..length].to_vec(), old.space, old.parent);
        let half = &mut self.nodes[upper];
        half.children = vec![lower];
        half.locks = old.locks;
        half.created = old.created;
        half.hits = old.hits;
        half.priority = old.priority;
        half.history = old.history;
        self.nodes[lower].tokens.drain(..length);
        self.nodes[lower].parent = Some(upper);
        if let Some(parent) = old.parent {
            // The upper half stands where the whole stood among its siblings.
            let siblings = &mut self.nodes[parent].children;
            siblings.iter_mut().filter(|id| **id == lower).for_each(|id| *id = upper);
        }
        self.touch(lower);
        upper
    }

    fn raise_history(&mut self, leaf: NodeId, depth: usize) {
        for id in self.path(leaf) {
            self.nodes[id].history = self.nodes[id].history.max(depth);
        }
    }
}

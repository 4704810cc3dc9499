//! The KV event queue: what was stored and removed since the last publication, merged as the reference merges.
//!
//! An event is a number of blocks, whatever the page size: queueing, merging and counting cost O(1).

use slotmap::Key;

use crate::content::Contents;
use crate::journal::{Journal, Op};
use crate::tree::{NodeKey, Tree};

/// What happened to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// The cache is new and empty.
    Cleared,
    /// Blocks came into the cache below the root.
    StoredAtRoot,
    /// Blocks came into the cache below a cached block.
    Stored,
    /// Blocks left the cache.
    Removed,
}

/// One KV event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// To how many blocks of a page each.
    pub blocks: u64,
}

/// Why a batch of events was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// After the results of an extend batch.
    Prefill,
    /// After the results of every `decode_log_interval`-th decode batch.
    DecodeInterval,
    /// When the worker is idle.
    Idle,
}

impl Why {
    /// The word that logs use.
    pub fn as_str(self) -> &'static str {
        match self {
            Why::Prefill => "prefill",
            Why::DecodeInterval => "decode_interval",
            Why::Idle => "idle",
        }
    }
}

/// One published batch: a range of [`Published::events`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedBatch {
    /// Why it was published.
    pub why: Why,
    /// Index of its first event.
    pub first: u32,
    /// How many events it has, at least 1.
    pub count: u32,
}

/// What an iteration published.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The batches in order.
    pub batches: Vec<PublishedBatch>,
    /// The events of all of them.
    pub events: Vec<Event>,
}

impl Published {
    /// The events of a batch.
    pub fn events_of(&self, batch: &PublishedBatch) -> &[Event] {
        &self.events[batch.first as usize..(batch.first + batch.count) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Queued {
    event: Event,
    /// The node whose last block is the last one of a stored event.
    last: NodeKey,
}

/// The events that wait for publication.
#[derive(Debug, Hash)]
pub struct EventQueue {
    enabled: bool,
    page_size: u32,
    queued: Vec<Queued>,
    /// Blocks that a consumer of all published events holds.
    published_blocks: u64,
}

impl EventQueue {
    /// A queue whose first event says that the cache is empty; one that is not `enabled` stays empty.
    pub(crate) fn new(enabled: bool, page_size: u32) -> EventQueue {
        let cleared = Queued { event: Event { kind: EventKind::Cleared, blocks: 0 }, last: NodeKey::null() };
        let queued = if enabled { vec![cleared] } else { Vec::new() };
        EventQueue { enabled, page_size, queued, published_blocks: 0 }
    }

    /// Whether events are queued at all.
    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Blocks that a consumer would hold after all published and waiting events.
    pub(crate) fn mirror_blocks(&self) -> u64 {
        self.queued.iter().fold(self.published_blocks, |held, queued| match queued.event.kind {
            EventKind::Cleared => 0,
            EventKind::Stored | EventKind::StoredAtRoot => held + queued.event.blocks,
            EventKind::Removed => held - queued.event.blocks,
        })
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }

    /// The events that wait.
    pub fn waiting(&self) -> impl Iterator<Item = Event> + '_ {
        self.queued.iter().map(|queued| queued.event)
    }

    /// Queues the storing of a new leaf, or merges it into the last event when its parent is that one's last block.
    pub(crate) fn stored(&mut self, tree: &Tree, contents: &Contents, leaf: NodeKey, journal: &mut Journal) {
        if !self.enabled {
            return;
        }
        let row = &tree.nodes[leaf];
        let blocks = u64::from(row.tokens() / self.page_size);
        let at_root = row.parent == tree.root();
        if let Some(tail) = self.queued.last_mut()
            && !at_root
            && matches!(tail.event.kind, EventKind::Stored | EventKind::StoredAtRoot)
            && (tail.last == row.parent || same_block(tree, contents, tail.last, row.parent))
        {
            journal.record(Op::EventMerged { blocks: tail.event.blocks, last: tail.last });
            tail.event.blocks += blocks;
            tail.last = leaf;
            return;
        }
        let kind = if at_root { EventKind::StoredAtRoot } else { EventKind::Stored };
        self.push(Queued { event: Event { kind, blocks }, last: leaf }, journal);
    }

    /// Queues the removal of `tokens` tokens, or merges it into a last event that is a removal too.
    pub(crate) fn removed(&mut self, tokens: u32, journal: &mut Journal) {
        if !self.enabled {
            return;
        }
        let blocks = u64::from(tokens / self.page_size);
        if let Some(tail) = self.queued.last_mut()
            && tail.event.kind == EventKind::Removed
        {
            journal.record(Op::EventMerged { blocks: tail.event.blocks, last: tail.last });
            tail.event.blocks += blocks;
            return;
        }
        self.push(Queued { event: Event { kind: EventKind::Removed, blocks }, last: NodeKey::null() }, journal);
    }

    fn push(&mut self, queued: Queued, journal: &mut Journal) {
        self.queued.push(queued);
        journal.record(Op::EventQueued);
    }

    /// Moves all waiting events into a published batch, if there are any.
    pub(crate) fn publish(&mut self, why: Why, published: &mut Published) {
        if self.queued.is_empty() {
            return;
        }
        self.published_blocks = self.mirror_blocks();
        let first = published.events.len() as u32;
        published.events.extend(self.queued.drain(..).map(|queued| queued.event));
        let count = published.events.len() as u32 - first;
        published.batches.push(PublishedBatch { why, first, count });
    }

    /// Takes back [`Op::EventQueued`].
    pub(crate) fn undo_queued(&mut self) {
        self.queued.pop();
    }

    /// Takes back [`Op::EventMerged`].
    pub(crate) fn undo_merged(&mut self, blocks: u64, last: NodeKey) {
        let tail = self.queued.last_mut().expect("an event that was merged into is still queued");
        tail.event.blocks = blocks;
        tail.last = last;
    }
}

/// Whether the last blocks of two nodes have the same hash: nodes of different namespaces can, since the namespace does not
/// enter the event hash.
fn same_block(tree: &Tree, contents: &Contents, left: NodeKey, right: NodeKey) -> bool {
    if !contents.has_namespaces() {
        return false;
    }
    let (Some(a), Some(b)) = (tree.nodes.get(left), tree.nodes.get(right)) else {
        return false;
    };
    a.end == b.end && contents.common(a.stream, b.stream, 0, a.end) == a.end
}

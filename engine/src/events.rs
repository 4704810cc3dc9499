//! The KV event queue: what was stored and removed since the last publication, merged as the reference merges.
//!
//! An event is a number of blocks, whatever the page size: queueing, merging and counting cost O(1). Hashes and token ids are
//! added behind it, in flat lists in event order, where the [`EventDetail`] asks for them.

use slotmap::Key;

use crate::block_hashes::{BlockHashes, EventDetail};
use crate::content::{Contents, Run};
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

/// What an event says beyond its count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Link {
    /// The hash of the block that a stored event hangs below.
    parent: i64,
    /// How many runs its tokens are.
    token_runs: u32,
}

/// Hashes and tokens of a list of events, in its order; empty while only counts are wanted.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
struct Details {
    links: Vec<Link>,
    /// A hash for each block of each event.
    hashes: Vec<i64>,
    token_runs: Vec<Run>,
}

impl Details {
    fn clear(&mut self) {
        self.links.clear();
        self.hashes.clear();
        self.token_runs.clear();
    }

    fn move_to(&mut self, other: &mut Details) {
        other.links.append(&mut self.links);
        other.hashes.append(&mut self.hashes);
        other.token_runs.append(&mut self.token_runs);
    }

    /// Adds blocks to the last event.
    fn extend(&mut self, hashes: &[i64], runs: impl Iterator<Item = Run>) {
        self.hashes.extend_from_slice(hashes);
        let before = self.token_runs.len();
        self.token_runs.extend(runs);
        if let Some(link) = self.links.last_mut() {
            link.token_runs += (self.token_runs.len() - before) as u32;
        }
    }

    /// Takes blocks off the last event. What one call of `extend` added goes as a whole, so that no run is cut.
    fn cut(&mut self, blocks: u64, tokens: u64) {
        let Some(link) = self.links.last_mut() else {
            return;
        };
        self.hashes.truncate(self.hashes.len() - blocks as usize);
        let mut left = tokens;
        while left > 0 && link.token_runs > 0 {
            let run = self.token_runs.pop().expect("an event's runs are listed");
            left -= u64::from(run.count);
            link.token_runs -= 1;
        }
    }
}

/// An event with what it says beyond its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DetailedEvent<'e> {
    /// What happened, and to how many blocks.
    pub event: Event,
    /// The hash of the block below which blocks were stored; none at the root, and while only counts are wanted.
    pub parent: Option<i64>,
    /// The hash of each block in order; empty while only counts are wanted.
    pub hashes: &'e [i64],
    /// The tokens of stored blocks; empty unless they are wanted.
    pub token_runs: &'e [Run],
}

/// What an iteration published.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The batches in order.
    pub batches: Vec<PublishedBatch>,
    /// The events of all of them.
    pub events: Vec<Event>,
    details: Details,
}

impl Published {
    /// The events of a batch.
    pub fn events_of(&self, batch: &PublishedBatch) -> &[Event] {
        &self.events[batch.first as usize..(batch.first + batch.count) as usize]
    }

    /// The events of a batch with their hashes and tokens, as far as [`EventDetail`] asked for them.
    pub fn detailed(&self, batch: &PublishedBatch) -> impl Iterator<Item = DetailedEvent<'_>> {
        detailed(self.events.iter().copied(), &self.details).skip(batch.first as usize).take(batch.count as usize)
    }

    pub(crate) fn clear(&mut self) {
        self.batches.clear();
        self.events.clear();
        self.details.clear();
    }
}

/// Pairs events with their details.
fn detailed<'d>(
    events: impl Iterator<Item = Event> + 'd,
    details: &'d Details,
) -> impl Iterator<Item = DetailedEvent<'d>> + 'd {
    let (mut hashes, mut token_runs) = (details.hashes.as_slice(), details.token_runs.as_slice());
    let mut links = details.links.iter();
    events.map(move |event| {
        let Some(link) = links.next() else {
            return DetailedEvent { event, parent: None, hashes: &[], token_runs: &[] };
        };
        let parent = (event.kind == EventKind::Stored).then_some(link.parent);
        let (own_hashes, other_hashes) = hashes.split_at(event.blocks as usize);
        let (own_runs, other_runs) = token_runs.split_at(link.token_runs as usize);
        (hashes, token_runs) = (other_hashes, other_runs);
        DetailedEvent { event, parent, hashes: own_hashes, token_runs: own_runs }
    })
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
    details: Details,
    /// Blocks that a consumer of all published events holds.
    published_blocks: u64,
}

impl EventQueue {
    /// A queue whose first event says that the cache is empty; one that is not `enabled` stays empty.
    pub(crate) fn new(enabled: bool, page_size: u32) -> EventQueue {
        let cleared = Queued { event: Event { kind: EventKind::Cleared, blocks: 0 }, last: NodeKey::null() };
        let queued = if enabled { vec![cleared] } else { Vec::new() };
        EventQueue { enabled, page_size, queued, details: Details::default(), published_blocks: 0 }
    }

    /// Makes room for details of the events that wait. There are no blocks in them yet.
    pub(crate) fn want_details(&mut self, wanted: bool) {
        debug_assert!(self.queued.iter().all(|queued| queued.event.blocks == 0));
        self.details.clear();
        if wanted {
            self.details.links.resize(self.queued.len(), Link::default());
        }
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

    /// The events that wait, with their details.
    pub fn waiting_detailed(&self) -> impl Iterator<Item = DetailedEvent<'_>> {
        detailed(self.waiting(), &self.details)
    }

    /// Queues the storing of a new leaf, or merges it into the last event when its parent is that one's last block.
    pub(crate) fn stored(
        &mut self,
        tree: &Tree,
        contents: &Contents,
        hashes: &BlockHashes,
        leaf: NodeKey,
        journal: &mut Journal,
    ) {
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
        } else {
            let kind = if at_root { EventKind::StoredAtRoot } else { EventKind::Stored };
            self.push(Queued { event: Event { kind, blocks }, last: leaf }, journal);
            if hashes.are_kept() {
                self.details.links.push(Link { parent: hashes.last_of(row.parent), token_runs: 0 });
            }
        }
        if hashes.are_kept() {
            let with_tokens = hashes.detail == EventDetail::HashesAndTokens;
            let end = if with_tokens { row.end } else { row.start };
            self.details.extend(hashes.of(leaf), contents.runs(row.stream, row.start, end));
        }
    }

    /// Queues the removal of a leaf of `tokens` tokens, or merges it into a last event that is a removal too.
    pub(crate) fn removed(&mut self, leaf: NodeKey, tokens: u32, hashes: &BlockHashes, journal: &mut Journal) {
        if !self.enabled {
            return;
        }
        let blocks = u64::from(tokens / self.page_size);
        if let Some(tail) = self.queued.last_mut()
            && tail.event.kind == EventKind::Removed
        {
            journal.record(Op::EventMerged { blocks: tail.event.blocks, last: tail.last });
            tail.event.blocks += blocks;
        } else {
            self.push(Queued { event: Event { kind: EventKind::Removed, blocks }, last: NodeKey::null() }, journal);
            if hashes.are_kept() {
                self.details.links.push(Link::default());
            }
        }
        self.details.extend(hashes.of(leaf), std::iter::empty());
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
        self.details.move_to(&mut published.details);
        let count = published.events.len() as u32 - first;
        published.batches.push(PublishedBatch { why, first, count });
    }

    /// Takes back [`Op::EventQueued`].
    pub(crate) fn undo_queued(&mut self) {
        let queued = self.queued.pop().expect("a queued event waits until it is undone");
        self.details.cut(queued.event.blocks, queued.event.blocks * u64::from(self.page_size));
        self.details.links.pop();
    }

    /// Takes back [`Op::EventMerged`].
    pub(crate) fn undo_merged(&mut self, blocks: u64, last: NodeKey) {
        let tail = self.queued.last_mut().expect("an event that was merged into is still queued");
        let added = tail.event.blocks - blocks;
        self.details.cut(added, added * u64::from(self.page_size));
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

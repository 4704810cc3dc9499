//! The undo journal: what an iteration changed before its duration was known.
//!
//! Between an iteration's start and the timing model's answer each change of a store appends one small typed entry here, in
//! one flat list so that the order across stores is kept. Commit is a truncation; undo walks the list backwards. Nothing is
//! recorded while the journal is closed. Stores offer verbs that take the journal and never hand out their columns.
//!
//! What is a single number in a store (free pages, clocks, latches) is not an entry of its own: the stores keep such numbers
//! together in one small struct each, and the mark that opens a transaction holds their values.

use crate::pool::{PageRun, PoolNumbers, RunKey};
use crate::queue::QueueNumbers;
use crate::ratio::NewTokenRatio;
use crate::request::RequestKey;
use crate::requests::Progress;
use crate::running::RunningNumbers;
use crate::tree::{NodeKey, TreeNumbers};

/// One change, with what is needed to take it back.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// A page run came into being.
    RunMade(RunKey),
    /// A page run changed its length from `pages`.
    RunResized { run: RunKey, pages: u32 },
    /// A page run went; the key is detached until commit.
    RunGone { run: RunKey, was: PageRun },
    /// A leaf was added below its parent.
    LeafAdded(NodeKey),
    /// `lower` lost its first part to the new node `upper`.
    NodeSplit { upper: NodeKey, lower: NodeKey, lower_tick: u64 },
    /// A leaf was evicted; its value lies on the tree's list of detached nodes.
    LeafEvicted { node: NodeKey, parent_touch: u64 },
    /// A node gained a pin.
    Pinned(NodeKey),
    /// A node lost a pin.
    Unpinned(NodeKey),
    /// A node was touched; it had this touch before.
    Touched { node: NodeKey, touch: u64 },
    /// A node had this priority before.
    Priority { node: NodeKey, priority: i64 },
    /// A node had this branch history before.
    History { node: NodeKey, history: u32 },
    /// A request's progress was changed; the row lies on the journal's list of saved rows.
    Progress(RequestKey),
    /// A request left the front of the waiting queue.
    QueueTaken(RequestKey),
    /// A request was put at the back of the waiting queue.
    QueuePut,
    /// A request left the waiting queue from position `at`.
    QueueRemoved { at: u32, request: RequestKey },
    /// The waiting queue was reordered; its former order lies on the journal's list of saved orders.
    QueueSorted { len: u32 },
    /// The running batch gained a row at its end.
    RowAdded,
    /// The running batch lost the row at `at`.
    RowRemoved { at: u32, request: RequestKey, committed: i64 },
    /// An event was queued.
    EventQueued,
    /// An event was merged into the queue's last one, which had these blocks and, for a stored one, this last node.
    EventMerged { blocks: u64, last: NodeKey },
}

impl Op {
    /// How many kinds of entries there are.
    pub(crate) const KINDS: usize = 20;

    /// The kind of the entry, for counting.
    pub(crate) fn kind(&self) -> usize {
        match self {
            Op::RunMade(_) => 0,
            Op::RunResized { .. } => 1,
            Op::RunGone { .. } => 2,
            Op::LeafAdded(_) => 3,
            Op::NodeSplit { .. } => 4,
            Op::LeafEvicted { .. } => 5,
            Op::Pinned(_) => 6,
            Op::Unpinned(_) => 7,
            Op::Touched { .. } => 8,
            Op::Priority { .. } => 9,
            Op::History { .. } => 10,
            Op::Progress(_) => 11,
            Op::QueueTaken(_) => 12,
            Op::QueuePut => 13,
            Op::QueueRemoved { .. } => 14,
            Op::QueueSorted { .. } => 15,
            Op::RowAdded => 16,
            Op::RowRemoved { .. } => 17,
            Op::EventQueued => 18,
            Op::EventMerged { .. } => 19,
        }
    }
}

/// The single numbers of all stores when the transaction was opened.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) pool: PoolNumbers,
    pub(crate) tree: TreeNumbers,
    pub(crate) queue: QueueNumbers,
    pub(crate) running: RunningNumbers,
    pub(crate) ratio: NewTokenRatio,
    pub(crate) ended_requests: usize,
    /// Lengths of the record's lists that `enter` wrote to.
    pub(crate) rejected: usize,
    pub(crate) dropped: usize,
}

/// The list of changes of the open transaction.
#[derive(Debug, Default)]
pub struct Journal {
    ops: Vec<Op>,
    saved_progress: Vec<Progress>,
    saved_order: Vec<RequestKey>,
    open: bool,
    /// Entries recorded over the worker's life.
    recorded: u64,
    /// Entries taken back over the worker's life, by kind.
    undone: [u64; Op::KINDS],
}

impl Journal {
    /// Opens a transaction.
    pub(crate) fn begin(&mut self) {
        assert!(!self.open && self.ops.is_empty(), "a transaction is already open");
        self.open = true;
    }

    /// Whether changes are recorded now. A build with the feature `no-journal` records nothing: it exists to measure what
    /// recording costs, and cannot undo.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open && !cfg!(feature = "no-journal")
    }

    /// Appends an entry while a transaction is open.
    #[inline]
    pub(crate) fn record(&mut self, op: Op) {
        if self.is_open() {
            self.ops.push(op);
        }
    }

    /// Saves a request's progress before a change.
    #[inline]
    pub(crate) fn save_progress(&mut self, request: RequestKey, progress: Progress) {
        if self.is_open() {
            self.saved_progress.push(progress);
            self.ops.push(Op::Progress(request));
        }
    }

    /// Saves the order of the waiting queue before it is sorted.
    pub(crate) fn save_order(&mut self, order: impl Iterator<Item = RequestKey>) {
        if self.is_open() {
            let before = self.saved_order.len();
            self.saved_order.extend(order);
            self.ops.push(Op::QueueSorted { len: (self.saved_order.len() - before) as u32 });
        }
    }

    /// Ends the transaction and forgets its entries.
    pub(crate) fn commit(&mut self) {
        assert!(self.open, "no transaction is open");
        self.open = false;
        self.recorded += self.ops.len() as u64;
        self.ops.clear();
        self.saved_progress.clear();
        self.saved_order.clear();
    }

    /// Ends the transaction for undoing: from now on [`Journal::take_back`] yields its entries, last first.
    pub(crate) fn close_for_undo(&mut self) {
        assert!(self.open, "no transaction is open");
        if cfg!(feature = "no-journal") {
            panic!("a build without a journal cannot undo a pass");
        }
        self.open = false;
        self.recorded += self.ops.len() as u64;
    }

    /// The last entry that is not yet taken back.
    pub(crate) fn take_back(&mut self) -> Option<Op> {
        let op = self.ops.pop()?;
        self.undone[op.kind()] += 1;
        Some(op)
    }

    /// The last saved progress.
    pub(crate) fn saved_progress(&mut self) -> Progress {
        self.saved_progress.pop().expect("each progress entry saved one row")
    }

    /// The last saved queue order, of `len` requests.
    pub(crate) fn saved_order(&mut self, len: u32) -> std::vec::Drain<'_, RequestKey> {
        let from = self.saved_order.len() - len as usize;
        self.saved_order.drain(from..)
    }

    /// Entries recorded over the worker's life, for the profile.
    pub fn recorded(&self) -> u64 {
        self.recorded
    }

    /// Entries taken back over the worker's life, by kind, for tests that each kind is exercised.
    pub fn undone_by_kind(&self) -> &[u64] {
        &self.undone
    }
}

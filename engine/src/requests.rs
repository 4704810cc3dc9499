//! The requests in the worker: what was asked (a column that never changes) and how far each has come.

use slotmap::{Key, SecondaryMap, SlotMap};

use crate::config::EngineConfig;
use crate::journal::Journal;
use crate::pool::RunKey;
use crate::request::{Finish, RequestKey, RequestSpec, Transfer};
use crate::tree::NodeKey;

/// Stands for a missing priority: beyond every priority that can be given, and far enough for any threshold.
pub(crate) const LEAST_PREFERRED: i64 = 1 << 40;

/// Where a request stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Submitted, not yet entered.
    Submitted,
    /// In the waiting queue.
    Waiting,
    /// Between two chunks of its prefill.
    Chunked,
    /// In a batch or between batches.
    Running,
    /// Prefilled and held until its transfer has ended.
    Held,
    /// Ended; kept only while a batch still has a row for it.
    Ended,
}

/// How far a request has come. All lengths in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub(crate) struct Progress {
    pub(crate) state: State,
    /// Whether it holds a request slot.
    pub(crate) has_slot: bool,
    /// Whether it has a row in the running batch: then `committed` and `produced` count from the batch's clocks.
    pub(crate) joined: bool,
    /// Cancelled: the next result ends it.
    pub(crate) aborting: bool,
    pub(crate) finish: Option<Finish>,
    /// The end node of the path it locks, null without one.
    pub(crate) pin: NodeKey,
    /// The tokens of that path.
    pub(crate) protected: u32,
    /// Its own pages beyond the locked path.
    pub(crate) run: RunKey,
    /// Tokens whose KV is computed and known to be its prefix when its next chunk starts.
    pub(crate) prefix: u32,
    /// End of its last extend.
    pub(crate) extend_end: u32,
    pub(crate) committed: i64,
    pub(crate) produced: i64,
    /// Match of the last ordering by a cache-aware policy.
    pub(crate) matched: u32,
    /// The end node of that match.
    pub(crate) matched_node: NodeKey,
    /// Uncached tokens that a preemption would have to make room for: those of the last test, see `behaviour.md` section 3.
    pub(crate) tested_total: u32,
    pub(crate) tested_prefix: u32,
    /// Place in the order of entries to the waiting queue.
    pub(crate) queue_entry: u64,
    /// The growth counter of `hrrn` when it entered the queue.
    pub(crate) entry_counter: u64,
    pub(crate) retractions: u32,
    /// The last batch in which it had a row.
    pub(crate) batch: u64,
    /// For a held request: the iteration and the time at which the transfer began, and whether it was released.
    pub(crate) held_since: (u64, u64),
    pub(crate) released: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            state: State::Submitted,
            has_slot: false,
            joined: false,
            aborting: false,
            finish: None,
            pin: NodeKey::null(),
            protected: 0,
            run: RunKey::null(),
            prefix: 0,
            extend_end: 0,
            committed: 0,
            produced: 0,
            matched: 0,
            matched_node: NodeKey::null(),
            tested_total: 0,
            tested_prefix: 0,
            queue_entry: 0,
            entry_counter: 0,
            retractions: 0,
            batch: 0,
            held_since: (0, 0),
            released: false,
        }
    }

    /// What a retraction or preemption leaves: nothing but the produced tokens.
    pub(crate) fn retract(&mut self) {
        self.state = State::Waiting;
        self.pin = NodeKey::null();
        self.protected = 0;
        self.run = RunKey::null();
        self.prefix = 0;
        self.extend_end = 0;
        self.committed = 0;
        self.matched = 0;
        self.matched_node = NodeKey::null();
        self.tested_prefix = 0;
        self.has_slot = false;
        self.retractions += 1;
    }
}

/// All requests of a worker.
#[derive(Debug, Default)]
pub struct Requests {
    progress: SlotMap<RequestKey, Progress>,
    specs: SecondaryMap<RequestKey, RequestSpec>,
    /// Ended requests that a batch may still name.
    ended: Vec<RequestKey>,
}

impl Requests {
    /// Adds a request that has not entered yet.
    pub(crate) fn add(&mut self, spec: RequestSpec) -> RequestKey {
        let request = self.progress.insert(Progress::new());
        self.specs.insert(request, spec);
        request
    }

    /// What was asked.
    pub(crate) fn spec(&self, request: RequestKey) -> &RequestSpec {
        &self.specs[request]
    }

    /// Cuts `max_new_tokens` at entry.
    pub(crate) fn cut_max_new_tokens(&mut self, request: RequestKey, max_new_tokens: u32) {
        self.specs[request].max_new_tokens = max_new_tokens;
    }

    /// How far a request has come.
    pub(crate) fn get(&self, request: RequestKey) -> &Progress {
        &self.progress[request]
    }

    /// Whether the key names a request that is still known.
    pub(crate) fn knows(&self, request: RequestKey) -> bool {
        self.progress.contains_key(request)
    }

    /// Changes a request's progress, with an entry in the journal.
    pub(crate) fn update(&mut self, request: RequestKey, journal: &mut Journal, change: impl FnOnce(&mut Progress)) {
        let progress = &mut self.progress[request];
        journal.save_progress(request, *progress);
        change(progress);
    }

    /// Takes back a change of a request's progress.
    pub(crate) fn undo_update(&mut self, request: RequestKey, was: Progress) {
        self.progress[request] = was;
    }

    /// Tokens that a request has to compute or match: its prompt and what it has produced.
    pub(crate) fn fill_tokens(&self, request: RequestKey) -> u32 {
        let progress = &self.progress[request];
        debug_assert!(!progress.joined);
        self.specs[request].prompt_tokens + progress.produced as u32
    }

    /// The priority that nodes get from a request's inserts. Under priority scheduling a request without one has the least
    /// preferred there is; else it counts as 0.
    pub(crate) fn tree_priority(&self, config: &EngineConfig, request: RequestKey) -> i64 {
        match self.specs[request].priority {
            Some(priority) => i64::from(priority),
            None if !config.enable_priority_scheduling => 0,
            None if config.schedule_low_priority_values_first => LEAST_PREFERRED,
            None => -LEAST_PREFERRED,
        }
    }

    /// The produced length at which a request ends by itself.
    pub(crate) fn end_length(&self, request: RequestKey) -> i64 {
        let spec = &self.specs[request];
        let length = i64::from(spec.max_new_tokens);
        if spec.stop_at_end { length.min(i64::from(spec.output_tokens)) } else { length }
    }

    /// Marks a request as ended; its row is dropped once no batch names it.
    pub(crate) fn end(&mut self, request: RequestKey, journal: &mut Journal) {
        self.update(request, journal, |progress| progress.state = State::Ended);
        self.ended.push(request);
    }

    /// How many ended requests are not dropped yet.
    pub(crate) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Forgets that requests ended, back to a number of them.
    pub(crate) fn undo_ended(&mut self, ended: usize) {
        self.ended.truncate(ended);
    }

    /// Drops the rows of ended requests that neither the running batch nor the batch `last` names, and hands each content
    /// stream to `release`.
    pub(crate) fn drop_ended(&mut self, last: u64, mut release: impl FnMut(RequestKey, RequestSpec)) {
        let (progress, specs) = (&mut self.progress, &mut self.specs);
        self.ended.retain(|&request| {
            let row = &progress[request];
            if row.joined || row.batch >= last {
                return true;
            }
            progress.remove(request);
            if let Some(spec) = specs.remove(request) {
                release(request, spec);
            }
            false
        });
    }

    /// Whether a held request's transfer has ended by this iteration and time.
    pub(crate) fn transfer_ended(&self, request: RequestKey, iteration: u64, now_ns: u64) -> bool {
        let progress = &self.progress[request];
        let (since_iteration, since_ns) = progress.held_since;
        progress.released
            || match self.specs[request].transfer {
                Transfer::UntilReleased => false,
                Transfer::Iterations(count) => iteration >= since_iteration.saturating_add(count),
                Transfer::DurationNs(duration) => now_ns >= since_ns.saturating_add(duration),
            }
    }

    /// All requests that have not been dropped, in no order that may be relied on.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestKey, &Progress)> {
        self.progress.iter()
    }

    /// How many requests are known.
    pub fn len(&self) -> usize {
        self.progress.len()
    }

    /// Whether no request is known.
    pub fn is_empty(&self) -> bool {
        self.progress.is_empty()
    }
}

//! The KV pool: free pages, and page runs that name who holds the others.
//!
//! A page run is a number of pages with one owner, a request or a tree node; never one entry per page. Which pages they are is
//! not kept, since nothing that can be seen depends on it. A running request takes its decode pages through a common count,
//! `decoding_pages`; they join its own run when it leaves the batch. Always: free + decoding + all runs = the pool.

use slotmap::{Key, SlotMap, new_key_type};

use crate::journal::{Journal, Op};
use crate::request::RequestKey;
use crate::tree::NodeKey;

new_key_type! {
    /// Names a page run.
    pub struct RunKey;
}

/// Who holds a page run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Request(RequestKey),
    Node(NodeKey),
}

/// A number of pages with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageRun {
    pub(crate) pages: u32,
    pub(crate) owner: Owner,
}

/// The single numbers of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub(crate) struct PoolNumbers {
    /// Pages that nobody holds.
    pub(crate) free_pages: u64,
    /// Pages that running requests took while decoding and that no run counts yet.
    pub(crate) decoding_pages: u64,
}

/// The KV pool of a worker.
#[derive(Debug)]
pub struct Pool {
    page_size: u32,
    total_pages: u64,
    pub(crate) numbers: PoolNumbers,
    runs: SlotMap<RunKey, PageRun>,
    /// Keys whose removal waits for the commit.
    detached: Vec<RunKey>,
    /// Pages taken over the worker's life, for the profile.
    pub(crate) pages_taken: u64,
}

impl Pool {
    /// A pool of `total_pages` free pages of `page_size` tokens.
    pub(crate) fn new(page_size: u32, total_pages: u64) -> Pool {
        Pool {
            page_size,
            total_pages,
            numbers: PoolNumbers { free_pages: total_pages, decoding_pages: 0 },
            runs: SlotMap::with_key(),
            detached: Vec::new(),
            pages_taken: 0,
        }
    }

    /// Free tokens.
    pub fn free_tokens(&self) -> u64 {
        self.numbers.free_pages * u64::from(self.page_size)
    }

    /// Tokens of the whole pool.
    pub fn total_tokens(&self) -> u64 {
        self.total_pages * u64::from(self.page_size)
    }

    /// How many pages hold `tokens` tokens.
    pub(crate) fn pages_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.page_size)
    }

    /// Takes `pages` free pages into `run`, or into a new run when the key is null. The pages must be free.
    pub(crate) fn take(&mut self, run: RunKey, owner: Owner, pages: u32, journal: &mut Journal) -> RunKey {
        assert!(u64::from(pages) <= self.numbers.free_pages, "the pool was asked for more than it has free");
        self.numbers.free_pages -= u64::from(pages);
        self.pages_taken += u64::from(pages);
        self.grow(run, owner, pages, journal)
    }

    /// Takes `pages` free pages for the running batch as a whole.
    pub(crate) fn take_for_decode(&mut self, pages: u64) {
        assert!(pages <= self.numbers.free_pages, "the pool was asked for more than it has free");
        self.numbers.free_pages -= pages;
        self.pages_taken += pages;
        self.numbers.decoding_pages += pages;
    }

    /// Moves `pages` that a request took while decoding into its own run.
    pub(crate) fn settle(&mut self, run: RunKey, owner: Owner, pages: u32, journal: &mut Journal) -> RunKey {
        assert!(u64::from(pages) <= self.numbers.decoding_pages, "more decode pages settled than were taken");
        self.numbers.decoding_pages -= u64::from(pages);
        self.grow(run, owner, pages, journal)
    }

    /// Moves `pages` of `run` into a new run of `owner`. Returns what is left of `run` (null if nothing) and the new run.
    pub(crate) fn give(&mut self, run: RunKey, owner: Owner, pages: u32, journal: &mut Journal) -> (RunKey, RunKey) {
        let rest = self.shrink(run, pages, journal);
        (rest, self.grow(RunKey::null(), owner, pages, journal))
    }

    /// Gives `pages` of `run` back to the pool. Returns what is left of `run`, null if nothing.
    pub(crate) fn free(&mut self, run: RunKey, pages: u32, journal: &mut Journal) -> RunKey {
        self.numbers.free_pages += u64::from(pages);
        self.shrink(run, pages, journal)
    }

    /// Gives a whole run back to the pool; a null key is an empty run.
    pub(crate) fn free_all(&mut self, run: RunKey, journal: &mut Journal) {
        if let Some(held) = self.runs.get(run) {
            let pages = held.pages;
            self.free(run, pages, journal);
        }
    }

    /// Pages in a run; a null key is an empty run.
    pub(crate) fn pages(&self, run: RunKey) -> u32 {
        self.runs.get(run).map_or(0, |held| held.pages)
    }

    /// All runs, in no order that may be relied on.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (RunKey, &PageRun)> {
        self.runs.iter()
    }

    /// How many page runs there are.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    fn grow(&mut self, run: RunKey, owner: Owner, pages: u32, journal: &mut Journal) -> RunKey {
        if pages == 0 {
            return run;
        }
        match self.runs.get_mut(run) {
            Some(held) => {
                debug_assert_eq!(held.owner, owner);
                journal.record(Op::RunResized { run, pages: held.pages });
                held.pages += pages;
                run
            }
            None => {
                let run = self.runs.insert(PageRun { pages, owner });
                journal.record(Op::RunMade(run));
                run
            }
        }
    }

    fn shrink(&mut self, run: RunKey, pages: u32, journal: &mut Journal) -> RunKey {
        if pages == 0 {
            return run;
        }
        let held = &mut self.runs[run];
        assert!(pages <= held.pages, "a page run gave more pages than it has");
        if pages < held.pages {
            journal.record(Op::RunResized { run, pages: held.pages });
            held.pages -= pages;
            return run;
        }
        if journal.is_open() {
            let was = self.runs.detach(run).expect("the run was just read");
            journal.record(Op::RunGone { run, was });
            self.detached.push(run);
        } else {
            self.runs.remove(run);
        }
        RunKey::null()
    }

    /// Removes for good the runs that went in the transaction.
    pub(crate) fn commit(&mut self) {
        for run in self.detached.drain(..) {
            // A detached key is freed by giving it a value again and removing that.
            self.runs.reattach(run, PageRun { pages: 0, owner: Owner::Node(NodeKey::null()) });
            self.runs.remove(run);
        }
    }

    /// Takes back [`Op::RunMade`].
    pub(crate) fn undo_made(&mut self, run: RunKey) {
        self.runs.remove(run);
    }

    /// Takes back [`Op::RunResized`].
    pub(crate) fn undo_resized(&mut self, run: RunKey, pages: u32) {
        self.runs[run].pages = pages;
    }

    /// Takes back [`Op::RunGone`].
    pub(crate) fn undo_gone(&mut self, run: RunKey, was: PageRun) {
        self.detached.pop();
        self.runs.reattach(run, was);
    }
}

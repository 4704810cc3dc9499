//! The running batch: the rows that decode, with clocks instead of counters.
//!
//! Every row decodes in every decode pass, so a pass does not touch rows: a joined request's `committed` counts from the
//! launch clock, its `produced` from the result clock, and a row's end is a value of the result clock. Which rows need a page
//! at the next pass is read from a histogram of their lengths modulo the page size. A pass costs O(1) whatever the batch.

use crate::journal::{Journal, Op};
use crate::request::RequestKey;
use crate::requests::{Progress, Requests};

/// The single numbers of the running batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub(crate) struct RunningNumbers {
    /// Decode launches over the worker's life.
    pub(crate) launches: i64,
    /// Decode results taken over the worker's life.
    pub(crate) results: i64,
    /// The `full` latch: no admission is tried while it is set.
    pub(crate) full: bool,
    /// Whether every part that was merged was wholly prefill-only.
    pub(crate) prefill_only: bool,
    /// Tokens of the extend batch that took the empty batch's place: what a decode launch adds to the `hrrn` counter.
    pub(crate) founder_tokens: u64,
    /// Sum over rows of committed tokens, counted from the launch clock.
    pub(crate) committed_sum: i64,
    /// A value of the result clock at or before which no row ends.
    pub(crate) next_end: i64,
    /// Rows that have finished.
    pub(crate) finished_rows: u32,
    /// The growth counter of `hrrn`.
    pub(crate) processed_tokens: u64,
    /// Iterations left that do not try an extend batch (`prefill_decode_interval`).
    pub(crate) prefill_defer: u32,
    /// The request between two chunks of its prefill.
    pub(crate) chunked: Option<RequestKey>,
    /// The chunked request whose cancellation is pending.
    pub(crate) chunked_abort: Option<RequestKey>,
    /// Request slots that are free.
    pub(crate) free_slots: u32,
}

/// The running batch of a worker.
#[derive(Debug)]
pub struct Running {
    rows: Vec<RequestKey>,
    page_size: i64,
    /// Rows by (committed counted from the launch clock) modulo the page size.
    residues: Vec<u32>,
    pub(crate) numbers: RunningNumbers,
}

impl Running {
    pub(crate) fn new(page_size: u32, slots: u32) -> Running {
        Running {
            rows: Vec::new(),
            page_size: i64::from(page_size),
            residues: vec![0; page_size as usize],
            numbers: RunningNumbers { next_end: i64::MAX, free_slots: slots, ..RunningNumbers::default() },
        }
    }

    /// The rows in batch order, finished ones included until the next decode.
    pub fn rows(&self) -> &[RequestKey] {
        &self.rows
    }

    /// Tokens whose KV is in the pool, of a request that may be joined.
    pub(crate) fn committed(&self, progress: &Progress) -> u32 {
        let clock = if progress.joined { self.numbers.launches } else { 0 };
        (progress.committed + clock) as u32
    }

    /// Tokens produced by a request that may be joined.
    pub(crate) fn produced(&self, progress: &Progress) -> u32 {
        let clock = if progress.joined && progress.finish.is_none() { self.numbers.results } else { 0 };
        (progress.produced + clock) as u32
    }

    /// Sum over rows of tokens whose KV is in the pool.
    pub fn committed_tokens(&self) -> u64 {
        (self.numbers.committed_sum + self.rows.len() as i64 * self.numbers.launches) as u64
    }

    /// Rows that need a new page at the next decode launch: those whose committed length is a multiple of the page size.
    pub(crate) fn rows_at_page_end(&self) -> u64 {
        let at_end = (-self.numbers.launches).rem_euclid(self.page_size);
        u64::from(self.residues[at_end as usize])
    }

    /// Adds a request's row at the end. Its progress must be absolute.
    pub(crate) fn join(&mut self, requests: &mut Requests, request: RequestKey, journal: &mut Journal) {
        let (launches, results) = (self.numbers.launches, self.numbers.results);
        requests.update(request, journal, |progress| {
            debug_assert!(!progress.joined);
            progress.joined = true;
            progress.committed -= launches;
            if progress.finish.is_none() {
                progress.produced -= results;
            }
        });
        let progress = requests.get(request);
        self.count_row(progress.committed, 1);
        let finished = progress.finish.is_some();
        self.rows.push(request);
        journal.record(Op::RowAdded);
        if finished {
            self.numbers.finished_rows += 1;
        } else {
            self.expect_end(requests, request);
        }
    }

    /// Removes the row at `at`, keeping the order of the others, and makes its progress absolute.
    pub(crate) fn leave(&mut self, requests: &mut Requests, at: usize, journal: &mut Journal) -> RequestKey {
        let request = self.rows.remove(at);
        self.detach(requests, at, request, journal);
        request
    }

    /// Removes every row for which `goes` holds, keeping the order of the others.
    pub(crate) fn leave_all(
        &mut self,
        requests: &mut Requests,
        journal: &mut Journal,
        goes: impl Fn(RequestKey, &Progress) -> bool,
    ) {
        let rows = std::mem::take(&mut self.rows);
        let mut kept = 0;
        let mut rows_left = rows;
        for index in 0..rows_left.len() {
            let request = rows_left[index];
            if goes(request, requests.get(request)) {
                self.detach(requests, kept, request, journal);
            } else {
                rows_left[kept] = request;
                kept += 1;
            }
        }
        rows_left.truncate(kept);
        self.rows = rows_left;
    }

    fn detach(&mut self, requests: &mut Requests, at: usize, request: RequestKey, journal: &mut Journal) {
        let committed = requests.get(request).committed;
        self.count_row(committed, -1);
        journal.record(Op::RowRemoved { at: at as u32, request, committed });
        let (launches, results) = (self.numbers.launches, self.numbers.results);
        let finished = requests.get(request).finish.is_some();
        requests.update(request, journal, |progress| {
            progress.joined = false;
            progress.committed += launches;
            if !finished {
                progress.produced += results;
            }
        });
        if finished {
            self.numbers.finished_rows -= 1;
        }
    }

    /// Takes back [`Op::RowAdded`].
    pub(crate) fn undo_added(&mut self, requests: &Requests) {
        let request = self.rows.pop().expect("an added row is there until it is undone");
        self.count_row(requests.get(request).committed, -1);
    }

    /// Takes back [`Op::RowRemoved`].
    pub(crate) fn undo_removed(&mut self, at: u32, request: RequestKey, committed: i64) {
        self.rows.insert(at as usize, request);
        self.count_row(committed, 1);
    }

    fn count_row(&mut self, committed: i64, sign: i32) {
        let residue = committed.rem_euclid(self.page_size) as usize;
        self.residues[residue] = self.residues[residue].wrapping_add_signed(sign);
        self.numbers.committed_sum += i64::from(sign) * committed;
    }

    /// Lowers the next end to a joined row's end.
    pub(crate) fn expect_end(&mut self, requests: &Requests, request: RequestKey) {
        self.numbers.next_end = self.numbers.next_end.min(self.end_of(requests, request));
    }

    /// The value of the result clock at which a joined row ends.
    pub(crate) fn end_of(&self, requests: &Requests, request: RequestKey) -> i64 {
        let progress = requests.get(request);
        if progress.aborting {
            return self.numbers.results + 1;
        }
        // A row that has reached its length already ends with its next token all the same.
        (requests.end_length(request) - progress.produced).max(self.numbers.results + 1)
    }

    /// Finds the next end anew, after rows have ended.
    pub(crate) fn find_next_end(&mut self, requests: &Requests) {
        self.numbers.next_end = self
            .rows
            .iter()
            .filter(|&&request| requests.get(request).finish.is_none())
            .map(|&request| self.end_of(requests, request))
            .min()
            .unwrap_or(i64::MAX);
    }

    /// One decode launch: every row commits one token more.
    pub(crate) fn launch(&mut self) {
        self.numbers.launches += 1;
    }

    /// The histogram of lengths modulo the page size, for the digest and the checks.
    pub(crate) fn residues(&self) -> &[u32] {
        &self.residues
    }
}

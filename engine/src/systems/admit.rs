//! `admit`: which requests prefill in this pass (`behaviour.md` section 3).
//!
//! Reads the settings, the ratio and the queue's order; writes the batch, the queue, the running batch's latch, locks and
//! recency of the tree, and the requests' progress. Preemption also releases running requests and evicts.

use bumpalo::Bump;

use crate::batch::{BatchMode, Batches, ExtendRow, Plan};
use crate::cache::Cache;
use crate::config::SchedulePolicy;
use crate::engine::Engine;
use crate::iteration::Pass;
use crate::queue::Queue;
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::request::{Reject, RequestKey};
use crate::requests::{Requests, State};
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::systems::enter::{put_in_queue, turn_away};
use crate::systems::order::{allocatable, prefill_work};

/// Tokens per request that the finer test without a cache keeps in reserve.
const RESERVE_TOKENS: f64 = 1.0;

/// What admission reads and writes.
pub(crate) struct Admit<'a> {
    pub(crate) cache: &'a mut Cache,
    pub(crate) requests: &'a mut Requests,
    pub(crate) queue: &'a mut Queue,
    pub(crate) running: &'a mut Running,
    pub(crate) batches: &'a mut Batches,
    pub(crate) plan: &'a mut Plan,
    pub(crate) record: &'a mut PassRecord,
    pub(crate) ratio: &'a NewTokenRatio,
}

/// What an extend batch may still take. `total` and `current` are offsets from what is free or evictable, which changes as
/// paths are locked; the reference counts them as floating point, and so do we, in the same order.
pub(crate) struct Budget {
    pub(crate) total_offset: f64,
    current_offset: i64,
    input: i64,
    chunk: Option<i64>,
    /// The finer test without a cache: (tokens left, tokens held) of running and admitted requests by tokens left.
    releases: Option<Vec<(f64, i64)>>,
}

/// What came of one request's test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The next one may be tried.
    Continue,
    /// Memory is used up: the running batch is full.
    NoToken,
    /// The pass is used up.
    Other,
}

/// What a request will compute in this pass.
#[derive(Clone, Copy)]
struct Extend {
    prefix: u32,
    tokens: i64,
    middle: bool,
}

/// Fills the next batch with the pending chunk and with waiting requests.
pub(crate) fn admit(engine: &mut Engine, scratch: &mut Bump) {
    let Engine { cache, scheduler, pass, .. } = engine;
    if !pass.plan.admitting {
        return;
    }
    let Scheduler { requests, queue, running, batches, .. } = scheduler;
    let Pass { plan, record, ratio, .. } = pass;
    let mut admit = Admit { cache, requests, queue, running, batches, plan, record, ratio };
    scratch.reset();
    admit.plan.preempted.clear();
    let mut budget = admit.open_budget();
    admit.take_pending_chunk(&mut budget);
    let tried = admit.try_waiting(&mut budget, scratch);
    admit.close(tried);
}

impl Admit<'_> {
    fn page(&self) -> i64 {
        i64::from(self.cache.config.page_size)
    }

    fn ceil(&self, tokens: i64) -> i64 {
        let page = self.page();
        (tokens + page - 1).div_euclid(page) * page
    }

    pub(crate) fn clip(&self, tokens: i64) -> i64 {
        tokens.min(i64::from(self.cache.config.clip_max_new_tokens_estimation))
    }

    pub(crate) fn max_new(&self, request: RequestKey) -> i64 {
        i64::from(self.requests.spec(request).max_new_tokens)
    }

    /// What a running request is expected to take yet.
    pub(crate) fn claim(&self, request: RequestKey) -> f64 {
        let produced = i64::from(self.running.produced(self.requests.get(request)));
        self.clip(self.max_new(request) - produced) as f64 * self.ratio.current()
    }

    fn open_budget(&self) -> Budget {
        let config = &self.cache.config;
        let mixed = if config.mixes() { self.running.rows().len() as i64 } else { 0 };
        let mut claims = 0.0;
        for &request in self.running.rows() {
            claims += self.claim(request);
        }
        Budget {
            total_offset: mixed as f64 + claims,
            current_offset: mixed,
            input: config.max_prefill_tokens - mixed,
            chunk: config.chunk_tokens().map(|chunk| chunk - mixed),
            releases: None,
        }
    }

    pub(crate) fn total(&self, budget: &Budget) -> f64 {
        self.cache.available() as f64 - budget.total_offset
    }

    fn current(&self, budget: &Budget) -> i64 {
        self.cache.available() - budget.current_offset
    }

    /// Takes what an admitted request needs off the budget.
    fn charge(&self, budget: &mut Budget, tokens: i64, max_new: i64) {
        let paged = self.ceil(tokens);
        let now = paged + self.page();
        budget.total_offset += (now + max_new) as f64;
        budget.current_offset += now;
        budget.input -= paged;
        if let Some(chunk) = &mut budget.chunk {
            *chunk -= paged;
        }
    }

    fn verdict(&self, budget: &Budget) -> Verdict {
        if self.total(budget) <= 0.0 || self.current(budget) <= 0 {
            Verdict::NoToken
        } else if budget.input <= 0 || budget.chunk.is_some_and(|chunk| chunk <= 0) {
            Verdict::Other
        } else {
            Verdict::Continue
        }
    }

    /// A pending chunk goes first; it is not matched again.
    fn take_pending_chunk(&mut self, budget: &mut Budget) {
        let (Some(request), Some(chunk)) = (self.running.numbers.chunked, budget.chunk) else {
            return;
        };
        let fill = self.requests.fill_tokens(request);
        let prefix = self.requests.get(request).prefix;
        let left = i64::from(fill - prefix);
        self.requests.update(request, &mut self.cache.journal, |progress| {
            progress.tested_total = fill;
            progress.tested_prefix = prefix;
        });
        // Towards zero, as the reference turns the floating-point budget into a whole number.
        let total = self.total(budget).trunc() as i64;
        let mut limit = if chunk.min(total) > 0 { chunk.min(total) } else { chunk };
        if let Some(held_back) = self.hold_back(left, chunk) {
            limit = limit.min(held_back);
        }
        let tokens = left.min(limit);
        if tokens <= 0 {
            // The decode rows of a mixed batch have used the chunk budget up: the chunk waits for another pass.
            return;
        }
        let middle = left > limit;
        let max_new = if middle { 0 } else { self.clip(self.max_new(request)) };
        self.add_row(request, Extend { prefix, tokens, middle });
        self.charge(budget, tokens, max_new);
        if !middle {
            self.running.numbers.chunked = None;
        }
    }

    /// `shortest-prefill-first`: how much of the budget a pending chunk may take so that shorter requests fit beside it.
    fn hold_back(&self, left: i64, budget: i64) -> Option<i64> {
        let page = self.page();
        if self.cache.config.effective_policy() != SchedulePolicy::ShortestPrefillFirst || budget < 2 * page {
            return None;
        }
        let mut reserved = 0;
        for request in self.queue.iter() {
            let work = prefill_work(self.requests, request);
            let charge = self.ceil(work);
            if work >= left || reserved + charge > budget - page {
                break;
            }
            reserved += charge;
        }
        (reserved > 0).then(|| (budget - reserved).div_euclid(page) * page)
    }

    /// Tries waiting requests in order until one is refused. Returns how many were admitted.
    fn try_waiting(&mut self, budget: &mut Budget, scratch: &Bump) -> usize {
        let mut admitted = 0;
        while admitted < self.queue.len() {
            let request = self.queue.at(admitted);
            let rows = self.batches.next.extend.len() as i64;
            if rows >= allocatable(self.running, self.cache.config.max_running_requests) {
                self.running.numbers.full = true;
            }
            if self.running.numbers.full
                && !(self.cache.config.preempts() && self.preempt_for(request, budget, scratch))
            {
                break;
            }
            let rows_before = self.batches.next.extend.len();
            let verdict = self.test(request, budget);
            admitted += self.batches.next.extend.len() - rows_before;
            if verdict == Verdict::NoToken {
                self.running.numbers.full = true;
            }
            if verdict != Verdict::Continue {
                break;
            }
        }
        admitted
    }

    /// Tests one waiting request, and admits it if it fits.
    fn test(&mut self, request: RequestKey, budget: &mut Budget) -> Verdict {
        let fill = self.requests.fill_tokens(request);
        let stream = self.requests.spec(request).content;
        let node = self.cache.match_prefix(stream, fill.saturating_sub(1));
        let prefix = self.cache.tree.depth(node);
        self.requests.update(request, &mut self.cache.journal, |progress| {
            progress.tested_total = fill;
            progress.tested_prefix = prefix;
        });
        if !self.cache.enabled() && !self.requests.spec(request).stop_at_end {
            return self.test_by_releases(request, fill, budget);
        }
        // The matched path is locked for the length of the test, which takes it off what could be evicted.
        self.cache.tree.pin(node, &mut self.cache.journal);
        let chosen = self.choose_extend(request, i64::from(fill - prefix), prefix, budget);
        let extend = match chosen {
            Ok(extend) if !node_is_root(self.cache, node) => extend,
            other => {
                self.cache.tree.unpin(node, &mut self.cache.journal);
                match other {
                    Ok(extend) => extend,
                    Err(verdict) => return verdict,
                }
            }
        };
        if !node_is_root(self.cache, node) {
            self.requests.update(request, &mut self.cache.journal, |progress| progress.pin = node);
        }
        self.add_row(request, extend);
        let max_new = if extend.middle { 0 } else { self.clip(self.max_new(request)) };
        self.charge(budget, extend.tokens, max_new);
        self.verdict(budget)
    }

    fn choose_extend(&self, request: RequestKey, tokens: i64, prefix: u32, budget: &Budget) -> Result<Extend, Verdict> {
        let produced = self.requests.get(request).produced;
        let max_new = self.clip((self.max_new(request) - produced).max(0));
        let page = self.page();
        if (tokens + max_new + page) as f64 >= self.total(budget) {
            return Err(Verdict::NoToken);
        }
        let paged = self.ceil(tokens);
        let Some(chunk) = budget.chunk else {
            if !self.batches.next.extend.is_empty() && paged >= budget.input {
                return Err(Verdict::Other);
            }
            return Ok(Extend { prefix, tokens, middle: false });
        };
        if paged <= chunk {
            return Ok(Extend { prefix, tokens, middle: false });
        }
        let shortest_first = self.cache.config.effective_policy() == SchedulePolicy::ShortestPrefillFirst;
        if shortest_first && self.running.numbers.chunked.is_some() {
            return Err(Verdict::Other);
        }
        let prefix_tokens = i64::from(prefix);
        let end = (prefix_tokens + chunk.div_euclid(page) * page).div_euclid(page) * page;
        if end - prefix_tokens <= 0 {
            return Err(Verdict::Other);
        }
        Ok(Extend { prefix, tokens: end - prefix_tokens, middle: true })
    }

    /// Without a cache, `ignore_eos` requests are tested by simulating how the running ones will release their memory.
    fn test_by_releases(&mut self, request: RequestKey, fill: u32, budget: &mut Budget) -> Verdict {
        let tokens = i64::from(fill);
        let paged = self.ceil(tokens) + self.page();
        if paged as f64 > (self.current(budget) as f64).min(self.total(budget)) {
            return Verdict::NoToken;
        }
        self.note_release(request, budget);
        if !self.releases_cover(self.current(budget) - paged, budget) {
            return Verdict::NoToken;
        }
        match budget.chunk {
            Some(chunk) if tokens > chunk => {
                if chunk <= 0 {
                    return Verdict::Other;
                }
                self.add_row(request, Extend { prefix: 0, tokens: chunk, middle: true });
                self.charge(budget, chunk, 0);
            }
            _ => {
                self.add_row(request, Extend { prefix: 0, tokens, middle: false });
                self.charge(budget, tokens, self.clip(self.max_new(request)));
            }
        }
        self.verdict(budget)
    }

    /// Adds a candidate to the list of releases: the first one of a pass founds it with what runs and what is admitted.
    fn note_release(&self, request: RequestKey, budget: &mut Budget) {
        let candidate = self.release_of(request);
        let Some(releases) = &mut budget.releases else {
            let running = self.running.rows().iter().copied();
            let admitted = self.batches.next.extend.iter().map(|row| row.request);
            let mut releases: Vec<(f64, i64)> =
                candidate.into_iter().chain(running.chain(admitted).filter_map(|row| self.release_of(row))).collect();
            releases.sort_by(|a, b| a.0.total_cmp(&b.0));
            budget.releases = Some(releases);
            return;
        };
        if let Some(candidate) = candidate {
            // One with more left than all others goes before the last of them, as in the reference.
            let last = releases.len().saturating_sub(1);
            let at = releases.iter().position(|release| candidate.0 <= release.0).unwrap_or(last);
            releases.insert(at, candidate);
        }
    }

    fn release_of(&self, request: RequestKey) -> Option<(f64, i64)> {
        let spec = self.requests.spec(request);
        let produced = self.running.produced(self.requests.get(request));
        let ratio = if spec.stop_at_end { self.ratio.current() } else { 1.0 };
        let left = f64::from(spec.max_new_tokens) * ratio - f64::from(produced);
        let held = i64::from(spec.prompt_tokens) + i64::from(produced);
        (left > 0.0).then_some((left, held))
    }

    fn releases_cover(&self, current: i64, budget: &Budget) -> bool {
        let releases = budget.releases.as_deref().unwrap_or_default();
        let mut freed = 0;
        for (index, &(left, held)) in releases.iter().enumerate() {
            let rows = (releases.len() - index) as f64;
            if (current + freed) as f64 - left * rows <= RESERVE_TOKENS * rows {
                return false;
            }
            freed += held;
        }
        true
    }

    fn add_row(&mut self, request: RequestKey, extend: Extend) {
        let Extend { prefix, tokens, middle } = extend;
        let end = prefix + tokens as u32;
        let number = self.batches.next.number;
        let first = !self.requests.get(request).has_slot && self.requests.get(request).retractions == 0;
        self.batches.next.extend.push(ExtendRow { request, prefix, end, first });
        if middle {
            self.running.numbers.chunked = Some(request);
        }
        let takes_slot = !self.requests.get(request).has_slot;
        self.requests.update(request, &mut self.cache.journal, |progress| {
            progress.state = State::Running;
            if takes_slot {
                progress.protected = prefix;
            }
            progress.prefix = prefix;
            progress.extend_end = end;
            progress.batch = number;
        });
    }

    /// Completes the batch: takes the admitted requests out of the queue, puts the preempted ones at its end.
    fn close(&mut self, admitted: usize) {
        if self.batches.next.extend.is_empty() {
            for request in std::mem::take(&mut self.plan.preempted) {
                let journal = &mut self.cache.journal;
                turn_away(self.requests, self.record, journal, request, Reject::LostByPreemption);
            }
            return;
        }
        self.batches.next.mode = BatchMode::Extend;
        self.queue.take_front(admitted, &mut self.cache.journal);
        let mut preempted = std::mem::take(&mut self.plan.preempted);
        for request in preempted.drain(..) {
            put_in_queue(
                &self.cache.config,
                self.requests,
                self.queue,
                self.running,
                self.record,
                &mut self.cache.journal,
                request,
            );
        }
        self.plan.preempted = preempted;
        // A second request that is cut in one pass takes the first one's place, whose row then counts as a last chunk: the
        // reference keeps track of one only.
        if let Some(chunked) = self.running.numbers.chunked {
            self.requests.update(chunked, &mut self.cache.journal, |progress| progress.state = State::Chunked);
        }
        self.batches.next.middle = self.running.numbers.chunked;
    }
}

fn node_is_root(cache: &Cache, node: crate::tree::NodeKey) -> bool {
    node == cache.tree.root()
}

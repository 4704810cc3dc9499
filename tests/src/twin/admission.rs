//! Filling an extend batch from a pending chunk and the waiting queue.

use super::model::Model;
use super::request::{Batch, Kind, ReqId};
use super::settings::Policy;

/// What admitting a request left of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on with the next.
    Go,
    /// The pool is promised away: stop, and latch.
    NoToken,
    /// Another budget is used up: stop.
    Other,
}

/// The budget of one extend batch, and who is in it so far.
#[derive(Clone, Debug)]
pub struct Budget {
    /// What is promised of free and evictable tokens, to be claimed at any time.
    pub promised: f64,
    /// What this batch takes now.
    pub taken: i64,
    /// Tokens that the batch may still have.
    pub input: i64,
    /// Tokens that its chunk budget still has; none without chunking.
    pub chunk: Option<i64>,
    /// Who is admitted, the pending chunk first.
    pub admitted: Vec<ReqId>,
    /// Who became the chunked request.
    pub new_chunk: Option<ReqId>,
    /// Who was preempted.
    pub preempted: Vec<ReqId>,
    /// The simulated releases of the finer test: tokens left and tokens held of each request.
    pub releases: Option<Vec<(f64, i64)>>,
}

impl Model {
    /// Tries to make an extend batch.
    ///
    /// # Errors
    /// What the reference itself would fail at.
    pub fn new_extend_batch(&mut self) -> Result<Option<Batch>, String> {
        if self.settings.preemption {
            self.running.full = false;
        }
        if (self.running.full || self.waiting.is_empty()) && self.chunked.is_none() {
            return Ok(None);
        }
        if self.allocatable() <= 0 && self.chunked.is_none() && !self.settings.preemption {
            self.running.full = true;
            return Ok(None);
        }
        self.order_waiting();
        let mut budget = self.new_budget();
        if let Some(id) = self.chunked {
            self.chunked = self.add_pending_chunk(&mut budget, id);
        }
        self.admit_waiting(&mut budget);
        if budget.admitted.is_empty() {
            return Ok(None);
        }
        self.waiting.retain(|id| !budget.admitted.contains(id));
        for id in std::mem::take(&mut budget.preempted) {
            self.enqueue(id);
        }
        if budget.new_chunk.is_some() {
            if self.chunked.is_some() {
                return Err("a second chunked request beside the pending one".into());
            }
            self.chunked = budget.new_chunk;
        }
        if let Some(id) = self.chunked {
            self.requests[id].middle_chunks += 1;
        }
        self.prepare_extend(budget.admitted).map(Some)
    }

    /// How many requests may be in the batch.
    fn allocatable(&self) -> i64 {
        (self.settings.slots as i64 - self.running.rows.len() as i64).min(self.free_slots() as i64)
    }

    fn new_budget(&self) -> Budget {
        let mixed = if self.settings.mixed { self.running.rows.len() as i64 } else { 0 };
        let claims = self.running.rows.iter().fold(0.0, |sum, id| sum + self.claim(*id));
        Budget {
            promised: mixed as f64 + claims,
            taken: mixed,
            input: self.settings.max_prefill - mixed,
            chunk: self.settings.chunk.map(|chunk| chunk - mixed),
            admitted: Vec::new(),
            new_chunk: None,
            preempted: Vec::new(),
            releases: None,
        }
    }

    /// What a running request is expected to still take.
    pub fn claim(&self, id: ReqId) -> f64 {
        let request = &self.requests[id];
        (request.max_new - request.output_len()).min(self.settings.clip) as f64 * self.ratio
    }

    /// Free and evictable tokens that are not promised.
    pub fn total(&self, budget: &Budget) -> f64 {
        (self.free() + self.evictable()) as f64 - budget.promised
    }

    fn current(&self, budget: &Budget) -> i64 {
        self.free() + self.evictable() - budget.taken
    }

    fn clipped(&self, id: ReqId) -> i64 {
        self.requests[id].max_new.min(self.settings.clip)
    }

    fn add_pending_chunk(&mut self, budget: &mut Budget, id: ReqId) -> Option<ReqId> {
        self.requests[id].fill = self.requests[id].len();
        let chunk = budget.chunk.unwrap_or(0);
        let limit = self.hold_chunk_back(budget, id);
        let total = (self.total(budget) as i64).min(chunk);
        let mut tokens = if total > 0 { total } else { chunk };
        if let Some(limit) = limit {
            tokens = tokens.min(limit);
        }
        let request = &mut self.requests[id];
        let left = request.fill - request.prefix;
        let goes_on = left > tokens;
        request.extend = (request.prefix, request.prefix + left.min(tokens));
        budget.admitted.push(id);
        let claim = if goes_on { 0 } else { self.clipped(id) };
        self.reserve(budget, left.min(tokens), claim);
        goes_on.then_some(id)
    }

    /// What the chunk may take so that shorter waiting requests fit beside it.
    fn hold_chunk_back(&self, budget: &Budget, id: ReqId) -> Option<i64> {
        let page = self.settings.page;
        let chunk = budget.chunk.unwrap_or(0);
        if self.settings.policy != Policy::ShortestPrefillFirst || chunk < 2 * page {
            return None;
        }
        let left = self.requests[id].fill - self.requests[id].prefix;
        let mut kept = 0;
        for other in &self.waiting {
            let work = self.prefill_work(*other);
            if work >= left || kept + self.settings.ceil(work) > chunk - page {
                break;
            }
            kept += self.settings.ceil(work);
        }
        (kept > 0).then(|| self.settings.floor(chunk - kept))
    }

    fn reserve(&self, budget: &mut Budget, tokens: i64, claim: i64) {
        let tokens = self.settings.ceil(tokens);
        budget.promised += (tokens + self.settings.page + claim) as f64;
        budget.taken += tokens + self.settings.page;
        budget.input -= tokens;
        budget.chunk = budget.chunk.map(|chunk| chunk - tokens);
    }

    fn admit_waiting(&mut self, budget: &mut Budget) {
        for id in self.waiting.clone() {
            if budget.admitted.len() as i64 >= self.allocatable() {
                self.running.full = true;
            }
            if self.running.full && !(self.settings.preemption && self.preempt_for(budget, id)) {
                return;
            }
            match self.try_to_admit(budget, id) {
                Verdict::Go => {}
                Verdict::NoToken => {
                    self.running.full = true;
                    return;
                }
                Verdict::Other => return,
            }
        }
    }

    fn try_to_admit(&mut self, budget: &mut Budget, id: ReqId) -> Verdict {
        let length = self.requests[id].len();
        self.requests[id].fill = length;
        self.requests[id].protected = self.match_request(id, length - 1);
        let verdict = if self.tree.is_none() && self.requests[id].ignores_stop() {
            self.admit_by_releases(budget, id)
        } else {
            self.admit(budget, id)
        };
        match verdict {
            Ok(()) => self.what_is_left(budget),
            Err(refused) => refused,
        }
    }

    fn what_is_left(&self, budget: &Budget) -> Verdict {
        if self.total(budget) <= 0.0 || self.current(budget) <= 0 {
            Verdict::NoToken
        } else if budget.input <= 0 || budget.chunk.is_some_and(|chunk| chunk <= 0) {
            Verdict::Other
        } else {
            Verdict::Go
        }
    }

    /// The ordinary test, with the matched path locked while it lasts.
    fn admit(&mut self, budget: &mut Budget, id: ReqId) -> Result<(), Verdict> {
        let node = self.requests[id].node;
        if let Some(tree) = &mut self.tree {
            tree.lock(node);
        }
        let shape = self.shape(budget, id);
        if let Some(tree) = &mut self.tree {
            tree.unlock(node);
        }
        let (tokens, is_middle) = shape?;
        if let Some(tree) = &mut self.tree {
            tree.lock(node);
            self.requests[id].lock = Some(node);
        }
        self.commit(budget, id, tokens, is_middle);
        Ok(())
    }

    /// How many tokens of a request are computed now, and whether that is a middle chunk.
    fn shape(&self, budget: &Budget, id: ReqId) -> Result<(i64, bool), Verdict> {
        let request = &self.requests[id];
        let tokens = request.fill - request.prefix;
        let paged = self.settings.ceil(tokens);
        let to_come = (request.max_new - request.output_len()).max(0).min(self.settings.clip);
        if (tokens + to_come + self.settings.page) as f64 >= self.total(budget) {
            return Err(Verdict::NoToken);
        }
        let Some(chunk) = budget.chunk else {
            let too_much = !budget.admitted.is_empty() && paged >= budget.input;
            return if too_much { Err(Verdict::Other) } else { Ok((tokens, false)) };
        };
        if paged <= chunk {
            return Ok((tokens, false));
        }
        if self.chunked.is_some() && self.settings.policy == Policy::ShortestPrefillFirst {
            return Err(Verdict::Other);
        }
        let end = self.settings.floor(request.prefix + self.settings.floor(chunk));
        let part = end - request.prefix;
        if part <= 0 { Err(Verdict::Other) } else { Ok((part, true)) }
    }

    fn commit(&mut self, budget: &mut Budget, id: ReqId, tokens: i64, is_middle: bool) {
        let request = &mut self.requests[id];
        request.extend = (request.prefix, request.prefix + tokens);
        budget.admitted.push(id);
        if is_middle {
            budget.new_chunk = Some(id);
        }
        let claim = if is_middle { 0 } else { self.clipped(id) };
        self.reserve(budget, tokens, claim);
    }

    /// The finer test of requests that run to their limit when there is no cache: walk through the releases to come.
    fn admit_by_releases(&mut self, budget: &mut Budget, id: ReqId) -> Result<(), Verdict> {
        let tokens = self.requests[id].fill - self.requests[id].prefix;
        let paged = self.settings.ceil(tokens) + self.settings.page;
        let current = self.current(budget);
        if paged as f64 > f64::min(current as f64, self.total(budget)) {
            return Err(Verdict::NoToken);
        }
        self.note_release(budget, id);
        let releases = budget.releases.clone().unwrap_or_default();
        let mut freed = 0;
        for (index, (left, held)) in releases.iter().enumerate() {
            let still_there = (releases.len() - index) as i64;
            let least = (current - paged + freed) as f64 - left * still_there as f64;
            if least <= still_there as f64 {
                return Err(Verdict::NoToken);
            }
            freed += held;
        }
        match budget.chunk {
            Some(chunk) if tokens > chunk && chunk <= 0 => return Err(Verdict::Other),
            Some(chunk) if tokens > chunk => self.commit(budget, id, chunk, true),
            _ => self.commit(budget, id, tokens, false),
        }
        Ok(())
    }

    fn note_release(&self, budget: &mut Budget, id: ReqId) {
        let Some(mut list) = budget.releases.take() else {
            let everybody = [id].into_iter().chain(self.running.rows.iter().copied()).chain(budget.admitted.clone());
            let mut list: Vec<(f64, i64)> = everybody.filter_map(|id| self.release_to_come(id)).collect();
            list.sort_by(|a, b| a.0.total_cmp(&b.0));
            budget.releases = Some(list);
            return;
        };
        if let Some(release) = self.release_to_come(id) {
            // The largest goes before the last one, not behind it.
            let behind = list.len().saturating_sub(1);
            let place = list.iter().position(|other| release.0 <= other.0).unwrap_or(behind);
            list.insert(place, release);
        }
        budget.releases = Some(list);
    }

    fn release_to_come(&self, id: ReqId) -> Option<(f64, i64)> {
        let request = &self.requests[id];
        let ratio = if request.ignores_stop() { 1.0 } else { self.ratio };
        let left = request.max_new as f64 * ratio - request.output_len() as f64;
        (left > 0.0).then(|| (left, request.len()))
    }

    /// Takes slots for the rows, and lets the running rows decode along when batches are mixed.
    fn prepare_extend(&mut self, rows: Vec<ReqId>) -> Result<Batch, String> {
        let mut tokens = 0;
        let mut pages = 0;
        for id in &rows {
            let (start, end) = self.requests[*id].extend;
            tokens += end - start;
            pages += self.settings.ceil(end) - self.settings.ceil(start);
        }
        let spare = if self.settings.page == 1 { 0 } else { rows.len() as i64 * self.settings.page };
        self.make_room(tokens + spare);
        if pages > self.free() {
            return Err(format!("prefill out of memory: {pages} tokens wanted, {} free", self.free()));
        }
        for id in &rows {
            let request = &mut self.requests[*id];
            request.computed = request.extend.1;
            request.holds_slot = true;
            request.retracted = false;
        }
        let mut batch = Batch {
            kind: Kind::Extend,
            prefill_only: rows.iter().all(|id| self.requests[*id].max_new == 0),
            rows,
            chunked: self.chunked,
            extend_tokens: Some(tokens),
            ..Batch::empty()
        };
        if self.settings.mixed && !self.running.rows.is_empty() {
            self.mix_running(&mut batch)?;
        }
        Ok(batch)
    }

    fn mix_running(&mut self, batch: &mut Batch) -> Result<(), String> {
        self.filter_running();
        if self.running.rows.is_empty() {
            return Ok(());
        }
        self.take_decode_slots()?;
        for id in &self.running.rows {
            let request = &mut self.requests[*id];
            request.fill = request.len();
            request.extend = (request.computed - 1, request.computed);
        }
        batch.decoding = self.running.rows.clone();
        batch.rows.extend(&self.running.rows);
        batch.prefill_only = false;
        batch.extend_tokens = batch.extend_tokens.map(|tokens| tokens + self.running.rows.len() as i64);
        self.running = Batch { full: self.running.full, ..Batch::empty() };
        Ok(())
    }
}

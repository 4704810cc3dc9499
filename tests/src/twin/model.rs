//! The whole state, and one iteration of it.

use std::collections::VecDeque;

use servesim_scenarios::case::{CaseRequest, PassLog, PublishLog};

use super::request::{Batch, Kind, ReqId, Request};
use super::settings::Settings;
use super::tree::Tree;

/// The batch of the iteration before.
#[derive(Clone, Debug)]
pub enum Last {
    /// There was none.
    None,
    /// An extend batch that is not the running batch.
    Extend(Batch),
    /// The running batch itself: it decoded, or the extend batch took its place.
    Running,
}

/// A scheduler with its cache, pool, queue and requests.
#[derive(Clone, Debug)]
pub struct Model {
    /// What it runs with.
    pub settings: Settings,
    /// Everybody who ever entered.
    pub requests: Vec<Request>,
    /// The prefix tree, none when the cache is off.
    pub tree: Option<Tree>,
    /// The waiting queue.
    pub waiting: Vec<ReqId>,
    /// The running batch.
    pub running: Batch,
    /// The batch of the iteration before.
    pub last: Last,
    /// Who is half-way through a chunked prefill.
    pub chunked: Option<ReqId>,
    /// The new-token ratio.
    pub ratio: f64,
    /// The counter that `hrrn` ages by.
    pub counter: i64,
    /// In the prefill role: who is held, and the iteration of the end of its prefill.
    pub held: Vec<(ReqId, u64)>,
    /// The number of the iteration.
    pub pass: u64,
    /// What was published in this iteration.
    pub published: Vec<PublishLog>,
    /// Decode batches whose results were taken.
    pub decoded: u64,
    cancelled_chunk: Option<ReqId>,
    /// Batches whose results are still to be taken.
    pub launched: VecDeque<Batch>,
    pause: u32,
    queue_clock: u64,
    /// Who entered and has not left.
    pub present: Vec<ReqId>,
    /// Who was dropped from the queue in this iteration.
    pub dropped: Vec<ReqId>,
    /// Who was turned away in this iteration.
    pub rejected: Vec<String>,
    /// The queue as it was last written down.
    pub logged_waiting: Option<Vec<String>>,
}

impl Model {
    /// A scheduler that has just started.
    pub fn new(settings: Settings) -> Model {
        let tree = settings.radix.then(|| Tree::new(settings.page as usize, settings.eviction));
        Model {
            ratio: settings.first_ratio,
            settings,
            requests: Vec::new(),
            tree,
            waiting: Vec::new(),
            running: Batch::empty(),
            last: Last::None,
            chunked: None,
            counter: 0,
            held: Vec::new(),
            pass: 0,
            published: Vec::new(),
            decoded: 0,
            cancelled_chunk: None,
            launched: VecDeque::new(),
            pause: 0,
            queue_clock: 0,
            present: Vec::new(),
            dropped: Vec::new(),
            rejected: Vec::new(),
            logged_waiting: None,
        }
    }

    // --- what is free ---

    /// Free tokens of the pool: all of it less what the tree and the requests hold.
    pub fn free(&self) -> i64 {
        let in_tree = self.tree.as_ref().map_or(0, |tree| tree.evictable() + tree.protected());
        let holders = self.requests.iter().filter(|request| request.holds_slot);
        let own: i64 = holders.map(|request| self.settings.ceil(request.computed) - request.protected).sum();
        self.settings.pool - in_tree - own
    }

    /// Tokens that eviction could free.
    pub fn evictable(&self) -> i64 {
        self.tree.as_ref().map_or(0, Tree::evictable)
    }

    /// Slots that nobody has.
    pub fn free_slots(&self) -> usize {
        self.settings.slots - self.requests.iter().filter(|request| request.holds_slot).count()
    }

    /// Evicts so that `tokens` are free, as far as that goes.
    pub fn make_room(&mut self, tokens: i64) {
        let short = tokens - self.free();
        if short > 0
            && let Some(tree) = &mut self.tree
        {
            tree.evict(short);
        }
    }

    // --- entry and cancellation ---

    /// A request enters, or is turned away.
    pub fn submit(&mut self, spec: &CaseRequest) {
        let mut request = Request::new(spec);
        if self.settings.prefill_role {
            request.max_new = 1;
        }
        if self.settings.intake && !self.check_entry(&mut request) {
            self.rejected.push(request.rid);
            return;
        }
        let id = self.requests.len();
        self.requests.push(request);
        self.present.push(id);
        if let Some(turned_away) = self.enqueue(id) {
            self.rejected.push(self.requests[turned_away].rid.clone());
        }
    }

    fn check_entry(&self, request: &mut Request) -> bool {
        let settings = &self.settings;
        let longest = settings.context.min(settings.pool) - 1;
        let prompt = request.prompt.len() as i64;
        if prompt >= longest - 5 {
            return false;
        }
        let room = settings.pool - settings.ceil(prompt) - settings.page - 1;
        request.max_new = request.max_new.min(longest - prompt - 1).min(room).max(0);
        true
    }

    /// Puts a request at the back of the queue. When the queue is full, somebody is turned away: who, is the answer.
    pub fn enqueue(&mut self, id: ReqId) -> Option<ReqId> {
        if self.settings.priorities && self.requests[id].priority.is_none() {
            self.requests[id].priority = Some(self.settings.least_preferred());
        }
        let mut turned_away = None;
        let full = self.settings.max_queued.is_some_and(|most| self.waiting.len() + 1 > most);
        if full && !self.settings.prefill_role {
            match self.worse_than(id) {
                None => return Some(id),
                Some(worst) => {
                    self.waiting.retain(|other| *other != worst);
                    turned_away = Some(worst);
                }
            }
        }
        self.waiting.push(id);
        self.queue_clock += 1;
        self.requests[id].queued_at = self.queue_clock;
        self.requests[id].counter_at_entry = self.counter;
        turned_away
    }

    /// The least preferred waiting request, when `id` is strictly preferred to it.
    fn worse_than(&self, id: ReqId) -> Option<ReqId> {
        if !self.settings.priorities {
            return None;
        }
        let worst =
            self.waiting.iter().copied().max_by_key(|other| (self.rank(*other), self.requests[*other].queued_at))?;
        (self.rank(id) < self.rank(worst)).then_some(worst)
    }

    /// How little a request is preferred.
    pub fn rank(&self, id: ReqId) -> i128 {
        self.settings.rank(self.requests[id].priority.unwrap_or_else(|| self.settings.least_preferred()))
    }

    /// Cancels a request, wherever it is.
    pub fn cancel(&mut self, rid: &str) {
        if self.chunked.is_some_and(|id| self.requests[id].rid == rid) {
            self.cancelled_chunk = self.chunked;
        }
        let waiting = self.waiting.clone();
        for id in waiting.into_iter().filter(|id| self.requests[*id].rid == rid) {
            self.waiting.retain(|other| *other != id);
            self.dropped.push(id);
        }
        let mut in_flight = self.running.rows.clone();
        if let Last::Extend(batch) = &self.last {
            in_flight.extend(&batch.rows);
        }
        for id in in_flight {
            let request = &mut self.requests[id];
            if request.rid == rid && !request.ended() {
                request.cancelled = true;
            }
        }
    }

    // --- one iteration ---

    /// One iteration, and what it did.
    ///
    /// # Errors
    /// What the reference itself would fail at.
    pub fn step(&mut self) -> Result<PassLog, String> {
        self.published.clear();
        let retractions: Vec<u64> = self.requests.iter().map(|request| request.retractions).collect();
        let mut log = PassLog { pass: self.pass, ..PassLog::default() };
        let batch = if self.settings.prefill_role { self.choose_prefill_role()? } else { self.choose()? };
        log.batch = batch.as_ref().map(|batch| self.describe(batch));
        log.after_schedule = self.gauges();
        log.waiting = self.changed_waiting();
        let finished =
            if self.settings.prefill_role { self.run_prefill_role(batch.as_ref()) } else { self.run(batch.as_ref()) };
        let retracted: Vec<ReqId> =
            self.present.iter().copied().filter(|id| self.requests[*id].retractions > retractions[*id]).collect();
        self.report_ends(&mut log, batch.as_ref(), &retracted, &finished);
        log.held = self.held.iter().map(|(id, _)| self.requests[*id].rid.clone()).collect();
        log.published = std::mem::take(&mut self.published);
        let after = self.gauges();
        log.after_results = (after != log.after_schedule).then_some(after);
        self.last = match batch {
            None => Last::None,
            Some(batch) if batch.kind == Kind::Extend => Last::Extend(batch),
            Some(_) => Last::Running,
        };
        self.pass += 1;
        Ok(log)
    }

    /// Step 2 of an iteration: the next batch.
    fn choose(&mut self) -> Result<Option<Batch>, String> {
        self.drop_cancelled_chunk();
        if let Some(id) = self.chunked
            && self.requests[id].extend.1 > self.requests[id].prefix
        {
            self.keep_unfinished(id, true);
        }
        self.merge_last();
        if self.running.prefill_only {
            self.filter_running();
            if self.running.rows.is_empty() {
                self.running.full = false;
            }
        }
        let mut chosen = None;
        if self.pause > 0 {
            self.pause -= 1;
        } else {
            chosen = self.new_extend_batch()?;
        }
        if chosen.is_some() {
            self.pause = self.settings.prefill_decode_interval;
        } else if !self.running.rows.is_empty() && !self.running.prefill_only {
            self.prepare_decode()?;
            chosen = (!self.running.rows.is_empty()).then(|| self.running.clone());
        }
        Ok(chosen)
    }

    /// A cancelled request between two of its chunks is released without insertion.
    pub fn drop_cancelled_chunk(&mut self) {
        let Some(id) = self.cancelled_chunk.take() else { return };
        if self.chunked == Some(id) {
            self.requests[id].end = Some("abort".to_string());
            self.requests[id].cancelled = false;
            self.release(id, false);
            self.chunked = None;
        }
    }

    fn merge_last(&mut self) {
        let Last::Extend(mut batch) = self.last.clone() else { return };
        let before = batch.rows.len();
        self.filter_extended(&mut batch);
        if batch.rows.len() < before {
            self.running.full = false;
        }
        if !batch.rows.is_empty() && self.running.rows.is_empty() {
            self.running = batch;
            self.last = Last::Running;
            return;
        }
        if !batch.rows.is_empty() {
            self.running.rows.extend(&batch.rows);
            self.running.prefill_only &= batch.prefill_only;
        }
        self.last = Last::Extend(batch);
    }

    /// Leaves the rows of an extend batch that go on and are not in the middle of a chunked prefill.
    pub fn filter_extended(&self, batch: &mut Batch) {
        let chunked = [self.chunked, batch.chunked];
        batch.rows.retain(|id| !self.requests[*id].ended() && !chunked.contains(&Some(*id)));
    }

    /// Leaves the rows of the running batch that go on.
    pub fn filter_running(&mut self) {
        let requests = &self.requests;
        self.running.rows.retain(|id| !requests[*id].ended());
    }

    /// Steps 3 to 5 of an iteration: launch, results, and what is done when there is nothing to do.
    fn run(&mut self, batch: Option<&Batch>) -> Vec<ReqId> {
        let mut finished = Vec::new();
        if let Some(batch) = batch {
            self.counter += batch.extend_tokens.unwrap_or(0);
            if self.settings.overlap {
                self.launched.push_back(batch.clone());
            } else {
                finished = self.take_results(batch);
            }
        }
        if self.settings.overlap && !matches!(self.last, Last::None) {
            if let Some(batch) = self.launched.pop_front() {
                finished = self.take_results(&batch);
            }
        } else if batch.is_none() {
            self.rest();
        }
        finished
    }

    fn rest(&mut self) {
        let last_is_empty = match &self.last {
            Last::None => true,
            Last::Extend(batch) => batch.rows.is_empty(),
            Last::Running => self.running.rows.is_empty(),
        };
        let nothing = self.running.rows.is_empty() && self.waiting.is_empty() && self.chunked.is_none();
        if nothing && self.held.is_empty() && last_is_empty && self.launched.is_empty() {
            self.publish("idle");
            self.ratio = self.settings.first_ratio;
        }
    }

    /// What the prefill role does when it has no batch.
    pub fn rest_prefill_role(&mut self) {
        self.rest();
    }

    /// Publishes the events, if there are any.
    pub fn publish(&mut self, why: &str) {
        let events = self.tree.as_mut().map(|tree| tree.events.take()).unwrap_or_default();
        if !events.is_empty() {
            self.published.push(PublishLog { why: why.to_string(), events });
        }
    }
}

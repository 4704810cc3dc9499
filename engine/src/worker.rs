//! The worker: one simulated engine, as a test or a player drives it.

pub mod profile;
mod stuck;

use crate::batch::{BatchMode, Peek, Refusal, StrideLimits};
use crate::block_hashes::EventDetail;
use crate::cache::Cache;
use crate::check::{self, Violation};
use crate::config::{ConfigError, EngineConfig, Role};
use crate::content::Contents;
use crate::digest;
use crate::engine::Engine;
use crate::events::EventQueue;
use crate::iteration::{Iteration, Pass};
use crate::journal::Journal;
use crate::pool::Pool;
use crate::queue::Asked;
use crate::record::PassRecord;
use crate::request::{RequestKey, RequestSpec};
use crate::scheduler::Scheduler;
use crate::timing::{Clock, PassShape, TimingError, TimingModel};
use crate::tree::Tree;

/// Why an iteration did not happen. The worker is as it was before it, except that what had arrived has entered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StepError {
    /// The timing model gave no usable duration.
    #[error("the timing model refused a pass led by request {tag}, of {} prefill rows ({} new tokens) and {} decode rows: {error}",
            shape.extend_rows, shape.extend_tokens, shape.decode_rows)]
    Timing {
        /// What the batch was.
        mode: BatchMode,
        /// Its sums.
        shape: Box<PassShape>,
        /// The tag of the request that leads the batch.
        tag: u64,
        /// That request.
        request: RequestKey,
        /// What the model said.
        error: TimingError,
    },
    /// The pool cannot hold what the batch computes, also after evicting all that can go.
    #[error(
        "the KV pool cannot hold the next batch, led by request {tag}: {wanted_tokens} tokens wanted, {free_tokens} free"
    )]
    PoolExhausted {
        /// The tag of the request that leads the batch.
        tag: u64,
        /// That request.
        request: RequestKey,
        /// Tokens wanted, in whole pages.
        wanted_tokens: u64,
        /// Tokens free.
        free_tokens: u64,
    },
}

impl StepError {
    /// The request that leads the batch, and its tag: the one to give up so that the others can go on.
    pub fn leader(&self) -> (RequestKey, u64) {
        match *self {
            StepError::Timing { request, tag, .. } | StepError::PoolExhausted { request, tag, .. } => (request, tag),
        }
    }
}

/// Why a request was not taken at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// A prompt needs a token.
    #[error("prompt_tokens: found 0, expected at least 1")]
    EmptyPrompt,
    /// A model says at least one token.
    #[error("output_tokens: found 0, expected at least 1")]
    EmptyOutput,
    /// The stream does not hold the request's content.
    #[error("content: found a stream of {found} tokens, expected at least {expected}")]
    ContentTooShort {
        /// Tokens in the stream.
        found: u64,
        /// Tokens of the prompt and the output that the request may produce.
        expected: u64,
    },
}

/// One simulated serving engine.
pub struct Worker {
    /// The stores; lent to the iteration while a schedule runs.
    engine: Option<Box<Engine>>,
    iteration: Iteration,
    /// Whether the inbox holds anything.
    asked: bool,
    /// Whether the last batch was one that a stride can follow: a decode batch, or an extend batch whose results are taken.
    may_stride: bool,
    /// Whether an extend batch's results are taken in its own iteration: without overlap.
    extend_ends_in_its_pass: bool,
    /// Whether a probe is set.
    probed: bool,
    /// Whether the record's notes of who was rejected or dropped have been told.
    told: bool,
}

impl Worker {
    /// A worker with an empty cache at time 0.
    ///
    /// # Errors
    /// A setting that is out of bounds.
    pub fn new(config: EngineConfig, timing: Box<dyn TimingModel>) -> Result<Worker, ConfigError> {
        config.validate()?;
        let extend_ends_in_its_pass = config.disable_overlap_schedule;
        let engine = Some(Box::new(Engine::new(&config, timing)));
        let iteration = Iteration::new();
        Ok(Worker {
            engine,
            iteration,
            asked: false,
            may_stride: false,
            extend_ends_in_its_pass,
            probed: false,
            told: false,
        })
    }

    fn engine(&self) -> &Engine {
        held(&self.engine)
    }

    fn engine_mut(&mut self) -> &mut Engine {
        self.engine.as_deref_mut().expect(HELD)
    }

    fn cache(&self) -> &Cache {
        &self.engine().cache
    }

    fn cache_mut(&mut self) -> &mut Cache {
        &mut self.engine_mut().cache
    }

    fn scheduler(&self) -> &Scheduler {
        &self.engine().scheduler
    }

    fn pass(&self) -> &Pass {
        &self.engine().pass
    }

    fn pass_mut(&mut self) -> &mut Pass {
        &mut self.engine_mut().pass
    }

    /// The settings.
    pub fn config(&self) -> &EngineConfig {
        &self.cache().config
    }

    /// The content streams, for reading.
    pub fn contents(&self) -> &Contents {
        &self.cache().contents
    }

    /// The content streams, for a workload that makes and extends them.
    pub fn contents_mut(&mut self) -> &mut Contents {
        &mut self.cache_mut().contents
    }

    /// Hands a request to the worker. It enters at the start of the next iteration; whether it was turned away then is in
    /// that iteration's record. The worker takes a reference to the content of its own.
    ///
    /// # Errors
    /// A request whose lengths do not fit its content; nothing is changed.
    pub fn submit(&mut self, mut spec: RequestSpec) -> Result<RequestKey, SubmitError> {
        if self.config().role == Role::Prefill {
            spec.max_new_tokens = 1;
        }
        check_lengths(&spec, self.contents().len(spec.content))?;
        self.contents_mut().retain(spec.content);
        let request = self.engine_mut().scheduler.requests.add(spec);
        self.ask(Asked::Submit(request));
        Ok(request)
    }

    /// Cancels a request at the start of the next iteration (`behaviour.md` section 8). One that has ended is ignored.
    pub fn cancel(&mut self, request: RequestKey) {
        self.ask(Asked::Cancel(request));
    }

    /// Says that the transfer of a request in the prefill role has ended.
    pub fn release(&mut self, request: RequestKey) {
        self.ask(Asked::Release(request));
    }

    fn ask(&mut self, asked: Asked) {
        self.engine_mut().scheduler.inbox.asked.push(asked);
        self.asked = true;
    }

    /// Takes what was asked into the worker without running a pass. [`Worker::step`] does so by itself. This is no call that a
    /// probe reads, nor is [`Worker::peek`].
    pub fn enter(&mut self) {
        self.forget_told();
        if std::mem::take(&mut self.asked) {
            self.engine = self.engine.take().map(|engine| self.iteration.enter(engine));
        }
    }

    /// Runs one iteration. Its record stays readable until the next one.
    ///
    /// # Errors
    /// The pass was refused and undone.
    pub fn step(&mut self) -> Result<&PassRecord, StepError> {
        self.start_lap();
        let refusal = self.iterate();
        self.finish_lap();
        self.note(refusal)
    }

    fn iterate(&mut self) -> Option<Refusal> {
        self.enter();
        self.run_pass()
    }

    fn run_pass(&mut self) -> Option<Refusal> {
        let engine = self.engine.take().expect(HELD);
        let (engine, refusal) = self.iteration.run(engine);
        self.engine = Some(engine);
        refusal
    }

    /// Runs iterations until something happens: a stride of decode passes in which nothing arrives or is published and no
    /// memory runs short, up to one in which rows end, or else one iteration. The record says how many passes it stands for. No pass of
    /// a stride starts at or after `until_ns`, and there are at most `most` of them. Equal to as many single steps.
    ///
    /// # Errors
    /// The first pass was refused and undone.
    pub fn advance(&mut self, until_ns: u64, most: u64) -> Result<&PassRecord, StepError> {
        self.start_lap();
        let refusal = self.stride_or_iterate(StrideLimits { until_ns, passes: most });
        self.finish_lap();
        self.note(refusal)
    }

    fn stride_or_iterate(&mut self, limits: StrideLimits) -> Option<Refusal> {
        if self.may_stride && !self.asked {
            self.forget_told();
            self.pass_mut().plan.stride = limits;
            self.engine = self.engine.take().map(|engine| self.iteration.stride(engine));
            let plan = &mut self.pass_mut().plan;
            let (passes, refusal) = (plan.stride_passes, plan.refusal.take());
            if passes > 0 || refusal.is_some() {
                return refusal;
            }
        }
        self.iterate()
    }

    /// What the next iteration would do, if it came now: a pass that is undone, without asking the timing model.
    ///
    /// # Errors
    /// The pool could not hold the pass.
    pub fn peek(&mut self) -> Result<Peek, StepError> {
        self.enter();
        self.pass_mut().plan.peeking = true;
        let refusal = self.run_pass();
        self.pass_mut().plan.peeking = false;
        match refusal {
            Some(Refusal::Error(error)) => Err(error),
            Some(Refusal::Peek(peek)) => Ok(peek),
            None => Ok(Peek::default()),
        }
    }

    /// What is left to do after an iteration or a stride: its record is to be told once.
    fn note(&mut self, refusal: Option<Refusal>) -> Result<&PassRecord, StepError> {
        if let Some(Refusal::Error(error)) = refusal {
            return Err(error);
        }
        let record = &held(&self.engine).pass.record;
        self.may_stride =
            record.mode == BatchMode::Decode || self.extend_ends_in_its_pass && record.mode == BatchMode::Extend;
        self.told = !record.rejected.is_empty() || !record.dropped.is_empty();
        Ok(record)
    }

    /// What `enter` noted belongs to one committed record only.
    fn forget_told(&mut self) {
        if std::mem::take(&mut self.told) {
            let record = &mut self.pass_mut().record;
            record.rejected.clear();
            record.dropped.clear();
        }
    }

    /// Puts another timing model in the place of the one that refused.
    pub fn set_timing(&mut self, timing: Box<dyn TimingModel>) {
        self.engine_mut().timing.model = timing;
    }

    /// Says how much of a KV event is made, from counts alone (the default) to hashes and token ids. To be set while the cache
    /// is empty and nothing was published.
    ///
    /// # Panics
    /// The cache holds something, which would have no hashes.
    pub fn set_event_detail(&mut self, detail: EventDetail) {
        let cache = self.cache_mut();
        assert!(cache.tree.node_count() == 0, "the detail of events is set before the first pass");
        cache.hashes.detail = detail;
        cache.events.want_details(cache.hashes.are_kept());
    }

    /// The hashes of a consumer that has applied all events, those that wait included: of every cached page, node by node,
    /// in no order that may be relied on. Nothing while only counts are made.
    pub fn cached_blocks(&self) -> impl Iterator<Item = i64> + '_ {
        let Cache { tree, hashes, .. } = self.cache();
        tree.iter().flat_map(|(node, _)| hashes.of(node).iter().copied())
    }

    /// The KV events that wait for publication.
    pub fn waiting_events(&self) -> &EventQueue {
        &self.cache().events
    }

    /// Gives a request up at the start of the next iteration, whatever its state: it is released without insertion and
    /// rejected as refused. For a request whose pass the timing model refuses; [`Worker::cancel`] would wait for a result.
    pub fn give_up(&mut self, request: RequestKey) {
        self.ask(Asked::GiveUp(request));
    }

    /// A digest of all state that a later pass can see. Equal before a refused pass and after it.
    pub fn digest(&self) -> u64 {
        digest::digest(self.cache(), self.scheduler(), self.pass())
    }

    /// Checks every invariant from scratch, at a cost that grows with the cache.
    ///
    /// # Errors
    /// The first one that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        check::check(self.cache(), self.scheduler())
    }

    /// The record of the last iteration.
    pub fn record(&self) -> &PassRecord {
        &self.pass().record
    }

    /// The clock.
    pub fn clock(&self) -> Clock {
        self.pass().clock
    }

    /// Moves the clock forward to a time at which something will arrive. A time that has passed changes nothing.
    pub fn advance_clock(&mut self, to_ns: u64) {
        let clock = &mut self.pass_mut().clock;
        clock.now_ns = clock.now_ns.max(to_ns);
    }

    /// The requests that wait, in order.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = RequestKey> + '_ {
        self.scheduler().queue.iter()
    }

    /// The rows of the running batch in order: those of the last pass if it was a decode pass.
    pub fn running(&self) -> &[RequestKey] {
        self.scheduler().running.rows()
    }

    /// The decode rows of the last pass if it was a mixed extend batch.
    pub fn mixed(&self) -> &[RequestKey] {
        &self.scheduler().batches.last.mixed
    }

    /// The requests held by a prefill-role worker.
    pub fn held(&self) -> &[RequestKey] {
        &self.scheduler().held.requests
    }

    /// The tag of a request that is still known.
    pub fn tag(&self, request: RequestKey) -> Option<u64> {
        let requests = &self.scheduler().requests;
        requests.knows(request).then(|| requests.spec(request).tag)
    }

    /// The tree, for its sizes.
    pub fn tree(&self) -> &Tree {
        &self.cache().tree
    }

    /// The pool, for its sizes.
    pub fn pool(&self) -> &Pool {
        &self.cache().pool
    }

    /// The journal, for its counts.
    pub fn journal(&self) -> &Journal {
        &self.cache().journal
    }
}

/// Why a worker has its stores: only while it waits for a schedule to end are they lent.
const HELD: &str = "the stores are the worker's while no schedule runs";

fn held(engine: &Option<Box<Engine>>) -> &Engine {
    engine.as_deref().expect(HELD)
}

/// A request must have a prompt, something to say, and content for all that it may produce.
fn check_lengths(spec: &RequestSpec, found: u32) -> Result<(), SubmitError> {
    if spec.prompt_tokens == 0 {
        return Err(SubmitError::EmptyPrompt);
    }
    if spec.output_tokens == 0 {
        return Err(SubmitError::EmptyOutput);
    }
    let output = if spec.stop_at_end { spec.output_tokens } else { spec.output_tokens.max(spec.max_new_tokens) };
    let expected = u64::from(spec.prompt_tokens) + u64::from(output);
    if u64::from(found) < expected {
        return Err(SubmitError::ContentTooShort { found: u64::from(found), expected });
    }
    Ok(())
}

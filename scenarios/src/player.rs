//! Plays a workload on a worker: submits what is due, steps, tells the workload what ended, and moves the clock over idle time.

use servesim_engine::batch::BatchMode;
use servesim_engine::block_hashes::EventDetail;
use servesim_engine::config::{ConfigError, EngineConfig, Role};
use servesim_engine::laps::Probe;
use servesim_engine::record::PassRecord;
use servesim_engine::request::Transfer;
use servesim_engine::timing::TimingModel;
use servesim_engine::worker::{StepError, SubmitError, Worker};

use crate::workload::{InputError, Job, Workload};

/// The most passes of one stride, so that an observer hears of a long one in time.
const LONGEST_STRIDE: u64 = 1 << 16;

/// Idle iterations in a row after which a run with nothing left to do ends.
const TRAILING_IDLE: u32 = 3;

/// Dropped requests that are kept with their reasons; the others are counted.
const SKIPPED_KEPT: usize = 3;

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// A setting of the engine.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A row of the trace.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A request that the workload made does not fit its content.
    #[error("request {tag}: {source}")]
    Submit {
        /// The request.
        tag: u64,
        /// Why.
        source: SubmitError,
    },
    /// A pass could not run.
    #[error("at {now_ms} ms: {source}")]
    Step {
        /// Simulated time in milliseconds.
        now_ms: u64,
        /// Why.
        source: StepError,
    },
    /// Requests wait that nothing can ever let in.
    #[error("at {now_ms} ms no request can make progress: {holders}")]
    Stuck {
        /// Simulated time in milliseconds.
        now_ms: u64,
        /// Which request waits, and who holds what.
        holders: String,
    },
}

/// How simulated time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// A pass takes what the timing model says.
    Model,
    /// Every iteration takes this many nanoseconds if it has a batch or a request is in flight, whatever the model says:
    /// the rule by which the recorded totals of whole runs were made.
    FixedIteration(u64),
}

/// What the player does when a pass is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The run ends with the error.
    #[default]
    Stop,
    /// The request that leads the batch is dropped, and the run goes on.
    Skip,
}

/// A request that was dropped because its pass was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Skipped {
    /// Its tag.
    pub tag: u64,
    /// Why its pass was refused.
    pub reason: StepError,
}

/// What one iteration did, with what only the player knows.
pub struct Played<'p> {
    /// The worker's record of the iteration.
    pub record: &'p PassRecord,
    /// The worker after it.
    pub worker: &'p Worker,
    /// Jobs submitted at its start, in order.
    pub submitted: &'p [Job],
    /// Requests in flight after it.
    pub in_flight: u64,
    /// Simulated time before it, in nanoseconds.
    pub started_ns: u64,
    /// Simulated time after it, in nanoseconds.
    pub now_ns: u64,
}

/// A workload being played.
pub struct Player {
    worker: Worker,
    workload: Box<dyn Workload>,
    pace: Pace,
    longest_stride: u64,
    interval_ns: Option<u64>,
    on_error: OnError,
    skipped: Vec<Skipped>,
    skipped_requests: u64,
    /// When the workload's next job is due, where it is known: not since a job ended.
    next_due: Option<Option<u64>>,
    now_ns: u64,
    due: Vec<Job>,
    ended: Vec<u64>,
    in_flight: u64,
    idle_iterations: u32,
    fruitless_iterations: u64,
}

impl Player {
    /// A player at time 0.
    ///
    /// # Errors
    /// A setting that is out of bounds.
    pub fn new(
        config: EngineConfig,
        timing: Box<dyn TimingModel>,
        workload: Box<dyn Workload>,
        pace: Pace,
    ) -> Result<Player, ConfigError> {
        Ok(Player {
            worker: Worker::new(config, timing)?,
            workload,
            pace,
            longest_stride: LONGEST_STRIDE,
            interval_ns: None,
            on_error: OnError::Stop,
            skipped: Vec::new(),
            skipped_requests: 0,
            next_due: None,
            now_ns: 0,
            due: Vec::new(),
            ended: Vec::new(),
            in_flight: 0,
            idle_iterations: 0,
            fruitless_iterations: 0,
        })
    }

    /// Says what happens when a pass is refused.
    pub fn on_error(mut self, on_error: OnError) -> Player {
        self.on_error = on_error;
        self
    }

    /// Says how much of KV events is made. To be called before the first iteration.
    ///
    /// # Panics
    /// Something has been played already.
    pub fn event_detail(mut self, detail: EventDetail) -> Player {
        self.worker.set_event_detail(detail);
        self
    }

    /// Limits strides to a number of passes; 0 steps every pass singly.
    pub fn longest_stride(mut self, passes: u64) -> Player {
        self.longest_stride = passes;
        self
    }

    /// Ends strides where an interval of this many nanoseconds ends, so that an observer sees the state there: a stride goes
    /// over the end of an interval with its last pass at most. Changes no result.
    pub fn watch_intervals(mut self, interval_ns: Option<u64>) -> Player {
        self.interval_ns = interval_ns.map(|interval_ns| interval_ns.max(1));
        self
    }

    /// How many requests were dropped because their pass was refused.
    pub fn skipped_requests(&self) -> u64 {
        self.skipped_requests
    }

    /// The first few requests that were dropped because their pass was refused.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The worker.
    pub fn worker(&self) -> &Worker {
        &self.worker
    }

    /// Has the host's counters read at the end of each system, or no longer.
    pub fn set_probe(&mut self, probe: Option<Box<dyn Probe>>) {
        self.worker.set_probe(probe);
    }

    /// How many jobs there will be in all, where the workload knows.
    pub fn jobs_total(&self) -> Option<u64> {
        self.workload.jobs_total()
    }

    /// Rows of the trace that were skipped.
    pub fn skipped_rows(&self) -> u64 {
        self.workload.skipped_rows()
    }

    /// Plays to the end, and shows every iteration to `observe`.
    ///
    /// # Errors
    /// See [`PlayError`].
    pub fn run(&mut self, mut observe: impl FnMut(&Played)) -> Result<(), PlayError> {
        while self.iterate(&mut observe)? {}
        Ok(())
    }

    /// One iteration. Says whether there is more to do.
    ///
    /// # Errors
    /// See [`PlayError`].
    pub fn iterate(&mut self, observe: &mut impl FnMut(&Played)) -> Result<bool, PlayError> {
        let started_ns = self.now_ns;
        self.due.clear();
        if self.next_due.is_none_or(|next_due| next_due.is_some_and(|due_ns| due_ns <= started_ns)) {
            self.submit_due(started_ns)?;
            self.next_due = Some(self.workload.next_due_ns(self.worker.contents_mut())?);
        }
        self.step(started_ns)?;
        if let Pace::FixedIteration(iteration_ns) = self.pace {
            self.pass_fixed_time(started_ns, iteration_ns);
        }
        let now_ns = self.worker.clock().now_ns;
        self.now_ns = now_ns;
        let record = self.worker.record();
        let idle = record.mode == BatchMode::Idle;
        note_ended(record, &mut self.ended);
        self.in_flight -= self.ended.len() as u64;
        let (submitted, in_flight) = (&self.due, self.in_flight);
        observe(&Played { record, worker: &self.worker, submitted, in_flight, started_ns, now_ns });
        for index in 0..self.ended.len() {
            self.workload.ended(self.ended[index], now_ns, self.worker.contents_mut());
            // An end may bring new jobs.
            self.next_due = None;
        }
        self.pass_idle_time(idle)
    }

    /// One pass; a refused one is tried again without the request that leads it, where that is wanted.
    fn step(&mut self, now_ns: u64) -> Result<(), PlayError> {
        let until_ns = match self.pace {
            Pace::Model => {
                let end_ns = self.interval_ns.map(|interval_ns| (now_ns / interval_ns + 1).saturating_mul(interval_ns));
                self.next_due.flatten().into_iter().chain(end_ns).min().unwrap_or(u64::MAX)
            }
            Pace::FixedIteration(_) => 0,
        };
        loop {
            let Err(source) = self.worker.advance(until_ns, self.longest_stride) else { return Ok(()) };
            if self.on_error == OnError::Stop {
                return Err(PlayError::Step { now_ms: now_ns / 1_000_000, source });
            }
            let (request, tag) = source.leader();
            self.worker.give_up(request);
            self.skipped_requests += 1;
            if self.skipped.len() < SKIPPED_KEPT {
                self.skipped.push(Skipped { tag, reason: source });
            }
        }
    }

    fn submit_due(&mut self, now_ns: u64) -> Result<(), PlayError> {
        self.workload.take_due(now_ns, self.worker.contents_mut(), &mut self.due)?;
        for index in 0..self.due.len() {
            let mut request = self.due[index].request.clone();
            if self.worker.config().role == Role::Prefill && request.transfer == Transfer::UntilReleased {
                // Nobody else would end the transfer of a workload's request.
                request.transfer = Transfer::DurationNs(0);
            }
            let (tag, content) = (request.tag, request.content);
            self.worker.submit(request).map_err(|source| PlayError::Submit { tag, source })?;
            self.worker.contents_mut().release(content);
            self.in_flight += 1;
        }
        Ok(())
    }

    fn pass_fixed_time(&mut self, started_ns: u64, iteration_ns: u64) {
        if self.worker.record().mode != BatchMode::Idle || self.in_flight > 0 {
            self.worker.advance_clock(started_ns + iteration_ns);
        }
    }

    /// After an idle iteration the clock moves to the next arrival; a run with nothing to come ends.
    fn pass_idle_time(&mut self, idle: bool) -> Result<bool, PlayError> {
        if !idle {
            self.idle_iterations = 0;
            self.fruitless_iterations = 0;
            return Ok(true);
        }
        self.idle_iterations += 1;
        if !self.ended.is_empty() {
            return Ok(true);
        }
        let next_due = self.next_due.flatten();
        if self.in_flight == 0 {
            if let Some(due_ns) = next_due {
                self.wait_until(due_ns);
            }
            return Ok(next_due.is_some() || self.idle_iterations < TRAILING_IDLE);
        }
        match next_due {
            Some(due_ns) if self.worker.is_stuck() => self.wait_until(due_ns),
            Some(_) => {}
            None => self.watch_progress()?,
        }
        Ok(true)
    }

    fn wait_until(&mut self, due_ns: u64) {
        self.worker.advance_clock(due_ns);
        self.now_ns = self.now_ns.max(due_ns);
    }

    /// A worker that can make no progress does the same again each iteration. Some idle iterations are in order: those that
    /// `prefill_decode_interval` holds back, and the other orders that the `random` policy tries.
    fn watch_progress(&mut self) -> Result<(), PlayError> {
        self.fruitless_iterations += 1;
        let waiting = self.worker.waiting().len() as u64;
        let tries = 4 + 64 * waiting + u64::from(self.worker.config().prefill_decode_interval);
        if self.fruitless_iterations <= tries {
            return Ok(());
        }
        Err(PlayError::Stuck {
            now_ms: self.worker.clock().now_ns / 1_000_000,
            holders: self.worker.describe_holders(),
        })
    }
}

/// Who ended in an iteration, in whatever way.
fn note_ended(record: &PassRecord, ended: &mut Vec<u64>) {
    ended.clear();
    ended.extend(record.finished.iter().map(|finished| finished.tag));
    ended.extend_from_slice(&record.dropped);
    ended.extend(record.rejected.iter().map(|&(tag, _)| tag));
}

//! Plays a golden case on a worker and logs each iteration as the recorder does.
//!
//! Who enters when: at each iteration the lanes in order, then arrivals, then cancellations. A lane's next request enters at
//! the first iteration after its previous one ended. The run ends after three idle iterations in a row with nothing submitted,
//! nothing held and nothing to come.

use std::collections::{BTreeMap, BTreeSet};

use servesim_engine::batch::BatchMode;
use servesim_engine::block_hashes::EventDetail;
use servesim_engine::check::Violation;
use servesim_engine::config::{
    EngineConfig, EvictionPolicy, EvictionPolicyConfig, RetractionPolicy, Role, SchedulePolicy,
};
use servesim_engine::content::{ContentError, MAX_STREAM_TOKENS, Run};
use servesim_engine::events::{DetailedEvent, EventKind};
use servesim_engine::record::{Finished, PassRecord};
use servesim_engine::request::{Reject, RequestKey, RequestSpec, Transfer};
use servesim_engine::timing::{Constant, PassShape, TimingError, TimingModel};
use servesim_engine::worker::{StepError, SubmitError, Worker};

use crate::case::{BatchLog, Case, CaseConfig, CaseRequest, EventLog, Gauges, PassLog, PublishLog, RowLog};

/// Why a case could not be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A setting that the engine does not know or cannot run with.
    #[error("config.{field}: found {found}, expected {expected}")]
    Config {
        /// The field.
        field: String,
        /// What was found.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A request that cannot be submitted.
    #[error("request {rid}: {source}")]
    Request {
        /// Its name.
        rid: String,
        /// Why.
        source: SubmitError,
    },
    /// Content that cannot be.
    #[error("request {rid}: {source}")]
    Content {
        /// The request's name.
        rid: String,
        /// Why.
        source: ContentError,
    },
    /// Two requests of one name.
    #[error("request {rid}: found a second request of this name, expected names to differ")]
    DuplicateName {
        /// The name.
        rid: String,
    },
    /// A pass that could not run.
    #[error("pass {pass}: {source}")]
    Step {
        /// The iteration.
        pass: u64,
        /// Why.
        source: StepError,
    },
    /// A refused pass changed the worker.
    #[error("pass {pass}: a refused pass left a trace")]
    TraceLeft {
        /// The iteration.
        pass: u64,
    },
    /// An invariant does not hold after an iteration.
    #[error("pass {pass}: {source}")]
    Broken {
        /// The iteration.
        pass: u64,
        /// Which one.
        source: Violation,
    },
}

/// Finds a named value, or says which names are known.
pub(crate) fn named<T: Copy>(names: &[(&str, T)], field: &str, found: &str) -> Result<T, ReplayError> {
    names.iter().find(|(name, _)| *name == found).map(|&(_, value)| value).ok_or_else(|| ReplayError::Config {
        field: field.to_owned(),
        found: found.to_owned(),
        expected: format!("one of {}", names.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")),
    })
}

impl CaseConfig {
    /// The settings under SGLang's names.
    ///
    /// # Errors
    /// A policy or role that is not known, or settings of an eviction policy that are not.
    pub fn engine(&self) -> Result<EngineConfig, ReplayError> {
        let defaults = EngineConfig::default();
        let eviction = match &self.eviction_policy_config {
            Some(value) => serde_json::from_value(value.clone()).map_err(|error| ReplayError::Config {
                field: "eviction_policy_config".to_owned(),
                found: value.to_string(),
                expected: error.to_string(),
            })?,
            None => EvictionPolicyConfig::default(),
        };
        let retraction = self.retraction_policy.as_deref().unwrap_or("length");
        let role = self.role.as_deref().unwrap_or("unified");
        Ok(EngineConfig {
            role: named(&[("unified", Role::Unified), ("prefill", Role::Prefill)], "role", role)?,
            page_size: self.page_size,
            max_total_tokens: self.kv_tokens,
            context_length: self.max_context_len,
            chunked_prefill_size: self.chunked_prefill_size,
            max_prefill_tokens: self.max_prefill_tokens,
            max_running_requests: self.max_running_requests,
            max_queued_requests: self.max_queued_requests,
            schedule_policy: named(&SchedulePolicy::NAMES, "schedule_policy", &self.schedule_policy)?,
            schedule_conservativeness: self.schedule_conservativeness,
            enable_priority_scheduling: self.priority_scheduling.unwrap_or(false),
            disable_priority_preemption: !self.priority_preemption.unwrap_or(true),
            priority_scheduling_preemption_threshold: self.preemption_threshold.unwrap_or(10),
            schedule_low_priority_values_first: self.low_priority_values_first.unwrap_or(false),
            retraction_policy: named(
                &[("length", RetractionPolicy::Length), ("priority", RetractionPolicy::Priority)],
                "retraction_policy",
                retraction,
            )?,
            radix_eviction_policy: named(&EvictionPolicy::NAMES, "eviction_policy", &self.eviction_policy)?,
            radix_eviction_policy_config: eviction,
            disable_radix_cache: self.disable_radix_cache.unwrap_or(false),
            enable_mixed_chunk: self.mixed_chunk.unwrap_or(false),
            disable_overlap_schedule: !self.overlap,
            prefill_decode_interval: self.prefill_decode_interval.unwrap_or(0),
            decode_log_interval: self.decode_log_interval,
            entry_checks: self.intake.unwrap_or(true),
            clip_max_new_tokens_estimation: self.clip_max_new_tokens.unwrap_or(defaults.clip_max_new_tokens_estimation),
            ..defaults
        })
    }
}

/// The token that the recorder's model says when its table of output tokens is used up.
const FILLER_TOKEN: u32 = 7;

/// Longest run of a case without a log, in iterations, before it is taken for endless.
pub const MOST_PASSES: u64 = 200_000;

/// Plays a case with every pass taking a millisecond, for as many iterations as were recorded.
///
/// # Errors
/// See [`ReplayError`].
pub fn replay(case: &Case) -> Result<Vec<PassLog>, ReplayError> {
    replay_with(case, passes_of(case), constant(), step_once)
}

/// How long a case is played at most: as long as it was recorded, where it was.
pub fn passes_of(case: &Case) -> u64 {
    if case.passes.is_empty() { MOST_PASSES } else { case.passes.len() as u64 }
}

/// The timing of a replay: a millisecond a pass.
pub fn constant() -> Box<dyn TimingModel> {
    Box::new(Constant { extend_ns: 1_000_000, decode_ns: 1_000_000 })
}

/// One iteration that must not be refused.
///
/// # Errors
/// The pass was refused.
pub fn step_once(worker: &mut Worker, pass: u64) -> Result<(), ReplayError> {
    worker.step().map(|_| ()).map_err(|source| ReplayError::Step { pass, source })
}

/// Plays a case while the timing model refuses passes at random, each tried again until it is taken, and checks that a
/// refusal leaves no trace.
///
/// # Errors
/// See [`ReplayError`]; a refused pass that changed the worker's digest is one.
pub fn replay_refusing(case: &Case, most: u64, seed: u64) -> Result<Vec<PassLog>, ReplayError> {
    let mut draws = seed;
    let refusing = move |_: &PassShape| {
        draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Two in five, so that refusals in a row and of the first pass are common.
        if (draws >> 33) % 5 < 2 {
            Err(TimingError::OutOfRange { what: "refused at random".to_owned() })
        } else {
            Ok(1_000_000)
        }
    };
    replay_with(case, most, Box::new(refusing), |worker, pass| {
        worker.enter();
        let before = worker.digest();
        loop {
            match worker.step().map(|_| ()) {
                Ok(()) => return Ok(()),
                Err(StepError::Timing { .. }) if worker.digest() == before => {}
                Err(StepError::Timing { .. }) => return Err(ReplayError::TraceLeft { pass }),
                Err(source) => return Err(ReplayError::Step { pass, source }),
            }
        }
    })
}

/// Plays a case for `most` iterations with a timing model and a way to step of the caller's own.
///
/// # Errors
/// See [`ReplayError`]; and what `step` returns.
pub fn replay_with(
    case: &Case,
    most: u64,
    timing: Box<dyn TimingModel>,
    mut step: impl FnMut(&mut Worker, u64) -> Result<(), ReplayError>,
) -> Result<Vec<PassLog>, ReplayError> {
    let mut player = Player::new(case, timing)?;
    let mut log = Vec::new();
    let mut idle = 0;
    for pass in 0..most {
        let submitted = player.submit_due(pass)?;
        let abort_requested = player.cancel_due(pass);
        step(&mut player.worker, pass)?;
        let nothing = player.worker.record().mode == BatchMode::Idle && submitted.is_empty();
        idle = if nothing { idle + 1 } else { 0 };
        log.push(player.log(pass, submitted, abort_requested));
        if idle >= 3 && player.worker.held().is_empty() && player.nothing_to_come() {
            break;
        }
    }
    // A log that was cut off while the recorder still ran is compared as far as it goes.
    Ok(log)
}

/// A case being played.
struct Player<'c> {
    case: &'c Case,
    worker: Worker,
    /// Requests by name order: a request's tag is its place, so that ties by tag are ties by name.
    names: Vec<&'c str>,
    keys: BTreeMap<&'c str, RequestKey>,
    /// Place in the order of submission, by tag.
    submission: Vec<usize>,
    submissions: usize,
    next_in_lane: Vec<usize>,
    /// The request that a lane waits for, by tag.
    lane_of: BTreeMap<u64, usize>,
    lane_busy: Vec<bool>,
    next_arrival: usize,
    next_abort: usize,
    arrivals: Vec<usize>,
    aborts: Vec<usize>,
    waiting: Option<Vec<String>>,
}

impl<'c> Player<'c> {
    fn new(case: &'c Case, timing: Box<dyn TimingModel>) -> Result<Self, ReplayError> {
        let config = case.config.engine()?;
        let mut worker = Worker::new(config, timing).map_err(|error| ReplayError::Config {
            field: error.field.to_owned(),
            found: error.found,
            expected: error.expected.to_owned(),
        })?;
        worker.set_event_detail(EventDetail::HashesAndTokens);
        let names = names_in_order(case)?;
        let mut arrivals: Vec<usize> = (0..case.arrivals.len()).collect();
        arrivals.sort_by_key(|&index| case.arrivals[index].at_pass);
        let mut aborts: Vec<usize> = (0..case.aborts.len()).collect();
        aborts.sort_by_key(|&index| case.aborts[index].at_pass);
        Ok(Player {
            case,
            worker,
            submission: vec![usize::MAX; names.len()],
            names,
            keys: BTreeMap::new(),
            submissions: 0,
            next_in_lane: vec![0; case.lanes.len()],
            lane_of: BTreeMap::new(),
            lane_busy: vec![false; case.lanes.len()],
            next_arrival: 0,
            next_abort: 0,
            arrivals,
            aborts,
            waiting: None,
        })
    }

    fn nothing_to_come(&self) -> bool {
        let lanes_done = self.case.lanes.iter().zip(&self.next_in_lane).all(|(lane, &next)| next == lane.len());
        lanes_done && self.next_arrival == self.arrivals.len() && self.next_abort == self.aborts.len()
    }

    fn submit_due(&mut self, pass: u64) -> Result<Vec<String>, ReplayError> {
        let mut submitted = Vec::new();
        for (index, lane) in self.case.lanes.iter().enumerate() {
            if !self.lane_busy[index] && self.next_in_lane[index] < lane.len() {
                let request = &lane[self.next_in_lane[index]];
                self.next_in_lane[index] += 1;
                let tag = self.submit(request)?;
                self.lane_busy[index] = true;
                self.lane_of.insert(tag, index);
                submitted.push(request.rid.clone());
            }
        }
        while let Some(&index) = self.arrivals.get(self.next_arrival) {
            let arrival = &self.case.arrivals[index];
            if arrival.at_pass > pass {
                break;
            }
            self.next_arrival += 1;
            self.submit(&arrival.request)?;
            submitted.push(arrival.request.rid.clone());
        }
        Ok(submitted)
    }

    fn submit(&mut self, request: &'c CaseRequest) -> Result<u64, ReplayError> {
        let rid = || request.rid.clone();
        let (prompt_tokens, output_tokens) = (tokens(&request.input), tokens(&request.output));
        let max_new_tokens = self.most_new_tokens(request);
        let missing = u64::from(max_new_tokens).saturating_sub(output_tokens);
        let held = prompt_tokens + output_tokens + missing;
        if held > u64::from(MAX_STREAM_TOKENS) {
            return Err(ReplayError::Content { rid: rid(), source: ContentError::TooLong { tokens: held } });
        }
        let contents = self.worker.contents_mut();
        let namespace = contents.namespace(request.extra_key.as_deref());
        let stream = contents.create(namespace);
        let filler = std::iter::repeat_n(Run { first: FILLER_TOKEN, count: 1 }, missing as usize);
        for run in request.input.iter().chain(&request.output).copied().chain(filler) {
            contents.append(stream, run).map_err(|source| ReplayError::Content { rid: rid(), source })?;
        }
        let tag = self.names.binary_search(&request.rid.as_str()).unwrap_or_default() as u64;
        let spec = RequestSpec {
            max_new_tokens,
            stop_at_end: request.stop_at_end.unwrap_or(false),
            priority: request.priority.map(|priority| priority.clamp(i32::MIN.into(), i32::MAX.into()) as i32),
            routing_key: request.routing_key.as_deref().map(Into::into),
            transfer: Transfer::Iterations(request.hold.unwrap_or(5)),
            ..RequestSpec::new(tag, stream, prompt_tokens as u32, output_tokens as u32)
        };
        let key = self.worker.submit(spec).map_err(|source| ReplayError::Request { rid: rid(), source })?;
        self.worker.contents_mut().release(stream);
        self.keys.insert(&request.rid, key);
        self.submission[tag as usize] = self.submissions;
        self.submissions += 1;
        Ok(tag)
    }

    /// The most tokens that a request may produce. The checks at entry cut it below the context length, so that a log's way to
    /// say "no limit" needs no content for all of it.
    fn most_new_tokens(&self, request: &CaseRequest) -> u32 {
        let config = self.worker.config();
        let most = if config.entry_checks { config.context_length } else { u32::MAX };
        request.max_new_tokens.min(most)
    }

    fn cancel_due(&mut self, pass: u64) -> Vec<String> {
        let mut asked = Vec::new();
        while let Some(&index) = self.aborts.get(self.next_abort) {
            let abort = &self.case.aborts[index];
            if abort.at_pass > pass {
                break;
            }
            self.next_abort += 1;
            if let Some(&key) = self.keys.get(abort.rid.as_str()) {
                self.worker.cancel(key);
            }
            asked.push(abort.rid.clone());
        }
        asked
    }

    fn name(&self, tag: u64) -> String {
        self.names[tag as usize].to_owned()
    }

    fn names_of<'k>(&self, requests: impl IntoIterator<Item = &'k RequestKey>) -> Vec<String> {
        requests.into_iter().filter_map(|&request| self.worker.tag(request)).map(|tag| self.name(tag)).collect()
    }

    /// Names of tags in the order in which the requests were submitted.
    fn in_submission_order(&self, tags: impl IntoIterator<Item = u64>) -> Vec<String> {
        let mut tags: Vec<u64> = tags.into_iter().collect();
        tags.sort_by_key(|&tag| self.submission[tag as usize]);
        tags.into_iter().map(|tag| self.name(tag)).collect()
    }

    fn log(&mut self, pass: u64, submitted: Vec<String>, abort_requested: Vec<String>) -> PassLog {
        let record = self.worker.record();
        let ended: BTreeSet<u64> = record
            .finished
            .iter()
            .map(|finished| finished.tag)
            .chain(record.dropped.iter().copied())
            .chain(record.rejected.iter().map(|&(tag, _)| tag))
            .collect();
        let after_schedule = self.gauges(&record.after_schedule);
        let after_results = Some(self.gauges(&record.after_results)).filter(|after| *after != after_schedule);
        let mut finished: Vec<&Finished> = record.finished.iter().collect();
        if self.worker.config().role == Role::Prefill {
            // The recorder lists ended transfers in the order of submission.
            finished.sort_by_key(|finished| self.submission[finished.tag as usize]);
        }
        let finished = finished.into_iter().map(|finished| {
            (self.name(finished.tag), finished.finish.as_str().to_owned(), u64::from(finished.produced_tokens))
        });
        let (rejected, dropped) = self.turned_away(record, &submitted);
        let waiting: Vec<String> = self.names_of(&self.worker.waiting().collect::<Vec<_>>());
        let log = PassLog {
            pass,
            submitted,
            rejected: self.in_submission_order(rejected),
            abort_requested,
            dropped: self.in_submission_order(dropped),
            batch: self.batch(record),
            retracted: self.in_submission_order(record.retracted.iter().copied()),
            finished: finished.collect(),
            held: self.names_of(self.worker.held()),
            after_schedule,
            waiting: (self.waiting.as_ref() != Some(&waiting)).then(|| waiting.clone()),
            after_results,
            published: self.published(record),
        };
        self.waiting = Some(waiting);
        for tag in ended {
            if let Some(lane) = self.lane_of.remove(&tag) {
                self.lane_busy[lane] = false;
            }
        }
        log
    }

    /// Who the recorder says was rejected, and who dropped. A request that was displaced while its cancellation was under way
    /// is dropped to it; it is rejected too if a newcomer displaced it.
    fn turned_away(&self, record: &PassRecord, submitted: &[String]) -> (Vec<u64>, Vec<u64>) {
        let (mut rejected, mut dropped) = (Vec::new(), record.dropped.clone());
        for &(tag, reason) in &record.rejected {
            let Reject::Displaced { by, cancelled: true } = reason else {
                rejected.push(tag);
                continue;
            };
            dropped.push(tag);
            if submitted.iter().any(|name| *name == self.names[by as usize]) {
                rejected.push(tag);
            }
        }
        (rejected, dropped)
    }

    fn batch(&self, record: &PassRecord) -> Option<BatchLog> {
        let decode = |requests: &[RequestKey]| -> Vec<RowLog> {
            self.names_of(requests).into_iter().map(|name| RowLog::Decode((name,))).collect()
        };
        match record.mode {
            BatchMode::Idle => None,
            BatchMode::Decode => Some(BatchLog { mode: "decode".to_owned(), rows: decode(self.worker.running()) }),
            BatchMode::Extend => {
                let mut rows: Vec<RowLog> = Vec::new();
                for row in &record.extend {
                    let name = self.worker.tag(row.request).map(|tag| self.name(tag)).unwrap_or_default();
                    rows.push(RowLog::Extend(name, row.prefix.into(), row.end.into()));
                }
                rows.extend(decode(self.worker.mixed()));
                Some(BatchLog { mode: "extend".to_owned(), rows })
            }
        }
    }

    fn gauges(&self, gauges: &servesim_engine::record::Gauges) -> Gauges {
        let cached = !self.worker.config().disable_radix_cache;
        Gauges {
            free: gauges.free_tokens,
            ratio: nine_digits(gauges.new_token_ratio),
            evictable: cached.then_some(gauges.evictable_tokens),
            protected: cached.then_some(gauges.protected_tokens),
        }
    }

    fn published(&self, record: &PassRecord) -> Vec<PublishLog> {
        let page = self.worker.config().page_size;
        let batches = record.published.batches.iter();
        batches
            .map(|batch| PublishLog {
                why: batch.why.as_str().to_owned(),
                events: record.published.detailed(batch).map(|event| event_log(&event, page)).collect(),
            })
            .collect()
    }
}

/// The ratio as the recorder rounds it: to nine decimal digits of its exact value, ties to even.
fn nine_digits(ratio: f64) -> f64 {
    format!("{ratio:.9}").parse().unwrap_or(ratio)
}

fn event_log(detailed: &DetailedEvent, page_size: u32) -> EventLog {
    let hashes = detailed.hashes.to_vec();
    match detailed.event.kind {
        EventKind::Cleared => EventLog::Cleared,
        EventKind::Removed => EventLog::Removed { hashes },
        EventKind::Stored | EventKind::StoredAtRoot => EventLog::Stored {
            parent: detailed.parent,
            hashes,
            tokens: tokens(detailed.token_runs),
            block_size: page_size,
        },
    }
}

fn tokens(runs: &[Run]) -> u64 {
    runs.iter().map(|run| u64::from(run.count)).sum()
}

/// All request names, sorted.
fn names_in_order(case: &Case) -> Result<Vec<&str>, ReplayError> {
    let lanes = case.lanes.iter().flatten();
    let arrivals = case.arrivals.iter().map(|arrival| &arrival.request);
    let mut names: Vec<&str> = lanes.chain(arrivals).map(|request| request.rid.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(ReplayError::DuplicateName { rid: pair[0].to_owned() }),
        None => Ok(names),
    }
}

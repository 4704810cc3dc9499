//! A trace of a run for Perfetto and `chrome://tracing`: passes, requests, KV usage and event batches on simulated time, and in
//! a profile the systems on the host's.
//!
//! - [`event`], [`writer`]: the Trace Event Format, written as it comes.
//! - [`requests`]: the lanes of requests.

mod event;
mod requests;
mod writer;

use serde::Serialize;
use servesim_engine::batch::BatchMode;
use servesim_engine::events::EventKind;
use servesim_engine::laps::{Spent, Stage};
use servesim_scenarios::player::Played;

use self::event::{Event, Nothing, Track};
use self::requests::Requests;
use self::writer::Writer;
use crate::arguments::TraceOptions;
use crate::{Failure, note};

/// The process of the engine, on simulated time.
const ENGINE: u32 = 1;
/// The process of requests, on simulated time.
const REQUESTS: u32 = 2;
/// The process of the scheduler, on the host's time.
const HOST: u32 = 3;

const PASSES: Track = Track { pid: ENGINE, tid: 1 };
const KV_EVENTS: Track = Track { pid: ENGINE, tid: 2 };
const CALLS: Track = Track { pid: HOST, tid: 1 };

/// The order in which the systems of a call run: a stride is tried before an iteration.
const ORDER: [Stage; Stage::COUNT] = [
    Stage::Stride,
    Stage::Enter,
    Stage::Settle,
    Stage::Order,
    Stage::Admit,
    Stage::Allocate,
    Stage::Decode,
    Stage::Price,
    Stage::Undo,
    Stage::Commit,
    Stage::Publish,
    Stage::Observe,
];

/// When the device is busy with a pass, in simulated nanoseconds; of an idle iteration, its end twice.
#[derive(Clone, Copy, Debug)]
pub struct PassSlice {
    /// From.
    pub from_ns: u64,
    /// To.
    pub to_ns: u64,
}

#[derive(Serialize)]
struct Value {
    value: u64,
}

#[derive(Serialize)]
struct PassArgs {
    iteration: u64,
    passes: u64,
    num_prefill_requests: usize,
    sum_prefill_tokens: u64,
    sum_prefill_kv_tokens: u64,
    num_decode_requests: u32,
    sum_decode_kv_tokens: u64,
    retracted: usize,
    finished: usize,
}

#[derive(Serialize)]
struct EventArgs {
    events: u32,
    stored_blocks: u64,
    removed_blocks: u64,
}

#[derive(Serialize)]
struct CallArgs {
    iteration: u64,
}

/// What is said about the trace as a whole.
#[derive(Serialize)]
struct About {
    program: &'static str,
    simulated_ms: f64,
    /// Where the trace was cut, if it was.
    cut_at_ms: Option<f64>,
    requests_without_lane: u64,
}

/// The values of the counters, to write those that change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Gauges {
    kv_used_tokens: u64,
    kv_evictable_tokens: u64,
    num_running_reqs: u64,
    num_queue_reqs: u64,
}

impl Gauges {
    fn named(&self) -> [(&'static str, u64); 4] {
        [
            ("kv_used_tokens", self.kv_used_tokens),
            ("kv_evictable_tokens", self.kv_evictable_tokens),
            ("num_running_reqs", self.num_running_reqs),
            ("num_queue_reqs", self.num_queue_reqs),
        ]
    }
}

/// A trace under way.
pub struct ChromeTrace {
    writer: Writer,
    limit: u64,
    requests: Requests,
    gauges: Option<Gauges>,
    device_free_ns: u64,
    now_ns: u64,
    cut_at_ns: Option<u64>,
}

impl ChromeTrace {
    /// The trace that the options ask for, if they do. `host` adds the track of the host.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(options: &TraceOptions, host: bool) -> Result<Option<ChromeTrace>, Failure> {
        let Some(path) = &options.trace_out else { return Ok(None) };
        let mut writer = Writer::create(path).map_err(Failure::BadInput)?;
        name_tracks(&mut writer, host);
        Ok(Some(ChromeTrace {
            writer,
            limit: options.trace_limit,
            requests: Requests::default(),
            gauges: None,
            device_free_ns: 0,
            now_ns: 0,
            cut_at_ns: None,
        }))
    }

    /// Adds an iteration or a stride.
    pub fn add(&mut self, played: &Played) {
        if self.cut_at_ns.is_some() {
            return;
        }
        let slice = self.slice(played);
        self.requests.add(played, &slice, &mut self.writer);
        self.add_pass(played, &slice);
        self.add_gauges(played);
        self.add_events(played);
        self.device_free_ns = slice.to_ns;
        self.now_ns = played.now_ns;
        self.cut_when_full();
    }

    /// Adds a call of the worker and its systems on the host's time. `ended_ns` is when it ended.
    pub fn add_host(&mut self, ended_ns: u64, spent: &Spent, name: &str, iteration: u64) {
        if self.cut_at_ns.is_some() || spent.readings == 0 {
            return;
        }
        let mut at_ns = ended_ns.saturating_sub(spent.total.host_ns);
        self.writer.write(&Event::begin(name, CALLS, at_ns, CallArgs { iteration }));
        for stage in ORDER {
            let took_ns = spent.stages[stage as usize].host_ns;
            if spent.runs[stage as usize] > 0 {
                self.writer.slice(stage.as_str(), CALLS, at_ns, at_ns + took_ns, Nothing {});
                at_ns += took_ns;
            }
        }
        self.writer.write(&Event::close(name, CALLS, ended_ns));
        self.cut_when_full();
    }

    /// Ends the file, and says on stderr if it does not hold everything.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.requests.close(&mut self.writer);
        let ms = |ns: u64| ns as f64 / 1e6;
        let about = About {
            program: concat!("servesim ", env!("CARGO_PKG_VERSION")),
            simulated_ms: ms(self.now_ns),
            cut_at_ms: self.cut_at_ns.map(ms),
            requests_without_lane: self.requests.without_lane(),
        };
        if let Some(cut_at_ms) = about.cut_at_ms {
            let limit = self.limit;
            note(&format!("the trace was cut at {cut_at_ms:.3} ms, after {limit} events; --trace-limit says how many"));
        }
        if about.requests_without_lane > 0 {
            note(&format!("the trace has no lane for {} requests; all others are shown", about.requests_without_lane));
        }
        self.writer.finish(&about)
    }

    /// When the device is busy. With overlap the clock after an iteration is where its pass starts.
    fn slice(&self, played: &Played) -> PassSlice {
        let (record, now_ns) = (played.record, played.now_ns);
        if record.mode == BatchMode::Idle {
            return PassSlice { from_ns: now_ns, to_ns: now_ns.max(self.device_free_ns) };
        }
        if played.worker.config().disable_overlap_schedule {
            return PassSlice { from_ns: now_ns.saturating_sub(record.duration_ns), to_ns: now_ns };
        }
        let first_ns = if record.passes > 1 { self.device_free_ns.max(played.started_ns) } else { now_ns };
        PassSlice { from_ns: first_ns, to_ns: now_ns + played.worker.clock().in_flight_ns }
    }

    fn add_pass(&mut self, played: &Played, slice: &PassSlice) {
        let record = played.record;
        let name = match record.mode {
            BatchMode::Idle => return,
            BatchMode::Extend if record.decode_rows > 0 => "mixed".to_owned(),
            BatchMode::Extend => "extend".to_owned(),
            BatchMode::Decode if record.passes > 1 => format!("decode x {}", record.passes),
            BatchMode::Decode => "decode".to_owned(),
        };
        let args = PassArgs {
            iteration: record.iteration,
            passes: record.passes,
            num_prefill_requests: record.extend.len(),
            sum_prefill_tokens: record.extend.iter().map(|row| u64::from(row.end - row.prefix)).sum(),
            sum_prefill_kv_tokens: record.extend.iter().map(|row| u64::from(row.prefix)).sum(),
            num_decode_requests: record.decode_rows,
            sum_decode_kv_tokens: played.worker.decode_kv_tokens(),
            retracted: record.retracted.len(),
            finished: record.finished.len(),
        };
        self.writer.slice(&name, PASSES, slice.from_ns, slice.to_ns, args);
    }

    fn add_gauges(&mut self, played: &Played) {
        let sizes = &played.record.after_results;
        let waiting = played.worker.waiting().len() as u64;
        let total = played.worker.pool().total_tokens();
        let gauges = Gauges {
            kv_used_tokens: total.saturating_sub(sizes.free_tokens + sizes.evictable_tokens),
            kv_evictable_tokens: sizes.evictable_tokens,
            num_running_reqs: played.in_flight.saturating_sub(waiting),
            num_queue_reqs: waiting,
        };
        let before = self.gauges.replace(gauges).map(|gauges| gauges.named());
        for (index, (name, value)) in gauges.named().into_iter().enumerate() {
            if before.is_none_or(|before| before[index].1 != value) {
                self.writer.write(&Event::counter(name, PASSES, played.now_ns, Value { value }));
            }
        }
    }

    fn add_events(&mut self, played: &Played) {
        let published = &played.record.published;
        for batch in &published.batches {
            let mut args = EventArgs { events: batch.count, stored_blocks: 0, removed_blocks: 0 };
            for event in published.events_of(batch) {
                match event.kind {
                    EventKind::Stored | EventKind::StoredAtRoot => args.stored_blocks += event.blocks,
                    EventKind::Removed => args.removed_blocks += event.blocks,
                    EventKind::Cleared => {}
                }
            }
            self.writer.write(&Event::instant(batch.why.as_str(), KV_EVENTS, played.now_ns, args));
        }
    }

    fn cut_when_full(&mut self) {
        if self.writer.written() >= self.limit {
            self.cut_at_ns = Some(self.now_ns);
            self.requests.close(&mut self.writer);
        }
    }
}

fn name_tracks(writer: &mut Writer, host: bool) {
    let shown = |pid: u32| pid != HOST || host;
    let processes =
        [(ENGINE, "engine (simulated time)"), (REQUESTS, "requests (simulated time)"), (HOST, "scheduler (host time)")];
    for (pid, name) in processes.into_iter().filter(|&(pid, _)| shown(pid)) {
        writer.name_process(pid, name);
    }
    let threads = [(PASSES, "passes"), (KV_EVENTS, "KV events published"), (CALLS, "calls of the worker")];
    for (track, name) in threads.into_iter().filter(|(track, _)| shown(track.pid)) {
        writer.name_thread(track, name);
    }
}

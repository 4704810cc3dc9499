//! The tracks of requests: each request has a lane while it is in flight, and on it what it goes through.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use serde::Serialize;
use servesim_scenarios::player::Played;
use servesim_scenarios::workload::Job;

use super::event::{Event, Nothing, Track};
use super::writer::Writer;
use super::{PassSlice, REQUESTS};

/// Lanes at most. Requests that find none free are counted, not shown.
const LANES: u32 = 256;
/// The thread of the first lane. A thread with the number of its process would be the main one, which Perfetto shows first.
const FIRST_LANE: u32 = 1_000;

/// What a request is in.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It waits for its first pass.
    Queued,
    /// It was retracted or preempted, and waits again.
    Retracted,
    /// A pass with a part of its prompt was launched; once it has its first token, it decodes.
    Computed,
}

struct Live {
    lane: u32,
    phase: Phase,
    since_ns: u64,
    produces: bool,
}

#[derive(Serialize)]
struct About {
    request: u64,
    session: u64,
    turn: u32,
    prompt_tokens: u32,
    due_ms: f64,
}

#[derive(Serialize)]
struct Chunk {
    new_tokens: u32,
    cached_tokens: u32,
    first_admission: bool,
}

#[derive(Serialize)]
struct End {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens: Option<u32>,
}

/// The requests in flight that have a lane.
#[derive(Default)]
pub struct Requests {
    live: BTreeMap<u64, Live>,
    free: BinaryHeap<Reverse<u32>>,
    lanes: u32,
    without_lane: u64,
    last_ns: u64,
}

impl Requests {
    /// Requests that found no lane free.
    pub fn without_lane(&self) -> u64 {
        self.without_lane
    }

    /// Writes what an iteration meant for requests.
    pub fn add(&mut self, played: &Played, slice: &PassSlice, writer: &mut Writer) {
        let record = played.record;
        for job in played.submitted {
            self.submit(job, played.started_ns, writer);
        }
        for tag in &record.retracted {
            self.retract(*tag, slice.from_ns, writer);
        }
        for row in &record.extend {
            let Some(tag) = played.worker.tag(row.request) else { continue };
            let (new_tokens, cached_tokens) = (row.end - row.prefix, row.prefix);
            self.prefill(tag, slice, Chunk { new_tokens, cached_tokens, first_admission: row.first }, writer);
        }
        for tag in &record.first_tokens {
            if let Some(live) = self.live.get_mut(tag) {
                live.produces = true;
            }
        }
        let now_ns = played.now_ns;
        for finished in &record.finished {
            let end = End { outcome: finished.finish.as_str(), output_tokens: Some(finished.produced_tokens) };
            self.end(finished.tag, now_ns, end, writer);
        }
        for (tag, _) in &record.rejected {
            self.end(*tag, now_ns, End { outcome: "rejected", output_tokens: None }, writer);
        }
        for tag in &record.dropped {
            self.end(*tag, now_ns, End { outcome: "dropped", output_tokens: None }, writer);
        }
        self.last_ns = now_ns;
    }

    /// Ends what is open: the trace ends here.
    pub fn close(&mut self, writer: &mut Writer) {
        let mut open: Vec<(u32, u64)> = self.live.iter().map(|(&tag, live)| (live.lane, tag)).collect();
        open.sort_unstable();
        for (_, tag) in open {
            self.end(tag, self.last_ns, End { outcome: "in flight", output_tokens: None }, writer);
        }
    }

    fn submit(&mut self, job: &Job, at_ns: u64, writer: &mut Writer) {
        let Some(lane) = self.lane(writer) else {
            self.without_lane += 1;
            return;
        };
        let request = job.request.tag;
        let (session, turn, prompt_tokens) = (job.session, job.turn, job.request.prompt_tokens);
        let about = About { request, session, turn, prompt_tokens, due_ms: job.due_ns as f64 / 1e6 };
        writer.write(&Event::begin(&format!("request {request}"), track(lane), at_ns, about));
        self.live.insert(request, Live { lane, phase: Phase::Queued, since_ns: at_ns, produces: false });
    }

    /// The lowest lane that is free.
    fn lane(&mut self, writer: &mut Writer) -> Option<u32> {
        if let Some(Reverse(lane)) = self.free.pop() {
            return Some(lane);
        }
        if self.lanes == LANES {
            return None;
        }
        let lane = self.lanes;
        self.lanes += 1;
        writer.name_thread(track(lane), &format!("lane {lane}"));
        Some(lane)
    }

    fn retract(&mut self, tag: u64, at_ns: u64, writer: &mut Writer) {
        let Some(live) = self.live.get_mut(&tag) else { return };
        live.leave(at_ns, writer);
        (live.phase, live.since_ns) = (Phase::Retracted, live.since_ns.max(at_ns));
    }

    fn prefill(&mut self, tag: u64, slice: &PassSlice, chunk: Chunk, writer: &mut Writer) {
        let Some(live) = self.live.get_mut(&tag) else { return };
        if !matches!(live.phase, Phase::Computed) {
            live.leave(slice.from_ns, writer);
        }
        writer.slice("prefill", track(live.lane), slice.from_ns, slice.to_ns, chunk);
        (live.phase, live.since_ns) = (Phase::Computed, slice.to_ns);
    }

    fn end(&mut self, tag: u64, at_ns: u64, end: End, writer: &mut Writer) {
        let Some(live) = self.live.remove(&tag) else { return };
        live.leave(at_ns, writer);
        writer.write(&Event::end(&format!("request {tag}"), track(live.lane), at_ns.max(live.since_ns), end));
        self.free.push(Reverse(live.lane));
    }
}

impl Live {
    /// Writes the phase that ends now. Between two chunks a request is in none.
    fn leave(&self, at_ns: u64, writer: &mut Writer) {
        let name = match self.phase {
            Phase::Queued => "queued",
            Phase::Retracted => "retracted",
            Phase::Computed if self.produces => "decode",
            Phase::Computed => return,
        };
        if at_ns > self.since_ns {
            writer.slice(name, track(self.lane), self.since_ns, at_ns, Nothing {});
        }
    }
}

fn track(lane: u32) -> Track {
    Track { pid: REQUESTS, tid: FIRST_LANE + lane }
}

//! Samples at equal intervals of simulated time: gauges at the end of an interval, and sums within it.

use servesim_engine::events::EventKind;
use servesim_engine::record::{Gauges, PassRecord};

use crate::player::Played;

/// Sums within an interval. A pass counts where it ends: where the clock stands after its iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IntervalSums {
    /// Requests that entered.
    pub submitted: u64,
    /// Requests that were served.
    pub completed: u64,
    /// Retractions, preemptions included.
    pub retractions: u64,
    /// Tokens that extend batches computed, decode rows of mixed ones left out.
    pub prefill_tokens: u64,
    /// Tokens that decode rows got.
    pub decode_tokens: u64,
    /// Prompt tokens of requests that were admitted for the first time.
    pub admitted_tokens: u64,
    /// Those of them that were in the device's cache.
    pub cached_tokens: u64,
    /// Published events of blocks that came into the cache.
    pub stored_events: u64,
    /// Their blocks.
    pub stored_blocks: u64,
    /// Published events of blocks that left it.
    pub removed_events: u64,
    /// Their blocks.
    pub removed_blocks: u64,
}

/// Gauges at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct State {
    /// Requests that hold a place in a batch.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Tokens of the pool that running requests hold.
    pub used_tokens: u64,
    /// Tokens of the pool that only the cache holds.
    pub evictable_tokens: u64,
    /// Tokens of the whole pool.
    pub total_tokens: u64,
}

/// One interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Its end, in simulated nanoseconds; the last one ends with the run.
    pub end_ns: u64,
    /// Gauges at its end.
    pub state: State,
    /// Sums within it.
    pub sums: IntervalSums,
}

/// The intervals of a run. One that lies wholly in an idle stretch has no sample.
#[derive(Clone, Debug)]
pub struct Timeline {
    interval_ns: u64,
    /// The end of the interval under way.
    end_ns: u64,
    sums: IntervalSums,
    /// After the last iteration.
    state: State,
    now_ns: u64,
    samples: Vec<Sample>,
}

impl Timeline {
    /// Intervals of `interval_ns`, at least 1.
    pub fn new(interval_ns: u64) -> Timeline {
        let interval_ns = interval_ns.max(1);
        let (sums, state) = (IntervalSums::default(), State::default());
        Timeline { interval_ns, end_ns: interval_ns, sums, state, now_ns: 0, samples: Vec::new() }
    }

    /// Intervals that ended since the samples were taken last.
    pub fn take_samples(&mut self) -> impl Iterator<Item = Sample> + '_ {
        self.samples.drain(..)
    }

    /// Adds an iteration, or a stride that goes over the end of an interval with its last pass at most.
    pub fn add(&mut self, played: &Played, admitted: Admitted) {
        let record = played.record;
        let chosen = state(played, &record.after_schedule, record.finished.len() as u64);
        self.pass_idle(played.started_ns);
        self.sums.submitted += played.submitted.len() as u64;
        if record.passes > 1 && played.now_ns >= self.end_ns {
            // The passes before the one that crosses the end count before it.
            self.sums.decode_tokens += u64::from(record.decode_tokens) * (record.passes - 1);
            self.close_until(played.now_ns, chosen);
            self.sums.decode_tokens += u64::from(record.decode_tokens);
        } else {
            self.close_until(played.now_ns, chosen);
            self.sums.decode_tokens += u64::from(record.decode_tokens) * record.passes;
        }
        self.add_record(record, admitted);
        self.state = state(played, &record.after_results, 0);
        self.now_ns = played.now_ns;
    }

    /// Ends the last interval with the run.
    pub fn finish(&mut self) {
        if self.is_under_way() {
            let sums = std::mem::take(&mut self.sums);
            self.samples.push(Sample { end_ns: self.now_ns, state: self.state, sums });
        }
    }

    /// Whether anything has happened in the interval.
    fn is_under_way(&self) -> bool {
        self.sums != IntervalSums::default() || self.now_ns > self.end_ns - self.interval_ns
    }

    /// The clock stood still until `started_ns`, with nothing under way: the interval that this ends has a sample, those
    /// that lie wholly inside have none.
    fn pass_idle(&mut self, started_ns: u64) {
        if started_ns < self.end_ns || started_ns == self.now_ns {
            return;
        }
        if self.is_under_way() {
            self.close(self.state);
        }
        let skipped = (started_ns.saturating_sub(self.end_ns - self.interval_ns)) / self.interval_ns;
        self.end_ns = self.end_ns.saturating_add(skipped.saturating_mul(self.interval_ns));
    }

    /// Ends every interval up to `now_ns`; a token at the very end of one belongs to the next.
    fn close_until(&mut self, now_ns: u64, state: State) {
        while self.end_ns <= now_ns {
            self.close(state);
        }
    }

    fn close(&mut self, state: State) {
        let sums = std::mem::take(&mut self.sums);
        self.samples.push(Sample { end_ns: self.end_ns, state, sums });
        self.end_ns = self.end_ns.saturating_add(self.interval_ns);
    }

    fn add_record(&mut self, record: &PassRecord, admitted: Admitted) {
        let sums = &mut self.sums;
        sums.completed += admitted.completed;
        sums.retractions += record.retracted.len() as u64;
        sums.prefill_tokens += record.extend.iter().map(|row| u64::from(row.end - row.prefix)).sum::<u64>();
        sums.admitted_tokens += admitted.prompt_tokens;
        sums.cached_tokens += admitted.cached_tokens;
        for event in &record.published.events {
            match event.kind {
                EventKind::Cleared => {}
                EventKind::Stored | EventKind::StoredAtRoot => {
                    sums.stored_events += 1;
                    sums.stored_blocks += event.blocks;
                }
                EventKind::Removed => {
                    sums.removed_events += 1;
                    sums.removed_blocks += event.blocks;
                }
            }
        }
    }
}

/// What an iteration admitted for the first time, and how many requests it served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Those of them that were cached.
    pub cached_tokens: u64,
    /// Requests served.
    pub completed: u64,
}

/// The state with these sizes; `ended` requests that have gone by now were still running.
fn state(played: &Played, gauges: &Gauges, ended: u64) -> State {
    let waiting = played.worker.waiting().len() as u64;
    let total_tokens = played.worker.pool().total_tokens();
    let evictable_tokens = gauges.evictable_tokens;
    State {
        running: (played.in_flight + ended).saturating_sub(waiting),
        waiting,
        used_tokens: total_tokens.saturating_sub(gauges.free_tokens + evictable_tokens),
        evictable_tokens,
        total_tokens,
    }
}

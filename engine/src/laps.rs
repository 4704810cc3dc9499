//! What each system costs the host: readings of a probe at the end of each system, summed until they are taken.
//!
//! Without a probe nothing is read, and a system costs one look at an empty field more. The engine has no clock of its own: who
//! profiles brings the probe.

use bevy_ecs::prelude::{FromWorld, In, Local};

use crate::engine::Engine;

/// A system of the schedules, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Requests, cancellations and releases enter.
    Enter,
    /// What the last iteration left over.
    Settle,
    /// Whether and in which order to admit.
    Order,
    /// Who prefills.
    Admit,
    /// Pages for the prefill.
    Allocate,
    /// One token for each running request, or retraction.
    Decode,
    /// The timing model is asked.
    Price,
    /// The transaction ends, and results are taken.
    Commit,
    /// KV events go out.
    Publish,
    /// The iteration is closed.
    Observe,
    /// A refused pass is taken back.
    Undo,
    /// Decode passes that only count.
    Stride,
}

impl Stage {
    /// How many there are.
    pub const COUNT: usize = 12;

    /// All of them in order.
    pub const ALL: [Stage; Stage::COUNT] = [
        Stage::Enter,
        Stage::Settle,
        Stage::Order,
        Stage::Admit,
        Stage::Allocate,
        Stage::Decode,
        Stage::Price,
        Stage::Commit,
        Stage::Publish,
        Stage::Observe,
        Stage::Undo,
        Stage::Stride,
    ];

    /// The name of its file.
    pub fn as_str(self) -> &'static str {
        match self {
            Stage::Enter => "enter",
            Stage::Settle => "settle",
            Stage::Order => "order",
            Stage::Admit => "admit",
            Stage::Allocate => "allocate",
            Stage::Decode => "decode",
            Stage::Price => "price",
            Stage::Commit => "commit",
            Stage::Publish => "publish",
            Stage::Observe => "observe",
            Stage::Undo => "undo",
            Stage::Stride => "stride",
        }
    }
}

/// Counters of the host, at a moment or between two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Nanoseconds of a monotonic clock.
    pub host_ns: u64,
    /// Instructions, 0 where the host does not count them.
    pub instructions: u64,
    /// Cycles, 0 where the host does not count them.
    pub cycles: u64,
}

impl Reading {
    /// What was counted since an earlier reading.
    pub fn since(self, earlier: Reading) -> Reading {
        Reading {
            host_ns: self.host_ns.saturating_sub(earlier.host_ns),
            instructions: self.instructions.saturating_sub(earlier.instructions),
            cycles: self.cycles.saturating_sub(earlier.cycles),
        }
    }

    /// Adds what was counted between two readings.
    pub fn add(&mut self, other: Reading) {
        self.host_ns += other.host_ns;
        self.instructions += other.instructions;
        self.cycles += other.cycles;
    }
}

/// Reads the host's counters.
pub trait Probe: Send + Sync {
    /// The counters now.
    fn read(&mut self) -> Reading;

    /// Whether the call of the worker that starts now is read system by system, or only at its start and end. Asked once a call.
    fn reads_systems(&mut self) -> bool {
        true
    }
}

/// What the host spent on each system, and on calls of the worker as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// By system, in the order of [`Stage::ALL`]; what calls it is counted with the system that it calls, and the way out of
    /// the call with the last one.
    pub stages: [Reading; Stage::COUNT],
    /// How often each system ran.
    pub runs: [u64; Stage::COUNT],
    /// How many readings each system's time holds: what a reading costs is in all times.
    pub readings_in: [u64; Stage::COUNT],
    /// From the start to the end of the calls of [`crate::worker::Worker::step`] and [`crate::worker::Worker::advance`].
    pub total: Reading,
    /// How often the probe was read. The time of a call holds all readings of the call but the first.
    pub readings: u64,
    /// Calls that were read.
    pub calls: u64,
    /// Calls that were read system by system.
    pub calls_by_system: u64,
}

impl Spent {
    /// What was spent since an earlier count.
    pub fn since(&self, earlier: &Spent) -> Spent {
        let mut spent = Spent { calls: self.calls - earlier.calls, ..Spent::default() };
        spent.total = self.total.since(earlier.total);
        spent.readings = self.readings - earlier.readings;
        spent.calls_by_system = self.calls_by_system - earlier.calls_by_system;
        if spent.calls_by_system > 0 {
            for index in 0..Stage::COUNT {
                spent.stages[index] = self.stages[index].since(earlier.stages[index]);
                spent.runs[index] = self.runs[index] - earlier.runs[index];
                spent.readings_in[index] = self.readings_in[index] - earlier.readings_in[index];
            }
        }
        spent
    }

    /// Takes over the numbers of a later count that grow with every call; those by system stay as they are.
    pub fn follow_totals(&mut self, later: &Spent) {
        (self.total, self.readings, self.calls) = (later.total, later.readings, later.calls);
    }
}

/// Whether there are places where a probe is read. A build with the feature `no-probe` has none: it exists to measure what
/// they cost while there is no probe.
pub(crate) const PROBES: bool = !cfg!(feature = "no-probe");

/// The readings of a worker.
#[derive(Default)]
pub(crate) struct Laps {
    probe: Option<Box<dyn Probe>>,
    /// Whether the call under way is read system by system.
    by_system: bool,
    started: Reading,
    last: Reading,
    last_stage: Option<Stage>,
    spent: Spent,
}

impl Laps {
    pub(crate) fn set_probe(&mut self, probe: Option<Box<dyn Probe>>) {
        *self = Laps { probe, ..Laps::default() };
    }

    /// Whether the call under way is read system by system.
    pub(crate) fn by_system(&self) -> bool {
        self.by_system
    }

    fn read(&mut self) -> Reading {
        self.spent.readings += 1;
        self.probe.as_mut().map(|probe| probe.read()).unwrap_or_default()
    }

    /// A call of the worker starts.
    pub(crate) fn start(&mut self) {
        self.by_system = self.probe.as_mut().is_some_and(|probe| probe.reads_systems());
        self.spent.calls += 1;
        self.started = self.read();
        self.last_stage = None;
        if self.by_system {
            self.spent.calls_by_system += 1;
            self.last = self.started;
        }
    }

    /// A system has run.
    fn end(&mut self, stage: Stage) {
        if !self.by_system {
            return;
        }
        self.lap(stage);
        self.spent.runs[stage as usize] += 1;
        self.last_stage = Some(stage);
    }

    /// Counts what was spent since the last reading for a system, and says what is read.
    fn lap(&mut self, stage: Stage) -> Reading {
        let now = self.read();
        self.spent.stages[stage as usize].add(now.since(self.last));
        self.spent.readings_in[stage as usize] += 1;
        self.last = now;
        now
    }

    /// The call of the worker ends.
    pub(crate) fn finish(&mut self) {
        let ended = match self.last_stage.take() {
            Some(stage) => self.lap(stage),
            None => self.read(),
        };
        self.spent.total.add(ended.since(self.started));
        self.by_system = false;
    }

    /// What was spent since it was taken last.
    pub(crate) fn spent(&self) -> &Spent {
        &self.spent
    }

    /// What was spent since the last time it was taken.
    pub(crate) fn take(&mut self) -> Spent {
        std::mem::take(&mut self.spent)
    }
}

/// A system of the schedule, timed while there is a probe.
pub(crate) fn timed(
    stage: Stage,
    system: impl Fn(&mut Engine) + Send + Sync + 'static,
) -> impl FnMut(In<Box<Engine>>) -> Box<Engine> + Send + Sync + 'static {
    move |In(mut engine)| {
        system(&mut engine);
        if PROBES {
            engine.laps.end(stage);
        }
        engine
    }
}

/// The same for a system that has memory of its own to use again.
pub(crate) fn timed_with<S: FromWorld + Send + 'static>(
    stage: Stage,
    system: impl Fn(&mut Engine, &mut S) + Send + Sync + 'static,
) -> impl FnMut(In<Box<Engine>>, Local<S>) -> Box<Engine> + Send + Sync + 'static {
    move |In(mut engine), mut scratch| {
        system(&mut engine, &mut scratch);
        if PROBES {
            engine.laps.end(stage);
        }
        engine
    }
}

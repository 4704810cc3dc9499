//! The main loop: the schedule of one iteration, and the transaction around it.
//!
//! `enter → settle → order → admit → allocate → decode → price → commit → publish → observe`, and `undo` in the place of the
//! last three when `price` (or an allocation) refuses. All systems are chained: every order is explicit, and an ambiguity is an
//! error at start-up. `enter` runs before the transaction, and only when something was asked. `stride` is another: it stands for
//! many iterations in which a decode pass only counts.

use bevy_ecs::prelude::{IntoScheduleConfigs, Schedule, World};
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, ScheduleLabel};

use crate::batch::{Plan, Refusal};
use crate::cache::Cache;
use crate::config::EngineConfig;
use crate::engine::{Engine, Loan};
use crate::journal::Mark;
use crate::laps::{Stage, timed, timed_with};
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::scheduler::Scheduler;
use crate::systems::{
    admit::admit, allocate::allocate, commit::commit, decode::decode, enter::enter, observe::observe, order::order,
    price::price, publish::publish, settle::settle, stride::stride, undo::undo,
};
use crate::timing::Clock;

/// What the iteration under way is and has come to.
#[derive(Debug)]
pub(crate) struct Pass {
    pub(crate) plan: Plan,
    pub(crate) record: PassRecord,
    pub(crate) ratio: NewTokenRatio,
    pub(crate) clock: Clock,
    /// The mark of the open transaction.
    pub(crate) mark: Option<Mark>,
}

impl Pass {
    /// Before the first iteration.
    pub(crate) fn new(config: &EngineConfig) -> Pass {
        Pass {
            plan: Plan::default(),
            record: PassRecord::default(),
            ratio: NewTokenRatio::new(config),
            clock: Clock::default(),
            mark: None,
        }
    }
}

#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Enter,
    Choose,
    Commit,
    Undo,
    Stride,
}

/// The schedules of a worker.
pub(crate) struct Iteration {
    world: World,
    enter: Schedule,
    choose: Schedule,
    commit: Schedule,
    undo: Schedule,
    stride: Schedule,
}

fn schedule(phase: Phase) -> Schedule {
    let mut schedule = Schedule::new(phase);
    schedule.set_build_settings(ScheduleBuildSettings {
        ambiguity_detection: LogLevel::Error,
        hierarchy_detection: LogLevel::Error,
        auto_insert_apply_deferred: false,
        ..Default::default()
    });
    schedule
}

impl Iteration {
    pub(crate) fn new() -> Iteration {
        let mut world = World::new();
        world.init_resource::<Loan>();
        let mut iteration = Iteration {
            world,
            enter: schedule(Phase::Enter),
            choose: schedule(Phase::Choose),
            commit: schedule(Phase::Commit),
            undo: schedule(Phase::Undo),
            stride: schedule(Phase::Stride),
        };
        iteration.enter.add_systems(timed(Stage::Enter, enter));
        iteration.choose.add_systems(
            (
                timed(Stage::Settle, settle),
                timed_with(Stage::Order, order),
                timed_with(Stage::Admit, admit),
                timed(Stage::Allocate, allocate),
                timed_with(Stage::Decode, decode),
                timed(Stage::Price, price),
            )
                .chain(),
        );
        let after = (timed(Stage::Commit, commit), timed(Stage::Publish, publish), timed(Stage::Observe, observe));
        iteration.commit.add_systems(after.chain());
        iteration.undo.add_systems(timed(Stage::Undo, undo));
        iteration.stride.add_systems(timed(Stage::Stride, stride));
        iteration
    }

    fn lend(&mut self, engine: Box<Engine>) {
        self.world.resource_mut::<Loan>().0 = Some(engine);
    }

    fn take_back(&mut self) -> Box<Engine> {
        self.world.resource_mut::<Loan>().0.take().expect("the stores were lent")
    }

    /// Takes what was asked into the worker.
    pub(crate) fn enter(&mut self, engine: Box<Engine>) -> Box<Engine> {
        self.lend(engine);
        self.enter.run(&mut self.world);
        self.take_back()
    }

    /// Runs one iteration, and returns why it was refused, if it was.
    pub(crate) fn run(&mut self, engine: Box<Engine>) -> (Box<Engine>, Option<Refusal>) {
        self.lend(engine);
        self.choose.run(&mut self.world);
        let refusal = self.world.resource_mut::<Loan>().engine().pass.plan.refusal.take();
        if refusal.is_none() {
            self.commit.run(&mut self.world);
        } else {
            self.undo.run(&mut self.world);
        }
        (self.take_back(), refusal)
    }

    /// Runs a stride of decode passes that only count; the plan then says how many there were and why the first one was refused.
    pub(crate) fn stride(&mut self, engine: Box<Engine>) -> Box<Engine> {
        self.lend(engine);
        self.stride.run(&mut self.world);
        self.take_back()
    }
}

/// Opens the transaction: the first thing that `settle` does.
pub(crate) fn begin(cache: &mut Cache, scheduler: &Scheduler, pass: &mut Pass) {
    cache.journal.begin();
    pass.record.reset();
    pass.mark = Some(Mark {
        pool: cache.pool.numbers,
        tree: cache.tree.numbers,
        queue: scheduler.queue.numbers,
        running: scheduler.running.numbers,
        ratio: pass.ratio,
        ended_requests: scheduler.requests.ended(),
        rejected: pass.record.rejected.len(),
        dropped: pass.record.dropped.len(),
    });
}

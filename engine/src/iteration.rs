//! The main loop: the schedule of one iteration, and the transaction around it.
//!
//! `enter → settle → order → admit → allocate → decode → price → commit → publish → observe`, and `undo` in the place of the
//! last three when `price` (or an allocation) refuses. All systems are chained: every order is explicit, and an ambiguity is an
//! error at start-up. `enter` runs before the transaction, and only when something was asked. `stride` is another: it stands for
//! many iterations in which a decode pass only counts.

use bevy_ecs::prelude::{IntoScheduleConfigs, Schedule, World};
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, ScheduleLabel};

use crate::batch::{Plan, Refusal, StrideLimits};
use crate::cache::Cache;
use crate::config::EngineConfig;
use crate::engine::Engine;
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
        let mut iteration = Iteration {
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

    /// Takes what was asked into the worker.
    pub(crate) fn enter(&mut self, world: &mut World) {
        self.enter.run(world);
    }

    /// Runs one iteration, and returns why it was refused, if it was.
    pub(crate) fn run(&mut self, world: &mut World) -> Option<Refusal> {
        self.choose.run(world);
        let refusal = world.resource_mut::<Engine>().pass.plan.refusal.take();
        if refusal.is_none() {
            self.commit.run(world);
        } else {
            self.undo.run(world);
        }
        refusal
    }

    /// Runs a stride of decode passes that only count, and returns how many there were and why the first one was refused.
    pub(crate) fn stride(&mut self, world: &mut World, limits: StrideLimits) -> (u64, Option<Refusal>) {
        world.resource_mut::<Engine>().pass.plan.stride = limits;
        self.stride.run(world);
        let plan = &mut world.resource_mut::<Engine>().into_inner().pass.plan;
        (plan.stride_passes, plan.refusal.take())
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

//! The main loop: the schedule of one iteration, and the transaction around it.
//!
//! `enter → settle → order → admit → allocate → decode → price → commit → publish → observe`, and `undo` in the place of the
//! last three when `price` (or an allocation) refuses. All systems are chained: every order is explicit, and an ambiguity is an
//! error at start-up. `enter` runs before the transaction, and only when something was asked. `stride` is another: it stands for
//! many iterations in which a decode pass only counts.

use bevy_ecs::prelude::{IntoScheduleConfigs, Resource, Schedule, World};
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, ScheduleLabel};

use crate::batch::Plan;
use crate::cache::Cache;
use crate::config::EngineConfig;
use crate::journal::Mark;
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::scheduler::Scheduler;
use crate::systems::{
    admit::admit, allocate::allocate, commit::commit, decode::decode, enter::enter, observe::observe, order::order,
    price::price, publish::publish, settle::settle, stride::stride, undo::undo,
};
use crate::timing::Clock;

/// What the iteration under way is and has come to.
#[derive(Resource, Debug)]
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
        iteration.enter.add_systems(enter);
        iteration.choose.add_systems((settle, order, admit, allocate, decode, price).chain());
        iteration.commit.add_systems((commit, publish, observe).chain());
        iteration.undo.add_systems(undo);
        iteration.stride.add_systems(stride);
        iteration
    }

    /// Takes what was asked into the worker.
    pub(crate) fn enter(&mut self, world: &mut World) {
        if !world.resource::<Scheduler>().inbox.asked.is_empty() {
            self.enter.run(world);
        }
    }

    /// Runs one iteration. Whether it was refused is in the plan.
    pub(crate) fn run(&mut self, world: &mut World) {
        self.enter(world);
        begin(world);
        self.choose.run(world);
        if world.resource::<Pass>().plan.refusal.is_none() {
            self.commit.run(world);
        } else {
            self.undo.run(world);
        }
    }

    /// Runs a stride of decode passes that only count. How many there were, if any, is in the record; whether the first one
    /// was refused is in the plan.
    pub(crate) fn stride(&mut self, world: &mut World) {
        self.stride.run(world);
    }
}

/// Opens the transaction.
fn begin(world: &mut World) {
    let scheduler = world.resource::<Scheduler>();
    let (queue, running) = (scheduler.queue.numbers, scheduler.running.numbers);
    let ended_requests = scheduler.requests.ended();
    let cache = world.resource_mut::<Cache>().into_inner();
    cache.journal.begin();
    let (pool, tree) = (cache.pool.numbers, cache.tree.numbers);
    let pass = world.resource_mut::<Pass>().into_inner();
    pass.record.reset();
    let (rejected, dropped) = (pass.record.rejected.len(), pass.record.dropped.len());
    pass.mark = Some(Mark { pool, tree, queue, running, ratio: pass.ratio, ended_requests, rejected, dropped });
}

//! The main loop: the schedule of one iteration, and the transaction around it.
//!
//! `enter → settle → order → admit → allocate → decode → price → commit → publish → observe`, and `undo` when `price` (or an
//! allocation) refuses. All systems are chained: every order is explicit, and an ambiguity is an error at start-up. `enter`
//! runs in a schedule of its own, before the transaction, and only when something was asked. `stride` is another: it stands for
//! many iterations in which a decode pass only counts.

use bevy_ecs::prelude::{IntoScheduleConfigs, Resource, Schedule, World};
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, ScheduleLabel};

use crate::journal::{Journal, Mark};
use crate::pool::Pool;
use crate::queue::{Inbox, Queue};
use crate::ratio::NewTokenRatio;
use crate::record::PassRecord;
use crate::requests::Requests;
use crate::running::Running;
use crate::systems::{
    admit::admit, allocate::allocate, commit::commit, decode::decode, enter::enter, observe::observe, order::order,
    price::price, publish::publish, settle::settle, stride::stride, undo::undo,
};
use crate::tree::Tree;

#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
struct Enter;

#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
struct Pass;

#[derive(ScheduleLabel, Clone, Debug, PartialEq, Eq, Hash)]
struct Stride;

/// The schedules of a worker.
pub(crate) struct Iteration {
    enter: Schedule,
    pass: Schedule,
    stride: Schedule,
}

/// The mark of the open transaction.
#[derive(Resource, Debug, Default)]
pub(crate) struct OpenMark(Option<Mark>);

impl OpenMark {
    /// Tokens that had been evicted when the transaction was opened.
    pub(crate) fn evicted_tokens(&self) -> u64 {
        self.0.as_ref().map_or(0, |mark| mark.tree.evicted_tokens)
    }

    /// Ends the transaction's mark.
    pub(crate) fn take(&mut self) -> Mark {
        self.0.take().expect("a transaction is open during a pass")
    }
}

fn schedule(label: impl ScheduleLabel) -> Schedule {
    let mut schedule = Schedule::new(label);
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
        let mut entering = schedule(Enter);
        entering.add_systems(enter);
        let mut pass = schedule(Pass);
        pass.add_systems((settle, order, admit, allocate, decode, price, undo, commit, publish, observe).chain());
        let mut striding = schedule(Stride);
        striding.add_systems(stride);
        Iteration { enter: entering, pass, stride: striding }
    }

    /// Takes what was asked into the worker.
    pub(crate) fn enter(&mut self, world: &mut World) {
        if !world.resource::<Inbox>().asked.is_empty() {
            self.enter.run(world);
        }
    }

    /// Runs a stride of decode passes that only count. How many there were, if any, is in the record; whether the first one
    /// was refused is in the plan.
    pub(crate) fn stride(&mut self, world: &mut World) {
        self.stride.run(world);
    }

    /// Runs one iteration. Whether it was refused is in the plan.
    pub(crate) fn run(&mut self, world: &mut World) {
        self.enter(world);
        world.resource_mut::<PassRecord>().reset();
        begin(world);
        self.pass.run(world);
    }
}

/// Opens the transaction.
fn begin(world: &mut World) {
    let mark = Mark {
        pool: world.resource::<Pool>().numbers,
        tree: world.resource::<Tree>().numbers,
        queue: world.resource::<Queue>().numbers,
        running: world.resource::<Running>().numbers,
        ratio: *world.resource::<NewTokenRatio>(),
        ended_requests: world.resource::<Requests>().ended(),
        rejected: world.resource::<PassRecord>().rejected.len(),
        dropped: world.resource::<PassRecord>().dropped.len(),
    };
    world.resource_mut::<OpenMark>().0 = Some(mark);
    world.resource_mut::<Journal>().begin();
}

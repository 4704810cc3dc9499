//! The main loop: the schedule of one iteration, and the transaction around it.
//!
//! `enter → settle → order → admit → allocate → decode → price → commit → publish → observe`, and `undo` in the place of the
//! last three when `price` (or an allocation) refuses. The schedule is a pipe: a system takes the stores from the one before it
//! and hands them to the next, so every order is explicit and none can run beside another. `enter` runs before the transaction,
//! and only when something was asked. `stride` is another pipe: it stands for many iterations in which a decode pass only
//! counts.

use bevy_ecs::prelude::{In, IntoSystem, System, World};

use crate::batch::{Plan, Refusal};
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

/// Systems that run one after the other, each with the stores that the one before it handed on.
type Pipe = Box<dyn System<In = In<Box<Engine>>, Out = Box<Engine>>>;

/// The schedule of a worker: the systems of an iteration in their order, and those that may take its place or a part of it.
pub(crate) struct Iteration {
    world: World,
    enter: Pipe,
    choose: Pipe,
    keep: Pipe,
    undo: Pipe,
    stride: Pipe,
}

/// Readies systems for the world that they will run in.
fn pipe<M>(systems: impl IntoSystem<In<Box<Engine>>, Box<Engine>, M>, world: &mut World) -> Pipe {
    let mut pipe = Box::new(IntoSystem::into_system(systems));
    pipe.initialize(world);
    pipe
}

impl Iteration {
    pub(crate) fn new() -> Iteration {
        let mut world = World::new();
        let choose = timed(Stage::Settle, settle)
            .pipe(timed_with(Stage::Order, order))
            .pipe(timed_with(Stage::Admit, admit))
            .pipe(timed(Stage::Allocate, allocate))
            .pipe(timed_with(Stage::Decode, decode))
            .pipe(timed(Stage::Price, price));
        let keep =
            timed(Stage::Commit, commit).pipe(timed(Stage::Publish, publish)).pipe(timed(Stage::Observe, observe));
        Iteration {
            enter: pipe(timed(Stage::Enter, enter), &mut world),
            choose: pipe(choose, &mut world),
            keep: pipe(keep, &mut world),
            undo: pipe(timed(Stage::Undo, undo), &mut world),
            stride: pipe(timed(Stage::Stride, stride), &mut world),
            world,
        }
    }

    /// Takes what was asked into the worker.
    pub(crate) fn enter(&mut self, engine: Box<Engine>) -> Box<Engine> {
        run(&mut self.enter, engine, &mut self.world)
    }

    /// Runs one iteration, and returns why it was refused, if it was.
    pub(crate) fn run(&mut self, engine: Box<Engine>) -> (Box<Engine>, Option<Refusal>) {
        let mut engine = run(&mut self.choose, engine, &mut self.world);
        let refusal = engine.pass.plan.refusal.take();
        let rest = if refusal.is_none() { &mut self.keep } else { &mut self.undo };
        (run(rest, engine, &mut self.world), refusal)
    }

    /// Runs a stride of decode passes that only count; the plan then says how many there were and why the first one was refused.
    pub(crate) fn stride(&mut self, engine: Box<Engine>) -> Box<Engine> {
        run(&mut self.stride, engine, &mut self.world)
    }
}

/// Runs the systems of a pipe. None has a parameter that could be missing, and none defers anything.
fn run(pipe: &mut Pipe, engine: Box<Engine>, world: &mut World) -> Box<Engine> {
    pipe.run_without_applying_deferred(engine, world).expect("a system needs nothing but the stores")
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

//! All that the systems of a worker read and write, as one resource that is lent to the world while a schedule runs.
//!
//! One, because to look a resource up costs more than most systems do in a pass where nothing happens: the systems are chained
//! and nearly all of them write to the three parts. Which part a system touches stands in its first lines. Lent, because
//! between two passes the worker is asked for its records and sizes many times, and looks nothing up for that.

use bevy_ecs::resource::Resource;

use crate::cache::Cache;
use crate::config::EngineConfig;
use crate::iteration::Pass;
use crate::laps::Laps;
use crate::scheduler::Scheduler;
use crate::timing::{Timing, TimingModel};

/// The stores of a worker.
pub(crate) struct Engine {
    pub(crate) cache: Cache,
    pub(crate) scheduler: Scheduler,
    pub(crate) pass: Pass,
    pub(crate) timing: Timing,
    pub(crate) laps: Laps,
}

/// The stores while a schedule runs; in between they are the worker's.
#[derive(Resource, Default)]
pub(crate) struct Loan(pub(crate) Option<Box<Engine>>);

impl Loan {
    /// The stores that were lent.
    pub(crate) fn engine(&mut self) -> &mut Engine {
        self.0.as_deref_mut().expect("the stores are lent while a schedule runs")
    }
}

impl Engine {
    /// A worker's stores at time 0.
    pub(crate) fn new(config: &EngineConfig, model: Box<dyn TimingModel>) -> Engine {
        let timing = Timing { model };
        Engine {
            cache: Cache::new(config),
            scheduler: Scheduler::new(config),
            pass: Pass::new(config),
            timing,
            laps: Laps::default(),
        }
    }
}

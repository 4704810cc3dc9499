//! All that the systems of a worker read and write, as one value that goes from system to system.
//!
//! One, because to look up a resource costs more than most systems do in a pass where nothing happens, and nearly all of them
//! write to all three parts. Which part a system touches stands in its first lines. Between two passes the stores are the
//! worker's, which is asked for its records and sizes many times.

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

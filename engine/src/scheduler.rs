//! What the scheduler holds: the requests, where they wait and run, and the batches.

use crate::batch::Batches;
use crate::config::EngineConfig;
use crate::queue::{Held, Inbox, Queue};
use crate::requests::Requests;
use crate::running::Running;

/// The stores of the scheduler.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) inbox: Inbox,
    pub(crate) requests: Requests,
    pub(crate) queue: Queue,
    pub(crate) running: Running,
    pub(crate) batches: Batches,
    pub(crate) held: Held,
}

impl Scheduler {
    /// A scheduler without requests.
    pub(crate) fn new(config: &EngineConfig) -> Scheduler {
        let mut batches = Batches::default();
        batches.next.reset(1);
        Scheduler {
            inbox: Inbox::default(),
            requests: Requests::default(),
            queue: Queue::default(),
            running: Running::new(config.page_size, config.max_running_requests),
            batches,
            held: Held::default(),
        }
    }
}

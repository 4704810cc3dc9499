//! What to simulate.
//!
//! - [`case`]: golden cases, logs recorded from a real scheduler, and how one is played and compared.
//! - [`scenario`]: scenario files: engine, timing, workload and output in one.
//! - [`workload`]: what the player asks of a workload, and the workloads that play traces.
//! - [`generate`]: workloads made from a seed.
//! - [`kv_events`]: KV events on the wire and in files, and a consumer that checks them.
//! - [`timing`]: how long passes take.
//! - [`trace`]: trace readers and sums over traces.
//! - [`player`], [`summary`], [`metrics`]: plays a workload on a worker, and what that comes to.
//! - [`output`]: result files.

pub mod audit;
pub mod case;
pub mod generate;
pub mod kv_events;
pub mod metrics;
pub mod output;
pub mod player;
pub mod replay;
pub mod scenario;
pub mod summary;
#[cfg(test)]
mod testing;
pub mod timing;
pub mod totals;
pub mod trace;
pub mod verify;
pub mod workload;

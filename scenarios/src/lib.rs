//! What to simulate.
//!
//! - [`case`]: golden cases, logs recorded from a real scheduler, and how one is played and compared.
//! - [`workload`]: what the player asks of a workload.

pub mod case;
pub mod replay;
pub mod verify;
pub mod workload;

//! Plays a trace with `aisimulate-core` 0.13.0 by its public engine interface.
//!
//! - [`settings`]: its settings, as near to the scenario's as there are any.
//! - [`play`]: the closed loop around it.

pub mod play;
pub mod settings;

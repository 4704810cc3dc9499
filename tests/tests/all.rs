//! Tests across the crates, one module a kind.

mod differential;
mod golden;
mod limits;
mod profile;
mod metrics;
mod strides;
mod traces;
mod twin;
mod undo;

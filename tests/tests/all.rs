//! Tests across the crates, one module a kind.

mod differential;
mod golden;
mod limits;
mod metrics;
mod profile;
mod strides;
mod timing;
mod traces;
mod twin;
mod undo;

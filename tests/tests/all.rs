//! Tests across the crates, one module a kind.

mod golden;
mod limits;
mod traces;
mod twin;

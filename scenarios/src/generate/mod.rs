//! Workload generators. All draws come from ChaCha streams named by seed and place, and all mathematics from `libm`, so
//! the same seed gives the same requests on any machine.
//!
//! - [`sample`]: random draws that are the same everywhere.
//! - [`coding_agent`]: lanes of coding-agent sessions.
//! - [`shared_prefix`]: groups of requests with a common prefix.
//! - [`random`]: requests of random lengths.
//! - [`arrivals`]: plays numbered requests in lanes or at a rate.

pub mod arrivals;
pub mod coding_agent;
pub mod random;
pub mod sample;
pub mod shared_prefix;

/// A range of whole numbers, both ends included, that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The smallest value.
    pub low: u32,
    /// The largest value.
    pub high: u32,
}

impl Span {
    /// The values from `low` to `high`.
    pub const fn new(low: u32, high: u32) -> Span {
        Span { low, high }
    }
}

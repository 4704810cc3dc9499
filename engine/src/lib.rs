//! The simulated serving engine: scheduler, radix KV cache and KV events, exact to the pass.

pub mod batch;
pub mod block_hashes;
mod cache;
pub mod check;
pub mod config;
pub mod content;
mod digest;
mod engine;
pub mod events;
mod iteration;
pub mod journal;
mod leaves;
pub mod pool;
pub mod queue;
pub mod ratio;
mod recency;
pub mod record;
pub mod request;
pub mod requests;
mod results;
pub mod running;
mod scheduler;
mod systems;
pub mod timing;
pub mod tree;
pub mod worker;

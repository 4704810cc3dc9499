//! The slow twin: a plain model of the reference scheduler and cache, written for reading.
//!
//! It knows nothing of the engine and shares no code with it. Every size is counted anew when it is asked for, every search
//! looks at everything, and a copy of the model is a full copy. A tour, in the order of one iteration:
//!
//! - [`play`] plays a case: who enters when, who cancels when, and when the run is over;
//! - [`model`] holds the whole state and goes through one iteration;
//! - [`order`] puts the waiting queue in the order of the schedule policy;
//! - [`admission`] fills an extend batch, [`preempt`] makes room in one for a better request;
//! - [`decode`] takes the next token's slots for the running batch, and retracts when there are none;
//! - [`results`] gives each row its token and releases those who are done;
//! - [`role`] is the prefill role of a disaggregated deployment;
//! - [`keep`] is what a request has in the tree, [`record`] what is written down of an iteration;
//! - [`tree`] is the prefix tree, [`evict`] what leaves it, [`events`] what is said about both;
//! - [`settings`] and [`request`] are the words they share.

pub mod admission;
pub mod decode;
pub mod events;
pub mod evict;
pub mod keep;
pub mod model;
pub mod order;
pub mod play;
pub mod preempt;
pub mod record;
pub mod request;
pub mod results;
pub mod role;
pub mod settings;
pub mod tree;

pub use model::Model;
pub use play::{Player, play};

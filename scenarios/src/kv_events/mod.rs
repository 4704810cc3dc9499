//! KV events as SGLang v0.5.21 sends them: batches, their encodings, files of them, and a consumer that checks them. No sockets.
//!
//! - [`batch`]: a batch of events, owned.
//! - [`encode`], [`decode`]: the msgpack payload of the wire; decoding also takes the older form.
//! - [`cursor`]: msgpack values one by one, with offsets.
//! - [`json_lines`], [`frames`]: the two file forms, a batch at a time.
//! - [`reader`]: batches of a file of whatever form.
//! - [`from_engine`]: from a worker's record to batches.
//! - [`config`]: SGLang's `--kv-events-config`.
//! - [`mirror`], [`check`]: what a consumer knows, and what is wrong with a stream.
//! - [`info`], [`compare`]: sums of a stream, and the first difference of two.

pub mod batch;
pub mod check;
pub mod compare;
pub mod config;
pub mod cursor;
pub mod decode;
pub mod encode;
pub mod error;
pub mod frames;
pub mod from_engine;
pub mod info;
pub mod json_lines;
pub mod mirror;
pub mod reader;

#[cfg(test)]
mod tests;

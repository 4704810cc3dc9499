//! Trace readers: rows come out one by one, checked, with errors that name file, line and field.
//!
//! - [`lines`]: lines of a plain or gzipped file, whatever its name says.
//! - [`field`]: one value of a row, and how a bad one is reported.
//! - [`hash_ids`]: lists of block ids as runs.
//! - [`rows`]: parses line after line, and skips bad rows when asked to.
//! - [`sessions`], [`weka`], [`mooncake`], [`azure`]: the formats.
//! - [`detect`]: which format a file has.
//! - [`covered`], [`info`]: sums over a trace.

pub mod azure;
pub mod covered;
pub mod detect;
pub mod field;
pub mod hash_ids;
pub mod info;
pub mod lines;
pub mod mooncake;
pub mod rows;
pub mod sessions;
pub mod weka;

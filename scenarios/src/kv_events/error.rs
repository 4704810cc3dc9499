//! Why a stream of KV events cannot be read: the file, the place in it, what was found and what would be right.

use std::fmt;

use crate::trace::field::Fault;

/// A place in a file of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    File,
    /// A line, from 1.
    Line(u64),
    /// An offset in bytes from the start of the (unpacked) file.
    Byte(u64),
}

/// A stream of KV events that cannot be read on. Shown as `file:line: field: found ..., expected ...`, or with `file: byte
/// offset: ...` where the form has no lines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}: found {}, expected {}", At(file, *place), fault.field, fault.found, fault.expected)]
pub struct KvEventError {
    /// The file, as the user named it.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What is wrong there.
    pub fault: Fault,
}

struct At<'f>(&'f str, Place);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Place::File => write!(f, "{}", self.0),
            Place::Line(line) => write!(f, "{}:{line}", self.0),
            Place::Byte(offset) => write!(f, "{}: byte {offset}", self.0),
        }
    }
}

impl KvEventError {
    /// The error of a file that cannot be opened or read at a place.
    pub fn unreadable(file: &str, place: Place, error: &std::io::Error) -> KvEventError {
        let fault = Fault::new("file", error.to_string(), "a file that can be read to its end");
        KvEventError { file: file.to_owned(), place, fault }
    }
}

/// What is wrong with a msgpack payload, and where in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {}: found {}, expected {}", fault.field, fault.found, fault.expected)]
pub struct PayloadError {
    /// Bytes from the payload's start to the value that is wrong.
    pub offset: u64,
    /// What is wrong.
    pub fault: Fault,
    /// Whether the payload ends too early: with more bytes it may be whole.
    pub cut_off: bool,
}

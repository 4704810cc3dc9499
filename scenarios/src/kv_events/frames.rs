//! The file form of frames: what a publisher sends, length-delimited. A frame is the 8-byte big-endian sequence number of the
//! wire, a 4-byte big-endian length, and a msgpack payload of that many bytes. A recorder writes it with the last two frames
//! of each message as they come.

use std::io::{Read, Write};

use super::batch::{KvEventBatch, SentBatch};
use super::decode::decode_whole;
use super::encode::encode;
use super::error::PayloadError;
use crate::trace::field::Fault;

/// Bytes in front of a payload.
pub const HEADER_BYTES: usize = 12;

/// Writes a batch as a frame. `buffer` is scratch space.
///
/// # Errors
/// The writer's, or a payload of 4 GiB or more.
pub fn write_frame(
    writer: &mut impl Write,
    sequence: u64,
    batch: &KvEventBatch,
    buffer: &mut Vec<u8>,
) -> std::io::Result<()> {
    buffer.clear();
    encode(batch, buffer);
    let length = u32::try_from(buffer.len()).map_err(|_| std::io::Error::other("a payload of 4 GiB or more"))?;
    writer.write_all(&sequence.to_be_bytes())?;
    writer.write_all(&length.to_be_bytes())?;
    writer.write_all(buffer)
}

/// Why no frame could be read.
#[derive(Debug)]
pub enum FrameError {
    /// The reader failed.
    Io(std::io::Error),
    /// The frame is wrong or cut off; offsets count from its start.
    Payload(PayloadError),
}

impl From<std::io::Error> for FrameError {
    fn from(error: std::io::Error) -> FrameError {
        FrameError::Io(error)
    }
}

/// Reads a frame into `sent`, and says how many bytes it has; 0 at the end of the file. `buffer` is scratch space.
///
/// # Errors
/// A frame that is cut off, or a payload that is wrong.
pub fn read_frame(reader: &mut impl Read, sent: &mut SentBatch, buffer: &mut Vec<u8>) -> Result<u64, FrameError> {
    buffer.clear();
    reader.take(HEADER_BYTES as u64).read_to_end(buffer)?;
    if buffer.is_empty() {
        return Ok(0);
    }
    let (Some(sequence), Some(length)) = (buffer.first_chunk::<8>(), buffer.last_chunk::<4>()) else {
        return Err(cut_off(buffer.len(), "header", HEADER_BYTES));
    };
    if buffer.len() < HEADER_BYTES {
        return Err(cut_off(buffer.len(), "header", HEADER_BYTES));
    }
    sent.sequence = u64::from_be_bytes(*sequence);
    sent.why = None;
    let length = u32::from_be_bytes(*length) as usize;
    buffer.clear();
    // Reads what is there, so that a wrong length does not ask for memory.
    reader.take(length as u64).read_to_end(buffer)?;
    if buffer.len() < length {
        return Err(cut_off(HEADER_BYTES + buffer.len(), "payload", HEADER_BYTES + length));
    }
    decode_whole(buffer, &mut sent.batch).map_err(|mut error| {
        error.offset += HEADER_BYTES as u64;
        // The frame is whole, so no further bytes would help.
        error.cut_off = false;
        FrameError::Payload(error)
    })?;
    Ok((HEADER_BYTES + length) as u64)
}

fn cut_off(bytes: usize, field: &str, expected: usize) -> FrameError {
    let fault = Fault::new(field, "the end of the file", format!("a frame of {expected} bytes or more"));
    FrameError::Payload(PayloadError { offset: bytes as u64, fault, cut_off: true })
}

//! Batches of a file, whatever its form: lines, frames, or bare payloads one behind the other. The form is known by the first
//! byte; gzip is unpacked. A file is read as it goes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use super::batch::SentBatch;
use super::decode::decode;
use super::error::{KvEventError, PayloadError, Place};
use super::frames::{FrameError, read_frame};
use super::json_lines::read_line;
use crate::trace::field::Fault;

const BUFFER_BYTES: usize = 256 * 1024;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// How batches stand in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileForm {
    /// A JSON object a line, see [`super::json_lines`].
    JsonLines,
    /// Sequence number, length and payload, see [`super::frames`].
    Frames,
    /// Payloads alone: a sequence number is a batch's place in the file.
    Payloads,
}

impl FileForm {
    /// The word that reports use.
    pub fn as_str(self) -> &'static str {
        match self {
            FileForm::JsonLines => "jsonl",
            FileForm::Frames => "msgpack",
            FileForm::Payloads => "msgpack payloads",
        }
    }
}

/// Reads a file of batches.
pub struct EventReader {
    reader: Box<dyn BufRead>,
    file: String,
    form: FileForm,
    /// Bytes of whole batches so far.
    offset: u64,
    /// Lines so far.
    line: u64,
    batches: u64,
    buffer: Vec<u8>,
    /// Of bare payloads: how much of the buffer has been read.
    used: usize,
    sent: SentBatch,
}

impl EventReader {
    /// Opens a file.
    ///
    /// # Errors
    /// A file that cannot be read, or that starts like none of the forms. An empty file is a stream of no batches.
    pub fn open(path: &Path) -> Result<EventReader, KvEventError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| KvEventError::unreadable(&name, Place::File, &error))?;
        EventReader::new(&name, BufReader::with_capacity(BUFFER_BYTES, file))
    }

    /// Reads from any source; `name` stands for the file in errors.
    ///
    /// # Errors
    /// As [`EventReader::open`].
    pub fn new(name: &str, mut reader: impl BufRead + 'static) -> Result<EventReader, KvEventError> {
        let unreadable = |error| KvEventError::unreadable(name, Place::File, &error);
        let gzip = reader.fill_buf().map_err(unreadable)?.starts_with(&GZIP_MAGIC);
        let mut reader: Box<dyn BufRead> = if gzip {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader)))
        } else {
            Box::new(reader)
        };
        let first = reader.fill_buf().map_err(unreadable)?.first().copied();
        let form = match first {
            // Nothing was published, as without a prefix cache.
            None => Some(FileForm::JsonLines),
            Some(b'{') => Some(FileForm::JsonLines),
            // The first byte of a sequence number below 2^56.
            Some(0) => Some(FileForm::Frames),
            // An array of two or three values.
            Some(0x92 | 0x93) => Some(FileForm::Payloads),
            _ => None,
        };
        let Some(form) = form else {
            let found = format!("a file that starts with byte {:#04x}", first.unwrap_or_default());
            let expected = "KV events: JSON lines, frames, or msgpack payloads";
            let fault = Fault::new("file", found, expected);
            return Err(KvEventError { file: name.to_owned(), place: Place::File, fault });
        };
        Ok(EventReader {
            reader,
            file: name.to_owned(),
            form,
            offset: 0,
            line: 0,
            batches: 0,
            buffer: Vec::new(),
            used: 0,
            sent: SentBatch::default(),
        })
    }

    /// How batches stand in the file.
    pub fn form(&self) -> FileForm {
        self.form
    }

    /// Batches read so far.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The next batch; none at the end of the file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line or offset. The batches before it have been handed out.
    pub fn next_batch(&mut self) -> Result<Option<&SentBatch>, KvEventError> {
        let read = match self.form {
            FileForm::JsonLines => self.next_line()?,
            FileForm::Frames => self.next_frame()?,
            FileForm::Payloads => self.next_payload()?,
        };
        if !read {
            return Ok(None);
        }
        self.batches += 1;
        Ok(Some(&self.sent))
    }

    fn next_line(&mut self) -> Result<bool, KvEventError> {
        loop {
            self.buffer.clear();
            let place = Place::Line(self.line + 1);
            let read = self.reader.read_until(b'\n', &mut self.buffer);
            if read.map_err(|error| KvEventError::unreadable(&self.file, place, &error))? == 0 {
                return Ok(false);
            }
            self.line += 1;
            let line = self.buffer.trim_ascii();
            if !line.is_empty() {
                self.sent = read_line(line).map_err(|fault| self.error(place, fault))?;
                return Ok(true);
            }
        }
    }

    fn next_frame(&mut self) -> Result<bool, KvEventError> {
        match read_frame(&mut self.reader, &mut self.sent, &mut self.buffer) {
            Ok(bytes) => {
                self.offset += bytes;
                Ok(bytes > 0)
            }
            Err(FrameError::Io(error)) => Err(KvEventError::unreadable(&self.file, Place::Byte(self.offset), &error)),
            Err(FrameError::Payload(error)) => Err(self.payload_error(error)),
        }
    }

    /// Bare payloads have no length, so a cut-off one is tried again with more of the file.
    fn next_payload(&mut self) -> Result<bool, KvEventError> {
        let mut wanted = BUFFER_BYTES;
        let mut at_end = false;
        loop {
            let decoded = match &self.buffer[self.used..] {
                [] if at_end => return Ok(false),
                [] => None,
                bytes => match decode(bytes, &mut self.sent.batch) {
                    Err(error) if error.cut_off && !at_end => None,
                    Err(error) => return Err(self.payload_error(error)),
                    Ok(bytes) => Some(bytes),
                },
            };
            if let Some(bytes) = decoded {
                self.used += bytes;
                self.offset += bytes as u64;
                self.sent.sequence = self.batches;
                self.sent.why = None;
                return Ok(true);
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            let read = (&mut self.reader).take(wanted as u64).read_to_end(&mut self.buffer);
            at_end = read.map_err(|error| KvEventError::unreadable(&self.file, Place::Byte(self.offset), &error))? == 0;
            wanted *= 2;
        }
    }

    fn payload_error(&self, error: PayloadError) -> KvEventError {
        self.error(Place::Byte(self.offset + error.offset), error.fault)
    }

    fn error(&self, place: Place, fault: Fault) -> KvEventError {
        KvEventError { file: self.file.clone(), place, fault }
    }
}

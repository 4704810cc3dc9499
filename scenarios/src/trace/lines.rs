//! Lines of a trace file, plain or gzipped by content, without BOM, line ends and blank lines.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::workload::InputError;

/// Bytes read ahead from a file.
const BUFFER_BYTES: usize = 256 * 1024;
/// The first bytes of gzip data.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// The UTF-8 byte order mark.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// A source of lines; memory is one line and one buffer.
pub struct Lines {
    reader: Box<dyn BufRead + Send>,
    file: String,
    line: u64,
    buffer: Vec<u8>,
}

impl Lines {
    /// Opens a file. Gzip is recognised by its first two bytes.
    ///
    /// # Errors
    /// A file that cannot be opened or read; the line is then 0.
    pub fn open(path: &Path) -> Result<Lines, InputError> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| unreadable(&name, 0, &error))?;
        Lines::new(name, BufReader::with_capacity(BUFFER_BYTES, file))
    }

    /// Reads from bytes in memory; `name` stands for the file in errors.
    ///
    /// # Errors
    /// None in practice: memory can always be read.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Lines, InputError> {
        Lines::new(name.to_owned(), Cursor::new(bytes))
    }

    fn new(file: String, mut reader: impl BufRead + Send + 'static) -> Result<Lines, InputError> {
        let start = reader.fill_buf().map_err(|error| unreadable(&file, 0, &error))?;
        let gzip = start.starts_with(&GZIP_MAGIC);
        let reader: Box<dyn BufRead + Send> = if gzip {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader)))
        } else {
            Box::new(reader)
        };
        Ok(Lines { reader, file, line: 0, buffer: Vec::new() })
    }

    /// The next line that is not blank, without its line end; none at the end of the file.
    ///
    /// # Errors
    /// A read that fails, such as in gzip data that is cut off.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, InputError> {
        loop {
            self.buffer.clear();
            let read = self.reader.read_until(b'\n', &mut self.buffer);
            let bytes = read.map_err(|error| unreadable(&self.file, self.line + 1, &error))?;
            if bytes == 0 {
                return Ok(None);
            }
            self.line += 1;
            let start = if self.line == 1 && self.buffer.starts_with(&BYTE_ORDER_MARK) { 3 } else { 0 };
            if !self.buffer[start..].trim_ascii().is_empty() {
                return Ok(Some(self.buffer[start..].trim_ascii_end()));
            }
        }
    }

    /// The line that was handed out last, as it is still held; empty before the first.
    pub fn held(&self) -> &[u8] {
        let start = if self.line == 1 && self.buffer.starts_with(&BYTE_ORDER_MARK) { 3 } else { 0 };
        self.buffer[start..].trim_ascii_end()
    }

    /// The number of the line handed out last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// The file's name for errors.
    pub fn file(&self) -> &str {
        &self.file
    }
}

/// The error of a file that cannot be read at `line`.
pub(crate) fn unreadable(file: &str, line: u64, error: &std::io::Error) -> InputError {
    InputError {
        file: file.to_owned(),
        line,
        field: "file".into(),
        found: error.to_string(),
        expected: "a file that can be read to its end".into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u64, String)>, InputError> {
        let mut lines = Lines::from_bytes("t", bytes.to_vec())?;
        let mut found = Vec::new();
        while let Some(line) = lines.next_line()? {
            let text = String::from_utf8_lossy(line).into_owned();
            found.push((lines.line(), text));
        }
        Ok(found)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).expect("memory takes all");
        encoder.finish().expect("memory takes all")
    }

    #[test]
    fn mark_line_ends_and_blank_lines_vanish_but_are_counted() {
        let found = all(b"\xef\xbb\xbfone\r\n\r\n  \ntwo\nthree").expect("readable");
        assert_eq!(found, [(1, "one".into()), (4, "two".into()), (5, "three".into())]);
    }

    #[test]
    fn gzip_is_known_by_its_content_and_a_cut_is_an_error() {
        let text: String = (0..5000).map(|row| format!("row {row} {}\n", row * 7919)).collect();
        let packed = gzip(text.as_bytes());
        assert_eq!(all(&packed).expect("whole").len(), 5000);
        let error = all(&packed[..packed.len() / 2]).expect_err("the second half is missing");
        assert_eq!(error.field, "file");
        assert!(error.line > 1);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Lines::open(Path::new("no/such/file")).err().expect("there is none");
        assert_eq!((error.file.as_str(), error.line), ("no/such/file", 0));
    }
}

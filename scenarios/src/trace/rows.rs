//! Parses line after line; bad rows stop the reader, or are skipped and counted under `lenient`.

use std::path::Path;

use super::field::Fault;
use super::lines::Lines;
use crate::workload::InputError;

/// Lines that are parsed into rows.
pub struct Rows {
    lines: Lines,
    lenient: bool,
    skipped: u64,
}

impl Rows {
    /// Opens a file.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open(path: &Path, lenient: bool) -> Result<Rows, InputError> {
        Ok(Rows::new(Lines::open(path)?, lenient))
    }

    /// Parses the lines of `lines`.
    pub fn new(lines: Lines, lenient: bool) -> Rows {
        Rows { lines, lenient, skipped: 0 }
    }

    /// The next row that `parse` takes; none at the end.
    ///
    /// # Errors
    /// A read that fails, and without `lenient` a row that `parse` refuses.
    pub fn next_with<T>(&mut self, mut parse: impl FnMut(&[u8]) -> Result<T, Fault>) -> Result<Option<T>, InputError> {
        while self.lines.next_line()?.is_some() {
            match parse(self.lines.held()) {
                Ok(row) => return Ok(Some(row)),
                Err(_) if self.lenient => self.skipped += 1,
                Err(fault) => return Err(fault.at(self.lines.file(), self.lines.line())),
            }
        }
        Ok(None)
    }

    /// The number of the last row's line, from 1.
    pub fn line(&self) -> u64 {
        self.lines.line()
    }

    /// The file's name.
    pub fn file(&self) -> &str {
        self.lines.file()
    }

    /// How many rows were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

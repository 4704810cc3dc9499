//! Azure LLM inference traces: CSV with `TIMESTAMP` (up to nine fraction digits), `ContextTokens`, `GeneratedTokens`.

use std::io::Read;
use std::path::Path;

use csv::StringRecord;
use jiff::civil::DateTime;

use super::field::{Fault, LONGEST_NS, LONGEST_TOKENS};
use super::lines::Lines;
use crate::workload::InputError;

/// The columns, as the data set names them.
pub const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AzureRow {
    /// When it was sent, in nanoseconds after the first row.
    pub time_ns: u64,
    /// Length of the prompt in tokens.
    pub input_tokens: u32,
    /// Length of the output in tokens.
    pub output_tokens: u32,
}

/// Serves the CSV parser one line a read, so that the line it is at is known, whatever ends lines and between them.
struct LineFeed {
    lines: Lines,
    /// How much of the held line has been served, and its length with a line end; equal when the next is due.
    served: usize,
    held: usize,
    failure: Option<InputError>,
}

impl LineFeed {
    fn place(&self) -> (&str, u64) {
        (self.lines.file(), self.lines.line())
    }

    fn next_line(&mut self) -> std::io::Result<()> {
        let length = match self.lines.next_line() {
            Ok(line) => line.map_or(0, |line| line.len() + 1),
            Err(error) => {
                let text = error.to_string();
                self.failure = Some(error);
                return Err(std::io::Error::other(text));
            }
        };
        (self.served, self.held) = (0, length);
        Ok(())
    }
}

impl Read for LineFeed {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.served == self.held {
            self.next_line()?;
        }
        let left = self.lines.held().iter().chain(b"\n").take(self.held).skip(self.served);
        let mut count = 0;
        for (slot, byte) in buffer.iter_mut().zip(left) {
            *slot = *byte;
            count += 1;
        }
        self.served += count;
        Ok(count)
    }
}

/// Reads rows in file order, whose times must not go back.
pub struct AzureReader {
    csv: csv::Reader<LineFeed>,
    record: StringRecord,
    lenient: bool,
    skipped: u64,
    first: Option<DateTime>,
    last_ns: u64,
}

impl AzureReader {
    /// Opens a file and checks its header.
    ///
    /// # Errors
    /// A file that cannot be opened, or that starts with other columns.
    pub fn open(path: &Path, lenient: bool) -> Result<AzureReader, InputError> {
        AzureReader::new(Lines::open(path)?, lenient)
    }

    /// Reads what is left of `lines` and checks its header.
    ///
    /// # Errors
    /// Other columns than [`COLUMNS`].
    pub fn new(lines: Lines, lenient: bool) -> Result<AzureReader, InputError> {
        let feed = LineFeed { lines, served: 0, held: 0, failure: None };
        let csv = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(feed);
        let record = StringRecord::new();
        let mut reader = AzureReader { csv, record, lenient, skipped: 0, first: None, last_ns: 0 };
        let found = reader.read_header()?;
        if found.split(',').map(str::trim).ne(COLUMNS) {
            let (file, line) = reader.place();
            return Err(Fault::new("header", format!("\"{found}\""), COLUMNS.join(",")).at(file, line));
        }
        Ok(reader)
    }

    /// The next row; none at the end.
    ///
    /// # Errors
    /// A read that fails, and without `lenient` a row that cannot be used.
    pub fn next_row(&mut self) -> Result<Option<AzureRow>, InputError> {
        loop {
            let row = match self.csv.read_record(&mut self.record) {
                Ok(false) => return Ok(None),
                Ok(true) => self.parse(),
                Err(error) => Err(self.row_fault(&error)?),
            };
            match row {
                Ok(row) => return Ok(Some(row)),
                Err(_) if self.lenient => self.skipped += 1,
                Err(fault) => {
                    let (file, line) = self.place();
                    return Err(fault.at(file, line));
                }
            }
        }
    }

    /// The file and line of the last row.
    pub fn place(&self) -> (&str, u64) {
        self.csv.get_ref().place()
    }

    /// How many rows were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The header's columns, none in an empty file.
    fn read_header(&mut self) -> Result<String, InputError> {
        match self.csv.read_record(&mut self.record) {
            Ok(_) => Ok(self.record.iter().collect::<Vec<_>>().join(",")),
            Err(error) => {
                let fault = self.row_fault(&error)?;
                let (file, line) = self.place();
                Err(fault.at(file, line))
            }
        }
    }

    /// The fault of a row that is no text. A read that failed is no fault of the row, and no row can follow it.
    fn row_fault(&self, error: &csv::Error) -> Result<Fault, InputError> {
        if let Some(failure) = &self.csv.get_ref().failure {
            return Err(failure.clone());
        }
        let found = match error.kind() {
            csv::ErrorKind::Utf8 { .. } => "bytes that are not UTF-8".to_owned(),
            _ => error.to_string(),
        };
        Ok(Fault::new("row", found, "comma-separated text in UTF-8"))
    }

    fn parse(&mut self) -> Result<AzureRow, Fault> {
        if self.record.len() != COLUMNS.len() {
            return Err(Fault::new("row", format!("{} fields", self.record.len()), "3 fields"));
        }
        let row = AzureRow {
            time_ns: time_ns(self.record[0].trim(), &mut self.first, self.last_ns)?,
            input_tokens: tokens(COLUMNS[1], &self.record[1])?,
            output_tokens: tokens(COLUMNS[2], &self.record[2])?,
        };
        self.last_ns = row.time_ns;
        Ok(row)
    }
}

/// The time of a row after the first row's; the first time that can be read is that of the first row.
fn time_ns(text: &str, first: &mut Option<DateTime>, last_ns: u64) -> Result<u64, Fault> {
    let fail = |expected: &str| Fault::new(COLUMNS[0], format!("\"{text}\""), expected);
    let time: DateTime = text.parse().map_err(|_| fail("a time such as 2023-11-16 18:17:03.9799600"))?;
    let span_ns = time.duration_since(*first.get_or_insert(time)).as_nanos();
    if span_ns < i128::from(last_ns) {
        return Err(fail("not before the previous row's time"));
    }
    u64::try_from(span_ns).ok().filter(|span_ns| *span_ns <= LONGEST_NS).ok_or_else(|| fail("less than 126 years"))
}

fn tokens(field: &str, text: &str) -> Result<u32, Fault> {
    let count = text.trim().parse::<u64>().ok().filter(|count| (1..=LONGEST_TOKENS).contains(count));
    let expected = || format!("a whole number from 1 to {LONGEST_TOKENS}");
    count.map(|count| count as u32).ok_or_else(|| Fault::new(field, format!("\"{text}\""), expected()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n";
    const FIRST: &str = "2023-11-16 18:17:03.9799600,4808,10\r\n";

    fn reader(text: String, lenient: bool) -> Result<AzureReader, InputError> {
        AzureReader::new(Lines::from_bytes("a.csv", text.into_bytes())?, lenient)
    }

    #[test]
    fn times_count_from_the_first_row_to_seven_digits() {
        let text = format!("\u{feff}{HEAD}{FIRST}\r\n2023-11-16 18:17:04.0319601,3180,8");
        let mut reader = reader(text, false).expect("a header");
        let first = reader.next_row().expect("good").expect("a row");
        assert_eq!(first, AzureRow { time_ns: 0, input_tokens: 4808, output_tokens: 10 });
        let second = reader.next_row().expect("good").expect("a row");
        assert_eq!((second.time_ns, reader.place().1), (52_000_100, 4));
        assert_eq!(reader.next_row().expect("good"), None);
    }

    #[test]
    fn bad_rows_name_their_field() {
        let cases = [
            (",3180,8", "TIMESTAMP"),
            ("yesterday,3180,8", "TIMESTAMP"),
            ("2023-11-16 18:17:03.9799599,3180,8", "TIMESTAMP"),
            ("2023-11-16 18:17:04,0,8", "ContextTokens"),
            ("2023-11-16 18:17:04,9223372036854775808,8", "ContextTokens"),
            ("2023-11-16 18:17:04,3180,-8", "GeneratedTokens"),
            ("2023-11-16 18:17:04,31", "row"),
        ];
        for (row, field) in cases {
            let mut strict = reader(format!("{HEAD}{FIRST}{row}\r\n"), false).expect("a header");
            strict.next_row().expect("the first row is good");
            let error = strict.next_row().expect_err(row);
            assert_eq!((error.file.as_str(), error.line, error.field.as_str()), ("a.csv", 3, field), "{error}");
            let mut lenient = reader(format!("{HEAD}{FIRST}{row}\r\n"), true).expect("a header");
            lenient.next_row().expect("the first row is good");
            assert_eq!((lenient.next_row().expect("skipped"), lenient.skipped()), (None, 1));
        }
    }

    #[test]
    fn another_header_is_refused() {
        let error = reader("a,b\r\n1,2\r\n".into(), false).err().expect("other columns");
        assert_eq!((error.line, error.field.as_str(), error.found.as_str()), (1, "header", "\"a,b\""));
        assert!(reader(String::new(), true).is_err());
    }
}

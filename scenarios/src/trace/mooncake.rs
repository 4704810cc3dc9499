//! Mooncake traces: `timestamp` ms, `input_length`, `output_length`, `hash_ids`; ids are global, the last block may be
//! partial.

use std::path::Path;

use serde::Deserialize;

use super::field::{Fault, Scalar, object};
use super::hash_ids::{BlockRun, HashIds};
use super::rows::Rows;
use crate::workload::InputError;

const MS: u64 = 1_000_000;
/// Tokens of prompt blocks have ids below this; outputs are numbered from here on.
pub const FIRST_OUTPUT_TOKEN: u32 = 1 << 31;
/// Tokens in a block unless a scenario says otherwise.
pub const DEFAULT_BLOCK_SIZE: u32 = 512;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MooncakeRow {
    /// When it was sent, in nanoseconds as written, if the row says so.
    pub time_ns: Option<u64>,
    /// Wait after the lane's previous request ended, in nanoseconds; 0 unless the row has `delay` or `delay_ms`.
    pub delay_ns: u64,
    /// Length of the prompt in tokens.
    pub input_tokens: u32,
    /// Length of the output in tokens.
    pub output_tokens: u32,
    /// The prompt's blocks; the last may be partial.
    pub blocks: Box<[BlockRun]>,
    /// The conversation, if the row names one.
    pub session: Option<String>,
    /// Priority, if the row has one.
    pub priority: Option<i32>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default, alias = "created_time")]
    timestamp: Scalar<'a>,
    #[serde(borrow, default, alias = "delay")]
    delay_ms: Scalar<'a>,
    #[serde(borrow, default, alias = "input_tokens")]
    input_length: Scalar<'a>,
    #[serde(borrow, default, alias = "output_tokens")]
    output_length: Scalar<'a>,
    #[serde(default)]
    hash_ids: HashIds,
    #[serde(borrow, default)]
    session_id: Scalar<'a>,
    #[serde(borrow, default)]
    priority: Scalar<'a>,
}

/// Whether rows must say when they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Times {
    /// They must.
    Needed,
    /// They may.
    Optional,
}

/// Parses one line with blocks of `block_size` tokens.
///
/// # Errors
/// The first field that cannot be used.
pub fn parse_row(line: &[u8], block_size: u32, times: Times) -> Result<MooncakeRow, Fault> {
    let wire: Wire = object(line)?;
    let input_tokens = wire.input_length.tokens("input_length", 1)?;
    let blocks = u64::from(input_tokens.div_ceil(block_size));
    let untimed = times == Times::Optional && wire.timestamp.is_absent();
    let time_ns = if untimed { None } else { Some(wire.timestamp.time_ns("timestamp", MS)?) };
    let delay_ns = if wire.delay_ms.is_absent() { 0 } else { wire.delay_ms.time_ns("delay_ms", MS)? };
    Ok(MooncakeRow {
        time_ns,
        delay_ns,
        input_tokens,
        output_tokens: wire.output_length.tokens("output_length", 1)?,
        blocks: wire.hash_ids.checked(input_tokens, blocks, block_size, u64::from(FIRST_OUTPUT_TOKEN))?,
        session: session_name(&wire.session_id)?,
        priority: priority(&wire.priority)?,
    })
}

fn session_name(value: &Scalar<'_>) -> Result<Option<String>, Fault> {
    match value {
        Scalar::Missing | Scalar::Null => Ok(None),
        Scalar::Text(name) => Ok(Some(name.to_string())),
        Scalar::Int(number) => Ok(Some(number.to_string())),
        other => Err(Fault::new("session_id", other.to_string(), "a name or a number")),
    }
}

fn priority(value: &Scalar<'_>) -> Result<Option<i32>, Fault> {
    match value {
        Scalar::Missing | Scalar::Null => Ok(None),
        Scalar::Int(number) if i32::try_from(*number).is_ok() => Ok(Some(*number as i32)),
        other => Err(Fault::new("priority", other.to_string(), "a whole number of 32 bits")),
    }
}

/// Reads rows in file order, whose times must not go back.
pub struct MooncakeReader {
    rows: Rows,
    block_size: u32,
    times: Times,
    last_ns: u64,
}

impl MooncakeReader {
    /// Opens a file whose blocks have `block_size` tokens.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open(path: &Path, block_size: u32, lenient: bool, times: Times) -> Result<MooncakeReader, InputError> {
        Ok(MooncakeReader::new(Rows::open(path, lenient)?, block_size, times))
    }

    /// Reads `rows`; `block_size` is at least 1.
    pub fn new(rows: Rows, block_size: u32, times: Times) -> MooncakeReader {
        MooncakeReader { rows, block_size: block_size.max(1), times, last_ns: 0 }
    }

    /// The next row; none at the end.
    ///
    /// # Errors
    /// A read that fails, and without `lenient` a row that cannot be used.
    pub fn next_row(&mut self) -> Result<Option<MooncakeRow>, InputError> {
        let (block_size, times, last_ns) = (self.block_size, self.times, self.last_ns);
        let row = self.rows.next_with(|line| {
            let row = parse_row(line, block_size, times)?;
            if let Some(time_ns) = row.time_ns.filter(|&time_ns| time_ns < last_ns) {
                let found = format!("{} ms", time_ns / MS);
                return Err(Fault::new(
                    "timestamp",
                    found,
                    format!("not before the previous row's {} ms", last_ns / MS),
                ));
            }
            Ok(row)
        })?;
        self.last_ns = row.as_ref().and_then(|row| row.time_ns).unwrap_or(last_ns);
        Ok(row)
    }

    /// The file and line of the last row.
    pub fn place(&self) -> (&str, u64) {
        (self.rows.file(), self.rows.line())
    }

    /// How many rows were skipped.
    pub fn skipped(&self) -> u64 {
        self.rows.skipped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::lines::Lines;

    const GOOD: &str = r#"{"timestamp": 40, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}"#;

    #[test]
    fn rows_that_lanes_play_need_no_time() {
        let untimed = GOOD.replace(r#""timestamp": 40, "#, "");
        let row = parse_row(untimed.as_bytes(), 512, Times::Optional).expect("no time is needed");
        let timed = parse_row(GOOD.as_bytes(), 512, Times::Optional).expect("one may be there");
        assert_eq!((row.time_ns, timed.time_ns), (None, Some(40_000_000)));
        assert_eq!(parse_row(untimed.as_bytes(), 512, Times::Needed).expect_err("a time is needed").field, "timestamp");
    }

    fn reader(text: &str, lenient: bool) -> MooncakeReader {
        let lines = Lines::from_bytes("m.jsonl", text.as_bytes().to_vec()).expect("memory");
        MooncakeReader::new(Rows::new(lines, lenient), 512, Times::Needed)
    }

    #[test]
    fn a_row_and_its_aliases() {
        let row = parse_row(GOOD.as_bytes(), 512, Times::Needed).expect("a good row");
        assert_eq!((row.time_ns, row.input_tokens, row.output_tokens), (Some(40_000_000), 1000, 3));
        assert_eq!(*row.blocks, [BlockRun { first: 7, count: 2 }]);
        let other =
            r#"{"created_time":40,"input_tokens":1000,"output_tokens":3,"hash_ids":[[7,2]],"delay":5,"session_id":9}"#;
        let other = parse_row(other.as_bytes(), 512, Times::Needed).expect("aliases");
        assert_eq!(other, MooncakeRow { delay_ns: 5_000_000, session: Some("9".into()), ..row });
    }

    #[test]
    fn bad_rows_name_their_field() {
        let cases = [
            (r#""timestamp": 40, "#, "", "timestamp"),
            ("40", "-40", "timestamp"),
            ("1000", "0", "input_length"),
            ("1000", "-1", "input_length"),
            (r#""output_length": 3"#, r#""output_length": 0"#, "output_length"),
            ("[7, 8]", "[7]", "hash_ids"),
            ("[7, 8]", "[7, 8, 9]", "hash_ids"),
            ("[7, 8]", "[7, 9223372036854775808]", "hash_ids"),
            ("[7, 8]", "[7, 4194304]", "hash_ids"),
            (r#", "hash_ids": [7, 8]"#, "", "hash_ids"),
            ("8]}", "8", "row"),
        ];
        for (old, new, field) in cases {
            let error = second_row_error(reader(&format!("{GOOD}\n{}", GOOD.replace(old, new)), false));
            assert_eq!((error.line, error.field.as_str()), (2, field), "{error}");
        }
    }

    fn second_row_error(mut reader: MooncakeReader) -> InputError {
        reader.next_row().expect("the first row is good");
        reader.next_row().expect_err("the second row is bad")
    }

    #[test]
    fn times_that_go_back_are_refused_or_skipped() {
        let text = format!("\u{feff}{GOOD}\r\n\r\n{}\r\n{GOOD}", GOOD.replace("40", "39"));
        let error = second_row_error(reader(&text, false));
        assert_eq!((error.line, error.field.as_str(), error.found.as_str()), (3, "timestamp", "39 ms"));
        let mut lenient = reader(&text, true);
        let mut rows = 0;
        while lenient.next_row().expect("lenient").is_some() {
            rows += 1;
        }
        assert_eq!((rows, lenient.skipped()), (2, 1));
    }

    #[test]
    fn the_block_size_is_a_setting() {
        assert!(parse_row(GOOD.as_bytes(), 500, Times::Needed).is_ok());
        let fault = parse_row(GOOD.as_bytes(), 64, Times::Needed).expect_err("16 blocks are needed");
        assert_eq!(fault.expected, "16 for 1000 input tokens in blocks of 64");
    }
}

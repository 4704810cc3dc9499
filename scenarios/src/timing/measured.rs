//! Files of measured passes: one row a pass, in CSV or, if the name ends in `.parquet`, in Parquet. Columns are found by name.
//!
//! | column | meaning |
//! |---|---|
//! | `mode` | `extend` or `decode` |
//! | `rows` | rows of the pass, at least 1 |
//! | `new_tokens`, `cached_tokens` | extend: sums over rows |
//! | `kv_tokens` | decode: sum over rows of KV tokens read, the new one included |
//! | `attention` | extend, optional: sum over rows of new tokens times tokens of context after them |
//! | `duration_ms` | how long the pass took on the device |
//!
//! A column of the other mode may be empty, or missing if the file has passes of one mode only.

mod columns;

use std::path::Path;

use servesim_engine::timing::PassShape;

use crate::trace::field::Fault;
use crate::workload::InputError;
use columns::{Cell, Columns};

/// The columns that a file of measured passes can have.
pub const COLUMNS: [&str; 7] = ["mode", "rows", "new_tokens", "cached_tokens", "kv_tokens", "attention", "duration_ms"];

/// The longest pass, in milliseconds.
const LONGEST_MS: f64 = 1e9;
/// The most tokens or rows; sums of tokens times tokens may be larger.
const MOST: f64 = (1_u64 << 40) as f64;
const MOST_ATTENTION: f64 = 1e30;

/// Whether a pass prefills or decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// A prefill pass.
    Extend,
    /// A decode pass.
    Decode,
}

impl Mode {
    /// Its name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Extend => "extend",
            Mode::Decode => "decode",
        }
    }
}

/// One measured pass. What the other mode has is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredPass {
    /// What it was.
    pub mode: Mode,
    /// Rows.
    pub rows: f64,
    /// Tokens that were computed.
    pub new_tokens: f64,
    /// Tokens that were found cached.
    pub cached_tokens: f64,
    /// KV tokens that the decode rows read.
    pub kv_tokens: f64,
    /// New tokens times context, where the file has it.
    pub attention: Option<f64>,
    /// How long it took, in milliseconds.
    pub duration_ms: f64,
    /// Its line in the file, from 1.
    pub line: u64,
}

impl MeasuredPass {
    /// The pass as a timing model would be asked for it.
    pub fn shape(&self) -> PassShape {
        match self.mode {
            Mode::Extend => PassShape {
                extend_rows: self.rows as u32,
                extend_tokens: self.new_tokens as u64,
                cached_tokens: self.cached_tokens as u64,
                extend_attention: self.attention.unwrap_or(0.0) as u128,
                ..PassShape::default()
            },
            Mode::Decode => PassShape {
                decode_rows: self.rows as u32,
                decode_kv_tokens: self.kv_tokens as u64,
                ..PassShape::default()
            },
        }
    }
}

/// Reads all passes of a file, in its order.
///
/// # Errors
/// A file that cannot be read, a column that is missing, unknown or there twice, or the first value that cannot be used.
pub fn read(path: &Path) -> Result<Vec<MeasuredPass>, InputError> {
    let columns = columns::read(path, &COLUMNS, &["mode", "rows", "duration_ms"])?;
    (0..columns.rows())
        .map(|row| pass(&columns, row).map_err(|fault| fault.at(columns.file(), columns.line(row))))
        .collect()
}

fn pass(columns: &Columns, row: usize) -> Result<MeasuredPass, Fault> {
    let mode = mode(columns, row)?;
    let number = |name: &str, of: Mode| match columns.cell(row, name) {
        Cell::Absent if of != mode => Ok(0.0),
        cell => cell.number(name, 0.0, MOST),
    };
    Ok(MeasuredPass {
        mode,
        rows: columns.cell(row, "rows").number("rows", 1.0, f64::from(u32::MAX))?,
        new_tokens: number("new_tokens", Mode::Extend)?,
        cached_tokens: number("cached_tokens", Mode::Extend)?,
        kv_tokens: number("kv_tokens", Mode::Decode)?,
        attention: match columns.cell(row, "attention") {
            Cell::Absent => None,
            cell => Some(cell.number("attention", 0.0, MOST_ATTENTION)?),
        },
        duration_ms: columns.cell(row, "duration_ms").number("duration_ms", 0.0, LONGEST_MS)?,
        line: columns.line(row),
    })
}

/// The mode of a row.
pub(super) fn mode(columns: &Columns, row: usize) -> Result<Mode, Fault> {
    match columns.cell(row, "mode") {
        Cell::Text("extend") => Ok(Mode::Extend),
        Cell::Text("decode") => Ok(Mode::Decode),
        cell => Err(Fault::new("mode", cell.to_string(), "extend or decode")),
    }
}

pub(super) use columns::{Columns as MeasuredColumns, read as read_columns};

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<MeasuredPass>, InputError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.csv");
        std::fs::write(&path, text).expect("written");
        read(&path)
    }

    #[test]
    fn columns_come_in_any_order_and_those_of_the_other_mode_may_be_empty() {
        let text = "\u{feff}duration_ms,mode,rows,new_tokens,cached_tokens,kv_tokens\r\n2.5,extend,1,100,20,\r\n\r\n 1 , decode ,8,,,900\r\n";
        let passes = read_text(text).expect("good");
        assert_eq!(passes.len(), 2);
        assert_eq!((passes[0].new_tokens, passes[0].duration_ms, passes[0].attention), (100.0, 2.5, None));
        assert_eq!((passes[1].mode, passes[1].kv_tokens, passes[1].line), (Mode::Decode, 900.0, 4));
        assert_eq!(passes[1].shape().decode_kv_tokens, 900);
        assert_eq!(passes[0].shape().cached_tokens, 20);
    }

    #[test]
    fn a_bad_value_is_named_with_its_line() {
        const HEAD: &str = "mode,rows,new_tokens,cached_tokens,kv_tokens,duration_ms\n";
        for (row, field) in [
            ("prefill,1,2,3,,1", "mode"),
            ("decode,0,,,5,1", "rows"),
            ("decode,1,,,,1", "kv_tokens"),
            ("extend,1,x,3,,1", "new_tokens"),
            ("extend,1,2,-3,,1", "cached_tokens"),
            ("extend,1,2,3,,nan", "duration_ms"),
            ("extend,1,2,3,,", "duration_ms"),
            ("extend,1,2", "row"),
        ] {
            let error = read_text(&format!("{HEAD}decode,1,,,5,1\n{row}\n")).expect_err(row);
            assert_eq!((error.line, error.field.as_str()), (3, field), "{error}");
        }
    }

    #[test]
    fn a_bad_header_is_named() {
        for (head, found) in [
            ("mode,rows", "no column duration_ms"),
            ("mode,rows,duration_ms,mode", "column mode twice"),
            ("mode,rows,duration_ms,colour", "column \"colour\""),
            ("", "no column mode"),
        ] {
            let error = read_text(&format!("{head}\n")).expect_err(head);
            assert_eq!((error.field.as_str(), error.found.as_str()), ("header", found), "{error}");
        }
        let error = read(Path::new("no/such.csv")).expect_err("no file");
        assert_eq!((error.line, error.file.as_str()), (0, "no/such.csv"));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.parquet");
        std::fs::write(&path, "mode,rows\n").expect("written");
        assert_eq!(read(&path).expect_err("no Parquet").expected, "a Parquet file");
    }
}

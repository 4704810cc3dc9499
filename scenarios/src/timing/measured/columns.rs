//! A small file with named columns, from CSV or Parquet, held whole.

use std::fmt;
use std::fs::File;
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::trace::field::Fault;
use crate::trace::lines::unreadable;
use crate::workload::InputError;

/// A value as it stands in the file.
#[derive(Clone, Debug, PartialEq)]
enum Stored {
    Absent,
    Text(String),
    Number(f64),
    Other(String),
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'c> {
    /// Empty, null, or of a column that the file does not have.
    Absent,
    /// A text, without the space around it.
    Text(&'c str),
    /// A number of a Parquet file.
    Number(f64),
    /// Anything else that Parquet can hold, in words.
    Other(&'c str),
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Absent => f.write_str("nothing"),
            Cell::Text(text) => write!(f, "\"{text}\""),
            Cell::Number(number) => write!(f, "{number}"),
            Cell::Other(text) => f.write_str(text),
        }
    }
}

impl Cell<'_> {
    /// The value as a number from `least` to `most`.
    ///
    /// # Errors
    /// Any other value.
    pub fn number(self, field: &str, least: f64, most: f64) -> Result<f64, Fault> {
        let number = match self {
            Cell::Number(number) => Some(number),
            Cell::Text(text) => text.parse().ok(),
            Cell::Absent | Cell::Other(_) => None,
        };
        number
            .filter(|number: &f64| (least..=most).contains(number))
            .ok_or_else(|| Fault::new(field, self.to_string(), format!("a number from {least} to {most:e}")))
    }
}

/// The rows of a file by the names of its columns.
#[derive(Debug)]
pub struct Columns {
    file: String,
    names: Vec<String>,
    rows: Vec<Vec<Stored>>,
    lines: Vec<u64>,
}

impl Columns {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The file, as the user named it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line of a row; in a Parquet file its number, from 1.
    pub fn line(&self, row: usize) -> u64 {
        self.lines[row]
    }

    /// A value of a row.
    pub fn cell(&self, row: usize, name: &str) -> Cell<'_> {
        let column = self.names.iter().position(|known| known == name);
        match column.and_then(|column| self.rows[row].get(column)) {
            None | Some(Stored::Absent) => Cell::Absent,
            Some(Stored::Text(text)) => Cell::Text(text),
            Some(Stored::Number(number)) => Cell::Number(*number),
            Some(Stored::Other(text)) => Cell::Other(text),
        }
    }
}

/// Reads a file. Columns must be of `known`, and those of `needed` must be there.
///
/// # Errors
/// A file that cannot be read, another header, or a row with more or fewer fields than it.
pub fn read(path: &Path, known: &[&str], needed: &[&str]) -> Result<Columns, InputError> {
    let is_parquet = path.extension().is_some_and(|extension| extension == "parquet");
    let columns = if is_parquet { read_parquet(path)? } else { read_csv(path)? };
    check_header(&columns.names, known, needed).map_err(|fault| fault.at(&columns.file, u64::from(!is_parquet)))?;
    Ok(columns)
}

fn check_header(names: &[String], known: &[&str], needed: &[&str]) -> Result<(), Fault> {
    let fault = |found: String| Fault::new("header", found, format!("the columns {}", known.join(", ")));
    for (index, name) in names.iter().enumerate() {
        if !known.contains(&name.as_str()) {
            return Err(fault(format!("column \"{name}\"")));
        }
        if names[..index].contains(name) {
            return Err(fault(format!("column {name} twice")));
        }
    }
    match needed.iter().find(|needed| !names.iter().any(|name| name == *needed)) {
        Some(missing) => Err(fault(format!("no column {missing}"))),
        None => Ok(()),
    }
}

fn read_csv(path: &Path) -> Result<Columns, InputError> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| unreadable(&file, 0, &error))?;
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).trim(csv::Trim::All).from_reader(text);
    let mut columns = Columns { file, names: Vec::new(), rows: Vec::new(), lines: Vec::new() };
    let mut lines = LineCount { text, byte: 0, line: 1 };
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|error| row_fault(&error, &columns, &mut lines))?;
        if index == 0 {
            columns.names = record.iter().filter(|name| !name.is_empty()).map(str::to_owned).collect();
            continue;
        }
        let stored = |cell: &str| if cell.is_empty() { Stored::Absent } else { Stored::Text(cell.to_owned()) };
        columns.rows.push(record.iter().map(stored).collect());
        columns.lines.push(lines.at(record.position()));
    }
    Ok(columns)
}

/// Counts lines up to a row: the parser's own count is of where it began to look for the row, blank lines before it included.
struct LineCount<'t> {
    text: &'t [u8],
    byte: usize,
    line: u64,
}

impl LineCount<'_> {
    /// The line of a row; rows are asked for in their order.
    fn at(&mut self, position: Option<&csv::Position>) -> u64 {
        let Some(position) = position else { return 0 };
        let start = usize::try_from(position.byte()).unwrap_or(usize::MAX).clamp(self.byte, self.text.len());
        let blank = self.text[start..].iter().take_while(|byte| b"\r\n".contains(byte)).count();
        let passed = &self.text[self.byte..start + blank];
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.byte = start + blank;
        self.line
    }
}

fn row_fault(error: &csv::Error, columns: &Columns, lines: &mut LineCount<'_>) -> InputError {
    let line = lines.at(error.position());
    let found = match error.kind() {
        csv::ErrorKind::UnequalLengths { len, .. } => format!("{len} fields"),
        csv::ErrorKind::Utf8 { .. } => "bytes that are not UTF-8".to_owned(),
        _ => error.to_string(),
    };
    let expected = format!("comma-separated text with {} fields", columns.names.len());
    Fault::new("row", found, expected).at(&columns.file, line)
}

fn read_parquet(path: &Path) -> Result<Columns, InputError> {
    let file = path.display().to_string();
    let opened = File::open(path).map_err(|error| unreadable(&file, 0, &error))?;
    let fault = |line: u64, error: &dyn fmt::Display| {
        Fault::new("content", error.to_string(), "a Parquet file").at(&file, line)
    };
    let reader = SerializedFileReader::new(opened).map_err(|error| fault(0, &error))?;
    let schema = reader.metadata().file_metadata().schema();
    let names = schema.get_fields().iter().map(|field| field.name().to_owned()).collect();
    let mut columns = Columns { file: file.clone(), names, rows: Vec::new(), lines: Vec::new() };
    let rows = reader.get_row_iter(None).map_err(|error| fault(0, &error))?;
    for (row, line) in rows.zip(1..) {
        let row = row.map_err(|error| fault(line, &error))?;
        columns.rows.push(row.get_column_iter().map(|(_, field)| stored(field)).collect());
        columns.lines.push(line);
    }
    Ok(columns)
}

/// A Parquet value. Whole numbers past 2^53 are rounded; no column here has such.
fn stored(field: &Field) -> Stored {
    match field {
        Field::Null => Stored::Absent,
        Field::Str(text) => Stored::Text(text.trim().to_owned()),
        Field::Byte(value) => Stored::Number((*value).into()),
        Field::Short(value) => Stored::Number((*value).into()),
        Field::Int(value) => Stored::Number((*value).into()),
        Field::Long(value) => Stored::Number(*value as f64),
        Field::UByte(value) => Stored::Number((*value).into()),
        Field::UShort(value) => Stored::Number((*value).into()),
        Field::UInt(value) => Stored::Number((*value).into()),
        Field::ULong(value) => Stored::Number(*value as f64),
        Field::Float(value) => Stored::Number((*value).into()),
        Field::Double(value) => Stored::Number(*value),
        other => Stored::Other(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::*;

    /// Writes a file with a text, a whole number that may be null, and a floating one.
    fn write(path: &Path) {
        let schema =
            "message passes { REQUIRED BYTE_ARRAY mode (UTF8); OPTIONAL INT64 rows; REQUIRED DOUBLE duration_ms; }";
        let schema = Arc::new(parse_message_type(schema).expect("a schema"));
        let properties = WriterProperties::builder().set_compression(parquet::basic::Compression::SNAPPY).build();
        let file = File::create(path).expect("made");
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).expect("a writer");
        let mut group = writer.next_row_group().expect("a group");
        let mut column = group.next_column().expect("a column").expect("the first");
        let modes = [ByteArray::from("extend"), ByteArray::from("decode")];
        column.typed::<ByteArrayType>().write_batch(&modes, None, None).expect("written");
        column.close().expect("closed");
        let mut column = group.next_column().expect("a column").expect("the second");
        column.typed::<Int64Type>().write_batch(&[7], Some(&[1, 0]), None).expect("written");
        column.close().expect("closed");
        let mut column = group.next_column().expect("a column").expect("the third");
        column.typed::<DoubleType>().write_batch(&[1.5, 2.5], None, None).expect("written");
        column.close().expect("closed");
        group.close().expect("closed");
        writer.close().expect("closed");
    }

    #[test]
    fn parquet_gives_numbers_texts_and_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.parquet");
        write(&path);
        let columns = read(&path, &["mode", "rows", "duration_ms"], &["mode"]).expect("good");
        assert_eq!((columns.rows(), columns.line(1)), (2, 2));
        assert_eq!(columns.cell(0, "mode"), Cell::Text("extend"));
        assert_eq!((columns.cell(0, "rows"), columns.cell(1, "rows")), (Cell::Number(7.0), Cell::Absent));
        assert_eq!((columns.cell(1, "duration_ms"), columns.cell(1, "kv_tokens")), (Cell::Number(2.5), Cell::Absent));
        assert_eq!(read(&path, &["mode"], &[]).expect_err("unknown").found, "column \"rows\"");
    }

    #[test]
    fn a_parquet_file_that_is_cut_off_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p.parquet");
        write(&path);
        let bytes = std::fs::read(&path).expect("read");
        for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).expect("written");
            let error = read(&path, &["mode", "rows", "duration_ms"], &[]).expect_err("cut off");
            assert_eq!(error.expected, "a Parquet file", "{error}");
        }
    }
}

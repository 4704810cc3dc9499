//! Rows of named columns as JSON lines, CSV or Parquet, written as they come.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use super::OutputError;
use super::parquet_table::ParquetTable;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whole numbers from 0.
    Whole,
    /// Finite numbers.
    Number,
    /// Numbers that may be missing.
    MaybeNumber,
    /// Words.
    Word,
}

/// A named column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// A whole number.
    Whole(u64),
    /// A number.
    Number(f64),
    /// A word of a fixed set.
    Word(&'static str),
    /// Nothing.
    Missing,
}

impl From<Option<f64>> for Cell {
    fn from(value: Option<f64>) -> Cell {
        value.map_or(Cell::Missing, Cell::Number)
    }
}

/// Something that a table has rows of.
pub trait Row {
    /// The columns.
    const COLUMNS: &'static [Column];

    /// Appends one cell for each column, in order.
    fn cells(&self, cells: &mut Vec<Cell>);
}

/// The form of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line; what is missing is `null`.
    Jsonl,
    /// A line of names, then one line a row; what is missing is empty.
    Csv,
    /// Parquet, compressed with Snappy.
    Parquet,
}

impl Format {
    /// The end of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
            Format::Parquet => "parquet",
        }
    }
}

enum Sink {
    Jsonl(BufWriter<File>),
    Csv(Box<csv::Writer<File>>),
    Parquet(Box<ParquetTable>),
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

impl Sink {
    fn write(&mut self, columns: &[Column], cells: &[Cell]) -> Result<(), Failure> {
        match self {
            Sink::Jsonl(file) => write_json(file, columns, cells),
            Sink::Csv(writer) => {
                cells.iter().try_for_each(|cell| match cell {
                    Cell::Whole(value) => writer.write_field(value.to_string()),
                    Cell::Number(value) => writer.write_field(value.to_string()),
                    Cell::Word(word) => writer.write_field(word),
                    Cell::Missing => writer.write_field(""),
                })?;
                Ok(writer.write_record(None::<&[u8]>)?)
            }
            Sink::Parquet(table) => Ok(table.write(cells)?),
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Sink::Jsonl(mut file) => Ok(file.flush()?),
            Sink::Csv(mut writer) => Ok(writer.flush()?),
            Sink::Parquet(table) => Ok(table.finish()?),
        }
    }
}

fn write_json(file: &mut BufWriter<File>, columns: &[Column], cells: &[Cell]) -> Result<(), Failure> {
    for (index, (column, cell)) in columns.iter().zip(cells).enumerate() {
        let before = if index == 0 { '{' } else { ',' };
        write!(file, "{before}\"{}\":", column.name)?;
        match cell {
            Cell::Whole(value) => write!(file, "{value}")?,
            Cell::Number(value) => serde_json::to_writer(&mut *file, value)?,
            Cell::Word(word) => write!(file, "\"{word}\"")?,
            Cell::Missing => write!(file, "null")?,
        }
    }
    Ok(file.write_all(b"}\n")?)
}

/// A table on its way to its file.
pub struct Table<R> {
    path: PathBuf,
    beside: PathBuf,
    sink: Option<Sink>,
    cells: Vec<Cell>,
    rows: PhantomData<fn(&R)>,
}

impl<R: Row> Table<R> {
    /// Begins the file `name` with the form's extension in `folder`.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(folder: &Path, name: &str, format: Format) -> Result<Table<R>, OutputError> {
        let path = folder.join(format!("{name}.{}", format.extension()));
        let beside = folder.join(format!("{name}.{}.partial", format.extension()));
        let open = || -> Result<Sink, Failure> {
            let file = File::create(&beside)?;
            Ok(match format {
                Format::Jsonl => Sink::Jsonl(BufWriter::new(file)),
                Format::Csv => {
                    let mut writer = csv::Writer::from_writer(file);
                    writer.write_record(R::COLUMNS.iter().map(|column| column.name))?;
                    Sink::Csv(Box::new(writer))
                }
                Format::Parquet => Sink::Parquet(Box::new(ParquetTable::new(file, R::COLUMNS)?)),
            })
        };
        let sink = open().map_err(|source| OutputError { path: beside.clone(), source })?;
        Ok(Table { path, beside, sink: Some(sink), cells: Vec::new(), rows: PhantomData })
    }

    /// Appends a row.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&mut self, row: &R) -> Result<(), OutputError> {
        self.cells.clear();
        row.cells(&mut self.cells);
        let Some(sink) = &mut self.sink else { return Ok(()) };
        sink.write(R::COLUMNS, &self.cells).map_err(|source| OutputError { path: self.beside.clone(), source })
    }

    /// Ends the file, puts it in its place, and says where that is.
    ///
    /// # Errors
    /// A file that cannot be written or renamed.
    pub fn finish(mut self) -> Result<PathBuf, OutputError> {
        let end = |sink: Option<Sink>| -> Result<(), Failure> {
            sink.map_or(Ok(()), Sink::finish)?;
            Ok(std::fs::rename(&self.beside, &self.path)?)
        };
        end(self.sink.take()).map_err(|source| OutputError { path: self.path.clone(), source })?;
        Ok(self.path.clone())
    }
}

impl<R> Drop for Table<R> {
    fn drop(&mut self) {
        // A run that failed leaves no half of a table behind.
        if self.sink.take().is_some() {
            let _ = std::fs::remove_file(&self.beside);
        }
    }
}

//! A table as a Parquet file, compressed with Snappy. Rows are held until a group of them is full.

use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use super::table::{Cell, Column, Kind};

/// Rows in a group: enough to compress well, few enough to hold.
const ROWS_IN_GROUP: usize = 16_384;

/// The values of a column in the group under way. What is missing has a level of 0 and no value.
enum Values {
    Whole(Vec<i64>),
    Number(Vec<f64>),
    MaybeNumber(Vec<f64>, Vec<i16>),
    Word(Vec<ByteArray>),
}

impl Values {
    fn new(kind: Kind) -> Values {
        match kind {
            Kind::Whole => Values::Whole(Vec::new()),
            Kind::Number => Values::Number(Vec::new()),
            Kind::MaybeNumber => Values::MaybeNumber(Vec::new(), Vec::new()),
            Kind::Word => Values::Word(Vec::new()),
        }
    }

    fn push(&mut self, cell: Cell) -> Result<()> {
        match (self, cell) {
            (Values::Whole(values), Cell::Whole(value)) => values.push(value as i64),
            (Values::Number(values), Cell::Number(value)) => values.push(value),
            (Values::MaybeNumber(values, levels), Cell::Number(value)) => {
                values.push(value);
                levels.push(1);
            }
            (Values::MaybeNumber(_, levels), Cell::Missing) => levels.push(0),
            (Values::Word(values), Cell::Word(word)) => values.push(ByteArray::from(word)),
            (_, cell) => return Err(ParquetError::General(format!("a column cannot hold {cell:?}"))),
        }
        Ok(())
    }
}

/// A Parquet file under way.
pub struct ParquetTable {
    writer: SerializedFileWriter<BufWriter<File>>,
    columns: Vec<Values>,
    rows: usize,
}

impl ParquetTable {
    /// Begins a file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn new(file: File, columns: &[Column]) -> Result<ParquetTable> {
        let fields: String = columns.iter().map(field).collect();
        let schema = Arc::new(parse_message_type(&format!("message schema {{ {fields} }}"))?);
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("servesim ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer = SerializedFileWriter::new(BufWriter::new(file), schema, Arc::new(properties))?;
        let columns = columns.iter().map(|column| Values::new(column.kind)).collect();
        Ok(ParquetTable { writer, columns, rows: 0 })
    }

    /// Appends a row of one cell for each column.
    ///
    /// # Errors
    /// A cell that its column cannot hold, or a file that cannot be written.
    pub fn write(&mut self, cells: &[Cell]) -> Result<()> {
        self.columns.iter_mut().zip(cells).try_for_each(|(column, &cell)| column.push(cell))?;
        self.rows += 1;
        if self.rows == ROWS_IN_GROUP { self.write_group() } else { Ok(()) }
    }

    /// Ends the file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(mut self) -> Result<()> {
        self.write_group()?;
        self.writer.close()?;
        Ok(())
    }

    fn write_group(&mut self) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        self.rows = 0;
        let mut group = self.writer.next_row_group()?;
        for values in &mut self.columns {
            let Some(mut column) = group.next_column()? else { break };
            match values {
                Values::Whole(values) => {
                    column.typed::<Int64Type>().write_batch(values, None, None)?;
                    values.clear();
                }
                Values::Number(values) => {
                    column.typed::<DoubleType>().write_batch(values, None, None)?;
                    values.clear();
                }
                Values::MaybeNumber(values, levels) => {
                    column.typed::<DoubleType>().write_batch(values, Some(levels.as_slice()), None)?;
                    values.clear();
                    levels.clear();
                }
                Values::Word(values) => {
                    column.typed::<ByteArrayType>().write_batch(values, None, None)?;
                    values.clear();
                }
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }
}

/// A column in the language of Parquet schemas.
fn field(column: &Column) -> String {
    let name = column.name;
    match column.kind {
        Kind::Whole => format!("REQUIRED INT64 {name};"),
        Kind::Number => format!("REQUIRED DOUBLE {name};"),
        Kind::MaybeNumber => format!("OPTIONAL DOUBLE {name};"),
        Kind::Word => format!("REQUIRED BYTE_ARRAY {name} (UTF8);"),
    }
}

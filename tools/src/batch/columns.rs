//! The results as Parquet: one row group, every column optional, plain pages without compression.

use std::sync::Arc;

use anyhow::anyhow;
use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::Type;
use serde_json::Value;

use super::identity::VERSION;
use super::results::cell;
use super::table::Table;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Whole numbers of 64 bits.
    Whole,
    /// Numbers.
    Number,
    /// Yes or no.
    Flag,
    /// Everything else, and columns of several kinds.
    Text,
}

/// The file's bytes.
///
/// # Errors
/// What the writer refuses; nothing that a table can hold.
pub fn parquet(table: &Table) -> anyhow::Result<Vec<u8>> {
    let rows: Vec<Vec<Value>> = table.rows.iter().map(|row| table.cells(row)).collect();
    let names = table.columns();
    let kinds: Vec<Kind> = (0..names.len()).map(|at| kind(rows.iter().map(|row| &row[at]))).collect();
    let fields = names.iter().zip(&kinds).map(|(name, kind)| field(name, *kind)).collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("results").with_fields(fields).build()?;
    let properties = WriterProperties::builder().set_created_by(format!("servesim {VERSION}")).build();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (at, kind) in kinds.iter().enumerate() {
        let cells: Vec<&Value> = rows.iter().map(|row| &row[at]).collect();
        match kind {
            Kind::Whole => write::<Int64Type>(&mut group, &cells, Value::as_i64)?,
            Kind::Number => write::<DoubleType>(&mut group, &cells, Value::as_f64)?,
            Kind::Flag => write::<BoolType>(&mut group, &cells, Value::as_bool)?,
            Kind::Text => write::<ByteArrayType>(&mut group, &cells, |value| {
                (!value.is_null()).then(|| ByteArray::from(cell(value).into_bytes()))
            })?,
        }
    }
    group.close()?;
    writer.close()?;
    Ok(bytes)
}

/// The kind that fits all cells that are there.
fn kind<'v>(cells: impl Iterator<Item = &'v Value>) -> Kind {
    let mut found = None;
    for value in cells {
        let of_value = match value {
            Value::Null => continue,
            value if value.is_i64() => Kind::Whole,
            Value::Number(_) => Kind::Number,
            Value::Bool(_) => Kind::Flag,
            _ => Kind::Text,
        };
        found = match (found, of_value) {
            (None, kind) => Some(kind),
            (Some(before), kind) if before == kind => Some(kind),
            (Some(Kind::Whole | Kind::Number), Kind::Whole | Kind::Number) => Some(Kind::Number),
            _ => return Kind::Text,
        };
    }
    found.unwrap_or(Kind::Text)
}

fn field(name: &str, kind: Kind) -> Result<Arc<Type>, parquet::errors::ParquetError> {
    let physical = match kind {
        Kind::Whole => PhysicalType::INT64,
        Kind::Number => PhysicalType::DOUBLE,
        Kind::Flag => PhysicalType::BOOLEAN,
        Kind::Text => PhysicalType::BYTE_ARRAY,
    };
    let logical = (kind == Kind::Text).then_some(LogicalType::String);
    let builder = Type::primitive_type_builder(name, physical).with_repetition(Repetition::OPTIONAL);
    builder.with_logical_type(logical).build().map(Arc::new)
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, &mut Vec<u8>>,
    cells: &[&Value],
    take: impl Fn(&Value) -> Option<T::T>,
) -> anyhow::Result<()> {
    let mut column = group.next_column()?.ok_or_else(|| anyhow!("found no column, expected one a key"))?;
    let taken: Vec<Option<T::T>> = cells.iter().map(|value| take(value)).collect();
    let levels: Vec<i16> = taken.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = taken.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&levels), None)?;
    column.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    use serde_json::{Map, json};

    use super::super::table::{Row, Status};
    use super::*;

    fn row(case: &str, settings: Value, metrics: Value) -> Row {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        let (settings, metrics) = (map(settings), map(metrics));
        let (reason, notes) = (None, Vec::new());
        Row { case: case.into(), status: Status::Done, reason, settings, metrics, host: Map::new(), notes }
    }

    #[test]
    fn what_is_written_reads_back() {
        let rows = vec![
            row("a", json!({"size": 16, "flag": true, "mixed": 1}), json!({"ms": 1, "count": 7})),
            row("b", json!({"size": 64, "flag": false, "mixed": "x"}), json!({"ms": 2.5})),
        ];
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let settings = names(&["size", "flag", "mixed"]);
        let table = Table { settings, metrics: names(&["ms", "count"]), host: Vec::new(), rows };
        let bytes = parquet(&table).expect("written");
        assert_eq!(bytes, parquet(&table).expect("written"));
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("valid");
        let read: Vec<Vec<(String, Field)>> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|row| {
                row.expect("valid").get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
            })
            .collect();
        let text = |text: &str| Field::Str(text.to_owned());
        let fields = |row: usize| read[row].iter().map(|(_, field)| field.clone()).collect::<Vec<_>>();
        let names: Vec<&str> = read[0].iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["case", "status", "reason", "size", "flag", "mixed", "ms", "count"]);
        let (first, second) = (fields(0), fields(1));
        assert_eq!(first[..3], [text("a"), text("done"), Field::Null]);
        assert_eq!(first[3..6], [Field::Long(16), Field::Bool(true), text("1")]);
        assert_eq!(first[6..], [Field::Double(1.0), Field::Long(7)]);
        assert_eq!(second[3..], [Field::Long(64), Field::Bool(false), text("x"), Field::Double(2.5), Field::Null]);
    }
}

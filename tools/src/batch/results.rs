//! Writes the results of a batch: `results.csv`, `.jsonl` and `.parquet`, the report, and the host's costs apart from them.

use anyhow::Context;
use serde_json::{Map, Value};

use super::folder::Folder;
use super::manifest::Manifest;
use super::table::Table;
use super::{columns, report};

/// Writes all result files of a batch's folder, and returns the table that they hold.
///
/// # Errors
/// A disk that is full, or a place that cannot be written to.
pub fn write(folder: &Folder, manifest: &Manifest) -> anyhow::Result<Table> {
    let table = Table::read(folder, manifest);
    let put = |name: &str, content: Vec<u8>| folder.write(&folder.root().join(name), &content);
    put("results.csv", csv(&table)?)?;
    put("results.jsonl", jsonl(&table)?)?;
    put("results.parquet", columns::parquet(&table).context("results.parquet")?)?;
    put("host.csv", host_csv(&table)?)?;
    put("report.html", report::render(folder, &table, false)?.into_bytes())?;
    put("report-host.html", report::render(folder, &table, true)?.into_bytes())?;
    Ok(table)
}

/// A value as a cell of text.
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

fn csv(table: &Table) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(table.columns())?;
    for row in &table.rows {
        writer.write_record(table.cells(row).iter().map(cell))?;
    }
    Ok(writer.into_inner()?)
}

fn jsonl(table: &Table) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    for row in &table.rows {
        let cells = table.columns().into_iter().map(str::to_owned).zip(table.cells(row));
        serde_json::to_writer(&mut text, &cells.collect::<Map<String, Value>>())?;
        text.push(b'\n');
    }
    Ok(text)
}

fn host_csv(table: &Table) -> anyhow::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(std::iter::once("case").chain(table.host.iter().map(String::as_str)))?;
    for row in &table.rows {
        let costs = table.host.iter().map(|key| row.host.get(key).map(cell).unwrap_or_default());
        writer.write_record(std::iter::once(row.case.clone()).chain(costs))?;
    }
    Ok(writer.into_inner()?)
}

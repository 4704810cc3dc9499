//! The report.
use super::folder::Folder;
use super::table::Table;

/// Renders.
pub fn render(_folder: &Folder, _table: &Table, _host: bool) -> anyhow::Result<String> {
    Ok(String::new())
}

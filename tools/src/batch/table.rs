//! The results of a batch as one table: a row a case, a column a setting that varies or a metric.

use std::path::Path;

use serde_json::{Map, Value};

use super::folder::{Folder, read_value};
use super::manifest::{Manifest, ManifestCase};

/// How a case stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its results are there.
    Done,
    /// It failed.
    Failed,
    /// It was not run, or not to its end.
    Missing,
}

impl Status {
    /// The word in the results.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Done => "done",
            Status::Failed => "failed",
            Status::Missing => "missing",
        }
    }
}

/// A case's results.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The case.
    pub case: String,
    /// How it stands.
    pub status: Status,
    /// Why it failed.
    pub reason: Option<String>,
    /// Its values of the settings that vary.
    pub settings: Map<String, Value>,
    /// Numbers of its summary by dotted name.
    pub metrics: Map<String, Value>,
    /// What its run cost the host, by dotted name; never part of the results.
    pub host: Map<String, Value>,
    /// What its run had to say.
    pub notes: Vec<String>,
}

/// The results of all cases of a folder's shard.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The settings that vary.
    pub settings: Vec<String>,
    /// Every metric that any case has, in the order in which they come up.
    pub metrics: Vec<String>,
    /// The same of host costs.
    pub host: Vec<String>,
    /// By case, in the order of the plan.
    pub rows: Vec<Row>,
}

impl Table {
    /// Reads the results of a batch's folder.
    pub fn read(folder: &Folder, manifest: &Manifest) -> Table {
        let mut table = Table { settings: manifest.settings.clone(), ..Table::default() };
        for (_, case) in manifest.cases.iter().enumerate().filter(|(index, _)| manifest.has(*index)) {
            let row = read_row(folder, case);
            add_columns(&mut table.metrics, &row.metrics);
            add_columns(&mut table.host, &row.host);
            table.rows.push(row);
        }
        table
    }

    /// How many cases stand so.
    pub fn count(&self, status: Status) -> usize {
        self.rows.iter().filter(|row| row.status == status).count()
    }

    /// The names of all columns of the results.
    pub fn columns(&self) -> Vec<&str> {
        let fixed = ["case", "status", "reason"];
        fixed.into_iter().chain(self.settings.iter().chain(&self.metrics).map(String::as_str)).collect()
    }

    /// The cells of a row, in the order of the columns; absent ones are null.
    pub fn cells(&self, row: &Row) -> Vec<Value> {
        let reason = row.reason.clone().map_or(Value::Null, Value::String);
        let mut cells = vec![Value::String(row.case.clone()), Value::from(row.status.as_str()), reason];
        let of = |values: &Map<String, Value>, key: &String| values.get(key).cloned().unwrap_or(Value::Null);
        cells.extend(self.settings.iter().map(|key| of(&row.settings, key)));
        cells.extend(self.metrics.iter().map(|key| of(&row.metrics, key)));
        cells
    }
}

fn add_columns(columns: &mut Vec<String>, values: &Map<String, Value>) {
    for key in values.keys() {
        if !columns.contains(key) {
            columns.push(key.clone());
        }
    }
}

fn read_row(folder: &Folder, case: &ManifestCase) -> Row {
    let (name, settings) = (case.name.clone(), case.settings.clone());
    let mut row = Row {
        case: name,
        status: Status::Missing,
        reason: None,
        settings,
        metrics: Map::new(),
        host: Map::new(),
        notes: Vec::new(),
    };
    let of_this = |outcome: &super::outcome::Outcome| outcome.digest == case.digest;
    if let Some(outcome) = folder.done(&case.name).filter(of_this) {
        let place = folder.case(&case.name);
        row.status = Status::Done;
        row.metrics = numbers_of(&place.join("summary.json"));
        row.host = numbers_of(&place.join("host.json"));
        row.notes = outcome.notes;
    } else if let Some(outcome) = folder.failed(&case.name).filter(of_this) {
        row.status = Status::Failed;
        row.reason = outcome.reason;
        row.notes = outcome.notes;
    }
    row
}

/// The numbers of a JSON file by dotted name, in the order of the file.
pub fn numbers_of(path: &Path) -> Map<String, Value> {
    let mut numbers = Map::new();
    if let Some(value) = read_value(path) {
        flatten("", &value, &mut numbers);
    }
    // It repeats numbers of the top level, for readers of another benchmark's files.
    numbers.retain(|name, _| !name.starts_with("cache_report."));
    numbers
}

fn flatten(prefix: &str, value: &Value, numbers: &mut Map<String, Value>) {
    match value {
        Value::Number(_) => {
            numbers.insert(prefix.to_owned(), value.clone());
        }
        Value::Object(inner) => {
            for (name, value) in inner {
                let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
                flatten(&key, value, numbers);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_a_metric_in_the_order_of_the_file() {
        let value =
            serde_json::json!({"b": {"z": 1, "a": {"x": 2.5}}, "text": "no", "a": 3, "list": [4], "none": null});
        let mut numbers = Map::new();
        flatten("", &value, &mut numbers);
        let pairs: Vec<String> = numbers.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(pairs, ["b.z=1", "b.a.x=2.5", "a=3"]);
    }
}

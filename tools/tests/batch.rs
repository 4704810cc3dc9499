//! Checks of `servesim batch` and `servesim merge`, one module a subject, and what they share.

mod browser;
mod cases;
mod failures;
mod full_disk;
mod killed;
mod shards;

use std::collections::BTreeMap;
use std::path::Path;

use crate::program::{Files, Said, servesim};

/// A batch of four small cases.
pub const SMALL: &str = "name = \"small\"\nbase = \"coding-agent\"\n[set]\n\"workload.requests\" = 60\n\
                         [sweep]\n\"engine.page_size\" = [1, 16]\n\"engine.schedule_policy\" = [\"fcfs\", \"lpm\"]\n";

/// Every file of a batch's folder by its path in it, without those that tell of the host.
pub fn results(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    add(folder, "", &mut files);
    files
}

fn add(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let entry = entry.expect("readable");
        let name = entry.file_name().into_string().expect("UTF-8");
        let is_of_host = ["host.json", "host.csv", "report-host.html", ".lock"].contains(&name.as_str());
        let path = format!("{prefix}{name}");
        if entry.file_type().expect("readable").is_dir() {
            add(&entry.path(), &format!("{path}/"), files);
        } else if !is_of_host {
            files.insert(path, std::fs::read(entry.path()).expect("readable"));
        }
    }
}

/// Checks that two batches came to the same bytes, and names the first file in which they differ.
pub fn same(one: &Path, two: &Path) {
    let (one, two) = (results(one), results(two));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&one), names(&two));
    assert!(one.len() > 8, "{:?}", names(&one));
    for (name, content) in &one {
        assert!(*content == two[name], "{name} differs");
    }
}

/// Runs a batch file into the folder `out` of `files`.
pub fn batch(files: &Files, text: &str, out: &str, more: &[&str]) -> Said {
    let file = files.write("batch.toml", text);
    let out = files.path(out);
    servesim(&[&["batch", &file, "--out", &out], more].concat())
}

/// The rows of `results.csv` as maps from column to cell.
pub fn rows(files: &Files, out: &str) -> Vec<BTreeMap<String, String>> {
    let text = files.read(&format!("{out}/results.csv"));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let head: Vec<String> = reader.headers().expect("a head").iter().map(str::to_owned).collect();
    let cells = |record: csv::StringRecord| head.iter().cloned().zip(record.iter().map(str::to_owned)).collect();
    reader.records().map(|record| cells(record.expect("a row"))).collect()
}

/// One column of `results.csv`.
pub fn column(files: &Files, out: &str, name: &str) -> Vec<String> {
    rows(files, out).iter().map(|row| row.get(name).unwrap_or_else(|| panic!("no column {name}")).clone()).collect()
}

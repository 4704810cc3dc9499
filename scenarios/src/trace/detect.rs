//! Which format a trace has, by what its first line holds.

use std::fmt;
use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::azure::COLUMNS;
use super::field::Fault;
use super::lines::Lines;
use crate::workload::InputError;

/// The formats of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    /// Lanes of sessions ([`super::sessions`]).
    Sessions,
    /// Plays of coding agents ([`super::weka`]).
    Weka,
    /// Requests with global block ids ([`super::mooncake`]).
    Mooncake,
    /// Times and lengths ([`super::azure`]).
    Azure,
}

impl fmt::Display for TraceFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TraceFormat::Sessions => "sessions",
            TraceFormat::Weka => "weka",
            TraceFormat::Mooncake => "mooncake",
            TraceFormat::Azure => "azure",
        })
    }
}

/// The fields that tell the formats apart.
#[derive(Deserialize)]
struct Marks {
    requests: Option<IgnoredAny>,
    append: Option<IgnoredAny>,
    #[serde(alias = "input_tokens")]
    input_length: Option<IgnoredAny>,
    hash_ids: Option<IgnoredAny>,
}

/// Finds the format of a file; a folder is taken for Weka plays.
///
/// # Errors
/// A file that cannot be read, or whose first line fits no format.
pub fn detect(path: &Path) -> Result<TraceFormat, InputError> {
    if path.is_dir() {
        return Ok(TraceFormat::Weka);
    }
    let mut lines = Lines::open(path)?;
    let first = lines.next_line()?.unwrap_or_default().to_vec();
    format_of(&first).ok_or_else(|| {
        let start: String = String::from_utf8_lossy(&first).chars().take(60).collect();
        let found = if start.is_empty() { "an empty file".into() } else { format!("a first line of \"{start}\"") };
        Fault::new("format", found, "sessions, weka, mooncake or azure").at(lines.file(), lines.line())
    })
}

fn format_of(line: &[u8]) -> Option<TraceFormat> {
    if line.starts_with(COLUMNS[0].as_bytes()) {
        return Some(TraceFormat::Azure);
    }
    let marks: Marks = serde_json::from_slice(line).ok()?;
    if marks.requests.is_some() {
        Some(TraceFormat::Weka)
    } else if marks.append.is_some() {
        Some(TraceFormat::Sessions)
    } else if marks.input_length.is_some() || marks.hash_ids.is_some() {
        Some(TraceFormat::Mooncake)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_tells() {
        let cases = [
            ("TIMESTAMP,ContextTokens,GeneratedTokens", Some(TraceFormat::Azure)),
            (r#"{"lane":0,"append":[[1,2]]}"#, Some(TraceFormat::Sessions)),
            (r#"{"id":"x","requests":[]}"#, Some(TraceFormat::Weka)),
            (r#"{"timestamp":0,"input_tokens":3}"#, Some(TraceFormat::Mooncake)),
            (r#"{"a":1}"#, None),
            ("hello", None),
        ];
        for (line, format) in cases {
            assert_eq!(format_of(line.as_bytes()), format, "{line}");
        }
    }

    #[test]
    fn an_unknown_file_says_what_it_starts_with() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "hello\n").expect("written");
        let error = detect(file.path()).expect_err("no format");
        assert_eq!((error.line, error.found.as_str()), (1, "a first line of \"hello\""));
    }
}

//! A scenario file and `--set` overrides as dotted keys, each with its value and the place where it was given.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::keys::is_section;
use super::settings::Origin;
use crate::workload::InputError;

/// A value and where it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The file, or `--set`.
    pub file: String,
    /// The line in the file, or the number of the override, from 1.
    pub line: u64,
    /// Whether a file or an override gave it.
    pub origin: Origin,
}

/// Values by dotted key.
pub type Entries = BTreeMap<String, Entry>;

/// Reads a scenario's text and puts the overrides over it; of two overrides of a key, the later one counts.
///
/// # Errors
/// No valid TOML, or an override that is not `key=value`.
pub fn read(text: &str, file_name: &str, overrides: &[String]) -> Result<Entries, InputError> {
    let mut entries = Entries::new();
    let lines = key_lines(text).map_err(|error| syntax_error(text, file_name, &error))?;
    let table: Table = text.parse().map_err(|error| syntax_error(text, file_name, &error))?;
    flatten("", table, &mut |key, value| {
        let line = lines.get(&key).copied().unwrap_or(0);
        entries.insert(key, Entry { value, file: file_name.to_owned(), line, origin: Origin::File });
    });
    for (index, text) in overrides.iter().enumerate() {
        let line = index as u64 + 1;
        let (key, value) = parse_override(text, line)?;
        entries.insert(key, Entry { value, file: "--set".into(), line, origin: Origin::Set });
    }
    Ok(entries)
}

/// Calls `add` for every value that is no table, and for empty tables that are no section.
fn flatten(prefix: &str, table: Table, add: &mut impl FnMut(String, Value)) {
    for (name, value) in table {
        let key = dotted(prefix, &name);
        match value {
            Value::Table(inner) if !inner.is_empty() || is_section(&key) => flatten(&key, inner, add),
            value => add(key, value),
        }
    }
}

fn dotted(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}

/// The line of every key, tables included.
fn key_lines(text: &str) -> Result<BTreeMap<String, u64>, toml::de::Error> {
    let document = DeTable::parse(text)?;
    let mut lines = BTreeMap::new();
    add_lines("", document.get_ref(), text, &mut lines);
    Ok(lines)
}

fn add_lines(prefix: &str, table: &DeTable<'_>, text: &str, lines: &mut BTreeMap<String, u64>) {
    for (name, value) in table.iter() {
        let key = dotted(prefix, name.get_ref());
        lines.insert(key.clone(), line_of(text, Spanned::span(name).start));
        if let DeValue::Table(inner) = value.get_ref() {
            add_lines(&key, inner, text, lines);
        }
    }
}

/// The line number of a byte offset, from 1.
fn line_of(text: &str, offset: usize) -> u64 {
    text.as_bytes()[..offset.min(text.len())].iter().filter(|byte| **byte == b'\n').count() as u64 + 1
}

fn syntax_error(text: &str, file_name: &str, error: &toml::de::Error) -> InputError {
    InputError {
        file: file_name.to_owned(),
        line: error.span().map_or(0, |span| line_of(text, span.start)),
        field: "syntax".into(),
        found: error.message().lines().collect::<Vec<_>>().join(", "),
        expected: "valid TOML".into(),
    }
}

/// Splits `a.b=V`. `V` is a TOML value; a bare word, such as a policy's name or a path, is a string.
fn parse_override(text: &str, line: u64) -> Result<(String, Value), InputError> {
    let fail = |field: &str, found: &str| InputError {
        file: "--set".into(),
        line,
        field: field.to_owned(),
        found: format!("`{found}`"),
        expected: "key=value with a TOML value or a bare word".into(),
    };
    let (key, value) = text.split_once('=').ok_or_else(|| fail(text, text))?;
    let (key, value) = (key.trim(), value.trim());
    if key.is_empty() {
        return Err(fail("--set", text));
    }
    if value.contains('\n') {
        return Err(fail(key, value));
    }
    if let Some(parsed) = format!("value = {value}").parse::<Table>().ok().and_then(|mut table| table.remove("value")) {
        return Ok((key.to_owned(), parsed));
    }
    let bare = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./\\:+ ~".contains(&byte);
    if value.is_empty() || !value.bytes().all(bare) {
        return Err(fail(key, value));
    }
    Ok((key.to_owned(), Value::String(value.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_know_their_lines_however_they_are_written() {
        let text = "name = \"x\"\n\n[a]\nb.c = 1\nd = { e = 2,\n f = 3 }\n[a.g]\nh = 4\n";
        let entries = read(text, "f", &["a.b.c=5".into()]).expect("valid");
        let lines: Vec<(&str, u64)> = entries.iter().map(|(key, entry)| (key.as_str(), entry.line)).collect();
        assert_eq!(lines, [("a.b.c", 1), ("a.d.e", 5), ("a.d.f", 6), ("a.g.h", 8), ("name", 1)]);
        assert_eq!(entries["a.b.c"].value, Value::Integer(5));
    }

    #[test]
    fn bare_words_are_strings() {
        let value = |text: &str| parse_override(text, 1).expect(text).1;
        assert_eq!(value("k=dfs-weight"), Value::String("dfs-weight".into()));
        assert_eq!(value("k=../x/y_1.jsonl.gz"), Value::String("../x/y_1.jsonl.gz".into()));
        assert_eq!(value("k=true"), Value::Boolean(true));
        assert_eq!(value("k = 1.5"), Value::Float(1.5));
        assert_eq!(value("k=\"a b\""), Value::String("a b".into()));
        assert!(parse_override("k={a", 1).is_err());
    }
}

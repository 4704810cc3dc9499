//! Takes values out of a scenario by key and type, and keeps what each key resolved to.

use std::ops::RangeInclusive;

use toml::Value;

use super::keys::{KINDS, kinds_with, known_keys, suggestion};
use super::shown;
use super::source::{Entries, Entry};
use crate::generate::Span;
use crate::workload::InputError;

/// Where a setting's value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody set it.
    Default,
    /// The scenario file.
    File,
    /// A `--set` override.
    Set,
    /// A preset or a file that another key names.
    Described,
    /// It follows from other settings.
    Derived,
}

impl Origin {
    /// The word that `--print-config` uses.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::Default => "default",
            Origin::File => "file",
            Origin::Set => "--set",
            Origin::Described => "described",
            Origin::Derived => "derived",
        }
    }
}

/// A key with what it resolved to.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The dotted key.
    pub key: String,
    /// The value; absent when it is not set and has no default.
    pub value: Option<Value>,
    /// Where the value comes from.
    pub origin: Origin,
}

/// The values of a scenario on their way to its typed form.
#[derive(Debug)]
pub struct Settings {
    entries: Entries,
    file: String,
    resolved: Vec<Setting>,
}

/// A value with its place, once taken.
type Taken = Option<Entry>;

impl Settings {
    /// Settings of the scenario in `file`.
    pub fn new(entries: Entries, file: &str) -> Settings {
        Settings { entries, file: file.to_owned(), resolved: Vec::new() }
    }

    /// The kind of workload, which decides on the other keys.
    ///
    /// # Errors
    /// No kind, or one that is not known.
    pub fn kind(&self) -> Result<String, InputError> {
        let kinds: Vec<String> = KINDS.iter().map(|(name, _)| format!("\"{name}\"")).collect();
        let expected = format!("one of {}", kinds.join(", "));
        let key = "workload.kind";
        let entry = self
            .entries
            .get(key)
            .or_else(|| self.entries.get("workload"))
            .ok_or_else(|| self.missing(key, &expected))?;
        match &entry.value {
            Value::String(kind) if KINDS.iter().any(|(name, _)| name == kind) => Ok(kind.clone()),
            _ => Err(wrong(entry, key, expected)),
        }
    }

    /// Refuses the first key, by place, that is unknown or belongs to another kind of workload.
    ///
    /// # Errors
    /// That key, with what is known.
    pub fn refuse_unknown(&self, kind: &str) -> Result<(), InputError> {
        let known = known_keys(kind);
        let unknown = self.entries.iter().filter(|(key, _)| !known.contains(key));
        let Some((key, entry)) = unknown.min_by_key(|(_, entry)| (&entry.file, entry.line)) else { return Ok(()) };
        let kinds = kinds_with(key);
        let (found, expected) = if kinds.is_empty() {
            ("an unknown key".to_owned(), suggestion(key, &known))
        } else {
            (format!("a key that kind \"{kind}\" does not have"), format!("it with kind {}", kinds.join(", ")))
        };
        Err(InputError { file: entry.file.clone(), line: entry.line, field: key.clone(), found, expected })
    }

    /// Refuses a key that means nothing beside `mode`. If only an override chose the mode, the file's key is dropped.
    ///
    /// # Errors
    /// The key, if it is there.
    pub fn refuse_beside(&mut self, key: &str, mode: &str, mode_origin: Origin) -> Result<(), InputError> {
        self.refuse_of_other(key, &format!("mode \"{mode}\""), "the other mode", mode_origin)
    }

    /// Refuses a key that means nothing beside `chosen`, but with `owner`. If only an override chose, the file's key is dropped.
    ///
    /// # Errors
    /// The key, if it is there.
    pub fn refuse_of_other(
        &mut self,
        key: &str,
        chosen: &str,
        owner: &str,
        chosen_origin: Origin,
    ) -> Result<(), InputError> {
        let Some(entry) = self.entries.remove(key) else { return Ok(()) };
        if chosen_origin == Origin::Set && entry.origin == Origin::File {
            return Ok(());
        }
        let found = format!("a key that {chosen} does not have");
        Err(InputError { found, ..wrong(&entry, key, format!("it with {owner}")) })
    }

    /// The keys below a table that were given and not taken yet.
    pub fn keys_below(&self, table: &str) -> Vec<String> {
        let below = |key: &&String| key.strip_prefix(table).is_some_and(|rest| rest.starts_with('.'));
        self.entries.keys().filter(below).cloned().collect()
    }

    /// Drops what the file gave below a table.
    pub fn drop_of_file_below(&mut self, table: &str) {
        for key in self.keys_below(table) {
            if self.entries.get(&key).is_some_and(|entry| entry.origin == Origin::File) {
                self.entries.remove(&key);
            }
        }
    }

    /// Sets aside what was taken since `mark` of [`Settings::taken`], to be put back with [`Settings::put_back`]: the order of the
    /// schema is not always that in which values are needed.
    pub fn set_aside(&mut self, mark: usize) -> Vec<Setting> {
        self.resolved.split_off(mark)
    }

    /// How many settings were taken.
    pub fn taken(&self) -> usize {
        self.resolved.len()
    }

    /// Puts settings back behind what was taken.
    pub fn put_back(&mut self, settings: Vec<Setting>) {
        self.resolved.extend(settings);
    }

    /// Refuses a key for a reason, and notes that it is not set.
    ///
    /// # Errors
    /// The key, if it is there.
    pub fn refuse(&mut self, key: &str, why: &str, expected: &str) -> Result<(), InputError> {
        match self.take(key, None) {
            Some(entry) => {
                Err(InputError { found: format!("a key that means nothing {why}"), ..wrong(&entry, key, expected) })
            }
            None => Ok(()),
        }
    }

    /// The error of a key that is needed and not there.
    pub fn missing(&self, key: &str, expected: &str) -> InputError {
        InputError {
            file: self.file.clone(),
            line: 0,
            field: key.to_owned(),
            found: "nothing".into(),
            expected: expected.to_owned(),
        }
    }

    /// The place of a key that was read, for errors found later.
    pub fn invalid(&self, taken: &Taken, key: &str, found: String, expected: &str) -> InputError {
        let (file, line) = taken.as_ref().map_or((&self.file, 0), |entry| (&entry.file, entry.line));
        InputError { file: file.clone(), line, field: key.to_owned(), found, expected: expected.to_owned() }
    }

    /// A key's value with its place, if it is given and not yet taken.
    pub fn given(&self, key: &str) -> Option<Entry> {
        self.entries.get(key).cloned()
    }

    /// Takes a key's value out and notes what the key resolves to.
    pub fn take(&mut self, key: &str, default: Option<Value>) -> Taken {
        self.take_over(key, default, Origin::Default)
    }

    /// Takes a key's value out over one of another origin.
    pub fn take_over(&mut self, key: &str, value: Option<Value>, origin: Origin) -> Taken {
        let entry = self.entries.remove(key);
        let (value, origin) = match &entry {
            Some(entry) => (Some(entry.value.clone()), entry.origin),
            None => (value, origin),
        };
        self.resolved.push(Setting { key: key.to_owned(), value, origin });
        entry
    }

    /// Notes that a key that was taken resolves to another value.
    pub fn resolve(&mut self, key: &str, value: Value, origin: Origin) {
        if let Some(setting) = self.resolved.iter_mut().find(|setting| setting.key == key) {
            (setting.value, setting.origin) = (Some(value), origin);
        }
    }

    /// A key's value and place, which stay to be taken.
    pub fn look(&self, key: &str) -> Taken {
        self.entries.get(key).cloned()
    }

    /// Takes a key's value out that other keys will show.
    pub fn take_quietly(&mut self, key: &str) -> Taken {
        self.entries.remove(key)
    }

    /// A whole number in `range`.
    ///
    /// # Errors
    /// Any other value.
    pub fn whole(&mut self, key: &str, default: u64, range: RangeInclusive<u64>) -> Result<u64, InputError> {
        let default_value = Value::Integer(i64::try_from(default).unwrap_or(i64::MAX));
        Ok(as_whole(self.take(key, Some(default_value)), key, range)?.unwrap_or(default))
    }

    /// A whole number in `range` that may be absent.
    ///
    /// # Errors
    /// Any other value.
    pub fn optional_whole(&mut self, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, InputError> {
        as_whole(self.take(key, None), key, range)
    }

    /// A whole number of at most 32 bits in `range`.
    ///
    /// # Errors
    /// Any other value.
    pub fn small(&mut self, key: &str, default: u32, range: RangeInclusive<u32>) -> Result<u32, InputError> {
        let range = u64::from(*range.start())..=u64::from(*range.end());
        self.whole(key, default.into(), range).map(|value| value as u32)
    }

    /// A number that `fits`.
    ///
    /// # Errors
    /// Any other value.
    pub fn number(
        &mut self,
        key: &str,
        default: f64,
        fits: impl Fn(f64) -> bool,
        expected: &str,
    ) -> Result<f64, InputError> {
        let Some(entry) = self.take(key, Some(Value::Float(default))) else { return Ok(default) };
        as_number(&entry).filter(|value| fits(*value)).ok_or_else(|| wrong(&entry, key, expected))
    }

    /// A number that `fits` and may be absent.
    ///
    /// # Errors
    /// Any other value.
    pub fn optional_number(
        &mut self,
        key: &str,
        fits: impl Fn(f64) -> bool,
        expected: &str,
    ) -> Result<Option<f64>, InputError> {
        let Some(entry) = self.take(key, None) else { return Ok(None) };
        as_number(&entry).filter(|value| fits(*value)).map(Some).ok_or_else(|| wrong(&entry, key, expected))
    }

    /// A range `[low, high]` of whole numbers inside `range`.
    ///
    /// # Errors
    /// Any other value.
    pub fn span(&mut self, key: &str, default: Span, range: RangeInclusive<u32>) -> Result<Span, InputError> {
        let as_value = |value: u32| Value::Integer(value.into());
        let default_value = Value::Array(vec![as_value(default.low), as_value(default.high)]);
        let Some(entry) = self.take(key, Some(default_value)) else { return Ok(default) };
        let bound = |value: &Value| {
            value.as_integer().and_then(|value| u32::try_from(value).ok()).filter(|value| range.contains(value))
        };
        let span = match entry.value.as_array().map(Vec::as_slice) {
            Some([low, high]) => bound(low).zip(bound(high)).filter(|(low, high)| low <= high),
            _ => None,
        };
        let expected = format!("[low, high] with whole numbers from {} to {}", range.start(), range.end());
        span.map(|(low, high)| Span { low, high }).ok_or_else(|| wrong(&entry, key, expected))
    }

    /// A text.
    ///
    /// # Errors
    /// Any other value.
    pub fn text(&mut self, key: &str, default: Option<&str>) -> Result<Option<String>, InputError> {
        match self.take(key, default.map(Value::from)) {
            None => Ok(default.map(str::to_owned)),
            Some(Entry { value: Value::String(text), .. }) => Ok(Some(text)),
            Some(entry) => Err(wrong(&entry, key, "a string")),
        }
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// Any other value.
    pub fn flag(&mut self, key: &str, default: bool) -> Result<bool, InputError> {
        match self.take(key, Some(Value::Boolean(default))) {
            None => Ok(default),
            Some(Entry { value: Value::Boolean(flag), .. }) => Ok(flag),
            Some(entry) => Err(wrong(&entry, key, "true or false")),
        }
    }

    /// One of `names`, by its index, and where the choice comes from.
    ///
    /// # Errors
    /// Any other value.
    pub fn choice(&mut self, key: &str, default: &str, names: &[&str]) -> Result<(usize, Origin), InputError> {
        let index = |text: &str| names.iter().position(|name| *name == text);
        let Some(entry) = self.take(key, Some(default.into())) else {
            return Ok((index(default).unwrap_or(0), Origin::Default));
        };
        let known: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        let chosen = entry.value.as_str().and_then(index);
        let chosen = chosen.ok_or_else(|| wrong(&entry, key, format!("one of {}", known.join(", "))))?;
        Ok((chosen, entry.origin))
    }

    /// What every key resolved to.
    pub fn finish(self) -> Vec<Setting> {
        self.resolved
    }
}

/// A finite number, whole or not.
fn as_number(entry: &Entry) -> Option<f64> {
    let value = match entry.value {
        Value::Float(value) => Some(value),
        Value::Integer(value) => Some(value as f64),
        _ => None,
    };
    value.filter(|value| value.is_finite())
}

fn as_whole(taken: Taken, key: &str, range: RangeInclusive<u64>) -> Result<Option<u64>, InputError> {
    let Some(entry) = taken else { return Ok(None) };
    let value = entry.value.as_integer().and_then(|value| u64::try_from(value).ok());
    let value = value
        .filter(|value| range.contains(value))
        .ok_or_else(|| wrong(&entry, key, format!("a whole number from {} to {}", range.start(), range.end())))?;
    Ok(Some(value))
}

/// The error of a value that its key cannot have.
pub(super) fn wrong(entry: &Entry, key: &str, expected: impl Into<String>) -> InputError {
    InputError {
        file: entry.file.clone(),
        line: entry.line,
        field: key.to_owned(),
        found: shown(&entry.value),
        expected: expected.into(),
    }
}

//! The `[engine]` section: the fields of the engine's own settings, whatever they are.

use serde::de::value::Error;
use serde::de::{Deserializer, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use servesim_engine::config::EngineConfig;
use toml::{Table, Value};

use super::settings::{Origin, Settings, wrong};
use super::source::Entry;
use super::timing::TimingConfig;
use crate::timing::roofline::memory::DerivedPool;
use crate::workload::InputError;

/// All dotted keys of the section.
pub fn engine_keys() -> Vec<String> {
    keys_with_defaults().into_iter().map(|(key, _)| key).chain([FRACTION.to_owned()]).collect()
}

/// SGLang's flag from which the pool follows; the engine itself knows the pool only.
const FRACTION: &str = "engine.mem_fraction_static";
const POOL: &str = "engine.max_total_tokens";

/// The dotted keys of the section with their defaults; a field that is absent by default has none.
fn keys_with_defaults() -> Vec<(String, Option<Value>)> {
    let mut keys = Vec::new();
    let defaults = Table::try_from(EngineConfig::default()).unwrap_or_default();
    for field in field_names() {
        match defaults.get(*field) {
            Some(Value::Table(inner)) => {
                keys.extend(inner.iter().map(|(name, value)| (format!("engine.{field}.{name}"), Some(value.clone()))));
            }
            value => keys.push((format!("engine.{field}"), value.cloned())),
        }
    }
    keys
}

/// Takes the section out of `settings`. `seed` is the default of `random_seed`. With `mem_fraction_static` the pool follows from
/// the timing's roofline, and `max_total_tokens` can only make it smaller, as in SGLang.
///
/// # Errors
/// A value of the wrong type, an unknown policy, or settings that no worker can run with.
pub fn read(
    settings: &mut Settings,
    seed: u64,
    timing: &TimingConfig,
) -> Result<(EngineConfig, Option<DerivedPool>), InputError> {
    let pool = read_pool(settings, timing)?;
    let mut table = Table::new();
    let mut given = Vec::new();
    for (key, default) in keys_with_defaults() {
        let (default, origin) = match (key.as_str(), &pool) {
            ("engine.random_seed", _) => (Some(Value::Integer(seed as i64)), Origin::Default),
            (POOL, Some(pool)) => (Some(Value::Integer(pool.tokens as i64)), Origin::Derived),
            _ => (default, Origin::Default),
        };
        let Some(entry) = settings.take_over(&key, default.clone(), origin) else {
            insert(&mut table, &key, default);
            continue;
        };
        check_alone(&entry, &key)?;
        insert(&mut table, &key, Some(entry.value.clone()));
        given.push((key, entry));
    }
    let mut config = EngineConfig::deserialize(table)
        .map_err(|error| settings.invalid(&None, "engine", error.message().to_owned(), "settings of the engine"))?;
    config.validate().map_err(|error| {
        let key = format!("engine.{}", error.field);
        let entry = given.into_iter().find(|(name, _)| *name == key).map(|(_, entry)| entry);
        settings.invalid(&entry, &key, error.found, error.expected)
    })?;
    if let Some(pool) = &pool
        && pool.tokens < config.max_total_tokens
    {
        config.max_total_tokens = pool.tokens;
        settings.resolve(POOL, Value::Integer(pool.tokens as i64), Origin::Derived);
    }
    Ok((config, pool))
}

/// The pool that follows from the fraction of the devices' memory, if one is given.
fn read_pool(settings: &mut Settings, timing: &TimingConfig) -> Result<Option<DerivedPool>, InputError> {
    let Some(entry) = settings.take(FRACTION, None) else { return Ok(None) };
    let fraction = entry.value.as_float().or(entry.value.as_integer().map(|value| value as f64));
    let fraction = fraction
        .filter(|fraction| *fraction > 0.0 && *fraction <= 1.0)
        .ok_or_else(|| wrong(&entry, FRACTION, "a number above 0, at most 1"))?;
    let pool = timing.pool(fraction);
    pool.map(Some).map_err(|fault| settings.invalid(&Some(entry), FRACTION, fault.found, &fault.expected))
}

/// Puts a value at its dotted key below `engine.`.
fn insert(table: &mut Table, key: &str, value: Option<Value>) {
    let Some(value) = value else { return };
    let path = key.trim_start_matches("engine.");
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((outer, inner)) => {
            if let Value::Table(nested) = table.entry(outer).or_insert_with(|| Value::Table(Table::new())) {
                nested.insert(inner.to_owned(), value);
            }
        }
    }
}

/// Reads a value with all others at their defaults, so that a refusal is this key's.
fn check_alone(entry: &Entry, key: &str) -> Result<(), InputError> {
    let mut table = Table::new();
    insert(&mut table, key, Some(entry.value.clone()));
    let Err(error) = EngineConfig::deserialize(table) else { return Ok(()) };
    // A refusal ends in `expected ...`, which for an unknown name lists the known ones.
    let message = error.message().replace('`', "");
    let expected = message.rsplit_once("expected ").map_or(message.as_str(), |(_, expected)| expected);
    Err(wrong(entry, key, plain_type(expected)))
}

/// A type's name for people who write scenarios.
fn plain_type(name: &str) -> &str {
    match name {
        "u32" => "a whole number from 0 to 4294967295",
        "u64" => "a whole number, at least 0",
        "i64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        other => other,
    }
}

/// The names of the fields, as the derived reader asks for them.
fn field_names() -> &'static [&'static str] {
    let mut names: &[&str] = &[];
    // The probe never yields a value; it only notes what is asked for.
    let refused = EngineConfig::deserialize(FieldProbe(&mut names));
    debug_assert!(refused.is_err());
    names
}

struct FieldProbe<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldProbe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("only fields are asked for"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_the_engine_is_a_key() {
        let keys = engine_keys();
        for key in
            ["engine.role", "engine.max_queued_requests", "engine.radix_eviction_policy_config.protected_threshold"]
        {
            assert!(keys.iter().any(|known| known == key), "{key}");
        }
        assert!(keys.len() > 30);
    }
}

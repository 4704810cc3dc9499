//! The keys of the roofline: a model and a device, each by the name of a preset, by a file, or key by key.
//!
//! `timing.roofline.model = "NAME"` and a table `[timing.roofline.model]` exclude each other in one file, but `--set` may change
//! single keys of what is named. The resolved settings show every key of both descriptions, so they need no file and no preset.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::Table;

use super::super::settings::{Origin, Settings, wrong};
use super::super::source::Entry;
use crate::timing::roofline::device::DeviceDescription;
use crate::timing::roofline::model::ModelDescription;
use crate::timing::roofline::{Roofline, Usage, hugging_face, presets};
use crate::trace::field::Fault;
use crate::trace::lines::unreadable;
use crate::workload::InputError;

/// The keys of the roofline but those of the descriptions, without `timing.`.
pub(super) const KEYS: &[&str] = &[
    "roofline.model",
    "roofline.device",
    "roofline.count",
    "roofline.compute_efficiency",
    "roofline.memory_efficiency",
    "roofline.interconnect_efficiency",
    "roofline.exchange_us",
    "roofline.layer_us",
    "roofline.pass_us",
];

/// A model on devices, as a scenario describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct RooflineConfig {
    /// The model.
    pub model: ModelDescription,
    /// The device.
    pub device: DeviceDescription,
    /// How many devices, and how much of their peaks is reached.
    pub usage: Usage,
    /// What follows from them.
    pub roofline: Roofline,
}

/// The dotted keys of the two descriptions.
pub(super) fn described_keys() -> impl Iterator<Item = String> {
    let keys = |table: Table, part: &str| {
        let part = part.to_owned();
        table.into_iter().map(move |(field, _)| format!("timing.roofline.{part}.{field}"))
    };
    keys(table_of(&ModelDescription::default()), "model").chain(keys(table_of(&DeviceDescription::default()), "device"))
}

fn table_of<D: Serialize>(description: &D) -> Table {
    Table::try_from(description).unwrap_or_default()
}

/// Takes the keys out of `settings`; paths start from `folder`.
///
/// # Errors
/// No model or device, one that is not known, or a value that is out of bounds.
pub(super) fn read(settings: &mut Settings, folder: &Path) -> Result<RooflineConfig, InputError> {
    let mut given = Vec::new();
    let model_of = |name: &str| described_model(name, folder);
    let model = describe(settings, "timing.roofline.model", &expected_model(), &mut given, model_of)?;
    let device_of = |name: &str| described_device(name, folder);
    let device = describe(settings, "timing.roofline.device", &expected_device(), &mut given, device_of)?;
    let count = "timing.roofline.count";
    given.extend(settings.look(count).map(|entry| (count.to_owned(), entry)));
    let usage = read_usage(settings)?;
    let roofline = Roofline::new(&model, &device, &usage).map_err(|fault| {
        let key = format!("timing.roofline.{}", fault.field);
        let part = key.rsplit_once('.').map_or("", |(part, _)| part);
        // The key itself, or else what named the description that it is of.
        let place =
            given.iter().find(|(known, _)| *known == key).or_else(|| given.iter().find(|(known, _)| known == part));
        settings.invalid(&place.map(|(_, entry)| entry.clone()), &key, fault.found, &fault.expected)
    })?;
    Ok(RooflineConfig { model, device, usage, roofline })
}

fn expected_model() -> String {
    format!("one of {}, a config.json, or keys such as timing.roofline.model.layers", names(&presets::models()))
}

fn expected_device() -> String {
    format!("one of {}, a .toml file, or keys such as timing.roofline.device.memory_gib", names(&presets::devices()))
}

fn names<D>(presets: &[presets::Preset<D>]) -> String {
    let names: Vec<String> = presets.iter().map(|preset| format!("\"{}\"", preset.key)).collect();
    names.join(", ")
}

/// A description from what `key` names, with the keys below it put over that.
fn describe<D: Serialize + DeserializeOwned + Default>(
    settings: &mut Settings,
    key: &str,
    expected: &str,
    given: &mut Vec<(String, Entry)>,
    of_name: impl Fn(&str) -> Result<Option<D>, InputError>,
) -> Result<D, InputError> {
    let named = settings.take_quietly(key);
    let described = match &named {
        None if settings.keys_below(key).is_empty() => return Err(settings.missing(key, expected)),
        None => None,
        Some(entry) => {
            let name = entry.value.as_str().ok_or_else(|| wrong(entry, key, expected))?;
            let described = of_name(name)?.ok_or_else(|| wrong(entry, key, expected))?;
            if entry.origin == Origin::Set {
                settings.drop_of_file_below(key);
            }
            Some(described)
        }
    };
    let origin = if described.is_some() { Origin::Described } else { Origin::Default };
    let mut table = table_of(&described.unwrap_or_default());
    for field in table_of(&D::default()).keys() {
        let key = format!("{key}.{field}");
        let taken = settings.take_over(&key, table.get(field).cloned(), origin);
        let Some(entry) = taken else { continue };
        let alone = Table::from_iter([(field.clone(), entry.value.clone())]);
        if let Err(error) = alone.try_into::<D>() {
            return Err(wrong(&entry, &key, error.message().replace('`', "").replace('\n', " ")));
        }
        table.insert(field.clone(), entry.value.clone());
        given.push((key, entry));
    }
    given.extend(named.map(|entry| (key.to_owned(), entry)));
    let read = table.try_into();
    read.map_err(|error: toml::de::Error| settings.invalid(&None, key, error.message().to_owned(), expected))
}

/// A model by the name of a preset, or from a file: a Hugging Face `config.json`, or a `.toml` with the keys of a description.
fn described_model(name: &str, folder: &Path) -> Result<Option<ModelDescription>, InputError> {
    if !name.ends_with(".json") {
        return presets::model(name).map_or_else(|| from_toml(name, folder), |model| Ok(Some(model)));
    }
    let (file, text) = text_of(name, folder)?;
    hugging_face::read(&text, name).map(Some).map_err(|fault| fault.at(&file, 0))
}

/// A device by the name of a preset, or from a `.toml` with the keys of a description.
fn described_device(name: &str, folder: &Path) -> Result<Option<DeviceDescription>, InputError> {
    match presets::device(name) {
        Some(device) => Ok(Some(device)),
        None => from_toml(name, folder),
    }
}

fn from_toml<D: DeserializeOwned>(name: &str, folder: &Path) -> Result<Option<D>, InputError> {
    if !name.ends_with(".toml") {
        return Ok(None);
    }
    let (file, text) = text_of(name, folder)?;
    let read = toml::from_str(&text).map(Some);
    read.map_err(|error: toml::de::Error| {
        let line = error.span().map_or(0, |span| 1 + text[..span.start].matches('\n').count() as u64);
        Fault::new("description", error.message().replace('\n', ", "), "keys of a description").at(&file, line)
    })
}

fn text_of(name: &str, folder: &Path) -> Result<(String, String), InputError> {
    let path = folder.join(name);
    let file = path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(&file, 0, &error))?;
    Ok((file, text))
}

fn read_usage(settings: &mut Settings) -> Result<Usage, InputError> {
    let usual = Usage::default();
    let count = settings.small("timing.roofline.count", usual.count, 1..=1024)?;
    let mut share = |name: &str, usual: f64| {
        let fits = |value| value > 0.0 && value <= 1.0;
        settings.number(&format!("timing.roofline.{name}"), usual, fits, "a number above 0, at most 1")
    };
    let compute_efficiency = share("compute_efficiency", usual.compute_efficiency)?;
    let memory_efficiency = share("memory_efficiency", usual.memory_efficiency)?;
    let interconnect_efficiency = share("interconnect_efficiency", usual.interconnect_efficiency)?;
    let mut time_us = |name: &str, usual: f64| {
        let fits = |value| (0.0..=1e9).contains(&value);
        settings.number(&format!("timing.roofline.{name}"), usual, fits, "0 to 10^9 us")
    };
    Ok(Usage {
        count,
        compute_efficiency,
        memory_efficiency,
        interconnect_efficiency,
        exchange_us: time_us("exchange_us", usual.exchange_us)?,
        layer_us: time_us("layer_us", usual.layer_us)?,
        pass_us: time_us("pass_us", usual.pass_us)?,
    })
}

/// The value of a key of a description, as settings show it.
#[cfg(test)]
pub(super) fn shown_value(settings: &[super::super::Setting], key: &str) -> Option<(toml::Value, Origin)> {
    let setting = settings.iter().find(|setting| setting.key == key)?;
    Some((setting.value.clone()?, setting.origin))
}

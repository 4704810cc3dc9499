//! Descriptions of well-known models and devices that come with the program. Their files say where each figure is from.

use serde::de::DeserializeOwned;
use toml::{Table, Value};

use super::device::DeviceDescription;
use super::model::ModelDescription;

const MODELS: &str = include_str!("models.toml");
const DEVICES: &str = include_str!("devices.toml");
/// Keys of a preset that say something about it and are no part of the description.
const ABOUT: [&str; 2] = ["source", "published_weights"];

/// A preset: what it is called, where it is from, and what it describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Preset<D> {
    /// What a scenario calls it.
    pub key: String,
    /// Where its figures are from.
    pub source: String,
    /// Weights by the model's card, in 10^9; 0 for a device.
    pub published_weights: f64,
    /// The description.
    pub description: D,
}

/// All models, by name.
pub fn models() -> Vec<Preset<ModelDescription>> {
    read(MODELS)
}

/// All devices, by name.
pub fn devices() -> Vec<Preset<DeviceDescription>> {
    read(DEVICES)
}

/// The model of that name.
pub fn model(key: &str) -> Option<ModelDescription> {
    models().into_iter().find(|preset| preset.key == key).map(|preset| preset.description)
}

/// The device of that name.
pub fn device(key: &str) -> Option<DeviceDescription> {
    devices().into_iter().find(|preset| preset.key == key).map(|preset| preset.description)
}

/// Reads the presets of a file that comes with the program; a test sees to it that none is left out.
fn read<D: DeserializeOwned>(text: &str) -> Vec<Preset<D>> {
    let table: Table = text.parse().unwrap_or_default();
    let preset = |(key, value): (String, Value)| {
        let Value::Table(mut figures) = value else { return None };
        let [source, weights] = ABOUT.map(|name| figures.remove(name));
        let description = figures.try_into().ok()?;
        let source = source.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        let published_weights = weights.as_ref().and_then(Value::as_float).unwrap_or(0.0);
        Some(Preset { key, source, published_weights, description })
    };
    table.into_iter().filter_map(preset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_read_and_valid_and_names_its_source() {
        let count = |text: &str| text.parse::<Table>().expect("valid TOML").len();
        assert_eq!((models().len(), devices().len()), (count(MODELS), count(DEVICES)));
        for preset in models() {
            preset.description.validate().expect(&preset.key);
            assert!(preset.source.starts_with("https://huggingface.co/"), "{}", preset.key);
        }
        for preset in devices() {
            preset.description.validate().expect(&preset.key);
            assert!(preset.source.starts_with("https://"), "{}", preset.key);
        }
    }

    #[test]
    fn sizes_give_the_published_number_of_weights() {
        for preset in models() {
            let weights = preset.description.weights() / 1e9;
            let ratio = weights / preset.published_weights;
            assert!((0.99..1.01).contains(&ratio), "{}: {weights} of {}", preset.key, preset.published_weights);
        }
    }
}

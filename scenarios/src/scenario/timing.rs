//! The `[timing]` section: which model says how long passes take, with its settings, and the pool that follows from a roofline.

mod roofline;

use std::path::{Path, PathBuf};

use servesim_engine::timing::{Constant, TimingModel};
use toml::Value;

use super::settings::{Origin, Settings};
use super::{OnError, Scenario};
use crate::timing::host::{HostOverhead, LONGEST_MS, WithHost};
use crate::timing::linear::Linear;
use crate::timing::roofline::memory::{DerivedPool, pool};
use crate::timing::table::{Outside, Table};
use crate::workload::InputError;

pub use self::roofline::RooflineConfig;

/// The longest pass that a constant timing takes, in milliseconds.
const LONGEST_PASS_MS: f64 = 1e9;
/// The largest cost of a linear model, in microseconds.
const LARGEST_COST_US: f64 = 1e12;

/// How long passes take.
#[derive(Clone, Debug, PartialEq)]
pub struct TimingConfig {
    /// What says so.
    pub model: ModelConfig,
    /// What the host spends on a pass besides.
    pub host: HostConfig,
}

/// A timing model and its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelConfig {
    /// Every pass of a kind takes the same time.
    Constant {
        /// An extend pass, in simulated nanoseconds.
        extend_ns: u64,
        /// A decode pass, in simulated nanoseconds.
        decode_ns: u64,
    },
    /// A sum of costs.
    Linear(Linear),
    /// Measured passes.
    Table {
        /// The file, from the scenario's folder.
        path: PathBuf,
        /// What is done with a pass outside the grid.
        outside: Outside,
    },
    /// Descriptions of a model and a device.
    Roofline(Box<RooflineConfig>),
}

/// What the host spends on a pass.
#[derive(Clone, Debug, PartialEq)]
pub enum HostConfig {
    /// The same for every pass, in milliseconds.
    Constant(f64),
    /// By the number of rows, from a file.
    File(PathBuf),
}

/// The models with the keys of each, without `timing.`.
const MODELS: [(&str, &[&str]); 4] = [
    ("constant", &["extend_ms", "decode_ms"]),
    (
        "linear",
        &[
            "linear.extend_pass_us",
            "linear.extend_new_token_us",
            "linear.extend_cached_token_us",
            "linear.extend_row_us",
            "linear.extend_attention_us",
            "linear.decode_pass_us",
            "linear.decode_row_us",
            "linear.decode_kv_token_us",
        ],
    ),
    ("table", &["table.path", "table.outside"]),
    ("roofline", roofline::KEYS),
];
const ALL_MODELS: [&str; 4] = ["model", "on_error", "host_overhead_ms", "host_overhead_path"];

/// The tables of the section, itself included.
pub const SECTIONS: [&str; 6] =
    ["timing", "timing.linear", "timing.table", "timing.roofline", "timing.roofline.model", "timing.roofline.device"];

/// All dotted keys of the section, whatever the model.
pub fn timing_keys() -> impl Iterator<Item = String> {
    let of_models = MODELS.iter().flat_map(|(_, keys)| keys.iter());
    ALL_MODELS.iter().chain(of_models).map(|key| format!("timing.{key}")).chain(roofline::described_keys())
}

/// The models that a key belongs to, empty if it belongs to all or is none of the section.
fn models_with(key: &str) -> Vec<&'static str> {
    let Some(key) = key.strip_prefix("timing.") else { return Vec::new() };
    let has = |name: &str, keys: &[&str]| keys.contains(&key) || (name == "roofline" && key.starts_with("roofline."));
    MODELS.iter().filter(|(name, keys)| has(name, keys)).map(|(name, _)| *name).collect()
}

/// Takes the section out of `settings`; paths start from `folder`.
///
/// # Errors
/// An unknown model, a key of another model, or a value that a key cannot have.
pub fn read(settings: &mut Settings, folder: &Path) -> Result<(TimingConfig, OnError), InputError> {
    let names = MODELS.map(|(name, _)| name);
    let (index, origin) = settings.choice("timing.model", "constant", &names)?;
    refuse_other_models(settings, names[index], origin)?;
    let model = match names[index] {
        "linear" => read_linear(settings)?,
        "table" => read_table(settings)?,
        "roofline" => ModelConfig::Roofline(Box::new(roofline::read(settings, folder)?)),
        _ => read_constant(settings)?,
    };
    let (on_error, _) = settings.choice("timing.on_error", "stop", &["stop", "skip"])?;
    let on_error = if on_error == 0 { OnError::Stop } else { OnError::Skip };
    Ok((TimingConfig { model, host: read_host(settings)? }, on_error))
}

/// Refuses keys of models that were not chosen. If only an override chose the model, the file's keys of others are dropped.
fn refuse_other_models(settings: &mut Settings, model: &str, origin: Origin) -> Result<(), InputError> {
    for key in settings.keys_below("timing") {
        let models = models_with(&key);
        if !models.is_empty() && !models.contains(&model) {
            let owner = format!("model {}", models.join(", "));
            settings.refuse_of_other(&key, &format!("model \"{model}\""), &owner, origin)?;
        }
    }
    Ok(())
}

fn read_constant(settings: &mut Settings) -> Result<ModelConfig, InputError> {
    let mut pass_ns = |key| {
        let pass_ms = settings.number(key, 1.0, |value| (0.0..=LONGEST_PASS_MS).contains(&value), "0 to 10^9 ms")?;
        Ok((pass_ms * 1e6).round() as u64)
    };
    Ok(ModelConfig::Constant { extend_ns: pass_ns("timing.extend_ms")?, decode_ns: pass_ns("timing.decode_ms")? })
}

fn read_linear(settings: &mut Settings) -> Result<ModelConfig, InputError> {
    let mut costs = [0.0; Linear::NAMES.len()];
    for (cost, name) in costs.iter_mut().zip(Linear::NAMES) {
        let fits = |value| (0.0..=LARGEST_COST_US).contains(&value);
        *cost = settings.number(&format!("timing.linear.{name}"), 0.0, fits, "0 to 10^12 us")?;
    }
    Ok(ModelConfig::Linear(Linear::new(costs)))
}

fn read_table(settings: &mut Settings) -> Result<ModelConfig, InputError> {
    let path = settings.text("timing.table.path", None)?;
    let expected = "a file of measured passes, .csv or .parquet";
    let path = path.ok_or_else(|| settings.missing("timing.table.path", expected))?;
    let (outside, _) = settings.choice("timing.table.outside", "refuse", &["refuse", "clamp"])?;
    let outside = if outside == 0 { Outside::Refuse } else { Outside::Clamp };
    Ok(ModelConfig::Table { path: path.into(), outside })
}

fn read_host(settings: &mut Settings) -> Result<HostConfig, InputError> {
    let fits = |value| (0.0..=LONGEST_MS).contains(&value);
    let Some(path) = settings.text("timing.host_overhead_path", None)? else {
        return Ok(HostConfig::Constant(settings.number("timing.host_overhead_ms", 0.0, fits, "0 to 10^9 ms")?));
    };
    settings.refuse_of_other("timing.host_overhead_ms", "host_overhead_path", "no host_overhead_path", Origin::File)?;
    Ok(HostConfig::File(path.into()))
}

impl TimingConfig {
    /// The pool that a roofline's devices have room for, if weights and pool take `fraction` of their memory.
    ///
    /// # Errors
    /// No roofline, or no room; the error has no place yet.
    pub fn pool(&self, fraction: f64) -> Result<DerivedPool, crate::trace::field::Fault> {
        match &self.model {
            ModelConfig::Roofline(roofline) => pool(&roofline.model, &roofline.device, roofline.usage.count, fraction),
            _ => Err(crate::trace::field::Fault::new(
                "mem_fraction_static",
                Value::from(fraction).to_string(),
                "it with timing.model = \"roofline\", from which the pool follows",
            )),
        }
    }
}

impl Scenario {
    /// Makes the timing model, reading its file if it has one.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn build_timing(&self) -> Result<Box<dyn TimingModel>, InputError> {
        let model: Box<dyn TimingModel> = match &self.timing.model {
            ModelConfig::Constant { extend_ns, decode_ns } => {
                Box::new(Constant { extend_ns: *extend_ns, decode_ns: *decode_ns })
            }
            ModelConfig::Linear(linear) => Box::new(*linear),
            ModelConfig::Table { path, outside } => Box::new(Table::read(&self.folder.join(path), *outside)?),
            ModelConfig::Roofline(config) => Box::new(config.roofline.clone()),
        };
        let host = match &self.timing.host {
            HostConfig::Constant(0.0) => return Ok(model),
            HostConfig::Constant(host_ms) => HostOverhead::constant(*host_ms),
            HostConfig::File(path) => HostOverhead::read(&self.folder.join(path))?,
        };
        Ok(Box::new(WithHost { model, host }))
    }
}

#[cfg(test)]
mod tests;

//! The manifest: what a batch's folder is made of.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use servesim_scenarios::scenario::{Origin, Setting};

use super::case::Case;
use super::folder::Folder;
use super::identity::{InputFile, VERSION};
use super::plan::Plan;
use super::shard::Shard;

/// The version of the manifest's own format.
const FORMAT: u64 = 1;

/// The column that tells scenarios apart, where a batch has several.
const SCENARIO: &str = "scenario";

/// What a batch is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub format: u64,
    /// The version of the program.
    pub servesim: String,
    /// `I/N` of a shard; absent for a whole batch.
    pub shard: Option<String>,
    /// The keys that vary, in the order of their columns.
    pub settings: Vec<String>,
    /// All cases in the order of their results, those of other shards too.
    pub cases: Vec<ManifestCase>,
}

/// A case in the manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManifestCase {
    /// Its name.
    pub name: String,
    /// The scenario that it varies.
    pub scenario: String,
    /// Digest of its resolved settings, the files it reads, and the program's version.
    pub digest: String,
    /// Its seed; absent when its scenario is not valid.
    pub seed: Option<u64>,
    /// Its values of the keys that vary.
    pub settings: Map<String, Value>,
    /// The files that it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<InputFile>,
}

impl Manifest {
    /// The manifest of a plan.
    pub fn new(plan: &Plan, shard: Option<Shard>) -> Manifest {
        let settings = varying(plan);
        let cases = plan.cases.iter().map(|case| of_case(case, &settings)).collect();
        let shard = shard.map(|shard| shard.to_string());
        Manifest { format: FORMAT, servesim: VERSION.to_owned(), shard, settings, cases }
    }

    /// Reads a folder's manifest.
    ///
    /// # Errors
    /// None, one that is not valid, or one of another format.
    pub fn read(root: &Path) -> anyhow::Result<Manifest> {
        let path = Folder::at(root).manifest();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{}: cannot be read, expected the folder of a batch", path.display()))?;
        let manifest: Manifest = serde_json::from_str(&text)
            .with_context(|| format!("{}: found no manifest of a batch, expected one", path.display()))?;
        if manifest.format != FORMAT {
            let found = manifest.format;
            return Err(anyhow!("{}: format: found {found}, expected {FORMAT}", path.display()));
        }
        Ok(manifest)
    }

    /// Writes it.
    ///
    /// # Errors
    /// A disk that is full, or a place that cannot be written to.
    pub fn write(&self, folder: &Folder) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        folder.write(&folder.manifest(), format!("{text}\n").as_bytes())
    }

    /// Whether a case belongs to this manifest's shard.
    pub fn has(&self, index: usize) -> bool {
        match &self.shard {
            None => true,
            Some(shard) => shard.parse().is_ok_and(|shard: Shard| shard.has(index)),
        }
    }
}

fn of_case(case: &Case, keys: &[String]) -> ManifestCase {
    let value = |key: &String| {
        if key == SCENARIO {
            return (key.clone(), Value::String(stem(case)));
        }
        let value = case.setting(key).and_then(|setting| setting.value.as_ref());
        (key.clone(), value.and_then(|value| serde_json::to_value(value).ok()).unwrap_or(Value::Null))
    };
    ManifestCase {
        name: case.name.clone(),
        scenario: case.base.file.clone(),
        digest: case.digest.clone(),
        seed: case.seed,
        settings: keys.iter().map(value).collect(),
        inputs: case.inputs.clone(),
    }
}

/// The keys that vary: first those that the batch varies, then those in which scenarios differ. A default that follows from
/// another key, such as the engine's seed, does not count.
fn varying(plan: &Plan) -> Vec<String> {
    let mut keys = plan.varied.clone();
    if plan.cases.iter().any(|case| stem(case) != stem(&plan.cases[0])) {
        keys.insert(0, SCENARIO.to_owned());
    }
    let valid: Vec<&Case> = plan.cases.iter().filter(|case| case.settings.is_ok()).collect();
    for setting in valid.iter().flat_map(|case| case.settings.iter().flatten()) {
        let is_new = !is_label(setting) && setting.origin != Origin::Default && !keys.contains(&setting.key);
        let value = |case: &&Case| case.setting(&setting.key).and_then(|setting| setting.value.clone());
        if is_new && valid.iter().any(|case| value(case) != setting.value) {
            keys.push(setting.key.clone());
        }
    }
    keys
}

/// A case's scenario by the name of its file.
fn stem(case: &Case) -> String {
    Path::new(&case.base.file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whether a setting has no influence on results.
fn is_label(setting: &Setting) -> bool {
    ["name", "description", "output.dir"].contains(&setting.key.as_str())
}

//! Finds a scenario: a file, or one that comes with the program.

use std::path::Path;

use servesim_scenarios::scenario::{EMBEDDED, Scenario};

use crate::Failure;

/// Loads the scenario that a name or path stands for. `lenient` switches to skipping bad rows where the workload has a trace.
pub fn load(name: &str, overrides: &[String], lenient: bool) -> Result<Scenario, Failure> {
    let path = Path::new(name);
    let embedded = EMBEDDED.iter().find(|(file, _)| *file == name || file.strip_suffix(".toml") == Some(name));
    let read = |overrides: &[String]| match embedded {
        Some((file, text)) if !path.is_file() => Scenario::from_str(text, file, overrides),
        _ => Scenario::load(path, overrides),
    };
    if embedded.is_none() && !path.exists() {
        let known: Vec<&str> = EMBEDDED.iter().filter_map(|(file, _)| file.strip_suffix(".toml")).collect();
        return Err(Failure::BadInput(anyhow::anyhow!(
            "{name}: found no such file, expected a scenario file or one of {}",
            known.join(", ")
        )));
    }
    let scenario = read(overrides).map_err(|error| Failure::BadInput(error.into()))?;
    let has_trace = scenario.settings.iter().any(|setting| setting.key == "workload.lenient");
    if !(lenient && has_trace) {
        return Ok(scenario);
    }
    let mut overrides = overrides.to_vec();
    overrides.push("workload.lenient=true".to_owned());
    read(&overrides).map_err(|error| Failure::BadInput(error.into()))
}

//! One case of a batch, as planned.

use servesim_scenarios::scenario::{Scenario, Setting};
use servesim_scenarios::workload::InputError;

use super::endpoints;
use super::identity::{self, FileDigests, InputFile};
use super::limits::Limits;
use super::overrides::{Override, placed};

/// The longest name of a case; file systems take 255 bytes, and attempts add some.
const LONGEST_NAME: usize = 160;

/// A scenario's text and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Base {
    /// The file, or the name of a scenario that comes with the program.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    /// Names its folder and its row; unique in a batch, and a valid file name.
    pub name: String,
    /// The scenario that it varies.
    pub base: Base,
    /// What it sets, as arguments of `--set`.
    pub overrides: Vec<String>,
    /// What it may use of its host.
    pub limits: Limits,
    /// Digest of all that decides on its results.
    pub digest: String,
    /// The files that it reads.
    pub inputs: Vec<InputFile>,
    /// Its settings; or why there are none, in which case it fails without being run.
    pub settings: Result<Vec<Setting>, InputError>,
    /// The seed.
    pub seed: Option<u64>,
    /// Addresses that its run binds sockets to.
    pub binds: Vec<String>,
}

impl Case {
    /// A case with this name, made valid for a file.
    pub fn new(name: &str, base: &Base, overrides: &[Override], limits: Limits, digests: &mut FileDigests) -> Case {
        let arguments: Vec<String> = overrides.iter().map(Override::argument).collect();
        let (base, name) = (base.clone(), file_name(name));
        match Scenario::from_str(&base.text, &base.file, &arguments) {
            Ok(scenario) => {
                let inputs = digests.of_scenario(&scenario);
                let digest = identity::of_scenario(&scenario, &inputs);
                let binds = endpoints::bound(&scenario.output.kv_events);
                let (seed, settings) = (Some(scenario.seed), Ok(scenario.settings));
                Case { name, base, overrides: arguments, limits, digest, inputs, settings, seed, binds }
            }
            Err(error) => {
                let digest = identity::of_text(&base.text, &arguments);
                let settings = Err(placed(error, overrides));
                let (inputs, binds) = (Vec::new(), Vec::new());
                Case { name, base, overrides: arguments, limits, digest, inputs, settings, seed: None, binds }
            }
        }
    }

    /// The setting of a key.
    pub fn setting(&self, key: &str) -> Option<&Setting> {
        self.settings.as_ref().ok()?.iter().find(|setting| setting.key == key)
    }
}

/// A text as a file's name: letters, digits and a few signs, not too long, not hidden.
fn file_name(text: &str) -> String {
    let valid = |sign: char| if sign.is_alphanumeric() || "._=+-".contains(sign) { sign } else { '-' };
    let mut name: String = text.chars().map(valid).collect();
    if name.starts_with('.') {
        name.insert(0, '-');
    }
    if name.len() > LONGEST_NAME {
        let digest = identity::of_text(&name, &[]);
        let mut end = LONGEST_NAME;
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        name.truncate(end);
        name.push('+');
        name.push_str(&digest[..8]);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_file_names_and_stay_different() {
        assert_eq!(file_name("a+turns=[3, 8]/x"), "a+turns=-3--8--x");
        assert_eq!(file_name("..").as_str(), "-..");
        let long = |end: &str| file_name(&format!("{}{end}", "ä".repeat(300)));
        assert!(long("a").len() < 180 && long("a") != long("b"));
    }
}

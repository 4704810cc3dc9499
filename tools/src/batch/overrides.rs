//! A setting that a batch puts over a scenario, with the place where the batch says so.

use servesim_scenarios::workload::InputError;
use toml::Value;

/// A key, its value, and where it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Override {
    /// The dotted key of a scenario.
    pub key: String,
    /// What it is set to.
    pub value: Value,
    /// The batch file, or `--set`.
    pub file: String,
    /// The line in the file, or the number of the option, from 1.
    pub line: u64,
}

impl Override {
    /// As an argument of `--set`.
    pub fn argument(&self) -> String {
        format!("{}={}", self.key, self.value)
    }

    /// The value as a part of a case's name: a text without its quotes.
    pub fn shown(&self) -> String {
        match &self.value {
            Value::String(text) => text.clone(),
            value => value.to_string(),
        }
    }
}

/// Says of an error in the `n`-th override where the batch gave it, since nobody typed a `--set`.
pub fn placed(mut error: InputError, overrides: &[Override]) -> InputError {
    let given = usize::try_from(error.line).ok().and_then(|line| overrides.get(line.checked_sub(1)?));
    if let Some(given) = given.filter(|_| error.file == "--set") {
        error.file.clone_from(&given.file);
        error.line = given.line;
    }
    error
}

//! `servesim verify`: plays recorded cases and totals, and says where the first difference is.

use std::path::Path;
use std::process::ExitCode;

use servesim_scenarios::case::{Case, CaseError, read_maybe_gzip};
use servesim_scenarios::player::PlayError;
use servesim_scenarios::replay::{ReplayError, passes_of, replay, replay_refusing};
use servesim_scenarios::scenario::build::{TRACES_VARIABLE, traces_folder};
use servesim_scenarios::totals::{Totals, TotalsError};
use servesim_scenarios::verify::first_difference;

use crate::arguments::VerifyOptions;
use crate::run::print;
use crate::{FAILED, Failure};

/// Longest value of a difference that is shown whole, in characters.
const SHOWN: usize = 400;

/// Verifies each file.
pub fn verify(options: &VerifyOptions) -> Result<ExitCode, Failure> {
    let mut equal = 0;
    for file in &options.files {
        match check(file, options)? {
            Verdict::Equal(name) => {
                equal += 1;
                if !options.quiet {
                    print(&format!("ok {name}\n"))?;
                }
            }
            Verdict::Differs(name, difference) => print(&format!("differs {name}: {}\n", shortened(&difference)))?,
        }
    }
    print(&format!("{equal} of {} equal\n", options.files.len()))?;
    Ok(if equal == options.files.len() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

enum Verdict {
    Equal(String),
    Differs(String, String),
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 2 * SHOWN {
        return text.to_owned();
    }
    format!("{} ...", text.chars().take(2 * SHOWN).collect::<String>())
}

fn bad_input(error: impl Into<anyhow::Error>) -> Failure {
    Failure::BadInput(error.into())
}

fn check(file: &Path, options: &VerifyOptions) -> Result<Verdict, Failure> {
    match Case::load(file) {
        Ok(case) => check_case(&case, options.refuse),
        Err(error @ CaseError::Io { .. }) => Err(bad_input(error)),
        // What is not a case may be totals; if it is neither, what it lacks to be what it looks like is what to say.
        Err(not_a_case) => match Totals::load(file) {
            Ok(totals) => check_totals(file, &totals, options.traces.as_deref()),
            Err(not_totals) if looks_like_totals(file) => Err(bad_input(not_totals)),
            Err(_) => Err(bad_input(not_a_case)),
        },
    }
}

fn looks_like_totals(file: &Path) -> bool {
    let json = read_maybe_gzip(file).ok().and_then(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).ok());
    json.is_some_and(|json| json.get("totals").is_some())
}

fn check_case(case: &Case, refuse: Option<u64>) -> Result<Verdict, Failure> {
    let name = case.case.clone();
    let log = match refuse {
        None => replay(case),
        Some(seed) => replay_refusing(case, passes_of(case), seed),
    };
    match log {
        Err(error @ (ReplayError::Step { .. } | ReplayError::TraceLeft { .. })) => {
            Ok(Verdict::Differs(name, error.to_string()))
        }
        Err(error) => Err(bad_input(anyhow::Error::from(error).context(name))),
        Ok(log) => Ok(match first_difference(&case.passes, &log) {
            None => Verdict::Equal(name),
            Some(difference) => Verdict::Differs(name, difference.to_string()),
        }),
    }
}

fn check_totals(file: &Path, totals: &Totals, traces: Option<&Path>) -> Result<Verdict, Failure> {
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let folder = traces.map(Path::to_owned).or_else(traces_folder);
    let Some(folder) = folder else {
        return Err(bad_input(anyhow::anyhow!(
            "{}: found totals of {}, expected --traces DIR or {TRACES_VARIABLE} to say where it is",
            file.display(),
            totals.config.trace
        )));
    };
    let workload = totals.workload(&folder).map_err(bad_input)?;
    let sums = totals.play(workload).map_err(|error| match error {
        TotalsError::Play(PlayError::Config(_) | PlayError::Input(_)) | TotalsError::Setting(_) => bad_input(error),
        _ => Failure::Run(error.into()),
    })?;
    Ok(match totals.totals.first_difference(&sums) {
        None => Verdict::Equal(name),
        Some((field, expected, got)) => Verdict::Differs(name, format!("{field}: expected {expected}, got {got}")),
    })
}

//! `servesim timing fit`: a timing model from measured passes.

use std::path::Path;
use std::process::ExitCode;

use servesim_scenarios::timing::fit::{self, Fit, FitKind, FitOptions, Fitted};
use servesim_scenarios::timing::measured;

use crate::Failure;
use crate::arguments::{FitArguments, FitModel};
use crate::run::{print, write_beside};

/// Fits a model and prints it as the `[timing]` section of a scenario.
pub fn fit(options: &FitArguments) -> Result<ExitCode, Failure> {
    let kind = match options.model {
        FitModel::Linear => FitKind::Linear,
        FitModel::Table => FitKind::Table,
    };
    let table_path = options.out.as_deref().map(|path| path.display().to_string());
    if kind == FitKind::Table && table_path.is_none() {
        let error =
            anyhow::anyhow!("--out: found nothing, expected a file for the table's grid, .csv, with --model table");
        return Err(Failure::BadInput(error));
    }
    let passes = measured::read(&options.passes).map_err(|error| Failure::BadInput(error.into()))?;
    let fit_options = FitOptions { kind, holdout: options.holdout, seed: options.seed };
    let fit = fit::fit(&passes, fit_options)
        .map_err(|error| Failure::BadInput(anyhow::Error::from(error).context(options.passes.display().to_string())))?;
    let section = fit.render(&options.passes.display().to_string(), table_path.as_deref().unwrap_or_default());
    if let Some(path) = &options.out {
        write(path, &fit, &section)?;
    }
    print(&section)?;
    Ok(ExitCode::SUCCESS)
}

/// A linear fit is its section; a table is its grid.
fn write(path: &Path, fit: &Fit, section: &str) -> Result<(), Failure> {
    let text = match &fit.fitted {
        Fitted::Linear(_) => section.to_owned(),
        Fitted::Table(table) => fit::table::render(table),
    };
    write_beside(path, &text).map_err(Failure::Run)
}

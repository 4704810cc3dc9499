//! A linear model or a table from measured passes, with its error on passes that were held out.
//!
//! - [`least_squares`]: the linear algebra.
//! - [`linear`], [`table`]: what is fitted.

pub mod least_squares;
pub mod linear;
pub mod table;

use std::fmt::Write;

use servesim_engine::timing::TimingError;

use self::least_squares::SolveError;
use super::NS_PER_US;
use super::linear::Linear;
use super::measured::{MeasuredPass, Mode};
use super::table::Table;
use crate::generate::Span;
use crate::generate::sample::Sampler;

/// What is fitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FitKind {
    /// A linear model.
    Linear,
    /// A table.
    Table,
}

/// How a fit is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FitOptions {
    /// What is fitted.
    pub kind: FitKind,
    /// The share of the passes of each mode that is held out, at least 0 and below 1; rounded down to whole passes.
    pub holdout: f64,
    /// Seeds the choice of those.
    pub seed: u64,
}

/// Why nothing was fitted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FitError {
    /// There is nothing to fit.
    #[error("found no pass, expected at least one of a mode")]
    NoPass,
    /// The share that is held out.
    #[error("holdout: found {0}, expected a number from 0 up to, not including, 1")]
    Holdout(f64),
    /// The passes give no solution.
    #[error("the {mode} passes give no solution: {error}", mode = .mode.as_str())]
    Solve {
        /// Their mode.
        mode: Mode,
        /// Why.
        error: SolveError,
    },
    /// A fitted table does not price its own passes.
    #[error(transparent)]
    Timing(#[from] TimingError),
}

/// What was fitted.
#[derive(Clone, Debug, PartialEq)]
pub enum Fitted {
    /// A linear model.
    Linear(Linear),
    /// A table.
    Table(Table),
}

impl Fitted {
    /// What a pass takes, in milliseconds; of a table, clamped to its grid.
    fn pass_ms(&self, pass: &MeasuredPass) -> Result<f64, TimingError> {
        match self {
            Fitted::Linear(linear) => Ok(linear.pass_us(&pass.shape()) / NS_PER_US),
            Fitted::Table(table) => table.pass_ms(&pass.shape()),
        }
    }
}

/// Mean absolute errors relative to what was measured, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModeError {
    /// Passes that were fitted.
    pub fitted_passes: usize,
    /// Their error; absent without a pass that took any time.
    pub fitted_percent: Option<f64>,
    /// Passes that were held out.
    pub held_out_passes: usize,
    /// Their error; absent likewise.
    pub held_out_percent: Option<f64>,
}

/// A fit and how good it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// What was fitted.
    pub fitted: Fitted,
    /// The error on extend passes.
    pub extend: ModeError,
    /// The error on decode passes.
    pub decode: ModeError,
    /// How the fit was made.
    pub options: FitOptions,
}

/// Fits a model. The same passes in the same order, options and seed give the same fit.
///
/// # Errors
/// See [`FitError`].
pub fn fit(passes: &[MeasuredPass], options: FitOptions) -> Result<Fit, FitError> {
    if !(0.0..1.0).contains(&options.holdout) {
        return Err(FitError::Holdout(options.holdout));
    }
    if passes.is_empty() {
        return Err(FitError::NoPass);
    }
    let (extend, extend_held) = split(passes, Mode::Extend, options);
    let (decode, decode_held) = split(passes, Mode::Decode, options);
    let fitted = match options.kind {
        FitKind::Linear => Fitted::Linear(linear::fit(&extend, &decode)?),
        FitKind::Table => Fitted::Table(table::fit(&extend, &decode)?),
    };
    let error = |fitted_on: &[MeasuredPass], held: &[MeasuredPass]| {
        Ok::<_, FitError>(ModeError {
            fitted_passes: fitted_on.len(),
            fitted_percent: mape(&fitted, fitted_on)?,
            held_out_passes: held.len(),
            held_out_percent: mape(&fitted, held)?,
        })
    };
    let (extend, decode) = (error(&extend, &extend_held)?, error(&decode, &decode_held)?);
    Ok(Fit { fitted, extend, decode, options })
}

/// The passes of a mode that are fitted, and those that are held out.
fn split(passes: &[MeasuredPass], mode: Mode, options: FitOptions) -> (Vec<MeasuredPass>, Vec<MeasuredPass>) {
    let mut of_mode: Vec<MeasuredPass> = passes.iter().filter(|pass| pass.mode == mode).copied().collect();
    let mut sampler = Sampler::new(options.seed, mode as u64);
    let held = (of_mode.len() as f64 * options.holdout).floor() as usize;
    // The first places of a shuffle.
    for place in 0..held {
        let other = sampler.uniform(Span { low: place as u32, high: (of_mode.len() - 1) as u32 });
        of_mode.swap(place, other as usize);
    }
    let fitted = of_mode.split_off(held);
    (fitted, of_mode)
}

/// The mean absolute error in percent. Passes that took no time are left out.
fn mape(fitted: &Fitted, passes: &[MeasuredPass]) -> Result<Option<f64>, FitError> {
    let (mut sum, mut count) = (0.0, 0_u32);
    for pass in passes.iter().filter(|pass| pass.duration_ms > 0.0) {
        sum += (fitted.pass_ms(pass)? - pass.duration_ms).abs() / pass.duration_ms;
        count += 1;
    }
    Ok((count > 0).then(|| 100.0 * sum / f64::from(count)))
}

impl Fit {
    /// The `[timing]` section of a scenario, with the errors as comments. `source` is the file of passes, `table_path` the file
    /// that a fitted table is written to.
    pub fn render(&self, source: &str, table_path: &str) -> String {
        let mut text = format!(
            "# Fitted to {}, held out {} (seed {}).\n",
            source.replace(char::is_control, " "),
            self.options.holdout,
            self.options.seed
        );
        for (name, error) in [("extend", &self.extend), ("decode", &self.decode)] {
            let percent = |percent: Option<f64>| percent.map_or("none".to_owned(), |percent| format!("{percent:.2} %"));
            let _ = writeln!(
                text,
                "# MAPE {name}: {} on {} passes held out, {} on {} fitted.",
                percent(error.held_out_percent),
                error.held_out_passes,
                percent(error.fitted_percent),
                error.fitted_passes
            );
        }
        match &self.fitted {
            Fitted::Linear(linear) => {
                text.push_str("[timing]\nmodel = \"linear\"\n\n[timing.linear]\n");
                for (name, cost) in Linear::NAMES.iter().zip(linear.costs()) {
                    let _ = writeln!(text, "{name} = {}", toml::Value::Float(cost));
                }
            }
            Fitted::Table(_) => {
                let path = toml::Value::from(table_path);
                let _ = write!(
                    text,
                    "[timing]\nmodel = \"table\"\n\n[timing.table]\npath = {path}\noutside = \"refuse\"\n"
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests;

//! Fits a linear model: least squares with coefficients that may not be negative, for extend and decode passes apart.

use nalgebra::{DMatrix, DVector};

use super::super::linear::Linear;
use super::super::measured::{MeasuredPass, Mode};
use super::FitError;
use super::least_squares::non_negative;

/// Microseconds in a millisecond.
const US_PER_MS: f64 = 1e3;

/// A model of the passes of both modes. A mode without a pass costs nothing.
///
/// # Errors
/// Numbers that give no solution.
pub fn fit(extend: &[MeasuredPass], decode: &[MeasuredPass]) -> Result<Linear, FitError> {
    let [pass, new, cached, row, attention] = solve(extend, Mode::Extend, extend_numbers)?;
    let [decode_pass, decode_row, kv] = solve(decode, Mode::Decode, decode_numbers)?;
    Ok(Linear::new([pass, new, cached, row, attention, decode_pass, decode_row, kv]))
}

/// A pass as numbers in the order of the extend costs. Passes whose attention is not known do not tell its cost.
fn extend_numbers(pass: &MeasuredPass) -> [f64; 5] {
    [1.0, pass.new_tokens, pass.cached_tokens, pass.rows, pass.attention.unwrap_or(0.0)]
}

fn decode_numbers(pass: &MeasuredPass) -> [f64; 3] {
    [1.0, pass.rows, pass.kv_tokens]
}

fn solve<const N: usize>(
    passes: &[MeasuredPass],
    mode: Mode,
    numbers: impl Fn(&MeasuredPass) -> [f64; N],
) -> Result<[f64; N], FitError> {
    if passes.is_empty() {
        return Ok([0.0; N]);
    }
    // Rows of zeros leave the solution as it is, and give the factorization as many rows as columns.
    let height = passes.len().max(N);
    let mut columns = DMatrix::zeros(height, N);
    let mut target = DVector::zeros(height);
    let all_attention = passes.iter().all(|pass| pass.attention.is_some());
    for (row, pass) in passes.iter().enumerate() {
        let mut numbers = numbers(pass);
        if mode == Mode::Extend && !all_attention {
            numbers[N - 1] = 0.0;
        }
        columns.row_mut(row).copy_from_slice(&numbers);
        target[row] = pass.duration_ms * US_PER_MS;
    }
    let solution = non_negative(&columns, &target).map_err(|error| FitError::Solve { mode, error })?;
    Ok(std::array::from_fn(|cost| solution[cost]))
}

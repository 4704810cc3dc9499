//! Fits a table: the values on a grid whose interpolation is nearest to the measured passes.
//!
//! An axis has the values that occur, if they are few, and else as many of them as it may have, at equal shares of the passes. A
//! place of the grid with no pass near it follows the linear fit of the same passes, which counts as a millionth of a pass.

use nalgebra::{DMatrix, DVector};

use super::super::NS_PER_US;
use super::super::measured::{MeasuredPass, Mode};
use super::super::table::{Axis, DECODE_AXES, EXTEND_AXES, Grid, Outside, Table, corners};
use super::FitError;
use super::least_squares::pulled;
use super::linear;

/// The most values of an axis of the extend grid, and of the decode grid.
const EXTEND_VALUES: usize = 6;
const DECODE_VALUES: usize = 12;
/// What the linear fit counts, in passes.
const PULL: f64 = 1e-6;

/// A table of the passes of both modes. It clamps; a scenario decides for itself.
///
/// # Errors
/// Numbers that give no solution.
pub fn fit(extend: &[MeasuredPass], decode: &[MeasuredPass]) -> Result<Table, FitError> {
    let model = linear::fit(extend, decode)?;
    let guess_ms = |pass: &MeasuredPass| model.pass_us(&pass.shape()) / NS_PER_US;
    let extend = solve(
        extend,
        Mode::Extend,
        EXTEND_AXES,
        EXTEND_VALUES,
        |pass| [pass.new_tokens, pass.cached_tokens, pass.rows],
        |[new_tokens, cached_tokens, rows]| {
            guess_ms(&MeasuredPass { new_tokens, cached_tokens, rows, ..blank(Mode::Extend) })
        },
    )?;
    let decode = solve(
        decode,
        Mode::Decode,
        DECODE_AXES,
        DECODE_VALUES,
        |pass| [pass.rows, pass.kv_tokens],
        |[rows, kv_tokens]| guess_ms(&MeasuredPass { rows, kv_tokens, ..blank(Mode::Decode) }),
    )?;
    Ok(Table { extend, decode, outside: Outside::Clamp })
}

fn blank(mode: Mode) -> MeasuredPass {
    MeasuredPass {
        mode,
        rows: 0.0,
        new_tokens: 0.0,
        cached_tokens: 0.0,
        kv_tokens: 0.0,
        attention: None,
        duration_ms: 0.0,
        line: 0,
    }
}

fn solve<const N: usize>(
    passes: &[MeasuredPass],
    mode: Mode,
    names: [&'static str; N],
    most: usize,
    place: impl Fn(&MeasuredPass) -> [f64; N],
    guess_ms: impl Fn([f64; N]) -> f64,
) -> Result<Option<Grid<N>>, FitError> {
    if passes.is_empty() {
        return Ok(None);
    }
    let axes: [Axis; N] =
        std::array::from_fn(|axis| axis_of(names[axis], passes.iter().map(|pass| place(pass)[axis]).collect(), most));
    let size = axes.iter().map(|axis| axis.values.len()).product();
    let mut sums = DMatrix::zeros(size, size);
    let mut target = DVector::zeros(size);
    for pass in passes {
        let mut weights = Vec::with_capacity(1 << N);
        corners(&axes, &place(pass), &mut |index, weight| weights.push((index, weight)));
        for &(index, weight) in &weights {
            target[index] += weight * pass.duration_ms;
            for &(other, other_weight) in &weights {
                sums[(index, other)] += weight * other_weight;
            }
        }
    }
    let mut grid = Grid { axes, values: vec![0.0; size] };
    let guess = DVector::from_fn(size, |index, _| guess_ms(grid.place(index)));
    let solution = pulled(sums, target, &guess, PULL).map_err(|error| FitError::Solve { mode, error })?;
    grid.values = solution.iter().map(|value| value.max(0.0)).collect();
    Ok(Some(grid))
}

/// The values of an axis: all that occur, or `most` of them at equal shares of the passes, the ends included.
fn axis_of(name: &'static str, values: Vec<f64>, most: usize) -> Axis {
    let all = Axis::new(name, values.clone());
    if all.values.len() <= most {
        return all;
    }
    let mut sorted = values;
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    Axis::new(name, (0..most).map(|step| sorted[step * last / (most - 1)]).collect())
}

/// The table as a file of measured passes, in CSV.
pub fn render(table: &Table) -> String {
    let mut text = "mode,rows,new_tokens,cached_tokens,kv_tokens,duration_ms\n".to_owned();
    if let Some(grid) = &table.extend {
        for (index, value) in grid.values.iter().enumerate() {
            let [new_tokens, cached_tokens, rows] = grid.place(index);
            text.push_str(&format!("extend,{rows},{new_tokens},{cached_tokens},,{value}\n"));
        }
    }
    if let Some(grid) = &table.decode {
        for (index, value) in grid.values.iter().enumerate() {
            let [rows, kv_tokens] = grid.place(index);
            text.push_str(&format!("decode,{rows},,,{kv_tokens},{value}\n"));
        }
    }
    text
}

//! `table`: measured passes on two grids, one over (new tokens, cached tokens, rows) for extend passes and one over (rows, KV
//! tokens) for decode passes, interpolated linearly along each axis.
//!
//! The coordinates are those of the pass: sums over its rows. A grid must be full: it has a measurement for each combination of
//! the values on its axes. At a point of the grid the answer is the measurement, bit for bit before rounding to nanoseconds.

mod grid;

use std::path::Path;

use servesim_engine::timing::{PassShape, TimingError, TimingModel, checked_ns};

use super::measured::{self, MeasuredPass, Mode};
use super::{NS_PER_MS, decode_rows_folded};
use crate::trace::field::Fault;
use crate::workload::InputError;

pub use grid::{Axis, Grid, Outside, corners};

/// The axes of extend passes.
pub const EXTEND_AXES: [&str; 3] = ["new_tokens", "cached_tokens", "rows"];
/// The axes of decode passes.
pub const DECODE_AXES: [&str; 2] = ["rows", "kv_tokens"];

/// Measured passes, by mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Extend passes; absent if none were measured, and then every extend pass is refused.
    pub extend: Option<Grid<3>>,
    /// Decode passes; absent likewise.
    pub decode: Option<Grid<2>>,
    /// What is done with a pass outside the grid.
    pub outside: Outside,
}

impl Table {
    /// Reads a table from a file of measured passes (see [`measured`]); `attention` is not used.
    ///
    /// # Errors
    /// A file that cannot be used, without a pass, or a grid with a point that is missing or there twice.
    pub fn read(path: &Path, outside: Outside) -> Result<Table, InputError> {
        let passes = measured::read(path)?;
        Table::from_passes(&passes, outside).map_err(|(line, fault)| fault.at(&path.display().to_string(), line))
    }

    /// A table of measured passes.
    ///
    /// # Errors
    /// As [`Table::read`], with the line.
    pub fn from_passes(passes: &[MeasuredPass], outside: Outside) -> Result<Table, (u64, Fault)> {
        if passes.is_empty() {
            return Err((0, Fault::new("rows", "no pass", "at least one")));
        }
        let extend = points(passes, Mode::Extend, |pass| [pass.new_tokens, pass.cached_tokens, pass.rows]);
        let decode = points(passes, Mode::Decode, |pass| [pass.rows, pass.kv_tokens]);
        Ok(Table {
            extend: Grid::from_points(EXTEND_AXES, &extend)?,
            decode: Grid::from_points(DECODE_AXES, &decode)?,
            outside,
        })
    }

    /// What the pass takes, in milliseconds.
    ///
    /// # Errors
    /// A pass outside the grid, or of a mode that was not measured.
    pub fn pass_ms(&self, shape: &PassShape) -> Result<f64, TimingError> {
        let none = |mode: Mode| TimingError::OutOfRange {
            what: format!("the table has no {} pass, found one", mode.as_str()),
        };
        if shape.extend_rows == 0 {
            let grid = self.decode.as_ref().ok_or_else(|| none(Mode::Decode))?;
            return grid.at([f64::from(shape.decode_rows), shape.decode_kv_tokens as f64], self.outside);
        }
        let shape = decode_rows_folded(shape);
        let grid = self.extend.as_ref().ok_or_else(|| none(Mode::Extend))?;
        let place = [shape.extend_tokens as f64, shape.cached_tokens as f64, f64::from(shape.extend_rows)];
        grid.at(place, self.outside)
    }
}

/// The passes of a mode with their places.
fn points<const N: usize>(
    passes: &[MeasuredPass],
    mode: Mode,
    place: impl Fn(&MeasuredPass) -> [f64; N],
) -> Vec<grid::Point<N>> {
    let of_mode = passes.iter().filter(|pass| pass.mode == mode);
    of_mode.map(|pass| grid::Point { place: place(pass), value: pass.duration_ms, line: pass.line }).collect()
}

impl TimingModel for Table {
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        checked_ns(self.pass_ms(shape)? * NS_PER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str, outside: Outside) -> Result<Table, InputError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.csv");
        std::fs::write(&path, text).expect("written");
        Table::read(&path, outside)
    }

    const DECODE: &str =
        "mode,rows,kv_tokens,duration_ms\ndecode,1,100,2\ndecode,1,300,4\ndecode,3,100,6\ndecode,3,300,10\n";

    fn decode(rows: u32, kv_tokens: u64) -> PassShape {
        PassShape { decode_rows: rows, decode_kv_tokens: kv_tokens, ..PassShape::default() }
    }

    #[test]
    fn a_pass_between_measurements_is_interpolated_along_each_axis() {
        let mut table = table(DECODE, Outside::Refuse).expect("a full grid");
        assert_eq!(table.duration_ns(&decode(3, 300)), Ok(10_000_000));
        assert_eq!(table.duration_ns(&decode(1, 200)), Ok(3_000_000));
        // Between 3 (at 1 row) and 8 (at 3 rows).
        assert_eq!(table.duration_ns(&decode(2, 200)), Ok(5_500_000));
    }

    #[test]
    fn outside_is_refused_with_the_range_or_clamped() {
        let mut refusing = table(DECODE, Outside::Refuse).expect("a full grid");
        let error = refusing.duration_ns(&decode(4, 200)).expect_err("outside");
        let expected = "the pass lies outside the model's range: rows 4, the table has 1 to 3";
        assert_eq!(error.to_string(), expected);
        assert!(refusing.duration_ns(&decode(2, 301)).is_err() && refusing.duration_ns(&decode(2, 99)).is_err());
        let mut clamping = table(DECODE, Outside::Clamp).expect("a full grid");
        assert_eq!(clamping.duration_ns(&decode(9, 900)), Ok(10_000_000));
        assert_eq!(clamping.duration_ns(&decode(2, 1)), Ok(4_000_000));
        let extend = PassShape { extend_rows: 1, extend_tokens: 1, ..PassShape::default() };
        let error = clamping.duration_ns(&extend).expect_err("no extend pass");
        assert!(error.to_string().contains("no extend pass"), "{error}");
    }

    #[test]
    fn extend_passes_have_three_axes_and_mixed_ones_fold_their_decode_rows() {
        let mut text = "mode,rows,new_tokens,cached_tokens,duration_ms\n".to_owned();
        for rows in [1, 3] {
            for new in [10, 20] {
                for cached in [0, 100] {
                    text += &format!("extend,{rows},{new},{cached},{}\n", rows * 100 + new + cached);
                }
            }
        }
        let mut table = table(&text, Outside::Refuse).expect("a full grid");
        let shape = PassShape { extend_rows: 2, extend_tokens: 15, cached_tokens: 30, ..PassShape::default() };
        assert_eq!(table.duration_ns(&shape), Ok(245_000_000));
        let mixed = PassShape { extend_rows: 1, extend_tokens: 14, decode_rows: 1, decode_kv_tokens: 31, ..shape };
        let mixed = PassShape { cached_tokens: 0, ..mixed };
        assert_eq!(table.duration_ns(&mixed), Ok(245_000_000));
    }

    #[test]
    fn a_grid_with_a_hole_or_a_point_twice_is_refused() {
        let error = table(&DECODE.replace("decode,3,300,10\n", ""), Outside::Clamp).expect_err("a hole");
        assert_eq!((error.line, error.field.as_str()), (0, "rows, kv_tokens"), "{error}");
        assert_eq!(error.found, "no decode pass with rows 3, kv_tokens 300");
        let error = table(&format!("{DECODE}decode,1,100,2\n"), Outside::Clamp).expect_err("twice");
        assert_eq!((error.line, error.found.as_str()), (6, "rows 1, kv_tokens 100 again"));
        let error = table("mode,rows,duration_ms\n", Outside::Clamp).expect_err("empty");
        assert_eq!(error.found, "no pass");
    }
}

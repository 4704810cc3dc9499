//! What the host spends on a pass, over any model: a constant, or by the number of rows from a file.
//!
//! The file is CSV or Parquet with the columns `mode` (`extend` or `decode`), `rows` and `host_ms`. Between two numbers of rows
//! the time is interpolated; below the first and above the last it is theirs. A mode that the file does not have costs nothing.

use std::path::Path;

use servesim_engine::timing::{PassShape, TimingError, TimingModel, checked_ns};

use super::NS_PER_MS;
use super::measured::{MeasuredColumns, Mode, mode, read_columns};
use super::table::Axis;
use crate::trace::field::Fault;
use crate::workload::InputError;

/// The columns of a file of host times.
const COLUMNS: [&str; 3] = ["mode", "rows", "host_ms"];
/// The longest host time, in milliseconds.
pub const LONGEST_MS: f64 = 1e9;

/// Host time by rows for one mode.
#[derive(Clone, Debug, PartialEq)]
struct Curve {
    rows: Axis,
    host_ms: Vec<f64>,
}

impl Curve {
    fn at(&self, rows: u32) -> f64 {
        let (below, way) = self.rows.step(f64::from(rows));
        let next = self.host_ms.get(below + 1).unwrap_or(&self.host_ms[below]);
        self.host_ms[below] * (1.0 - way) + next * way
    }
}

/// What the host spends on a pass.
#[derive(Clone, Debug, PartialEq)]
pub struct HostOverhead(Kind);

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Constant { host_ms: f64 },
    ByRows { extend: Option<Curve>, decode: Option<Curve> },
}

impl HostOverhead {
    /// The same for every pass, in milliseconds.
    pub fn constant(host_ms: f64) -> HostOverhead {
        HostOverhead(Kind::Constant { host_ms })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// A file that cannot be used, has no row, or has a number of rows twice for a mode.
    pub fn read(path: &Path) -> Result<HostOverhead, InputError> {
        let columns = read_columns(path, &COLUMNS, &COLUMNS)?;
        if columns.rows() == 0 {
            return Err(Fault::new("rows", "no row", "at least one").at(columns.file(), 0));
        }
        let extend = curve(&columns, Mode::Extend)?;
        Ok(HostOverhead(Kind::ByRows { extend, decode: curve(&columns, Mode::Decode)? }))
    }

    /// What the host spends on a pass, in milliseconds.
    pub fn host_ms(&self, shape: &PassShape) -> f64 {
        match &self.0 {
            Kind::Constant { host_ms } => *host_ms,
            Kind::ByRows { extend, decode } => {
                let curve = if shape.extend_rows > 0 { extend } else { decode };
                curve.as_ref().map_or(0.0, |curve| curve.at(shape.extend_rows + shape.decode_rows))
            }
        }
    }
}

fn curve(columns: &MeasuredColumns, of: Mode) -> Result<Option<Curve>, InputError> {
    let mut points = Vec::new();
    for row in 0..columns.rows() {
        let at = |fault: Fault| fault.at(columns.file(), columns.line(row));
        if mode(columns, row).map_err(at)? != of {
            continue;
        }
        let rows = columns.cell(row, "rows").number("rows", 1.0, f64::from(u32::MAX)).map_err(at)?;
        let host_ms = columns.cell(row, "host_ms").number("host_ms", 0.0, LONGEST_MS).map_err(at)?;
        if points.iter().any(|(known, _)| *known == rows) {
            return Err(at(Fault::new("rows", format!("{rows} again"), format!("each once for {}", of.as_str()))));
        }
        points.push((rows, host_ms));
    }
    points.sort_by(|left: &(f64, f64), right| left.0.total_cmp(&right.0));
    let (rows, host_ms) = points.into_iter().unzip();
    let curve = Curve { rows: Axis::new("rows", rows), host_ms };
    Ok((!curve.host_ms.is_empty()).then_some(curve))
}

/// A model with what the host spends besides.
pub struct WithHost {
    /// How long passes take on the device.
    pub model: Box<dyn TimingModel>,
    /// What the host spends.
    pub host: HostOverhead,
}

impl TimingModel for WithHost {
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        self.model.duration_ns(shape)
    }

    fn host_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        checked_ns(self.host.host_ms(shape) * NS_PER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HostOverhead, InputError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("h.csv");
        std::fs::write(&path, text).expect("written");
        HostOverhead::read(&path)
    }

    #[test]
    fn host_time_is_interpolated_over_rows_and_clamped() {
        let host = read("mode,rows,host_ms\nextend,4,9\ndecode,9,5\ndecode,1,1\n").expect("good");
        let decode = |rows| host.host_ms(&PassShape { decode_rows: rows, ..PassShape::default() });
        assert_eq!([decode(1), decode(5), decode(9), decode(100)], [1.0, 3.0, 5.0, 5.0]);
        let mixed = PassShape { extend_rows: 1, decode_rows: 2, ..PassShape::default() };
        assert_eq!(host.host_ms(&mixed), 9.0);
        assert_eq!(read("mode,rows,host_ms\ndecode,9,5\n").expect("good").host_ms(&mixed), 0.0);
    }

    #[test]
    fn both_times_of_a_pass_reach_the_engine() {
        let model = |_: &PassShape| Ok(7);
        let mut model = WithHost { model: Box::new(model), host: HostOverhead::constant(0.25) };
        let shape = PassShape { decode_rows: 1, ..PassShape::default() };
        assert_eq!((model.duration_ns(&shape), model.host_ns(&shape)), (Ok(7), Ok(250_000)));
    }

    #[test]
    fn bad_rows_are_named() {
        for (text, line, field) in [
            ("mode,rows,host_ms\n", 0, "rows"),
            ("mode,rows\ndecode,1\n", 1, "header"),
            ("mode,rows,host_ms\ndecode,1,1\ndecode,1,2\n", 3, "rows"),
            ("mode,rows,host_ms\ndecode,1,-1\n", 2, "host_ms"),
            ("mode,rows,host_ms\nidle,1,1\n", 2, "mode"),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!((error.line, error.field.as_str()), (line, field), "{error}");
        }
    }
}

//! A full grid of measurements over `N` axes, interpolated linearly along each.

use servesim_engine::timing::TimingError;

use crate::trace::field::Fault;

/// How many times fewer measurements than combinations a grid may have for its first hole to be named.
const MOST_HOLES: usize = 64;

/// What is done with a place outside the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// It is refused.
    #[default]
    Refuse,
    /// It gets the value of the nearest place on the grid's border.
    Clamp,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point<const N: usize> {
    /// Where.
    pub place: [f64; N],
    /// What was measured.
    pub value: f64,
    /// The line of the file that has it.
    pub line: u64,
}

/// The values of one axis, at least one, rising.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its name, for errors.
    pub name: &'static str,
    /// Its values.
    pub values: Vec<f64>,
}

impl Axis {
    /// The distinct values of `values`, in order.
    pub fn new(name: &'static str, mut values: Vec<f64>) -> Axis {
        values.sort_by(f64::total_cmp);
        values.dedup();
        Axis { name, values }
    }

    fn first(&self) -> f64 {
        self.values[0]
    }

    fn last(&self) -> f64 {
        self.values[self.values.len() - 1]
    }

    /// The index of the value at or below `at`, and how far `at` is on the way to the next, from 0 to 1.
    pub fn step(&self, at: f64) -> (usize, f64) {
        let above = self.values.partition_point(|&value| value <= at);
        if above == 0 {
            return (0, 0.0);
        }
        match self.values.get(above) {
            None => (above - 1, 0.0),
            Some(next) => (above - 1, (at - self.values[above - 1]) / (next - self.values[above - 1])),
        }
    }
}

/// A full grid. The last axis changes fastest.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid<const N: usize> {
    /// The axes.
    pub axes: [Axis; N],
    /// A value for each combination of the axes' values.
    pub values: Vec<f64>,
}

impl<const N: usize> Grid<N> {
    /// The grid of measurements; none if there are none.
    ///
    /// # Errors
    /// A combination that is missing, or that is there twice, with the line of the second.
    pub fn from_points(names: [&'static str; N], points: &[Point<N>]) -> Result<Option<Grid<N>>, (u64, Fault)> {
        if points.is_empty() {
            return Ok(None);
        }
        let axes: [Axis; N] =
            std::array::from_fn(|axis| Axis::new(names[axis], points.iter().map(|point| point.place[axis]).collect()));
        let size = axes.iter().fold(1_usize, |size, axis| size.saturating_mul(axis.values.len()));
        let mode = if N == 2 { "decode" } else { "extend" };
        let fault = |found| Fault::new(&names.join(", "), found, "each combination of the axes' values once");
        if size > points.len().saturating_mul(MOST_HOLES) {
            return Err((0, fault(format!("{} {mode} passes for {size} combinations", points.len()))));
        }
        let mut values: Vec<Option<f64>> = vec![None; size];
        for point in points {
            let index = index(&axes, &std::array::from_fn(|axis| axes[axis].step(point.place[axis]).0));
            if values[index].replace(point.value).is_some() {
                return Err((point.line, fault(format!("{} again", place_text(&names, &point.place)))));
            }
        }
        match values.iter().position(Option::is_none) {
            None => Ok(Some(Grid { axes, values: values.into_iter().flatten().collect() })),
            Some(hole) => {
                let place = place_of(&axes, hole);
                Err((0, fault(format!("no {mode} pass with {}", place_text(&names, &place)))))
            }
        }
    }

    /// The place of the value number `index`.
    pub fn place(&self, index: usize) -> [f64; N] {
        place_of(&self.axes, index)
    }

    /// The value at a place.
    ///
    /// # Errors
    /// A place outside, where that is refused.
    pub fn at(&self, place: [f64; N], outside: Outside) -> Result<f64, TimingError> {
        if outside == Outside::Refuse {
            self.refuse_outside(&place)?;
        }
        let mut sum = 0.0;
        corners(&self.axes, &place, &mut |index, weight| sum += weight * self.values[index]);
        Ok(sum)
    }

    fn refuse_outside(&self, place: &[f64; N]) -> Result<(), TimingError> {
        for (axis, at) in self.axes.iter().zip(place) {
            if !(axis.first()..=axis.last()).contains(at) {
                let (first, last) = (axis.first(), axis.last());
                return Err(TimingError::OutOfRange {
                    what: format!("{} {at}, the table has {first} to {last}", axis.name),
                });
            }
        }
        Ok(())
    }
}

/// Calls `add` for each of the up to 2^N values around a place with its weight; weights of 0 are left out, and the others add
/// up to 1.
pub fn corners<const N: usize>(axes: &[Axis; N], place: &[f64; N], add: &mut impl FnMut(usize, f64)) {
    let steps: [(usize, f64); N] = std::array::from_fn(|axis| axes[axis].step(place[axis]));
    for corner in 0..1_usize << N {
        let mut weight = 1.0;
        let mut indices = [0; N];
        for axis in 0..N {
            let (below, way) = steps[axis];
            let upper = corner >> axis & 1;
            indices[axis] = below + upper;
            weight *= if upper == 1 { way } else { 1.0 - way };
        }
        if weight > 0.0 {
            add(index(axes, &indices), weight);
        }
    }
}

fn index<const N: usize>(axes: &[Axis; N], indices: &[usize; N]) -> usize {
    axes.iter().zip(indices).fold(0, |index, (axis, at)| index * axis.values.len() + at)
}

fn place_of<const N: usize>(axes: &[Axis; N], mut index: usize) -> [f64; N] {
    let mut place = [0.0; N];
    for axis in (0..N).rev() {
        let length = axes[axis].values.len();
        place[axis] = axes[axis].values[index % length];
        index /= length;
    }
    place
}

fn place_text<const N: usize>(names: &[&'static str; N], place: &[f64; N]) -> String {
    let parts: Vec<String> = names.iter().zip(place).map(|(name, at)| format!("{name} {at}")).collect();
    parts.join(", ")
}

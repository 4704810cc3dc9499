//! The axes of a plot: ranges, scales and ticks.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::headline::tick;

/// From how many times the smallest value the largest one has to be for a logarithmic scale.
const LOGARITHMIC_FROM: f64 = 50.0;

/// Where values lie on an axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Axis {
    /// Evenly.
    Linear { low: f64, high: f64 },
    /// By their logarithm.
    Logarithmic { low: f64, high: f64 },
    /// The n-th label at n.
    Labels(Vec<String>),
}

impl Axis {
    /// An axis for these values that starts at 0.
    pub fn from_zero(values: impl Iterator<Item = f64>) -> Axis {
        let high = values.fold(0.0, f64::max);
        Axis::Linear { low: 0.0, high: if high > 0.0 { high * 1.06 } else { 1.0 } }
    }

    /// An axis for these values; logarithmic where they differ by far.
    pub fn around(values: impl Iterator<Item = f64> + Clone) -> Axis {
        let low = values.clone().fold(f64::INFINITY, f64::min);
        let high = values.clone().fold(0.0, f64::max);
        if low > 0.0 && high > low * LOGARITHMIC_FROM {
            return Axis::Logarithmic { low: low / 1.3, high: high * 1.3 };
        }
        Axis::from_zero(values)
    }

    /// Where a value lies.
    pub fn place(&self, value: f64) -> f64 {
        match self {
            Axis::Logarithmic { low, .. } => value.max(*low).log10(),
            _ => value,
        }
    }

    /// From where to where the axis goes.
    pub fn range(&self) -> std::ops::Range<f64> {
        match self {
            Axis::Linear { low, high } => *low..*high,
            Axis::Logarithmic { low, high } => low.log10()..high.log10(),
            Axis::Labels(labels) => -0.5..labels.len() as f64 - 0.5,
        }
    }

    /// The places of the ticks.
    pub fn ticks(&self) -> Vec<f64> {
        match self {
            Axis::Linear { low, high } => linear_ticks(*low, *high),
            Axis::Logarithmic { low, high } => logarithmic_ticks(*low, *high),
            Axis::Labels(labels) => {
                // More would be too small to read.
                let step = labels.len().div_ceil(24).max(1);
                (0..labels.len()).step_by(step).map(|index| index as f64).collect()
            }
        }
    }

    /// What stands at a tick.
    pub fn label(&self, place: f64) -> String {
        match self {
            Axis::Linear { .. } => tick(place),
            Axis::Logarithmic { .. } => tick(10f64.powf(place)),
            Axis::Labels(labels) => {
                labels.get(place.round().max(0.0) as usize).map(|label| cut(label)).unwrap_or_default()
            }
        }
    }

    /// How many letters the labels have, the longest and all.
    pub fn letters(&self) -> (usize, usize) {
        let lengths: Vec<usize> = self.ticks().into_iter().map(|tick| self.label(tick).chars().count()).collect();
        (lengths.iter().copied().max().unwrap_or(0), lengths.iter().sum())
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (from, to): (i32, i32)) -> i32 {
        let range = Axis::range(self);
        let share = (place - range.start) / (range.end - range.start);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _most: Hint) -> Vec<f64> {
        self.ticks()
    }

    fn range(&self) -> std::ops::Range<f64> {
        Axis::range(self)
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(place: &f64) -> String {
        tick(*place)
    }
}

/// A label that is not too long.
fn cut(label: &str) -> String {
    const MOST: usize = 24;
    if label.chars().count() <= MOST {
        return label.to_owned();
    }
    let end: String = label.chars().skip(label.chars().count() - MOST + 1).collect();
    format!("…{end}")
}

fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (first..first + 12).map(|count| count as f64 * step).take_while(|tick| *tick <= high).collect()
}

fn logarithmic_ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let factors: &[f64] = if high / low < 1000.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let values = powers.flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)));
    values.filter(|value| (low..=high).contains(value)).map(f64::log10).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(linear_ticks(0.0, 106.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear_ticks(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        let labels: Vec<String> =
            logarithmic_ticks(3.0, 400.0).into_iter().map(|tick| super::tick(10f64.powf(tick))).collect();
        assert_eq!(labels, ["5", "10", "20", "50", "100", "200"]);
    }

    #[test]
    fn values_that_differ_by_far_get_a_logarithmic_axis() {
        assert!(matches!(Axis::around([1.0, 60.0].into_iter()), Axis::Logarithmic { .. }));
        assert!(matches!(Axis::around([1.0, 40.0].into_iter()), Axis::Linear { low: 0.0, .. }));
        assert!(matches!(Axis::around([0.0, 60.0].into_iter()), Axis::Linear { .. }));
        assert_eq!(Axis::from_zero([].into_iter()), Axis::Linear { low: 0.0, high: 1.0 });
    }
}

//! Plots of one case over simulated time, from its `timeseries.csv`.

use std::path::Path;

use super::axis::Axis;
use super::chart::{Chart, Point, Series};
use super::headline::shown;

/// Points of all cases together, so that a report of many cases stays small.
const POINTS_OF_ALL: usize = 4000;
/// Points of one case, fewest and most.
const POINTS_OF_CASE: std::ops::RangeInclusive<usize> = 20..=160;
/// Width and height of a plot.
const SIZE: (u32, u32) = (480, 240);

/// What is read of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    end_s: f64,
    running: f64,
    waiting: f64,
    used_tokens: f64,
    evictable_tokens: f64,
    free_tokens: f64,
}

/// KV usage and queue of a case over time; none where it has no such file.
pub fn charts(folder: &Path, cases: usize) -> Vec<Chart> {
    let samples = read(&folder.join("timeseries.csv"));
    if samples.len() < 2 {
        return Vec::new();
    }
    let most = (POINTS_OF_ALL / cases.max(1)).clamp(*POINTS_OF_CASE.start(), *POINTS_OF_CASE.end());
    let each = samples.len().div_ceil(most);
    let peaks: Vec<Sample> = samples.chunks(each).map(peak).collect();
    let word = if each > 1 { format!(", the most of {each} intervals") } else { String::new() };
    let pool = |sample: &Sample| (sample.used_tokens + sample.evictable_tokens + sample.free_tokens).max(1.0);
    let used_pct = |sample: &Sample| 100.0 * sample.used_tokens / pool(sample);
    let held_pct = |sample: &Sample| 100.0 * (sample.used_tokens + sample.evictable_tokens) / pool(sample);
    let usage = [
        series("in use by requests", &peaks, "% of the pool in use", used_pct),
        series("in use or cached", &peaks, "% of the pool in use or cached", held_pct),
    ];
    let queue = [
        series("running", &peaks, "running", |sample| sample.running),
        series("waiting", &peaks, "waiting", |sample| sample.waiting),
    ];
    vec![
        chart("KV usage over time", &format!("pool, %{word}"), Axis::Linear { low: 0.0, high: 100.0 }, usage),
        chart(
            "Requests over time",
            &format!("requests{word}"),
            Axis::from_zero(peaks.iter().flat_map(|sample| [sample.running, sample.waiting])),
            queue,
        ),
    ]
}

fn chart(summary: &str, y_name: &str, y: Axis, series: [Series; 2]) -> Chart {
    let x = Axis::from_zero(series[0].points.iter().map(|point| point.x));
    Chart {
        summary: summary.to_owned(),
        x_name: "simulated time, s".into(),
        y_name: y_name.to_owned(),
        x,
        y,
        series: series.to_vec(),
        size: SIZE,
    }
}

fn series(name: &str, samples: &[Sample], what: &str, of: impl Fn(&Sample) -> f64) -> Series {
    let point = |sample: &Sample| Point {
        x: sample.end_s,
        y: of(sample),
        text: format!("{} s: {} {what}", shown(sample.end_s), shown(of(sample))),
        is_ringed: false,
    };
    let points: Vec<Point> = samples.iter().map(point).collect();
    let line = points.iter().map(|point| (point.x, point.y)).collect();
    Series { name: name.to_owned(), points, line, has_marks: false }
}

/// The most of some intervals, at the end of the last one.
fn peak(samples: &[Sample]) -> Sample {
    let mut peak = samples[0];
    for sample in samples {
        let most = |one: f64, two: f64| one.max(two);
        peak = Sample {
            end_s: sample.end_s,
            running: most(peak.running, sample.running),
            waiting: most(peak.waiting, sample.waiting),
            ..if sample.used_tokens + sample.evictable_tokens >= peak.used_tokens + peak.evictable_tokens {
                *sample
            } else {
                peak
            }
        };
    }
    peak
}

/// The samples of a file; none if it is not there or has other columns.
fn read(path: &Path) -> Vec<Sample> {
    let Ok(mut reader) = csv::Reader::from_path(path) else { return Vec::new() };
    let Ok(head) = reader.headers().cloned() else { return Vec::new() };
    let places = ["time_s", "running", "waiting", "used_tokens", "evictable_tokens", "free_tokens"]
        .map(|name| head.iter().position(|column| column == name));
    let sample = |record: csv::StringRecord| {
        let value = |at: usize| places[at].and_then(|place| record.get(place)?.parse::<f64>().ok());
        Some(Sample {
            end_s: value(0)?,
            running: value(1)?,
            waiting: value(2)?,
            used_tokens: value(3)?,
            evictable_tokens: value(4)?,
            free_tokens: value(5)?,
        })
    };
    reader.records().map_while(Result::ok).filter_map(sample).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_intervals_are_shown_by_their_peaks() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut text = "time_s,running,waiting,used_tokens,evictable_tokens,free_tokens\n".to_owned();
        for second in 1..=1000 {
            let waiting = if second == 500 { 77 } else { 1 };
            text.push_str(&format!("{second},2,{waiting},30,20,50\n"));
        }
        std::fs::write(folder.path().join("timeseries.csv"), text).expect("written");
        let charts = charts(folder.path(), 1);
        assert_eq!(charts.len(), 2);
        let waiting = &charts[1].series[1].points;
        assert!(waiting.len() <= 160 && waiting.iter().any(|point| point.y == 77.0), "{} points", waiting.len());
        assert_eq!((charts[0].series[0].points[0].y, charts[0].series[1].points[0].y), (30.0, 50.0));
        assert_eq!(charts[0].series[0].points.last().map(|point| point.x), Some(1000.0));
    }

    #[test]
    fn no_file_or_another_one_is_no_plot() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(charts(folder.path(), 1).is_empty());
        std::fs::write(folder.path().join("timeseries.csv"), "a,b\n1,2\n3,4\n").expect("written");
        assert!(charts(folder.path(), 1).is_empty());
    }
}

//! Plots over all cases: metrics against each setting that varies, and throughput against the time to the first token.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::results::cell;
use super::super::table::{Row, Status, Table};
use super::axis::Axis;
use super::chart::{Chart, Point, Series};
use super::headline::{AGAINST_SETTINGS, Shown, THROUGHPUT, TTFT, shown, tick};

/// The most settings that metrics are plotted against.
const MOST_SETTINGS: usize = 4;
/// The most series that are told apart by colour; with more, all points are of one.
const MOST_SERIES: usize = 8;
/// Width and height of a plot.
const SIZE: (u32, u32) = (480, 320);

/// A plot and its heading.
pub struct Plot {
    /// The heading.
    pub title: String,
    /// The picture.
    pub chart: Chart,
}

/// Plots of each metric that a reader looks for, against each setting that varies.
pub fn against_settings(table: &Table) -> Vec<Plot> {
    let rows: Vec<&Row> = table.rows.iter().filter(|row| row.status == Status::Done).collect();
    let mut plots = Vec::new();
    for key in plotted_settings(table, &rows) {
        for metric in AGAINST_SETTINGS {
            plots.extend(against(table, &rows, key, metric));
        }
    }
    plots
}

/// The settings that metrics are plotted against; none stands for the cases themselves.
fn plotted_settings<'t>(table: &'t Table, rows: &[&Row]) -> Vec<Option<&'t str>> {
    let mut keys: Vec<&String> = Vec::new();
    for key in table.settings.iter().filter(|key| !is_seed(key) && distinct(rows, key).len() > 1) {
        // Of settings that go along with each other, such as zipped ones, the first one stands for all.
        let goes_along = |other: &&String| follows(rows, &[other], key) && follows(rows, &[key], other);
        if !keys.iter().any(goes_along) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return vec![None];
    }
    // Sizes first: that is where people look.
    let (numbers, words): (Vec<&String>, Vec<&String>) =
        keys.into_iter().partition(|key| distinct(rows, key).iter().all(|value| value.is_number()));
    numbers.into_iter().chain(words).take(MOST_SETTINGS).map(|key| Some(key.as_str())).collect()
}

/// Whether rows that are equal in the settings `of` are equal in `key`.
fn follows(rows: &[&Row], of: &[&str], key: &str) -> bool {
    let mut seen: BTreeMap<String, &Value> = BTreeMap::new();
    rows.iter().all(|row| {
        let value = row.settings.get(key).unwrap_or(&Value::Null);
        *seen.entry(others_of(row, of)).or_insert(value) == value
    })
}

fn is_seed(key: &str) -> bool {
    key == "seed" || key.ends_with("_seed") || key.ends_with(".seed")
}

/// The values that rows have of a setting: numbers by size, others as they come.
fn distinct(rows: &[&Row], key: &str) -> Vec<Value> {
    let mut values: Vec<Value> = Vec::new();
    for value in rows.iter().filter_map(|row| row.settings.get(key)).filter(|value| !value.is_null()) {
        if !values.contains(value) {
            values.push(value.clone());
        }
    }
    if values.iter().all(Value::is_number) {
        values.sort_by(|one, two| one.as_f64().partial_cmp(&two.as_f64()).unwrap_or(std::cmp::Ordering::Equal));
    }
    values
}

/// A row's value on both axes, with its series.
struct Placed<'r> {
    row: &'r Row,
    x: usize,
    y: f64,
    series: String,
}

fn against(table: &Table, rows: &[&Row], key: Option<&str>, metric: Shown) -> Option<Plot> {
    let labels = match key {
        Some(key) => distinct(rows, key),
        None => rows.iter().map(|row| Value::String(row.case.clone())).collect(),
    };
    let place = |row: &Row| match key {
        Some(key) => labels.iter().position(|label| Some(label) == row.settings.get(key)),
        None => labels.iter().position(|label| label.as_str() == Some(&row.case)),
    };
    let others = other_settings(table, rows, key);
    let placed: Vec<Placed<'_>> = rows
        .iter()
        .filter_map(|row| {
            Some(Placed { row, x: place(row)?, y: (metric.of)(&row.metrics)?, series: others_of(row, &others) })
        })
        .collect();
    if placed.is_empty() || labels.len() < 2 || placed.iter().all(|point| point.y == 0.0) {
        return None;
    }
    let key_name = key.unwrap_or("case");
    let x = Axis::Labels(labels.iter().map(label).collect());
    let y = Axis::around(placed.iter().map(|point| point.y));
    let series = series_of(&placed, metric, key_name, &labels);
    let title = format!("{} by {key_name}", metric.title);
    let summary = format!("{title}: {} cases, values in the table below", placed.len());
    let chart =
        Chart { summary, x_name: key_name.to_owned(), y_name: metric.axis.to_owned(), x, y, series, size: SIZE };
    Some(Plot { title, chart })
}

fn label(value: &Value) -> String {
    match value.as_u64() {
        // Sizes are often powers of two, which a rounded number would hide.
        Some(size) if size >= 1024 && size.is_multiple_of(1024) => {
            if size.is_multiple_of(1 << 20) {
                format!("{} Mi", size >> 20)
            } else {
                format!("{} Ki", size >> 10)
            }
        }
        _ => value.as_f64().map_or_else(|| cell(value), tick),
    }
}

/// The settings that tell series apart: all that vary but the one on the axis and seeds.
fn other_settings<'t>(table: &'t Table, rows: &[&Row], key: Option<&'t str>) -> Vec<&'t str> {
    let Some(key) = key else { return Vec::new() };
    let mut known = vec![key];
    for other in table.settings.iter().filter(|other| !is_seed(other)) {
        // What follows from the others tells nothing apart.
        if !follows(rows, &known, other) {
            known.push(other);
        }
    }
    known.split_off(1)
}

fn others_of(row: &Row, keys: &[&str]) -> String {
    let short = |key: &str| key.rsplit('.').next().unwrap_or_default().to_owned();
    let one = |key: &&str| format!("{}={}", short(key), row.settings.get(*key).map(cell).unwrap_or_default());
    keys.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn series_of(placed: &[Placed<'_>], metric: Shown, key: &str, labels: &[Value]) -> Vec<Series> {
    // Between two words there is nothing.
    let has_lines = labels.iter().all(Value::is_number);
    let mut names: Vec<&str> = Vec::new();
    for point in placed {
        if !names.contains(&point.series.as_str()) {
            names.push(&point.series);
        }
    }
    let is_crowded = names.len() > MOST_SERIES;
    let mut series: Vec<Series> = Vec::new();
    let groups: Vec<Option<&str>> = if is_crowded { vec![None] } else { names.into_iter().map(Some).collect() };
    for group in groups {
        let points: Vec<&Placed<'_>> =
            placed.iter().filter(|point| group.is_none_or(|name| name == point.series)).collect();
        let line = if has_lines && !is_crowded { means(&points) } else { Vec::new() };
        let found = points.iter().map(|point| Point {
            x: point.x as f64,
            y: point.y,
            text: format!("{}\n{key}: {}\n{}: {}", point.row.case, cell(&labels[point.x]), metric.axis, shown(point.y)),
            is_ringed: false,
        });
        let name = group.map_or_else(|| "all cases".to_owned(), str::to_owned);
        series.push(Series { name, points: found.collect(), line, has_marks: true });
    }
    series
}

/// The line through the means of points at one place, such as those of several seeds.
fn means(points: &[&Placed<'_>]) -> Vec<(f64, f64)> {
    let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for point in points {
        let sum = sums.entry(point.x).or_default();
        *sum = (sum.0 + point.y, sum.1 + 1.0);
    }
    sums.into_iter().map(|(x, (sum, count))| (x as f64, sum / count)).collect()
}

/// Throughput against the time to the first token, with the front marked.
pub fn pareto(table: &Table) -> Option<Plot> {
    let points = trade_offs(table);
    if points.len() < 2 {
        return None;
    }
    let front = front(&points);
    let found = points.iter().map(|point| Point {
        x: point.ttft_ms,
        y: point.throughput,
        text: format!(
            "{}\nmean TTFT: {} ms\noutput tokens a second: {}{}",
            point.row.case,
            shown(point.ttft_ms),
            shown(point.throughput),
            if front.contains(&point.row.case) { "\non the front" } else { "" }
        ),
        is_ringed: front.contains(&point.row.case),
    });
    let mut line: Vec<(f64, f64)> = points
        .iter()
        .filter(|point| front.contains(&point.row.case))
        .map(|point| (point.ttft_ms, point.throughput))
        .collect();
    line.sort_by(|one, two| one.0.total_cmp(&two.0).then(one.1.total_cmp(&two.1)));
    let series =
        Series { name: "cases; the front has rings and a line".into(), points: found.collect(), line, has_marks: true };
    let title = "Throughput against TTFT".to_owned();
    let chart = Chart {
        summary: format!("{title}: {} cases, {} of them on the front", points.len(), front.len()),
        x_name: "mean TTFT, ms".into(),
        y_name: THROUGHPUT.axis.into(),
        x: Axis::around(points.iter().map(|point| point.ttft_ms)),
        y: Axis::from_zero(points.iter().map(|point| point.throughput)),
        series: vec![series],
        size: SIZE,
    };
    Some(Plot { title, chart })
}

/// The cases that no other case beats: none has a shorter time to the first token and at least as much throughput, or as
/// short a time and more throughput.
pub fn front_of(table: &Table) -> BTreeSet<String> {
    front(&trade_offs(table))
}

struct TradeOff<'t> {
    row: &'t Row,
    ttft_ms: f64,
    throughput: f64,
}

fn trade_offs(table: &Table) -> Vec<TradeOff<'_>> {
    let done = table.rows.iter().filter(|row| row.status == Status::Done);
    done.filter_map(|row| {
        Some(TradeOff { row, ttft_ms: (TTFT.of)(&row.metrics)?, throughput: (THROUGHPUT.of)(&row.metrics)? })
    })
    .collect()
}

fn front(points: &[TradeOff<'_>]) -> BTreeSet<String> {
    let beats = |one: &TradeOff<'_>, two: &TradeOff<'_>| {
        one.ttft_ms <= two.ttft_ms
            && one.throughput >= two.throughput
            && (one.ttft_ms < two.ttft_ms || one.throughput > two.throughput)
    };
    let is_best = |point: &&TradeOff<'_>| !points.iter().any(|other| beats(other, point));
    points.iter().filter(is_best).map(|point| point.row.case.clone()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn row(case: &str, size: u64, policy: &str, ttft_ms: f64, throughput: f64) -> Row {
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        Row {
            case: case.into(),
            status: Status::Done,
            reason: None,
            settings: map(json!({"engine.size": size, "engine.policy": policy, "seed": 1})),
            metrics: map(json!({"mean_ttft_ms": ttft_ms, "output_throughput": throughput})),
            host: Map::new(),
            notes: Vec::new(),
        }
    }

    fn table() -> Table {
        let settings = ["seed", "engine.policy", "engine.size"].map(String::from).to_vec();
        let rows = vec![
            row("a", 4096, "lru", 10.0, 100.0),
            row("b", 16, "lru", 20.0, 200.0),
            row("c", 4096, "lfu", 30.0, 150.0),
            row("d", 16, "lfu", 20.0, 199.0),
            row("e", 16, "lfu", 9.0, 50.0),
        ];
        Table { settings, rows, ..Table::default() }
    }

    #[test]
    fn the_front_holds_what_nothing_beats() {
        assert_eq!(front_of(&table()).into_iter().collect::<Vec<_>>(), ["a", "b", "e"]);
        let plot = pareto(&table()).expect("points");
        let ringed: Vec<bool> = plot.chart.series[0].points.iter().map(|point| point.is_ringed).collect();
        assert_eq!(ringed, [true, true, false, false, true]);
        assert_eq!(plot.chart.series[0].line, [(9.0, 50.0), (10.0, 100.0), (20.0, 200.0)]);
    }

    #[test]
    fn sizes_come_first_in_order_and_other_settings_are_series() {
        let plots = against_settings(&table());
        let titles: Vec<&str> = plots.iter().map(|plot| plot.title.as_str()).collect();
        assert_eq!(
            titles,
            [
                "Mean TTFT by engine.size",
                "Output throughput by engine.size",
                "Mean TTFT by engine.policy",
                "Output throughput by engine.policy"
            ]
        );
        let chart = &plots[0].chart;
        assert_eq!(chart.x, Axis::Labels(vec!["16".into(), "4 Ki".into()]));
        let names: Vec<&str> = chart.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["policy=lru", "policy=lfu"]);
        // Two cases at one place: the line goes through their mean, both points are there.
        assert_eq!(chart.series[1].line, [(0.0, 14.5), (1.0, 30.0)]);
        assert_eq!(chart.series[1].points.len(), 3);
    }

    #[test]
    fn settings_that_go_along_with_another_are_plotted_once() {
        let mut table = table();
        table.settings.push("engine.double".into());
        for row in &mut table.rows {
            let double = row.settings["engine.size"].as_u64().map(|size| size * 2);
            row.settings.insert("engine.double".into(), json!(double));
        }
        let plots = against_settings(&table);
        assert!(plots.len() == 4 && plots.iter().all(|plot| !plot.title.contains("double")));
        let names: Vec<&str> = plots[0].chart.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["policy=lru", "policy=lfu"]);
    }

    #[test]
    fn a_plot_has_every_value_to_be_found_and_escapes_names() {
        let mut table = table();
        table.rows[0].case = "<x>".into();
        let svg = pareto(&table).expect("points").chart.svg().expect("drawn");
        assert_eq!(svg.matches("<title>").count(), 5);
        assert!(svg.contains("&lt;x&gt;") && !svg.contains("<x>"), "{svg}");
        assert!(svg.starts_with("<svg viewBox=\"0 0 480 320\" role=\"img\"") && svg.ends_with("</svg>"), "{svg}");
    }
}

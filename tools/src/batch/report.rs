//! The report of a batch: one HTML file that needs nothing else.
//!
//! `report.html` holds results alone, so that it is the same bytes on every host. `report-host.html` is the same page with what
//! the cases cost the host.
//!
//! - [`headline`]: which metrics come first. [`axis`], [`chart`]: a plot. [`sweeps`], [`timeline`]: which plots there are.

mod axis;
mod chart;
mod headline;
mod sweeps;
mod timeline;

use std::collections::BTreeSet;

use anyhow::Context;
use minijinja::Environment;
use serde::Serialize;
use serde_json::{Map, Value};

use self::chart::Chart;
use self::headline::HEADLINE;
use super::folder::Folder;
use super::identity::VERSION;
use super::results::cell;
use super::table::{Row, Status, Table};

/// The page.
#[derive(Serialize)]
struct Page {
    version: &'static str,
    title: String,
    style: &'static str,
    script: &'static str,
    columns: Vec<Column>,
    rows: Vec<PageRow>,
    failed: Vec<Failed>,
    done: usize,
    missing: usize,
    plots: Vec<Figure>,
    cases: Vec<CaseDetails>,
    host: Option<HostTable>,
}

/// A column of the table of results.
#[derive(Serialize)]
struct Column {
    name: String,
    is_setting: bool,
    is_shown: bool,
}

/// A row of the table of results.
#[derive(Serialize)]
struct PageRow {
    case: String,
    /// Without what the page's title says.
    short: String,
    status: &'static str,
    is_on_front: bool,
    cells: Vec<Cell>,
}

/// A cell: what is read, and the value itself.
#[derive(Serialize)]
struct Cell {
    text: String,
    value: String,
    is_number: bool,
}

/// A case that failed.
#[derive(Serialize)]
struct Failed {
    case: String,
    reason: String,
}

/// A plot with its legend and its values as text.
#[derive(Serialize)]
struct Figure {
    title: String,
    svg: String,
    legend: Vec<String>,
    x_name: String,
    y_name: String,
    values: Vec<[String; 3]>,
}

/// What is said of one case.
#[derive(Serialize)]
struct CaseDetails {
    /// The place of its row.
    row: usize,
    case: String,
    plots: Vec<Figure>,
    config: String,
    notes: Vec<String>,
}

/// What the cases cost the host.
#[derive(Serialize)]
struct HostTable {
    columns: Vec<String>,
    rows: Vec<PageRow>,
}

/// Renders the report, with the host's costs or without.
///
/// # Errors
/// What the template or the plotting library refuses; nothing that a table can hold.
pub fn render(folder: &Folder, table: &Table, with_host: bool) -> anyhow::Result<String> {
    let mut plots = Vec::new();
    for plot in sweeps::pareto(table).into_iter().chain(sweeps::against_settings(table)) {
        plots.push(figure(plot.title, &plot.chart)?);
    }
    let failed = |row: &Row| Failed { case: row.case.clone(), reason: row.reason.clone().unwrap_or_default() };
    let title = title(table);
    let page = Page {
        version: VERSION,
        title: title.clone(),
        style: include_str!("report/page.css"),
        script: include_str!("report/page.js"),
        columns: columns(table),
        rows: rows(table, &sweeps::front_of(table), &title),
        failed: table.rows.iter().filter(|row| row.status == Status::Failed).map(failed).collect(),
        done: table.count(Status::Done),
        missing: table.count(Status::Missing),
        plots,
        cases: cases(folder, table)?,
        host: with_host.then(|| host(table)),
    };
    let mut environment = Environment::new();
    environment.add_template("page.html", include_str!("report/page.html")).context("the report's template")?;
    environment.get_template("page.html")?.render(minijinja::value::Serde(&page)).context("the report")
}

/// The part of the names that all cases start with, or what it is.
fn title(table: &Table) -> String {
    let first = |row: &Row| row.case.split('+').next().unwrap_or_default().to_owned();
    let names: BTreeSet<String> = table.rows.iter().map(first).collect();
    match names.into_iter().collect::<Vec<_>>().as_slice() {
        [name] => name.clone(),
        names => format!("{} scenarios", names.len()),
    }
}

/// The columns in the order of the page: settings, what a reader looks for first, and all else.
fn ordered(table: &Table) -> Vec<(&String, bool)> {
    let headline = HEADLINE.iter().filter_map(|name| table.metrics.iter().find(|metric| metric == name));
    let others = table.metrics.iter().filter(|metric| !HEADLINE.contains(&metric.as_str()));
    headline.map(|metric| (metric, true)).chain(others.map(|metric| (metric, false))).collect()
}

fn columns(table: &Table) -> Vec<Column> {
    let settings = table.settings.iter().map(|name| Column { name: name.clone(), is_setting: true, is_shown: true });
    let metrics = ordered(table).into_iter();
    let metrics = metrics.map(|(name, is_shown)| Column { name: name.clone(), is_setting: false, is_shown });
    settings.chain(metrics).collect()
}

fn short(row: &Row, title: &str) -> String {
    row.case.strip_prefix(title).and_then(|rest| rest.strip_prefix('+')).unwrap_or(&row.case).to_owned()
}

fn rows(table: &Table, front: &BTreeSet<String>, title: &str) -> Vec<PageRow> {
    let order = ordered(table);
    let row = |row: &Row| {
        let settings = table.settings.iter().map(|key| page_cell(&row.settings, key));
        let metrics = order.iter().map(|(key, _)| page_cell(&row.metrics, key));
        PageRow {
            case: row.case.clone(),
            short: short(row, title),
            status: row.status.as_str(),
            is_on_front: front.contains(&row.case),
            cells: settings.chain(metrics).collect(),
        }
    };
    table.rows.iter().map(row).collect()
}

fn page_cell(values: &Map<String, Value>, key: &str) -> Cell {
    let value = values.get(key).unwrap_or(&Value::Null);
    let text = match value.as_f64() {
        Some(number) => headline::shown(number),
        None => cell(value),
    };
    Cell { text, value: cell(value), is_number: value.is_number() }
}

fn figure(title: String, chart: &Chart) -> anyhow::Result<Figure> {
    let mut values = Vec::new();
    for series in &chart.series {
        for point in &series.points {
            let x = match &chart.x {
                axis::Axis::Labels(labels) => labels.get(point.x as usize).cloned().unwrap_or_default(),
                _ => headline::shown(point.x),
            };
            values.push([series.name.clone(), x, headline::shown(point.y)]);
        }
    }
    let names = chart.series.iter().map(|series| series.name.clone());
    Ok(Figure {
        title,
        svg: chart.svg()?,
        legend: names.filter(|name| !name.is_empty()).collect(),
        x_name: chart.x_name.clone(),
        y_name: chart.y_name.clone(),
        values,
    })
}

fn cases(folder: &Folder, table: &Table) -> anyhow::Result<Vec<CaseDetails>> {
    let mut cases = Vec::new();
    for (index, row) in table.rows.iter().enumerate().filter(|(_, row)| row.status == Status::Done) {
        let place = folder.case(&row.case);
        let charts = timeline::charts(&place, table.rows.len());
        let plots: anyhow::Result<Vec<Figure>> =
            charts.iter().map(|chart| figure(chart.summary.clone(), chart)).collect();
        let config = std::fs::read_to_string(place.join("config.toml")).unwrap_or_default();
        cases.push(CaseDetails { row: index, case: row.case.clone(), plots: plots?, config, notes: row.notes.clone() });
    }
    Ok(cases)
}

fn host(table: &Table) -> HostTable {
    let done = table.rows.iter().filter(|row| row.status == Status::Done);
    let row = |row: &Row| PageRow {
        case: row.case.clone(),
        short: String::new(),
        status: row.status.as_str(),
        is_on_front: false,
        cells: table.host.iter().map(|key| page_cell(&row.host, key)).collect(),
    };
    HostTable { columns: table.host.clone(), rows: done.map(row).collect() }
}

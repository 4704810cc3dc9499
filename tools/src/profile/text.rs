//! The report as a person reads it: plain characters, no colour.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use super::report::{CallCost, GroupCost, Report, SystemCost};
use crate::report::count;

/// Width of the longest bar.
const BAR: f64 = 50.0;
/// Systems with less than this share of all have no column in tables of groups.
const COLUMN_SHARE: f64 = 0.02;

/// The report as lines of text.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}: {} of host time in {} passes ({} calls of the worker), {} requests, {} tokens computed or produced",
        report.scenario,
        time(report.total.total_ns as f64),
        count(report.passes),
        count(report.calls),
        count(report.requests),
        count(report.tokens)
    );
    let timer = &report.timer;
    let _ = writeln!(
        text,
        "timer: {} readings of {} ns, {} in all, taken off below; {}",
        count(timer.readings),
        timer.ns_per_reading,
        time(timer.total_ns as f64),
        read_by_system(report)
    );
    if timer.interrupted_calls > 0 {
        let _ = writeln!(
            text,
            "interrupted: in {} calls, of {} in all, the kernel ran something else; their times are left out",
            count(timer.interrupted_calls),
            time(timer.interrupted_ns as f64)
        );
    }
    text.push('\n');
    systems(&mut text, report);
    let stages = report.sglang_stages.iter().filter(|stage| stage.total_ns > 0);
    let stages: Vec<String> = stages.map(|stage| format!("{} {:.1} %", stage.stage, 100.0 * stage.share)).collect();
    if !stages.is_empty() {
        let _ = writeln!(text, "\nby stage of SGLang's scheduler: {}", stages.join(", "));
    }
    text.push('\n');
    histogram(&mut text, report);
    text.push_str("\nDearest passes, by host time a pass\n");
    dearest(&mut text, &report.dearest, |call| time(call.ns_per_pass as f64), "host");
    groups(&mut text, report);
    growth(&mut text, report);
    reference(&mut text, report);
    text
}

/// A table without lines, its first `words` columns to the left and the numbers to the right.
pub fn table(header: &[&str], words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        let alignment = if index < words { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
        column.set_padding((0, 2));
    }
    table
}

/// Appends a table, without blanks at the ends of its lines.
pub fn append(text: &mut String, table: &Table) {
    for line in table.lines() {
        let _ = writeln!(text, "  {}", line.trim_end());
    }
}

/// A time in the unit that suits it.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns > 0.0 && ns < 9.95 => format!("{ns:.1} ns"),
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

fn read_by_system(report: &Report) -> String {
    let timer = &report.timer;
    if timer.calls_by_system == 0 {
        return "no call was read by system, nor its paths to the root counted; --every 1 reads all".to_owned();
    }
    format!(
        "{} calls were read by system, at {:.2} times the mean of all, whose systems make up {:.1} % of them",
        count(timer.calls_by_system),
        timer.by_system_over_all,
        100.0 * report.covered_share
    )
}

/// The cost of a unit: of a few nanoseconds, with a digit more.
fn unit(ns: f64) -> String {
    if ns < 100.0 { format!("{ns:.1} ns") } else { time(ns) }
}

fn systems(text: &mut String, report: &Report) {
    let mut header = vec!["system", "SGLang's stage", "share", "total", "runs", "mean", "p50", "p99", "max"];
    header.extend(["a pass", "a request", "a token"]);
    if report.timer.counters {
        header.extend(["instructions", "cycles"]);
    }
    let mut table = table(&header, 2);
    for system in report.systems.iter().chain([&report.total]) {
        table.add_row(system_row(system));
    }
    append(text, &table);
}

fn system_row(system: &SystemCost) -> Vec<String> {
    let mut row = vec![
        system.name.to_owned(),
        system.sglang_stage.to_owned(),
        format!("{:.1} %", 100.0 * system.share),
        time(system.total_ns as f64),
        count(system.runs),
        time(system.mean_ns),
        time(system.p50_ns as f64),
        time(system.p99_ns as f64),
        time(system.max_ns as f64),
        time(system.ns_per_pass),
        time(system.ns_per_request),
        format!("{:.2} ns", system.ns_per_token),
    ];
    row.extend([system.instructions, system.cycles].into_iter().flatten().map(count));
    row
}

fn histogram(text: &mut String, report: &Report) {
    text.push_str("Passes by host time\n");
    let most = report.passes_by_ns.iter().map(|bucket| bucket.passes).max().unwrap_or(0);
    let mut table = table(&["from", "passes", ""], 0);
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Left);
    }
    for bucket in &report.passes_by_ns {
        // What is there is seen, however little.
        let bar = (BAR * bucket.passes as f64 / most as f64).ceil() as usize;
        table.add_row([time(bucket.from_ns as f64), count(bucket.passes), "#".repeat(bar)]);
    }
    append(text, &table);
}

fn dearest(text: &mut String, calls: &[CallCost], cost: impl Fn(&CallCost) -> String, name: &str) {
    let header =
        [name, "iteration", "kind", "rows", "new", "cached", "waiting", "nodes", "leaves", "where, and what was done"];
    let mut table = table(&header, 0);
    for index in [2, 9] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Left);
        }
    }
    for call in calls {
        let shape = &call.shape;
        let passes = if shape.passes > 1 { format!(" x{}", count(shape.passes)) } else { String::new() };
        table.add_row([
            cost(call),
            count(shape.iteration),
            format!("{}{passes}", shape.kind.as_str()),
            count(shape.num_prefill_requests + shape.num_decode_requests),
            count(shape.sum_prefill_tokens),
            count(shape.sum_prefill_kv_tokens),
            count(shape.waiting),
            count(shape.cache_nodes),
            count(shape.evictable_leaves),
            [where_it_went(call), most_work(&call.work)]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        ]);
    }
    append(text, &table);
}

/// The systems that took the most of a call.
fn where_it_went(call: &CallCost) -> String {
    let mut systems: Vec<(&str, u64)> = call.systems_ns.iter().map(|(&name, &ns)| (name, ns)).collect();
    systems.sort_by_key(|&(_, ns)| std::cmp::Reverse(ns));
    let percent = |ns: u64| 100.0 * ns as f64 / call.total_ns.max(1) as f64;
    let most = systems.iter().take(2).map(|&(name, ns)| format!("{name} {:.0} %", percent(ns)));
    most.collect::<Vec<_>>().join(", ")
}

/// The counters of a call that say the most about it.
fn most_work(work: &BTreeMap<&'static str, u64>) -> String {
    let shown = [
        "requests_examined",
        "nodes_walked",
        "path_nodes",
        "leaves_added",
        "leaves_evicted",
        "eviction_leaves",
        "journal_entries",
    ];
    let counts = shown.iter().filter_map(|&name| work.get(name).map(|&value| format!("{name} {}", count(value))));
    counts.collect::<Vec<_>>().join(", ")
}

fn groups(text: &mut String, report: &Report) {
    let (prefill, decode) = (&report.prefill, &report.decode);
    let sizes = [
        ("A pass by kind", "kind", &report.by_kind),
        ("A prefill pass by batch size", "rows", &prefill.by_batch_size),
        ("A prefill pass by requests waiting", "waiting", &prefill.by_waiting),
        ("A prefill pass by cache size", "nodes", &prefill.by_cache_nodes),
        ("A decode pass outside strides by batch size", "rows", &decode.by_batch_size),
        ("A decode pass outside strides by requests waiting", "waiting", &decode.by_waiting),
        ("A decode pass outside strides by cache size", "nodes", &decode.by_cache_nodes),
    ];
    for (title, name, groups) in sizes.into_iter().filter(|(_, _, groups)| !groups.is_empty()) {
        let _ = writeln!(text, "\n{title}");
        group(text, name, groups, &report.systems);
    }
}

fn group(text: &mut String, name: &str, groups: &[GroupCost], systems: &[SystemCost]) {
    let columns: Vec<&str> =
        systems.iter().filter(|system| system.share >= COLUMN_SHARE).map(|system| system.name).collect();
    let mut header = vec![name, "passes", "mean", "p99"];
    header.extend(&columns);
    let mut table = table(&header, 1);
    for group in groups {
        let mut row = vec![group.bucket.clone(), count(group.passes), time(group.mean_ns), time(group.p99_ns as f64)];
        row.extend(columns.iter().map(|name| group.systems_ns.get(name).map_or("-".to_owned(), |&ns| time(ns))));
        table.add_row(row);
    }
    append(text, &table);
}

fn growth(text: &mut String, report: &Report) {
    text.push_str("\nWhat grows\n");
    if report.growth.is_empty() {
        text.push_str(
            "  no system's mean by 2 times and by more than a reading, from the smallest to the largest sizes above\n",
        );
    }
    for growth in &report.growth {
        let _ = writeln!(
            text,
            "  {} in {} passes with {}: {:.1} times, from {} at {} to {} at {}",
            growth.system,
            growth.pass,
            growth.by,
            growth.ratio,
            time(growth.from_ns),
            growth.from,
            time(growth.to_ns),
            growth.to
        );
    }
}

fn reference(text: &mut String, report: &Report) {
    let reference = &report.reference;
    let _ = writeln!(
        text,
        "\nThe same work in the reference's own structures (a model: counts of this run times costs of a unit): {}, {} a pass",
        time(reference.total_ns),
        time(reference.ns_per_pass)
    );
    let mut table = table(&["work", "count", "a unit", "in all"], 1);
    for part in &reference.parts {
        table.add_row([part.what.to_owned(), count(part.count), unit(part.unit_ns), time(part.total_ns)]);
    }
    append(text, &table);
    if !reference.dearest.is_empty() {
        text.push_str("\nPasses that would cost the reference the most, of those read by system\n");
        dearest(text, &reference.dearest, |call| call.reference_ns.map_or("-".to_owned(), time), "reference");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let cases = [
            (0.0, "0 ns"),
            (0.04, "0.0 ns"),
            (9.4, "9.4 ns"),
            (9.96, "10 ns"),
            (999.0, "999 ns"),
            (1_500.0, "1.50 us"),
            (2.5e6, "2.50 ms"),
            (3e9, "3.00 s"),
        ];
        for (ns, text) in cases {
            assert_eq!(time(ns), text);
        }
    }
}

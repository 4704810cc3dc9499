//! The two tables: what the runs cost, and what they came to.

use comfy_table::{CellAlignment, Table, presets};

use crate::case::{Counts, Outcome};
use crate::measure::Row;

/// What the runs cost, in Markdown.
pub fn costs(rows: &[Row]) -> Table {
    let mut table = markdown(&[
        "trace",
        "page",
        "requests",
        "servesim, events counted: µs a request",
        "peer, events off",
        "ratio",
        "peer, events on",
        "ratio",
        "of the peer's: making the requests",
        "peak MB: servesim",
        "peer, off",
        "peer, on",
    ]);
    for row in rows {
        let requests = row.servesim.counts.finished;
        let (ours, off) = (us_a_request(&row.servesim), us_a_request(&row.peer));
        let on = us_a_request(&row.peer_with_events);
        table.add_row([
            row.trace.name().to_owned(),
            row.page_size.to_string(),
            grouped(requests),
            format!("{ours:.1}"),
            format!("{off:.1}"),
            format!("{:.1}", off / ours),
            format!("{on:.1}"),
            format!("{:.1}", on / ours),
            format!("{:.1}", us_a_request(&row.requests_alone)),
            megabytes(&row.servesim),
            megabytes(&row.peer),
            megabytes(&row.peer_with_events),
        ]);
    }
    align(&mut table, 1);
    table
}

/// Whose results a row of the second table shows.
struct Shown<'r> {
    who: &'static str,
    counts: &'r Counts,
    /// What they are compared with; none for what the others are compared with.
    against: Option<&'r Counts>,
}

/// What the runs came to, in Markdown. Differences are from what SGLang's classes came to where that was recorded, else from
/// servesim. `recorded` has one entry a row.
pub fn results(rows: &[Row], recorded: &[Option<Counts>]) -> Table {
    let mut table = markdown(&[
        "trace",
        "page",
        "who",
        "prefill passes",
        "decode passes",
        "hit tokens",
        "output tokens",
        "stored events",
        "blocks",
        "removed events",
        "blocks",
        "retracted",
        "rejected",
    ]);
    for (row, recorded) in rows.iter().zip(recorded) {
        let (ours, peer) = (&row.servesim.counts, &row.peer_with_events.counts);
        let mut shown = Vec::new();
        if let Some(recorded) = recorded {
            shown.push(Shown { who: "SGLang, recorded", counts: recorded, against: None });
        }
        shown.push(Shown { who: "servesim", counts: ours, against: recorded.as_ref() });
        shown.push(Shown { who: "aisimulate-core", counts: peer, against: Some(recorded.as_ref().unwrap_or(ours)) });
        for shown in shown {
            let mut cells = vec![row.trace.name().to_owned(), row.page_size.to_string(), shown.who.to_owned()];
            let against = shown.against.map(figures);
            let compared = figures(shown.counts).into_iter().enumerate();
            cells.extend(compared.map(|(at, figure)| with_difference(figure, against.map(|against| against[at]))));
            table.add_row(cells);
        }
    }
    align(&mut table, 3);
    table
}

/// The figures of the second table in the order of its columns.
fn figures(counts: &Counts) -> [u64; 10] {
    [
        counts.extend_passes,
        counts.decode_passes,
        counts.hit_tokens,
        counts.output_tokens,
        counts.stored.events,
        counts.stored.blocks,
        counts.removed.events,
        counts.removed.blocks,
        counts.retracted,
        counts.rejected,
    ]
}

fn with_difference(figure: u64, against: Option<u64>) -> String {
    let shown = grouped(figure);
    match against {
        None => shown,
        Some(against) if against == figure => format!("{shown} (=)"),
        Some(0) => format!("{shown} (from 0)"),
        Some(against) => {
            let percent = (figure as f64 - against as f64) / against as f64 * 100.0;
            // Small differences keep their sign of life: 4 digits, where two would show 0.
            if percent.abs() < 0.01 {
                format!("{shown} ({percent:+.4} %)")
            } else {
                format!("{shown} ({percent:+.2} %)")
            }
        }
    }
}

fn us_a_request(outcome: &Outcome) -> f64 {
    outcome.cpu_us as f64 / outcome.counts.finished.max(1) as f64
}

fn megabytes(outcome: &Outcome) -> String {
    format!("{:.0}", outcome.peak_bytes as f64 / 1e6)
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn markdown(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    table
}

fn align(table: &mut Table, first_number: usize) {
    for column in table.column_iter_mut().skip(first_number) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

//! Where two logs differ.

use std::fmt::Debug;

use servesim_scenarios::case::{EventLog, Gauges, PassLog, PublishLog};

/// How much of a value is shown.
const SHOWN: usize = 400;

/// The first difference of two logs in words: the pass, the field, what was expected and what came. None when they are equal.
///
/// Ratios are compared to nine digits, the precision of the record.
pub fn first_difference(expected: &[PassLog], got: &[PassLog]) -> Option<String> {
    for (want, have) in expected.iter().zip(got) {
        if let Some(difference) = pass_difference(want, have) {
            return Some(format!("pass {}: {difference}", want.pass));
        }
    }
    (expected.len() != got.len()).then(|| format!("{} passes expected, got {}", expected.len(), got.len()))
}

fn pass_difference(want: &PassLog, have: &PassLog) -> Option<String> {
    field("pass", &want.pass, &have.pass)
        .or_else(|| field("submitted", &want.submitted, &have.submitted))
        .or_else(|| field("abort_requested", &want.abort_requested, &have.abort_requested))
        .or_else(|| field("retracted", &want.retracted, &have.retracted))
        .or_else(|| field("batch", &want.batch, &have.batch))
        .or_else(|| field("waiting", &want.waiting, &have.waiting))
        .or_else(|| gauges("after_schedule", Some(&want.after_schedule), Some(&have.after_schedule)))
        .or_else(|| field("finished", &want.finished, &have.finished))
        .or_else(|| field("held", &want.held, &have.held))
        .or_else(|| field("dropped", &want.dropped, &have.dropped))
        .or_else(|| field("rejected", &want.rejected, &have.rejected))
        .or_else(|| gauges("after_results", want.after_results.as_ref(), have.after_results.as_ref()))
        .or_else(|| published(&want.published, &have.published))
}

fn field<T: PartialEq + Debug>(name: &str, want: &T, have: &T) -> Option<String> {
    (want != have).then(|| format!("{name}: expected {}, got {}", short(want), short(have)))
}

fn gauges(name: &str, want: Option<&Gauges>, have: Option<&Gauges>) -> Option<String> {
    let plain = |gauges: Option<&Gauges>| gauges.map(|g| (g.free, g.evictable, g.protected, format!("{:.9}", g.ratio)));
    let (want, have) = (plain(want), plain(have));
    (want != have)
        .then(|| format!("{name} (free, evictable, protected, ratio): expected {}, got {}", short(&want), short(&have)))
}

fn published(want: &[PublishLog], have: &[PublishLog]) -> Option<String> {
    let reasons = |all: &[PublishLog]| all.iter().map(|batch| batch.why.clone()).collect::<Vec<_>>();
    if let Some(difference) = field("published, reasons", &reasons(want), &reasons(have)) {
        return Some(difference);
    }
    for (want, have) in want.iter().zip(have) {
        for (index, (want, have)) in want.events.iter().zip(&have.events).enumerate() {
            if want != have {
                return field(&format!("published, event {index}"), &describe(want), &describe(have))
                    .or_else(|| field(&format!("published, event {index}"), want, have));
            }
        }
        let difference = field("published, number of events", &want.events.len(), &have.events.len());
        if difference.is_some() {
            return difference;
        }
    }
    None
}

fn describe(event: &EventLog) -> String {
    match event {
        EventLog::Stored { parent, hashes, tokens, block_size } => {
            format!("stored {} blocks, {tokens} tokens, size {block_size}, parent {parent:?}", hashes.len())
        }
        EventLog::Removed { hashes } => format!("removed {} blocks", hashes.len()),
        EventLog::Cleared => "cleared".to_string(),
    }
}

fn short<T: Debug>(value: &T) -> String {
    let text = format!("{value:?}");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

//! Compares what a worker did with what was recorded, field by field.

use std::fmt::Debug;

use crate::case::{EventLog, PassLog, PublishLog};

/// The first difference between two logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The iteration.
    pub pass: u64,
    /// The field of its record.
    pub field: &'static str,
    /// What was recorded.
    pub expected: String,
    /// What the worker did.
    pub got: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference { pass, field, expected, got } = self;
        write!(f, "pass {pass}: {field}: expected {expected}, got {got}")
    }
}

/// The first field of the first iteration in which the logs differ. Requests that were rejected, dropped or retracted in one
/// iteration are a set: the recorder's order among them has no meaning.
pub fn first_difference(expected: &[PassLog], got: &[PassLog]) -> Option<Difference> {
    for (expected, got) in expected.iter().zip(got) {
        if let Some(difference) = pass_difference(expected, got) {
            return Some(difference);
        }
    }
    differ(expected.len().min(got.len()) as u64, "passes", &expected.len(), &got.len())
}

fn pass_difference(expected: &PassLog, got: &PassLog) -> Option<Difference> {
    let pass = expected.pass;
    let sets = [
        ("rejected", &expected.rejected, &got.rejected),
        ("dropped", &expected.dropped, &got.dropped),
        ("retracted", &expected.retracted, &got.retracted),
    ];
    differ(pass, "pass", &expected.pass, &got.pass)
        .or_else(|| differ(pass, "submitted", &expected.submitted, &got.submitted))
        .or_else(|| differ(pass, "abort_requested", &expected.abort_requested, &got.abort_requested))
        .or_else(|| sets.iter().find_map(|(field, expected, got)| differ(pass, field, &sorted(expected), &sorted(got))))
        .or_else(|| differ(pass, "batch", &expected.batch, &got.batch))
        .or_else(|| differ(pass, "finished", &expected.finished, &got.finished))
        .or_else(|| differ(pass, "held", &expected.held, &got.held))
        .or_else(|| differ(pass, "waiting", &expected.waiting, &got.waiting))
        .or_else(|| differ(pass, "after_schedule", &expected.after_schedule, &got.after_schedule))
        .or_else(|| differ(pass, "after_results", &expected.after_results, &got.after_results))
        .or_else(|| published_difference(pass, &expected.published, &got.published))
}

fn sorted(names: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn published_difference(pass: u64, expected: &[PublishLog], got: &[PublishLog]) -> Option<Difference> {
    let whys = |published: &[PublishLog]| -> Vec<String> { published.iter().map(|batch| batch.why.clone()).collect() };
    let batches = || expected.iter().zip(got);
    differ(pass, "published", &whys(expected), &whys(got))
        .or_else(|| {
            batches()
                .find_map(|(expected, got)| differ(pass, "published", &shapes(&expected.events), &shapes(&got.events)))
        })
        .or_else(|| batches().find_map(|(expected, got)| hash_difference(pass, &expected.events, &got.events)))
}

fn shapes(events: &[EventLog]) -> Vec<String> {
    events.iter().map(event_shape).collect()
}

/// An event by its counts.
fn event_shape(event: &EventLog) -> String {
    match event {
        EventLog::Cleared => "cleared".to_owned(),
        EventLog::Removed { hashes } => format!("removed {}", hashes.len()),
        EventLog::Stored { parent, hashes, tokens, block_size } => {
            let at = if parent.is_some() { "below a block" } else { "at the root" };
            format!("stored {} of {block_size} ({tokens} tokens) {at}", hashes.len())
        }
    }
}

/// The first parent or block hash that differs, of events whose counts are equal.
fn hash_difference(pass: u64, expected: &[EventLog], got: &[EventLog]) -> Option<Difference> {
    expected.iter().zip(got).enumerate().find_map(|(event, (expected, got))| {
        let ((expected_parent, expected), (got_parent, got)) = (hashes_of(expected), hashes_of(got));
        let block = expected.iter().zip(got).position(|(expected, got)| expected != got);
        let at = |parent: Option<i64>, hashes: &[i64]| match block {
            Some(block) => format!("event {event} block {block}: {}", hashes[block]),
            None => format!("event {event} parent: {parent:?}"),
        };
        let (expected_text, got_text) = (at(expected_parent, expected), at(got_parent, got));
        differ(pass, "published", &expected_text, &got_text)
    })
}

fn hashes_of(event: &EventLog) -> (Option<i64>, &[i64]) {
    match event {
        EventLog::Cleared => (None, &[]),
        EventLog::Removed { hashes } => (None, hashes),
        EventLog::Stored { parent, hashes, .. } => (*parent, hashes),
    }
}

fn differ<T: PartialEq + Debug>(pass: u64, field: &'static str, expected: &T, got: &T) -> Option<Difference> {
    (expected != got).then(|| Difference { pass, field, expected: format!("{expected:?}"), got: format!("{got:?}") })
}

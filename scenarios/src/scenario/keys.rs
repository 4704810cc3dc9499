//! Which keys a scenario can have, and what a misspelt one was meant to be.

use super::engine::engine_keys;
use super::timing::{SECTIONS, timing_keys};

/// The kinds of workloads with the keys of each, without `workload.`; `kind`, `limit` and `duration_s` belong to all.
pub const KINDS: [(&str, &[&str]); 7] = [
    ("sessions", &["path", "lenient", "lanes", "loops"]),
    ("weka", &["path", "lenient", "mode", "lanes", "loops", "speedup", "output_content", "shared_prefix_tokens"]),
    ("mooncake", &["path", "lenient", "mode", "lanes", "loops", "speedup", "rate_per_s", "arrivals", "block_size"]),
    ("azure", &["path", "lenient", "mode", "lanes", "loops", "speedup", "rate_per_s", "arrivals"]),
    (
        "coding-agent",
        &[
            "seed",
            "lanes",
            "requests",
            "turns",
            "system_tokens",
            "task_tokens",
            "tool_result_median_tokens",
            "tool_result_sigma",
            "tool_result_max_tokens",
            "output_median_tokens",
            "output_sigma",
            "output_max_tokens",
            "session_max_tokens",
            "delay_ms",
        ],
    ),
    (
        "shared-prefix",
        &[
            "seed",
            "mode",
            "lanes",
            "rate_per_s",
            "arrivals",
            "groups",
            "requests_per_group",
            "prefix_tokens",
            "suffix_tokens",
            "output_tokens",
        ],
    ),
    ("random", &["seed", "mode", "lanes", "rate_per_s", "arrivals", "requests", "input_tokens", "output_tokens"]),
];

const ALL_KINDS: [&str; 3] = ["kind", "limit", "duration_s"];
const OTHER_KEYS: [&str; 13] = [
    "name",
    "description",
    "seed",
    "slo.ttft_ms",
    "slo.tpot_ms",
    "output.dir",
    "output.requests",
    "output.timeseries",
    "output.interval_s",
    "output.kv_events",
    "output.kv_events_config",
    "output.emit_token_ids",
    "output.kv_events_reason",
];

/// The tables that a scenario can have.
fn sections() -> impl Iterator<Item = &'static str> {
    ["engine", "engine.radix_eviction_policy_config"].into_iter().chain(SECTIONS).chain(["workload", "slo", "output"])
}

/// Whether a key names a table that a scenario can have.
pub fn is_section(key: &str) -> bool {
    sections().any(|section| section == key)
}

/// All keys of a scenario whose workload is of `kind`.
pub fn known_keys(kind: &str) -> Vec<String> {
    let own = KINDS.iter().filter(|(name, _)| *name == kind).flat_map(|(_, keys)| keys.iter());
    let workload = ALL_KINDS.iter().chain(own).map(|key| format!("workload.{key}"));
    let others = OTHER_KEYS.iter().map(|key| key.to_string());
    others.chain(engine_keys()).chain(timing_keys()).chain(workload).collect()
}

/// The kinds that a workload key belongs to.
pub fn kinds_with(key: &str) -> Vec<&'static str> {
    let Some(key) = key.strip_prefix("workload.") else { return Vec::new() };
    KINDS.iter().filter(|(_, keys)| keys.contains(&key)).map(|(name, _)| *name).collect()
}

/// What to say instead of an unknown key: the nearest known key, or all of its section.
pub fn suggestion(key: &str, known: &[String]) -> String {
    let nearest = known.iter().map(|candidate| (edits(key, candidate), candidate)).min();
    if let Some((distance, candidate)) = nearest
        && distance <= 3
        && distance * 3 <= key.len()
    {
        return format!("a known key, such as `{candidate}`");
    }
    let section = key.rsplit_once('.').map_or("", |(section, _)| section);
    let section = if is_section(section) { section } else { "" };
    // A key of the section itself, not of a table in it, which is listed by its name.
    let of_section = |candidate: &str| match candidate.strip_prefix(section) {
        Some(rest) if section.is_empty() => !rest.contains('.'),
        Some(rest) => rest.strip_prefix('.').is_some_and(|name| !name.contains('.')),
        None => false,
    };
    let keys = known.iter().map(String::as_str).filter(|key| of_section(key) && !is_section(key)).map(str::to_owned);
    let tables = sections().filter(|table| of_section(table)).map(|table| format!("[{table}]"));
    format!("one of {}", keys.chain(tables).collect::<Vec<_>>().join(", "))
}

/// How many letters must be changed, added or dropped to make one text of the other.
fn edits(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in right.iter().enumerate() {
            let cost = (diagonal + usize::from(a != *b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = row[j + 1];
            row[j + 1] = cost;
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("same", "same"), 0);
    }

    #[test]
    fn a_far_miss_lists_the_section() {
        let known = known_keys("sessions");
        let text = suggestion("workload.block_size_of_the_trace", &known);
        assert_eq!(
            text,
            "one of workload.kind, workload.limit, workload.duration_s, workload.path, workload.lenient, workload.lanes, workload.loops"
        );
        assert!(suggestion("colour", &known).starts_with("one of name, description, seed, [engine]"));
        assert!(suggestion("workload.lane", &known).contains("`workload.lanes`"));
    }
}

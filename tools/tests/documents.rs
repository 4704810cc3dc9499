//! Checks that the documents say what the program does: every key of a scenario with its default, the output that README
//! shows, the names of recordings.

use std::path::{Path, PathBuf};

use crate::program::{Files, servesim};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn document(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The part of a document under the heading that ends in `heading`, up to the next heading of any level.
fn section<'d>(text: &'d str, heading: &str) -> &'d str {
    let start = text.find(&format!("{heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let body = &text[start + heading.len()..];
    body.find("\n#").map_or(body, |end| &body[..end])
}

/// The keys that `--print-config` prints, dotted, each with its default where it has one.
fn defaults(printed: &str) -> Vec<(String, Option<String>)> {
    let mut table = String::new();
    let mut keys = Vec::new();
    for line in printed.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            table = format!("{name}.");
        } else if let Some(key) = line.strip_prefix("# ").and_then(|line| line.strip_suffix(" is not set")) {
            keys.push((key.to_owned(), Some("not set".to_owned())));
        } else if let Some((key, value)) = line.split_once(" = ") {
            let default = value.strip_suffix("  # default").map(|value| format!("`{value}`"));
            keys.push((format!("{table}{key}"), default));
        }
    }
    keys
}

#[test]
fn every_key_is_documented_with_its_default() {
    let files = Files::new();
    let text = document("docs/scenario.md");
    let kinds = [
        ("sessions", &[""][..]),
        ("weka", &["closed", "open"]),
        ("mooncake", &["closed", "open"]),
        ("azure", &["closed", "open"]),
        ("coding-agent", &[""]),
        ("shared-prefix", &["closed", "open"]),
        ("random", &["closed", "open"]),
    ];
    let mut checked = 0;
    for (kind, modes) in kinds {
        let own = section(&text, &format!("### `kind = \"{kind}\"`"));
        for mode in modes {
            let mode = if mode.is_empty() { String::new() } else { format!("mode = \"{mode}\"\n") };
            let path = if own.contains("`workload.path`") { "path = \"p\"\n" } else { "" };
            let scenario = files.write("s.toml", format!("[workload]\nkind = \"{kind}\"\n{path}{mode}"));
            let printed = servesim(&["run", &scenario, "--print-config"]).succeeds().stdout;
            for (key, default) in defaults(&printed) {
                let shared = ["workload.kind", "workload.limit", "workload.duration_s"].contains(&key.as_str())
                    || !key.starts_with("workload.");
                let place = if shared { &text } else { own };
                let row = place.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
                let row = row.unwrap_or_else(|| panic!("{key} of kind {kind} is not documented"));
                if let Some(default) = default.filter(|_| key != "name") {
                    assert!(
                        row.contains(&format!("| {default} |")),
                        "{key} of kind {kind} has default {default}: {row}"
                    );
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 400, "{checked} keys");
}

#[test]
fn the_readme_shows_what_the_program_prints() {
    let readme = document("README.md");
    let shown = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an output");
    assert_eq!(servesim(&["run", "coding-agent"]).succeeds().stdout, shown);
    let scenario = readme.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a scenario");
    let files = Files::new();
    servesim(&["run", &files.write("chat.toml", scenario), "--print-config"]).succeeds();
}

#[test]
fn recordings_and_files_that_the_architecture_names_are_there() {
    let text = document("ARCHITECTURE.md");
    let oddities = &text[text.find("## Oddities").expect("the heading")..];
    let rows = oddities.lines().filter(|line| line.starts_with("| ")).skip(1);
    let recordings: Vec<&str> = rows.flat_map(|row| row.rsplit('|').nth(1).expect("two columns").split('`')).collect();
    let recordings: Vec<&str> = recordings.into_iter().filter(|name| name.contains('_')).collect();
    assert!(recordings.len() > 20, "{recordings:?}");
    for name in recordings {
        let path = root().join(format!("tests/golden/{name}.json.gz"));
        assert!(path.is_file(), "{} is named and not there", path.display());
    }
    let map = section(&text, "## Code map");
    let names = map.split('`').filter(|name| name.ends_with(".rs"));
    for name in names {
        let found = ["engine/src", "scenarios/src"].iter().any(|folder| root().join(folder).join(name).is_file());
        assert!(found, "{name} is named and not there");
    }
}

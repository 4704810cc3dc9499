//! Checks of `servesim scenarios` and of the library that it shows.
//!
//! - Contract: list, show and copy; every name has a page in the documents, and every page a name.
//! - Bad input: unknown names, files that are there.

use std::collections::BTreeSet;
use std::path::Path;

use crate::program::{Files, servesim};

/// The names under each heading of `scenarios list`.
fn listed() -> Vec<(String, bool)> {
    let text = servesim(&["scenarios", "list"]).succeeds().stdout;
    let mut is_batch = false;
    let mut names = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("  ") {
            None => is_batch = line.starts_with("batches"),
            Some(entry) => {
                let (name, description) = entry.split_once(' ').expect("a name and a description");
                assert!(description.trim().len() > 20, "{name} says what it shows: {description}");
                names.push((name.to_owned(), is_batch));
            }
        }
    }
    names
}

#[test]
fn every_name_can_be_shown_copied_and_planned() {
    let files = Files::new();
    let names = listed();
    assert!(names.iter().filter(|(_, is_batch)| *is_batch).count() >= 8, "{names:?}");
    for (name, is_batch) in names {
        let shown = servesim(&["scenarios", "show", &name]).succeeds().stdout;
        let folder = files.folder().to_str().expect("UTF-8");
        servesim(&["scenarios", "copy", &name, folder]).succeeds();
        let file = format!("{name}.toml");
        assert_eq!(files.read(&file), shown);
        assert_eq!(shown.contains("\nbase = "), is_batch, "{name}");
        if is_batch {
            // A copy is a batch of its own: with a setting that no case can have, all of its cases are planned and fail.
            let out = files.path(&format!("{name}-out"));
            let set = ["--set", "engine.page_size=0"];
            let said = servesim(&[&["batch", &files.path(&file), "--out", &out], &set[..]].concat());
            assert_eq!(said.code, 1, "{name}: {}", said.stderr);
            assert!(said.stderr.contains("failed") && !said.stderr.contains("missing"), "{name}: {}", said.stderr);
        }
    }
    let there = files.path("coding-agent.toml");
    servesim(&["scenarios", "copy", "coding-agent", &there]).refuses(&["coding-agent.toml: found a file", "--force"]);
    servesim(&["scenarios", "copy", "coding-agent", &there, "--force"]).succeeds();
    servesim(&["scenarios", "copy", "coding-agent", "/proc/x/y"]).refuses(&["/proc/x/y: cannot be written"]);
    servesim(&["scenarios", "show", "nothing"]).refuses(&["nothing: found no such scenario or batch", "coding-agent"]);
}

#[test]
fn every_batch_has_a_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/library");
    let pages: BTreeSet<String> = std::fs::read_dir(folder.clone())
        .expect("the folder is there")
        .flatten()
        .filter_map(|page| page.file_name().into_string().ok()?.strip_suffix(".md").map(str::to_owned))
        .collect();
    let names: BTreeSet<String> =
        listed().into_iter().filter(|(_, is_batch)| *is_batch).map(|(name, _)| name).collect();
    assert_eq!(pages, names);
    for name in names {
        let text = std::fs::read_to_string(folder.join(format!("{name}.md"))).expect("readable");
        assert!(text.contains(&format!("servesim batch {name} --out")), "{name} says how to run it");
    }
}

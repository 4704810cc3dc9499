//! Shards and their merge.
//!
//! - Differential: merged shards are the same bytes as the whole batch, however many there are, in whatever order.
//! - Bad input: folders that are no shards of one batch.

use super::{SMALL, batch, column, same};
use crate::program::{Files, servesim};

#[test]
fn merged_shards_are_the_whole_batch() {
    let files = Files::new();
    let failing = format!(
        "{SMALL}[[case]]\nname = \"good\"\n[[case]]\nname = \"bad\"\nset = {{ \"engine.decode_log_interval\" = 0 }}\n"
    );
    for (name, text, code) in [("s", SMALL, 0), ("f", &failing, 1)] {
        let path = |part: &str| files.path(&format!("{name}-{part}"));
        assert_eq!(batch(&files, text, &format!("{name}-whole"), &[]).code, code);
        for shard in ["1", "2", "3"] {
            let said = batch(&files, text, &format!("{name}-{shard}"), &["--shard", &format!("{shard}/3")]);
            assert!(said.code <= code, "{}", said.stderr);
        }
        assert!(
            column(&files, &format!("{name}-1"), "case").len() < column(&files, &format!("{name}-whole"), "case").len()
        );
        let shards = [path("3"), path("1"), path("2")];
        let merge = |out: &str| servesim(&["merge", &shards[0], &shards[1], &shards[2], "--out", out]);
        let said = merge(&path("merged"));
        assert_eq!(said.code, code, "{}", said.stderr);
        same(path("whole").as_ref(), path("merged").as_ref());
        // Again: there is nothing left to do.
        assert_eq!(merge(&path("merged")).code, code);
        same(path("whole").as_ref(), path("merged").as_ref());
    }
}

#[test]
fn a_missing_shard_is_told_and_can_be_made_up_for() {
    let files = Files::new();
    batch(&files, SMALL, "whole", &[]).succeeds();
    batch(&files, SMALL, "one", &["--shard", "1/2"]).succeeds();
    let merged = files.path("merged");
    let said = servesim(&["merge", &files.path("one"), "--out", &merged]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stderr.contains("2 of 4 cases done, 0 failed, 2 missing"), "{}", said.stderr);
    assert_eq!(column(&files, "merged", "status"), ["done", "missing", "done", "missing"]);
    let said = batch(&files, SMALL, "merged", &["--resume"]).succeeds();
    assert!(said.stderr.contains("2 of 4 cases are done already"), "{}", said.stderr);
    same(files.path("whole").as_ref(), merged.as_ref());
}

#[test]
fn other_folders_are_refused() {
    let files = Files::new();
    batch(&files, SMALL, "one", &["--shard", "1/2"]).succeeds();
    let (one, merged) = (files.path("one"), files.path("merged"));
    servesim(&["merge", &files.path("nothing"), "--out", &merged]).refuses(&["manifest.json: cannot be read"]);
    for (change, part) in [("= 61", "small+page_size=1+schedule_policy=fcfs: found other settings"), ("= 60", "")] {
        let text = SMALL.replace("= 60", change);
        let text = if part.is_empty() { text.replace("[1, 16]", "[1]") } else { text };
        batch(&files, &text, "two", &["--shard", "2/2", "--resume"]);
        let expected = if part.is_empty() { "cases: found 2 of them, expected 4" } else { part };
        servesim(&["merge", &one, &files.path("two"), "--out", &merged]).refuses(&["/two: ", expected]);
    }
    batch(&files, &SMALL.replace("= 60", "= 9"), "other", &[]).succeeds();
    servesim(&["merge", &one, "--out", &files.path("other")]).refuses(&["/other: found the results of another batch"]);
    files.write("one/manifest.json", "{\"format\": 1}");
    servesim(&["merge", &one, "--out", &merged]).refuses(&["manifest.json: found no manifest of a batch"]);
}

//! Cases that fail, and folders that cannot be used.
//!
//! - Contract: a case that fails is a row with its reason, the others are done, and the exit code is 1.
//! - Bad input: places that cannot be written to, a folder that another batch writes into.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::{SMALL, batch, column, results};
use crate::program::{Files, command, servesim};

#[test]
fn a_case_that_fails_leaves_the_others_alone() {
    let files = Files::new();
    let text = "name = \"f\"\nbase = \"coding-agent\"\n[set]\n\"workload.requests\" = 30\n\
                [[case]]\nname = \"bad value\"\nset = { \"engine.page_size\" = 0 }\n\
                [[case]]\nname = \"good\"\n\
                [[case]]\nname = \"slow\"\nmax_wall_s = 0.2\nset = { \"workload.requests\" = 100000000 }\n\
                [[case]]\nname = \"large\"\nmax_rss_mb = 1\n\
                [[case]]\nname = \"no such trace\"\nset = { \"workload.kind\" = \"azure\" }\n";
    let said = batch(&files, text, "out", &["--jobs", "2"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert_eq!(column(&files, "out", "status"), ["failed", "done", "failed", "failed", "failed"]);
    let reasons = column(&files, "out", "reason");
    for (reason, part) in reasons.iter().zip([
        "batch.toml:5: engine.page_size: found 0",
        "",
        "max_wall_s: found a longer run, expected at most 0.2 s",
        "max_rss_mb: found more resident memory, expected at most 1 MB",
        "workload.requests",
    ]) {
        assert!(reason.contains(part) && reason.is_empty() == part.is_empty(), "{reason:?} has no {part:?}");
        assert!(said.stderr.contains(part) && !reason.contains(".partial"), "{}", said.stderr);
    }
    assert!(
        said.stderr.ends_with("report.html\n") && said.stderr.contains("1 of 5 cases done, 4 failed"),
        "{}",
        said.stderr
    );
    let report = files.read("out/report.html");
    assert!(report.contains("max_rss_mb: found more resident memory"), "the report tells of failures");
    // Again: what failed is tried again and fails the same way, what is done stays.
    let before = results(files.path("out").as_ref());
    let again = batch(&files, text, "out", &["--resume"]);
    assert!(again.code == 1 && again.stderr.contains("1 of 5 cases are done already"), "{}", again.stderr);
    assert!(results(files.path("out").as_ref()) == before, "failures read the same each time");
    // Mended, all is done, and no failure is left.
    let mended = text.replace("= 0 }", "= 4 }").replace("100000000", "31").replace("max_rss_mb = 1\n", "");
    let mended = mended.replace("\"workload.kind\" = \"azure\"", "\"workload.requests\" = 32");
    batch(&files, &mended, "out", &["--resume", "--max-wall-s", "60"]).succeeds();
    assert_eq!(std::fs::read_dir(files.path("out/failed")).expect("a folder").count(), 0);
}

#[test]
fn a_run_that_fails_tells_its_own_error() {
    let files = Files::new();
    let scenario = files.write("s.toml", "[workload]\nkind = \"mooncake\"\npath = \"t.jsonl\"\n");
    files.write("t.jsonl", "{\"timestamp\": 0, \"input_length\": 7, \"output_length\": 2, \"hash_ids\": [1, 2]}\n");
    let out = files.path("out");
    let said = servesim(&["batch", &scenario, "--out", &out]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(column(&files, "out", "reason")[0].contains("t.jsonl:1: hash_ids: found"), "{}", said.stderr);
    // Lenient, the row is skipped; then there is none left.
    let said = servesim(&["batch", &scenario, "--out", &out, "--resume", "--lenient"]);
    assert!(
        said.code == 1 && column(&files, "out", "reason")[0].contains("found no row that can be used"),
        "{}",
        said.stderr
    );
    let good = "{\"timestamp\": 0, \"input_length\": 7, \"output_length\": 2, \"hash_ids\": [1]}\n";
    let bad = files.read("t.jsonl");
    files.write("t.jsonl", format!("{good}{bad}"));
    servesim(&["batch", &scenario, "--out", &out, "--resume", "--lenient"]).succeeds();
    let outcome = files.read("out/cases/s/case.json");
    assert!(outcome.contains("skipped 1 row that cannot be used"), "{outcome}");
}

#[test]
fn a_place_that_cannot_be_written_to_is_refused() {
    let files = Files::new();
    files.write("file", "");
    for place in ["file", "file/deep"] {
        batch(&files, SMALL, place, &[]).refuses(&["/file", ": cannot be made: "]);
    }
    let proc = ["batch", "coding-agent", "--out", "/proc/servesim"];
    servesim(&proc).refuses(&["/proc/servesim: cannot be made"]);
    // A file where results should be: the cases are done all the same.
    std::fs::create_dir_all(files.path("out/results.csv/x")).expect("made");
    let said = batch(&files, SMALL, "out", &[]);
    assert!(said.code == 1 && said.stderr.contains("results.csv: cannot be written"), "{}", said.stderr);
    std::fs::remove_dir_all(files.path("out/results.csv")).expect("removed");
    let said = batch(&files, SMALL, "out", &["--resume"]).succeeds();
    assert!(said.stderr.contains("4 of 4 cases are done already"), "{}", said.stderr);
}

/// A batch that runs until it is killed.
fn endless(files: &Files, out: &str) -> Child {
    let file = files.write("endless.toml", "base = \"coding-agent\"\n[set]\n\"workload.requests\" = 100000000\n");
    let child = command(&["batch", &file, "--out", out]).stderr(Stdio::null()).spawn().expect("started");
    let lock = std::path::Path::new(out).join("manifest.json");
    let started = Instant::now();
    while !lock.exists() {
        assert!(started.elapsed() < Duration::from_secs(20), "the batch has not started");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

#[test]
fn two_batches_never_share_a_folder() {
    let files = Files::new();
    let out = files.path("out");
    let mut first = endless(&files, &out);
    let said = batch(&files, SMALL, "out", &["--resume"]);
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    said.refuses(&["/out: found another batch that writes there"]);
    // The lock went with the process, and its children end with it.
    batch(&files, SMALL, "out", &["--resume"]).succeeds();
    assert!(!std::path::Path::new(&files.path("out/.partial")).exists());
}

#[test]
#[cfg(target_os = "linux")]
fn the_children_of_a_killed_batch_end() {
    let files = Files::new();
    let out = files.path("out");
    let mut first = endless(&files, &out);
    let pid = first.id();
    let children = || std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let of_threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        tasks
            .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
            .collect::<Vec<String>>()
    };
    let started = Instant::now();
    while of_threads().is_empty() && children().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(20), "no child has started");
        std::thread::sleep(Duration::from_millis(5));
    }
    let found = of_threads();
    first.kill().expect("it runs");
    first.wait().expect("it ends");
    let runs = |pid: &String| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        status.starts_with("Name:\tservesim") && !status.contains("State:\tZ")
    };
    let started = Instant::now();
    while found.iter().any(runs) {
        assert!(started.elapsed() < Duration::from_secs(10), "a child outlives its batch");
        std::thread::sleep(Duration::from_millis(5));
    }
}

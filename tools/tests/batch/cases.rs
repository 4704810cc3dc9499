//! Which cases a batch has, and what comes out.
//!
//! - Contract: names, order and columns; bad input with its place.
//! - Differential: any number of jobs gives the same bytes; a resumed batch redoes what has changed and nothing else; a case
//!   comes to what `servesim run` comes to.

use std::time::SystemTime;

use serde_json::Value;

use super::{SMALL, batch, column, rows, same};
use crate::program::{Files, servesim};

#[test]
fn axes_are_crossed_in_the_order_of_the_file() {
    let files = Files::new();
    batch(&files, SMALL, "out", &[]).succeeds();
    assert_eq!(
        column(&files, "out", "case"),
        [
            "small+page_size=1+schedule_policy=fcfs",
            "small+page_size=1+schedule_policy=lpm",
            "small+page_size=16+schedule_policy=fcfs",
            "small+page_size=16+schedule_policy=lpm"
        ]
    );
    assert_eq!(column(&files, "out", "engine.page_size"), ["1", "1", "16", "16"]);
    assert_eq!(column(&files, "out", "status"), ["done"; 4]);
    let row = &rows(&files, "out")[2];
    let set = ["--set", "engine.page_size=16", "--set", "workload.requests=60", "--json"];
    let run = servesim(&[&["run", "coding-agent"], &set[..]].concat()).succeeds().json();
    assert_eq!(row["tokens.cached"], run["tokens"]["cached"].to_string());
    assert_eq!(
        row["kv_events.stored.events_per_request"],
        run["kv_events"]["stored"]["events_per_request"].to_string()
    );
    let lines: Vec<Value> =
        files.read("out/results.jsonl").lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 4);
    for (line, row) in lines.iter().zip(rows(&files, "out")) {
        assert_eq!(line.as_object().expect("an object").len(), row.len());
        assert_eq!(line["tokens.cached"].to_string(), row["tokens.cached"]);
        assert_eq!(line["reason"], Value::Null);
    }
}

#[test]
fn axes_can_be_zipped_named_and_seeded() {
    let files = Files::new();
    let text = "name = \"z\"\nbase = \"coding-agent\"\nzip = true\nseeds = [1, 2]\n\
                [set]\n\"workload.requests\" = 20\n\
                [sweep]\n\"engine.page_size\" = [1, 16]\n\"engine.max_total_tokens\" = [65536, 98304]\n\
                [[case]]\nname = \"plain\"\n\
                [[case]]\nname = \"slru 3\"\nset = { \"engine.radix_eviction_policy\" = \"slru\", \
                \"engine.radix_eviction_policy_config.protected_threshold\" = 3 }\n";
    batch(&files, text, "out", &[]).succeeds();
    let names = column(&files, "out", "case");
    assert_eq!(names.len(), 8);
    assert_eq!(names[1], "z+plain+page_size=1+max_total_tokens=65536+seed=2");
    assert_eq!(names[6], "z+slru-3+page_size=16+max_total_tokens=98304+seed=1");
    assert_eq!(column(&files, "out", "seed"), ["1", "2", "1", "2", "1", "2", "1", "2"]);
    let policies = column(&files, "out", "engine.radix_eviction_policy");
    assert_eq!(policies, ["lru", "lru", "lru", "lru", "slru", "slru", "slru", "slru"]);
    // The engine's own seed follows from the seed, and is no column.
    assert!(!rows(&files, "out")[0].contains_key("engine.random_seed"));
    let inputs = column(&files, "out", "tokens.input");
    assert!(inputs[0] != inputs[1] && inputs[0] == inputs[2], "{inputs:?}");
    let manifest: Value = serde_json::from_str(&files.read("out/manifest.json")).expect("JSON");
    assert_eq!(manifest["cases"][7]["seed"], 2);
    assert_eq!(manifest["servesim"], env!("CARGO_PKG_VERSION"));
    assert_eq!(manifest["cases"][0]["digest"].as_str().map(str::len), Some(64));
}

#[test]
fn folders_files_and_names_can_be_mixed() {
    let files = Files::new();
    std::fs::create_dir(files.path("folder")).expect("made");
    let scenario = "[workload]\nkind = \"random\"\nrequests = 10\n";
    files.write("folder/b.toml", scenario);
    files.write("folder/a.toml", scenario.replace("10", "12"));
    files.write("folder/readme.txt", "no scenario");
    let (folder, other) = (files.path("folder"), files.write("a.toml", scenario));
    let out = files.path("out");
    let arguments = ["batch", &folder, &other, "coding-agent", "--set", "workload.limit=9", "--out", &out];
    servesim(&arguments).succeeds();
    let names = column(&files, "out", "case");
    // Two files of one name are told apart by their digests.
    assert!(names[0].starts_with("a+") && names[2].starts_with("a+") && names[0] != names[2], "{names:?}");
    assert_eq!((names[1].as_str(), names[3].as_str()), ("b", "coding-agent"));
    assert_eq!(column(&files, "out", "requests.submitted"), ["9"; 4]);
}

#[test]
fn any_number_of_jobs_gives_the_same_bytes() {
    let files = Files::new();
    for (out, jobs) in [("one", "1"), ("three", "3"), ("many", "64")] {
        batch(&files, SMALL, out, &["--jobs", jobs]).succeeds();
    }
    same(files.path("one").as_ref(), files.path("three").as_ref());
    same(files.path("one").as_ref(), files.path("many").as_ref());
}

/// When each case's results were written.
fn written(files: &Files, out: &str) -> Vec<SystemTime> {
    let time = |case: &String| std::fs::metadata(files.path(&format!("{out}/cases/{case}/summary.json")));
    let names = column(files, out, "case");
    names.iter().map(|case| time(case).and_then(|data| data.modified()).expect("a time")).collect()
}

#[test]
fn a_resumed_batch_redoes_what_has_changed_alone() {
    let files = Files::new();
    batch(&files, SMALL, "out", &[]).succeeds();
    let before = written(&files, "out");
    let said = batch(&files, SMALL, "out", &[]);
    said.refuses(&["/out: found the results of a batch", "--resume"]);
    let said = batch(&files, SMALL, "out", &["--resume"]).succeeds();
    assert!(said.stderr.contains("4 of 4 cases are done already"), "{}", said.stderr);
    assert_eq!(written(&files, "out"), before);
    // One value changes: its two cases are new, the others stay.
    let changed = SMALL.replace("[1, 16]", "[1, 32]");
    let said = batch(&files, &changed, "out", &["--resume"]).succeeds();
    assert!(said.stderr.contains("2 of 4 cases are done already"), "{}", said.stderr);
    assert!(said.stderr.contains("2 cases in the folder are not part of this batch"), "{}", said.stderr);
    assert_eq!(written(&files, "out")[..2], before[..2]);
    assert_eq!(column(&files, "out", "engine.page_size"), ["1", "1", "32", "32"]);
    // All change, under their old names.
    let changed = changed.replace("= 60", "= 61");
    batch(&files, &changed, "out", &["--resume"]).succeeds();
    assert_eq!(column(&files, "out", "requests.submitted"), ["61"; 4]);
    assert!(written(&files, "out").iter().zip(&before).all(|(now, before)| now > before));
}

#[test]
fn a_changed_trace_is_a_changed_case() {
    let files = Files::new();
    let row = |tokens: u32| {
        format!("{{\"timestamp\": 0, \"input_length\": {tokens}, \"output_length\": 2, \"hash_ids\": [1]}}\n")
    };
    files.write("t.jsonl", row(7));
    let scenario = files.write("s.toml", "[workload]\nkind = \"mooncake\"\npath = \"t.jsonl\"\n");
    let out = files.path("out");
    let run = |more: &[&str]| servesim(&[&["batch", &scenario, "--out", &out], more].concat()).succeeds();
    run(&[]);
    assert_eq!(column(&files, "out", "tokens.input"), ["7"]);
    files.write("t.jsonl", row(8));
    assert!(!run(&["--resume"]).stderr.contains("done already"));
    assert_eq!(column(&files, "out", "tokens.input"), ["8"]);
}

#[test]
fn a_batch_that_cannot_be_planned_says_where() {
    let files = Files::new();
    let text = |line: &str| format!("base = \"coding-agent\"\n{line}\n");
    let bad = [
        (text("sweeps = 3"), "batch.toml:2: sweeps: found an unknown key of a batch file"),
        (text("[sweep]\n\"engine.page_size\" = 3"), "batch.toml:3: sweep.engine.page_size: found 3"),
        (text("zip = true\n[sweep]\na = [1, 2]\nb = [1]"), "batch.toml:5: sweep.b: found 1 values, expected 2 values"),
        (text("[limits]\nmax_wall_s = -1"), "batch.toml:3: limits.max_wall_s: found -1"),
        ("[sweep]\na = [1]\n".to_owned(), "batch.toml: base: found nothing"),
        ("base = \"nowhere\"\n".to_owned(), "batch.toml: base: found no "),
    ];
    for (text, part) in bad {
        batch(&files, &text, "out", &[]).refuses(&[part]);
        assert!(!std::path::Path::new(&files.path("out")).exists(), "{text}");
    }
    let out = files.path("out");
    servesim(&["batch", "no-such-file", "--out", &out]).refuses(&["no-such-file: found no such file"]);
    std::fs::create_dir(files.path("empty")).expect("made");
    servesim(&["batch", &files.path("empty"), "--out", &out]).refuses(&["empty: found no .toml file"]);
    let twice = ["batch", "coding-agent", "coding-agent", "--out", &out];
    servesim(&twice).refuses(&["case coding-agent: found twice with the same settings"]);
    servesim(&["batch", "coding-agent", "--out", &out, "--set", "=1"]).refuses(&["--set:1"]);
    let set = "[set]\n\"workload.requests\" = 9\n\"output.kv_events\" = \"zmq\"\n";
    let config = "\"output.kv_events_config\" = '{\"publisher\":\"zmq\",\"endpoint\":\"ipc://kv.sock\"}'";
    let shared = text(&format!("{set}{config}\n[sweep]\n\"engine.page_size\" = [1, 16]"));
    let both = "found ipc://kv.sock in cases batch+page_size=1 and batch+page_size=16";
    batch(&files, &shared, "out", &["--jobs", "2"]).refuses(&["output.kv_events_config: ", both, "or --jobs 1"]);
    for shard in ["0/2", "3/2", "x"] {
        let said = servesim(&["batch", "coding-agent", "--out", &out, "--shard", shard]);
        assert!(said.code == 2 && said.stderr.contains("expected I/N"), "{}", said.stderr);
    }
}

//! Checks of KV events in files, and of `servesim events`.
//!
//! - Contract: which files a run writes, and what `info`, `check` and `compare` say of them, with their exit codes.
//! - Differential: the file forms hold the same events; a run's summary is the same whatever is done with its events.
//! - Oracle: what a consumer of a file counts is what the run's summary says; a file re-checks clean.
//! - Bad input: files that are cut off, of another kind, or have a gap; settings that contradict each other.

use std::time::Instant;

use serde_json::Value;

use crate::program::{Files, servesim, traces};

const SHORT: [&str; 6] = ["run", "coding-agent", "--set", "workload.requests=150", "--set", "engine.page_size=4"];

/// Runs the short scenario and returns its summary.
fn run(files: &Files, folder: &str, flags: &[&str]) -> Value {
    let out = files.path(folder);
    let arguments = [&SHORT[..], &["--json", "--out", &out], flags].concat();
    servesim(&arguments).succeeds().json()
}

fn events(command: &str, file: &str) -> Value {
    servesim(&["events", command, file, "--json"]).json()
}

#[test]
fn what_is_done_with_events_changes_no_result_and_every_form_holds_the_same_ones() {
    let files = Files::new();
    let counted = run(&files, "count", &[]);
    assert_eq!(run(&files, "lines", &["--kv-events", "jsonl", "--emit-token-ids"]), counted);
    assert_eq!(run(&files, "frames", &["--kv-events", "msgpack"]), counted);
    let (lines, frames) = (files.path("lines/kv_events.jsonl"), files.path("frames/kv_events.msgpack"));
    assert!(!files.folder().join("count/kv_events.jsonl").exists());
    assert!(!files.folder().join("lines/kv_events.jsonl.partial").exists());
    let compared = servesim(&["events", "compare", &lines, &frames]).succeeds();
    assert!(compared.stdout.starts_with("equal\n"), "{}", compared.stdout);
    for file in [&lines, &frames] {
        let info = events("info", file);
        for kind in ["stored", "removed"] {
            for field in ["events", "blocks", "mean_blocks", "median_blocks", "events_per_request"] {
                assert_eq!(info[kind][field], counted["kv_events"][kind][field], "{kind} {field} of {file}");
            }
        }
        assert_eq!((&info["batches"], &info["requests"]), (&counted["kv_events"]["publishes"], &150.into()));
        let check = events("check", file);
        assert!(check["problems"].as_object().expect("counts").values().all(|count| count == 0), "{check}");
        let left = info["stored"]["blocks"].as_u64().zip(info["removed"]["blocks"].as_u64());
        assert_eq!(check["last_blocks"].as_u64(), left.map(|(stored, removed)| stored - removed));
    }
    assert_eq!(events("check", &lines)["verified_blocks"], counted["kv_events"]["stored"]["blocks"]);
    assert_eq!(events("check", &frames)["verified_blocks"], 0);
}

#[test]
fn events_of_lines_say_why_where_that_is_asked_for() {
    let files = Files::new();
    // A small pool, so that blocks go.
    let small = ["--kv-events", "jsonl", "--set", "engine.max_total_tokens=40000", "--set", "workload.lanes=2"];
    run(&files, "plain", &small);
    run(&files, "why", &[&small[..], &["--set", "output.kv_events_reason=true"]].concat());
    let (plain, why) = (files.read("plain/kv_events.jsonl"), files.read("why/kv_events.jsonl"));
    assert!(plain.contains("BlockRemoved") && !plain.contains("reason"));
    assert_eq!(why.matches("\"reason\":\"eviction\"").count(), why.matches("BlockRemoved").count());
    assert_eq!(why.replace(",\"reason\":\"eviction\"", ""), plain);
    let lines: Vec<Value> = plain.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        (&lines[0]["sequence"], &lines[0]["why"], &lines[0]["attn_dp_rank"]),
        (&0.into(), &"prefill".into(), &0.into())
    );
    assert_eq!(lines[0]["events"][0]["type"], "AllBlocksCleared");
    assert!(lines.iter().any(|line| line["why"] == "decode_interval"));
    assert_eq!(lines.last().map(|line| &line["why"]), Some(&"idle".into()));
}

#[test]
fn without_a_prefix_cache_nothing_is_published() {
    let files = Files::new();
    for sink in ["jsonl", "msgpack"] {
        run(&files, sink, &["--kv-events", sink, "--set", "engine.disable_radix_cache=true"]);
        let file = files.path(&format!("{sink}/kv_events.{sink}"));
        assert_eq!(std::fs::metadata(&file).expect("it is there").len(), 0);
        assert_eq!(events("info", &file)["batches"], 0);
        servesim(&["events", "check", &file]).succeeds();
    }
}

#[test]
fn a_file_that_is_cut_off_is_reported_as_far_as_it_goes() {
    let files = Files::new();
    run(&files, "lines", &["--kv-events", "jsonl"]);
    run(&files, "frames", &["--kv-events", "msgpack"]);
    let lines = files.read("lines/kv_events.jsonl");
    let frames = std::fs::read(files.path("frames/kv_events.msgpack")).expect("it is there");
    let second = lines.find('\n').expect("many lines") + 1;
    let cut_lines = files.write("cut.jsonl", &lines[..second + 100]);
    let first = 12 + u32::from_be_bytes(frames[8..12].try_into().expect("4 bytes")) as usize;
    let cut_frames = files.write("cut.msgpack", &frames[..first + 100]);
    let bare = files.write("bare.msgpack", &frames[12..first]);
    servesim(&["events", "check", &bare]).succeeds();
    let cut_bare = files.write("cut-bare.msgpack", &frames[12..first - 1]);
    for (file, place, batches) in [
        (&cut_lines, ":2: line: found a line cut off after 100 bytes".to_owned(), 1),
        (&cut_frames, format!(": byte {}: payload: found the end of the file", first + 100), 1),
        (&cut_bare, format!(": byte {}: attn_dp_rank: found the end of the data", first - 13), 0),
    ] {
        for command in ["info", "check"] {
            let said = servesim(&["events", command, file, "--json"]);
            assert_eq!((said.code, &said.json()["batches"]), (2, &batches.into()), "{}", said.stderr);
            assert!(said.stderr.contains(&place) && said.stderr.lines().count() == 1, "{}", said.stderr);
        }
    }
    let said = servesim(&["events", "compare", &cut_lines, &files.path("frames/kv_events.msgpack")]);
    assert_eq!(said.code, 2);
    assert!(said.stdout.starts_with("equal as far as both could be read") && said.stderr.contains("cut.jsonl:2:"));
    servesim(&["events", "info", &files.write("x.csv", "a,b\n")])
        .refuses(&["x.csv: file: found a file that starts with"]);
    servesim(&["events", "check", &files.path("none")]).refuses(&["none: file: found ", "expected a file"]);
}

#[test]
fn a_gap_is_found_by_the_check_and_by_a_comparison() {
    let files = Files::new();
    run(&files, "lines", &["--kv-events", "jsonl"]);
    let lines = files.read("lines/kv_events.jsonl");
    let kept: Vec<&str> = lines.lines().enumerate().filter(|(index, _)| *index != 5).map(|(_, line)| line).collect();
    let gap = files.write("gap.jsonl", kept.join("\n"));
    let said = servesim(&["events", "check", &gap]);
    assert_eq!(said.code, 1, "{}", said.stdout);
    assert!(said.stdout.contains("batch 6: sequence gap: 1 batches from 5 on are missing"), "{}", said.stdout);
    let said = servesim(&["events", "compare", &files.path("lines/kv_events.jsonl"), &gap]);
    assert_eq!(said.code, 1);
    assert!(said.stdout.starts_with("differs at batch 5 ") && said.stdout.contains("differs\n"), "{}", said.stdout);
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let run = |flags: &[&str]| servesim(&[&["run", "coding-agent"], flags].concat());
    run(&["--kv-events", "jsonl"]).refuses(&["output.kv_events: found no folder", "expected --out DIR"]);
    run(&["--kv-events", "nats"]).refuses(&["output.kv_events: found \"nats\"", "\"zmq\""]);
    run(&["--emit-token-ids"]).refuses(&["output.emit_token_ids: found true"]);
    run(&["--kv-events-config", "{\"topics\":1}"]).refuses(&["output.kv_events_config", "unknown field `topics`"]);
    run(&["--kv-events-config", "{\"endpoint\":\"inproc://x\"}"]).refuses(&["output.kv_events_config.endpoint"]);
    run(&["--kv-events", "jsonl", "--kv-events-config", "{}"]).refuses(&["output.kv_events_config: found"]);
    let said = run(&["--set", "workload.requests=20", "--kv-events-config", "{}"]).succeeds();
    assert!(said.stderr.contains("the publisher of the configuration is null"), "{}", said.stderr);
    for speed in ["0", "-1", "inf", "fast"] {
        let said = run(&[&format!("--realtime={speed}")]);
        assert!(said.code == 2 && said.stderr.contains("expected a speed from"), "{}", said.stderr);
    }
}

#[test]
fn simulated_time_can_be_played_against_the_clock_and_results_stay() {
    let plain = servesim(&SHORT).succeeds();
    // Some seconds are simulated; at this speed they are some tenths of one.
    let started = Instant::now();
    let said = servesim(&[&SHORT[..], &["--realtime", "100"]].concat()).succeeds();
    assert_eq!(said.stdout, plain.stdout);
    let simulated: f64 = plain
        .stdout
        .split(": ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .expect("seconds")
        .parse()
        .expect("a number");
    assert!(started.elapsed().as_secs_f64() >= simulated / 100.0, "{simulated} s in {:?}", started.elapsed());
    servesim(&[&SHORT[..], &["--set", "workload.requests=10", "--realtime=1e9"]].concat()).succeeds();
}

#[test]
fn a_recorded_agent_workload_has_the_known_events_and_rechecks_clean() {
    let Some(traces) = traces() else { return };
    let files = Files::new();
    let out = files.path("out");
    let mut command = crate::program::command(&["run", "agents16", "--kv-events", "jsonl", "--out", &out]);
    crate::program::said(command.env("SERVESIM_TRACES", traces)).succeeds();
    let file = files.path("out/kv_events.jsonl");
    let info = events("info", &file);
    let number = |kind: &str, field: &str| info[kind][field].as_f64().expect("a number");
    assert_eq!((number("stored", "events"), number("stored", "blocks")), (12_229.0, 4_233_105.0));
    assert_eq!((number("removed", "events"), number("removed", "blocks")), (3_118.0, 3_840_442.0));
    assert_eq!(info["requests"], 6262);
    let check = servesim(&["events", "check", &file]).succeeds();
    assert!(check.stdout.contains(": clean\n"), "{}", check.stdout);
}

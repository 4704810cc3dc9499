//! Checks of `servesim verify`.
//!
//! - Golden: a recorded case is equal, and so are recorded totals where the traces are.
//! - Mutation: a log with one value changed is told apart, with the place.
//! - Bad input: what is no log, or cannot be read or played, ends with exit code 2.

use std::io::Read;

use serde_json::{Value, json};

use crate::program::{Files, command, golden, gzip, said, servesim, traces};

/// The smallest recorded case.
const CASE: &str = "one_request.json.gz";

/// A recorded case as JSON.
fn case() -> Value {
    let packed = std::fs::read(golden(CASE)).expect("recorded cases are part of the project");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("a whole file");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_recorded_case_is_equal() {
    let said = servesim(&["verify", &golden(CASE)]).succeeds();
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("ok one_request\n1 of 1 equal\n", ""));
    let quiet = servesim(&["verify", "--quiet", &golden(CASE), &golden("bug_duplicate_prompts.json.gz")]).succeeds();
    assert_eq!(quiet.stdout, "2 of 2 equal\n");
}

#[test]
fn refused_passes_leave_no_trace() {
    let recordings = ["retraction_page16.json.gz", "bug_over_eviction_16.json.gz"].map(golden);
    for seed in ["1", "18446744073709551615"] {
        let said = servesim(&["verify", "--quiet", "--refuse", seed, &recordings[0], &recordings[1]]).succeeds();
        assert_eq!(said.stdout, "2 of 2 equal\n");
    }
    assert_eq!(servesim(&["verify", "--refuse", "x", &recordings[0]]).code, 2);
}

#[test]
fn one_changed_value_is_found_with_its_place() {
    let files = Files::new();
    let changes = [
        ("/passes/3/after_schedule/free", json!(204), "pass 3: after_schedule: ", "free: 204", "free: 203"),
        ("/passes/3/after_schedule/ratio", json!(0.5), "pass 3: after_schedule: ", "ratio: 0.5", "ratio: 0.69699"),
        ("/passes/0/batch/rows/0/1", json!(1), "pass 0: batch: ", "Extend(\"a\", 1, 50)", "Extend(\"a\", 0, 50)"),
        ("/passes/0/submitted", json!(["b"]), "pass 0: submitted: ", "[\"b\"]", "[\"a\"]"),
        ("/passes/0/published/0/why", json!("idle"), "pass 0: published: ", "\"idle\"", "\"prefill\""),
        ("/passes/11/finished/0/2", json!(13), "pass 11: finished: ", "\"length\", 13", "\"length\", 12"),
        ("/config/kv_tokens", json!(512), "pass 0: after_schedule: ", "free: 206", "free: 462"),
    ];
    for (place, value, found, expected, got) in changes {
        let mut case = case();
        *case.pointer_mut(place).unwrap_or_else(|| panic!("{place} is there")) = value;
        let said = servesim(&["verify", &files.write("tampered.json", case.to_string())]);
        assert_eq!(said.code, 1, "{}", said.stderr);
        let (line, last) = said.stdout.trim_end().split_once('\n').expect("two lines");
        assert!(line.starts_with(&format!("differs one_request: {found}expected ")), "{line}");
        let (left, right) = line.split_once(", got ").expect("both values");
        assert!(left.contains(expected) && right.contains(got), "{line}");
        assert_eq!(last, "0 of 1 equal");
    }
}

#[test]
fn a_missing_or_extra_pass_is_found() {
    let files = Files::new();
    let passes = |case: &Value| case["passes"].as_array().map(Vec::len).expect("passes");
    let mut long = case();
    let mut extra = long["passes"][3].clone();
    extra["pass"] = passes(&long).into();
    long["passes"].as_array_mut().expect("passes").push(extra);
    let said = servesim(&["verify", &files.write("long.json", long.to_string())]);
    assert_eq!(said.code, 1);
    let expected = format!("passes: expected {}, got {}", passes(&long), passes(&long) - 1);
    assert!(said.stdout.contains(&expected), "{}", said.stdout);
    let mut gap = case();
    gap["passes"].as_array_mut().expect("passes").remove(2);
    let said = servesim(&["verify", &files.write("gap.json", gap.to_string())]);
    assert!(said.stdout.contains("pass 3: pass: expected 3, got 2"), "{}", said.stdout);
}

#[test]
fn equal_and_different_files_are_counted() {
    let files = Files::new();
    let mut tampered = case();
    tampered["passes"][0]["batch"]["mode"] = "decode".into();
    // By its content a log may be packed or not; its name says which.
    let packed = files.write("tampered.json.gz", gzip(tampered.to_string().as_bytes()));
    let said = servesim(&["verify", "--quiet", &golden(CASE), &packed, &golden(CASE)]);
    assert_eq!(said.code, 1);
    assert!(said.stdout.starts_with("differs one_request: pass 0: batch: "), "{}", said.stdout);
    assert!(said.stdout.ends_with("\n2 of 3 equal\n"), "{}", said.stdout);
}

#[test]
fn a_length_without_limit_is_cut_at_entry() {
    let files = Files::new();
    let mut case = case();
    case["lanes"][0][0]["max_new_tokens"] = u32::MAX.into();
    // The request now asks for more than its recorded 12 tokens, so it does not finish where the log says it does.
    let said = servesim(&["verify", &files.write("long.json", case.to_string())]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stdout.contains("pass 11: finished: expected [(\"a\", \"length\", 12)], got []"), "{}", said.stdout);
}

#[test]
fn what_is_no_log_is_refused() {
    let files = Files::new();
    let mut unknown = case();
    unknown["passes"][4]["mood"] = "good".into();
    let refused = [
        (files.write("text.json", "hello\n"), "line 1 column 1"),
        (files.write("empty.json", ""), "EOF"),
        (files.write("other.json", "{\"a\": 1}"), "unknown field `a`"),
        (files.write("unknown.json", unknown.to_string()), "unknown field `mood`"),
        (files.write("plain.json.gz", case().to_string()), "gzip"),
        (files.path("missing.json"), "No such file"),
        (files.folder().to_str().expect("UTF-8").to_owned(), "directory"),
    ];
    for (file, part) in refused {
        servesim(&["verify", &file]).refuses(&[&file, part]);
    }
}

#[test]
fn a_log_cut_off_is_refused() {
    let files = Files::new();
    let packed = std::fs::read(golden(CASE)).expect("recorded cases are part of the project");
    for length in [3, 20, packed.len() / 2, packed.len() - 1] {
        let file = files.write("cut.json.gz", &packed[..length]);
        servesim(&["verify", &file]).refuses(&[&file]);
    }
    let text = case().to_string();
    let file = files.write("cut.json", &text[..text.len() / 2]);
    servesim(&["verify", &file]).refuses(&[&file, "EOF"]);
}

#[test]
fn a_log_that_cannot_be_played_is_refused() {
    let files = Files::new();
    let changes = [
        ("/config/schedule_policy", json!("sjf"), vec!["config.schedule_policy", "found sjf", "fcfs"]),
        ("/config/eviction_policy", json!("arc"), vec!["config.eviction_policy", "found arc", "lru"]),
        ("/config/page_size", json!(0), vec!["config.page_size", "found 0", "expected"]),
        ("/config/kv_tokens", json!(0), vec!["config.max_total_tokens", "found 0", "expected"]),
        ("/lanes/0/0/input", json!([]), vec!["request a", "prompt_tokens: found 0"]),
        ("/lanes/0/0/input", json!([[4294967295_u32, 2]]), vec!["request a", "pass 2^32"]),
        ("/lanes/0/0/input", json!([[0, 4294967295_u32], [0, 4294967295_u32]]), vec!["request a", "2^31"]),
        ("/lanes/0/0/output", json!([[0, 4294967295_u32], [0, 4294967295_u32]]), vec!["request a", "2^31"]),
        ("/lanes/0/0/input/0/0", json!(-1), vec!["-1"]),
    ];
    for (place, value, parts) in changes {
        let mut case = case();
        *case.pointer_mut(place).unwrap_or_else(|| panic!("{place} is there")) = value;
        servesim(&["verify", &files.write("bad.json", case.to_string())]).refuses(&parts);
    }
    let mut endless = case();
    endless["config"]["intake"] = false.into();
    endless["lanes"][0][0]["max_new_tokens"] = u32::MAX.into();
    servesim(&["verify", &files.write("endless.json", endless.to_string())]).refuses(&["request a", "2^31"]);
    let mut twice = case();
    twice["lanes"] = json!([twice["lanes"][0], twice["lanes"][0]]);
    servesim(&["verify", &files.write("twice.json", twice.to_string())]).refuses(&["request a", "found a second"]);
}

#[test]
fn totals_need_their_traces() {
    let totals = golden("big/agents4_page1.json");
    servesim(&["verify", &totals]).refuses(&[
        "agents4_page1.json",
        "agents4.jsonl.gz",
        "--traces DIR",
        "SERVESIM_TRACES",
    ]);
    said(command(&["verify", &totals]).env("SERVESIM_TRACES", "")).refuses(&["--traces DIR"]);
    let files = Files::new();
    let folder = files.folder().to_str().expect("UTF-8");
    servesim(&["verify", &totals, "--traces", folder]).refuses(&["agents4.jsonl.gz", "No such file"]);
}

#[test]
fn totals_of_another_shape_are_refused() {
    let files = Files::new();
    let text = std::fs::read_to_string(golden("big/agents4_page1.json")).expect("part of the project");
    files.write(
        "agents4.jsonl.gz",
        r#"{"lane":0,"session":"a","turn":0,"delay_ms":0,"append":[[1,9]],"output":[[20,2]]}"#,
    );
    let folder = files.folder().to_str().expect("UTF-8").to_owned();
    let changes = [
        ("/config/schedule_policy", json!("sjf"), "schedule_policy: found sjf"),
        ("/config/page_size", json!(0), "page_size: found 0"),
        ("/config/unheard_of", json!(1), "unknown field `unheard_of`"),
    ];
    for (place, value, part) in changes {
        let mut totals: Value = serde_json::from_str(&text).expect("JSON");
        let (parent, name) = place.rsplit_once('/').expect("a place in an object");
        totals.pointer_mut(parent).expect("a section")[name] = value;
        let file = files.write("bad.json", totals.to_string());
        servesim(&["verify", &file, "--traces", &folder]).refuses(&[part]);
    }
    // The settings are good, but this trace is another than the recorded one.
    let said = servesim(&["verify", &files.write("other.json", text), "--traces", &folder]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stdout.starts_with("differs other: passes: expected "), "{}", said.stdout);
}

#[test]
fn recorded_totals_are_equal_where_the_traces_are() {
    let Some(folder) = traces() else { return };
    let totals = golden("big/agents4_page1.json");
    let equal = said(command(&["verify", &totals]).env("SERVESIM_TRACES", &folder)).succeeds();
    assert_eq!(equal.stdout, "ok agents4_page1\n1 of 1 equal\n");
}

//! Checks of `servesim trace info`: oracle, small traces of each format whose sums are counted by hand.

use serde_json::{Value, json};

use crate::program::{Files, gzip, servesim};

fn info(path: &str, more: &[&str]) -> Value {
    servesim(&[&["trace", "info", path, "--json"], more].concat()).succeeds().json()
}

/// Checks fields of a JSON object.
fn has(info: &Value, fields: Value) {
    for (name, expected) in fields.as_object().expect("an object") {
        assert_eq!(&info[name], expected, "{name} of {info}");
    }
}

const SESSIONS: &str = r#"{"lane":0,"session":"a","turn":0,"delay_ms":0,"append":[[1,10]],"output":[[50,5]]}
{"lane":0,"session":"a","turn":1,"delay_ms":9,"append":[[70,5]],"output":[[80,2]]}
{"lane":3,"session":"b","turn":0,"delay_ms":0,"append":[[1,10],[90,6]],"output":[[99,1]]}
"#;

#[test]
fn sessions() {
    let files = Files::new();
    let path = files.write("s.jsonl", SESSIONS);
    let sums = info(&path, &[]);
    // Prompts are 10, then the history of 15 and 5 more, then 16 of which the first 10 have been seen.
    has(
        &sums,
        json!({"format": "sessions", "rows": 3, "requests": 3, "sessions": 2, "lanes": 2, "input_tokens": 46,
               "output_tokens": 8, "largest_prompt_tokens": 20, "unique_tokens": 29, "span_ns": null,
               "time_unit": "ms (delays)", "skipped_rows": 0}),
    );
    assert_eq!(sums["ideal_prefix_hit"].as_f64(), Some(25.0 / 46.0));
    let packed = info(&files.write("s.jsonl.gz", gzip(SESSIONS.as_bytes())), &[]);
    assert_eq!(packed["unique_tokens"], sums["unique_tokens"], "gzip is read as what it holds");
}

const MOONCAKE: &str = r#"{"timestamp": 1000, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}
{"timestamp": 3500, "input_length": 1500, "output_length": 4, "hash_ids": [7, 8, 9], "session_id": "x"}
{"created_time": 3500, "input_tokens": 512, "output_tokens": 1, "hash_ids": [9], "session_id": "x"}
"#;

#[test]
fn mooncake() {
    let files = Files::new();
    let path = files.write("m.jsonl", MOONCAKE);
    let sums = info(&path, &[]);
    // Of six blocks in the prompts, 7 and 8 are hit once and 9 once.
    has(
        &sums,
        json!({"format": "mooncake", "rows": 3, "sessions": 2, "lanes": null, "input_tokens": 3012,
               "output_tokens": 8, "blocks": 6, "unique_blocks": 3, "block_size": 512, "ideal_prefix_hit": 0.5,
               "span_ns": 2_500_000_000_u64, "time_unit": "ms"}),
    );
    let said = servesim(&["trace", "info", &path]).succeeds();
    for part in
        ["format              mooncake, 3 rows", "ideal prefix hit    50.00 % of blocks", "2.500 s, times read as ms"]
    {
        assert!(said.stdout.contains(part), "`{part}` is missing in {}", said.stdout);
    }
    servesim(&["trace", "info", &path, "--block-size", "256"])
        .refuses(&["m.jsonl:1: hash_ids: found 2 ids, expected 4"]);
    for size in ["0", "-1", "x"] {
        assert_eq!(servesim(&["trace", "info", &path, &format!("--block-size={size}")]).code, 2, "{size}");
    }
}

const AZURE: &str = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\
                     2023-11-16 23:59:59.5000000,100,10\r\n2023-11-17 00:00:01.0000000,50,1\r\n";

#[test]
fn azure() {
    let files = Files::new();
    has(
        &info(&files.write("a.csv", AZURE), &[]),
        json!({"format": "azure", "rows": 2, "sessions": 2, "input_tokens": 150, "output_tokens": 11, "unique_tokens": 150,
               "largest_prompt_tokens": 100, "span_ns": 1_500_000_000, "ideal_prefix_hit": 0.0, "blocks": null}),
    );
}

fn play(ids: &str) -> String {
    let request = |t: u32, ids: &str| {
        format!(r#"{{"t":{t},"type":"n","in":130,"out":7,"hash_ids":{ids},"api_time":1,"think_time":0}}"#)
    };
    let agent =
        format!(r#"{{"t":4,"type":"subagent","requests":[{},{}]}}"#, request(0, "[9,8]"), request(6, "[[9,2]]"));
    format!(
        r#"{{"id":"p","block_size":64,"hash_id_scope":"local","requests":[{},{agent},{}]}}"#,
        request(0, ids),
        request(5, ids)
    )
}

#[test]
fn weka() {
    let files = Files::new();
    let plays = format!("{}\n{}\n", play("[1,2]"), play("[[1,2]]"));
    let sums = info(&files.write("w.jsonl", &plays), &[]);
    // A play has prompts of blocks 1 2, 9 8, 9 10 and 1 2; three blocks of eight are hit, and nothing of the other play.
    has(
        &sums,
        json!({"format": "weka", "rows": 2, "requests": 8, "subagents": 2, "subagent_requests": 4, "sessions": 4,
               "input_tokens": 1040, "output_tokens": 56, "blocks": 16, "unique_blocks": 10, "block_size": 64,
               "unique_tokens": 640, "span_ns": 10_000_000_000_u64, "ideal_prefix_hit": 0.375, "time_unit": "s"}),
    );
    std::fs::create_dir(files.path("plays")).expect("a new folder");
    files.write("plays/b.json", play("[1,2]"));
    files.write("plays/a.json.gz", gzip(play("[1,2]").as_bytes()));
    files.write("plays/README", "not a play");
    let folder = info(&files.path("plays"), &[]);
    assert_eq!(folder["unique_blocks"], sums["unique_blocks"], "a folder of plays is one trace");
}

#[test]
fn times_far_apart_do_not_overflow() {
    let files = Files::new();
    let mut agent = r#"{"t":3.9e9,"type":"n","in":5,"out":1,"hash_ids":[]}"#.to_owned();
    for _ in 0..8 {
        agent = format!(r#"{{"t":3.9e9,"type":"subagent","requests":[{agent}]}}"#);
    }
    let play = format!(r#"{{"id":"p","block_size":64,"requests":[{agent}]}}"#);
    let sums = info(&files.write("w.jsonl", play), &[]);
    assert_eq!(sums["span_ns"].as_u64(), Some(u64::MAX), "the longest time stands for all beyond it");
}

#[test]
fn bad_rows_stop_it_or_are_counted() {
    let files = Files::new();
    let lines: Vec<&str> = MOONCAKE.lines().collect();
    let path = files.write("m.jsonl", [lines[1], lines[0], lines[2]].join("\n"));
    servesim(&["trace", "info", &path]).refuses(&["m.jsonl:2: timestamp: found 1000 ms, expected not before"]);
    has(&info(&path, &["--lenient"]), json!({"rows": 2, "skipped_rows": 1}));
}

#[test]
fn what_is_no_trace_is_refused() {
    let files = Files::new();
    std::fs::create_dir(files.path("empty")).expect("a new folder");
    let refused = [
        (files.write("a.jsonl", "hello\n"), "format: found a first line of \"hello\", expected sessions, weka"),
        (files.write("b.jsonl", ""), "found an empty file"),
        (files.write("c.jsonl", "{\"a\":1}\n"), "expected sessions, weka, mooncake or azure"),
        (files.write("d.jsonl", [0xff, 0xfe, 0, 10]), "format: found"),
        (files.path("missing.jsonl"), "No such file"),
        (files.path("empty"), "an empty folder"),
    ];
    for (path, part) in refused {
        servesim(&["trace", "info", &path]).refuses(&[&path, part]);
    }
}

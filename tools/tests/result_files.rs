//! The tables below `--out` and what is measured.
//!
//! - Oracle: rows add up to the summary, whatever the form of the file.
//! - Differential: the same rows as JSON lines and as Parquet; the same bytes twice; closed and open loop to their end.
//! - Contract: columns, the objective, the end of submissions, the warning.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde_json::{Map, Value};

use crate::program::{Files, servesim};

/// Requests of a pool that is too small for them: some are rejected, some retracted.
const TIGHT: &str = "[engine]\nmax_total_tokens = 4096\npage_size = 16\ninit_new_token_ratio = 0.05\n[slo]\nttft_ms = 40\n\
                     tpot_ms = 3\n[workload]\nkind = \"random\"\nrequests = 200\nlanes = 32\ninput_tokens = [16, 5000]\n\
                     output_tokens = [1, 400]\n[output]\ninterval_s = 0.05\n";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON object a line")).collect()
}

/// A CSV table as one object a row.
fn csv(text: &str) -> Vec<Map<String, Value>> {
    let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = rows.next().expect("a line of names");
    let value = |text: &str| serde_json::from_str(text).unwrap_or(Value::Null);
    rows.map(|row| names.iter().map(|name| name.to_string()).zip(row.into_iter().map(value)).collect()).collect()
}

fn parquet(path: &str) -> Vec<Value> {
    let file = std::fs::File::open(path).expect("the file is there");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let value = |field: &Field| match field {
        Field::Long(number) => Value::from(*number),
        Field::Double(number) => Value::from(*number),
        Field::Str(word) => Value::from(word.as_str()),
        Field::Null => Value::Null,
        other => panic!("no column holds {other:?}"),
    };
    let object = |row: Row| row.get_column_iter().map(|(name, field)| (name.clone(), value(field))).collect();
    reader.get_row_iter(None).expect("rows").map(|row| Value::Object(object(row.expect("a row")))).collect()
}

fn sum<'v>(rows: impl IntoIterator<Item = &'v Value>, name: &str) -> f64 {
    rows.into_iter().map(|row| row[name].as_f64().unwrap_or(0.0)).sum()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} is not {expected}");
}

#[test]
fn rows_of_requests_add_up_to_the_summary() {
    let files = Files::new();
    let scenario = files.write("tight.toml", TIGHT);
    let summary = servesim(&["run", &scenario, "--json", "--out", &files.path("out")]).succeeds().json();
    let rows = lines(&files.read("out/requests.jsonl"));
    let n = |name: &str| summary[name].as_f64().expect(name);
    let with = |outcomes: &[&str]| {
        let has = |row: &&Value| outcomes.iter().any(|outcome| row["outcome"] == *outcome);
        rows.iter().filter(has).collect::<Vec<_>>()
    };
    let completed = with(&["stop", "length"]);
    assert_eq!(rows.len(), 200);
    assert_eq!(completed.len() as f64, n("completed"));
    assert_eq!(with(&["rejected"]).len() as u64, summary["requests"]["rejected"].as_u64().expect("a number"));
    assert!(!with(&["rejected"]).is_empty() && n("retracted") > 0.0, "{summary}");
    assert_eq!(sum(&rows, "retractions"), n("retracted"));
    let of = |name: &str| sum(completed.iter().copied(), name);
    assert_eq!(of("prompt_tokens"), n("total_input_tokens"));
    assert_eq!(of("output_tokens"), n("total_output_tokens"));
    assert_eq!(of("cached_tokens"), n("total_cached_tokens"));
    let count = completed.len() as f64;
    for name in ["ttft", "e2e_latency", "queue_time"] {
        near(of(&format!("{name}_ms")) / count, n(&format!("mean_{name}_ms")));
    }
    let with_tpot = completed.iter().filter(|row| !row["tpot_ms"].is_null()).count() as f64;
    assert!(with_tpot < count, "some have one token");
    near(of("tpot_ms") / with_tpot, n("mean_tpot_ms"));
    // Percentiles as numpy has them.
    let mut ttfts: Vec<f64> = completed.iter().map(|row| row["ttft_ms"].as_f64().expect("a TTFT")).collect();
    ttfts.sort_by(f64::total_cmp);
    for percent in [90, 99] {
        let rank = (ttfts.len() - 1) as f64 * f64::from(percent) / 100.0;
        let (low, high) = (ttfts[rank as usize], ttfts[(rank as usize + 1).min(ttfts.len() - 1)]);
        near(n(&format!("p{percent}_ttft_ms")), low + (high - low) * rank.fract());
    }
    let within =
        |row: &&&Value| row["ttft_ms"].as_f64() <= Some(40.0) && row["tpot_ms"].as_f64().is_none_or(|ms| ms <= 3.0);
    let good = completed.iter().filter(within).count();
    assert!(good > 0 && good < completed.len(), "{good} of {count}");
    assert_eq!(summary["slo"]["requests"], good);
    near(summary["slo"]["share_pct"].as_f64().expect("a number"), good as f64 / 2.0);
    near(summary["slo"]["request_goodput"].as_f64().expect("a number"), good as f64 / n("duration"));
}

#[test]
fn rows_of_intervals_turns_and_sessions_add_up_too() {
    let files = Files::new();
    let call = ["run", "coding-agent", "--set", "workload.requests=150", "--json", "--out", &files.path("out")];
    let summary = servesim(&call).succeeds().json();
    let n = |path: &str| path.split('.').fold(&summary, |value, name| &value[name]).as_f64().expect("a number");
    let total =
        |rows: &[Map<String, Value>], name: &str| rows.iter().map(|row| row[name].as_f64().expect(name)).sum::<f64>();
    let intervals = csv(&files.read("out/timeseries.csv"));
    let names = [
        ("submitted", "requests.submitted"),
        ("completed", "completed"),
        ("prefill_tokens", "tokens.computed"),
        ("admitted_tokens", "tokens.input"),
        ("cached_tokens", "tokens.cached"),
        ("stored_events", "kv_events.stored.events"),
        ("stored_blocks", "kv_events.stored.blocks"),
        ("removed_events", "kv_events.removed.events"),
        ("removed_blocks", "kv_events.removed.blocks"),
    ];
    for (column, name) in names {
        assert_eq!(total(&intervals, column), n(name), "{column}");
    }
    // All tokens but the first of each request come from decode rows.
    assert_eq!(total(&intervals, "decode_tokens"), n("tokens.output") - 150.0);
    let times: Vec<f64> = intervals.iter().map(|row| row["time_s"].as_f64().expect("a time")).collect();
    assert!(times.len() > 5 && times.is_sorted(), "{times:?}");
    let whole = &times[..times.len() - 1];
    assert!(whole.iter().all(|time| time.fract() == 0.0) && *times.last().expect("one") <= n("duration_ms") / 1e3);
    for row in &intervals {
        let of = |name: &str| row[name].as_u64().expect(name);
        assert_eq!(of("used_tokens") + of("evictable_tokens") + of("free_tokens"), 196_608, "{row:?}");
        assert!(of("running") <= 8 && of("used_tokens") <= n("peak_used_tokens") as u64);
    }
    assert!(intervals.iter().any(|row| row["running"] == 8) && n("max_concurrent_requests") == 8.0);
    for name in ["turns", "sessions"] {
        let rows = csv(&files.read(&format!("out/{name}.csv")));
        let names = [
            ("completed", "completed"),
            ("input_tokens", "total_input_tokens"),
            ("cached_tokens", "total_cached_tokens"),
        ];
        for (column, expected) in names {
            assert_eq!(total(&rows, column), n(expected), "{column} of {name}");
        }
    }
    let turns = csv(&files.read("out/turns.csv"));
    let hit = |turn: usize| turns[turn]["cache_hit_rate_pct"].as_f64().expect("a number");
    assert!(hit(5) > hit(0), "later turns find their history");
    let sessions = csv(&files.read("out/sessions.csv"));
    let mut numbers: Vec<u64> = sessions.iter().map(|row| row["session"].as_u64().expect("a number")).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), sessions.len(), "each session once");
}

#[test]
fn parquet_holds_the_rows_of_the_other_forms_and_takes_their_place() {
    let files = Files::new();
    let scenario = files.write("tight.toml", TIGHT);
    let run = |out: &str, more: &[&str]| {
        servesim(&[&["run", &scenario, "--out", &files.path(out)], more].concat()).succeeds();
    };
    let parquet_flags = ["--requests", "parquet", "--timeseries", "parquet"];
    run("plain", &[]);
    run("one", &parquet_flags);
    run("two", &parquet_flags);
    let rows = parquet(&files.path("one/requests.parquet"));
    let plain = lines(&files.read("plain/requests.jsonl"));
    assert_eq!(rows.len(), 200);
    for (row, plain) in rows.iter().zip(&plain) {
        for (name, value) in plain.as_object().expect("an object") {
            let equal = value.as_f64().is_some_and(|number| row[name].as_f64() == Some(number));
            assert!(equal || row[name] == *value, "{name}: {row} against {plain}");
        }
    }
    let intervals = parquet(&files.path("one/timeseries.parquet"));
    let plain = csv(&files.read("plain/timeseries.csv"));
    assert_eq!(intervals.len(), plain.len());
    for (row, plain) in intervals.iter().zip(&plain) {
        assert!(plain.iter().all(|(name, value)| row[name].as_f64() == value.as_f64()), "{row} against {plain:?}");
    }
    for name in ["requests.parquet", "timeseries.parquet"] {
        let read = |out: &str| std::fs::read(files.path(&format!("{out}/{name}"))).expect(name);
        assert_eq!(read("one"), read("two"), "{name}");
    }
    // Another run into the same folder leaves no table of the first.
    run("one", &["--requests", "none"]);
    let left = |name: &str| std::path::Path::new(&files.path(&format!("one/{name}"))).exists();
    assert!(
        left("timeseries.csv") && !left("timeseries.parquet") && !left("requests.parquet") && !left("requests.jsonl")
    );
}

#[test]
fn the_end_of_submissions_is_told_and_what_is_in_flight_is_played() {
    let run = |sets: &[&str]| {
        let mut call = vec!["run", "coding-agent", "--json", "--set", "workload.requests=1500"];
        sets.iter().for_each(|set| call.extend(["--set", set]));
        servesim(&call).succeeds().json()
    };
    let whole = run(&[]);
    let part = run(&["workload.duration_s=10"]);
    let (all, some) = (&whole["requests"]["submitted"], &part["requests"]["submitted"]);
    assert!(some.as_u64() > Some(10) && some.as_u64() < all.as_u64(), "{some} of {all}");
    assert_eq!(part["requests"]["completed"], *some);
    assert!(part["duration"].as_f64() > Some(10.0) && part["duration"].as_f64() < Some(200.0), "{part}");
    // An open loop at 50 a second for 2 seconds: the first at 0, the last at 2.
    let files = Files::new();
    let text =
        "[workload]\nkind = \"random\"\nmode = \"open\"\nrate_per_s = 50\narrivals = \"constant\"\nduration_s = 2\n";
    let open = servesim(&["run", &files.write("open.toml", text), "--json"]).succeeds().json();
    assert_eq!((open["completed"].as_u64(), open["request_rate"].as_f64()), (Some(101), Some(50.0)));
    assert!(open["max_concurrency"].is_null());
    assert_eq!((whole["request_rate"].as_str(), whole["max_concurrency"].as_u64()), (Some("inf"), Some(8)));
    let never = servesim(&["run", &files.write("open.toml", text), "--json", "--set", "workload.rate_per_s=0.1"]);
    assert_eq!(never.succeeds().json()["completed"], 1, "the first comes at 0, the second after the end");
}

#[test]
fn sessions_without_a_prefix_cache_deserve_a_word() {
    let call = ["run", "coding-agent", "--json", "--set", "workload.requests=20"];
    let off = servesim(&[&call[..], &["--set", "engine.disable_radix_cache=true"]].concat()).succeeds();
    assert!(off.stderr.starts_with("warning: the prefix cache is off (engine.disable_radix_cache)"), "{}", off.stderr);
    assert_eq!((off.json()["cache_hit_rate_pct"].as_f64(), off.stderr.lines().count()), (Some(0.0), 2));
    assert!(!servesim(&call).succeeds().stderr.contains("warning"));
}

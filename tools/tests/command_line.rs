//! Checks of `servesim run` on good input.
//!
//! - Contract: which fields, files and streams a result has, and what exit code goes with it.
//! - Oracle: sums that must add up whatever the scenario.
//! - Differential: the same run twice, by `--json` and `--out`, from a scenario and from the settings it was resolved to.

use std::process::Stdio;

use serde_json::Value;

use crate::program::{Files, command, said, servesim};

/// The embedded scenario, cut short.
const SHORT: [&str; 5] = ["run", "coding-agent", "--set", "workload.requests=150", "--json"];

fn number(value: &Value, path: &str) -> f64 {
    let found = path.split('.').fold(value, |value, name| &value[name]);
    found.as_f64().unwrap_or_else(|| panic!("{path} is no number: {found}"))
}

fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

/// The names at the top level that SGLang's serving benchmark has, and those made alike, sorted.
fn benchmark_names() -> Vec<String> {
    let totals = "accept_length backend cache_hit_rate_pct cache_report completed concurrency dataset_name \
                  duration input_throughput max_concurrency max_concurrent_requests \
                  max_output_tokens_per_s output_throughput request_rate request_throughput \
                  total_cached_tokens total_input_text_tokens total_input_tokens total_input_vision_tokens \
                  total_output_tokens total_output_tokens_retokenized total_throughput";
    let mut names: Vec<String> = totals.split_whitespace().map(str::to_owned).collect();
    for latency in ["e2e_latency", "ttft", "tpot", "itl", "queue_time"] {
        let statistics = ["mean", "median", "std", "p90", "p95", "p99", "max"];
        names.extend(statistics.map(|statistic| format!("{statistic}_{latency}_ms")));
    }
    names.sort();
    names
}

/// Checks every sum of a summary that must add up whatever was played.
fn adds_up(summary: &Value) {
    let n = |path: &str| number(summary, path);
    let ended = n("requests.completed") + n("requests.rejected") + n("requests.dropped") + n("requests.aborted");
    assert_eq!(n("requests.submitted"), ended, "{summary}");
    assert_eq!(n("passes.total"), n("passes.extend") + n("passes.decode") + n("passes.idle"), "{summary}");
    for kind in ["stored", "removed"] {
        let of = |name: &str| n(&format!("kv_events.{kind}.{name}"));
        assert!((of("mean_blocks") * of("events") - of("blocks")).abs() < 1e-3, "{summary}");
        assert!((of("events_per_request") * n("requests.completed") - of("events")).abs() < 1e-3, "{summary}");
        assert!(of("median_blocks") <= of("blocks"), "{summary}");
    }
    assert!(n("tokens.cached") <= n("tokens.input"), "{summary}");
    assert_eq!(n("completed"), n("requests.completed"), "{summary}");
    assert!((n("request_throughput") * n("duration") - n("completed")).abs() < 1e-6, "{summary}");
    let both = n("input_throughput") + n("output_throughput");
    assert!((both - n("total_throughput")).abs() < 1e-6 * both, "{summary}");
    for latency in ["e2e_latency", "ttft", "tpot", "itl", "queue_time"] {
        let of = |statistic: &str| n(&format!("{statistic}_{latency}_ms"));
        let ranks = ["median", "p90", "p95", "p99", "max"].map(of);
        // A percentile from the histogram may stand half a thousandth above the largest value.
        assert!(ranks.windows(2).all(|pair| pair[0] <= pair[1] * 1.001), "{latency}: {summary}");
        assert!(of("mean") <= of("max") && of("std") <= of("max"), "{latency}: {summary}");
    }
}

#[test]
fn the_embedded_scenario_runs_and_says_what_came_of_it() {
    let run = servesim(&["run", "coding-agent"]).succeeds();
    assert!(run.stdout.starts_with("coding-agent: "), "{}", run.stdout);
    for part in ["submitted 2,000  completed 2,000", "passes", "tokens", "cache", "stored", "removed", "published"] {
        assert!(run.stdout.contains(part), "`{part}` is missing in {}", run.stdout);
    }
    assert!(!run.stdout.contains("host") && !run.stdout.contains("CPU"), "{}", run.stdout);
    // Not a terminal: no progress, the host's cost alone.
    let host: Vec<&str> = run.stderr.lines().collect();
    assert!(host.len() == 1 && host[0].starts_with("host: ") && host[0].contains(" MB peak"), "{}", run.stderr);
}

#[test]
fn the_json_summary_has_every_field_and_its_sums_add_up() {
    let run = servesim(&SHORT).succeeds();
    let summary = run.json();
    let own =
        ["duration_ms", "evicted_tokens", "kv_events", "passes", "peak_used_tokens", "requests", "retracted", "tokens"];
    let all = names(&summary);
    let others: Vec<&str> = all.iter().copied().filter(|name| !own.contains(name)).collect();
    assert_eq!(others, benchmark_names());
    assert_eq!(all.len(), own.len() + others.len());
    assert_eq!(names(&summary["requests"]), ["aborted", "completed", "dropped", "rejected", "submitted"]);
    assert_eq!(names(&summary["passes"]), ["decode", "extend", "idle", "total"]);
    assert_eq!(names(&summary["tokens"]), ["cached", "computed", "input", "output"]);
    assert_eq!(names(&summary["kv_events"]), ["publishes", "removed", "stored"]);
    let counts = ["blocks", "events", "events_per_request", "mean_blocks", "median_blocks"];
    assert_eq!(names(&summary["kv_events"]["stored"]), counts);
    assert_eq!(names(&summary["kv_events"]["removed"]), counts);
    adds_up(&summary);
    assert_eq!(number(&summary, "requests.submitted"), 150.0);
    assert_eq!(number(&summary, "retracted"), 0.0);
    // Without a retraction every prompt token is either found or computed, and computed once.
    let tokens = number(&summary, "tokens.cached") + number(&summary, "tokens.computed");
    assert_eq!(tokens, number(&summary, "tokens.input"));
    // A run ends idle, so by then everything that was evicted has been published, in blocks of a page of 16.
    assert_eq!(number(&summary, "evicted_tokens"), 16.0 * number(&summary, "kv_events.removed.blocks"));
    assert!(run.stderr.starts_with("host: "), "{}", run.stderr);
}

#[test]
fn sums_add_up_when_requests_are_rejected_and_retracted() {
    let files = Files::new();
    let text = "[engine]\nmax_total_tokens = 4096\npage_size = 16\ninit_new_token_ratio = 0.05\n\
                [workload]\nkind = \"random\"\nrequests = 200\nlanes = 32\ninput_tokens = [16, 5000]\n\
                output_tokens = [100, 400]\n";
    let summary = servesim(&["run", &files.write("tight.toml", text), "--json"]).succeeds().json();
    adds_up(&summary);
    assert_eq!(number(&summary, "requests.submitted"), 200.0);
    assert!(number(&summary, "requests.rejected") > 0.0, "prompts longer than the pool: {summary}");
    assert!(number(&summary, "retracted") > 0.0, "a pool that is too small for its requests: {summary}");
}

#[test]
fn result_files_are_whole_and_equal_from_run_to_run() {
    let files = Files::new();
    let (one, two) = (files.path("one"), files.path("two/deep"));
    let printed = servesim(&[&SHORT[..], &["--out", &one]].concat()).succeeds().stdout;
    servesim(&[&SHORT[..], &["--out", &two]].concat()).succeeds();
    assert_eq!(files.read("one/summary.json"), printed);
    assert_eq!(files.read("one/summary.json"), files.read("two/deep/summary.json"));
    assert_eq!(files.read("one/config.toml"), files.read("two/deep/config.toml"));
    let host: Value = serde_json::from_str(&files.read("one/host.json")).expect("JSON");
    let costs = ["cpu_s", "cpu_us_per_pass", "cpu_us_per_request", "peak_memory_mb", "wall_s"];
    assert_eq!(names(&host), costs);
    assert!(number(&host, "wall_s") > 0.0 && number(&host, "peak_memory_mb") > 0.0, "{host}");
    let mut written: Vec<String> = std::fs::read_dir(&one)
        .expect("the folder was made")
        .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
        .collect();
    written.sort();
    let tables = ["requests.jsonl", "sessions.csv", "timeseries.csv", "turns.csv"];
    assert_eq!(written, [&["config.toml", "host.json"][..], &tables[..2], &["summary.json"], &tables[2..]].concat());
    for name in tables {
        assert_eq!(files.read(&format!("one/{name}")), files.read(&format!("two/deep/{name}")), "{name}");
    }
}

#[test]
fn the_resolved_settings_are_a_scenario_that_plays_the_same() {
    let files = Files::new();
    let out = files.path("out");
    let first = servesim(&[&SHORT[..], &["--set", "engine.page_size=4", "--out", &out]].concat()).succeeds();
    let again = servesim(&["run", &files.path("out/config.toml"), "--json"]).succeeds();
    assert_eq!(again.stdout, first.stdout);
}

#[test]
fn a_scenario_can_name_its_folder_of_results() {
    let files = Files::new();
    let dir = format!("output.dir={}", files.path("here"));
    let printed = servesim(&[&SHORT[..], &["--set", &dir]].concat()).succeeds().stdout;
    assert_eq!(files.read("here/summary.json"), printed);
}

#[test]
fn set_changes_the_result_and_print_config_says_where_values_come_from() {
    let plain = servesim(&SHORT).succeeds().json();
    let set = servesim(&[&SHORT[..], &["--set", "engine.page_size=64"]].concat()).succeeds().json();
    assert!(number(&set, "kv_events.stored.blocks") < number(&plain, "kv_events.stored.blocks"));
    let shown = servesim(&["run", "coding-agent", "--print-config", "--set", "engine.page_size=64"]).succeeds();
    for line in ["page_size = 64  # --set", "lanes = 8  # file", "schedule_policy = \"fcfs\"  # default"] {
        assert!(shown.stdout.lines().any(|shown| shown == line), "`{line}` is missing in {}", shown.stdout);
    }
    assert_eq!(shown.stderr, "", "nothing is run");
    let later = ["run", "coding-agent", "--print-config", "--set", "seed=1", "--set", "seed=2"];
    assert!(servesim(&later).stdout.contains("seed = 2  # --set"), "the later of two overrides counts");
}

#[test]
fn checks_after_each_pass_change_nothing() {
    let checked = servesim(&[&SHORT[..], &["--check"]].concat()).succeeds();
    assert_eq!(checked.stdout, servesim(&SHORT).stdout);
}

#[test]
fn the_seed_decides_what_is_generated() {
    let seeded = |seed: &str| servesim(&[&SHORT[..], &["--set", seed]].concat()).succeeds().stdout;
    assert_eq!(seeded("seed=42"), servesim(&SHORT).stdout, "42 is the default");
    assert_ne!(seeded("seed=43"), seeded("seed=42"));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let golden = crate::program::golden("one_request.json.gz");
    let goldens = vec![golden.as_str(); 50];
    let calls = [SHORT.to_vec(), vec!["run", "coding-agent", "--print-config"], [&["verify"], &goldens[..]].concat()];
    for arguments in calls {
        let mut child = command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built for this test");
        drop((child.stdout.take(), child.stderr.take()));
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn help_and_usage() {
    let help = servesim(&["--help"]).succeeds().stdout;
    assert!(["run", "verify", "trace"].iter().all(|name| help.contains(name)), "{help}");
    assert!(servesim(&["--version"]).succeeds().stdout.starts_with("servesim "));
    for arguments in [&[][..], &["walk"], &["run"], &["verify"], &["run", "coding-agent", "--jsn"], &["trace"]] {
        let wrong = servesim(arguments);
        assert_eq!((wrong.code, wrong.stdout.as_str()), (2, ""), "{arguments:?}: {}", wrong.stderr);
        assert!(wrong.stderr.contains("Usage: servesim"), "{}", wrong.stderr);
    }
}

#[test]
fn relative_paths_start_where_they_are_named() {
    let files = Files::new();
    std::fs::create_dir(files.path("scenarios")).expect("a new folder");
    let row = r#"{"timestamp":0,"input_length":9,"output_length":2,"hash_ids":[1]}"#;
    files.write("scenarios/t.jsonl", row);
    files.write("scenarios/s.toml", "[workload]\nkind = \"mooncake\"\npath = \"t.jsonl\"\n");
    // The trace lies beside the scenario; the folder of results is below the one that the program is called from.
    let call = ["run", "scenarios/s.toml", "--out", "out"];
    said(command(&call).current_dir(files.folder())).succeeds();
    assert!(files.read("out/summary.json").contains("\"completed\": 1"));
    // A trace that is not beside the scenario is looked for in the folder of traces.
    let other = Files::new();
    other.write("s.toml", "[workload]\nkind = \"mooncake\"\npath = \"t.jsonl\"\n");
    let run = said(command(&["run", &other.path("s.toml"), "--json"]).env("SERVESIM_TRACES", files.path("scenarios")));
    assert_eq!(number(&run.succeeds().json(), "requests.completed"), 1.0);
}

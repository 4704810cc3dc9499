//! Bad input in scenarios: each wrong file, key and value ends with exit code 2 and one line that says where it stands, what
//! was found and what is expected.

use crate::program::{Files, servesim};

/// A scenario whose line 4 is `line`, in the section `section`.
fn scenario(section: &str, line: &str) -> String {
    let kind = "[workload]\nkind = \"random\"\n";
    if section == "workload" { format!("\n{kind}{line}\n") } else { format!("{kind}[{section}]\n{line}\n") }
}

#[test]
fn wrong_keys_and_values_are_refused_with_their_line() {
    let files = Files::new();
    let cases = [
        ("engine", "page_sise = 16", "engine.page_sise", "`engine.page_size`"),
        ("engine", "kv_cache_dtype = \"auto\"", "engine.kv_cache_dtype", "engine.page_size, "),
        ("engine", "page_size = \"16\"", "engine.page_size", "a whole number"),
        ("engine", "page_size = 1.5", "engine.page_size", "a whole number"),
        ("engine", "page_size = 0", "engine.page_size", "1 to 1048576 tokens"),
        ("engine", "max_total_tokens = -5", "engine.max_total_tokens", "a whole number"),
        ("engine", "chunked_prefill_size = -2", "engine.chunked_prefill_size", "-1 (off)"),
        ("engine", "schedule_policy = \"sjf\"", "engine.schedule_policy", "fcfs, lpm, dfs-weight"),
        ("engine", "radix_eviction_policy = \"arc\"", "engine.radix_eviction_policy", "lru, lfu, slru"),
        ("engine", "retraction_policy = \"luck\"", "engine.retraction_policy", "length"),
        ("engine", "role = \"decode\"", "engine.role", "prefill"),
        ("engine", "enable_mixed_chunk = 1", "engine.enable_mixed_chunk", "true or false"),
        ("engine", "schedule_conservativeness = nan", "engine.schedule_conservativeness", "0 to 1000"),
        ("engine.radix_eviction_policy_config", "ttl = 3", "engine.radix_eviction_policy_config.ttl", "threshold"),
        ("timing", "model = \"quadratic\"", "timing.model", "\"constant\""),
        ("timing", "decode_ms = -1", "timing.decode_ms", "0 to 10^9 ms"),
        ("timing", "decode_ms = \"fast\"", "timing.decode_ms", "0 to 10^9 ms"),
        ("workload", "kind_of = 1", "workload.kind_of", "workload.kind"),
        ("workload", "block_size = 16", "workload.block_size", "it with kind mooncake"),
        ("workload", "rate_per_s = 2.0", "workload.rate_per_s", "it with the other mode"),
        ("workload", "lanes = 0", "workload.lanes", "from 1 to 65536"),
        ("workload", "input_tokens = [9, 3]", "workload.input_tokens", "[low, high]"),
        ("workload", "limit = 0", "workload.limit", "from 1"),
        ("workload", "duration_s = 0", "workload.duration_s", "above 0"),
        ("workload", "duration_s = \"long\"", "workload.duration_s", "seconds"),
        ("slo", "ttft_ms = -1", "slo.ttft_ms", "0 to 10^9 ms"),
        ("slo", "tpot_ms = \"low\"", "slo.tpot_ms", "0 to 10^9 ms"),
        ("slo", "itl_ms = 1", "slo.itl_ms", "slo.ttft_ms"),
        ("output", "dir = 3", "output.dir", "a string"),
        ("output", "requests = \"csv\"", "output.requests", "\"jsonl\", \"parquet\", \"none\""),
        ("output", "timeseries = \"jsonl\"", "output.timeseries", "\"csv\""),
        ("output", "interval_s = 0", "output.interval_s", "0.001 to 10^9 seconds"),
        ("results", "dir = \"x\"", "results.dir", "[output]"),
    ];
    for (section, line, field, expected) in cases {
        let path = files.write("s.toml", scenario(section, line));
        servesim(&["run", &path]).refuses(&[&format!("{path}:4: {field}: found "), ", expected ", expected]);
        // What is wrong in a file is wrong as an override too, which is named by its number.
        let (key, value) = line.split_once(" = ").expect("key and value");
        let set = format!("{section}.{key}={value}");
        let plain = files.write("plain.toml", scenario("workload", ""));
        let by_set = servesim(&["run", &plain, "--set", "seed=1", "--set", &set]);
        by_set.refuses(&[&format!("--set:2: {field}: found "), ", expected ", expected]);
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    let files = Files::new();
    let plain = files.write("plain.toml", scenario("workload", ""));
    let cases = [
        (vec!["engine.page_size=64", "engine.max_total_tokens=63"], "engine.max_total_tokens", "at least one page"),
        (vec!["engine.page_size=64", "engine.chunked_prefill_size=32"], "engine.chunked_prefill_size", "page_size"),
        (vec!["engine.role=prefill"], "engine.disable_overlap_schedule", "role = \"prefill\""),
        (vec!["workload.mode=open", "workload.lanes=4"], "workload.lanes", "it with the other mode"),
    ];
    for (set, field, expected) in cases {
        let set: Vec<&str> = set.into_iter().flat_map(|set| ["--set", set]).collect();
        let call = [&["run", plain.as_str()], &set[..]].concat();
        servesim(&call).refuses(&[&format!("{field}: found "), expected]);
    }
}

#[test]
fn overrides_that_are_no_settings_are_refused() {
    for (set, field) in [
        ("engine.page_size", "engine.page_size"),
        ("=3", "--set"),
        ("engine.page_size=", "engine.page_size"),
        ("engine.page_size=[1", "engine.page_size"),
        ("engine.page_size=big", "engine.page_size"),
        ("page_size=1", "page_size"),
        ("engine=1", "engine"),
        ("workload.kind=wekaa", "workload.kind"),
        ("workload.path=x", "workload.path"),
        ("seed=1\nname=2", "seed"),
        ("", ""),
    ] {
        let said = servesim(&["run", "coding-agent", "--set", set]);
        said.refuses(&[&format!("--set:1: {field}: found "), ", expected "]);
    }
}

#[test]
fn files_that_are_no_scenarios_are_refused() {
    let files = Files::new();
    let cases = [
        ("", 0, "workload.kind: found nothing, expected one of \"sessions\", \"weka\""),
        ("[workload]\n", 0, "workload.kind: found nothing"),
        ("[workload]\nkind = \"sessions\"\n", 0, "workload.path: found nothing, expected the path of a trace"),
        ("workload = 3\n", 1, "workload.kind: found 3, expected one of"),
        ("[workload]\nkind = \"random\"\nkind = \"weka\"\n", 3, "syntax: found duplicate key"),
        ("[workload]\nkind = random\n", 2, "syntax: found "),
        ("{\"workload\": 1}", 1, "syntax: found "),
        ("hello\n", 1, "syntax: found "),
    ];
    for (text, line, part) in cases {
        let path = files.write("s.toml", text);
        let place = if line == 0 { path.clone() } else { format!("{path}:{line}: ") };
        servesim(&["run", &path]).refuses(&[&place, part]);
    }
    let path = files.write("s.toml", [b'a', 0xff, 0xfe, b'\n']);
    servesim(&["run", &path]).refuses(&[&path, "file: found ", "UTF-8"]);
    servesim(&["run", files.folder().to_str().expect("UTF-8")]).refuses(&["file: found ", "directory"]);
}

#[test]
fn unknown_scenarios_and_traces_say_what_there_is() {
    let files = Files::new();
    let known =
        ["coding-agent", "agents16", "agents4", "weka", "mooncake-conversation", "mooncake-synthetic", "azure-code"];
    servesim(&["run", "codingagent"]).refuses(&known);
    servesim(&["run", &files.path("no.toml")]).refuses(&[&files.path("no.toml"), "coding-agent"]);
    // A scenario of the program whose trace is not there says where it is looked for.
    servesim(&["run", "weka"]).refuses(&["workload.path: found no file weka_710_rle.jsonl.gz", "SERVESIM_TRACES"]);
    let path = files.write("s.toml", "[workload]\nkind = \"weka\"\npath = \"none.jsonl\"\n");
    servesim(&["run", &path]).refuses(&["workload.path: found no file ", &files.path("none.jsonl")]);
}

#[test]
fn a_folder_of_results_that_cannot_be_made_is_refused_before_the_run() {
    let files = Files::new();
    let taken = files.write("taken", "a file");
    servesim(&["run", "coding-agent", "--out", &taken]).refuses(&[&taken, "cannot be made"]);
    servesim(&["run", "coding-agent", "--out", &files.path("taken/below")]).refuses(&["cannot be made"]);
}

#[test]
fn a_run_that_fails_says_so_with_exit_code_1() {
    let files = Files::new();
    // A prompt that no pool of this size can ever admit, let in because the checks at entry are off.
    let text = "[engine]\nmax_total_tokens = 128\nentry_checks = false\n[workload]\nkind = \"random\"\nrequests = 1\n\
                input_tokens = [60, 60]\noutput_tokens = [68, 68]\n";
    let stuck = servesim(&["run", &files.write("stuck.toml", text)]);
    assert_eq!((stuck.code, stuck.stdout.as_str()), (1, ""), "{}", stuck.stderr);
    assert!(stuck.stderr.contains("no request can make progress: pool 128 tokens"), "{}", stuck.stderr);
    assert!(stuck.stderr.contains("request 0 waits with 60 prompt"), "{}", stuck.stderr);
    // A clock that passes its end.
    let call =
        ["run", "coding-agent", "--set", "timing.decode_ms=1000000000", "--set", "workload.requests=1500", "--json"];
    let late = servesim(&call);
    assert_eq!((late.code, late.stdout.as_str()), (1, ""), "{}", late.stderr);
    assert!(late.stderr.contains("overflows the clock"), "{}", late.stderr);
    assert_eq!(late.stderr.matches("overflows the clock").count(), 1, "said once: {}", late.stderr);
    // The same run goes on without the requests whose passes are refused, and every one of them has an end.
    let skipping = servesim(&[&call[..], &["--set", "timing.on_error=skip"]].concat()).succeeds();
    let requests = &skipping.json()["requests"];
    let count = |name: &str| requests[name].as_u64().expect("a number");
    assert_eq!((count("submitted"), count("completed") + count("rejected")), (1500, 1500));
    assert!(count("completed") > 0 && count("rejected") > 0, "{requests}");
    // One line for all of them, with the first few.
    let line = format!("dropped {} requests whose pass was refused: request ", count("rejected"));
    assert!(skipping.stderr.starts_with(&line), "{}", skipping.stderr);
    assert_eq!(skipping.stderr.matches("overflows the clock").count(), 3, "{}", skipping.stderr);
    assert_eq!(skipping.stderr.lines().count(), 2, "{}", skipping.stderr);
}

//! `servesim profile`, as a user calls it.
//!
//! - Oracle: the systems make up the calls; rows, groups, histogram and work of a report add up to its totals; the reference's
//!   cost is counts times units.
//! - Differential: results are byte for byte those of `run`.
//! - Comparison of profiles, by hand. Bad input.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::program::{Files, servesim};

const SHORT: [&str; 3] = ["coding-agent", "--set", "workload.requests=300"];
const SYSTEMS: [&str; 12] = [
    "enter", "settle", "order", "admit", "allocate", "decode", "price", "commit", "publish", "observe", "undo",
    "stride",
];

fn number(value: &Value, field: &str) -> f64 {
    value[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {value}"))
}

fn list<'v>(value: &'v Value, field: &str) -> &'v Vec<Value> {
    value[field].as_array().unwrap_or_else(|| panic!("{field} is no list"))
}

fn sum(values: &[Value], field: &str) -> f64 {
    values.iter().map(|value| number(value, field)).sum()
}

/// A table with names in its first line, by column.
fn columns(csv: &str) -> BTreeMap<String, Vec<String>> {
    let mut lines = csv.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let names = lines.next().expect("a line of names");
    let rows: Vec<Vec<String>> = lines.collect();
    assert!(rows.iter().all(|row| row.len() == names.len()));
    let column = |index: usize| rows.iter().map(|row| row[index].clone()).collect();
    names.iter().enumerate().map(|(index, name)| (name.clone(), column(index))).collect()
}

fn total(column: &[String]) -> f64 {
    column.iter().map(|cell| cell.parse::<f64>().expect("a number")).sum()
}

#[test]
fn systems_make_up_the_calls_and_everything_adds_up() {
    let files = Files::new();
    let out = files.path("out");
    let call = [&["profile"], &SHORT[..], &["--every", "1", "--json", "--out", &out]].concat();
    let report = servesim(&call).succeeds().json();
    assert_eq!(serde_json::from_str::<Value>(&files.read("out/profile.json")).expect("JSON"), report);
    let whole = number(&report["total"], "total_ns");
    assert!(whole > 0.0 && (0.95..=1.05).contains(&number(&report, "covered_share")), "{}", report["covered_share"]);
    let systems = list(&report, "systems");
    assert!((sum(systems, "total_ns") / whole - number(&report, "covered_share")).abs() < 1e-6);
    assert!((sum(list(&report, "sglang_stages"), "total_ns") - sum(systems, "total_ns")).abs() < 0.5);
    assert_eq!(report["timer"]["calls_by_system"], report["calls"]);
    assert!((sum(systems, "share") - number(&report, "covered_share")).abs() < 1e-9);
    for system in systems.iter().chain([&report["total"]]) {
        let [p50, p99, max] = ["p50_ns", "p99_ns", "max_ns"].map(|name| number(system, name));
        assert!(p50 <= p99 && p99 <= max && number(system, "mean_ns") <= max, "{system}");
        let per_request = number(system, "ns_per_request") * number(&report, "requests");
        assert!((per_request - number(system, "total_ns")).abs() < 2.0, "{system}");
    }
    let timer = &report["timer"];
    let passes = number(&report, "passes") - number(timer, "interrupted_passes");
    for groups in ["by_kind", "passes_by_ns"] {
        assert_eq!(sum(list(&report, groups), "passes"), passes, "{groups}");
    }
    let calls = number(&report, "calls") - number(timer, "interrupted_calls");
    assert_eq!(sum(list(&report, "by_kind"), "calls"), calls);
    assert_eq!(number(timer, "by_system_over_all"), 1.0, "all were read by system");
    for (kinds, by) in [(&["extend", "mixed"][..], "prefill"), (&["decode"], "decode")] {
        let of = |group: &&Value| kinds.contains(&group["bucket"].as_str().expect("a name"));
        let expected: f64 = list(&report, "by_kind").iter().filter(of).map(|group| number(group, "passes")).sum();
        assert!(expected > 0.0);
        for groups in ["by_batch_size", "by_waiting", "by_cache_nodes"] {
            assert_eq!(sum(list(&report[by], groups), "passes"), expected, "{by} {groups}");
        }
    }
    for (dearest, by) in [(&report["dearest"], "ns_per_pass"), (&report["reference"]["dearest"], "reference_ns")] {
        let dearest = dearest.as_array().expect("a list");
        assert!(!dearest.is_empty() && dearest.len() <= 10);
        assert!(dearest.is_sorted_by(|a, b| number(a, by) >= number(b, by)), "{by}");
    }
    the_file_of_passes_agrees(&columns(&files.read("out/profile.csv")), &report);
}

fn the_file_of_passes_agrees(columns: &BTreeMap<String, Vec<String>>, report: &Value) {
    assert_eq!(columns["iteration"].len() as f64, number(report, "calls"));
    assert_eq!(total(&columns["passes"]), number(report, "passes"));
    for (name, count) in report["work"].as_object().expect("counts by name") {
        assert_eq!(total(&columns[name]), count.as_f64().expect("a number"), "{name}");
    }
    // Rows of interrupted calls are there, with the time that they seem to have taken.
    let interrupted = number(&report["timer"], "interrupted_ns");
    let (rows, whole) = (total(&columns["total_ns"]), number(&report["total"], "total_ns") + interrupted);
    assert!(rows >= 0.999 * whole && rows < 1.05 * whole, "rows are only cut off at nothing: {rows} against {whole}");
    for name in SYSTEMS {
        let system = list(report, "systems").iter().find(|system| system["name"] == *name);
        let column = total(&columns[&format!("{name}_ns")]);
        assert_eq!(system.is_some(), column > 0.0, "{name}");
        assert!(system.is_none_or(|system| column >= 0.999 * number(system, "total_ns")), "{name}");
    }
    let most = columns["total_ns"].iter().map(|cell| cell.parse::<f64>().expect("a number")).fold(0.0, f64::max);
    assert!(most >= number(&report["dearest"][0], "ns_per_pass"));
    let reference = &report["reference"];
    let parts = list(reference, "parts");
    for part in parts {
        assert!((number(part, "total_ns") - number(part, "count") * number(part, "unit_ns")).abs() < 1e-3, "{part}");
        let counter = part["counter"].as_str().expect("a name");
        assert_eq!(part["count"], report["work"][counter]);
    }
    assert!((sum(parts, "total_ns") / number(reference, "total_ns") - 1.0).abs() < 1e-9);
    assert!((total(&columns["reference_ns"]) / number(reference, "total_ns") - 1.0).abs() < 1e-6);
}

#[test]
fn a_run_of_which_no_call_was_read_by_system_says_so() {
    let call = ["profile", "coding-agent", "--set", "workload.requests=1", "--every", "1000000"];
    let said = servesim(&call).succeeds();
    assert!(said.stdout.contains("no call was read by system"), "{}", said.stdout);
    assert!(!said.stdout.contains("by stage of") && !said.stdout.contains("-0.0"), "{}", said.stdout);
    assert!(said.stdout.lines().all(|line| line == line.trim_end()), "blanks at the end of a line");
    let report = servesim(&[&call[..], &["--json"]].concat()).succeeds().json();
    assert_eq!((number(&report["timer"], "calls_by_system"), number(&report, "covered_share")), (0.0, 0.0));
    assert!(list(&report, "systems").is_empty() && number(&report["total"], "total_ns") > 0.0);
    assert!(list(&report, "dearest").iter().all(|call| call["reference_ns"].is_null()), "{}", report["dearest"]);
}

#[test]
fn results_are_those_of_a_run_byte_for_byte() {
    let files = Files::new();
    let (run, profile) = (files.path("run"), files.path("profile"));
    for set in ["engine.page_size=1", "engine.disable_overlap_schedule=true", "engine.schedule_policy=lpm"] {
        servesim(&[&["run"], &SHORT[..], &["--set", set, "--out", &run]].concat()).succeeds();
        servesim(&[&["profile"], &SHORT[..], &["--set", set, "--out", &profile]].concat()).succeeds();
        for name in ["summary.json", "config.toml"] {
            assert_eq!(files.read(&format!("run/{name}")), files.read(&format!("profile/{name}")), "{set}");
        }
    }
}

#[test]
fn by_default_some_calls_are_read_by_system_and_stand_for_all() {
    let files = Files::new();
    let out = files.path("out");
    let call = ["profile", "coding-agent", "--json", "--out", &out];
    let report = servesim(&call).succeeds().json();
    let (calls, by_system) = (number(&report, "calls"), number(&report["timer"], "calls_by_system"));
    assert!((by_system * 64.0 / calls - 1.0).abs() < 0.15, "{by_system} of {calls}");
    let interrupted = |name: &str| number(&report["timer"], name);
    let passes = number(&report, "passes") - interrupted("interrupted_passes");
    assert_eq!(sum(list(&report, "passes_by_ns"), "passes"), passes);
    let kept = sum(list(&report, "by_kind"), "calls");
    assert!(kept <= by_system && kept >= by_system - interrupted("interrupted_calls"));
    assert!((0.95..=1.05).contains(&number(&report, "covered_share")), "{}", report["covered_share"]);
    let systems = sum(list(&report, "systems"), "total_ns") / number(&report["total"], "total_ns");
    assert!((0.95..=1.05).contains(&systems), "systems make up {systems} of all calls");
    let csv = columns(&files.read("out/profile.csv"));
    assert_eq!(csv["iteration"].len() as f64, calls);
    assert_eq!(csv["admit_ns"].iter().filter(|cell| !cell.is_empty()).count() as f64, by_system);
    assert!(csv["total_ns"].iter().all(|cell| !cell.is_empty()));
    for name in ["path_nodes", "reference_ns"] {
        assert!(
            csv[name].iter().zip(&csv["admit_ns"]).all(|(cell, read)| cell.is_empty() == read.is_empty()),
            "{name}"
        );
    }
    // Nodes to the root are the one count that is not exact: it is brought up from the calls that counted them.
    let all = servesim(&["profile", "coding-agent", "--json", "--every", "1"]).succeeds().json();
    for (name, count) in report["work"].as_object().expect("counts by name") {
        let (found, exact) = (count.as_f64().expect("a number"), number(&all["work"], name));
        let most = if name == "path_nodes" { 0.25 * exact } else { 0.0 };
        assert!((found - exact).abs() <= most, "{name}: {found} against {exact}");
    }
}

#[test]
fn passes_have_their_shape_in_csv_and_parquet() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let files = Files::new();
    let out = files.path("out");
    let call = [&["profile"], &SHORT[..], &["--out", &out]].concat();
    servesim(&call).succeeds();
    let csv = columns(&files.read("out/profile.csv"));
    let summary: Value = serde_json::from_str(&files.read("out/summary.json")).expect("JSON");
    assert_eq!(total(&csv["sum_prefill_tokens"]), number(&summary["tokens"], "computed"));
    assert_eq!(total(&csv["finished"]), number(&summary["requests"], "completed"));
    assert!(total(&csv["var_decode_kv_tokens"]) > 0.0 && total(&csv["sum_decode_kv_tokens"]) > 0.0);
    servesim(&[&call[..], &["--passes-format", "parquet"]].concat()).succeeds();
    let file = std::fs::File::open(files.path("out/profile.parquet")).expect("it was written");
    let reader = SerializedFileReader::new(file).expect("it is Parquet");
    let metadata = reader.metadata().file_metadata();
    assert_eq!(metadata.num_rows(), csv["iteration"].len() as i64);
    let names: Vec<String> = metadata.schema_descr().columns().iter().map(|column| column.name().to_owned()).collect();
    assert_eq!(names.len(), csv.len());
    assert!(names.iter().all(|name| csv.contains_key(name)), "{names:?}");
}

#[test]
fn the_report_has_its_parts_and_costs_of_the_reference_can_be_set() {
    let said = servesim(&[&["profile"], &SHORT[..]].concat()).succeeds();
    for part in [
        "coding-agent: ",
        "taken off below",
        "SGLang's stage",
        "get_next_batch_to_run",
        "Passes by host time",
        "####",
        "Dearest passes",
        "A pass by kind",
        "A prefill pass by batch size",
        "A decode pass outside strides by cache size",
        "What grows",
        "in the reference's own structures",
        "nodes walked to the root",
        "tokens matched for them",
        "Passes that would cost the reference the most",
    ] {
        assert!(said.stdout.contains(part), "`{part}` is missing in {}", said.stdout);
    }
    assert!(said.stdout.lines().all(|line| line == line.trim_end()), "blanks at the end of a line");
    assert!(said.stdout.is_ascii() && said.stderr.starts_with("host: "), "{}", said.stderr);
    let set =
        ["--json", "--every", "1", "--reference-cost", "path_node_ns=100", "--reference-cost", "leaf_insert_ns=0"];
    let report = servesim(&[&["profile"], &SHORT[..], &set].concat()).succeeds().json();
    let (work, reference) = (&report["work"], &report["reference"]);
    let leaves = number(work, "eviction_leaves") * 430.0 / 64.0;
    let locks = 2_500.0 * number(work, "locks");
    let queue = 10_000.0 * number(work, "requests_examined") + 4.0 * number(work, "tokens_matched");
    assert!(number(work, "tokens_matched") > 0.0);
    let expected = 100.0 * number(work, "path_nodes") + locks + leaves + queue;
    assert!((number(reference, "total_ns") / expected - 1.0).abs() < 1e-9, "{reference}");
}

#[test]
fn counters_are_counted_or_said_to_be_missing() {
    let said = servesim(&[&["profile"], &SHORT[..], &["--counters", "--json"]].concat()).succeeds();
    let report = said.json();
    let counted = report["timer"]["counters"].as_bool().expect("a yes or no");
    let notes = said.stderr.lines().filter(|line| line.starts_with("--counters: ")).count();
    assert_eq!(notes, usize::from(!counted), "{}", said.stderr);
    assert_eq!(report["total"]["instructions"].is_u64(), counted);
    assert!(!counted || number(&report["total"], "instructions") > 0.0);
}

fn profile(passes: u64, admit_ns: u64, undo_ns: u64) -> String {
    let system = |name: &str, total_ns: u64| json!({"name": name, "total_ns": total_ns, "ns_per_pass": total_ns as f64 / passes as f64, "p99_ns": 7});
    let systems = [system("admit", admit_ns), system("undo", undo_ns)];
    let total = system("total", admit_ns + undo_ns);
    json!({"kind": "servesim-profile", "version": 1, "scenario": "s", "passes": passes, "requests": 5,
           "systems": systems, "total": total})
    .to_string()
}

#[test]
fn two_profiles_are_compared_by_system() {
    let files = Files::new();
    let (a, b) = (files.write("a.json", profile(10, 1_000, 0)), files.write("b.json", profile(10, 1_500, 500)));
    let compared = servesim(&["profile", "--compare", &a, &b, "--json"]).succeeds().json();
    let systems = list(&compared, "systems");
    let shown: Vec<(&str, &Value, f64)> = systems
        .iter()
        .map(|system| (system["name"].as_str().expect("a name"), &system["ratio"], number(system, "share_of_change")))
        .collect();
    assert_eq!(shown, [("admit", &json!(1.5), 0.5), ("undo", &Value::Null, 0.5), ("total", &json!(2.0), 1.0)]);
    let text = servesim(&["profile", "--compare", &a, &b]).succeeds().stdout;
    for part in ["A: s, 10 passes", "100 ns", "150 ns", "1.50", "+50.0 %", "2.00", "+100.0 %"] {
        assert!(text.contains(part), "`{part}` is missing in {text}");
    }
    assert!(!text.contains("different runs"), "{text}");
    let c = files.write("c.json", profile(20, 1_000, 0));
    assert!(servesim(&["profile", "--compare", &a, &c]).succeeds().stdout.contains("different runs"));
    servesim(&["profile", "--compare", &a, &b, "--fail-above", "2"]).succeeds();
    let failed = servesim(&["profile", "--compare", &a, &b, "--fail-above", "1.9"]);
    assert!(
        failed.code == 1 && failed.stderr.contains("2.00 times as much, expected at most 1.9"),
        "{}",
        failed.stderr
    );
}

#[test]
fn a_profile_compares_with_itself() {
    let files = Files::new();
    let out = files.path("out");
    servesim(&[&["profile"], &SHORT[..], &["--out", &out]].concat()).succeeds();
    let path = files.path("out/profile.json");
    let compared = servesim(&["profile", "--compare", &path, &path, "--json"]).succeeds().json();
    assert!(list(&compared, "systems").len() > 8);
    assert!(list(&compared, "systems").iter().all(|system| [json!(1.0), Value::Null].contains(&system["ratio"])));
}

#[test]
fn bad_input_is_refused() {
    let files = Files::new();
    let good = files.write("good.json", profile(1, 1, 1));
    let other = files.write("other.json", profile(1, 1, 1).replace("servesim-profile", "trace"));
    let later = files.write("later.json", profile(1, 1, 1).replace("\"version\":1", "\"version\":2"));
    let half = files.write("half.json", &profile(1, 1, 1)[..40]);
    let empty = files.write("empty.json", "{}");
    for (path, parts) in [
        (files.path("none.json"), &["none.json", "No such file"][..]),
        (other, &["other.json", "found \"trace\"", "expected \"servesim-profile\""]),
        (later, &["later.json", "version 2", "version 1"]),
        (half, &["half.json", "profile.json", "column 40"]),
        (empty, &["empty.json", "missing field `kind`"]),
    ] {
        servesim(&["profile", "--compare", &good, &path]).refuses(parts);
        servesim(&["profile", "--compare", &path, &good]).refuses(parts);
    }
    servesim(&["profile", "coding-agent", "--reference-cost", "leaf=1"]).refuses(&["leaf=1", "eviction_leaf_ns"]);
    servesim(&["profile", "coding-agent", "--reference-cost", "path_node_ns=x"]).refuses(&["\"x\"", "nanoseconds"]);
    servesim(&["profile", "no-such-scenario"]).refuses(&["no-such-scenario"]);
    servesim(&["profile", "coding-agent", "--set", "engine.page_size=0"]).refuses(&["page_size"]);
    let folder = files.write("file", "");
    servesim(&["profile", "coding-agent", "--out", &folder]).refuses(&["cannot be made"]);
    for wrong in [&["profile"][..], &["profile", "coding-agent", "--compare", "a", "b"], &["profile", "--compare", "a"]]
    {
        let said = servesim(wrong);
        assert!(
            said.code == 2 && said.stdout.is_empty() && said.stderr.contains("Usage"),
            "{wrong:?}: {}",
            said.stderr
        );
    }
}

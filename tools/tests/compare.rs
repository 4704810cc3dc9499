//! Checks of `servesim compare`.
//!
//! - Contract: which settings and metrics are shown, ratios, exit codes; `--json` says the same.
//! - Bad input: folders that hold no run.

use crate::program::{Files, servesim};

fn runs(files: &Files) -> (String, String) {
    let (a, b) = (files.path("a"), files.path("b"));
    for (out, pages) in [(&a, "engine.page_size=16"), (&b, "engine.page_size=64")] {
        let set = ["--set", pages, "--set", "workload.requests=100"];
        servesim(&[&["run", "coding-agent", "--out", out], &set[..]].concat()).succeeds();
    }
    (a, b)
}

#[test]
fn metrics_stand_side_by_side_with_what_differs() {
    let files = Files::new();
    let (a, b) = runs(&files);
    let said = servesim(&["compare", &a, &b]).succeeds();
    let lines: Vec<Vec<&str>> = said.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let find =
        |name: &str| lines.iter().find(|line| line.first() == Some(&name)).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(find("engine.page_size")[1..], ["16", "64"]);
    assert_eq!(find("requests.completed")[1..], ["100", "100", "1.0000"]);
    assert!(!said.stdout.contains("workload.requests "), "{}", said.stdout);
    let json = servesim(&["compare", &a, &b, "--json"]).succeeds().json();
    assert_eq!(json["settings"].as_array().map(Vec::len), Some(1));
    let metrics = json["metrics"].as_array().expect("a list");
    let blocks = metrics.iter().find(|metric| metric["name"] == "kv_events.stored.blocks").expect("a metric");
    let number = |name: &str| blocks[name].as_f64().expect("a number");
    assert!(number("b") > 0.0 && number("ratio") == number("b") / number("a"), "{blocks}");
    assert!((0.2..0.3).contains(&number("ratio")), "four times the page is about a fourth of the blocks: {blocks}");
    // Nothing to divide by, and no number at all, are no ratio; two zeros are equal.
    let zero = metrics.iter().find(|metric| metric["name"] == "requests.rejected").expect("a metric");
    assert_eq!(zero["ratio"], 1.0);
    assert!(servesim(&["compare", &a, &a]).succeeds().stdout.contains("no setting differs"));
}

#[test]
fn folders_without_a_run_are_refused() {
    let files = Files::new();
    let (a, _) = runs(&files);
    servesim(&["compare", &a, &files.path("nothing")]).refuses(&["/nothing: found no summary.json"]);
    std::fs::create_dir(files.path("c")).expect("made");
    let c = files.path("c");
    files.write("c/summary.json", "{}");
    servesim(&["compare", &c, &a]).refuses(&["c/summary.json: found no number"]);
    files.write("c/summary.json", "{\"x\": 1}");
    servesim(&["compare", &a, &c]).refuses(&["c/config.toml: cannot be read"]);
    files.write("c/config.toml", "a = = 1");
    servesim(&["compare", &a, &c]).refuses(&["c/config.toml:1: syntax"]);
}

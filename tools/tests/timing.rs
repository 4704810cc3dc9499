//! Timing models as a user meets them: presets and derived pools in runs, fits that become scenarios, and bad input of each kind
//! of file, which ends with exit code 2 and one line.

use crate::program::{Files, servesim};

const RANDOM: &str = "[workload]\nkind = \"random\"\nrequests = 20\n";

/// Passes that take 1 ms and 0.01 ms a new token, or 2 ms and 0.1 ms a row.
fn passes() -> String {
    let mut text = "mode,rows,new_tokens,cached_tokens,kv_tokens,duration_ms\n".to_owned();
    for step in 1..=20_u32 {
        let (new, cached) = (step * 100, step * step % 70);
        text += &format!("extend,{},{new},{cached},,{}\n", step % 3 + 1, 1.0 + f64::from(new) * 0.01);
        text += &format!("decode,{step},,,{},{}\n", step * step * 9, 2.0 + f64::from(step) * 0.1);
    }
    text
}

#[test]
fn a_preset_prices_a_run_and_gives_its_pool() {
    let files = Files::new();
    let text = format!(
        "{RANDOM}[engine]\nmem_fraction_static = 0.88\n[timing]\nmodel = \"roofline\"\nhost_overhead_ms = 0.5\n\
         roofline.model = \"llama-3.1-8b\"\nroofline.device = \"h100-sxm\"\n"
    );
    let scenario = files.write("s.toml", text);
    let said = servesim(&["run", &scenario, "--json", "--check"]).succeeds();
    assert!(said.stderr.contains("pool: 454188 tokens: (80.00 GiB on 1 device x 0.88"), "{}", said.stderr);
    let printed = servesim(&["run", &scenario, "--print-config"]).succeeds().stdout;
    assert!(printed.contains("max_total_tokens = 454188  # derived"), "{printed}");
    assert!(printed.contains("roofline.model.layers = 32  # described"), "{printed}");
    // What is printed needs no preset and is the same run.
    let again = servesim(&["run", &files.write("s.toml", printed), "--json"]).succeeds();
    assert_eq!(again.stdout, said.stdout);
    let slower = servesim(&["run", &scenario, "--json", "--set", "timing.host_overhead_ms=50"]).succeeds();
    assert_ne!(slower.stdout, said.stdout);
}

#[test]
fn a_fit_becomes_a_scenario() {
    let files = Files::new();
    let passes = files.write("p.csv", passes());
    let linear = servesim(&["timing", "fit", &passes, "--model", "linear", "--out", &files.path("t.toml")]).succeeds();
    assert!(linear.stdout.contains("# MAPE decode: 0.00 % on 4 passes held out"), "{}", linear.stdout);
    assert_eq!(files.read("t.toml"), linear.stdout);
    servesim(&["run", &files.write("s.toml", format!("{RANDOM}{}", linear.stdout)), "--json"]).succeeds();
    let grid = files.path("grid.csv");
    let table = servesim(&["timing", "fit", &passes, "--model", "table", "--out", &grid, "--seed", "3"]).succeeds();
    let scenario = files.write("s.toml", format!("{RANDOM}{}", table.stdout));
    servesim(&["run", &scenario, "--json", "--set", "timing.table.outside=clamp"]).succeeds();
    let said = servesim(&["run", &scenario]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stderr.contains("lies outside the model's range"), "{}", said.stderr);
}

#[test]
fn bad_files_and_options_are_named() {
    let files = Files::new();
    let bad = files.write("p.csv", passes().replace("decode,7,", "decode,seven,"));
    servesim(&["timing", "fit", &bad, "--model", "linear"]).refuses(&["p.csv:15: rows: found \"seven\""]);
    let good = files.write("p.csv", passes());
    servesim(&["timing", "fit", &good, "--model", "table"]).refuses(&["--out"]);
    servesim(&["timing", "fit", &good, "--model", "linear", "--holdout", "1"]).refuses(&["holdout: found 1"]);
    servesim(&["timing", "fit", &files.path("none.csv"), "--model", "linear"]).refuses(&["none.csv"]);
    let roofline = |model: &str| {
        let text = format!(
            "{RANDOM}[timing]\nmodel = \"roofline\"\nroofline.model = \"{model}\"\nroofline.device = \"l40s\"\n"
        );
        servesim(&["run", &files.write("s.toml", text)])
    };
    roofline("llama-7").refuses(&["s.toml:6: timing.roofline.model: found \"llama-7\"", "\"qwen3-8b\""]);
    files.write("config.json", "{\"hidden_size\": 8}");
    roofline("config.json").refuses(&["config.json: num_attention_heads: found nothing"]);
    let table = format!("{RANDOM}[timing]\nmodel = \"table\"\ntable.path = \"p.csv\"\n");
    servesim(&["run", &files.write("s.toml", table)]).refuses(&["p.csv: new_tokens, cached_tokens, rows: found"]);
    files.write("h.csv", "mode,rows,host_ms\ndecode,1,soon\n");
    let host = format!("{RANDOM}[timing]\nhost_overhead_path = \"h.csv\"\n");
    servesim(&["run", &files.write("s.toml", host)]).refuses(&["h.csv:2: host_ms: found \"soon\""]);
}

//! Each model with its keys: what is read, rendered and read again, and what is refused with which line.

use super::roofline::shown_value;
use super::*;
use crate::scenario::keys::known_keys;

const HEAD: &str = "[workload]\nkind = \"random\"\n";
const ROOFLINE: &str =
    "[timing]\nmodel = \"roofline\"\nroofline.model = \"llama-3.1-8b\"\nroofline.device = \"h100-sxm\"\n";

fn scenario(text: &str, overrides: &[&str]) -> Result<Scenario, InputError> {
    let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
    Scenario::from_str(&format!("{HEAD}{text}"), "dir/s.toml", &overrides)
}

fn refused(text: &str, overrides: &[&str]) -> (u64, String) {
    let error = scenario(text, overrides).expect_err(text);
    assert!(!error.to_string().contains('\n'), "{error}");
    (error.line, error.field)
}

#[test]
fn every_model_is_read_and_what_is_rendered_is_the_same_again() {
    let texts = [
        "[timing]\nextend_ms = 2\nhost_overhead_ms = 0.5\n",
        "[timing]\nmodel = \"linear\"\n[timing.linear]\nextend_pass_us = 10\ndecode_kv_token_us = 0.25\n",
        "[timing]\nmodel = \"table\"\nhost_overhead_path = \"h.csv\"\n[timing.table]\npath = \"t.csv\"\noutside = \"clamp\"\n",
        ROOFLINE,
        "[engine]\nmem_fraction_static = 0.9\n[timing]\nmodel = \"roofline\"\n[timing.roofline]\ndevice = \"a100-sxm-80gb\"\n\
         count = 2\n[timing.roofline.model]\nlayers = 4\nhidden_size = 64\nheads = 4\nkv_heads = 2\nhead_size = 16\n\
         intermediate_size = 100\nvocabulary = 1000\nweight_bytes = 2\nkv_bytes = 2.0\n",
    ];
    let mut seen = std::collections::BTreeSet::new();
    for text in texts {
        let first = scenario(text, &[]).expect(text);
        let rendered = first.render_config();
        let again = Scenario::from_str(&rendered, "dir/s.toml", &[]).expect(&rendered);
        assert_eq!(
            (&again.timing, &again.engine, &again.pool),
            (&first.timing, &first.engine, &first.pool),
            "{rendered}"
        );
        seen.extend(first.settings.into_iter().map(|setting| setting.key).filter(|key| key.starts_with("timing.")));
    }
    // The names of descriptions are shown as what they stand for.
    seen.extend(["timing.roofline.model".to_owned(), "timing.roofline.device".to_owned()]);
    let known = known_keys("random").into_iter().filter(|key| key.starts_with("timing."));
    assert_eq!(seen, known.collect());
}

#[test]
fn a_preset_shows_its_figures_and_single_ones_can_be_changed() {
    let plain = scenario(ROOFLINE, &[]).expect("good");
    let layers = shown_value(&plain.settings, "timing.roofline.model.layers");
    assert_eq!(layers, Some((Value::Integer(32), Origin::Described)));
    let changed = scenario(ROOFLINE, &["timing.roofline.model.kv_bytes=1", "timing.roofline.count=2"]).expect("good");
    let ModelConfig::Roofline(config) = &changed.timing.model else { panic!("no roofline") };
    assert_eq!((config.model.kv_bytes, config.model.layers, config.usage.count), (1.0, 32, 2));
    let other = scenario(ROOFLINE, &["timing.roofline.model=qwen3-8b"]).expect("good");
    let ModelConfig::Roofline(config) = &other.timing.model else { panic!("no roofline") };
    assert_eq!(config.model.layers, 36);
}

#[test]
fn descriptions_come_from_files_beside_the_scenario() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write(
        "config.json",
        r#"{"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 100, "vocab_size": 9}"#,
    );
    write("device.toml", "bf16_tflops = 10\nmemory_gib = 4\nmemory_gb_per_s = 100\n");
    write("typo.toml", "bf16_tflops = 10\nmemory = 4\n");
    let file = folder.path().join("s.toml").display().to_string();
    let read = |device: &str| {
        let text = format!(
            "{HEAD}[timing]\nmodel = \"roofline\"\nroofline.model = \"config.json\"\nroofline.device = \"{device}\"\n"
        );
        Scenario::from_str(&text, &file, &["engine.mem_fraction_static=0.5".to_owned()])
    };
    let scenario = read("device.toml").expect("good");
    // 2 GiB less the weights, by 2 layers x 2 x 64 elements of 2 bytes.
    let pool = scenario.pool.expect("derived");
    assert_eq!((pool.kv_token_bytes, scenario.engine.max_total_tokens), (512.0, pool.tokens));
    let error = read("typo.toml").expect_err("an unknown key");
    assert!(error.file.ends_with("typo.toml") && error.line == 2, "{error}");
    let error = read("none.toml").expect_err("no such file");
    assert!(error.file.ends_with("none.toml"), "{error}");
}

#[test]
fn the_pool_follows_from_the_fraction_and_a_smaller_one_wins() {
    let derived = scenario(ROOFLINE, &["engine.mem_fraction_static=0.9"]).expect("good");
    let tokens = derived.engine.max_total_tokens;
    assert_eq!(derived.pool.as_ref().map(|pool| pool.tokens), Some(tokens));
    let shown = shown_value(&derived.settings, "engine.max_total_tokens");
    assert_eq!(shown, Some((Value::Integer(tokens as i64), Origin::Derived)));
    let sets = ["engine.mem_fraction_static=0.9", "engine.max_total_tokens=1000"];
    assert_eq!(scenario(ROOFLINE, &sets).expect("good").engine.max_total_tokens, 1000);
    let sets = ["engine.mem_fraction_static=0.9", "engine.max_total_tokens=100000000"];
    let capped = scenario(ROOFLINE, &sets).expect("good");
    assert_eq!(capped.engine.max_total_tokens, tokens);
    assert_eq!(shown_value(&capped.settings, "engine.max_total_tokens"), shown);
    assert_eq!(scenario(ROOFLINE, &[]).expect("good").engine.max_total_tokens, 393_216);
}

#[test]
fn a_model_that_is_set_drops_the_files_keys_of_others() {
    let text = format!("{ROOFLINE}linear.decode_pass_us = 3\n");
    assert_eq!(refused(&text, &[]), (7, "timing.linear.decode_pass_us".to_owned()));
    let linear = scenario(&text, &["timing.model=linear"]).expect("good");
    let ModelConfig::Linear(linear) = linear.timing.model else { panic!("not linear") };
    assert_eq!(linear.decode_pass_us, 3.0);
    assert_eq!(refused("", &["timing.model=linear", "timing.extend_ms=3"]).1, "timing.extend_ms");
}

#[test]
fn bad_keys_and_values_are_refused_with_their_line() {
    let cases = [
        ("[timing]\nmodel = \"table\"\n", 0, "timing.table.path"),
        ("[timing]\nmodel = \"table\"\ntable.path = \"t\"\ntable.outside = \"guess\"\n", 6, "timing.table.outside"),
        ("[timing]\nmodel = \"linear\"\nlinear.decode_row_us = -1\n", 5, "timing.linear.decode_row_us"),
        ("[timing]\nmodel = \"linear\"\nlinear.decode_rows_us = 1\n", 5, "timing.linear.decode_rows_us"),
        ("[timing]\nmodel = \"linear\"\nextend_ms = 1\n", 5, "timing.extend_ms"),
        ("[timing]\nhost_overhead_ms = \"x\"\n", 4, "timing.host_overhead_ms"),
        ("[timing]\nhost_overhead_ms = 1\nhost_overhead_path = \"h\"\n", 4, "timing.host_overhead_ms"),
        ("[timing]\nmodel = \"roofline\"\n", 0, "timing.roofline.model"),
        ("[timing]\nmodel = \"roofline\"\nroofline.model = \"llama-9\"\n", 5, "timing.roofline.model"),
        ("[timing]\nmodel = \"roofline\"\nroofline.model = 8\n", 5, "timing.roofline.model"),
        ("[timing]\nmodel = \"roofline\"\nroofline.model = \"qwen3-8b\"\n", 0, "timing.roofline.device"),
        ("[engine]\nmem_fraction_static = 0.9\n", 4, "engine.mem_fraction_static"),
    ];
    for (text, line, field) in cases {
        assert_eq!(refused(text, &[]), (line, field.to_owned()), "{text}");
    }
    let sets = [
        ("timing.roofline.count=3", "timing.roofline.count"),
        ("timing.roofline.count=0", "timing.roofline.count"),
        ("timing.roofline.memory_efficiency=1.1", "timing.roofline.memory_efficiency"),
        ("timing.roofline.layer_us=-1", "timing.roofline.layer_us"),
        ("timing.roofline.model.layers=many", "timing.roofline.model.layers"),
        ("timing.roofline.model.layers=0", "timing.roofline.model.layers"),
        ("timing.roofline.model.compute_type=fp4", "timing.roofline.model.compute_type"),
        ("timing.roofline.model.colour=1", "timing.roofline.model.colour"),
        ("timing.roofline.device.memory_gib=0", "timing.roofline.device.memory_gib"),
        ("engine.mem_fraction_static=1.5", "engine.mem_fraction_static"),
        ("engine.mem_fraction_static=0.1", "engine.mem_fraction_static"),
    ];
    for (set, field) in sets {
        assert_eq!(refused(ROOFLINE, &[set]), (1, field.to_owned()), "{set}");
    }
    let fp8 = refused(ROOFLINE, &["timing.roofline.model.compute_type=fp8", "timing.roofline.device=a100-sxm-80gb"]);
    assert_eq!(fp8, (1, "timing.roofline.model.compute_type".to_owned()));
}

#[test]
fn files_that_a_model_needs_are_named_when_it_is_made() {
    let built = |text: &str| scenario(text, &[]).expect("good").build_timing().err().expect("no such file").file;
    assert_eq!(built("[timing]\nmodel = \"table\"\ntable.path = \"no.csv\"\n"), "dir/no.csv");
    assert_eq!(built("[timing]\nhost_overhead_path = \"no.csv\"\n"), "dir/no.csv");
}

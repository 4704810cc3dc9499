//! Scenario files: what is simulated, in TOML, with every value checked and its origin known.
//!
//! - [`source`]: a file and `--set` overrides as dotted keys with values and lines.
//! - [`keys`]: which keys there are, and what a misspelt one was meant to be.
//! - [`settings`]: takes values out by key and type.
//! - [`engine`], [`timing`], [`workload`], [`output`]: the sections with more than a few keys.
//! - [`build`]: from the settings to a workload that plays.
//! - [`render`]: the resolved settings as a scenario again.
//! - [`embedded`]: the scenarios that come with the program.

pub mod build;
pub mod embedded;
pub mod engine;
pub mod keys;
pub mod kv_events;
pub mod output;
pub mod render;
pub mod settings;
pub mod source;
pub mod timing;
pub mod workload;

use std::path::{Path, PathBuf};

use servesim_engine::config::EngineConfig;
use toml::Value;

pub use self::embedded::{BATCHES, EMBEDDED};
pub use self::output::OutputConfig;
pub use self::settings::{Origin, Setting};
pub use self::timing::{HostConfig, ModelConfig, TimingConfig};
pub use self::workload::{Ends, WorkloadConfig};

use self::settings::Settings;
use crate::metrics::slo::Slo;
use crate::player::OnError;
use crate::timing::roofline::memory::DerivedPool;
use crate::trace::lines::unreadable;
use crate::workload::InputError;

/// Everything that one run needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name; the file's name unless it says another.
    pub name: String,
    /// What it shows.
    pub description: String,
    /// Seeds the generators and, unless `engine.random_seed` is set, the engine.
    pub seed: u64,
    /// The worker.
    pub engine: EngineConfig,
    /// What the pool was derived from; absent if it was not.
    pub pool: Option<DerivedPool>,
    /// How long passes take.
    pub timing: TimingConfig,
    /// What happens when a pass is refused.
    pub on_error: OnError,
    /// What is asked of the worker.
    pub workload: WorkloadConfig,
    /// When submissions end.
    pub ends: Ends,
    /// Bounds to hold requests against.
    pub slo: Slo,
    /// Where results go.
    pub output: OutputConfig,
    /// Every setting with its value and origin, in the order of the schema.
    pub settings: Vec<Setting>,
    /// The folder that relative paths start from.
    pub folder: PathBuf,
}

/// The seed of a scenario that names none.
pub const DEFAULT_SEED: u64 = 42;

impl Scenario {
    /// Reads a scenario file. `overrides` are `--set` arguments, `a.b=V`.
    ///
    /// # Errors
    /// A file that cannot be read, no valid TOML, an unknown key, or a value that a key cannot have.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Scenario, InputError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| unreadable(&name, 0, &error))?;
        Scenario::from_str(&text, &name, overrides)
    }

    /// Reads a scenario from text; `file_name` stands for the file in errors, and relative paths start from its folder.
    ///
    /// # Errors
    /// As [`Scenario::load`].
    pub fn from_str(text: &str, file_name: &str, overrides: &[String]) -> Result<Scenario, InputError> {
        let entries = source::read(text, file_name, overrides)?;
        let mut settings = Settings::new(entries, file_name);
        let kind = settings.kind()?;
        settings.refuse_unknown(&kind)?;
        let file = Path::new(file_name);
        let stem = file.file_stem().map_or_else(|| "scenario".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let name = settings.text("name", Some(&stem))?.unwrap_or(stem);
        let description = settings.text("description", Some(""))?.unwrap_or_default();
        let seed = settings.whole("seed", DEFAULT_SEED, 0..=i64::MAX as u64)?;
        let folder = file.parent().map(Path::to_owned).unwrap_or_default();
        // The engine's pool may follow from the timing, which is shown behind it.
        let mark = settings.taken();
        let (timing, on_error) = timing::read(&mut settings, &folder)?;
        let timing_settings = settings.set_aside(mark);
        let (engine, pool) = engine::read(&mut settings, seed, &timing)?;
        settings.put_back(timing_settings);
        let (workload, ends) = workload::read(&mut settings, &kind, seed)?;
        let slo = output::read_slo(&mut settings)?;
        let output = output::read(&mut settings)?;
        let settings = settings.finish();
        Ok(Scenario {
            name,
            description,
            seed,
            engine,
            pool,
            timing,
            on_error,
            workload,
            ends,
            slo,
            output,
            settings,
            folder,
        })
    }
}

/// A value as TOML, for messages.
pub(crate) fn shown(value: &Value) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "[workload]\nkind = \"coding-agent\"\n";

    fn error(text: &str, overrides: &[&str]) -> InputError {
        let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
        Scenario::from_str(text, "dir/s.toml", &overrides).expect_err(text)
    }

    #[test]
    fn defaults_fill_what_a_scenario_leaves_out() {
        let scenario = Scenario::from_str(MINIMAL, "dir/s.toml", &[]).expect("valid");
        assert_eq!((scenario.name.as_str(), scenario.seed, scenario.ends.limit), ("s", 42, None));
        assert_eq!(scenario.engine, EngineConfig::default());
        let model = ModelConfig::Constant { extend_ns: 1_000_000, decode_ns: 1_000_000 };
        assert_eq!(scenario.timing, TimingConfig { model, host: HostConfig::Constant(0.0) });
        assert_eq!(scenario.folder, Path::new("dir"));
    }

    #[test]
    fn an_unknown_key_names_its_line_and_what_was_meant() {
        let found = error(&format!("{MINIMAL}[engine]\npage_sise = 16\n"), &[]);
        assert_eq!((found.file.as_str(), found.line, found.field.as_str()), ("dir/s.toml", 4, "engine.page_sise"));
        assert!(found.expected.contains("`engine.page_size`"), "{found}");
        let found = error(&format!("{MINIMAL}[timing]\nxyz = 1\n"), &[]);
        assert!(found.expected.contains("timing.decode_ms"), "{found}");
        assert_eq!(error(&format!("{MINIMAL}[engine.nothing]\n"), &[]).field, "engine.nothing");
        assert_eq!(error(&format!("engine = 3\n{MINIMAL}"), &[]).field, "engine");
    }

    #[test]
    fn a_key_of_another_kind_or_mode_says_where_it_belongs() {
        let found = error(&format!("{MINIMAL}path = \"x\"\n"), &[]);
        assert_eq!((found.line, found.field.as_str()), (3, "workload.path"));
        assert!(found.expected.contains("sessions") && found.expected.contains("azure"), "{found}");
        let open = "[workload]\nkind = \"mooncake\"\npath = \"x\"\nmode = \"open\"\nlanes = 3\n";
        assert_eq!((error(open, &[]).line, error(open, &[]).field.as_str()), (5, "workload.lanes"));
    }

    #[test]
    fn an_unknown_policy_lists_the_known_ones() {
        let found = error(&format!("{MINIMAL}[engine]\nschedule_policy = \"sjf\"\n"), &[]);
        assert_eq!((found.line, found.found.as_str()), (4, "\"sjf\""));
        for (name, _) in servesim_engine::config::SchedulePolicy::NAMES {
            assert!(found.expected.contains(name), "{name} is missing in {found}");
        }
        let found = error("[workload]\nkind = \"wekaa\"\n", &[]);
        assert!(found.expected.contains("\"weka\"") && found.expected.contains("\"random\""), "{found}");
    }

    #[test]
    fn wrong_types_and_bounds_are_refused_with_their_line() {
        let cases = [
            ("[engine]\npage_size = \"x\"", 4, "engine.page_size"),
            ("[engine]\npage_size = -1", 4, "engine.page_size"),
            ("[engine]\npage_size = 0", 4, "engine.page_size"),
            (
                "[engine.radix_eviction_policy_config]\nthreshold = true",
                4,
                "engine.radix_eviction_policy_config.threshold",
            ),
            ("requests = 0", 3, "workload.requests"),
            ("turns = [3, 2]", 3, "workload.turns"),
            ("turns = 3", 3, "workload.turns"),
            ("[timing]\nextend_ms = -1.0", 4, "timing.extend_ms"),
            ("[timing]\ndecode_ms = nan", 4, "timing.decode_ms"),
            ("[timing]\nmodel = \"quadratic\"", 4, "timing.model"),
            ("limit = 1.5", 3, "workload.limit"),
        ];
        for (line, number, field) in cases {
            let found = error(&format!("{MINIMAL}{line}\n"), &[]);
            assert_eq!((found.line, found.field.as_str()), (number, field), "{found}");
        }
        assert_eq!(error("seed = 1\n", &[]).field, "workload.kind");
        assert_eq!(error("a = = 1\n", &[]).line, 1);
    }

    #[test]
    fn overrides_win_and_bad_ones_say_which() {
        let overrides =
            ["engine.schedule_policy=lpm", "engine.page_size=16", "timing.extend_ms=2.5", "workload.limit=7"];
        let overrides = overrides.map(String::from);
        let text = format!("{MINIMAL}limit = 5\n");
        let scenario = Scenario::from_str(&text, "s.toml", &overrides).expect("valid");
        assert_eq!((scenario.engine.page_size, scenario.ends.limit), (16, Some(7)));
        assert!(scenario.engine.effective_policy().is_cache_aware());
        let model = ModelConfig::Constant { extend_ns: 2_500_000, decode_ns: 1_000_000 };
        assert_eq!(scenario.timing.model, model);
        for (bad, field) in [
            ("engine.page_size", "engine.page_size"),
            ("=3", "--set"),
            ("engine.page_size=[1", "engine.page_size"),
            ("engine.page_sice=1", "engine.page_sice"),
            ("engine.page_size=big", "engine.page_size"),
            ("workload.limit=3\nseed=4", "workload.limit"),
        ] {
            let found = error(MINIMAL, &["seed=1", bad]);
            assert_eq!((found.file.as_str(), found.line, found.field.as_str()), ("--set", 2, field), "{found}");
        }
    }

    #[test]
    fn a_mode_that_is_set_drops_the_files_keys_of_the_other_mode() {
        let text = "[workload]\nkind = \"mooncake\"\npath = \"x\"\nmode = \"closed\"\nlanes = 3\n";
        let scenario = Scenario::from_str(text, "s.toml", &["workload.mode=open".into()]).expect("valid");
        assert!(scenario.settings.iter().all(|setting| setting.key != "workload.lanes"));
    }
}

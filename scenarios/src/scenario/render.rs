//! The resolved settings as a scenario again, each with where its value comes from.

use std::fmt::Write;

use super::{Scenario, Setting, shown};

impl Scenario {
    /// Every setting as valid TOML with its origin as a comment; what is not set stands in a comment. Read again, it is
    /// the same scenario.
    pub fn render_config(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for setting in &self.settings {
            let (table, name) = setting.key.split_once('.').unwrap_or(("", &setting.key));
            if table != section {
                let _ = writeln!(text, "\n[{table}]");
                section = table;
            }
            text.push_str(&line(setting, name));
        }
        text
    }
}

fn line(setting: &Setting, name: &str) -> String {
    match &setting.value {
        None => format!("# {} is not set\n", setting.key),
        Some(value) => format!("{name} = {}  # {}\n", shown(value), setting.origin.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::keys::{KINDS, known_keys};

    #[test]
    fn what_is_rendered_reads_as_the_same_scenario() {
        let text = "name = \"n\"\ndescription = \"two\\nlines\"\n[workload]\nkind = \"random\"\nlanes = 3\n";
        let scenario = Scenario::from_str(text, "x.toml", &["engine.page_size=16".into()]).expect("valid");
        let rendered = scenario.render_config();
        assert!(rendered.contains("page_size = 16  # --set"), "{rendered}");
        assert!(rendered.contains("lanes = 3  # file"), "{rendered}");
        assert!(rendered.contains("chunked_prefill_size = 8192  # default"), "{rendered}");
        assert!(rendered.contains("# engine.max_queued_requests is not set"), "{rendered}");
        let again = Scenario::from_str(&rendered, "x.toml", &[]).expect("valid");
        assert_eq!((again.engine, again.workload), (scenario.engine, scenario.workload));
        assert_eq!((again.name, again.description), (scenario.name, scenario.description));
    }

    #[test]
    fn every_key_of_every_kind_and_mode_is_rendered() {
        for (kind, keys) in KINDS {
            let modes: &[&str] = if keys.contains(&"mode") { &["closed", "open"] } else { &[""] };
            let mut seen = std::collections::BTreeSet::new();
            for mode in modes {
                let mode = if mode.is_empty() { String::new() } else { format!("mode = \"{mode}\"\n") };
                let path = if keys.contains(&"path") { "path = \"p\"\n" } else { "" };
                let text = format!("[workload]\nkind = \"{kind}\"\n{mode}{path}");
                let scenario = Scenario::from_str(&text, "x.toml", &[]).expect(kind);
                seen.extend(scenario.settings.into_iter().map(|setting| setting.key));
            }
            // Which keys of the timing are rendered depends on its model, and is tested beside it.
            let of_timing = |key: &String| key.starts_with("timing.");
            seen.retain(|key| !of_timing(key));
            let known = known_keys(kind).into_iter().filter(|key| !of_timing(key));
            assert_eq!(seen, known.collect(), "{kind}");
        }
    }
}

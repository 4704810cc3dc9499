//! The scenarios and batches that come with the program.

/// File name and text of each scenario.
pub const EMBEDDED: &[(&str, &str)] = &[
    ("coding-agent.toml", include_str!("../../coding-agent.toml")),
    ("agents16.toml", include_str!("../../agents16.toml")),
    ("agents4.toml", include_str!("../../agents4.toml")),
    ("weka.toml", include_str!("../../weka.toml")),
    ("mooncake-conversation.toml", include_str!("../../mooncake-conversation.toml")),
    ("mooncake-synthetic.toml", include_str!("../../mooncake-synthetic.toml")),
    ("azure-code.toml", include_str!("../../azure-code.toml")),
    ("shared-prefix.toml", include_str!("../../shared-prefix.toml")),
    ("long-output.toml", include_str!("../../long-output.toml")),
    ("long-prompts.toml", include_str!("../../long-prompts.toml")),
];

/// File name and text of each batch file.
pub const BATCHES: &[(&str, &str)] = &[
    ("page-size.toml", include_str!("../../batches/page-size.toml")),
    ("pool-size.toml", include_str!("../../batches/pool-size.toml")),
    ("schedule-policies.toml", include_str!("../../batches/schedule-policies.toml")),
    ("eviction-policies.toml", include_str!("../../batches/eviction-policies.toml")),
    ("chunk-size.toml", include_str!("../../batches/chunk-size.toml")),
    ("retraction-storms.toml", include_str!("../../batches/retraction-storms.toml")),
    ("agent-lanes.toml", include_str!("../../batches/agent-lanes.toml")),
    ("overlap.toml", include_str!("../../batches/overlap.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::testing::trace;

    #[test]
    fn every_scenario_is_valid_and_named_after_its_file() {
        for (file, text) in EMBEDDED {
            let scenario = Scenario::from_str(text, file, &[]).expect(file);
            assert_eq!(format!("{}.toml", scenario.name), *file);
            assert!(!scenario.description.is_empty(), "{file} says what it shows");
        }
    }

    #[test]
    fn every_scenario_can_be_built_where_the_traces_are() {
        let Some(any) = trace("agents16.jsonl.gz") else { return };
        let folder = any.parent().expect("a file is in a folder");
        for (file, text) in EMBEDDED {
            let name = folder.join(file).display().to_string();
            let scenario = Scenario::from_str(text, &name, &[]).expect(file);
            assert!(scenario.build_workload().is_ok(), "{file}");
        }
    }
}

//! The keys of `[output]` that say what is done with KV events.

use super::settings::{Settings, wrong};
use crate::kv_events::config::KvEventsConfig;
use crate::workload::InputError;

/// What is done with KV events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvEventsSink {
    /// They are counted; neither hashes nor token ids are made.
    #[default]
    Count,
    /// A line a batch in `kv_events.jsonl`.
    JsonLines,
    /// A frame a batch in `kv_events.msgpack`.
    Msgpack,
    /// Published over ZeroMQ.
    Zmq,
}

impl KvEventsSink {
    /// The words of scenario files, in the order of the variants.
    pub const NAMES: [&str; 4] = ["count", "jsonl", "msgpack", "zmq"];
    const ALL: [KvEventsSink; 4] =
        [KvEventsSink::Count, KvEventsSink::JsonLines, KvEventsSink::Msgpack, KvEventsSink::Zmq];

    /// The file below the output folder, if this is one.
    pub fn file_name(self) -> Option<&'static str> {
        match self {
            KvEventsSink::JsonLines => Some("kv_events.jsonl"),
            KvEventsSink::Msgpack => Some("kv_events.msgpack"),
            KvEventsSink::Count | KvEventsSink::Zmq => None,
        }
    }
}

/// What is done with KV events, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvEventsOutput {
    /// What is done with them.
    pub sink: KvEventsSink,
    /// Where `zmq` publishes; SGLang's defaults unless it is set.
    pub config: KvEventsConfig,
    /// Whether stored events carry their token ids.
    pub emit_token_ids: bool,
    /// Whether removals say why, in `kv_events.jsonl`.
    pub reason: bool,
}

/// Takes the keys out of `settings`.
///
/// # Errors
/// A value of the wrong type, or one that means nothing beside another one.
pub fn read(settings: &mut Settings) -> Result<KvEventsOutput, InputError> {
    let (sink, _) = settings.choice("output.kv_events", KvEventsSink::NAMES[0], &KvEventsSink::NAMES)?;
    let kv_events = KvEventsSink::ALL[sink];
    let config = settings.given("output.kv_events_config");
    let text = settings.text("output.kv_events_config", None)?;
    let kv_events_config = match (&text, &config) {
        (Some(text), Some(entry)) => {
            if kv_events != KvEventsSink::Zmq {
                return Err(wrong(entry, "output.kv_events_config", "output.kv_events = \"zmq\" beside it"));
            }
            KvEventsConfig::parse(text).map_err(|fault| InputError {
                field: format!("output.{}", fault.field),
                found: fault.found,
                ..wrong(entry, "", fault.expected)
            })?
        }
        // Who asks for `zmq` and says no more wants it published where SGLang would.
        _ => KvEventsConfig { publisher: Some("zmq".into()), ..KvEventsConfig::default() },
    };
    let emit_token_ids = flag_beside(
        settings,
        "output.emit_token_ids",
        kv_events != KvEventsSink::Count,
        || "output.kv_events = \"jsonl\", \"msgpack\" or \"zmq\" beside it",
    )?;
    let kv_events_reason = flag_beside(
        settings,
        "output.kv_events_reason",
        kv_events == KvEventsSink::JsonLines,
        || "output.kv_events = \"jsonl\" beside it",
    )?;
    Ok(KvEventsOutput { sink: kv_events, config: kv_events_config, emit_token_ids, reason: kv_events_reason })
}

/// A flag that may be set only where it means something.
fn flag_beside(
    settings: &mut Settings,
    key: &str,
    allowed: bool,
    expected: impl Fn() -> &'static str,
) -> Result<bool, InputError> {
    let given = settings.given(key);
    let flag = settings.flag(key, false)?;
    match given {
        Some(entry) if flag && !allowed => Err(wrong(&entry, key, expected())),
        _ => Ok(flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    fn output(lines: &str) -> Result<KvEventsOutput, InputError> {
        let text = format!("[workload]\nkind = \"random\"\n[output]\n{lines}\n");
        Scenario::from_str(&text, "s.toml", &[]).map(|scenario| scenario.output.kv_events)
    }

    #[test]
    fn events_are_counted_unless_something_else_is_asked_for() {
        let config = output("").expect("valid");
        assert_eq!((config.sink, config.emit_token_ids, config.reason), (KvEventsSink::Count, false, false));
        let config = output("kv_events = \"jsonl\"\nemit_token_ids = true\nkv_events_reason = true").expect("valid");
        assert_eq!(config.sink.file_name(), Some("kv_events.jsonl"));
        assert!(config.emit_token_ids && config.reason);
        let config = output("kv_events = \"zmq\"").expect("valid");
        assert!(config.config.publishes());
        let config = output("kv_events = \"zmq\"\nkv_events_config = '{\"topic\":\"kv\"}'").expect("valid");
        assert!(!config.config.publishes() && config.config.topic == "kv");
    }

    #[test]
    fn what_means_nothing_or_is_unknown_is_refused_with_its_line() {
        for (lines, line, field) in [
            ("kv_events = \"nats\"", 4, "output.kv_events"),
            ("emit_token_ids = true", 4, "output.emit_token_ids"),
            ("kv_events = \"zmq\"\nkv_events_reason = true", 5, "output.kv_events_reason"),
            ("kv_events_config = '{}'", 4, "output.kv_events_config"),
            ("kv_events = \"zmq\"\nkv_events_config = '{\"topics\":1}'", 5, "output.kv_events_config"),
            ("kv_events = \"zmq\"\nkv_events_config = '{\"endpoint\":\"x\"}'", 5, "output.kv_events_config.endpoint"),
            ("kv_events = \"zmq\"\nkv_events_config = 3", 5, "output.kv_events_config"),
        ] {
            let error = output(lines).expect_err(lines);
            assert_eq!((error.line, error.field.as_str()), (line, field), "{error}");
        }
    }
}

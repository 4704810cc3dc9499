//! SGLang's `--kv-events-config`, a JSON object, as it is: `publisher, endpoint, replay_endpoint, buffer_steps, hwm,
//! max_queue_size, topic` with the defaults of v0.5.21. An unknown key is an error.

use serde::Deserialize;

use crate::trace::field::Fault;

/// Where and how KV events are published.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KvEventsConfig {
    /// `zmq` publishes; `null` (the word or the JSON value; the default) does not.
    pub publisher: Option<String>,
    /// Where the PUB socket is.
    pub endpoint: String,
    /// Where the ROUTER socket for replays is; none is no replay.
    pub replay_endpoint: Option<String>,
    /// The last batches that a replay can give.
    pub buffer_steps: u64,
    /// Batches that may wait for a slow subscriber; more are dropped. 0 is no limit.
    pub hwm: u64,
    /// Batches that may wait for the publisher; more are dropped. 0 is no limit.
    pub max_queue_size: u64,
    /// The first frame of each message.
    pub topic: String,
}

impl Default for KvEventsConfig {
    fn default() -> KvEventsConfig {
        KvEventsConfig {
            publisher: None,
            endpoint: "tcp://*:5557".into(),
            replay_endpoint: None,
            buffer_steps: 10_000,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic: String::new(),
        }
    }
}

/// An address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address, with a wildcard host as an IP address.
    pub address: String,
    /// Whether the socket binds there or connects to it.
    pub bind: bool,
}

impl KvEventsConfig {
    /// Reads the JSON object.
    ///
    /// # Errors
    /// No valid JSON, an unknown key, a wrong type, an unknown publisher, or an endpoint that is no TCP or IPC address.
    pub fn parse(json: &str) -> Result<KvEventsConfig, Fault> {
        let expected =
            "SGLang's JSON object of publisher, endpoint, replay_endpoint, buffer_steps, hwm, max_queue_size, topic";
        let config: KvEventsConfig =
            serde_json::from_str(json).map_err(|error| Fault::new("kv_events_config", error.to_string(), expected))?;
        match config.publisher.as_deref() {
            None | Some("null" | "zmq") => {}
            Some(other) => {
                return Err(Fault::new("kv_events_config.publisher", format!("\"{other}\""), "\"null\" or \"zmq\""));
            }
        }
        config.pub_endpoint()?;
        config.router_endpoint()?;
        Ok(config)
    }

    /// Whether anything is published.
    pub fn publishes(&self) -> bool {
        self.publisher.as_deref() == Some("zmq")
    }

    /// Where the PUB socket binds or connects: SGLang binds to a wildcard host and to IPC addresses, else it connects.
    ///
    /// # Errors
    /// No TCP or IPC address.
    pub fn pub_endpoint(&self) -> Result<Endpoint, Fault> {
        let bind = ["*", "::", "0.0.0.0"].iter().any(|host| self.endpoint.contains(host));
        let bind = bind || self.endpoint.starts_with("ipc://");
        Ok(Endpoint { address: address("endpoint", &self.endpoint)?, bind })
    }

    /// Where the replay socket binds, if there is one.
    ///
    /// # Errors
    /// No TCP or IPC address.
    pub fn router_endpoint(&self) -> Result<Option<Endpoint>, Fault> {
        let Some(endpoint) = &self.replay_endpoint else { return Ok(None) };
        Ok(Some(Endpoint { address: address("replay_endpoint", endpoint)?, bind: true }))
    }
}

/// An endpoint with a host that the system knows.
fn address(key: &str, endpoint: &str) -> Result<String, Fault> {
    let refused = || {
        let field = format!("kv_events_config.{key}");
        Fault::new(&field, format!("\"{endpoint}\""), "tcp://HOST:PORT with a port from 1 to 65535, or ipc://PATH")
    };
    if endpoint.strip_prefix("ipc://").is_some_and(|path| !path.is_empty()) {
        return Ok(endpoint.to_owned());
    }
    let (host, port) = endpoint.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or_else(refused)?;
    let port = port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(refused)?;
    let host = match host {
        "" => return Err(refused()),
        "*" => "0.0.0.0",
        other => other,
    };
    Ok(format!("tcp://{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sglang_takes_is_taken_as_it_is() {
        let text = r#"{"publisher":"zmq","endpoint":"tcp://*:5600","replay_endpoint":"tcp://127.0.0.1:5601",
            "buffer_steps":7,"hwm":8,"max_queue_size":9,"topic":"kv"}"#;
        let config = KvEventsConfig::parse(text).expect("valid");
        assert!(config.publishes());
        assert_eq!(config.pub_endpoint(), Ok(Endpoint { address: "tcp://0.0.0.0:5600".into(), bind: true }));
        let replay = Endpoint { address: "tcp://127.0.0.1:5601".into(), bind: true };
        assert_eq!(config.router_endpoint(), Ok(Some(replay)));
        assert_eq!((config.buffer_steps, config.hwm, config.max_queue_size, config.topic.as_str()), (7, 8, 9, "kv"));
        let config = KvEventsConfig::parse("{}").expect("valid");
        assert_eq!(config, KvEventsConfig::default());
        assert!(!config.publishes());
        assert!(!KvEventsConfig::parse(r#"{"publisher":null}"#).expect("valid").publishes());
    }

    #[test]
    fn the_host_decides_whether_to_bind() {
        let bind = |endpoint: &str| {
            let config = KvEventsConfig { endpoint: endpoint.into(), ..KvEventsConfig::default() };
            config.pub_endpoint().expect(endpoint).bind
        };
        assert!(bind("tcp://*:1") && bind("tcp://[::]:1") && bind("tcp://0.0.0.0:1") && bind("ipc://kv.sock"));
        assert!(!bind("tcp://127.0.0.1:1") && !bind("tcp://router:5557"));
    }

    #[test]
    fn what_is_unknown_or_wrong_is_refused_and_named() {
        for (text, field, found) in [
            (r#"{"publisher":"nats"}"#, "kv_events_config.publisher", "\"nats\""),
            (r#"{"endpoint":"tcp://*"}"#, "kv_events_config.endpoint", "\"tcp://*\""),
            (r#"{"endpoint":"inproc://x"}"#, "kv_events_config.endpoint", "\"inproc://x\""),
            (r#"{"replay_endpoint":"tcp://*:70000"}"#, "kv_events_config.replay_endpoint", "\"tcp://*:70000\""),
            (r#"{"topics":"x"}"#, "kv_events_config", "unknown field `topics`"),
            (r#"{"hwm":-1}"#, "kv_events_config", "invalid value: integer `-1`"),
            (r#"{"hwm""#, "kv_events_config", "EOF"),
        ] {
            let fault = KvEventsConfig::parse(text).expect_err(text);
            assert_eq!(fault.field, field, "{fault:?}");
            assert!(fault.found.starts_with(found), "{fault:?}");
        }
    }
}

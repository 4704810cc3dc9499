//! Addresses that cases bind sockets to for KV events: two cases that run at a time cannot share one.

use std::collections::BTreeMap;

use anyhow::anyhow;
use servesim_scenarios::scenario::kv_events::{KvEventsOutput, KvEventsSink};

use super::case::Case;

/// The addresses that a case with this output binds to.
pub fn bound(output: &KvEventsOutput) -> Vec<String> {
    if output.sink != KvEventsSink::Zmq || !output.config.publishes() {
        return Vec::new();
    }
    // Endpoints that are no addresses were refused when the scenario was read.
    let publish = output.config.pub_endpoint().ok();
    let replay = output.config.router_endpoint().ok().flatten();
    publish.into_iter().chain(replay).filter(|endpoint| endpoint.bind).map(|endpoint| endpoint.address).collect()
}

/// Whether `cases` can run at a time.
///
/// # Errors
/// Two of them bind to one address.
pub fn check_apart<'c>(cases: impl Iterator<Item = &'c Case>) -> anyhow::Result<()> {
    let mut holders = BTreeMap::new();
    for case in cases {
        for address in &case.binds {
            if let Some(other) = holders.insert(address, &case.name).filter(|other| **other != case.name) {
                return Err(anyhow!(
                    "output.kv_events_config: found {address} in cases {other} and {}, expected an endpoint of its own \
                     for each case, or --jobs 1",
                    case.name
                ));
            }
        }
    }
    Ok(())
}

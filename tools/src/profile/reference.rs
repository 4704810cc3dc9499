//! What the reference's scheduler would pay for the same work, from counts: a model, not a measurement of this run.
//!
//! The counts are exact, but for nodes to the root, of which only some calls are counted. What a unit costs is a setting; the defaults were measured on a CPU with the structures of the
//! reference.

use servesim_engine::work::Work;

/// What a unit of the reference's work costs, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReferenceCost {
    /// An evictable leaf put into the heap that each eviction call makes anew.
    pub eviction_leaf_ns: f64,
    /// A leaf inserted.
    pub leaf_insert_ns: f64,
    /// A lock or the release of a lock, whatever the path to the root.
    pub lock_ns: f64,
    /// A node on that path.
    pub path_node_ns: f64,
    /// A waiting request that is matched for the order or tested for admission.
    pub queue_entry_ns: f64,
    /// A token that such a match finds in the cache.
    pub matched_token_ns: f64,
}

impl Default for ReferenceCost {
    /// Of SGLang v0.5.21 on a CPU: 0.43 ms an eviction call at 64,000 leaves, and 22 µs a leaf insert. With its tree in Rust, a
    /// lock and a release took 2.5 µs each, and 34 and 39 ns a node of chains of 10 to 200 nodes. `calc_priority` under `lpm`
    /// took 12 to 150 µs a waiting request, with prompts of 1,024 to 32,768 tokens of which a half or more was found in 1 to 15
    /// nodes. 10 µs and 4 ns a token found are within a half of these; of a prompt found in 63 nodes, it took twice that.
    fn default() -> ReferenceCost {
        ReferenceCost {
            eviction_leaf_ns: 430_000.0 / 64_000.0,
            leaf_insert_ns: 22_000.0,
            lock_ns: 2_500.0,
            path_node_ns: 36.0,
            queue_entry_ns: 10_000.0,
            matched_token_ns: 4.0,
        }
    }
}

/// A part of the reference's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// The setting that prices it.
    pub key: &'static str,
    /// What the reference does.
    pub what: &'static str,
    /// The count of ours that says how often.
    pub counter: &'static str,
    /// How often.
    pub count: u64,
    /// What one costs, in nanoseconds.
    pub unit_ns: f64,
}

impl Part {
    /// What it comes to.
    pub fn ns(&self) -> f64 {
        self.count as f64 * self.unit_ns
    }
}

/// Why a setting of the form `KEY=NS` cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CostError {
    /// There is no such cost.
    #[error("--reference-cost {text}: found no such cost, expected one of {}", keys.join(", "))]
    Key {
        /// What was given.
        text: String,
        /// What there is.
        keys: Vec<&'static str>,
    },
    /// The value is no cost.
    #[error("--reference-cost {text}: found {value:?}, expected a number of nanoseconds from 0 to 1e12")]
    Value {
        /// What was given.
        text: String,
        /// Its value.
        value: String,
    },
}

impl ReferenceCost {
    /// The parts of some work.
    pub fn parts(&self, work: &Work) -> [Part; 6] {
        let part = |key, what, counter, count, unit_ns| Part { key, what, counter, count, unit_ns };
        [
            part(
                "eviction_leaf_ns",
                "leaves put into a heap at each eviction",
                "eviction_leaves",
                work.eviction_leaves,
                self.eviction_leaf_ns,
            ),
            part("leaf_insert_ns", "leaves inserted", "leaves_added", work.leaves_added, self.leaf_insert_ns),
            part("lock_ns", "locks and releases", "locks", work.locks, self.lock_ns),
            part("path_node_ns", "nodes walked to the root", "path_nodes", work.path_nodes, self.path_node_ns),
            part(
                "queue_entry_ns",
                "queue entries matched or tested",
                "requests_examined",
                work.requests_examined,
                self.queue_entry_ns,
            ),
            part(
                "matched_token_ns",
                "tokens matched for them",
                "tokens_matched",
                work.tokens_matched,
                self.matched_token_ns,
            ),
        ]
    }

    /// What some work comes to, in nanoseconds.
    pub fn ns(&self, work: &Work) -> f64 {
        self.parts(work).iter().map(Part::ns).sum()
    }

    /// Sets costs of the form `KEY=NS`, the later of two counts.
    ///
    /// # Errors
    /// A key that is none, or a value that is no cost.
    pub fn with(mut self, settings: &[String]) -> Result<ReferenceCost, CostError> {
        for text in settings {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            let cost = match key.trim() {
                "eviction_leaf_ns" => &mut self.eviction_leaf_ns,
                "leaf_insert_ns" => &mut self.leaf_insert_ns,
                "lock_ns" => &mut self.lock_ns,
                "path_node_ns" => &mut self.path_node_ns,
                "queue_entry_ns" => &mut self.queue_entry_ns,
                "matched_token_ns" => &mut self.matched_token_ns,
                _ => {
                    let keys = self.parts(&Work::default()).map(|part| part.key).to_vec();
                    return Err(CostError::Key { text: text.clone(), keys });
                }
            };
            let number = value.trim().parse::<f64>().ok().filter(|number| (0.0..=1e12).contains(number));
            *cost = number.ok_or_else(|| CostError::Value { text: text.clone(), value: value.to_owned() })?;
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_counts_times_units() {
        let work = Work {
            eviction_leaves: 64_000,
            leaves_added: 2,
            locks: 4,
            path_nodes: 1_000,
            requests_examined: 10,
            tokens_matched: 5_000,
            ..Work::default()
        };
        assert!((ReferenceCost::default().ns(&work) - 640_000.0).abs() < 1e-6);
        let set = ["lock_ns=0", "path_node_ns=3", "queue_entry_ns=1.5", "leaf_insert_ns = 0", "matched_token_ns=0"]
            .map(str::to_owned);
        let cost = ReferenceCost::default().with(&set).expect("good settings");
        assert!((cost.ns(&work) - (430_000.0 + 3_000.0 + 15.0)).abs() < 1e-6);
    }

    #[test]
    fn what_is_no_cost_is_refused() {
        let set = |text: &str| ReferenceCost::default().with(&[text.to_owned()]);
        assert!(matches!(set("leaf=1"), Err(CostError::Key { .. })));
        for text in [
            "path_node_ns",
            "path_node_ns=",
            "path_node_ns=-1",
            "path_node_ns=NaN",
            "path_node_ns=2e12",
            "path_node_ns=x",
        ] {
            assert!(matches!(set(text), Err(CostError::Value { .. })), "{text}");
        }
    }
}

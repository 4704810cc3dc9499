//! How a case ended, as its folder says it.

use serde::{Deserialize, Serialize};

/// Written beside the results of a case that is done, and alone for one that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The case.
    pub case: String,
    /// Digest of all that decides on its results.
    pub digest: String,
    /// Why it failed; absent when it is done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the run had to say, such as skipped rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

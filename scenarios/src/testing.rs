//! What tests share: where recorded traces are.

use std::path::PathBuf;

/// The path of a recorded trace, in the folder that `SERVESIM_TRACES` names or in `shared/traces` beside the project; says
/// that the test is skipped where there is none.
pub(crate) fn trace(name: &str) -> Option<PathBuf> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("SERVESIM_TRACES").map_or(beside, PathBuf::from);
    let path = folder.join(name);
    if path.is_file() {
        return Some(path);
    }
    eprintln!("skipped: no traces ({} is not there)", path.display());
    None
}

/// A share in percent with two digits.
pub(crate) fn percent(share: f64) -> f64 {
    (share * 10_000.0).round() / 100.0
}

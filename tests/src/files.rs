//! Where recorded runs and traces are.

use std::path::{Path, PathBuf};

/// The folder of recorded runs.
pub fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The recorded cases of a folder below the recorded runs, by name.
pub fn cases(folder: &str) -> Vec<PathBuf> {
    let folder = golden().join(folder);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.to_string_lossy().ends_with(".json.gz"))
        .collect();
    files.sort();
    files
}

/// The folder of scenario files, with the session traces that are the project's own.
pub fn scenarios() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios")
}

/// The folder of traces: the one that `SERVESIM_TRACES` names, or `shared/traces` beside the repository. Says so when there
/// is none.
pub fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("SERVESIM_TRACES").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no traces");
    None
}

//! The folder of a batch.
//!
//! | path | what it is |
//! |---|---|
//! | `cases/CASE/` | the results of a case that is done; it is there whole or not at all |
//! | `failed/CASE.json` | why a case failed |
//! | `manifest.json` | versions, and every case with its digest, seed and settings |
//! | `.partial/` | what is being written; of no use after a batch, and removed by the next one |
//! | `.lock` | held while a batch writes |
//!
//! A case is written into a folder of its own under `.partial`, made durable, and renamed into place.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use serde_json::Value;

use super::outcome::Outcome;

/// The file of a case that says how it ended.
const OUTCOME: &str = "case.json";

/// A batch's folder.
pub struct Folder {
    root: PathBuf,
    attempts: AtomicU64,
}

impl Folder {
    /// The folder at a path, which need not be there.
    pub fn at(root: &Path) -> Folder {
        Folder { root: root.to_owned(), attempts: AtomicU64::new(0) }
    }

    /// Makes it, with its parts.
    ///
    /// # Errors
    /// A place that cannot be written to.
    pub fn make(&self) -> anyhow::Result<()> {
        for part in [self.root.clone(), self.cases(), self.root.join("failed"), self.partial()] {
            fs::create_dir_all(&part).with_context(|| format!("{}: cannot be made", part.display()))?;
        }
        Ok(())
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn cases(&self) -> PathBuf {
        self.root.join("cases")
    }

    fn partial(&self) -> PathBuf {
        self.root.join(".partial")
    }

    fn failure(&self, case: &str) -> PathBuf {
        self.root.join("failed").join(format!("{case}.json"))
    }

    /// The results of a case.
    pub fn case(&self, case: &str) -> PathBuf {
        self.cases().join(case)
    }

    /// Whether a batch has been here.
    pub fn is_used(&self) -> bool {
        self.manifest().exists() || fs::read_dir(self.cases()).is_ok_and(|mut cases| cases.next().is_some())
    }

    /// The manifest's path.
    pub fn manifest(&self) -> PathBuf {
        self.root.join("manifest.json")
    }

    /// A path under `.partial` that nobody else has used. A child that outlives its parent cannot hit upon it either, since
    /// the parent's process id is a part of it.
    pub fn attempt(&self, name: &str) -> PathBuf {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        self.partial().join(format!("{name}.{}.{number}", std::process::id()))
    }

    /// Removes what an earlier batch has left half-written.
    ///
    /// # Errors
    /// Something that cannot be removed.
    pub fn clear_partial(&self) -> anyhow::Result<()> {
        let cannot = || format!("{}: cannot be cleared", self.partial().display());
        // A child whose parent was just killed may still write; what it adds while its folder goes is removed by a second try.
        let removed = fs::remove_dir_all(self.partial()).or_else(|_| fs::remove_dir_all(self.partial()));
        removed.or_else(ignore_missing).with_context(cannot)?;
        fs::create_dir_all(self.partial()).with_context(cannot)
    }

    /// Removes `.partial` at the end of a batch.
    pub fn remove_partial(&self) {
        // It is of no use, and does no harm.
        let _ = fs::remove_dir_all(self.partial());
    }

    /// How a case that is done ended.
    pub fn done(&self, case: &str) -> Option<Outcome> {
        read_json(&self.case(case).join(OUTCOME))
    }

    /// How a case that failed ended.
    pub fn failed(&self, case: &str) -> Option<Outcome> {
        read_json(&self.failure(case))
    }

    /// Cases that are done, by name.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.cases()).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// Puts the results of a case into place, in place of older ones.
    ///
    /// # Errors
    /// A disk that is full, or a place that cannot be written to. Nothing is lost that was in place before, but older results
    /// of this same case.
    pub fn finish(&self, partial: &Path, outcome: &Outcome) -> anyhow::Result<()> {
        let cannot = || format!("{}: cannot be put in place", self.case(&outcome.case).display());
        write_new(&partial.join(OUTCOME), json(outcome)?.as_bytes()).with_context(cannot)?;
        sync_folder(partial).with_context(cannot)?;
        let place = self.case(&outcome.case);
        if place.exists() {
            // A folder cannot be renamed over another one. A batch that is killed between the two steps redoes the case.
            fs::rename(&place, self.attempt("old")).with_context(cannot)?;
        }
        fs::rename(partial, &place).with_context(cannot)?;
        sync_names(&self.cases()).with_context(cannot)?;
        self.forget_failure(&outcome.case)
    }

    /// Notes that a case failed, and removes what it has written.
    ///
    /// # Errors
    /// A disk that is full, or a place that cannot be written to.
    pub fn fail(&self, partial: &Path, outcome: &Outcome) -> anyhow::Result<()> {
        // First, since it may be what fills the disk.
        let _ = fs::remove_dir_all(partial);
        self.write(&self.failure(&outcome.case), json(outcome)?.as_bytes())
    }

    fn forget_failure(&self, case: &str) -> anyhow::Result<()> {
        let path = self.failure(case);
        fs::remove_file(&path).or_else(ignore_missing).with_context(|| format!("{}: cannot be removed", path.display()))
    }

    /// Writes a file beside its place and renames it, so that it is there whole or not at all.
    ///
    /// # Errors
    /// A disk that is full, or a place that cannot be written to.
    pub fn write(&self, path: &Path, content: &[u8]) -> anyhow::Result<()> {
        let cannot = || format!("{}: cannot be written", path.display());
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let beside = self.attempt(&name);
        write_new(&beside, content).with_context(cannot)?;
        fs::rename(&beside, path).with_context(cannot)?;
        path.parent().map_or(Ok(()), sync_names).with_context(cannot)
    }
}

fn json(outcome: &Outcome) -> serde_json::Result<String> {
    Ok(format!("{}\n", serde_json::to_string_pretty(outcome)?))
}

fn read_json(path: &Path) -> Option<Outcome> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// The JSON of a file, if it is there and valid.
pub fn read_value(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Makes the files of a folder durable, and their names.
fn sync_folder(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_folder(&path)?;
        } else {
            File::open(&path)?.sync_all()?;
        }
    }
    sync_names(folder)
}

#[cfg(unix)]
fn sync_names(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_names(_folder: &Path) -> io::Result<()> {
    Ok(())
}

fn ignore_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

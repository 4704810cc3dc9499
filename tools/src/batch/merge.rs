//! `servesim merge`: the folders of a batch's shards as one folder, the same as that of the whole batch.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use super::folder::Folder;
use super::lock::Lock;
use super::manifest::Manifest;
use super::{results, sum_up};
use crate::Failure;
use crate::arguments::MergeOptions;

/// Joins shards.
pub fn merge(options: &MergeOptions) -> Result<ExitCode, Failure> {
    let manifest = common_manifest(options).map_err(Failure::BadInput)?;
    let folder = Folder::at(&options.out);
    folder.make().map_err(Failure::BadInput)?;
    let _lock = Lock::take(&options.out).map_err(Failure::BadInput)?;
    refuse_other(&folder, &manifest).map_err(Failure::BadInput)?;
    folder.clear_partial().map_err(Failure::BadInput)?;
    manifest.write(&folder).map_err(Failure::Run)?;
    for shard in &options.shards {
        take_over(&Folder::at(shard), &folder, &manifest).map_err(Failure::Run)?;
    }
    let table = results::write(&folder, &manifest).map_err(Failure::Run)?;
    folder.remove_partial();
    Ok(sum_up(&table, &folder))
}

/// The manifest of the whole batch, which all shards share.
fn common_manifest(options: &MergeOptions) -> anyhow::Result<Manifest> {
    let mut common: Option<Manifest> = None;
    for shard in &options.shards {
        let manifest = Manifest { shard: None, ..Manifest::read(shard)? };
        match &common {
            None => common = Some(manifest),
            Some(first) if *first == manifest => {}
            Some(first) => return Err(differs(shard, first, &manifest, &options.shards[0])),
        }
    }
    common.ok_or_else(|| anyhow!("found no folder, expected those of a batch's shards"))
}

/// Says in what a shard's batch is another one.
fn differs(shard: &Path, first: &Manifest, other: &Manifest, first_folder: &Path) -> anyhow::Error {
    let expected = format!("shards of one batch, as of {}", first_folder.display());
    let place = shard.display();
    if first.servesim != other.servesim {
        let (found, version) = (&other.servesim, &first.servesim);
        return anyhow!("{place}: servesim: found version {found}, expected {version}: {expected}");
    }
    if first.cases.len() != other.cases.len() {
        let (found, count) = (other.cases.len(), first.cases.len());
        return anyhow!("{place}: cases: found {found} of them, expected {count}: {expected}");
    }
    let mut pairs = first.cases.iter().zip(&other.cases);
    let name = pairs.find(|(one, two)| one != two).map_or("settings", |(_, two)| two.name.as_str());
    anyhow!("{place}: {name}: found other settings, expected {expected}")
}

/// The result may be there already, from a merge of the same batch; anything else is kept.
fn refuse_other(folder: &Folder, manifest: &Manifest) -> anyhow::Result<()> {
    if !folder.is_used() || Manifest::read(folder.root()).is_ok_and(|there| there == *manifest) {
        return Ok(());
    }
    let place = folder.root().display();
    Err(anyhow!("{place}: found the results of another batch, expected an empty folder"))
}

/// Copies what a shard has and the result has not.
fn take_over(shard: &Folder, folder: &Folder, manifest: &Manifest) -> anyhow::Result<()> {
    for case in &manifest.cases {
        let there = folder.done(&case.name).is_some_and(|outcome| outcome.digest == case.digest);
        if there {
            continue;
        }
        if let Some(outcome) = shard.done(&case.name).filter(|outcome| outcome.digest == case.digest) {
            let partial = folder.attempt(&case.name);
            copy(&shard.case(&case.name), &partial)
                .with_context(|| format!("{}: cannot be copied", shard.case(&case.name).display()))?;
            folder.finish(&partial, &outcome)?;
        } else if let Some(outcome) = shard.failed(&case.name).filter(|outcome| outcome.digest == case.digest) {
            folder.fail(&folder.attempt(&case.name), &outcome)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &place)?;
        } else {
            std::fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}

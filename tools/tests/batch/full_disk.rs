//! A disk that is full, as a small file system in memory. Needs the right to mount one, and is skipped without it.
//!
//! - Contract: the error says what could not be written and why; nothing that is done is lost.
//! - Differential: with room again, the batch comes to the bytes of an undisturbed one.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{batch, same};
use crate::program::Files;

const CASES: &str = "name = \"d\"\nbase = \"coding-agent\"\n[set]\n\"workload.requests\" = 40\n\
                     [sweep]\n\"engine.page_size\" = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\n\
                     \"engine.max_total_tokens\" = [65536, 98304, 131072, 196608]\n";

/// A file system that is unmounted in the end.
struct Mounted(String);

impl Mounted {
    fn new(place: &str, options: &str) -> Option<Mounted> {
        std::fs::create_dir_all(place).expect("made");
        mount(place, options).then(|| Mounted(place.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn mount(place: &str, options: &str) -> bool {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", options, "servesim-test", place]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let files = Files::new();
    let disk = files.path("disk");
    let Some(mounted) = Mounted::new(&disk, "size=400k") else {
        eprintln!("skipped: no right to mount a file system");
        return;
    };
    let said = batch(&files, CASES, "disk/out", &[]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert!(said.stderr.contains("No space left on device"), "{}", said.stderr);
    let cases = || {
        let entries = std::fs::read_dir(Path::new(&disk).join("out/cases")).expect("a folder").flatten();
        entries.map(|case| case.path()).collect::<Vec<_>>()
    };
    let done = cases();
    assert!(!done.is_empty() && done.len() < 40, "{} cases are done", done.len());
    for case in &done {
        for name in ["case.json", "summary.json", "host.json"] {
            let text = std::fs::read_to_string(case.join(name)).expect("a case that is done is whole");
            assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{name} of {}", case.display());
        }
    }
    assert!(mount(&disk, "remount,size=64m"), "there is room again");
    let said = batch(&files, CASES, "disk/out", &["--resume"]).succeeds();
    assert!(said.stderr.contains(&format!("{} of 40 cases are done already", done.len())), "{}", said.stderr);
    batch(&files, CASES, "undisturbed", &[]).succeeds();
    same(files.path("undisturbed").as_ref(), Path::new(&disk).join("out").as_ref());
    drop(mounted);
}

//! A batch that is killed (SIGKILL) again and again comes to the same bytes as one that is not.
//!
//! - Differential: 20 kills at random moments from a fixed seed, each followed by `--resume`.
//! - Property: what is done at a kill is not done again.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use super::{batch, same};
use crate::program::{Files, command};

/// Kills.
const KILLS: usize = 20;

/// Cases of some hundredths of a second each.
const CASES: &str = "name = \"k\"\nbase = \"coding-agent\"\n[set]\n\"workload.requests\" = 1500\n\
                     [sweep]\n\"engine.max_total_tokens\" = [65536, 98304, 131072, 196608]\n\
                     \"engine.page_size\" = [1, 2, 4, 8, 16, 32]\n";

/// Moments from a fixed seed, in milliseconds: a linear congruential generator with Knuth's constants.
fn moments() -> impl Iterator<Item = u64> {
    let mut state = 9_u64;
    std::iter::from_fn(move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some((state >> 33) % 120)
    })
}

/// When each case that is done was written.
fn done(out: &Path) -> BTreeMap<String, SystemTime> {
    let cases = std::fs::read_dir(out.join("cases")).into_iter().flatten().flatten();
    cases
        .map(|case| {
            // Whole or not at all: a folder that is there has everything.
            let time = std::fs::metadata(case.path().join("case.json")).and_then(|data| data.modified());
            assert!(case.path().join("summary.json").is_file(), "{} is not whole", case.path().display());
            (case.file_name().into_string().expect("UTF-8"), time.expect("a case that is there is whole"))
        })
        .collect()
}

#[test]
fn a_batch_that_is_killed_twenty_times_comes_to_the_same_bytes() {
    let files = Files::new();
    batch(&files, CASES, "undisturbed", &["--jobs", "2"]).succeeds();
    let file = files.path("batch.toml");
    let out = files.path("killed");
    let mut ran_on = 0;
    let mut earlier = BTreeMap::new();
    for moment in moments().take(KILLS) {
        let arguments = ["batch", &file, "--out", &out, "--resume", "--jobs", "2"];
        let mut child = command(&arguments).stderr(Stdio::null()).spawn().expect("started");
        std::thread::sleep(Duration::from_millis(moment));
        ran_on += usize::from(child.try_wait().expect("a child").is_none());
        child.kill().expect("it can be killed, also when it has ended");
        child.wait().expect("it ends");
        let now = done(out.as_ref());
        for (case, time) in &earlier {
            assert_eq!(now.get(case), Some(time), "{case} was done and is done again");
        }
        earlier = now;
    }
    assert!(ran_on >= KILLS / 2, "only {ran_on} kills met a running batch");
    let said = batch(&files, CASES, "killed", &["--resume"]).succeeds();
    for (case, time) in &earlier {
        assert_eq!(done(out.as_ref()).get(case), Some(time), "{case}: {}", said.stderr);
    }
    same(files.path("undisturbed").as_ref(), out.as_ref());
}

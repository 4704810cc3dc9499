//! The slow twin equals the recorded runs of the real scheduler.

use std::path::{Path, PathBuf};

use servesim_scenarios::case::{Case, PassLog};
use servesim_tests::compare::first_difference;
use servesim_tests::random_case::{print_golden, random_case, shrink};
use servesim_tests::twin::{Model, Player, play};

/// Recorders stop their random cases at one of these.
const RANDOM_LIMITS: [u64; 2] = [3000, 6000];
/// The recorder stops every other case here.
const LIMIT: u64 = 200_000;

fn golden_folders() -> Vec<PathBuf> {
    match std::env::var_os("SERVESIM_GOLDEN") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")],
    }
}

/// The case files of a folder and of its `fuzz` folder, by name.
fn golden_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for place in [folder.to_path_buf(), folder.join("fuzz")] {
        let Ok(entries) = std::fs::read_dir(&place) else { continue };
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        files.extend(paths.filter(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".json") || name.ends_with(".json.gz")
        }));
    }
    files.sort();
    files
}

fn difference(path: &Path) -> Option<String> {
    let case = match Case::load(path) {
        Ok(case) => case,
        Err(error) => return Some(error.to_string()),
    };
    let recorded = case.passes.len() as u64;
    let limit = if RANDOM_LIMITS.contains(&recorded) { recorded } else { LIMIT };
    match play(&case, limit) {
        Ok(passes) => first_difference(&case.passes, &passes),
        Err(error) => Some(error),
    }
}

#[test]
fn the_twin_equals_every_recorded_run() {
    let files: Vec<PathBuf> = golden_folders().iter().flat_map(|folder| golden_files(folder)).collect();
    assert!(!files.is_empty(), "no recorded runs in {:?}; SERVESIM_GOLDEN names other folders", golden_folders());
    let mut wrong = Vec::new();
    for path in &files {
        if let Some(text) = difference(path) {
            wrong.push(format!("{}: {text}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

#[test]
fn random_cases_play_to_their_end_and_hold_what_must_hold() {
    for seed in 0..300 {
        let case = random_case(seed);
        let Ok(mut player) = Player::new(&case) else { panic!("seed {seed}: settings refused") };
        while !player.is_over() && player.model.pass < 500 {
            // The reference itself may run out of memory here; that ends the case.
            let Ok(log) = player.next_pass() else { break };
            check_sizes(&player.model, seed, &log);
        }
    }
}

/// Everything in the pool is free, in the tree or a request's own, and a copy says the same.
fn check_sizes(model: &Model, seed: u64, log: &PassLog) {
    assert!(model.free() >= 0, "seed {seed}, pass {}: {} tokens free", log.pass, model.free());
    let copy = model.clone();
    assert_eq!(copy.free(), model.free(), "seed {seed}, pass {}", log.pass);
    assert_eq!(copy.evictable(), model.evictable(), "seed {seed}, pass {}", log.pass);
    let locks = model.requests.iter().filter(|request| request.lock.is_some() && !request.holds_slot).count();
    assert_eq!(locks, 0, "seed {seed}, pass {}: a lock without a slot", log.pass);
}

#[test]
fn a_random_case_is_the_same_for_the_same_seed_and_survives_a_file() {
    let case = random_case(11);
    assert_eq!(case, random_case(11));
    let passes = play(&case, 200).expect("the case plays");
    let text = print_golden(&case, &passes);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("case.json");
    std::fs::write(&path, text).expect("a file");
    let read = Case::load(&path).expect("a case file");
    assert_eq!(read.lanes, case.lanes);
    assert_eq!(first_difference(&passes, &read.passes), None);
}

#[test]
fn a_failing_case_shrinks_to_what_makes_it_fail() {
    let is_long = |case: &Case| case.arrivals.iter().any(|arrival| arrival.request.max_new_tokens >= 3);
    let seed = (0..).find(|seed| is_long(&random_case(*seed))).expect("some seed has arrivals");
    let small = shrink(random_case(seed), &mut |case| is_long(case));
    assert!(small.lanes.is_empty() && small.aborts.is_empty());
    assert_eq!(small.arrivals.len(), 1);
    assert_eq!(small.arrivals[0].at_pass, 0);
    assert_eq!(small.arrivals[0].request.max_new_tokens, 3);
    assert_eq!(small.config.page_size, 1);
}

#[test]
fn a_difference_names_the_pass_and_the_field() {
    let passes = play(&random_case(11), 200).expect("the case plays");
    let mut other = passes.clone();
    other[2].after_schedule.free += 1;
    let text = first_difference(&passes, &other).expect("they differ");
    assert!(text.starts_with("pass 2: after_schedule"), "{text}");
    assert!(first_difference(&passes, &passes[1..]).is_some());
}

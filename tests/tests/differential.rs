//! Property and differential: random cases over all settings, played on the engine and on the slow twin, are equal in every
//! field of every pass, and the engine's invariants hold after each; a consumer that follows the events holds, block hash for
//! block hash, what the tree holds. A case that differs is shrunk and printed as a golden file.
//!
//! `SERVESIM_SCENARIOS` sets how many are tried, `SERVESIM_SEED` the first seed.

use servesim_engine::check::Violation;
use servesim_scenarios::case::{Case, PassLog};
use servesim_scenarios::replay::{ReplayError, constant, replay_with};
use servesim_scenarios::verify::first_difference;
use servesim_tests::mirror::Mirror;
use servesim_tests::random_case::{print_golden, random_case, shrink};
use servesim_tests::{rounds, twin};

/// Iterations after which a case that does not end is compared as far as it went.
const MOST: u64 = 1_500;

/// Plays a case on the engine and checks its invariants after each pass.
fn play(case: &Case) -> Result<Vec<PassLog>, ReplayError> {
    let mut mirror = Mirror::default();
    replay_with(case, MOST, constant(), |worker, pass| {
        worker.step().map_err(|source| ReplayError::Step { pass, source })?;
        let followed = mirror.follow(worker).and_then(|()| mirror.compare(worker));
        let mirrored = followed.map_err(|detail| Violation { invariant: "mirror of the events = tree", detail });
        worker.check().and(mirrored).map_err(|source| ReplayError::Broken { pass, source })
    })
}

/// What is wrong with a case, if anything: the twin's log where it has one.
fn wrong(case: &Case) -> Option<String> {
    // Where the reference would stop with an error, there is nothing to be equal to.
    let expected = twin::play(case, MOST).ok()?;
    match play(case) {
        Err(error) => Some(error.to_string()),
        Ok(got) => first_difference(&expected, &got).map(|difference| difference.to_string()),
    }
}

#[test]
fn random_cases_equal_the_slow_twin() {
    let (first, count) = rounds(300);
    let mut defined = 0;
    for seed in first..first + count {
        let case = random_case(seed);
        defined += u64::from(twin::play(&case, MOST).is_ok());
        if let Some(text) = wrong(&case) {
            let small = shrink(case, &mut |case| wrong(case).is_some());
            let golden = twin::play(&small, MOST).map(|passes| print_golden(&small, &passes));
            panic!("seed {seed}: {text}\nshrunk, {:?}:\n{}", wrong(&small), golden.unwrap_or_default());
        }
    }
    assert!(defined * 10 >= count * 9, "only {defined} of {count} cases are defined by the reference");
}

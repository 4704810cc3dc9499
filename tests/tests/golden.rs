//! Golden: the engine equals logs of the real scheduler, every field of every iteration, and sums of its whole runs.

use std::path::PathBuf;

use servesim_scenarios::case::Case;
use servesim_scenarios::replay::replay;
use servesim_scenarios::totals::Totals;
use servesim_scenarios::verify::first_difference;
use servesim_tests::files;

fn differences(paths: &[PathBuf]) -> Vec<String> {
    let mut differences = Vec::new();
    for path in paths {
        let case = Case::load(path).expect("a recorded case");
        let log = replay(&case).unwrap_or_else(|error| panic!("{}: {error}", case.case));
        if let Some(difference) = first_difference(&case.passes, &log) {
            differences.push(format!("{}: {difference}", case.case));
        }
    }
    differences
}

#[test]
fn every_recorded_case_is_equal() {
    let paths = files::cases(".");
    assert_eq!(paths.len(), 84, "all recorded cases are here");
    assert_eq!(differences(&paths), Vec::<String>::new());
}

#[test]
fn every_recorded_random_case_is_equal() {
    let paths = files::cases("fuzz");
    assert_eq!(paths.len(), 100, "all recorded random cases are here");
    assert_eq!(differences(&paths), Vec::<String>::new());
}

#[test]
fn a_tampered_log_is_found_out() {
    let mut case = Case::load(&files::golden().join("turns_page16.json.gz")).expect("a recorded case");
    let log = replay(&case).expect("it plays");
    case.passes[7].after_schedule.free += 16;
    let difference = first_difference(&case.passes, &log).expect("one number is wrong");
    assert_eq!((difference.pass, difference.field), (7, "after_schedule"));
}

fn totals_are_equal(name: &str) {
    let totals = Totals::load(&files::golden().join("big").join(name)).expect("recorded totals");
    let sums = totals.play(totals.workload(&files::scenarios()).expect("the trace is read")).expect("the run ends");
    assert_eq!(totals.totals.first_difference(&sums), None, "{name}");
}

#[test]
fn totals_of_sixteen_lanes_are_equal() {
    totals_are_equal("agents16_page1.json");
    totals_are_equal("agents16_page16.json");
}

#[test]
fn totals_of_sixteen_lanes_with_overlap_are_equal() {
    totals_are_equal("agents16_page1_overlap.json");
}

#[test]
fn totals_of_four_lanes_are_equal() {
    totals_are_equal("agents4_page1.json");
}

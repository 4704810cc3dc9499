//! What whole runs cost, from the scenario to the summary.

mod generated;
mod traces;

use std::path::Path;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use servesim_scenarios::player::{Pace, Player};
use servesim_scenarios::scenario::{EMBEDDED, Scenario};
use servesim_scenarios::summary::{Summary, Tally};

/// A scenario that comes with the program, with settings of the bench's own.
fn scenario(file: &str, folder: &Path, set: &[String]) -> Scenario {
    let (_, text) = EMBEDDED.iter().find(|(name, _)| *name == file).expect("a scenario of the program");
    Scenario::from_str(text, &folder.join(file).display().to_string(), set).expect("the settings are within bounds")
}

/// Plays a scenario as `servesim run` does, reading of its trace included.
fn play(scenario: &Scenario) -> Summary {
    let timing = scenario.build_timing().expect("a constant needs no file");
    let workload = scenario.build_workload().expect("the trace is good");
    let mut player =
        Player::new(scenario.engine.clone(), timing, workload, Pace::Model).expect("the settings are within bounds");
    let mut tally = Tally::default();
    player.run(|played| tally.add(played)).expect("the run ends");
    tally.summary()
}

/// Measures whole runs, and has criterion report requests a second.
fn whole_run(group: &mut BenchmarkGroup<WallTime>, id: BenchmarkId, scenario: &Scenario) {
    let requests = play(scenario).requests.submitted;
    group.throughput(Throughput::Elements(requests)).sample_size(10).sampling_mode(SamplingMode::Flat);
    group.bench_function(id, |bencher| bencher.iter(|| play(scenario)));
}

/// The page sizes that have to cost about the same.
const PAGE_SIZES: [u32; 3] = [1, 16, 64];

fn runs(criterion: &mut Criterion) {
    generated::coding_agent(criterion);
    traces::recorded(criterion);
}

criterion_group!(benches, runs);
criterion_main!(benches);

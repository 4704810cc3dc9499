//! Oracle: whole runs of real traces come to sums that are known without the engine. Skipped where there are no traces.

use servesim_engine::timing::Constant;
use servesim_scenarios::player::{Pace, Player};
use servesim_scenarios::scenario::{EMBEDDED, Scenario};
use servesim_scenarios::summary::{Summary, Tally};
use servesim_tests::files;

/// Runs a scenario that comes with the program, its trace read from the folder of traces.
fn run(name: &str, set: &[&str]) -> Option<Summary> {
    let traces = files::traces()?;
    let (_, text) = EMBEDDED.iter().find(|(file, _)| *file == name).expect("a scenario of the program");
    let set: Vec<String> = set.iter().map(|key| (*key).to_owned()).collect();
    let file = traces.join(name).display().to_string();
    let scenario = Scenario::from_str(text, &file, &set).expect("a good scenario");
    let workload = scenario.build_workload().expect("a good trace");
    let timing = Box::new(Constant { extend_ns: 1_000_000, decode_ns: 1_000_000 });
    let mut player = Player::new(scenario.engine, timing, workload, Pace::Model).expect("good settings");
    let mut tally = Tally::default();
    player.run(|played| tally.add(played)).expect("the run ends");
    Some(tally.summary())
}

#[test]
fn an_unlimited_pool_hits_what_the_trace_can_hit() {
    let set = ["engine.max_total_tokens=200000000", "engine.page_size=512", "workload.lanes=1"];
    let Some(summary) = run("mooncake-conversation.toml", &set) else { return };
    // One request after the other, blocks as pages: every leading block that the trace has had before is hit, but for the last
    // block of a prompt that was there whole, since the last token is always computed. Counted from the file alone.
    assert_eq!(summary.tokens.cached, 54_063_104);
    assert_eq!(summary.tokens.input, 144_793_823);
    assert_eq!(summary.requests.completed, 12_031);
}

#[test]
fn a_pool_of_one_prompt_still_finishes_every_request() {
    let Some(summary) = run("mooncake-conversation.toml", &["engine.max_total_tokens=131072"]) else { return };
    assert_eq!(summary.requests.completed + summary.requests.rejected, 12_031);
    assert_eq!(summary.requests.rejected, 0);
}

#[test]
fn agent_plays_hit_their_history() {
    let Some(summary) = run("weka.toml", &["workload.limit=4000", "engine.page_size=64"]) else { return };
    assert_eq!(summary.requests.completed, 4000);
    let hit = summary.tokens.cached as f64 / summary.tokens.input as f64;
    assert!((0.9..1.0).contains(&hit), "hit {hit}");
}

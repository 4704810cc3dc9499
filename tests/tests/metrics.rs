//! Latencies and result files.
//!
//! - Oracle: a few requests whose times are worked out by hand, with and without overlap, and the definitions that follow.
//! - Property: the gaps between tokens add up to what requests say of themselves, whatever the settings.
//! - Differential: strides against single passes, a timing that differs from pass to pass, every file byte for byte.

use std::collections::VecDeque;
use std::path::Path;

use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Contents, Namespace, Run};
use servesim_engine::request::RequestSpec;
use servesim_engine::timing::{Constant, PassShape, TimingModel};
use servesim_scenarios::metrics::request::EndedRequest;
use servesim_scenarios::metrics::serving::Serving;
use servesim_scenarios::metrics::slo::Slo;
use servesim_scenarios::metrics::{Metrics, MetricsConfig};
use servesim_scenarios::output::RunFiles;
use servesim_scenarios::player::{Pace, Player};
use servesim_scenarios::scenario::Scenario;
use servesim_scenarios::summary::{Summary, Tally};
use servesim_scenarios::workload::{InputError, Job, Workload};
use servesim_tests::random_case::SplitMix64;
use servesim_tests::rounds;

const MS: u64 = 1_000_000;

/// Requests by hand: due time in milliseconds, prompt and output tokens. All are of one session.
struct ByHand(VecDeque<(u64, u32, u32)>, u64);

impl Workload for ByHand {
    fn take_due(&mut self, now_ns: u64, contents: &mut Contents, jobs: &mut Vec<Job>) -> Result<(), InputError> {
        while let Some((due_ms, prompt, output)) = self.0.pop_front_if(|next| next.0 * MS <= now_ns) {
            let stream = contents.create(Namespace::default());
            let run = Run { first: 1000 * (self.1 as u32 + 1), count: prompt + output };
            contents.append(stream, run).expect("small ids");
            let request = RequestSpec::new(self.1, stream, prompt, output);
            let ends_session = self.0.is_empty();
            jobs.push(Job {
                request,
                order: self.1,
                due_ns: due_ms * MS,
                session: 0,
                turn: self.1 as u32,
                ends_session,
            });
            self.1 += 1;
        }
        Ok(())
    }

    fn next_due_ns(&mut self, _contents: &mut Contents) -> Result<Option<u64>, InputError> {
        Ok(self.0.front().map(|next| next.0 * MS))
    }

    fn ended(&mut self, _tag: u64, _now_ns: u64, _contents: &mut Contents) {}

    fn jobs_total(&self) -> Option<u64> {
        None
    }
}

/// Plays to the end; returns the summary and every request in the order of their numbers.
fn play(mut player: Player, config: MetricsConfig) -> (Summary, Metrics, Vec<EndedRequest>) {
    let mut tally = Tally::new(config);
    let mut ended = Vec::new();
    let played = player.run(|played| {
        tally.add(played);
        ended.extend_from_slice(tally.metrics().ended());
    });
    played.expect("the run ends");
    ended.sort_by_key(|request| request.id);
    (tally.summary(), tally.metrics().clone(), ended)
}

/// Prefills of 100 ms, decode passes of 10 ms.
fn by_hand(overlap: bool, requests: &[(u64, u32, u32)]) -> (Summary, Vec<EndedRequest>) {
    let config = EngineConfig { disable_overlap_schedule: !overlap, ..EngineConfig::default() };
    let timing = Constant { extend_ns: 100 * MS, decode_ns: 10 * MS };
    let workload = ByHand(requests.iter().copied().collect(), 0);
    let player = Player::new(config, Box::new(timing), Box::new(workload), Pace::Model).expect("good settings");
    let slo = Slo { ttft_ns: Some(150 * MS), tpot_ns: Some(30 * MS) };
    let (summary, _, ended) = play(player, MetricsConfig { slo, ..MetricsConfig::default() });
    (summary, ended)
}

/// Queue time, TTFT, TPOT and E2E of each request, in milliseconds.
fn latencies_ms(ended: &[EndedRequest]) -> Vec<[u64; 4]> {
    let ms = |time_ns: Option<u64>| time_ns.expect("every request has it") / MS;
    let of = |request: &EndedRequest| {
        let e2e_ms = request.e2e_latency_ns() / MS;
        [ms(request.queue_time_ns()), ms(request.ttft_ns()), ms(request.tpot_ns()), e2e_ms]
    };
    ended.iter().map(of).collect()
}

fn near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9 * expected.abs().max(1.0), "{found} is not {expected}");
}

/// Two requests: one of 3 tokens at 0 ms, one of 2 tokens at 50 ms.
const TWO: [(u64, u32, u32); 2] = [(0, 50, 3), (50, 50, 2)];

#[test]
fn two_requests_by_hand_without_overlap() {
    // First prefill 0-100; the second request is taken in at 100, its prefill 100-200; both decode 200-210, the first 210-220.
    let (summary, ended) = by_hand(false, &TWO);
    assert_eq!(latencies_ms(&ended), [[0, 100, 60, 220], [50, 150, 10, 160]]);
    let Serving { totals, latencies, .. } = &summary.serving;
    // Gaps: 110 and 10 of the first, 10 of the second.
    near(latencies.itl.mean_ms, 130.0 / 3.0);
    assert_eq!((latencies.itl.median_ms, latencies.itl.max_ms), (10.0, 110.0));
    near(latencies.tpot.mean_ms, 35.0);
    near(latencies.ttft.mean_ms, 125.0);
    near(latencies.ttft.std_ms, 25.0);
    near(latencies.ttft.p90_ms, 145.0);
    near(latencies.e2e_latency.median_ms, 190.0);
    near(latencies.queue_time.p99_ms, 49.5);
    assert_eq!((totals.completed, totals.total_input_tokens, totals.total_output_tokens), (2, 100, 5));
    near(totals.duration, 0.22);
    near(totals.request_throughput, 2.0 / 0.22);
    near(totals.input_throughput, 100.0 / 0.22);
    near(totals.output_throughput, 5.0 / 0.22);
    near(totals.total_throughput, 105.0 / 0.22);
    near(totals.concurrency, 0.38 / 0.22);
    assert_eq!((totals.max_output_tokens_per_s, totals.max_concurrent_requests), (5.0, 2));
    // The second is within both bounds; the first has a TPOT of 60.
    let slo = summary.slo.expect("bounds are set");
    assert_eq!((slo.requests, slo.share_pct), (1, 50.0));
    near(slo.request_goodput, 1.0 / 0.22);
}

#[test]
fn two_requests_by_hand_with_overlap() {
    // The first request's decode is launched behind its prefill: 0-100, 100-110. The second request is taken in at 100, its
    // prefill starts when that decode is done: 110-210. Then both decode 210-220, and a pass that ran too far 220-230.
    let (summary, ended) = by_hand(true, &TWO);
    assert_eq!(latencies_ms(&ended), [[0, 100, 60, 220], [60, 160, 10, 170]]);
    let Serving { totals, latencies, .. } = &summary.serving;
    near(latencies.itl.mean_ms, 130.0 / 3.0);
    assert_eq!((latencies.itl.median_ms, latencies.itl.max_ms), (10.0, 110.0));
    near(totals.duration, 0.22);
    assert_eq!(summary.duration_ms, 230.0);
    assert_eq!(summary.slo.expect("bounds are set").requests, 0);
}

#[test]
fn one_token_has_a_ttft_and_no_tpot_or_gap() {
    for overlap in [false, true] {
        let (summary, ended) = by_hand(overlap, &[(7, 5, 1)]);
        let request = ended[0];
        assert_eq!((request.ttft_ns(), request.tpot_ns()), (Some(100 * MS), None));
        assert_eq!((request.e2e_latency_ns(), request.end_ns), (100 * MS, 107 * MS));
        let latencies = &summary.serving.latencies;
        assert_eq!((latencies.tpot.max_ms, latencies.itl.max_ms), (0.0, 0.0));
        assert_eq!(summary.slo.expect("bounds are set").requests, 1);
    }
}

#[test]
fn passes_of_a_millisecond_make_latencies_of_counts() {
    let (text, sets) =
        ("[workload]\nkind = \"random\"\nlanes = 1\nrequests = 40\n", ["engine.disable_overlap_schedule=true"]);
    let scenario = Scenario::from_str(text, "s.toml", &sets.map(String::from)).expect("valid");
    let timing = Box::new(Constant { extend_ns: MS, decode_ns: MS });
    let (summary, _, ended) = play(player(&scenario, timing), MetricsConfig::default());
    // One at a time: a prefill of one pass, then a pass a token.
    for request in &ended {
        assert_eq!((request.ttft_ns(), request.tpot_ns()), (Some(MS), Some(MS)));
        assert_eq!(request.e2e_latency_ns(), u64::from(request.output_tokens) * MS);
    }
    let output: f64 = ended.iter().map(|request| f64::from(request.output_tokens)).sum();
    near(summary.serving.totals.duration * 1e3, output);
    assert_eq!((summary.serving.latencies.itl.mean_ms, summary.serving.latencies.itl.std_ms), (1.0, 0.0));
}

/// Takes a time that depends on every number of the shape, milliseconds in all.
fn uneven(shape: &PassShape) -> u64 {
    100_000 + 7_000 * u64::from(shape.decode_rows) + 30 * shape.decode_kv_tokens + 1_100 * shape.extend_tokens
}

/// A scenario from a seed: pools from tight to ample, both schedules, mixed chunks, priorities by policy.
fn scenario(seed: u64) -> Scenario {
    let mut draw = SplitMix64::new(seed);
    let page = draw.pick(&[1, 1, 16]);
    let mut sets = vec![
        format!("seed={seed}"),
        format!("engine.page_size={page}"),
        format!("engine.max_total_tokens={}", draw.pick(&[2_000, 4_000, 100_000])),
        format!("engine.disable_overlap_schedule={}", draw.chance(50)),
        format!("engine.enable_mixed_chunk={}", draw.chance(30)),
        format!("engine.chunked_prefill_size={}", draw.pick(&[256, 8192])),
        format!("engine.init_new_token_ratio={}", draw.pick(&[0.02, 0.7])),
        format!("engine.decode_log_interval={}", draw.pick(&[3, 40])),
        format!("engine.schedule_policy={}", draw.pick(&["fcfs", "lpm"])),
        "output.interval_s=0.01".to_owned(),
        "slo.ttft_ms=5".to_owned(),
    ];
    let text = if draw.chance(50) {
        sets.push(format!("workload.lanes={}", draw.pick(&[1, 5, 24])));
        "[workload]\nkind = \"random\"\nrequests = 60\ninput_tokens = [10, 900]\noutput_tokens = [1, 700]\n"
    } else {
        sets.push(format!("workload.rate_per_s={}", draw.pick(&[20.0, 400.0])));
        "[workload]\nkind = \"shared-prefix\"\nmode = \"open\"\ngroups = 4\nrequests_per_group = 15\nprefix_tokens = 300\n\
         suffix_tokens = 50\noutput_tokens = 400\n"
    };
    Scenario::from_str(text, "random.toml", &sets).expect("valid")
}

fn player(scenario: &Scenario, timing: Box<dyn TimingModel>) -> Player {
    let workload = scenario.build_workload().expect("built");
    Player::new(scenario.engine.clone(), timing, workload, Pace::Model).expect("good settings")
}

#[test]
fn gaps_add_up_to_what_requests_say() {
    let (first, count) = rounds(60);
    let (mut retracted, mut checked) = (0, 0);
    for seed in first..first + count {
        let scenario = scenario(seed);
        let player = player(&scenario, Box::new(|shape: &PassShape| Ok(uneven(shape))));
        let (summary, metrics, ended) = play(player, MetricsConfig::default());
        assert_eq!(summary.requests.submitted, ended.len() as u64);
        if summary.requests.dropped > 0 {
            // What left without finishing does not say how many tokens it had.
            continue;
        }
        checked += 1;
        retracted += summary.retracted;
        let served = || ended.iter().filter(|request| request.completed());
        let after_first: u64 = served().map(|request| u64::from(request.output_tokens) - 1).sum();
        let decoding =
            |request: &EndedRequest| request.end_ns - request.progress.first_token_ns.expect("it has tokens");
        let decoding_ns: u128 = served().map(|request| u128::from(decoding(request))).sum();
        assert_eq!((metrics.gaps().count(), metrics.gaps().sum_ns()), (after_first, decoding_ns), "seed {seed}");
        let totals = &summary.serving.totals;
        assert_eq!(totals.completed, summary.requests.completed);
        assert_eq!(totals.total_output_tokens, summary.tokens.output);
        assert_eq!(totals.total_cached_tokens, summary.tokens.cached, "seed {seed}");
        let retractions: u64 = ended.iter().map(|request| u64::from(request.progress.retractions)).sum();
        assert_eq!(retractions, summary.retracted);
        for request in served() {
            let times = [request.progress.admit_ns, request.progress.first_token_ns, Some(request.end_ns)];
            assert!(times.is_sorted() && times[0] >= Some(request.progress.submit_ns), "seed {seed}: {request:?}");
        }
    }
    assert!(checked > count / 2 && retracted > 0, "{checked} runs with {retracted} retractions");
}

/// Plays with result files; strides of at most `longest` passes, or of any length.
fn write(scenario: &Scenario, longest: Option<u64>, folder: &Path) -> String {
    let metrics = scenario.metrics_config(true);
    let timing = Box::new(|shape: &PassShape| Ok(uneven(shape)));
    let mut player = player(scenario, timing).watch_intervals(metrics.interval_ns);
    if let Some(longest) = longest {
        player = player.longest_stride(longest);
    }
    let mut files = RunFiles::create(folder, &scenario.output).expect("a folder");
    let mut tally = Tally::new(metrics);
    let mut more = true;
    while more {
        more = player.iterate(&mut |played| tally.add(played)).expect("the run ends");
        files.add(tally.metrics_mut()).expect("written");
    }
    files.finish(tally.metrics_mut()).expect("written");
    serde_json::to_string_pretty(&tally.summary()).expect("JSON")
}

#[test]
fn strides_and_single_passes_write_the_same_bytes() {
    let (first, count) = rounds(12);
    for seed in first..first + count {
        let scenario = scenario(seed);
        let folders: Vec<tempfile::TempDir> = (0..4).map(|_| tempfile::tempdir().expect("a folder")).collect();
        let lengths = [None, Some(0), Some(1), Some(7)];
        let write_to = |(longest, folder): (Option<u64>, &tempfile::TempDir)| write(&scenario, longest, folder.path());
        let summaries: Vec<String> = lengths.into_iter().zip(&folders).map(write_to).collect();
        for (summary, folder) in summaries.iter().zip(&folders) {
            assert_eq!(*summary, summaries[0], "seed {seed}");
            for name in ["requests.jsonl", "timeseries.csv", "sessions.csv", "turns.csv"] {
                let read = |folder: &tempfile::TempDir| std::fs::read_to_string(folder.path().join(name)).expect(name);
                assert_eq!(read(folder), read(&folders[0]), "seed {seed}, {name}");
            }
        }
    }
}

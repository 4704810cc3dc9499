//! Property and differential: the timing model refuses random passes, several in a row too, each tried again. After every
//! refusal a digest of all state equals the one before, and the whole log equals that of a run without refusals. Every kind of
//! journal entry is taken back by some case.

use servesim_engine::batch::BatchMode;
use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Namespace, Run, StreamKey};
use servesim_engine::request::{Finish, Reject, RequestKey, RequestSpec};
use servesim_engine::timing::{PassShape, TimingError, checked_ns};
use servesim_engine::worker::{StepError, Worker};
use servesim_scenarios::case::{Case, CaseConfig, PassLog};
use servesim_scenarios::replay::{constant, replay_refusing, replay_with, step_once};
use servesim_scenarios::verify::first_difference;
use servesim_tests::random_case::{print_golden, random_case, shrink};
use servesim_tests::{files, rounds};

const MOST: u64 = 1_500;

/// What is wrong with a case under refusals, if anything.
fn wrong(case: &Case, seed: u64) -> Option<String> {
    let plain: Vec<PassLog> = replay_with(case, MOST, constant(), step_once).ok()?;
    match replay_refusing(case, MOST, seed) {
        Err(error) => Some(error.to_string()),
        Ok(log) => first_difference(&plain, &log).map(|difference| difference.to_string()),
    }
}

#[test]
fn refused_passes_of_random_cases_leave_no_trace() {
    let (first, count) = rounds(300);
    for seed in first..first + count {
        let case = random_case(seed);
        if let Some(text) = wrong(&case, seed) {
            let small = shrink(case, &mut |case| wrong(case, seed).is_some());
            panic!("seed {seed}: {text}\nshrunk, {:?}:\n{}", wrong(&small, seed), print_golden(&small, &[]));
        }
    }
}

#[test]
fn refused_passes_of_recorded_cases_leave_no_trace() {
    for (index, path) in files::cases(".").iter().enumerate() {
        let case = Case::load(path).expect("a recorded case");
        let log = replay_refusing(&case, case.passes.len() as u64, index as u64)
            .unwrap_or_else(|error| panic!("{}: {error}", case.case));
        assert_eq!(first_difference(&case.passes, &log), None, "{}", case.case);
    }
}

/// Entries taken back, by kind, while every other pass of a case is refused.
fn undone_by(case: &Case, most: u64) -> Vec<u64> {
    let mut draws = 0_u64;
    let refusing = move |_: &PassShape| {
        draws += 1;
        if draws % 2 == 1 { Err(TimingError::OutOfRange { what: "every other".to_owned() }) } else { Ok(1) }
    };
    let mut undone = Vec::new();
    let log = replay_with(case, most, Box::new(refusing), |worker, pass| {
        if matches!(worker.step(), Err(StepError::Timing { .. })) {
            step_once(worker, pass)?;
        }
        undone = worker.journal().undone_by_kind().to_vec();
        Ok(())
    });
    assert!(log.is_ok(), "{}", case.case);
    undone
}

#[test]
fn every_kind_of_entry_is_taken_back_by_some_case() {
    let recorded = files::cases(".").into_iter().chain(files::cases("fuzz"));
    let mut cases: Vec<Case> = recorded.map(|path| Case::load(&path).expect("a recorded case")).collect();
    for case in cases.clone() {
        // The kinds that only some eviction policies have are recorded while chunks are inserted.
        for policy in ["priority", "tlru"].iter().filter(|_| case.case.starts_with("retraction_chunked")) {
            cases.push(Case {
                config: CaseConfig { eviction_policy: (*policy).to_owned(), ..case.config.clone() },
                ..case.clone()
            });
        }
    }
    let mut undone: Vec<u64> = Vec::new();
    for case in &cases {
        let by_kind = undone_by(case, case.passes.len() as u64);
        undone.resize(by_kind.len(), 0);
        undone.iter_mut().zip(&by_kind).for_each(|(sum, count)| *sum += count);
    }
    let missing: Vec<usize> = (0..undone.len()).filter(|&kind| undone[kind] == 0).collect();
    assert_eq!(missing, Vec::<usize>::new(), "kinds of entries that no case took back: {undone:?}");
}

/// A worker whose model takes the passes it is told to and refuses the others.
struct Bench {
    worker: Worker,
    next_token: u32,
}

impl Bench {
    fn new(config: EngineConfig) -> Bench {
        let config = EngineConfig { disable_overlap_schedule: true, ..config };
        Bench { worker: Worker::new(config, Box::new(|_: &PassShape| Ok(1))).expect("good settings"), next_token: 1 }
    }

    fn content(&mut self, runs: &[(u32, u32)]) -> StreamKey {
        let contents = self.worker.contents_mut();
        let stream = contents.create(Namespace::default());
        for &run in runs {
            contents.append(stream, Run::from(run)).expect("small ids");
        }
        stream
    }

    /// Submits a prompt of the given runs with an output of its own.
    fn submit(&mut self, tag: u64, prompt: &[(u32, u32)], output: u32) -> RequestKey {
        let mut runs = prompt.to_vec();
        self.next_token += 10_000;
        runs.push((1_000_000 + self.next_token, output));
        let stream = self.content(&runs);
        let tokens = prompt.iter().map(|run| run.1).sum();
        self.worker.submit(RequestSpec::new(tag, stream, tokens, output)).expect("content as said")
    }

    fn run_out(&mut self) {
        for _ in 0..10_000 {
            let idle = self.worker.step().expect("taken").mode == BatchMode::Idle;
            if idle && self.worker.running().is_empty() && self.worker.waiting().len() == 0 {
                return;
            }
        }
        panic!("the run does not end");
    }

    /// Has the next pass refused, and checks that nothing of it is left; returns the error.
    fn refuse(&mut self) -> StepError {
        self.worker.enter();
        let before = self.worker.digest();
        let refusal = |_: &PassShape| Err(TimingError::OutOfRange { what: "as told".to_owned() });
        self.worker.set_timing(Box::new(refusal));
        let error = self.worker.step().expect_err("refused");
        assert_eq!(self.worker.digest(), before, "a trace is left");
        self.worker.check().expect("the invariants hold");
        self.worker.set_timing(Box::new(|_: &PassShape| Ok(1)));
        error
    }
}

fn small(tokens: u64) -> EngineConfig {
    EngineConfig {
        max_total_tokens: tokens,
        context_length: 10_000,
        max_running_requests: 8,
        ..EngineConfig::default()
    }
}

#[test]
fn a_split_is_taken_back() {
    let mut bench = Bench::new(small(1_000));
    bench.submit(1, &[(10, 60)], 4);
    bench.run_out();
    let (nodes, splits) = (bench.worker.tree().node_count(), bench.worker.work().splits);
    bench.submit(2, &[(10, 33), (700, 20)], 4);
    bench.refuse();
    assert_eq!(bench.worker.tree().node_count(), nodes);
    assert!(bench.worker.work().splits > splits, "the refused pass split an edge");
}

#[test]
fn the_evictions_of_a_leaf_and_then_its_parent_are_taken_back() {
    let mut bench = Bench::new(small(300));
    // The finished insert splits the leaf at the prompt's end: the output is a leaf, the prompt its parent.
    bench.submit(1, &[(10, 150)], 40);
    bench.run_out();
    let evicted = bench.worker.work().leaves_evicted;
    bench.submit(2, &[(5_000, 280)], 4);
    bench.refuse();
    assert!(bench.worker.work().leaves_evicted >= evicted + 2, "leaf and parent went");
    assert_eq!(bench.worker.tree().evicted_tokens(), 0);
    bench.run_out();
    assert!(bench.worker.tree().evicted_tokens() > 0);
}

#[test]
fn duplicate_pages_that_were_freed_are_taken_back() {
    // Two equal prompts in chunks: the insert of a later chunk finds the pages of the other request and frees its own.
    let config = EngineConfig { chunked_prefill_size: 64, ..small(2_000) };
    let mut bench = Bench::new(config);
    bench.submit(1, &[(10, 100)], 30);
    bench.submit(2, &[(10, 100)], 30);
    for _ in 0..6 {
        bench.refuse();
        let free = bench.worker.pool().free_tokens();
        bench.refuse();
        assert_eq!(bench.worker.pool().free_tokens(), free);
        bench.worker.step().expect("taken");
    }
    bench.run_out();
}

#[test]
fn an_event_merged_into_the_tail_is_taken_back() {
    let config = EngineConfig { chunked_prefill_size: 64, ..small(1_000) };
    let mut bench = Bench::new(config);
    bench.submit(1, &[(10, 500)], 4);
    let before = bench.worker.journal().undone_by_kind().to_vec();
    for _ in 0..8 {
        bench.refuse();
        bench.worker.step().expect("taken");
    }
    bench.run_out();
    // Evicting several leaves merges their removals into one event.
    for tag in 2..6 {
        bench.submit(tag, &[(1_000 * tag as u32, 120)], 2);
        bench.run_out();
    }
    bench.submit(9, &[(90_000, 900)], 4);
    bench.refuse();
    let merged = 19;
    assert!(bench.worker.journal().undone_by_kind()[merged] > before[merged], "a merge was taken back");
}

#[test]
fn a_retraction_is_taken_back() {
    let config = EngineConfig { schedule_conservativeness: 0.0, clip_max_new_tokens_estimation: 1, ..small(200) };
    let mut bench = Bench::new(config);
    for tag in 1..4 {
        bench.submit(tag, &[(1_000 * tag as u32, 50)], 90);
    }
    let mut retractions = 0;
    for _ in 0..400 {
        if bench.worker.running().is_empty() && bench.worker.waiting().len() == 0 && retractions > 0 {
            break;
        }
        if !bench.worker.running().is_empty() {
            let peek = bench.worker.peek().expect("the pool holds the pass");
            if !peek.retracted.is_empty() {
                bench.refuse();
                assert_eq!(bench.worker.peek().expect("again"), peek);
            }
        }
        retractions += bench.worker.step().expect("taken").retracted.len();
    }
    assert!(retractions > 0, "something was retracted");
}

#[test]
fn the_journal_is_open_while_prefixes_are_matched() {
    // A request that is refused admission is matched all the same: that touches, and splits. A journal that opens after
    // matching would leave both behind.
    let mut bench = Bench::new(small(1_000));
    bench.submit(1, &[(10, 400)], 4);
    bench.run_out();
    bench.submit(2, &[(10, 200), (5_000, 300)], 5);
    let before = bench.worker.journal().undone_by_kind().to_vec();
    bench.refuse();
    let after = bench.worker.journal().undone_by_kind();
    let (split, touched) = (4, 8);
    assert!(after[split] > before[split] && after[touched] > before[touched]);
}

#[test]
fn a_look_changes_nothing_and_tells_what_comes() {
    for path in files::cases(".").iter().step_by(3) {
        let case = Case::load(path).expect("a recorded case");
        let log = replay_with(&case, case.passes.len() as u64, constant(), |worker, pass| {
            worker.enter();
            let before = worker.digest();
            let (first, second) = (worker.peek(), worker.peek());
            assert_eq!(first, second, "{} pass {pass}", case.case);
            assert_eq!(worker.digest(), before, "{} pass {pass}", case.case);
            step_once(worker, pass)?;
            let (peek, record) = (first.expect("the pool holds the pass"), worker.record());
            assert_eq!((peek.mode, peek.decode_rows), (record.mode, record.decode_rows), "{} pass {pass}", case.case);
            assert_eq!(peek.extend.len(), record.extend.len());
            assert_eq!(peek.retracted, record.retracted);
            Ok(())
        });
        assert_eq!(first_difference(&case.passes, &log.expect("it plays")), None);
    }
}

#[test]
fn errors_name_the_batch_and_the_caller_can_go_on() {
    let mut bench = Bench::new(small(1_000));
    let leader = bench.submit(7, &[(10, 50)], 4);
    let StepError::Timing { shape, tag, .. } = bench.refuse() else { panic!("not a timing error") };
    assert_eq!((shape.extend_rows, shape.extend_tokens, tag), (1, 50, 7));
    // Cancelling the request that leads the batch lets the others go on.
    bench.submit(8, &[(500, 20)], 3);
    bench.worker.cancel(leader);
    assert_eq!(bench.worker.step().expect("taken").dropped, [7]);
    bench.run_out();
    // A running request can be given up while its passes are refused.
    let running = bench.submit(9, &[(900, 20)], 30);
    bench.worker.step().expect("prefill");
    bench.worker.step().expect("decode");
    bench.refuse();
    bench.worker.give_up(running);
    assert_eq!(bench.worker.step().expect("idle").rejected, [(9, Reject::Refused)]);
    bench.worker.check().expect("the invariants hold");
    let last = bench.submit(10, &[(900, 20)], 3);
    bench.worker.step().expect("prefill");
    bench.worker.step().expect("decode");
    let finished = bench.worker.step().expect("decode").finished.clone();
    assert_eq!((finished[0].request, finished[0].finish), (last, Finish::Length));
}

#[test]
fn durations_that_are_none_are_typed_errors() {
    assert!(matches!(checked_ns(f64::NAN), Err(TimingError::NotFinite { .. })));
    assert!(matches!(checked_ns(f64::INFINITY), Err(TimingError::NotFinite { .. })));
    assert!(matches!(checked_ns(-1.0), Err(TimingError::Negative { .. })));
    assert_eq!(checked_ns(1.6), Ok(2));
    let mut bench = Bench::new(small(1_000));
    bench.submit(1, &[(10, 50)], 4);
    bench.worker.set_timing(Box::new(|_: &PassShape| Ok(u64::MAX)));
    bench.worker.advance_clock(1);
    let error = bench.worker.step().expect_err("the clock overflows");
    let StepError::Timing { error, .. } = error else { panic!("not a timing error") };
    assert_eq!(error, TimingError::ClockOverflow { now_ns: 1, duration_ns: u64::MAX });
}

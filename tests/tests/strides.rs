//! Differential: strides against single passes. Two workers get the same requests; one strides, the other steps as many passes
//! singly. After each stride the digests of all state are equal: clock, ratio bits, lengths, cache, events. What the two tell
//! of who ended, what was published and retracted is equal too.

use servesim_engine::batch::BatchMode;
use servesim_engine::config::{EngineConfig, EvictionPolicy, SchedulePolicy};
use servesim_engine::content::{Namespace, Run};
use servesim_engine::record::PassRecord;
use servesim_engine::request::RequestSpec;
use servesim_engine::timing::{PassShape, TimingError, TimingModel};
use servesim_engine::worker::{StepError, Worker};
use servesim_scenarios::case::Case;
use servesim_scenarios::replay::{constant, replay_with};
use servesim_scenarios::verify::first_difference;
use servesim_tests::random_case::SplitMix64;
use servesim_tests::{files, rounds};

/// A duration that depends on every number of the shape, so that a wrong one shows in the clock.
fn duration_ns(shape: &PassShape) -> u64 {
    1_000 + 7 * u64::from(shape.decode_rows) + 3 * shape.decode_kv_tokens + 11 * shape.extend_tokens
}

/// Settings from a seed: page size, schedule, pool, interval and policies.
fn settings(draw: &mut SplitMix64) -> EngineConfig {
    let page_size = draw.pick(&[1, 1, 4, 16, 64]);
    EngineConfig {
        page_size,
        max_total_tokens: draw.pick(&[1_000, 3_000, 40_000]),
        context_length: 4_000,
        disable_overlap_schedule: draw.between(0, 1) == 0,
        decode_log_interval: draw.pick(&[3, 40]),
        max_running_requests: draw.pick(&[2, 16, 64]),
        prefill_decode_interval: draw.pick(&[0, 0, 5]),
        enable_mixed_chunk: draw.between(0, 4) == 0,
        schedule_conservativeness: draw.pick(&[0.05, 1.0]),
        clip_max_new_tokens_estimation: draw.pick(&[20, 4096]),
        enable_priority_scheduling: draw.between(0, 3) == 0,
        schedule_policy: draw.pick(&[SchedulePolicy::Fcfs, SchedulePolicy::Lpm, SchedulePolicy::Hrrn]),
        radix_eviction_policy: draw.pick(&[EvictionPolicy::Lru, EvictionPolicy::Fifo]),
        ..EngineConfig::default()
    }
}

/// Asks for host time too, now longer and now shorter than the device's, where the seed says so.
struct Both {
    with_host: bool,
}

impl TimingModel for Both {
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        Ok(duration_ns(shape))
    }

    fn host_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        Ok(if self.with_host { 900 + 4 * shape.decode_kv_tokens + 31 * u64::from(shape.decode_rows) } else { 0 })
    }
}

fn worker(config: &EngineConfig) -> Worker {
    worker_with(config, false)
}

fn worker_with(config: &EngineConfig, with_host: bool) -> Worker {
    Worker::new(config.clone(), Box::new(Both { with_host })).expect("good settings")
}

fn submit(worker: &mut Worker, tag: u64, shared: u32, prompt: u32, output: u32) {
    let contents = worker.contents_mut();
    let stream = contents.create(Namespace::default());
    let runs = [(10, shared), (1_000_000 + tag as u32 * 20_000, prompt + output)];
    for run in runs {
        contents.append(stream, Run::from(run)).expect("small ids");
    }
    worker.submit(RequestSpec::new(tag, stream, shared + prompt, output)).expect("content as said");
    worker.contents_mut().release(stream);
}

/// What an iteration tells besides sizes.
#[derive(Debug, Default, PartialEq)]
struct Told {
    ended: Vec<u64>,
    retracted: Vec<u64>,
    published: usize,
}

impl Told {
    fn add(&mut self, record: &PassRecord) {
        self.ended.extend(record.finished.iter().map(|finished| finished.tag));
        self.ended.extend(record.rejected.iter().map(|&(tag, _)| tag).chain(record.dropped.iter().copied()));
        self.retracted.extend_from_slice(&record.retracted);
        self.published += record.published.events.len();
    }
}

/// Plays requests that arrive at random times on both workers; returns how many passes stood in strides of more than one.
fn compare(seed: u64) -> u64 {
    let mut draw = SplitMix64::new(seed);
    let config = settings(&mut draw);
    let with_host = seed % 2 == 1;
    let (mut striding, mut stepping) = (worker_with(&config, with_host), worker_with(&config, with_host));
    let mut arrivals: Vec<(u64, u64)> = (0..draw.between(10, 29)).map(|tag| (tag, 0)).collect();
    for (index, arrival) in arrivals.iter_mut().enumerate() {
        *arrival = (draw.between(0, 3_000_000), index as u64);
    }
    arrivals.sort_unstable();
    let (mut next, mut strides) = (0, 0);
    for _ in 0..20_000 {
        let now_ns = striding.clock().now_ns;
        while let Some(&(at_ns, tag)) = arrivals.get(next).filter(|arrival| arrival.0 <= now_ns) {
            let (shared, prompt, output) =
                (draw.between(0, 119) as u32, 1 + draw.between(0, 199) as u32, 1 + draw.between(0, 299) as u32);
            assert!(at_ns <= now_ns);
            submit(&mut striding, tag, shared, prompt, output);
            submit(&mut stepping, tag, shared, prompt, output);
            next += 1;
        }
        let until_ns = arrivals.get(next).map_or(u64::MAX, |arrival| arrival.0);
        let (mut told, mut expected) = (Told::default(), Told::default());
        let record = striding.advance(until_ns, 1 + draw.between(0, 499)).expect("the pool holds every pass");
        let (passes, idle) = (record.passes, record.mode == BatchMode::Idle);
        told.add(record);
        for _ in 0..passes {
            assert!(stepping.clock().now_ns < until_ns || passes == 1, "no pass starts after an arrival");
            expected.add(stepping.step().expect("the pool holds every pass"));
        }
        assert_eq!(told, expected, "seed {seed}");
        assert_eq!(striding.digest(), stepping.digest(), "seed {seed} after {passes} passes");
        striding.check().expect("the invariants hold");
        strides += if passes > 1 { passes } else { 0 };
        if idle && next == arrivals.len() && striding.waiting().len() == 0 {
            return strides;
        }
        if idle {
            striding.advance_clock(until_ns.min(now_ns + 100_000));
            stepping.advance_clock(until_ns.min(now_ns + 100_000));
        }
    }
    panic!("seed {seed} does not end");
}

#[test]
fn strides_equal_single_passes() {
    let (first, count) = rounds(300);
    let strides: u64 = (first..first + count).map(compare).sum();
    assert!(strides > 100 * count, "only {strides} passes stood in strides");
}

#[test]
fn a_replay_that_strides_pass_by_pass_equals_the_recorded_cases() {
    for path in files::cases(".") {
        let case = Case::load(&path).expect("a recorded case");
        let log = replay_with(&case, case.passes.len() as u64, constant(), |worker, _| {
            assert_eq!(worker.advance(u64::MAX, 1).expect("not refused").passes, 1);
            Ok(())
        });
        assert_eq!(first_difference(&case.passes, &log.expect("it plays")), None, "{}", case.case);
    }
}

#[test]
fn a_refused_pass_of_a_stride_leaves_no_trace() {
    let config = EngineConfig { decode_log_interval: 1_000, ..EngineConfig::default() };
    let mut worker = worker(&config);
    submit(&mut worker, 1, 0, 50, 400);
    submit(&mut worker, 2, 0, 60, 40);
    for _ in 0..6 {
        worker.step().expect("taken");
    }
    // The model knows batches of two rows of no more than a number of tokens, and none of a single row.
    worker.set_timing(Box::new(|shape: &PassShape| {
        let known = shape.decode_rows == 2 && shape.decode_kv_tokens <= 130;
        if known { Ok(10) } else { Err(TimingError::OutOfRange { what: "KV tokens".to_owned() }) }
    }));
    let passes = worker.advance(u64::MAX, 1_000).expect("some are known").passes;
    assert!(passes > 1, "{passes} passes before the model's range ends");
    let before = worker.digest();
    let StepError::Timing { shape, .. } = worker.advance(u64::MAX, 1_000).expect_err("out of range") else {
        panic!("not a timing error")
    };
    assert_eq!((shape.decode_rows, shape.decode_kv_tokens), (2, 132));
    assert_eq!(worker.digest(), before);
    // A row that has finished is still in the batch when the pass that would drop it is refused.
    worker.set_timing(Box::new(|shape: &PassShape| {
        if shape.decode_rows == 2 { Ok(10) } else { Err(TimingError::OutOfRange { what: "rows".to_owned() }) }
    }));
    let before = loop {
        match worker.advance(u64::MAX, 1_000) {
            Ok(_) => {}
            Err(_) => break worker.digest(),
        }
    };
    assert!(worker.advance(u64::MAX, 1_000).is_err());
    assert_eq!(worker.digest(), before);
    worker.check().expect("the invariants hold");
    worker.set_timing(Box::new(|_: &PassShape| Ok(10)));
    assert_eq!(worker.advance(u64::MAX, 1).expect("taken").decode_rows, 1);
}

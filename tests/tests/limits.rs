//! Oracle and bad input at the engine's own interface: requests that barely fit, that never fit, and that cannot be.

use servesim_engine::batch::BatchMode;
use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Namespace, Run};
use servesim_engine::request::{Finish, Reject, RequestKey, RequestSpec};
use servesim_engine::timing::Constant;
use servesim_engine::worker::{SubmitError, Worker};

fn worker(config: EngineConfig) -> Worker {
    Worker::new(config, Box::new(Constant { extend_ns: 1_000_000, decode_ns: 1_000_000 })).expect("good settings")
}

fn submit(worker: &mut Worker, tag: u64, prompt: u32, output: u32) -> RequestKey {
    let contents = worker.contents_mut();
    let stream = contents.create(Namespace::default());
    let run = Run { first: tag as u32 * 1_000_000, count: prompt + output };
    contents.append(stream, run).expect("small ids");
    let request = worker.submit(RequestSpec::new(tag, stream, prompt, output)).expect("content as long as said");
    worker.contents_mut().release(stream);
    request
}

/// Steps until nothing is in flight, and returns who finished with how many tokens.
fn finish_all(worker: &mut Worker, mut in_flight: usize) -> Vec<(u64, Finish, u32)> {
    let mut finished = Vec::new();
    for _ in 0..100_000 {
        let record = worker.step().expect("the model never refuses");
        finished.extend(record.finished.iter().map(|end| (end.tag, end.finish, end.produced_tokens)));
        in_flight -= record.finished.len() + record.rejected.len() + record.dropped.len();
        if in_flight == 0 {
            return finished;
        }
        assert!(!worker.is_stuck(), "{}", worker.describe_holders());
    }
    panic!("the run does not end: {}", worker.describe_holders());
}

#[test]
fn two_requests_that_each_fit_alone_both_finish() {
    let config = EngineConfig { max_total_tokens: 32_768, context_length: 32_768, ..EngineConfig::default() };
    for disable_overlap_schedule in [false, true] {
        let mut worker = worker(EngineConfig { disable_overlap_schedule, ..config.clone() });
        submit(&mut worker, 1, 16_000, 9_000);
        submit(&mut worker, 2, 20_000, 100);
        let mut finished = finish_all(&mut worker, 2);
        finished.sort();
        assert_eq!(finished, [(1, Finish::Length, 9_000), (2, Finish::Length, 100)]);
    }
}

#[test]
fn a_prompt_that_never_fits_is_rejected_and_the_run_goes_on() {
    let mut worker = worker(EngineConfig { max_total_tokens: 1_000, ..EngineConfig::default() });
    submit(&mut worker, 1, 994, 5);
    submit(&mut worker, 2, 993, 5);
    let rejected = worker.step().expect("a pass").rejected.clone();
    assert_eq!(rejected, [(1, Reject::PromptTooLong { prompt_tokens: 994, longest: 993 })]);
    assert_eq!(finish_all(&mut worker, 1), [(2, Finish::Length, 5)]);
}

#[test]
fn a_worker_without_entry_checks_says_who_can_make_no_progress() {
    let config = EngineConfig { max_total_tokens: 128, entry_checks: false, ..EngineConfig::default() };
    let mut worker = worker(config);
    submit(&mut worker, 7, 60, 68);
    for _ in 0..3 {
        assert_eq!(worker.step().expect("an idle pass").mode, BatchMode::Idle);
    }
    assert!(worker.is_stuck());
    let holders = worker.describe_holders();
    assert!(holders.contains("request 7 waits with 60 prompt and at most 68 new tokens"), "{holders}");
}

#[test]
fn requests_that_do_not_fit_their_content_are_errors() {
    let mut worker = worker(EngineConfig::default());
    let stream = worker.contents_mut().create(Namespace::default());
    worker.contents_mut().append(stream, Run { first: 1, count: 10 }).expect("small ids");
    assert_eq!(worker.submit(RequestSpec::new(0, stream, 0, 5)), Err(SubmitError::EmptyPrompt));
    assert_eq!(worker.submit(RequestSpec::new(0, stream, 5, 0)), Err(SubmitError::EmptyOutput));
    let short = worker.submit(RequestSpec::new(0, stream, 8, 5));
    assert_eq!(short, Err(SubmitError::ContentTooShort { found: 10, expected: 13 }));
    assert!(worker.step().is_ok(), "nothing of them entered");
}

#[test]
fn settings_out_of_bounds_are_errors_that_name_the_field() {
    let broken: [(&str, EngineConfig); 6] = [
        ("page_size", EngineConfig { page_size: 0, ..EngineConfig::default() }),
        ("max_total_tokens", EngineConfig { max_total_tokens: 3, page_size: 4, ..EngineConfig::default() }),
        ("chunked_prefill_size", EngineConfig { chunked_prefill_size: 0, ..EngineConfig::default() }),
        ("max_running_requests", EngineConfig { max_running_requests: 0, ..EngineConfig::default() }),
        ("decode_log_interval", EngineConfig { decode_log_interval: 0, ..EngineConfig::default() }),
        ("schedule_conservativeness", EngineConfig { schedule_conservativeness: f64::NAN, ..EngineConfig::default() }),
    ];
    for (field, config) in broken {
        assert_eq!(config.validate().expect_err("out of bounds").field, field);
    }
}

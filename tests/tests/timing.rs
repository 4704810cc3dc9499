//! How time passes. Golden: with constants of 1 ms the clock counts the passes of recorded cases. Differential: a model that sleeps
//! gives the clock of one that does not. By hand: what the host spends is added without overlap, and hidden with it.

use std::time::Duration;

use servesim_engine::batch::BatchMode;
use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Namespace, Run};
use servesim_engine::request::RequestSpec;
use servesim_engine::timing::{Constant, PassShape, TimingError, TimingModel};
use servesim_engine::worker::Worker;
use servesim_scenarios::case::Case;
use servesim_scenarios::replay::replay_with;
use servesim_tests::files;

const MS: u64 = 1_000_000;

/// Sleeps before the first few answers.
struct Sleeping {
    model: Constant,
    sleeps: u32,
}

impl TimingModel for Sleeping {
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        if self.sleeps > 0 {
            self.sleeps -= 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        self.model.duration_ns(shape)
    }
}

/// A host part and a device part, the same for every pass.
struct HostAndDevice {
    host_ns: u64,
    device_ns: u64,
}

impl TimingModel for HostAndDevice {
    fn duration_ns(&mut self, _: &PassShape) -> Result<u64, TimingError> {
        Ok(self.device_ns)
    }

    fn host_ns(&mut self, _: &PassShape) -> Result<u64, TimingError> {
        Ok(self.host_ns)
    }
}

fn worker(overlap: bool, timing: Box<dyn TimingModel>) -> Worker {
    let config = EngineConfig { disable_overlap_schedule: !overlap, ..EngineConfig::default() };
    Worker::new(config, timing).expect("good settings")
}

/// One request of `output` tokens; steps until the worker is idle and returns the clock after each step.
fn clocks(mut worker: Worker, output: u32) -> Vec<u64> {
    let contents = worker.contents_mut();
    let stream = contents.create(Namespace::default());
    contents.append(stream, Run::from((10, 100 + output))).expect("small ids");
    worker.submit(RequestSpec::new(1, stream, 100, output)).expect("content as said");
    let mut clocks = Vec::new();
    loop {
        let idle = worker.step().expect("not refused").mode == BatchMode::Idle;
        clocks.push(worker.clock().now_ns);
        if idle {
            return clocks;
        }
    }
}

#[test]
fn without_overlap_the_host_adds_to_each_pass() {
    let timing = Box::new(HostAndDevice { host_ns: 3 * MS, device_ns: 10 * MS });
    assert_eq!(clocks(worker(false, timing), 3), [13 * MS, 26 * MS, 39 * MS, 39 * MS]);
}

#[test]
fn with_overlap_the_shorter_of_host_and_device_is_hidden() {
    // The first pass waits for the host; then each takes 10 ms. The pass that runs too far is the fourth.
    let timing = Box::new(HostAndDevice { host_ns: 3 * MS, device_ns: 10 * MS });
    assert_eq!(clocks(worker(true, timing), 3), [3 * MS, 13 * MS, 23 * MS, 33 * MS, 43 * MS]);
    // The host is slower: the device waits for each launch. At the end there is none to wait for.
    let timing = Box::new(HostAndDevice { host_ns: 10 * MS, device_ns: 3 * MS });
    assert_eq!(clocks(worker(true, timing), 3), [10 * MS, 20 * MS, 30 * MS, 40 * MS, 43 * MS]);
}

#[test]
fn a_model_that_sleeps_gives_the_same_clock() {
    for overlap in [false, true] {
        let model = Constant { extend_ns: 7 * MS, decode_ns: 2 * MS };
        let awake = clocks(worker(overlap, Box::new(model)), 12);
        assert_eq!(clocks(worker(overlap, Box::new(Sleeping { model, sleeps: 4 })), 12), awake);
    }
}

#[test]
fn constants_of_a_millisecond_count_the_passes_of_recorded_cases() {
    let mut counted = 0;
    for path in files::cases(".").into_iter().step_by(7) {
        let case = Case::load(&path).expect("a recorded case");
        let timing = Box::new(Constant { extend_ns: MS, decode_ns: MS });
        let (mut passes, mut end_ns) = (0, 0);
        let log = replay_with(&case, case.passes.len() as u64, timing, |worker, _| {
            worker.step().expect("not refused");
            passes += u64::from(worker.record().mode != BatchMode::Idle);
            let clock = worker.clock();
            end_ns = clock.now_ns + clock.in_flight_ns;
            assert_eq!(end_ns, passes * MS, "{}", case.case);
            Ok(())
        });
        log.expect("it plays");
        let batches = case.passes.iter().filter(|pass| pass.batch.is_some()).count() as u64;
        assert_eq!(end_ns, batches * MS, "{}", case.case);
        counted += passes;
    }
    assert!(counted > 100, "only {counted} passes");
}

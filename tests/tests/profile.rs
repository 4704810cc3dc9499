//! Oracle and differential: a probe that ticks once a reading shows that every system's end is read and that the systems make
//! up the calls; a probed worker does the same passes; counts of work are those of the records, or counted by hand.

use servesim_engine::batch::BatchMode;
use servesim_engine::config::EngineConfig;
use servesim_engine::content::{Namespace, Run};
use servesim_engine::laps::{Probe, Reading, Spent, Stage};
use servesim_engine::request::RequestSpec;
use servesim_engine::timing::Constant;
use servesim_engine::worker::Worker;

/// Each reading is one later than the last.
#[derive(Default)]
struct Ticks(u64);

impl Probe for Ticks {
    fn read(&mut self) -> Reading {
        self.0 += 1;
        Reading { host_ns: self.0, instructions: 10 * self.0, cycles: 100 * self.0 }
    }
}

const REQUESTS: u64 = 12;

/// A worker whose pool holds about two of the twelve requests asked of it, so that leaves are evicted.
fn worker(disable_overlap_schedule: bool) -> Worker {
    let config =
        EngineConfig { max_total_tokens: 600, page_size: 4, disable_overlap_schedule, ..EngineConfig::default() };
    let model = Constant { extend_ns: 50, decode_ns: 20 };
    let mut worker = Worker::new(config, Box::new(model)).expect("good settings");
    for tag in 0..REQUESTS {
        let contents = worker.contents_mut();
        let stream = contents.create(Namespace::default());
        for (first, count) in [(10, 40), (1_000 * (tag as u32 + 1), 200)] {
            contents.append(stream, Run { first, count }).expect("small ids");
        }
        worker.submit(RequestSpec::new(tag, stream, 200, 40)).expect("content as said");
        worker.contents_mut().release(stream);
    }
    worker
}

/// Plays to the end; what was spent on each call, beside whether it was a stride.
fn play(worker: &mut Worker) -> Vec<(bool, Spent)> {
    let mut calls = Vec::new();
    let mut ended = 0;
    while ended < REQUESTS {
        let record = worker.advance(u64::MAX, 1 << 16).expect("the pool holds each request");
        ended += record.finished.len() as u64;
        let stride = record.mode == BatchMode::Decode && record.passes > 1;
        calls.push((stride, worker.take_spent()));
    }
    calls
}

#[test]
fn the_end_of_each_system_is_read_and_the_systems_make_up_the_call() {
    for overlap in [false, true] {
        let mut worker = worker(!overlap);
        worker.set_probe(Some(Box::new(Ticks::default())));
        let calls = play(&mut worker);
        let strides = calls.iter().filter(|(stride, _)| *stride).count();
        assert!(0 < strides && strides < calls.len());
        for (stride, spent) in &calls {
            let stages: u64 = spent.stages.iter().map(|reading| reading.host_ns).sum();
            assert_eq!(spent.total.host_ns, stages);
            assert_eq!(spent.total.instructions, 10 * stages);
            // The last tick is the end of the call itself.
            assert_eq!(spent.runs.iter().sum::<u64>(), stages - 1);
            assert_eq!(spent.readings_in.iter().sum::<u64>(), stages);
            assert_eq!(spent.readings, stages + 1);
            assert_eq!((spent.calls, spent.calls_by_system), (1, 1));
            let settled = spent.runs[Stage::Settle as usize];
            assert!(settled == 0 || (settled == 1 && !stride), "a call is a stride or one iteration");
            assert!(settled == 1 || spent.runs[Stage::Stride as usize] == 1);
            assert_eq!(spent.runs[Stage::Observe as usize], settled);
        }
    }
}

#[test]
fn a_probe_changes_no_pass_and_none_reads_nothing() {
    let (mut probed, mut plain) = (worker(false), worker(false));
    probed.set_probe(Some(Box::new(Ticks::default())));
    let calls = play(&mut probed);
    let silent = play(&mut plain);
    assert_eq!(calls.len(), silent.len());
    assert!(silent.iter().all(|(_, spent)| *spent == Spent::default()));
    assert_eq!(probed.digest(), plain.digest());
    let (with_paths, without) = (probed.work(), plain.work());
    assert!(with_paths.path_nodes > 0 && without.path_nodes == 0);
    assert_eq!(servesim_engine::work::Work { path_nodes: 0, ..with_paths }, without);
}

/// Reads every other call by system.
#[derive(Default)]
struct Alternating(Ticks, bool);

impl Probe for Alternating {
    fn read(&mut self) -> Reading {
        self.0.read()
    }

    fn reads_systems(&mut self) -> bool {
        self.1 = !self.1;
        self.1
    }
}

#[test]
fn calls_that_are_not_read_by_system_are_read_twice() {
    let (mut some, mut all) = (worker(false), worker(false));
    some.set_probe(Some(Box::new(Alternating::default())));
    all.set_probe(Some(Box::new(Ticks::default())));
    let calls = play(&mut some);
    let whole = play(&mut all);
    for (index, ((_, spent), (_, whole))) in calls.iter().zip(&whole).enumerate() {
        if index % 2 == 0 {
            assert_eq!(spent, whole);
        } else {
            let total = Reading { host_ns: 1, instructions: 10, cycles: 100 };
            assert_eq!(*spent, Spent { total, readings: 2, calls: 1, ..Spent::default() });
        }
    }
    let (some, all) = (some.work(), all.work());
    assert!(0 < some.path_nodes && some.path_nodes < all.path_nodes);
    assert_eq!(servesim_engine::work::Work { path_nodes: all.path_nodes, ..some }, all);
}

#[test]
fn work_is_counted() {
    let mut worker = worker(true);
    play(&mut worker);
    let work = worker.work();
    assert!(work.requests_examined >= REQUESTS && work.nodes_walked >= work.requests_examined);
    // All but those of the first pass find the shared 40 tokens each time they are looked at, and nobody finds more.
    let (least, most) = (40 * (REQUESTS - 3), 40 * work.requests_examined);
    assert!((least..=most).contains(&work.tokens_matched), "{least} to {most}: {}", work.tokens_matched);
    assert!(work.leaves_added >= REQUESTS && work.splits >= 1);
    assert_eq!(worker.tree().node_count() as u64, work.leaves_added + work.splits - work.leaves_evicted);
    assert!(work.eviction_calls > 0 && work.eviction_calls <= work.leaves_evicted);
    assert!(work.eviction_leaves >= work.leaves_evicted);
    // Each request computes 160 of its own 200 tokens and produces 40: 50 pages, and the first the shared 10 too.
    assert!(work.pages_taken >= REQUESTS * 40 + 10, "{}", work.pages_taken);
    assert!(work.journal_entries > 0);
    assert_eq!(work.bytes_hashed, 0, "nobody wants hashes");
}

#[test]
fn paths_are_those_of_locks_and_releases() {
    let config = EngineConfig { max_total_tokens: 10_000, page_size: 4, ..EngineConfig::default() };
    let mut worker = Worker::new(config, Box::new(Constant { extend_ns: 50, decode_ns: 20 })).expect("good settings");
    worker.set_probe(Some(Box::new(Ticks::default())));
    // The first finds nothing: it locks the root, its prompt's leaf (1 node) in exchange, and releases that (1).
    // The second finds 196 of its 200 tokens: it locks them (1), its whole prompt (2) in exchange (1), and releases that (2).
    for (tag, locks, path_nodes, found) in [(0, 4, 2, 0), (1, 8, 2 + 6, 196)] {
        let contents = worker.contents_mut();
        let stream = contents.create(Namespace::default());
        contents.append(stream, Run { first: 10, count: 240 }).expect("small ids");
        worker.submit(RequestSpec::new(tag, stream, 200, 40)).expect("content as said");
        worker.contents_mut().release(stream);
        while worker.advance(u64::MAX, 1 << 16).expect("the pool holds it").finished.is_empty() {}
        let work = worker.work();
        assert_eq!((work.locks, work.path_nodes, work.tokens_matched), (locks, path_nodes, found), "request {tag}");
    }
}

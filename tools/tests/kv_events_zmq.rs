//! Checks of KV events over ZeroMQ.
//!
//! - Oracle: a subscriber in Rust and one in Python (pyzmq and msgspec, skipped where those are absent) decode every batch,
//!   ask the replay socket for what they lost, and end up with the blocks of the simulator's own tree.
//! - Contract: slow and absent subscribers change no result; what is dropped is counted.
//! - Bad input: an address that cannot be bound.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use servesim_engine::block_hashes::EventDetail;
use servesim_engine::timing::Constant;
use servesim_scenarios::kv_events::batch::KvEventBatch;
use servesim_scenarios::kv_events::decode::decode_whole;
use servesim_scenarios::kv_events::mirror::Mirror;
use servesim_scenarios::player::{Pace, Player};
use servesim_scenarios::scenario::Scenario;
use tokio::time::timeout;
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, SubSocket, ZmqMessage};

use crate::program::{Files, Said, command, servesim};

/// A small pool under pressure, so that blocks also go.
const SCENARIO: &str = "
[engine]
max_total_tokens = 60000
page_size = 4
[timing]
extend_ms = 1.0
decode_ms = 1.0
[workload]
kind = \"coding-agent\"
requests = 300
lanes = 4
session_max_tokens = 20000
";
const LONG: Duration = Duration::from_secs(30);
/// Batches that the subscriber loses on purpose.
const LOST: std::ops::Range<u64> = 3..9;

/// What the simulator itself has at the end.
struct Expected {
    batches: u64,
    blocks: Vec<i64>,
}

fn expected() -> Expected {
    let scenario = Scenario::from_str(SCENARIO, "s.toml", &[]).expect("valid");
    let timing = Box::new(Constant { extend_ns: 1_000_000, decode_ns: 1_000_000 });
    let workload = scenario.build_workload().expect("it needs no file");
    let player = Player::new(scenario.engine.clone(), timing, workload, Pace::Model).expect("valid");
    let mut player = player.event_detail(EventDetail::Hashes);
    let mut batches = 0;
    player.run(|played| batches += played.record.published.batches.len() as u64).expect("it runs");
    let mut blocks: Vec<i64> = player.worker().cached_blocks().collect();
    blocks.sort_unstable();
    assert!(batches > 100 && blocks.len() > 1000, "{batches} batches, {} blocks", blocks.len());
    Expected { batches, blocks }
}

struct Run<'f> {
    files: &'f Files,
    scenario: String,
}

impl<'f> Run<'f> {
    fn new(files: &'f Files) -> Run<'f> {
        Run { files, scenario: files.write("s.toml", SCENARIO) }
    }

    fn address(&self, name: &str) -> String {
        format!("ipc://{}", self.files.path(name))
    }

    fn config(&self, more: &str) -> String {
        format!(
            "{{\"publisher\":\"zmq\",\"endpoint\":\"{}\",\"replay_endpoint\":\"{}\",\"topic\":\"kv\"{more}}}",
            self.address("pub"),
            self.address("replay")
        )
    }

    /// A run that waits for a subscriber before it starts.
    fn start(&self, more: &str, flags: &[&str]) -> Child {
        let config = self.config(more);
        let fixed = ["run", &self.scenario, "--kv-events-config", &config, "--kv-events-wait", "30"];
        let arguments = [&fixed[..], flags].concat();
        let mut command = command(&arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program was built for this test")
    }

    fn counted(&self) -> Said {
        servesim(&["run", &self.scenario]).succeeds()
    }
}

fn ended(child: Child) -> Said {
    let output = child.wait_with_output().expect("a child can be waited for");
    let text = |bytes| String::from_utf8(bytes).expect("the program says UTF-8");
    Said { code: output.status.code().unwrap_or(-1), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Connects when the other side is there.
async fn connected<S: Socket>(address: &str) -> S {
    for _ in 0..300 {
        let mut socket = S::new();
        if let Ok(Ok(())) = timeout(Duration::from_secs(1), socket.connect(address)).await {
            return socket;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nobody is at {address}");
}

async fn received(socket: &mut impl SocketRecv) -> Vec<Bytes> {
    timeout(LONG, socket.recv()).await.expect("it comes in time").expect("it can be received").into_vec()
}

/// A consumer that follows sequence numbers.
#[derive(Default)]
struct Consumer {
    mirror: Mirror,
    next_sequence: u64,
    ts_ns: u64,
}

impl Consumer {
    fn apply(&mut self, sequence: u64, payload: &[u8]) {
        assert_eq!(sequence, self.next_sequence);
        self.next_sequence += 1;
        let mut batch = KvEventBatch::default();
        decode_whole(payload, &mut batch).expect("a valid payload");
        assert!(batch.ts_ns >= self.ts_ns && batch.attn_dp_rank == Some(0), "{batch:?}");
        self.ts_ns = batch.ts_ns;
        batch
            .events
            .iter()
            .for_each(|event| self.mirror.apply(event, |problem| panic!("batch {sequence}: {problem:?}")));
    }

    /// Asks for all from the next batch on, and applies those before `end`.
    async fn catch_up(&mut self, address: &str, end: u64) {
        let mut socket: DealerSocket = connected(address).await;
        let mut request = ZmqMessage::from(Bytes::copy_from_slice(&self.next_sequence.to_be_bytes()));
        request.push_front(Bytes::new());
        socket.send(request).await.expect("it can be sent");
        loop {
            let frames = received(&mut socket).await;
            let [empty, number, payload] = &frames[..] else { panic!("{} frames", frames.len()) };
            assert!(empty.is_empty());
            match number_of(number) {
                u64::MAX => return assert!(payload.is_empty()),
                sequence if sequence < end => self.apply(sequence, payload),
                _ => {}
            }
        }
    }
}

fn number_of(frame: &Bytes) -> u64 {
    u64::from_be_bytes(frame.as_ref().try_into().expect("8 bytes"))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}

#[test]
fn a_subscriber_that_loses_batches_catches_up_and_ends_with_the_blocks_of_the_tree() {
    let files = Files::new();
    let run = Run::new(&files);
    let expected = expected();
    let child = run.start("", &["--emit-token-ids", "--kv-events-linger", "3"]);
    let mut consumer = Consumer::default();
    let mut gaps = 0;
    block_on(async {
        let mut socket: SubSocket = connected(&run.address("pub")).await;
        socket.subscribe("kv").await.expect("it can subscribe");
        while consumer.next_sequence < expected.batches {
            let frames = received(&mut socket).await;
            let [topic, number, payload] = &frames[..] else { panic!("{} frames", frames.len()) };
            assert_eq!(topic.as_ref(), b"kv");
            let sequence = number_of(number);
            if LOST.contains(&sequence) {
                continue;
            }
            if sequence > consumer.next_sequence {
                gaps += 1;
                consumer.catch_up(&run.address("replay"), sequence).await;
            }
            consumer.apply(sequence, payload);
        }
    });
    assert_eq!(gaps, 1);
    assert!(consumer.mirror.hashes() == expected.blocks, "the mirror is not the tree");
    // All of them had their tokens.
    assert!(consumer.mirror.verified_blocks() >= expected.blocks.len() as u64);
    let said = ended(child).succeeds();
    assert_eq!(said.stdout, run.counted().stdout);
    let sent = format!("kv events: {} batches", expected.batches);
    assert!(said.stderr.starts_with(&sent) && said.stderr.contains("dropped 0"), "{}", said.stderr);
    assert!(!files.folder().join("pub").exists(), "the socket's file is gone");
}

#[test]
fn a_consumer_in_python_ends_with_the_blocks_of_the_tree() {
    let Some(python) = python() else { return };
    let files = Files::new();
    let run = Run::new(&files);
    let expected = expected();
    for with_tokens in [false, true] {
        let flags = ["--kv-events-linger", "3", "--emit-token-ids"];
        let child = run.start("", &flags[..if with_tokens { 3 } else { 2 }]);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kv_events_consumer.py");
        let (batches, with_tokens) = (expected.batches.to_string(), with_tokens.to_string());
        let arguments = [script, &run.address("pub"), &run.address("replay"), "kv", &batches, &with_tokens];
        let consumer = Command::new(&python).args(arguments).output().expect("Python was there before");
        let stderr = String::from_utf8_lossy(&consumer.stderr);
        assert!(consumer.status.success(), "{stderr}");
        let seen: Value = serde_json::from_slice(&consumer.stdout).expect("a JSON object");
        let blocks: Vec<i64> = serde_json::from_value(seen["blocks"].clone()).expect("hashes");
        assert!(blocks == expected.blocks, "the mirror is not the tree");
        assert!(seen["gaps"] == 1 && seen["replayed"].as_u64() >= Some(7), "{}", seen["replayed"]);
        ended(child).succeeds();
    }
}

/// A Python with the packages of a consumer: the one that `SERVESIM_PYTHON` names, or `python3`. Says so when there is none.
fn python() -> Option<String> {
    let python = std::env::var("SERVESIM_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let probe = Command::new(&python).args(["-c", "import zmq, msgspec"]).stderr(Stdio::null()).status();
    if probe.is_ok_and(|status| status.success()) {
        return Some(python);
    }
    eprintln!("skipped: {python} has no pyzmq and msgspec");
    None
}

#[test]
fn a_subscriber_that_does_not_read_changes_nothing_and_what_is_dropped_is_counted() {
    let files = Files::new();
    let run = Run::new(&files);
    let out = files.path("out");
    let child = run.start(",\"hwm\":2,\"max_queue_size\":2", &["--emit-token-ids", "--out", &out]);
    let said = block_on(async {
        let mut socket: SubSocket = connected(&run.address("pub")).await;
        socket.subscribe("").await.expect("it can subscribe");
        let child = tokio::task::spawn_blocking(move || ended(child));
        let said = child.await.expect("it can be waited for");
        drop(socket);
        said
    })
    .succeeds();
    assert_eq!(said.stdout, run.counted().stdout);
    let host: Value = serde_json::from_str(&files.read("out/host.json")).expect("JSON");
    let count = |name: &str| host["kv_events"][name].as_u64().unwrap_or_else(|| panic!("{name} in {host}"));
    assert_eq!((count("batches"), count("subscriptions")), (expected().batches, 1));
    assert_eq!(count("sent") + count("dropped"), count("batches"), "{host}");
    assert!(count("dropped") > 0, "{host}");
    assert!(said.stderr.contains(&format!("dropped {}", count("dropped"))), "{}", said.stderr);
}

#[test]
fn nobody_has_to_listen_and_an_address_in_use_is_an_error() {
    let files = Files::new();
    let run = Run::new(&files);
    let said = servesim(&["run", &run.scenario, "--kv-events-config", &run.config("")]).succeeds();
    assert_eq!(said.stdout, run.counted().stdout);
    assert!(said.stderr.contains("dropped 0") && said.stderr.contains("0 subscriptions"), "{}", said.stderr);
    // The other way round: a publisher that connects, and nobody there.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let config = format!("{{\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:{port}\"}}");
    let said = servesim(&["run", &run.scenario, "--kv-events-config", &config]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.contains(&format!("tcp://0.0.0.0:{port}: cannot be bound: ")), "{}", said.stderr);
    drop(listener);
    let config = format!("{{\"publisher\":\"zmq\",\"endpoint\":\"tcp://127.0.0.1:{port}\"}}");
    let said = servesim(&["run", &run.scenario, "--kv-events-config", &config]).succeeds();
    let all = format!("sent 0, dropped {}", expected().batches);
    assert!(said.stderr.contains(&all), "{}", said.stderr);
}

//! What `servesim run` does with KV events: nothing beyond counting, a file, or ZeroMQ.
//!
//! - [`publisher`]: the thread that owns the sockets, behind a bounded queue.
//! - [`outbox`]: batches that wait for a slow subscriber.
//! - [`replay`]: the socket that answers for batches that a subscriber missed.

mod outbox;
mod publisher;
mod replay;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use servesim_engine::block_hashes::EventDetail;
use servesim_scenarios::kv_events::batch::SentBatch;
use servesim_scenarios::kv_events::frames::write_frame;
use servesim_scenarios::kv_events::from_engine::BatchMaker;
use servesim_scenarios::kv_events::json_lines::write_line;
use servesim_scenarios::player::Played;
use servesim_scenarios::scenario::Scenario;
use servesim_scenarios::scenario::kv_events::KvEventsSink;

use self::publisher::Publisher;
use crate::{Failure, note, report};

/// What became of the batches that were published over ZeroMQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Delivery {
    /// Batches of the run.
    pub batches: u64,
    /// Batches that the socket took; without a subscriber they are gone.
    pub sent: u64,
    /// Batches that were dropped because the publisher or a subscriber was too slow.
    pub dropped: u64,
    /// Subscriptions that came in.
    pub subscriptions: u64,
    /// Batches that were sent again on request.
    pub replayed: u64,
}

/// How long to wait for others, which the simulation itself never does.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Before the first pass, at most so long for a subscriber.
    pub subscriber: Duration,
    /// After the last pass, so long for requests of replays.
    pub replay: Duration,
}

/// Takes the KV events of a run.
pub struct KvEventsOutput {
    maker: BatchMaker,
    sink: Sink,
    failed: Option<std::io::Error>,
}

enum Sink {
    JsonLines(FileSink),
    Msgpack(FileSink, Vec<u8>),
    Zmq(Publisher),
}

/// A file that is put in place when it is whole.
struct FileSink {
    path: PathBuf,
    beside: PathBuf,
    writer: BufWriter<File>,
}

impl FileSink {
    fn create(path: PathBuf) -> anyhow::Result<FileSink> {
        let beside = path.with_added_extension("partial");
        let file = File::create(&beside).with_context(|| format!("{}: cannot be written", beside.display()))?;
        Ok(FileSink { path, beside, writer: BufWriter::with_capacity(1 << 18, file) })
    }

    fn finish(mut self) -> anyhow::Result<()> {
        self.writer.flush().with_context(|| format!("{}: cannot be written", self.beside.display()))?;
        std::fs::rename(&self.beside, &self.path)
            .with_context(|| format!("{}: cannot be put in place", self.path.display()))
    }
}

impl KvEventsOutput {
    /// Opens what the scenario asks for; nothing while events are only counted.
    pub fn open(scenario: &Scenario, out: Option<&Path>, patience: Patience) -> Result<Option<Self>, Failure> {
        let output = &scenario.output.kv_events;
        let sink = match output.sink {
            KvEventsSink::Count => return Ok(None),
            KvEventsSink::JsonLines => Sink::JsonLines(file_sink(output.sink, out)?),
            KvEventsSink::Msgpack => Sink::Msgpack(file_sink(output.sink, out)?, Vec::new()),
            KvEventsSink::Zmq if !output.config.publishes() => {
                note("kv events: the publisher of the configuration is null, so nothing is published");
                return Ok(None);
            }
            KvEventsSink::Zmq => {
                let publisher =
                    Publisher::start(&output.config, patience.replay).map_err(|error| Failure::Run(error.into()))?;
                if !publisher.wait_for_subscriber(patience.subscriber) {
                    note(&format!("kv events: no subscriber within {} s", patience.subscriber.as_secs_f64()));
                }
                Sink::Zmq(publisher)
            }
        };
        let maker = BatchMaker::new(scenario.engine.page_size, output.reason);
        Ok(Some(KvEventsOutput { maker, sink, failed: None }))
    }

    /// How much of an event the worker has to make.
    pub fn detail(scenario: &Scenario) -> EventDetail {
        let output = &scenario.output.kv_events;
        let published = output.sink != KvEventsSink::Zmq || output.config.publishes();
        match output.sink {
            KvEventsSink::Count => EventDetail::Counts,
            _ if !published => EventDetail::Counts,
            _ if output.emit_token_ids => EventDetail::HashesAndTokens,
            _ => EventDetail::Hashes,
        }
    }

    /// Takes what an iteration published. After a failure nothing more is written.
    pub fn add(&mut self, played: &Played) {
        if self.failed.is_some() {
            return;
        }
        let sink = &mut self.sink;
        let written = self.maker.each(&played.record.published, played.now_ns, |sent| sink.write(sent));
        self.failed = written.err();
    }

    /// The failure to write, if there was one.
    pub fn check(&mut self) -> Result<(), Failure> {
        let Some(error) = self.failed.take() else { return Ok(()) };
        let place = match &self.sink {
            Sink::JsonLines(file) | Sink::Msgpack(file, _) => file.beside.display().to_string(),
            Sink::Zmq(_) => "kv events".to_owned(),
        };
        Err(Failure::Run(anyhow::Error::from(error).context(format!("{place}: cannot be written"))))
    }

    /// Writes out what is left and puts the file in place, or says what became of the published batches.
    pub fn finish(self) -> Result<Option<Delivery>, Failure> {
        match self.sink {
            Sink::JsonLines(file) | Sink::Msgpack(file, _) => {
                file.finish().map_err(Failure::Run)?;
                Ok(None)
            }
            Sink::Zmq(publisher) => {
                let endpoint = publisher.endpoint().to_owned();
                let delivery = publisher.finish().map_err(|error| Failure::Run(error.into()))?;
                note(&delivery.line(&endpoint));
                Ok(Some(delivery))
            }
        }
    }
}

impl Sink {
    fn write(&mut self, sent: &SentBatch) -> std::io::Result<()> {
        match self {
            Sink::JsonLines(file) => write_line(&mut file.writer, sent),
            Sink::Msgpack(file, buffer) => write_frame(&mut file.writer, sent.sequence, &sent.batch, buffer),
            Sink::Zmq(publisher) => {
                publisher.publish(sent);
                Ok(())
            }
        }
    }
}

impl Delivery {
    fn line(&self, endpoint: &str) -> String {
        let count = report::count;
        format!(
            "kv events: {} batches to {endpoint}, sent {}, dropped {}, replayed {}; {} subscriptions",
            count(self.batches),
            count(self.sent),
            count(self.dropped),
            count(self.replayed),
            count(self.subscriptions)
        )
    }
}

fn file_sink(sink: KvEventsSink, out: Option<&Path>) -> Result<FileSink, Failure> {
    let name = sink.file_name().unwrap_or_default();
    let Some(folder) = out else {
        let error =
            anyhow::anyhow!("output.kv_events: found no folder for {name}, expected --out DIR or output.dir beside it");
        return Err(Failure::BadInput(error));
    };
    FileSink::create(folder.join(name)).map_err(Failure::BadInput)
}

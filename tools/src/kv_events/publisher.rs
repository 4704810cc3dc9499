//! Publishes batches over ZeroMQ from a thread of its own. The simulation hands them over through a bounded queue and never
//! waits: what finds the queue full is dropped and counted, and its number is missing in the stream.
//!
//! The socket is an XPUB, which is a PUB on the wire: it says when somebody subscribes, and it lets the thread see that a
//! subscriber is slow, so that what is dropped can be counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc as std_mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use servesim_scenarios::kv_events::batch::SentBatch;
use servesim_scenarios::kv_events::config::{Endpoint, KvEventsConfig};
use servesim_scenarios::kv_events::encode::encode;
use servesim_scenarios::trace::field::Fault;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, XPubSocket, ZmqMessage};

use super::Delivery;
use super::outbox::{Kept, Message, Outbox};
use super::replay;

/// How long a batch may wait for a subscriber that does not read.
const PATIENT: Duration = Duration::from_secs(1);
/// The same after one was given up, until one is sent again.
const IMPATIENT: Duration = Duration::from_millis(10);
/// How long after the run nothing may move before the rest is given up.
const AT_THE_END: Duration = Duration::from_secs(2);
/// Between two attempts to connect.
const RETRY: Duration = Duration::from_millis(200);

/// Why nothing can be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// An endpoint that is no address.
    #[error("output.{}: found {}, expected {}", .0.field, .0.found, .0.expected)]
    Endpoint(Fault),
    /// An address that cannot be bound.
    #[error("{address}: cannot be bound: {reason}")]
    Bind {
        /// The address.
        address: String,
        /// What the system says.
        reason: String,
    },
    /// The thread cannot be made.
    #[error("kv events: no thread to publish from: {0}")]
    Thread(std::io::Error),
    /// The thread has gone away, which is a defect.
    #[error("kv events: the publisher ended before the run")]
    Gone,
}

/// The simulation's end of the queue.
pub struct Publisher {
    queue: Sender<Message>,
    thread: JoinHandle<Delivery>,
    subscribed: std_mpsc::Receiver<()>,
    endpoint: String,
    batches: u64,
    overflow: u64,
}

impl Publisher {
    /// Binds the sockets and starts the thread. After the run it answers replays for as long as `linger`.
    pub fn start(config: &KvEventsConfig, linger: Duration) -> Result<Publisher, PublishError> {
        let plan = Plan {
            publish: config.pub_endpoint().map_err(PublishError::Endpoint)?,
            replay: config.router_endpoint().map_err(PublishError::Endpoint)?,
            topic: Bytes::copy_from_slice(config.topic.as_bytes()),
            hwm: config.hwm,
            buffer_steps: config.buffer_steps,
            linger,
        };
        let room = usize::try_from(config.max_queue_size).unwrap_or(usize::MAX);
        let most = tokio::sync::Semaphore::MAX_PERMITS;
        let (queue, receiver) = channel(if room == 0 { most } else { room.min(most) });
        let (ready_sender, ready) = std_mpsc::channel();
        let (subscribed_sender, subscribed) = std_mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("kv-events".into())
            .spawn(move || publish(&plan, receiver, &ready_sender, &subscribed_sender))
            .map_err(PublishError::Thread)?;
        ready.recv().map_err(|_| PublishError::Gone)??;
        Ok(Publisher { queue, thread, subscribed, endpoint: config.endpoint.clone(), batches: 0, overflow: 0 })
    }

    /// Where it publishes, as the configuration says it.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Waits for a first subscription. Says whether one came; no time at all is no wait and always good.
    pub fn wait_for_subscriber(&self, patience: Duration) -> bool {
        patience.is_zero() || self.subscribed.recv_timeout(patience).is_ok()
    }

    /// Hands a batch over, or drops it if the queue is full.
    pub fn publish(&mut self, sent: &SentBatch) {
        let mut payload = Vec::new();
        encode(&sent.batch, &mut payload);
        self.batches += 1;
        if self.queue.try_send(Message { sequence: sent.sequence, payload: payload.into() }).is_err() {
            self.overflow += 1;
        }
    }

    /// Waits until the rest is sent or given up, and sums up.
    pub fn finish(self) -> Result<Delivery, PublishError> {
        drop(self.queue);
        let delivery = self.thread.join().map_err(|_| PublishError::Gone)?;
        Ok(Delivery { batches: self.batches, dropped: delivery.dropped + self.overflow, ..delivery })
    }
}

/// What the thread needs to know.
struct Plan {
    publish: Endpoint,
    replay: Option<Endpoint>,
    topic: Bytes,
    hwm: u64,
    buffer_steps: u64,
    linger: Duration,
}

fn publish(
    plan: &Plan,
    queue: Receiver<Message>,
    ready: &std_mpsc::Sender<Result<(), PublishError>>,
    subscribed: &std_mpsc::Sender<()>,
) -> Delivery {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            // Who started the thread hears it, or has gone away itself.
            let _ = ready.send(Err(PublishError::Thread(error)));
            return Delivery::default();
        }
    };
    runtime.block_on(async {
        let replayed = Arc::new(AtomicU64::new(0));
        let kept = plan.replay.is_some().then(|| Kept::new(plan.buffer_steps));
        let sockets = open(plan).await;
        let (socket, router) = match sockets {
            Ok(sockets) => sockets,
            Err(error) => {
                let _ = ready.send(Err(error));
                return Delivery::default();
            }
        };
        let _ = ready.send(Ok(()));
        if let (Some(router), Some(kept)) = (router, kept.clone()) {
            tokio::spawn(replay::answer(router, kept, replayed.clone()));
        }
        let outbox = Outbox::new(plan.hwm, kept);
        let topic = plan.topic.clone();
        let mut sending = Sending { socket, queue, topic, outbox, open: true, sent: 0, subscriptions: 0 };
        if !plan.publish.bind {
            sending.connect(&plan.publish.address).await;
        }
        sending.run(subscribed).await;
        tokio::time::sleep(plan.linger).await;
        remove_files(plan);
        let replayed = replayed.load(Ordering::Relaxed);
        let Sending { outbox, sent, subscriptions, .. } = &sending;
        Delivery { batches: 0, sent: *sent, dropped: outbox.dropped(), subscriptions: *subscriptions, replayed }
    })
}

/// Makes the sockets, and binds those that bind.
async fn open(plan: &Plan) -> Result<(XPubSocket, Option<RouterSocket>), PublishError> {
    let mut socket = XPubSocket::new();
    if plan.publish.bind {
        bind(&mut socket, &plan.publish.address).await?;
    }
    let Some(endpoint) = &plan.replay else { return Ok((socket, None)) };
    let mut router = RouterSocket::new();
    bind(&mut router, &endpoint.address).await?;
    Ok((socket, Some(router)))
}

async fn bind(socket: &mut impl Socket, address: &str) -> Result<(), PublishError> {
    let bound = socket.bind(address).await;
    bound.map(drop).map_err(|error| PublishError::Bind { address: address.to_owned(), reason: error.to_string() })
}

/// The files of IPC sockets stay behind otherwise, and could not be bound again.
fn remove_files(plan: &Plan) {
    let bound = plan.replay.iter().chain(plan.publish.bind.then_some(&plan.publish));
    for path in bound.filter_map(|endpoint| endpoint.address.strip_prefix("ipc://")) {
        // Somebody else may have removed it.
        let _ = std::fs::remove_file(path);
    }
}

/// The sending side of the thread.
struct Sending {
    socket: XPubSocket,
    queue: Receiver<Message>,
    topic: Bytes,
    outbox: Outbox,
    /// Whether more can come out of the queue.
    open: bool,
    sent: u64,
    subscriptions: u64,
}

impl Sending {
    /// Tries to connect until it works, or until the run is over and nothing has moved for a while.
    async fn connect(&mut self, address: &str) {
        let mut give_up_at = None;
        loop {
            let attempt = timeout(RETRY, self.socket.connect(address));
            if matches!(attempt.await, Ok(Ok(()))) {
                return;
            }
            tokio::time::sleep(RETRY).await;
            while let Ok(message) = self.queue.try_recv() {
                self.outbox.push(message);
            }
            if self.queue.is_closed() && self.queue.is_empty() {
                self.open = false;
                let at = *give_up_at.get_or_insert(Instant::now() + AT_THE_END);
                if Instant::now() >= at {
                    self.outbox.give_up_all();
                    return;
                }
            }
        }
    }

    /// Sends all that comes, until the run is over and the rest is sent or given up.
    async fn run(&mut self, subscribed: &std_mpsc::Sender<()>) {
        let mut patience = PATIENT;
        let mut last_sent = Instant::now();
        while self.open || !self.outbox.is_empty() {
            let Some(message) = self.outbox.pop() else {
                self.wait(subscribed).await;
                last_sent = Instant::now();
                continue;
            };
            if self.send(message, patience).await {
                self.sent += 1;
                (patience, last_sent) = (PATIENT, Instant::now());
            } else {
                self.outbox.give_up();
                patience = IMPATIENT;
            }
            if !self.open && last_sent.elapsed() > AT_THE_END {
                self.outbox.give_up_all();
            }
            self.look_for_subscriptions(subscribed).await;
        }
    }

    /// Waits for a batch or a subscription, whichever comes first.
    async fn wait(&mut self, subscribed: &std_mpsc::Sender<()>) {
        tokio::select! {
            message = self.queue.recv() => match message {
                Some(message) => self.outbox.push(message),
                None => self.open = false,
            },
            received = self.socket.recv() => note_subscription(received, &mut self.subscriptions, subscribed),
        }
    }

    /// Takes in the subscriptions that are there, so that a steady stream of batches does not keep them waiting.
    async fn look_for_subscriptions(&mut self, subscribed: &std_mpsc::Sender<()>) {
        loop {
            tokio::select! {
                biased;
                received = self.socket.recv() => note_subscription(received, &mut self.subscriptions, subscribed),
                () = std::future::ready(()) => return,
            }
        }
    }

    /// Sends a batch, and moves what comes out of the queue meanwhile to the outbox. Says whether it was sent in time.
    async fn send(&mut self, message: Message, patience: Duration) -> bool {
        let mut frames = ZmqMessage::from(message.payload);
        frames.push_front(Bytes::copy_from_slice(&message.sequence.to_be_bytes()));
        frames.push_front(self.topic.clone());
        let sending = timeout(patience, self.socket.send(frames));
        tokio::pin!(sending);
        loop {
            tokio::select! {
                biased;
                sent = &mut sending => return matches!(sent, Ok(Ok(()))),
                message = self.queue.recv(), if self.open => match message {
                    Some(message) => self.outbox.push(message),
                    None => self.open = false,
                },
            }
        }
    }
}

/// A message from a subscriber: 1 and a topic subscribes, 0 and a topic ends that. One that has gone away is an error of the
/// socket, and of no interest.
fn note_subscription(
    received: zeromq::ZmqResult<ZmqMessage>,
    subscriptions: &mut u64,
    subscribed: &std_mpsc::Sender<()>,
) {
    let Ok(message) = received else { return };
    if message.get(0).and_then(|frame| frame.first()) == Some(&1) {
        *subscriptions += 1;
        // Nobody may be waiting for it any more.
        let _ = subscribed.send(());
    }
}

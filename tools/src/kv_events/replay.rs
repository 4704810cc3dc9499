//! The ROUTER socket for replays. A request is three frames, identity, empty and a start number of 8 bytes, big-endian; the
//! answers are identity, empty, number and payload, one message a batch, ended by the number -1 with an empty payload.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use zeromq::{RouterSocket, SocketRecv, SocketSend, ZmqMessage};

use super::outbox::Kept;

/// The number that ends an answer: -1.
const END: [u8; 8] = (-1_i64).to_be_bytes();

/// Answers requests until its task ends. Requests that are malformed are ignored, as SGLang does.
pub async fn answer(mut socket: RouterSocket, kept: Kept, replayed: Arc<AtomicU64>) {
    while let Ok(request) = socket.recv().await {
        let Some((identity, start)) = parse(&request) else { continue };
        for message in kept.from(start) {
            let number = Bytes::copy_from_slice(&message.sequence.to_be_bytes());
            if send(&mut socket, &identity, number, message.payload).await.is_err() {
                break;
            }
            replayed.fetch_add(1, Ordering::Relaxed);
        }
        // A client that has gone away needs no end.
        let _ = send(&mut socket, &identity, Bytes::from_static(&END), Bytes::new()).await;
    }
}

async fn send(socket: &mut RouterSocket, identity: &Bytes, number: Bytes, payload: Bytes) -> zeromq::ZmqResult<()> {
    let mut answer = ZmqMessage::from(payload);
    answer.push_front(number);
    answer.push_front(Bytes::new());
    answer.push_front(identity.clone());
    socket.send(answer).await
}

fn parse(request: &ZmqMessage) -> Option<(Bytes, u64)> {
    let (identity, start) = match (request.len(), request.get(0), request.get(2)) {
        (3, Some(identity), Some(start)) => (identity, start),
        _ => return None,
    };
    let start: [u8; 8] = start.as_ref().try_into().ok()?;
    Some((identity.clone(), u64::from_be_bytes(start)))
}

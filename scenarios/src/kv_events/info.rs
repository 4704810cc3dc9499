//! Sums of a stream: batches, events by type, and how many blocks an event has.

use serde::Serialize;

use super::batch::{KvEvent, SentBatch};
use crate::summary::Sizes;

/// Events of one type.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TypeInfo {
    /// Events.
    pub events: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Events per request, where the number of requests is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events_per_request: Option<f64>,
    /// Blocks per request, where the number of requests is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks_per_request: Option<f64>,
    /// Blocks an event, mean.
    pub mean_blocks: f64,
    /// Blocks an event, median.
    pub median_blocks: f64,
    /// 90 % of events have at most so many blocks (nearest rank).
    pub p90_blocks: u64,
    /// 99 % of events have at most so many blocks (nearest rank).
    pub p99_blocks: u64,
    /// The largest event, in blocks.
    pub max_blocks: u64,
}

/// What a stream holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamInfo {
    /// Batches.
    pub batches: u64,
    /// The first batch's number.
    pub first_sequence: Option<u64>,
    /// The last batch's number.
    pub last_sequence: Option<u64>,
    /// The first batch's time in nanoseconds.
    pub first_time_ns: Option<u64>,
    /// The last batch's time in nanoseconds.
    pub last_time_ns: Option<u64>,
    /// The number of requests, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Blocks that came into the cache.
    pub stored: TypeInfo,
    /// Blocks that left it.
    pub removed: TypeInfo,
    /// Events that say that the cache is empty.
    pub cleared: u64,
    /// Token ids in all stored events.
    pub token_ids: u64,
}

/// Sums a stream up as it is read.
#[derive(Clone, Debug, Default)]
pub struct InfoTally {
    info: StreamInfo,
    stored: Sizes,
    removed: Sizes,
}

impl InfoTally {
    /// Adds a batch.
    pub fn add(&mut self, sent: &SentBatch) {
        let info = &mut self.info;
        info.batches += 1;
        info.first_sequence.get_or_insert(sent.sequence);
        info.last_sequence = Some(sent.sequence);
        info.first_time_ns.get_or_insert(sent.batch.ts_ns);
        info.last_time_ns = Some(sent.batch.ts_ns);
        for event in &sent.batch.events {
            match event {
                KvEvent::AllBlocksCleared => info.cleared += 1,
                KvEvent::BlockRemoved(_) => self.removed.add(event.blocks()),
                KvEvent::BlockStored(stored) => {
                    info.token_ids += stored.token_ids.len() as u64;
                    self.stored.add(event.blocks());
                }
            }
        }
    }

    /// What it comes to, per request where their number is known.
    pub fn info(&self, requests: Option<u64>) -> StreamInfo {
        let requests = requests.filter(|requests| *requests > 0);
        StreamInfo {
            requests,
            stored: type_info(&self.stored, requests),
            removed: type_info(&self.removed, requests),
            ..self.info.clone()
        }
    }
}

fn type_info(sizes: &Sizes, requests: Option<u64>) -> TypeInfo {
    let counts = sizes.counts(requests.unwrap_or(0));
    let per_request = |count: u64| requests.map(|requests| count as f64 / requests as f64);
    TypeInfo {
        events: counts.events,
        blocks: counts.blocks,
        events_per_request: per_request(counts.events),
        blocks_per_request: per_request(counts.blocks),
        mean_blocks: counts.mean_blocks,
        median_blocks: counts.median_blocks,
        p90_blocks: sizes.percentile(90),
        p99_blocks: sizes.percentile(99),
        max_blocks: sizes.percentile(100),
    }
}

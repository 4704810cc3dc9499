//! The file form of lines: a JSON object a batch, with its sequence number, its time in nanoseconds, why it was published, and
//! its events under the wire's names. Numbers are exact, and all fields of an event stand.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::batch::{BlockRemoved, BlockStored, KvEvent, KvEventBatch, Medium, PublishReason, RemovalReason, SentBatch};
use crate::trace::field::Fault;

#[derive(Serialize)]
struct LineOut<'b> {
    sequence: u64,
    time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<PublishReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attn_dp_rank: Option<u32>,
    events: Vec<EventOut<'b>>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum EventOut<'b> {
    BlockStored {
        block_hashes: &'b [i64],
        parent_block_hash: Option<i64>,
        token_ids: &'b [u32],
        block_size: u32,
        lora_id: Option<i64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        medium: Option<Medium>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_salt: Option<&'b str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        session_id: Option<&'b str>,
    },
    BlockRemoved {
        block_hashes: &'b [i64],
        #[serde(skip_serializing_if = "Option::is_none")]
        medium: Option<Medium>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<RemovalReason>,
    },
    AllBlocksCleared,
}

impl<'b> From<&'b KvEvent> for EventOut<'b> {
    fn from(event: &'b KvEvent) -> EventOut<'b> {
        match event {
            KvEvent::BlockStored(stored) => EventOut::BlockStored {
                block_hashes: &stored.block_hashes,
                parent_block_hash: stored.parent_block_hash,
                token_ids: &stored.token_ids,
                block_size: stored.block_size,
                lora_id: stored.lora_id,
                medium: stored.medium,
                cache_salt: stored.cache_salt.as_deref(),
                session_id: stored.session_id.as_deref(),
            },
            KvEvent::BlockRemoved(removed) => EventOut::BlockRemoved {
                block_hashes: &removed.block_hashes,
                medium: removed.medium,
                reason: removed.reason,
            },
            KvEvent::AllBlocksCleared => EventOut::AllBlocksCleared,
        }
    }
}

/// Writes a batch as a line.
///
/// # Errors
/// The writer's.
pub fn write_line(writer: &mut impl Write, sent: &SentBatch) -> std::io::Result<()> {
    let line = LineOut {
        sequence: sent.sequence,
        time_ns: sent.batch.ts_ns,
        why: sent.why,
        attn_dp_rank: sent.batch.attn_dp_rank,
        events: sent.batch.events.iter().map(EventOut::from).collect(),
    };
    serde_json::to_writer(&mut *writer, &line)?;
    writer.write_all(b"\n")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LineIn {
    sequence: u64,
    time_ns: u64,
    #[serde(default)]
    why: Option<PublishReason>,
    #[serde(default)]
    attn_dp_rank: Option<u32>,
    events: Vec<EventIn>,
}

/// All fields that any event has: one flat struct, so that long arrays are read straight into their vectors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventIn {
    #[serde(rename = "type")]
    kind: EventType,
    block_hashes: Option<Vec<i64>>,
    #[serde(default)]
    parent_block_hash: Option<i64>,
    token_ids: Option<Vec<u32>>,
    block_size: Option<u32>,
    #[serde(default)]
    lora_id: Option<i64>,
    medium: Option<Medium>,
    cache_salt: Option<String>,
    session_id: Option<String>,
    reason: Option<RemovalReason>,
}

#[derive(Clone, Copy, Deserialize)]
enum EventType {
    BlockStored,
    BlockRemoved,
    AllBlocksCleared,
}

/// Reads a line.
///
/// # Errors
/// No valid JSON, a field that is unknown, missing or of the wrong type.
pub fn read_line(line: &[u8]) -> Result<SentBatch, Fault> {
    let read: LineIn = serde_json::from_slice(line).map_err(|error| fault(&error, line))?;
    let mut events = Vec::with_capacity(read.events.len());
    for (index, event) in read.events.into_iter().enumerate() {
        events.push(event.into_event().map_err(|fault| fault.within(&format!("events[{index}]")))?);
    }
    let batch = KvEventBatch { ts_ns: read.time_ns, events, attn_dp_rank: read.attn_dp_rank };
    Ok(SentBatch { sequence: read.sequence, why: read.why, batch })
}

fn fault(error: &serde_json::Error, line: &[u8]) -> Fault {
    let found = if error.is_eof() {
        format!("a line cut off after {} bytes", line.len())
    } else {
        error.to_string().replace(" at line 1 column", " at column")
    };
    Fault::new("line", found, "a batch of KV events as one JSON object")
}

impl EventIn {
    fn into_event(self) -> Result<KvEvent, Fault> {
        let missing = |field: &str| Fault::new(field, "nothing", "a value");
        match self.kind {
            EventType::AllBlocksCleared => {
                self.refuse(&["block_hashes", "medium", "reason"])?;
                self.refuse_stored()?;
                Ok(KvEvent::AllBlocksCleared)
            }
            EventType::BlockRemoved => {
                self.refuse_stored()?;
                let block_hashes = self.block_hashes.ok_or_else(|| missing("block_hashes"))?;
                Ok(KvEvent::BlockRemoved(BlockRemoved { block_hashes, medium: self.medium, reason: self.reason }))
            }
            EventType::BlockStored => {
                self.refuse(&["reason"])?;
                let stored = BlockStored {
                    block_hashes: self.block_hashes.ok_or_else(|| missing("block_hashes"))?,
                    parent_block_hash: self.parent_block_hash,
                    token_ids: self.token_ids.ok_or_else(|| missing("token_ids"))?,
                    block_size: self.block_size.ok_or_else(|| missing("block_size"))?,
                    lora_id: self.lora_id,
                    medium: self.medium,
                    cache_salt: self.cache_salt,
                    session_id: self.session_id,
                };
                stored.check_tokens()?;
                Ok(KvEvent::BlockStored(stored))
            }
        }
    }

    /// Refuses what only stored blocks have.
    fn refuse_stored(&self) -> Result<(), Fault> {
        self.refuse(&["parent_block_hash", "token_ids", "block_size", "lora_id", "cache_salt", "session_id"])
    }

    fn refuse(&self, fields: &[&str]) -> Result<(), Fault> {
        let set = |field: &str| match field {
            "block_hashes" => self.block_hashes.is_some(),
            "parent_block_hash" => self.parent_block_hash.is_some(),
            "token_ids" => self.token_ids.is_some(),
            "block_size" => self.block_size.is_some(),
            "lora_id" => self.lora_id.is_some(),
            "medium" => self.medium.is_some(),
            "cache_salt" => self.cache_salt.is_some(),
            "session_id" => self.session_id.is_some(),
            _ => self.reason.is_some(),
        };
        match fields.iter().find(|field| set(field)) {
            None => Ok(()),
            Some(field) => Err(Fault::new(field, "a value", "no such field for this type")),
        }
    }
}

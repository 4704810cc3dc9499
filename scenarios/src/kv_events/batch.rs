//! A batch of KV events, as a publisher sends it and a consumer gets it.

use serde::{Deserialize, Serialize};

use crate::trace::field::Fault;

/// Where a block is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Medium {
    /// The device's memory: the only one that servesim has.
    #[serde(rename = "GPU")]
    Gpu,
    /// Pinned memory of the host.
    #[serde(rename = "CPU_PINNED")]
    CpuPinned,
    /// A local disk.
    #[serde(rename = "DISK")]
    Disk,
    /// A pool that is shared or remote.
    #[serde(rename = "EXTERNAL")]
    External,
}

impl Medium {
    /// All media.
    pub const ALL: [Medium; 4] = [Medium::Gpu, Medium::CpuPinned, Medium::Disk, Medium::External];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Medium::Gpu => "GPU",
            Medium::CpuPinned => "CPU_PINNED",
            Medium::Disk => "DISK",
            Medium::External => "EXTERNAL",
        }
    }

    /// The medium of a word on the wire.
    pub fn from_wire(word: &str) -> Option<Medium> {
        Medium::ALL.into_iter().find(|medium| medium.as_str() == word)
    }
}

/// Why blocks were removed. In files only: the wire has no such field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalReason {
    /// Their leaf was evicted to make room: the only way in which the simulated cache loses blocks.
    Eviction,
}

/// Why a batch was published. In files of lines only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PublishReason {
    /// After the results of an extend batch.
    Prefill,
    /// After the results of every `decode_log_interval`-th decode batch.
    DecodeInterval,
    /// When the worker was idle.
    Idle,
}

/// Blocks that came into the cache, each below the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockStored {
    /// The hash of each block.
    pub block_hashes: Vec<i64>,
    /// The hash of the block that the first one hangs below; none at the root.
    pub parent_block_hash: Option<i64>,
    /// The token ids of all blocks, `block_size` a block; empty where they are not emitted.
    pub token_ids: Vec<u32>,
    /// Tokens in a block: the page size.
    pub block_size: u32,
    /// The LoRA adapter; servesim has none.
    pub lora_id: Option<i64>,
    /// Where the blocks are kept; absent in the older form.
    pub medium: Option<Medium>,
    /// The salt of the request that stored them; never set by servesim.
    pub cache_salt: Option<String>,
    /// The session that stored them; never set by servesim.
    pub session_id: Option<String>,
}

impl BlockStored {
    /// Checks that token ids, where there are any, are `block_size` for each block, and that a block has a size.
    ///
    /// # Errors
    /// What is wrong, as a fault of the field.
    pub fn check_tokens(&self) -> Result<(), Fault> {
        if self.block_size == 0 {
            return Err(Fault::new("block_size", "0", "at least 1"));
        }
        let expected = self.block_hashes.len() as u64 * u64::from(self.block_size);
        if self.token_ids.is_empty() || self.token_ids.len() as u64 == expected {
            return Ok(());
        }
        let found = format!("{} token ids", self.token_ids.len());
        let expected = format!("none, or {expected} for {} blocks", self.block_hashes.len());
        Err(Fault::new("token_ids", found, expected))
    }
}

/// Blocks that left the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockRemoved {
    /// The hash of each block.
    pub block_hashes: Vec<i64>,
    /// Where the blocks were kept; absent in the older form.
    pub medium: Option<Medium>,
    /// Why they went. In files of lines only, where `output.kv_events_reason` asks for it.
    pub reason: Option<RemovalReason>,
}

/// One KV event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks came into the cache.
    BlockStored(BlockStored),
    /// Blocks left the cache.
    BlockRemoved(BlockRemoved),
    /// The cache is empty.
    AllBlocksCleared,
}

impl KvEvent {
    /// The event's name on the wire.
    pub fn type_name(&self) -> &'static str {
        match self {
            KvEvent::BlockStored(_) => "BlockStored",
            KvEvent::BlockRemoved(_) => "BlockRemoved",
            KvEvent::AllBlocksCleared => "AllBlocksCleared",
        }
    }

    /// How many blocks it is about.
    pub fn blocks(&self) -> u64 {
        match self {
            KvEvent::BlockStored(stored) => stored.block_hashes.len() as u64,
            KvEvent::BlockRemoved(removed) => removed.block_hashes.len() as u64,
            KvEvent::AllBlocksCleared => 0,
        }
    }
}

/// What is published at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KvEventBatch {
    /// When, in nanoseconds: simulated time from the start of a run, or Unix time in a recorded stream. Seconds as a
    /// floating-point number on the wire.
    pub ts_ns: u64,
    /// What happened, in order.
    pub events: Vec<KvEvent>,
    /// The data-parallel rank that published it; absent in the older form.
    pub attn_dp_rank: Option<u32>,
}

/// A batch with what its sender and a file say about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentBatch {
    /// Its number in the stream, from 0.
    pub sequence: u64,
    /// Why it was published, where that is known.
    pub why: Option<PublishReason>,
    /// The batch.
    pub batch: KvEventBatch,
}

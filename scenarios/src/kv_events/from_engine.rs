//! From what a worker published in an iteration to numbered batches. Vectors are used again from one batch to the next.

use servesim_engine::events::{DetailedEvent, EventKind, Published, Why};

use super::batch::{BlockRemoved, BlockStored, KvEvent, Medium, PublishReason, RemovalReason, SentBatch};

/// The only rank that a run has: one worker, rank 0, as SGLang's publisher fills it in.
pub const ONLY_RANK: u32 = 0;

/// Makes batches of what is published, numbered from 0.
#[derive(Debug, Default)]
pub struct BatchMaker {
    page_size: u32,
    with_reasons: bool,
    sent: SentBatch,
    spare_hashes: Vec<Vec<i64>>,
    spare_tokens: Vec<Vec<u32>>,
}

impl From<Why> for PublishReason {
    fn from(why: Why) -> PublishReason {
        match why {
            Why::Prefill => PublishReason::Prefill,
            Why::DecodeInterval => PublishReason::DecodeInterval,
            Why::Idle => PublishReason::Idle,
        }
    }
}

impl BatchMaker {
    /// For a worker with pages of `page_size` tokens. `with_reasons` says why blocks were removed.
    pub fn new(page_size: u32, with_reasons: bool) -> BatchMaker {
        BatchMaker { page_size, with_reasons, ..BatchMaker::default() }
    }

    /// How many batches there were.
    pub fn batches(&self) -> u64 {
        self.sent.sequence
    }

    /// Hands each batch of an iteration that ended at `now_ns` to `each`.
    ///
    /// # Errors
    /// The first one of `each`; the batches behind it are then not made.
    pub fn each<E>(
        &mut self,
        published: &Published,
        now_ns: u64,
        mut each: impl FnMut(&SentBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        for batch in &published.batches {
            self.take_back();
            self.sent.why = Some(batch.why.into());
            self.sent.batch.ts_ns = now_ns;
            self.sent.batch.attn_dp_rank = Some(ONLY_RANK);
            for event in published.detailed(batch) {
                let event = self.event(&event);
                self.sent.batch.events.push(event);
            }
            each(&self.sent)?;
            self.sent.sequence += 1;
        }
        Ok(())
    }

    fn event(&mut self, event: &DetailedEvent) -> KvEvent {
        let mut block_hashes = self.spare_hashes.pop().unwrap_or_default();
        block_hashes.extend_from_slice(event.hashes);
        match event.event.kind {
            EventKind::Cleared => {
                self.spare_hashes.push(block_hashes);
                KvEvent::AllBlocksCleared
            }
            EventKind::Removed => {
                // Nothing but eviction takes a node out of the tree: what is not inserted was never in it.
                let reason = self.with_reasons.then_some(RemovalReason::Eviction);
                KvEvent::BlockRemoved(BlockRemoved { block_hashes, medium: Some(Medium::Gpu), reason })
            }
            EventKind::Stored | EventKind::StoredAtRoot => {
                let mut token_ids = self.spare_tokens.pop().unwrap_or_default();
                token_ids.extend(event.token_runs.iter().flat_map(|run| run.tokens()));
                KvEvent::BlockStored(BlockStored {
                    block_hashes,
                    parent_block_hash: event.parent,
                    token_ids,
                    block_size: self.page_size,
                    medium: Some(Medium::Gpu),
                    ..BlockStored::default()
                })
            }
        }
    }

    /// Keeps the vectors of the last batch for the next one.
    fn take_back(&mut self) {
        for event in self.sent.batch.events.drain(..) {
            match event {
                KvEvent::AllBlocksCleared => {}
                KvEvent::BlockRemoved(removed) => keep(&mut self.spare_hashes, removed.block_hashes),
                KvEvent::BlockStored(stored) => {
                    keep(&mut self.spare_hashes, stored.block_hashes);
                    keep(&mut self.spare_tokens, stored.token_ids);
                }
            }
        }
    }
}

fn keep<T>(spare: &mut Vec<Vec<T>>, mut vector: Vec<T>) {
    vector.clear();
    spare.push(vector);
}

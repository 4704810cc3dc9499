//! What a consumer of KV events knows: the blocks that are cached, by their hashes.

use std::collections::BTreeMap;

use servesim_engine::events::{DetailedEvent, EventKind};
use servesim_engine::worker::Worker;

/// The blocks that all events so far leave. Blocks of different namespaces can have one hash, so each is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    blocks: BTreeMap<i64, u32>,
}

impl Mirror {
    /// Applies what the last iteration published.
    ///
    /// # Errors
    /// A parent or a removed block that is not there, or hashes that are not as many as the event says.
    pub fn follow(&mut self, worker: &Worker) -> Result<(), String> {
        let published = &worker.record().published;
        published.batches.iter().flat_map(|batch| published.detailed(batch)).try_for_each(|event| self.apply(&event))
    }

    /// Compares the blocks, after the events that still wait, with those of the tree.
    ///
    /// # Errors
    /// They differ.
    pub fn compare(&self, worker: &Worker) -> Result<(), String> {
        let mut ahead = self.clone();
        worker.waiting_events().waiting_detailed().try_for_each(|event| ahead.apply(&event))?;
        let mut tree = Mirror::default();
        worker.cached_blocks().for_each(|hash| tree.store(hash));
        if ahead == tree {
            return Ok(());
        }
        Err(format!("the mirror holds {} hashes, the tree {}", ahead.blocks.len(), tree.blocks.len()))
    }

    fn store(&mut self, hash: i64) {
        *self.blocks.entry(hash).or_default() += 1;
    }

    fn apply(&mut self, event: &DetailedEvent) -> Result<(), String> {
        if event.hashes.len() as u64 != event.event.blocks {
            return Err(format!("{} hashes of {} blocks", event.hashes.len(), event.event.blocks));
        }
        match event.event.kind {
            EventKind::Cleared => self.blocks.clear(),
            EventKind::StoredAtRoot => event.hashes.iter().for_each(|&hash| self.store(hash)),
            EventKind::Stored => {
                let parent = event.parent.ok_or("an event below a block names none")?;
                if !self.blocks.contains_key(&parent) {
                    return Err(format!("parent {parent} is not cached"));
                }
                event.hashes.iter().for_each(|&hash| self.store(hash));
            }
            EventKind::Removed => {
                for hash in event.hashes {
                    let count = self.blocks.get_mut(hash).ok_or_else(|| format!("removed {hash} is not cached"))?;
                    *count -= 1;
                    if *count == 0 {
                        self.blocks.remove(hash);
                    }
                }
            }
        }
        Ok(())
    }
}

//! A digest of all state that a later pass can see: what an undone pass must leave as it was.
//!
//! What only affects speed is left out: where walks ended last, digests computed early, spare memory, counts of work done. Columns are summed over
//! their rows, so that no iteration order enters.

use std::hash::{Hash, Hasher};

use crate::cache::Cache;
use crate::content::mix;
use crate::iteration::Pass;
use crate::leaves::NOT_A_CANDIDATE;
use crate::scheduler::Scheduler;
use crate::tree::{Node, NodeKey, Tree};

/// A hasher without a seed.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0.rotate_left(5) ^ word);
    }
}

fn hash(value: impl Hash) -> u64 {
    let mut fold = Fold::default();
    value.hash(&mut fold);
    fold.finish()
}

fn sum(rows: impl Iterator<Item = u64>) -> u64 {
    rows.fold(0, u64::wrapping_add)
}

/// What of a node a later pass can see: all but its place in the index of leaves, whose inner order has no meaning, and
/// whether it is a link or a joint, which only says how its guards are counted.
fn visible(tree: &Tree, key: NodeKey, node: &Node) -> impl Hash + use<> {
    let Node {
        stream,
        start,
        end,
        parent,
        run,
        guards: _,
        children,
        child: _,
        joint_above: _,
        leaf_position,
        touch,
        own_tick,
    } = *node;
    let guards = tree.guards(key);
    ((stream, start, end, parent, run), (guards, children, leaf_position == NOT_A_CANDIDATE, touch, own_tick))
}

/// The digest of a worker's stores.
pub(crate) fn digest(cache: &Cache, scheduler: &Scheduler, pass: &Pass) -> u64 {
    let Cache { pool, tree, events, hashes, contents, .. } = cache;
    let Scheduler { inbox, requests, queue, running, batches, held } = scheduler;
    let mut fold = Fold::default();
    (pool.numbers, sum(pool.runs().map(hash))).hash(&mut fold);
    (tree.numbers, sum(tree.iter().map(|(key, node)| hash((key, visible(tree, key, node), tree.stats(key))))))
        .hash(&mut fold);
    sum(tree.leaves.iter().map(hash)).hash(&mut fold);
    (hashes.detail, sum(tree.iter().map(|(key, _)| hash((key, hashes.of(key)))))).hash(&mut fold);
    (sum(requests.iter().map(hash)), requests.ended()).hash(&mut fold);
    (queue.numbers, queue.iter().collect::<Vec<_>>()).hash(&mut fold);
    (running.numbers, running.rows(), running.residues()).hash(&mut fold);
    (&batches.last, batches.next.number, events).hash(&mut fold);
    (pass.ratio.bits(), pass.clock, &held.requests, &inbox.asked).hash(&mut fold);
    sum(contents.held().map(hash)).hash(&mut fold);
    fold.finish()
}

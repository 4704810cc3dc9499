//! Eviction: whole leaves, smallest key first.

use super::settings::Eviction;
use super::tree::{NodeId, ROOT, Tree};

/// What is compared; the smallest goes first.
type Key = (i128, i128, i128);

impl Tree {
    /// Lets leaves go until `wanted` tokens are free or no leaf is left that may go.
    pub fn evict(&mut self, wanted: i64) {
        let mut freed = 0;
        while freed < wanted {
            let Some(leaf) = self.next_victim() else { break };
            freed += self.nodes[leaf].tokens.len() as i64;
            self.remove(leaf);
        }
    }

    fn next_victim(&self) -> Option<NodeId> {
        let may_go = |id: &NodeId| {
            let node = &self.nodes[*id];
            *id != ROOT && node.alive && node.children.is_empty() && node.locks == 0
        };
        (0..self.nodes.len()).filter(may_go).min_by_key(|id| self.key(*id))
    }

    fn remove(&mut self, leaf: NodeId) {
        let path = self.path_tokens(leaf);
        let start = path.len() - self.nodes[leaf].tokens.len();
        self.events.removed(&path, start, self.page);
        self.nodes[leaf].alive = false;
        if let Some(parent) = self.nodes[leaf].parent {
            self.nodes[parent].children.retain(|id| *id != leaf);
        }
    }

    fn key(&self, id: NodeId) -> Key {
        let node = &self.nodes[id];
        let by_recency = |class: i128| (class, node.recency.tick, -node.recency.back);
        match self.eviction {
            Eviction::Lru => by_recency(0),
            Eviction::Lfu => by_recency(node.hits),
            Eviction::Slru => by_recency(i128::from(node.hits >= 2)),
            Eviction::Tlru { threshold, next_prompt_estimate } => {
                by_recency(i128::from(self.is_kept(id, threshold, next_prompt_estimate)))
            }
            Eviction::Fifo => (node.created, 0, 0),
            Eviction::Mru => (0, -node.recency.tick, node.recency.back),
            Eviction::Filo => (-node.created, 0, 0),
            Eviction::Priority => by_recency(node.priority),
        }
    }

    fn is_kept(&self, id: NodeId, threshold: i64, next_prompt_estimate: i64) -> bool {
        let node = &self.nodes[id];
        let depth_at_start = (self.path_tokens(id).len() - node.tokens.len()) as i64;
        let budget = (node.history as i64 + next_prompt_estimate - threshold).max(0);
        depth_at_start < budget
    }
}

//! The order in which waiting requests are tried.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::model::Model;
use super::request::ReqId;
use super::settings::Policy;
use super::tree::{NodeId, ROOT, Tree};

/// A queue longer than this is not matched and sorted.
const LONG_QUEUE: usize = 128;
/// A match up to this length is also looked for among the waiting prompts.
const CHECK_UP_TO: i64 = 32;
/// A match of this length among them puts a request last.
const PUT_LAST_FROM: usize = 32;

impl Model {
    /// Sorts the waiting queue by the schedule policy.
    pub fn order_waiting(&mut self) {
        let mut queue = std::mem::take(&mut self.waiting);
        let policy = self.settings.policy;
        let gives_up = matches!(policy, Policy::Lpm | Policy::Hrrn) && queue.len() > LONG_QUEUE;
        match policy {
            Policy::Fcfs if self.settings.priorities => {
                queue.sort_by_key(|id| (self.rank(*id), self.requests[*id].queued_at));
            }
            Policy::Fcfs => {}
            Policy::Lof if self.settings.priorities => {
                queue.sort_by_key(|id| (self.rank(*id), -self.requests[*id].max_new));
            }
            Policy::Lof => queue.sort_by_key(|id| -self.requests[*id].max_new),
            Policy::RoutingKey => self.sort_by_routing_key(&mut queue),
            _ if gives_up => {}
            _ => self.sort_by_matches(&mut queue, policy),
        }
        self.waiting = queue;
    }

    /// What is left to compute of a request, as the shortest-prefill-first policy counts it.
    pub fn prefill_work(&self, id: ReqId) -> i64 {
        (self.requests[id].len() - self.requests[id].matched).max(1)
    }

    fn sort_by_matches(&mut self, queue: &mut Vec<ReqId>, policy: Policy) {
        let put_last = self.match_queue(queue);
        match policy {
            Policy::Lpm => queue.sort_by_key(|id| {
                let last = put_last.contains(id);
                (last, if last { 0 } else { -self.requests[*id].matched })
            }),
            Policy::ShortestPrefillFirst => {
                queue.sort_by_key(|id| (put_last.contains(id), self.prefill_work(*id), self.requests[*id].queued_at))
            }
            Policy::Hrrn => queue.sort_by(|a, b| self.compare_response_ratio(*a, *b, &put_last)),
            _ => {
                if let Some(tree) = &self.tree {
                    *queue = depth_first(tree, queue, |id| self.requests[id].node);
                }
            }
        }
    }

    /// Matches each waiting request, in queue order, and says who shares so much with one before it that it should wait.
    fn match_queue(&mut self, queue: &[ReqId]) -> Vec<ReqId> {
        let mut put_last = Vec::new();
        let mut scratch: Vec<ReqId> = Vec::new();
        for id in queue.iter().copied() {
            let length = self.requests[id].len();
            let matched = self.match_request(id, length);
            self.requests[id].matched = matched.min((length - 1).max(0));
            if matched > CHECK_UP_TO {
                continue;
            }
            if scratch.iter().any(|other| self.shared_tokens(id, *other) >= PUT_LAST_FROM) {
                put_last.push(id);
            } else {
                scratch.push(id);
            }
        }
        put_last
    }

    fn shared_tokens(&self, a: ReqId, b: ReqId) -> usize {
        let (a, b) = (&self.requests[a], &self.requests[b]);
        if a.extra_key != b.extra_key {
            return 0;
        }
        a.tokens().iter().zip(&b.tokens()).take_while(|(x, y)| x == y).count()
    }

    fn compare_response_ratio(&self, a: ReqId, b: ReqId, put_last: &[ReqId]) -> Ordering {
        let key = |id: ReqId| {
            let request = &self.requests[id];
            let uncached = (request.prompt.len() as i64 - request.matched).max(0);
            if put_last.contains(&id) {
                f64::INFINITY
            } else if uncached == 0 {
                f64::NEG_INFINITY
            } else {
                -((self.counter - request.counter_at_entry).max(0) as f64 / uncached as f64)
            }
        };
        let by_ratio = key(a).partial_cmp(&key(b)).unwrap_or(Ordering::Equal);
        by_ratio.then_with(|| self.requests[a].rid.cmp(&self.requests[b].rid))
    }

    fn sort_by_routing_key(&self, queue: &mut [ReqId]) {
        let key_of = |id: &ReqId| self.requests[*id].routing_key.clone().unwrap_or_default();
        let mut running: BTreeMap<String, i64> = BTreeMap::new();
        for key in self.running.rows.iter().map(key_of).filter(|key| !key.is_empty()) {
            *running.entry(key).or_default() += 1;
        }
        if running.is_empty() {
            return;
        }
        queue.sort_by_key(|id| {
            let key = key_of(id);
            match running.get(&key) {
                Some(count) => (0, -count, key),
                None => (1, 0, key),
            }
        });
    }
}

/// The requests in the order in which a walk leaves their nodes, heavier subtrees first.
fn depth_first(tree: &Tree, queue: &[ReqId], node_of: impl Fn(ReqId) -> NodeId) -> Vec<ReqId> {
    let mut weight = vec![0_usize; tree.nodes.len()];
    for id in queue {
        let mut steps = tree.path(node_of(*id));
        steps.push(ROOT);
        for node in steps {
            weight[node] += 1;
        }
    }
    let mut left = Vec::new();
    leave(tree, ROOT, &weight, &mut left);
    left.into_iter()
        .flat_map(|node| queue.iter().copied().filter(|id| node_of(*id) == node).collect::<Vec<_>>())
        .collect()
}

fn leave(tree: &Tree, node: NodeId, weight: &[usize], left: &mut Vec<NodeId>) {
    let mut children = tree.nodes[node].children.clone();
    children.sort_by_key(|child| std::cmp::Reverse(weight[*child]));
    for child in children {
        leave(tree, child, weight, left);
    }
    left.push(node);
}

//! `order`: whether an extend batch is tried at all, and in which order requests are (`behaviour.md` section 3).
//!
//! Reads the settings, requests and the running batch; writes the queue's order, the latch, matches of waiting requests (which
//! touch and may split the tree) and the plan.

use std::cmp::Reverse;

use bumpalo::Bump;
use hashbrown::HashTable;

use crate::batch::Plan;
use crate::cache::Cache;
use crate::config::{Role, SchedulePolicy};
use crate::content::{StreamKey, mix};
use crate::engine::Engine;
use crate::queue::Queue;
use crate::request::RequestKey;
use crate::requests::Requests;
use crate::running::Running;
use crate::scheduler::Scheduler;
use crate::systems::enter::preference;
use crate::tree::NodeKey;

/// Above this many waiting requests `lpm` and `hrrn` become `fcfs`.
const LONG_QUEUE: usize = 128;

/// What ordering reads and writes.
pub(crate) struct Order<'a> {
    cache: &'a mut Cache,
    requests: &'a mut Requests,
    queue: &'a mut Queue,
    running: &'a mut Running,
    plan: &'a mut Plan,
}

/// The queue's own prompts, by a hash of their first tokens: what the scratch tree of the reference would tell.
#[derive(Default)]
struct Prompts {
    starts: HashTable<(u64, StreamKey)>,
}

/// Memory that ordering uses again in each pass.
#[derive(Default)]
pub(crate) struct Scratch {
    bump: Bump,
    prompts: Prompts,
}

/// Decides whether to admit, and sorts the queue if so.
pub(crate) fn order(engine: &mut Engine, scratch: &mut Scratch) {
    let Engine { cache, scheduler, pass, .. } = engine;
    let Scheduler { requests, queue, running, .. } = scheduler;
    let mut order = Order { cache, requests, queue, running, plan: &mut pass.plan };
    order.plan.admitting = order.opens();
    if order.plan.admitting && !order.queue.is_empty() {
        let Scratch { bump, prompts } = scratch;
        bump.reset();
        order.sort(bump, prompts);
    }
}

/// How many requests could be admitted beside the rows that run.
pub(crate) fn allocatable(running: &Running, max_running_requests: u32) -> i64 {
    let room = i64::from(max_running_requests) - running.rows().len() as i64;
    room.min(i64::from(running.numbers.free_slots))
}

impl Order<'_> {
    fn opens(&mut self) -> bool {
        let config = &self.cache.config;
        let numbers = &mut self.running.numbers;
        if config.role == Role::Unified && numbers.prefill_defer > 0 {
            numbers.prefill_defer -= 1;
            return false;
        }
        if config.preempts() {
            numbers.full = false;
        }
        if numbers.chunked.is_some() {
            return true;
        }
        if numbers.full || self.queue.is_empty() {
            return false;
        }
        if allocatable(self.running, config.max_running_requests) <= 0 && !config.preempts() {
            self.running.numbers.full = true;
            return false;
        }
        true
    }

    fn sort(&mut self, scratch: &Bump, prompts: &mut Prompts) {
        let long = self.queue.len() > LONG_QUEUE;
        match self.cache.config.effective_policy() {
            SchedulePolicy::Fcfs if self.cache.config.enable_priority_scheduling => self.sort_by_priority(),
            SchedulePolicy::Lpm | SchedulePolicy::Hrrn if long => {}
            SchedulePolicy::Fcfs => {}
            SchedulePolicy::Lpm => self.sort_by_longest_prefix(scratch, prompts),
            SchedulePolicy::Hrrn => self.sort_by_response_ratio(scratch, prompts),
            SchedulePolicy::ShortestPrefillFirst => self.sort_by_shortest_prefill(scratch, prompts),
            SchedulePolicy::DfsWeight => {
                self.match_all(scratch, prompts);
                self.sort_by_subtree_weight(scratch);
            }
            SchedulePolicy::Lof => self.sort_by_longest_output(),
            SchedulePolicy::RoutingKey => self.sort_by_routing_key(scratch),
            SchedulePolicy::Random => self.shuffle(),
        }
    }

    /// Matches every waiting request, and returns which are put last because another's prompt starts like theirs.
    fn match_all<'b>(&mut self, scratch: &'b Bump, prompts: &mut Prompts) -> bumpalo::collections::Vec<'b, RequestKey> {
        let mut put_last = bumpalo::collections::Vec::new_in(scratch);
        let check = self.cache.config.in_batch_prefix_caching_check_threshold;
        prompts.starts.clear();
        for index in 0..self.queue.len() {
            let request = self.queue.at(index);
            let stream = self.requests.spec(request).content;
            let tokens = self.requests.fill_tokens(request);
            let node = self.cache.match_prefix(stream, tokens);
            let depth = self.cache.tree.depth(node);
            self.requests.update(request, &mut self.cache.journal, |progress| {
                progress.matched = depth.min(tokens.saturating_sub(1));
                progress.matched_node = node;
                progress.tested_prefix = depth;
            });
            if depth <= check && self.starts_like_another(prompts, stream, tokens) {
                put_last.push(request);
            }
        }
        put_last.sort_unstable();
        put_last
    }

    /// Whether a prompt seen before starts with the same tokens; if none does, this one is remembered.
    fn starts_like_another(&self, prompts: &mut Prompts, stream: StreamKey, tokens: u32) -> bool {
        let threshold = self.cache.config.in_batch_prefix_caching_deprioritize_threshold;
        if threshold == 0 {
            return true;
        }
        if tokens < threshold {
            return false;
        }
        let contents = &self.cache.contents;
        let hash = contents.page_hash(stream, 0, threshold);
        let same = |&(other_hash, other): &(u64, StreamKey)| {
            other_hash == hash
                && contents.namespace_of(other) == contents.namespace_of(stream)
                && contents.common(stream, other, 0, threshold) == threshold
        };
        if prompts.starts.find(hash, same).is_some() {
            return true;
        }
        prompts.starts.insert_unique(hash, (hash, stream), |&(hash, _)| hash);
        false
    }

    fn sort_by_priority(&mut self) {
        let (config, requests) = (&self.cache.config, &self.requests);
        self.queue.reorder(&mut self.cache.journal, |queue| {
            queue.sort_by_key(|&request| (preference(config, requests, request), requests.get(request).queue_entry));
        });
    }

    fn sort_by_longest_prefix(&mut self, scratch: &Bump, prompts: &mut Prompts) {
        let put_last = self.match_all(scratch, prompts);
        let requests = &self.requests;
        self.queue.reorder(&mut self.cache.journal, |queue| {
            queue.sort_by_key(|request| match put_last.binary_search(request) {
                Ok(_) => i64::MAX,
                Err(_) => -i64::from(requests.get(*request).matched),
            });
        });
    }

    fn sort_by_shortest_prefill(&mut self, scratch: &Bump, prompts: &mut Prompts) {
        let put_last = self.match_all(scratch, prompts);
        let requests = &self.requests;
        self.queue.reorder(&mut self.cache.journal, |queue| {
            queue.sort_by_key(|request| {
                let last = put_last.binary_search(request).is_ok();
                (last, prefill_work(requests, *request), requests.get(*request).queue_entry)
            });
        });
    }

    fn sort_by_response_ratio(&mut self, scratch: &Bump, prompts: &mut Prompts) {
        let put_last = self.match_all(scratch, prompts);
        let requests = &self.requests;
        let processed = self.running.numbers.processed_tokens;
        self.queue.reorder(&mut self.cache.journal, |queue| {
            queue.sort_by(|a, b| {
                let key = |request: &RequestKey| match put_last.binary_search(request) {
                    Ok(_) => f64::INFINITY,
                    Err(_) => -response_ratio(requests, *request, processed),
                };
                key(a).total_cmp(&key(b)).then_with(|| requests.spec(*a).tag.cmp(&requests.spec(*b).tag))
            });
        });
    }

    fn sort_by_longest_output(&mut self) {
        let (config, requests) = (&self.cache.config, &self.requests);
        self.queue.reorder(&mut self.cache.journal, |queue| {
            queue.sort_by_key(|&request| {
                let first = if config.enable_priority_scheduling { preference(config, requests, request) } else { 0 };
                (first, Reverse(requests.spec(request).max_new_tokens))
            });
        });
    }

    /// Requests whose routing key runs now come first, more frequent keys first; unchanged if nothing running has a key.
    fn sort_by_routing_key(&mut self, scratch: &Bump) {
        let requests = &self.requests;
        let key = |request: RequestKey| requests.spec(request).routing_key.as_deref().filter(|key| !key.is_empty());
        let mut running = bumpalo::collections::Vec::new_in(scratch);
        running.extend(self.running.rows().iter().filter_map(|&request| key(request)));
        if running.is_empty() {
            return;
        }
        running.sort_unstable();
        let count =
            |key: &str| running.partition_point(|&other| other <= key) - running.partition_point(|&other| other < key);
        self.queue.reorder(&mut self.cache.journal, |queue| {
            queue.sort_by_key(|&request| {
                let key = key(request).unwrap_or("");
                let count = count(key);
                (count == 0, Reverse(count), key)
            });
        });
    }

    /// Fisher-Yates, from the seed and a count of draws.
    fn shuffle(&mut self) {
        let seed = mix(self.cache.config.random_seed);
        let mut draws = self.queue.numbers.draws;
        self.queue.reorder(&mut self.cache.journal, |queue| {
            for last in (1..queue.len()).rev() {
                draws += 1;
                let chosen = mix(seed ^ draws) % (last as u64 + 1);
                queue.swap(last, chosen as usize);
            }
        });
        self.queue.numbers.draws = draws;
    }

    /// Depth first over the tree: heavier subtrees first, children in insertion order on ties, a node's own requests after
    /// its children's. Only nodes above a waiting request's match can have weight, so only those are looked at.
    fn sort_by_subtree_weight(&mut self, scratch: &Bump) {
        let mut weights = Weights::new(scratch);
        for request in self.queue.iter() {
            weights.count_path(self.cache, self.requests.get(request).matched_node);
        }
        weights.order_children();
        let ranks = weights.rank_nodes(self.cache.tree.root());
        let requests = &self.requests;
        self.queue.reorder(&mut self.cache.journal, |queue| {
            queue.sort_by_key(|&request| {
                let node = requests.get(request).matched_node;
                ranks.binary_search_by_key(&node, |&(node, _)| node).map(|at| ranks[at].1)
            });
        });
    }
}

/// Uncached tokens of a waiting request, at least 1.
pub(crate) fn prefill_work(requests: &Requests, request: RequestKey) -> i64 {
    (i64::from(requests.fill_tokens(request)) - i64::from(requests.get(request).matched)).max(1)
}

/// Growth of the counter since entry over uncached prompt tokens; infinite when nothing is uncached.
fn response_ratio(requests: &Requests, request: RequestKey, processed: u64) -> f64 {
    let progress = requests.get(request);
    let uncached = i64::from(requests.spec(request).prompt_tokens) - i64::from(progress.matched);
    if uncached <= 0 {
        return f64::INFINITY;
    }
    processed.saturating_sub(progress.entry_counter) as f64 / uncached as f64
}

/// One node above waiting requests: its parent, its weight, and what orders it among its siblings.
#[derive(Clone, Copy)]
struct Weighed {
    parent: NodeKey,
    node: NodeKey,
    weight: u64,
    creation: u64,
}

/// The nodes above waiting requests with their weights.
struct Weights<'b> {
    scratch: &'b Bump,
    nodes: bumpalo::collections::Vec<'b, Weighed>,
}

impl<'b> Weights<'b> {
    fn new(scratch: &'b Bump) -> Self {
        Weights { scratch, nodes: bumpalo::collections::Vec::new_in(scratch) }
    }

    /// Notes the path from a request's match to the root, each node with a weight of 1.
    fn count_path(&mut self, cache: &Cache, mut node: NodeKey) {
        while node != cache.tree.root() {
            let parent = cache.tree.nodes[node].parent;
            self.nodes.push(Weighed { parent, node, weight: 1, creation: cache.tree.stats(node).creation });
            node = parent;
        }
    }

    /// Sums the weights of equal nodes, and sorts by parent, then heaviest, then oldest.
    fn order_children(&mut self) {
        self.nodes.sort_unstable_by_key(|weighed| weighed.node);
        self.nodes.dedup_by(|next, kept| {
            let same = next.node == kept.node;
            kept.weight += if same { next.weight } else { 0 };
            same
        });
        self.nodes.sort_unstable_by_key(|weighed| (weighed.parent, Reverse(weighed.weight), weighed.creation));
    }

    /// The place of each node in the post-order walk, sorted by node.
    fn rank_nodes(&self, root: NodeKey) -> bumpalo::collections::Vec<'b, (NodeKey, u32)> {
        let mut ranks = bumpalo::collections::Vec::new_in(self.scratch);
        let mut path = bumpalo::collections::Vec::new_in(self.scratch);
        path.push((root, self.first_child(root)));
        while let Some((node, next)) = path.last_mut() {
            match self.nodes.get(*next).filter(|child| child.parent == *node) {
                Some(child) => {
                    *next += 1;
                    let child = child.node;
                    path.push((child, self.first_child(child)));
                }
                None => {
                    ranks.push((*node, ranks.len() as u32));
                    path.pop();
                }
            }
        }
        ranks.sort_unstable();
        ranks
    }

    fn first_child(&self, parent: NodeKey) -> usize {
        self.nodes.partition_point(|weighed| weighed.parent < parent)
    }
}

//! What requests do to the prefix cache: match, insert, release, evict. The rules are those of `behaviour.md` section 4 and 7.
//!
//! Reads the content and the settings; writes the tree, the pool, the event queue and, while one is open, the journal.

use slotmap::Key;

use crate::block_hashes::BlockHashes;
use crate::config::EngineConfig;
use crate::content::{Contents, StreamKey};
use crate::events::EventQueue;
use crate::journal::Journal;
use crate::pool::{Owner, Pool, RunKey};
use crate::request::RequestKey;
use crate::requests::{Progress, Requests};
use crate::tree::{NodeKey, Tree};

/// The stores that make up the cache, with the settings that rule them.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) config: EngineConfig,
    pub(crate) contents: Contents,
    pub(crate) tree: Tree,
    pub(crate) pool: Pool,
    pub(crate) hashes: BlockHashes,
    pub(crate) events: EventQueue,
    pub(crate) journal: Journal,
    /// Matches of waiting requests over the worker's life, and the tokens that they found, for the profile.
    pub(crate) requests_examined: u64,
    pub(crate) tokens_matched: u64,
    /// Calls of eviction over the worker's life, and the evictable leaves at each, for the profile.
    pub(crate) eviction_calls: u64,
    pub(crate) eviction_leaves: u64,
}

/// What is inserted, and for whom.
#[derive(Clone, Copy)]
struct Insert {
    stream: StreamKey,
    /// Page-aligned length in tokens.
    tokens: u32,
    priority: i64,
    counts_hit: bool,
    /// The leading tokens whose slots are the tree's already.
    protected: u32,
}

impl Cache {
    /// An empty cache.
    pub(crate) fn new(config: &EngineConfig) -> Cache {
        let pages = config.pool_tokens() / u64::from(config.page_size);
        Cache {
            config: config.clone(),
            contents: Contents::default(),
            tree: Tree::new(config),
            pool: Pool::new(config.page_size, pages),
            hashes: BlockHashes::new(config.page_size),
            events: EventQueue::new(!config.disable_radix_cache, config.page_size),
            journal: Journal::default(),
            requests_examined: 0,
            tokens_matched: 0,
            eviction_calls: 0,
            eviction_leaves: 0,
        }
    }

    fn floor(&self, tokens: u32) -> u32 {
        tokens - tokens % self.config.page_size
    }

    /// Whether there is a prefix cache at all.
    pub(crate) fn enabled(&self) -> bool {
        !self.config.disable_radix_cache
    }

    /// Tokens that are free or could be made free.
    pub(crate) fn available(&self) -> i64 {
        (self.pool.free_tokens() + self.tree.numbers.evictable_tokens) as i64
    }

    /// Matches the first `limit` tokens of a stream, page-aligned; splits where the walk ends inside an edge, and touches.
    pub(crate) fn match_prefix(&mut self, stream: StreamKey, limit: u32) -> NodeKey {
        self.requests_examined += 1;
        if !self.enabled() {
            return self.tree.root();
        }
        let limit = self.floor(limit);
        let node = self.walk_and_split(stream, limit);
        self.tokens_matched += u64::from(self.tree.depth(node));
        self.tree.touch(node, &mut self.journal);
        self.tree.remember(stream, node);
        node
    }

    fn walk_and_split(&mut self, stream: StreamKey, limit: u32) -> NodeKey {
        let walk = self.tree.walk(&self.contents, stream, limit);
        match walk.partial {
            Some((lower, at)) => self.split(lower, at),
            None => walk.node,
        }
    }

    fn split(&mut self, lower: NodeKey, at: u32) -> NodeKey {
        let upper = self.tree.split(&mut self.contents, lower, at, &mut self.journal);
        self.hashes.split(&self.tree, upper, lower);
        let row = self.tree.nodes[upper];
        let pages = row.tokens() / self.config.page_size;
        let lower_run = self.tree.nodes[lower].run;
        // The upper part is the new run, so that the lower node keeps its own.
        let (_, run) = self.pool.give(lower_run, Owner::Node(upper), pages, &mut self.journal);
        self.tree.set_run(upper, run);
        upper
    }

    /// Inserts a sequence whose slots, beyond `protected`, are in `run`: slots that the tree has already are freed, those of a
    /// new leaf become its own. Returns the end node and what is left of the run.
    fn insert(&mut self, insert: Insert, mut run: RunKey) -> (NodeKey, RunKey) {
        let page = self.config.page_size;
        let node = self.walk_and_split(insert.stream, insert.tokens);
        let existing = self.tree.depth(node);
        let duplicates = existing.saturating_sub(insert.protected) / page;
        run = self.pool.free(run, duplicates, &mut self.journal);
        let walk_tick = self.tree.touch(node, &mut self.journal);
        let mut end = node;
        if existing < insert.tokens {
            end = self.tree.add_leaf(
                &mut self.contents,
                node,
                insert.stream,
                insert.tokens,
                walk_tick,
                &mut self.journal,
            );
            let pages = (insert.tokens - existing) / page;
            let (rest, leaf_run) = self.pool.give(run, Owner::Node(end), pages, &mut self.journal);
            self.tree.set_run(end, leaf_run);
            run = rest;
            self.tree.raise_history(end, &mut self.journal);
            if self.hashes.are_kept() {
                self.hashes.leaf_added(&self.tree, &self.contents, end);
            }
            self.events.stored(&self.tree, &self.contents, &self.hashes, end, &mut self.journal);
        }
        self.tree.count_insert(end, insert.priority, insert.counts_hit, &mut self.journal);
        self.tree.remember(insert.stream, end);
        (end, run)
    }

    /// Puts the first `computed` tokens of a request that goes on into the tree, and moves its lock to their end. A chunk
    /// counts no hit.
    pub(crate) fn insert_unfinished(
        &mut self,
        requests: &mut Requests,
        request: RequestKey,
        computed: u32,
        counts_hit: bool,
    ) {
        let progress = *requests.get(request);
        let tokens = self.floor(computed);
        if !self.enabled() || tokens == 0 {
            requests.update(request, &mut self.journal, |progress| progress.prefix = computed);
            return;
        }
        let insert = Insert {
            stream: requests.spec(request).content,
            tokens,
            priority: requests.tree_priority(&self.config, request),
            counts_hit,
            protected: progress.protected,
        };
        let (end, run) = self.insert(insert, progress.run);
        // The insert is followed by a match of the same tokens.
        self.tree.touch(end, &mut self.journal);
        self.tree.pin(end, &mut self.journal);
        if !progress.pin.is_null() {
            self.tree.unpin(progress.pin, &mut self.journal);
        }
        requests.update(request, &mut self.journal, |progress| {
            progress.pin = end;
            progress.protected = tokens;
            progress.prefix = computed;
            progress.run = run;
        });
    }

    /// Puts the committed tokens of a request into the tree, splits the leaf at the prompt's end, and releases the request.
    pub(crate) fn insert_finished(&mut self, requests: &mut Requests, request: RequestKey, committed: u32) {
        let progress = *requests.get(request);
        let mut run = progress.run;
        let tokens = self.floor(committed);
        if self.enabled() && tokens > 0 {
            let spec = requests.spec(request);
            let priority = requests.tree_priority(&self.config, request);
            let prompt = self.floor(spec.prompt_tokens);
            let insert =
                Insert { stream: spec.content, tokens, priority, counts_hit: true, protected: progress.protected };
            (_, run) = self.insert(insert, run);
            if 0 < prompt && prompt < tokens {
                let again =
                    Insert { tokens: prompt, priority: priority + 1, counts_hit: false, protected: prompt, ..insert };
                (_, run) = self.insert(again, run);
            }
        }
        self.release(requests, request, Progress { run, ..progress });
    }

    /// Releases a request without inserting anything.
    pub(crate) fn release_without_insert(&mut self, requests: &mut Requests, request: RequestKey) {
        let progress = *requests.get(request);
        self.release(requests, request, progress);
    }

    fn release(&mut self, requests: &mut Requests, request: RequestKey, progress: Progress) {
        self.pool.free_all(progress.run, &mut self.journal);
        if !progress.pin.is_null() {
            self.tree.unpin(progress.pin, &mut self.journal);
        }
        requests.update(request, &mut self.journal, |progress| {
            progress.run = RunKey::null();
            progress.pin = NodeKey::null();
            progress.protected = 0;
        });
    }

    /// Moves the pages that a request took while decoding into its own run.
    pub(crate) fn settle_pages(&mut self, requests: &mut Requests, request: RequestKey, committed: u32) {
        let progress = requests.get(request);
        let held = progress.protected / self.config.page_size + self.pool.pages(progress.run);
        let pages = self.pool.pages_for(committed) - held;
        if pages == 0 {
            return;
        }
        let run = self.pool.settle(progress.run, Owner::Request(request), pages, &mut self.journal);
        requests.update(request, &mut self.journal, |progress| progress.run = run);
    }

    /// Evicts whole leaves until `wanted` tokens are free or no leaf can go.
    pub(crate) fn make_room(&mut self, wanted: u64) {
        if self.pool.free_tokens() < wanted && self.tree.evictable_leaves() > 0 {
            self.eviction_calls += 1;
            self.eviction_leaves += self.tree.evictable_leaves() as u64;
        }
        while self.pool.free_tokens() < wanted {
            let Some((leaf, row)) = self.tree.evict_first(&self.contents, &mut self.journal) else {
                return;
            };
            self.pool.free_all(row.run, &mut self.journal);
            self.events.removed(leaf, row.tokens(), &self.hashes, &mut self.journal);
        }
    }
}

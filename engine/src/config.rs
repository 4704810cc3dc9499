//! The settings of a worker, with SGLang's flag names and defaults.

use serde::{Deserialize, Serialize};

/// In which order waiting requests are tried for admission (`--schedule-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedulePolicy {
    /// Queue order; with priority scheduling, by priority first.
    #[default]
    Fcfs,
    /// Longest prefix match first.
    Lpm,
    /// Depth-first over the tree, heavier subtrees first.
    DfsWeight,
    /// Longest `max_new_tokens` first.
    Lof,
    /// Highest response ratio next.
    Hrrn,
    /// Fewest uncached tokens first.
    ShortestPrefillFirst,
    /// Requests whose routing key runs now first.
    RoutingKey,
    /// Shuffled from the seed.
    Random,
}

impl SchedulePolicy {
    /// Every policy with the name that scenarios and SGLang give it.
    pub const NAMES: [(&'static str, SchedulePolicy); 8] = [
        ("fcfs", SchedulePolicy::Fcfs),
        ("lpm", SchedulePolicy::Lpm),
        ("dfs-weight", SchedulePolicy::DfsWeight),
        ("lof", SchedulePolicy::Lof),
        ("hrrn", SchedulePolicy::Hrrn),
        ("shortest-prefill-first", SchedulePolicy::ShortestPrefillFirst),
        ("routing-key", SchedulePolicy::RoutingKey),
        ("random", SchedulePolicy::Random),
    ];

    /// Whether the policy matches the waiting requests in the tree to order them.
    pub fn is_cache_aware(self) -> bool {
        matches!(
            self,
            SchedulePolicy::Lpm
                | SchedulePolicy::DfsWeight
                | SchedulePolicy::Hrrn
                | SchedulePolicy::ShortestPrefillFirst
        )
    }
}

/// Which unlocked leaf goes first when room is needed (`--radix-eviction-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EvictionPolicy {
    /// Least recently used.
    #[default]
    Lru,
    /// Fewest hits, then least recently used.
    Lfu,
    /// Hits below the protected threshold first, then least recently used.
    Slru,
    /// What a conversation does not need to hold its time to first token goes first, then least recently used.
    Tlru,
    /// Oldest creation.
    Fifo,
    /// Most recently used.
    Mru,
    /// Newest creation.
    Filo,
    /// Lowest priority, then least recently used.
    Priority,
}

impl EvictionPolicy {
    /// Every policy with the name that scenarios and SGLang give it.
    pub const NAMES: [(&'static str, EvictionPolicy); 8] = [
        ("lru", EvictionPolicy::Lru),
        ("lfu", EvictionPolicy::Lfu),
        ("slru", EvictionPolicy::Slru),
        ("tlru", EvictionPolicy::Tlru),
        ("fifo", EvictionPolicy::Fifo),
        ("mru", EvictionPolicy::Mru),
        ("filo", EvictionPolicy::Filo),
        ("priority", EvictionPolicy::Priority),
    ];
}

/// The settings of the eviction policies that have any (`--radix-eviction-policy-config`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvictionPolicyConfig {
    /// `slru`: hits from which a node is protected.
    pub protected_threshold: u32,
    /// `tlru`: uncached tokens that the time-to-first-token target allows.
    pub threshold: u32,
    /// `tlru`: tokens that the next prompt is expected to add.
    pub next_prompt_estimate: u32,
}

impl Default for EvictionPolicyConfig {
    fn default() -> Self {
        EvictionPolicyConfig { protected_threshold: 2, threshold: 0, next_prompt_estimate: 0 }
    }
}

/// Which running request is retracted first (`--retraction-policy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetractionPolicy {
    /// The one with the fewest produced tokens, then the longest prompt.
    #[default]
    Length,
    /// The least preferred priority, then as `length`.
    Priority,
}

/// What the worker does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Prefill and decode.
    #[default]
    Unified,
    /// The prefill side of a disaggregated deployment: prompts only, held until their transfer has ended.
    Prefill,
}

/// The settings of one worker. Names and defaults are SGLang's; sizes are in tokens unless they say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// What the worker does with a request.
    pub role: Role,
    /// Tokens in a KV page, at least 1.
    pub page_size: u32,
    /// The KV pool in tokens; what does not fill a page is unused.
    pub max_total_tokens: u64,
    /// Longest prompt plus output of a request, in tokens.
    pub context_length: u32,
    /// Token budget of one chunk of a prefill; -1 switches chunking off.
    pub chunked_prefill_size: i64,
    /// Token budget of one extend batch.
    pub max_prefill_tokens: i64,
    /// Most requests that hold a slot at once.
    pub max_running_requests: u32,
    /// Most requests that may wait; absent is no limit.
    pub max_queued_requests: Option<u32>,
    /// In which order waiting requests are tried.
    pub schedule_policy: SchedulePolicy,
    /// Scales the first estimate of how much of `max_new_tokens` a request will use.
    pub schedule_conservativeness: f64,
    /// Whether requests have priorities.
    pub enable_priority_scheduling: bool,
    /// With priority scheduling: never preempt a running request.
    pub disable_priority_preemption: bool,
    /// By how much a priority must be better to preempt.
    pub priority_scheduling_preemption_threshold: i64,
    /// Whether lower priority values are preferred.
    pub schedule_low_priority_values_first: bool,
    /// Which running request is retracted first.
    pub retraction_policy: RetractionPolicy,
    /// Which unlocked leaf is evicted first.
    pub radix_eviction_policy: EvictionPolicy,
    /// The settings of the eviction policy.
    pub radix_eviction_policy_config: EvictionPolicyConfig,
    /// Switches the prefix cache off.
    pub disable_radix_cache: bool,
    /// Decode running requests inside extend batches.
    pub enable_mixed_chunk: bool,
    /// Take the results of a batch before the next one is chosen.
    pub disable_overlap_schedule: bool,
    /// Iterations after an extend batch that do not try another, at most 65,536.
    pub prefill_decode_interval: u32,
    /// Decode batches between two publications of KV events, at least 1.
    pub decode_log_interval: u32,
    /// Seeds the `random` schedule policy.
    pub random_seed: u64,
    /// Whether the checks at entry are made (SGLang's tokenizer manager makes them; a bare scheduler does not).
    pub entry_checks: bool,
    /// Clip of the estimate of new tokens (`SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION`).
    pub clip_max_new_tokens_estimation: u32,
    /// First new-token ratio (`SGLANG_INIT_NEW_TOKEN_RATIO`).
    pub init_new_token_ratio: f64,
    /// Floor of the ratio as a factor of its start (`SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR`).
    pub min_new_token_ratio_factor: f64,
    /// Decode passes from the start ratio to its floor (`SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS`), at least 1.
    pub new_token_ratio_decay_steps: u32,
    /// Decode passes for which a retraction makes room (`SGLANG_RETRACT_DECODE_STEPS`).
    pub retract_decode_steps: u32,
    /// Longest tree match for which a waiting request is also matched among the queue's prompts
    /// (`IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD`).
    pub in_batch_prefix_caching_check_threshold: u32,
    /// Match among the queue's prompts from which a request is put last (`IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD`).
    pub in_batch_prefix_caching_deprioritize_threshold: u32,
}

impl Default for EngineConfig {
    fn default() -> Self {
        EngineConfig {
            role: Role::Unified,
            page_size: 1,
            max_total_tokens: 393_216,
            context_length: 200_000,
            chunked_prefill_size: 8192,
            max_prefill_tokens: 16_384,
            max_running_requests: 64,
            max_queued_requests: None,
            schedule_policy: SchedulePolicy::Fcfs,
            schedule_conservativeness: 1.0,
            enable_priority_scheduling: false,
            disable_priority_preemption: false,
            priority_scheduling_preemption_threshold: 10,
            schedule_low_priority_values_first: false,
            retraction_policy: RetractionPolicy::Length,
            radix_eviction_policy: EvictionPolicy::Lru,
            radix_eviction_policy_config: EvictionPolicyConfig::default(),
            disable_radix_cache: false,
            enable_mixed_chunk: false,
            disable_overlap_schedule: false,
            prefill_decode_interval: 0,
            decode_log_interval: 40,
            random_seed: 42,
            entry_checks: true,
            clip_max_new_tokens_estimation: 4096,
            init_new_token_ratio: 0.7,
            min_new_token_ratio_factor: 0.14,
            new_token_ratio_decay_steps: 600,
            retract_decode_steps: 20,
            in_batch_prefix_caching_check_threshold: 32,
            in_batch_prefix_caching_deprioritize_threshold: 32,
        }
    }
}

/// A setting that no worker can run with: the field, what was found and what is expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("engine.{field}: found {found}, expected {expected}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// The value found.
    pub found: String,
    /// What would be right.
    pub expected: &'static str,
}

impl EngineConfig {
    /// Checks every bound that a setting has alone or with others.
    ///
    /// # Errors
    /// The first setting that is out of bounds.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let fail = |field, found: String, expected| Err(ConfigError { field, found, expected });
        if self.page_size == 0 || self.page_size > 1 << 20 {
            return fail("page_size", self.page_size.to_string(), "1 to 1048576 tokens");
        }
        if self.max_total_tokens < u64::from(self.page_size) || self.max_total_tokens > 1 << 40 {
            return fail(
                "max_total_tokens",
                self.max_total_tokens.to_string(),
                "at least one page, at most 2^40 tokens",
            );
        }
        if self.context_length < 2 || self.context_length > 1 << 30 {
            return fail("context_length", self.context_length.to_string(), "2 to 2^30 tokens");
        }
        if self.chunked_prefill_size == 0 || self.chunked_prefill_size < -1 || self.chunked_prefill_size > 1 << 40 {
            return fail("chunked_prefill_size", self.chunked_prefill_size.to_string(), "-1 (off) or at least 1 token");
        }
        if self.chunked_prefill_size > 0 && self.chunked_prefill_size < i64::from(self.page_size) {
            return fail(
                "chunked_prefill_size",
                self.chunked_prefill_size.to_string(),
                "-1 (off) or at least page_size",
            );
        }
        if self.max_prefill_tokens < 1 || self.max_prefill_tokens > 1 << 40 {
            return fail("max_prefill_tokens", self.max_prefill_tokens.to_string(), "at least 1 token");
        }
        if self.max_running_requests == 0 {
            return fail("max_running_requests", "0".into(), "at least 1 request");
        }
        if self.decode_log_interval == 0 {
            return fail("decode_log_interval", "0".into(), "at least 1 batch");
        }
        if self.prefill_decode_interval > 1 << 16 {
            let found = self.prefill_decode_interval.to_string();
            return fail("prefill_decode_interval", found, "0 to 65536 iterations");
        }
        if self.new_token_ratio_decay_steps == 0 {
            return fail("new_token_ratio_decay_steps", "0".into(), "at least 1 pass");
        }
        for (field, value) in [
            ("schedule_conservativeness", self.schedule_conservativeness),
            ("init_new_token_ratio", self.init_new_token_ratio),
            ("min_new_token_ratio_factor", self.min_new_token_ratio_factor),
        ] {
            if !value.is_finite() || !(0.0..=1000.0).contains(&value) {
                return fail(field, value.to_string(), "a number from 0 to 1000");
            }
        }
        if self.disable_radix_cache && self.schedule_policy == SchedulePolicy::ShortestPrefillFirst {
            return fail(
                "schedule_policy",
                "shortest-prefill-first".into(),
                "another policy while disable_radix_cache is set",
            );
        }
        if self.role == Role::Prefill && !self.disable_overlap_schedule {
            return fail("disable_overlap_schedule", "false".into(), "true with role = \"prefill\"");
        }
        if self.role == Role::Prefill && self.enable_mixed_chunk {
            return fail("enable_mixed_chunk", "true".into(), "false with role = \"prefill\"");
        }
        Ok(())
    }

    /// The pool in tokens that fill whole pages.
    pub fn pool_tokens(&self) -> u64 {
        self.max_total_tokens - self.max_total_tokens % u64::from(self.page_size)
    }

    /// The chunk budget in tokens, absent when chunking is off.
    pub fn chunk_tokens(&self) -> Option<i64> {
        (self.chunked_prefill_size > 0).then_some(self.chunked_prefill_size)
    }

    /// Whether running requests decode inside extend batches; without chunking they never do.
    pub fn mixes(&self) -> bool {
        self.enable_mixed_chunk && self.chunk_tokens().is_some()
    }

    /// Whether a waiting request may preempt running ones.
    pub fn preempts(&self) -> bool {
        self.enable_priority_scheduling && !self.disable_priority_preemption
    }

    /// The policy in force: a cache-aware one without a cache is `fcfs`.
    pub fn effective_policy(&self) -> SchedulePolicy {
        if self.disable_radix_cache && self.schedule_policy.is_cache_aware() {
            SchedulePolicy::Fcfs
        } else {
            self.schedule_policy
        }
    }
}

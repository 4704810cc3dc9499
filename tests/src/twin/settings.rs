//! The settings of a run, checked and with their defaults filled in.

use servesim_scenarios::case::CaseConfig;

/// The order in which waiting requests are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Queue order.
    Fcfs,
    /// Longest match first.
    Lpm,
    /// Depth-first over the tree, heavier subtree first.
    DfsWeight,
    /// Longest answer first.
    Lof,
    /// Highest response ratio first.
    Hrrn,
    /// Least uncached work first.
    ShortestPrefillFirst,
    /// Routing keys that run now first.
    RoutingKey,
}

impl Policy {
    /// Whether the policy looks into the tree.
    pub fn is_cache_aware(self) -> bool {
        matches!(self, Policy::Lpm | Policy::DfsWeight | Policy::Hrrn | Policy::ShortestPrefillFirst)
    }

    fn parse(name: &str) -> Result<Policy, String> {
        Ok(match name {
            "fcfs" => Policy::Fcfs,
            "lpm" => Policy::Lpm,
            "dfs-weight" => Policy::DfsWeight,
            "lof" => Policy::Lof,
            "hrrn" => Policy::Hrrn,
            "shortest-prefill-first" => Policy::ShortestPrefillFirst,
            "routing-key" => Policy::RoutingKey,
            other => return Err(format!("the twin does not know the schedule policy {other:?}")),
        })
    }
}

/// Which leaf goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Least recently used.
    Lru,
    /// Least often used, then least recently.
    Lfu,
    /// Once used before often used, then least recently.
    Slru,
    /// Tails beyond a budget first, then least recently used.
    Tlru {
        /// Tokens of a prompt that may be computed anew.
        threshold: i64,
        /// Tokens that the next prompt is expected to add.
        next_prompt_estimate: i64,
    },
    /// First made.
    Fifo,
    /// Most recently used.
    Mru,
    /// Last made.
    Filo,
    /// Lowest priority, then least recently used.
    Priority,
}

impl Eviction {
    fn parse(name: &str, config: Option<&serde_json::Value>) -> Result<Eviction, String> {
        let number = |key: &str| config.and_then(|c| c.get(key)).and_then(serde_json::Value::as_i64).unwrap_or(0);
        Ok(match name {
            "lru" => Eviction::Lru,
            "lfu" => Eviction::Lfu,
            "slru" => Eviction::Slru,
            "tlru" => {
                Eviction::Tlru { threshold: number("threshold"), next_prompt_estimate: number("next_prompt_estimate") }
            }
            "fifo" => Eviction::Fifo,
            "mru" => Eviction::Mru,
            "filo" => Eviction::Filo,
            "priority" => Eviction::Priority,
            other => return Err(format!("the twin does not know the eviction policy {other:?}")),
        })
    }
}

/// Everything that does not change during a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Tokens in a page.
    pub page: i64,
    /// Tokens in the pool, in whole pages.
    pub pool: i64,
    /// Chunk budget, none when chunking is off.
    pub chunk: Option<i64>,
    /// Token budget of an extend batch.
    pub max_prefill: i64,
    /// Order of the waiting queue; `fcfs` in place of a cache-aware one without a cache.
    pub policy: Policy,
    /// The ratio at the start.
    pub first_ratio: f64,
    /// The ratio's floor.
    pub least_ratio: f64,
    /// What a decode batch takes off the ratio.
    pub ratio_step: f64,
    /// Decode batches between publications.
    pub decode_log_interval: u64,
    /// Whether results are taken one iteration later.
    pub overlap: bool,
    /// Slots for requests.
    pub slots: usize,
    /// Context length.
    pub context: i64,
    /// Which leaf goes first.
    pub eviction: Eviction,
    /// Clip of the new-token estimate.
    pub clip: i64,
    /// Whether the checks at entry are on.
    pub intake: bool,
    /// Most waiting requests.
    pub max_queued: Option<usize>,
    /// Whether running rows decode inside extend batches.
    pub mixed: bool,
    /// Whether there is a prefix cache.
    pub radix: bool,
    /// Whether requests have priorities.
    pub priorities: bool,
    /// Whether waiting requests may preempt running ones.
    pub preemption: bool,
    /// By how much a priority must be better to preempt.
    pub preemption_threshold: i128,
    /// Whether low values are preferred.
    pub low_first: bool,
    /// Whether retraction looks at priorities first.
    pub retract_by_priority: bool,
    /// Iterations without prefill after an extend batch.
    pub prefill_decode_interval: u32,
    /// Whether this is the prefill role.
    pub prefill_role: bool,
}

impl Settings {
    /// Reads the settings of a case.
    ///
    /// # Errors
    /// A name that the reference does not know, or a combination that it refuses.
    pub fn new(config: &CaseConfig) -> Result<Settings, String> {
        let page = i64::from(config.page_size);
        let kv = i64::try_from(config.kv_tokens).map_err(|e| e.to_string())?;
        let radix = !config.disable_radix_cache.unwrap_or(false);
        let named = Policy::parse(&config.schedule_policy)?;
        if !radix && named == Policy::ShortestPrefillFirst {
            return Err("shortest-prefill-first needs the prefix cache".into());
        }
        let chunk = (config.chunked_prefill_size > 0).then_some(config.chunked_prefill_size);
        let first_ratio = f64::min(0.7 * config.schedule_conservativeness, 1.0);
        let least_ratio = f64::min(first_ratio * 0.14, 1.0);
        let priorities = config.priority_scheduling.unwrap_or(false);
        let prefill_role = match config.role.as_deref() {
            None => false,
            Some("prefill") => true,
            Some(other) => return Err(format!("the twin does not know the role {other:?}")),
        };
        Ok(Settings {
            page,
            pool: kv / page * page,
            chunk,
            max_prefill: config.max_prefill_tokens,
            policy: if named.is_cache_aware() && !radix { Policy::Fcfs } else { named },
            first_ratio,
            least_ratio,
            ratio_step: (first_ratio - least_ratio) / 600.0,
            decode_log_interval: u64::from(config.decode_log_interval),
            overlap: config.overlap,
            slots: config.max_running_requests as usize,
            context: i64::from(config.max_context_len),
            eviction: Eviction::parse(&config.eviction_policy, config.eviction_policy_config.as_ref())?,
            clip: i64::from(config.clip_max_new_tokens.unwrap_or(4096)),
            intake: config.intake.unwrap_or(true),
            max_queued: config.max_queued_requests.map(|n| n as usize),
            mixed: config.mixed_chunk.unwrap_or(false) && chunk.is_some(),
            radix,
            priorities,
            preemption: priorities && config.priority_preemption.unwrap_or(true),
            preemption_threshold: i128::from(config.preemption_threshold.unwrap_or(10)),
            low_first: config.low_priority_values_first.unwrap_or(false),
            retract_by_priority: config.retraction_policy.as_deref() == Some("priority"),
            prefill_decode_interval: config.prefill_decode_interval.unwrap_or(0),
            prefill_role,
        })
    }

    /// Rounds tokens up to whole pages.
    pub fn ceil(&self, tokens: i64) -> i64 {
        (tokens + self.page - 1).div_euclid(self.page) * self.page
    }

    /// Rounds tokens down to whole pages.
    pub fn floor(&self, tokens: i64) -> i64 {
        tokens.div_euclid(self.page) * self.page
    }

    /// A priority so that the preferred one is the lower number.
    pub fn rank(&self, priority: i128) -> i128 {
        if self.low_first { priority } else { -priority }
    }

    /// The priority of a request that gives none: the least preferred there is.
    pub fn least_preferred(&self) -> i128 {
        i128::from(if self.low_first { i64::MAX } else { i64::MIN })
    }
}

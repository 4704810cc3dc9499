//! Random scenarios over all settings, from one number.
//!
//! A scenario is built from a struct of independent choices, so that each may be changed by itself. Everything stays inside
//! what the reference defines: mixed batches need a chunk budget above the number of rows and a page, the prefill role has no
//! cancellation, no priorities and no queue limit, and a policy that needs the cache has one.

mod shrink;

use servesim_engine::content::Run;
use servesim_scenarios::case::{Abort, Arrival, Case, CaseConfig, CaseRequest, PassLog};

pub use shrink::shrink;

/// A small generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that always says the same after the same seed.
    pub fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` up to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next_u64() % (high.max(low) - low + 1)
    }

    /// Yes, `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.next_u64() % 100 < percent
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[(self.next_u64() % from.len() as u64) as usize].clone()
    }

    fn of(&mut self, most: u64) -> u32 {
        self.between(1, most) as u32
    }
}

/// What a scenario is made of.
#[derive(Clone, Debug)]
pub struct Choices {
    /// The settings.
    pub config: CaseConfig,
    /// Lanes of the closed loop.
    pub lanes: u64,
    /// Most turns of a lane.
    pub turns: u64,
    /// Requests that arrive by themselves.
    pub arrivals: u64,
    /// Iterations over which they arrive.
    pub span: u64,
    /// Different prompt beginnings that are shared.
    pub prefixes: u64,
    /// Longest shared beginning, in tokens.
    pub shared: u64,
    /// Longest own part of a prompt, in tokens.
    pub input: u64,
    /// Longest answer, in tokens.
    pub output: u64,
    /// In a hundred: requests that repeat an earlier prompt.
    pub repeats: u64,
    /// In a hundred: requests that stop by a stop token.
    pub stops: u64,
    /// In a hundred: requests whose answer is shorter than they produce, or who may produce nothing.
    pub odd_limits: u64,
    /// Different priorities, 0 for none.
    pub priorities: u64,
    /// In a hundred: requests in a namespace.
    pub namespaces: u64,
    /// In a hundred: requests with a routing key.
    pub routing_keys: u64,
    /// In a hundred: requests that are cancelled.
    pub cancelled: u64,
}

impl Choices {
    /// Draws all choices.
    pub fn draw(random: &mut SplitMix64) -> Choices {
        let config = draw_config(random);
        let with_priorities = config.priority_scheduling.is_some();
        let prefill_role = config.role.is_some();
        let priority_needed = with_priorities || config.eviction_policy == "priority" || random.chance(10);
        let by_lanes = random.chance(50);
        let by_arrivals = !by_lanes || random.chance(50);
        Choices {
            lanes: if by_lanes { random.between(1, 8) } else { 0 },
            turns: random.between(1, 6),
            arrivals: if by_arrivals { random.pick(&[3, 10, 30, 60, 150]) } else { 0 },
            span: random.pick(&[1, 3, 20, 60, 300]),
            prefixes: random.between(1, 4),
            shared: random.pick(&[0, 10, 40, 90, 200]),
            input: random.pick(&[3, 20, 60, 200, 600]),
            output: random.pick(&[1, 8, 40, 120, 400]),
            repeats: random.pick(&[0, 0, 20, 60]),
            stops: random.pick(&[0, 0, 30, 100]),
            odd_limits: random.pick(&[0, 0, 15]),
            priorities: if priority_needed { random.pick(&[2, 3, 8]) } else { 0 },
            namespaces: random.pick(&[0, 0, 0, 50]),
            routing_keys: if config.schedule_policy == "routing-key" { 70 } else { 0 },
            cancelled: if prefill_role { 0 } else { random.pick(&[0, 0, 10, 40]) },
            config,
        }
    }

    /// Builds the scenario.
    pub fn build(&self, name: &str, random: &mut SplitMix64) -> Case {
        let mut maker = Maker { choices: self, random, prompts: Vec::new(), next_token: 1_000_000 };
        let lanes: Vec<Vec<CaseRequest>> = (0..self.lanes).map(|lane| maker.lane(lane)).collect();
        let mut arrivals: Vec<Arrival> = (0..self.arrivals).map(|number| maker.arrival(number)).collect();
        arrivals.sort_by_key(|arrival| arrival.at_pass);
        let aborts = maker.aborts(&lanes, &arrivals);
        Case { case: name.to_string(), config: self.config.clone(), lanes, arrivals, aborts, passes: Vec::new() }
    }
}

/// The scenario of a seed, without passes.
pub fn random_case(seed: u64) -> Case {
    let mut random = SplitMix64::new(seed);
    let choices = Choices::draw(&mut random);
    choices.build(&format!("random_{seed}"), &mut random)
}

/// A scenario and what it did, as a golden file.
///
/// # Panics
/// Never: a case can always be written as JSON.
pub fn print_golden(case: &Case, passes: &[PassLog]) -> String {
    let whole = Case { passes: passes.to_vec(), ..case.clone() };
    serde_json::to_string(&whole).expect("a case is plain data")
}

fn draw_config(random: &mut SplitMix64) -> CaseConfig {
    let page = random.pick(&[1, 1, 1, 2, 3, 4, 8, 16, 32, 64]);
    let kv = random.pick(&[64, 128, 256, 400, 700, 1200, 3000]).max(page * 8) / page * page;
    let entry_checks = random.chance(85);
    let mut config = CaseConfig {
        page_size: page as u32,
        kv_tokens: kv,
        chunked_prefill_size: draw_chunk(random, page),
        max_prefill_tokens: random.pick(&[16, 256, 1024, 16384]),
        schedule_policy: "fcfs".to_string(),
        schedule_conservativeness: random.pick(&[0.05, 0.3, 1.0, 1.0, 1.4]),
        decode_log_interval: random.pick(&[1, 3, 40]),
        overlap: random.chance(50),
        max_running_requests: random.pick(&[1, 2, 3, 5, 8, 16]),
        max_context_len: if entry_checks { random.pick(&[150, 1000, 8192]) } else { 20_000 },
        eviction_policy: "lru".to_string(),
        eviction_policy_config: None,
        clip_max_new_tokens: random.pick(&[None, None, Some(1), Some(20), Some(40)]),
        intake: if entry_checks { None } else { Some(false) },
        max_queued_requests: random.pick(&[None, None, None, None, Some(1), Some(2), Some(6)]),
        mixed_chunk: None,
        disable_radix_cache: random.chance(12).then_some(true),
        priority_scheduling: None,
        priority_preemption: None,
        preemption_threshold: None,
        low_priority_values_first: None,
        retraction_policy: random.chance(15).then(|| "priority".to_string()),
        prefill_decode_interval: random.pick(&[None, None, None, Some(1), Some(3)]),
        role: None,
    };
    draw_policies(random, &mut config);
    draw_mode(random, &mut config);
    config
}

fn draw_chunk(random: &mut SplitMix64, page: u64) -> i64 {
    let chunk = random.pick(&[-1, 8, 32, 64, 128, 512]);
    if chunk < 0 { chunk } else { (chunk as u64).div_ceil(page) as i64 * page as i64 }
}

fn draw_policies(random: &mut SplitMix64, config: &mut CaseConfig) {
    if random.chance(50) {
        let names = ["lpm", "dfs-weight", "lof", "hrrn", "shortest-prefill-first", "routing-key"];
        config.schedule_policy = random.pick(&names).to_string();
    }
    if config.schedule_policy == "shortest-prefill-first" {
        config.disable_radix_cache = None;
    }
    if random.chance(50) {
        config.eviction_policy = random.pick(&["lfu", "slru", "fifo", "mru", "filo", "priority", "tlru"]).to_string();
    }
    if config.eviction_policy == "tlru" {
        let threshold = random.pick(&[0, 32, 128]);
        let estimate = random.pick(&[0, 16]);
        config.eviction_policy_config =
            Some(serde_json::json!({"threshold": threshold, "next_prompt_estimate": estimate}));
    }
}

fn draw_mode(random: &mut SplitMix64, config: &mut CaseConfig) {
    if random.chance(8) {
        config.role = Some("prefill".to_string());
        config.overlap = false;
        config.max_queued_requests = None;
        config.disable_radix_cache = None;
        config.prefill_decode_interval = None;
        config.retraction_policy = None;
        return;
    }
    let room_to_mix = i64::from(config.max_running_requests) + i64::from(config.page_size);
    if config.chunked_prefill_size > room_to_mix && random.chance(30) {
        config.mixed_chunk = Some(true);
    }
    if random.chance(30) {
        config.priority_scheduling = Some(true);
        config.priority_preemption = Some(random.chance(60));
        config.preemption_threshold = Some(random.pick(&[0, 1, 10]));
        config.low_priority_values_first = random.chance(30).then_some(true);
    }
}

/// Makes requests whose content is partly shared.
struct Maker<'c> {
    choices: &'c Choices,
    random: &'c mut SplitMix64,
    prompts: Vec<Vec<Run>>,
    next_token: u32,
}

impl Maker<'_> {
    fn fresh(&mut self, count: u32) -> Run {
        let first = self.next_token;
        self.next_token += count + 7;
        Run { first, count }
    }

    fn lane(&mut self, lane: u64) -> Vec<CaseRequest> {
        let mut history = self.shared_beginning();
        let turns = self.random.between(1, self.choices.turns);
        (0..turns)
            .map(|turn| {
                let own = self.random.of(self.choices.input);
                history.push(self.fresh(own));
                let request = self.request(format!("l{lane:02}t{turn:02}"), history.clone());
                history.extend(&request.output);
                request
            })
            .collect()
    }

    fn arrival(&mut self, number: u64) -> Arrival {
        let input = self.prompt();
        let at_pass = self.random.between(0, self.choices.span - 1);
        Arrival { at_pass, request: self.request(format!("r{number:04}"), input) }
    }

    fn shared_beginning(&mut self) -> Vec<Run> {
        let which = self.random.between(1, self.choices.prefixes) as u32;
        let count = self.random.between(0, self.choices.shared) as u32;
        if count == 0 { Vec::new() } else { vec![Run { first: 10_000 * which, count }] }
    }

    fn prompt(&mut self) -> Vec<Run> {
        if !self.prompts.is_empty() && self.random.chance(self.choices.repeats) {
            return self.random.pick(&self.prompts);
        }
        let mut runs = self.shared_beginning();
        let own = self.random.of(self.choices.input);
        runs.push(self.fresh(own));
        self.prompts.push(runs.clone());
        runs
    }

    fn request(&mut self, rid: String, input: Vec<Run>) -> CaseRequest {
        let choices = self.choices;
        let length = self.random.of(choices.output);
        let stops = self.random.chance(choices.stops);
        let mut max_new_tokens = if stops { length + self.random.of(50) - 1 } else { length };
        if self.random.chance(choices.odd_limits) {
            max_new_tokens = self.random.pick(&[0, 1, length + 30]);
        }
        CaseRequest {
            rid,
            input,
            output: vec![self.fresh(length)],
            max_new_tokens,
            stop_at_end: stops.then_some(true),
            priority: self.priority(),
            extra_key: self.one_of(choices.namespaces, &["tenant-a", "tenant-b"]),
            routing_key: self.one_of(choices.routing_keys, &["k1", "k2", "k3"]),
            hold: choices.config.role.is_some().then(|| self.random.between(0, 20)),
        }
    }

    fn priority(&mut self) -> Option<i64> {
        // The least preferred of low values is the largest number, and the reference adds one to it: there it stops.
        let may_miss = self.choices.config.low_priority_values_first.is_none();
        if self.choices.priorities == 0 || may_miss && self.random.chance(5) {
            return None;
        }
        Some(self.random.between(0, self.choices.priorities - 1) as i64 - 1)
    }

    fn one_of(&mut self, percent: u64, names: &[&str]) -> Option<String> {
        self.random.chance(percent).then(|| self.random.pick(names).to_string())
    }

    fn aborts(&mut self, lanes: &[Vec<CaseRequest>], arrivals: &[Arrival]) -> Vec<Abort> {
        let from_lanes = lanes.iter().flatten().map(|request| (0, request.rid.clone()));
        let all = from_lanes.chain(arrivals.iter().map(|arrival| (arrival.at_pass, arrival.request.rid.clone())));
        let mut aborts = Vec::new();
        for (since, rid) in all.collect::<Vec<_>>() {
            if self.random.chance(self.choices.cancelled) {
                let delay = self.random.pick(&[0, 1, 2, 3, 10, 60]);
                aborts.push(Abort { at_pass: since + self.random.between(0, delay), rid });
            }
        }
        aborts.sort_by_key(|abort| abort.at_pass);
        aborts
    }
}

//! The `[workload]` section: which keys a kind has, with defaults and bounds.

use std::path::PathBuf;

use super::settings::{Origin, Settings};
use crate::generate::Span;
use crate::generate::arrivals::Spacing;
use crate::generate::coding_agent::CodingAgentConfig;
use crate::generate::random::RandomLengths;
use crate::generate::shared_prefix::SharedPrefix;
use crate::trace::mooncake::DEFAULT_BLOCK_SIZE;
use crate::workload::InputError;
use crate::workload::weka_content::{MOST_SHARED_PREFIX_TOKENS, OutputContent};

/// A trace to play.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSource {
    /// The file (for Weka, or a folder of files), as written.
    pub path: PathBuf,
    /// Whether rows that cannot be used are skipped and counted.
    pub lenient: bool,
}

/// When the requests of a trace enter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When the lane's previous request has ended.
    Closed {
        /// Lanes side by side.
        lanes: u32,
        /// How often the trace is played.
        loops: u32,
    },
    /// At their timestamps.
    Open {
        /// How much faster than written.
        speedup: f64,
    },
    /// At a rate, in the order of the trace, whatever its timestamps say.
    Rate(Rate),
}

/// A rate at which requests enter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Requests a second.
    pub rate_per_s: f64,
    /// How they follow each other.
    pub spacing: Spacing,
    /// Seeds the gaps.
    pub seed: u64,
}

/// When the requests of a generator enter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// When the lane's previous request has ended.
    Lanes(u32),
    /// At a rate.
    Rate(Rate),
}

/// What is asked of the worker.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkloadConfig {
    /// A session trace.
    Sessions {
        /// The trace.
        source: TraceSource,
        /// How many of its lanes play; absent is all.
        lanes: Option<u32>,
        /// How often each lane's requests are played.
        loops: u32,
    },
    /// A Weka trace.
    Weka {
        /// The trace.
        source: TraceSource,
        /// Lanes side by side.
        lanes: u32,
        /// When requests enter; a closed pace repeats `lanes`.
        pace: Pace,
        /// What tail and output tokens are.
        output_content: OutputContent,
        /// Tokens that all prompts of all plays start with.
        shared_prefix_tokens: u32,
    },
    /// A Mooncake trace.
    Mooncake {
        /// The trace.
        source: TraceSource,
        /// When requests enter.
        pace: Pace,
        /// Tokens in a block.
        block_size: u32,
    },
    /// An Azure trace.
    Azure {
        /// The trace.
        source: TraceSource,
        /// When requests enter.
        pace: Pace,
    },
    /// Generated coding-agent sessions.
    CodingAgent(CodingAgentConfig),
    /// Generated groups with common prefixes.
    SharedPrefix {
        /// The groups.
        groups: SharedPrefix,
        /// When requests enter.
        load: Load,
    },
    /// Generated requests of random lengths.
    Random {
        /// The requests.
        lengths: RandomLengths,
        /// When they enter.
        load: Load,
    },
}

impl WorkloadConfig {
    /// The trace that is played; none where requests are generated.
    pub fn source(&self) -> Option<&TraceSource> {
        match self {
            WorkloadConfig::Sessions { source, .. }
            | WorkloadConfig::Weka { source, .. }
            | WorkloadConfig::Mooncake { source, .. }
            | WorkloadConfig::Azure { source, .. } => Some(source),
            WorkloadConfig::CodingAgent(_) | WorkloadConfig::SharedPrefix { .. } | WorkloadConfig::Random { .. } => {
                None
            }
        }
    }
}

const MOST_LANES: u32 = 65_536;
const DEFAULT_LANES: u32 = 16;
const MOST_REQUESTS: u64 = 1 << 40;
/// The longest length of one part of a request, in tokens.
const MOST_TOKENS: u32 = 1 << 28;
const MODES: [&str; 2] = ["closed", "open"];

/// When submissions end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The most jobs to submit; absent is no limit.
    pub limit: Option<u64>,
    /// When the last jobs may be due, in simulated nanoseconds; absent is no end. Those in flight then are played to theirs.
    pub last_ns: Option<u64>,
}

/// Takes the section of a workload of `kind` out of `settings`; also when submissions end.
///
/// # Errors
/// A value that its key cannot have, or a key that is needed and not there.
pub fn read(settings: &mut Settings, kind: &str, seed: u64) -> Result<(WorkloadConfig, Ends), InputError> {
    settings.take("workload.kind", None);
    let limit = settings.optional_whole("workload.limit", 1..=MOST_REQUESTS)?;
    let fits = |value| (1e-9..=1e9).contains(&value);
    let duration_s = settings.optional_number("workload.duration_s", fits, "a number above 0, up to 10^9 seconds")?;
    let ends = Ends { limit, last_ns: duration_s.map(|duration_s| (duration_s * 1e9).round() as u64) };
    let workload = match kind {
        "sessions" => sessions(settings),
        "weka" => weka(settings),
        "mooncake" => mooncake(settings, seed),
        "azure" => azure(settings, seed),
        "coding-agent" => coding_agent(settings, seed),
        "shared-prefix" => shared_prefix(settings, seed),
        _ => random(settings, seed),
    }?;
    Ok((workload, ends))
}

fn source(settings: &mut Settings) -> Result<TraceSource, InputError> {
    let path = settings.text("workload.path", None)?;
    let path = path.ok_or_else(|| settings.missing("workload.path", "the path of a trace"))?;
    Ok(TraceSource { path: path.into(), lenient: settings.flag("workload.lenient", false)? })
}

fn lanes(settings: &mut Settings) -> Result<u32, InputError> {
    settings.small("workload.lanes", DEFAULT_LANES, 1..=MOST_LANES)
}

fn loops(settings: &mut Settings) -> Result<u32, InputError> {
    settings.small("workload.loops", 1, 1..=1_000_000)
}

fn speedup(settings: &mut Settings) -> Result<f64, InputError> {
    let fits = |value| (1e-6..=1e6).contains(&value);
    settings.number("workload.speedup", 1.0, fits, "a number from 0.000001 to 1000000")
}

/// Whether the mode is open. Keys of the other mode are refused.
fn is_open(settings: &mut Settings, default: &str, closed: &[&str], open: &[&str]) -> Result<bool, InputError> {
    let (mode, origin): (usize, Origin) = settings.choice("workload.mode", default, &MODES)?;
    let is_open = mode == 1;
    for key in if is_open { closed } else { open } {
        settings.refuse_beside(&format!("workload.{key}"), MODES[mode], origin)?;
    }
    Ok(is_open)
}

fn pace(settings: &mut Settings, seed: u64) -> Result<Pace, InputError> {
    if !is_open(settings, "open", &["lanes", "loops"], &["speedup", "rate_per_s", "arrivals"])? {
        return Ok(Pace::Closed { lanes: lanes(settings)?, loops: loops(settings)? });
    }
    let rate = settings.optional_number("workload.rate_per_s", fits_rate, RATES)?;
    Ok(match rate {
        Some(rate_per_s) => {
            settings.refuse("workload.speedup", "beside workload.rate_per_s", "one of the two")?;
            Pace::Rate(Rate { rate_per_s, spacing: spacing(settings)?, seed })
        }
        None => {
            settings.refuse("workload.arrivals", "without workload.rate_per_s", "both or neither")?;
            Pace::Open { speedup: speedup(settings)? }
        }
    })
}

fn sessions(settings: &mut Settings) -> Result<WorkloadConfig, InputError> {
    let source = source(settings)?;
    let lanes = settings.optional_whole("workload.lanes", 1..=MOST_LANES.into())?.map(|lanes| lanes as u32);
    Ok(WorkloadConfig::Sessions { source, lanes, loops: loops(settings)? })
}

fn weka(settings: &mut Settings) -> Result<WorkloadConfig, InputError> {
    let source = source(settings)?;
    let open = is_open(settings, "closed", &["loops"], &["speedup"])?;
    let lanes = lanes(settings)?;
    let pace =
        if open { Pace::Open { speedup: speedup(settings)? } } else { Pace::Closed { lanes, loops: loops(settings)? } };
    let (fresh, _) = settings.choice("workload.output_content", "next-turn", &["next-turn", "fresh"])?;
    let output_content = if fresh == 1 { OutputContent::Fresh } else { OutputContent::NextTurn };
    let shared_prefix_tokens = settings.small("workload.shared_prefix_tokens", 0, 0..=MOST_SHARED_PREFIX_TOKENS)?;
    Ok(WorkloadConfig::Weka { source, lanes, pace, output_content, shared_prefix_tokens })
}

fn mooncake(settings: &mut Settings, seed: u64) -> Result<WorkloadConfig, InputError> {
    let (source, pace) = (source(settings)?, pace(settings, seed)?);
    let block_size = settings.small("workload.block_size", DEFAULT_BLOCK_SIZE, 1..=65_536)?;
    Ok(WorkloadConfig::Mooncake { source, pace, block_size })
}

fn azure(settings: &mut Settings, seed: u64) -> Result<WorkloadConfig, InputError> {
    Ok(WorkloadConfig::Azure { source: source(settings)?, pace: pace(settings, seed)? })
}

fn workload_seed(settings: &mut Settings, seed: u64) -> Result<u64, InputError> {
    settings.whole("workload.seed", seed, 0..=i64::MAX as u64)
}

fn coding_agent(settings: &mut Settings, seed: u64) -> Result<WorkloadConfig, InputError> {
    let d = CodingAgentConfig::default();
    let positive = |value| value > 0.0 && value <= f64::from(MOST_TOKENS);
    let spread = |value| (0.0..=10.0).contains(&value);
    let sigma = "a number from 0 to 10";
    let tokens = |least| least..=MOST_TOKENS;
    let config = CodingAgentConfig {
        seed: workload_seed(settings, seed)?,
        lanes: lanes(settings)?,
        requests: settings.whole("workload.requests", d.requests, 1..=MOST_REQUESTS)?,
        turns: settings.span("workload.turns", d.turns, 1..=1_000_000)?,
        system_tokens: settings.small("workload.system_tokens", d.system_tokens, tokens(0))?,
        task_tokens: settings.span("workload.task_tokens", d.task_tokens, tokens(1))?,
        tool_result_median_tokens: settings.number(
            "workload.tool_result_median_tokens",
            d.tool_result_median_tokens,
            positive,
            "a number above 0",
        )?,
        tool_result_sigma: settings.number("workload.tool_result_sigma", d.tool_result_sigma, spread, sigma)?,
        tool_result_max_tokens: settings.small(
            "workload.tool_result_max_tokens",
            d.tool_result_max_tokens,
            tokens(4),
        )?,
        output_median_tokens: settings.number(
            "workload.output_median_tokens",
            d.output_median_tokens,
            positive,
            "a number above 0",
        )?,
        output_sigma: settings.number("workload.output_sigma", d.output_sigma, spread, sigma)?,
        output_max_tokens: settings.small("workload.output_max_tokens", d.output_max_tokens, tokens(2))?,
        session_max_tokens: settings.small("workload.session_max_tokens", d.session_max_tokens, tokens(2))?,
        delay_ms: settings.span("workload.delay_ms", d.delay_ms, 0..=1_000_000_000)?,
    };
    check_first_turn(settings, config)
}

fn check_first_turn(settings: &Settings, config: CodingAgentConfig) -> Result<WorkloadConfig, InputError> {
    let least = config.longest_first_turn();
    if u64::from(config.session_max_tokens) < least {
        let expected = format!("at least {least}: system prompt, longest task and longest output");
        let found = config.session_max_tokens.to_string();
        return Err(settings.invalid(&None, "workload.session_max_tokens", found, &expected));
    }
    Ok(WorkloadConfig::CodingAgent(config))
}

fn load(settings: &mut Settings, seed: u64) -> Result<Load, InputError> {
    if !is_open(settings, "closed", &["lanes"], &["rate_per_s", "arrivals"])? {
        return Ok(Load::Lanes(lanes(settings)?));
    }
    let rate_per_s = settings.number("workload.rate_per_s", 1.0, fits_rate, RATES)?;
    Ok(Load::Rate(Rate { rate_per_s, spacing: spacing(settings)?, seed }))
}

const RATES: &str = "a number from 0.000001 to 10^9";

fn fits_rate(rate_per_s: f64) -> bool {
    (1e-6..=1e9).contains(&rate_per_s)
}

fn spacing(settings: &mut Settings) -> Result<Spacing, InputError> {
    let (constant, _) = settings.choice("workload.arrivals", "poisson", &["poisson", "constant"])?;
    Ok(if constant == 1 { Spacing::Constant } else { Spacing::Poisson })
}

fn shared_prefix(settings: &mut Settings, seed: u64) -> Result<WorkloadConfig, InputError> {
    let seed = workload_seed(settings, seed)?;
    let load = load(settings, seed)?;
    let groups = SharedPrefix {
        groups: settings.small("workload.groups", 16, 1..=1 << 24)?,
        requests_per_group: settings.small("workload.requests_per_group", 16, 1..=u32::MAX)?,
        prefix_tokens: settings.small("workload.prefix_tokens", 2048, 0..=MOST_TOKENS)?,
        suffix_tokens: settings.small("workload.suffix_tokens", 128, 1..=MOST_TOKENS)?,
        output_tokens: settings.small("workload.output_tokens", 256, 1..=MOST_TOKENS)?,
    };
    let prefixes = u64::from(groups.groups) * u64::from(groups.prefix_tokens);
    if prefixes > 1 << 31 {
        let found = format!("{prefixes} tokens in all prefixes");
        return Err(settings.invalid(&None, "workload.groups", found, "groups * prefix_tokens of at most 2^31"));
    }
    Ok(WorkloadConfig::SharedPrefix { groups, load })
}

fn random(settings: &mut Settings, seed: u64) -> Result<WorkloadConfig, InputError> {
    let seed = workload_seed(settings, seed)?;
    let load = load(settings, seed)?;
    let lengths = RandomLengths {
        seed,
        requests: settings.whole("workload.requests", 1000, 1..=MOST_REQUESTS)?,
        input_tokens: settings.span("workload.input_tokens", Span::new(256, 2048), 1..=MOST_TOKENS)?,
        output_tokens: settings.span("workload.output_tokens", Span::new(32, 256), 1..=MOST_TOKENS)?,
    };
    Ok(WorkloadConfig::Random { lengths, load })
}

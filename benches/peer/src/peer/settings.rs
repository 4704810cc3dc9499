//! The peer's settings for a scenario. What has no counterpart is listed in `README.md`.

use aisimulate_core::engine::{
    Backend, EngineConfig as PeerConfig, SglangConfig, SglangSchedulePolicy, TimingModelConfig,
};
use anyhow::{Result, bail};
use servesim_engine::config::{EngineConfig, EvictionPolicy, SchedulePolicy};

use crate::case::PassNs;

/// The peer's SGLang mode with the scenario's pool, page size, chunk and batch budgets, slots, context length, policy and pass
/// durations.
///
/// # Errors
/// A setting that the peer does not have.
pub fn settings(engine: &EngineConfig, pass_ns: PassNs, emit_kv_events: bool) -> Result<PeerConfig> {
    let schedule_policy = match engine.schedule_policy {
        SchedulePolicy::Fcfs => SglangSchedulePolicy::Fifo,
        SchedulePolicy::Lpm => SglangSchedulePolicy::Lpm,
        other => bail!("engine.schedule_policy: found {other:?}, expected one that the peer has: fcfs, lpm"),
    };
    if engine.radix_eviction_policy != EvictionPolicy::Lru {
        let found = engine.radix_eviction_policy;
        bail!("engine.radix_eviction_policy: found {found:?}, expected lru, the only one of the peer's engine");
    }
    let page_size = engine.page_size as usize;
    Ok(PeerConfig {
        num_gpu_blocks: engine.max_total_tokens as usize / page_size,
        block_size: page_size,
        max_model_len: Some(engine.context_length as usize),
        max_num_seqs: engine.max_running_requests as usize,
        enable_prefix_caching: !engine.disable_radix_cache,
        prefill_decode_interval: engine.prefill_decode_interval as usize,
        emit_kv_events,
        timing_model: TimingModelConfig::Fixed {
            prefill_ms: pass_ns.extend as f64 / 1e6,
            decode_ms: pass_ns.decode as f64 / 1e6,
        },
        sglang: SglangConfig {
            schedule_policy,
            max_prefill_tokens: usize::try_from(engine.max_prefill_tokens)?,
            chunked_prefill_size: usize::try_from(engine.chunked_prefill_size)?,
            clip_max_new_tokens: engine.clip_max_new_tokens_estimation as usize,
            schedule_conservativeness: engine.schedule_conservativeness,
        },
        ..PeerConfig::for_backend(Backend::Sglang)
    })
}

//! `roofline`: each part of a pass takes the longer of its operations at the device's peak rate and its bytes at the peak bandwidth,
//! each scaled by an efficiency; parts follow one another.
//!
//! - [`model`], [`device`]: what is described.
//! - [`hugging_face`]: a model from its `config.json`.
//! - [`presets`]: well-known models and devices.
//! - [`memory`]: the size of the KV pool.

pub mod device;
pub mod hugging_face;
pub mod memory;
pub mod model;
pub mod presets;

use servesim_engine::timing::{PassShape, TimingError, TimingModel, checked_ns};

use self::device::DeviceDescription;
use self::model::{ComputeType, ModelDescription};
use crate::trace::field::Fault;

/// Bytes of an element that devices exchange.
const EXCHANGED_BYTES: f64 = 2.0;

/// How devices are used, and how much of their peaks is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Devices that share each layer: tensor parallelism.
    pub count: u32,
    /// Share of the peak rate of operations, above 0 and at most 1.
    pub compute_efficiency: f64,
    /// Share of the memory bandwidth, likewise.
    pub memory_efficiency: f64,
    /// Share of the interconnect's bandwidth, likewise.
    pub interconnect_efficiency: f64,
    /// What an exchange between devices costs however little is exchanged, in microseconds.
    pub exchange_us: f64,
    /// What a layer costs beside its products and attention (norms, activations, launches), in microseconds.
    pub layer_us: f64,
    /// What a pass costs beside its layers (sampling, copies), in microseconds.
    pub pass_us: f64,
}

impl Default for Usage {
    /// One device. The shares and times are ours, chosen once so that the measurements in `docs/timing.md` come out well together;
    /// no source gives them.
    fn default() -> Usage {
        Usage {
            count: 1,
            compute_efficiency: 0.6,
            memory_efficiency: 0.75,
            interconnect_efficiency: 0.7,
            exchange_us: 12.0,
            layer_us: 25.0,
            pass_us: 300.0,
        }
    }
}

/// Operations and bytes that go together: per token or row, and whatever the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    flops_per_token: f64,
    bytes: f64,
}

/// A model on devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// Seconds for an operation on weights, for one of attention, and for a byte of memory.
    flop_s: f64,
    attention_flop_s: f64,
    byte_s: f64,
    /// What every token meets, and the output projection, which meets one token a row.
    common: Part,
    head: Part,
    /// Operations of a token's active experts, and bytes of all experts.
    experts: Part,
    expert_count: f64,
    /// The share of experts that a token does not use.
    unused_share: f64,
    /// Operations of attention for a pair of tokens, in extend and in decode rows, and bytes of a KV token.
    extend_pair_flops: f64,
    decode_pair_flops: f64,
    kv_token_bytes: f64,
    /// Seconds that exchanges take for a token.
    exchange_token_s: f64,
    /// Seconds whatever the batch.
    fixed_s: f64,
}

impl Roofline {
    /// A model on devices.
    ///
    /// # Errors
    /// A field of the descriptions that is out of bounds, heads that cannot be shared out, or a type that the device does not
    /// compute with. Fields start with `model.` or `device.`, or are those of [`Usage`].
    pub fn new(model: &ModelDescription, device: &DeviceDescription, usage: &Usage) -> Result<Roofline, Fault> {
        model.validate().map_err(|fault| fault.within("model"))?;
        device.validate().map_err(|fault| fault.within("device"))?;
        check_usage(model, device, usage)?;
        let flops = device.flops_per_s(model.compute_type).ok_or_else(|| {
            let found = format!("\"fp8\" on {}, which has no such rate", device.name);
            Fault::new("model.compute_type", found, "\"bf16\", or a device with fp8_tflops")
        })?;
        let bf16 = device.flops_per_s(ComputeType::Bf16).unwrap_or(flops);
        let count = f64::from(usage.count);
        let part = |weights: f64, bytes: f64| Part { flops_per_token: 2.0 * weights / count, bytes: bytes / count };
        let common = model.common_weights();
        let head = model.vocabulary_weights();
        let expert = model.expert_weights() * f64::from(model.expert_layers());
        let (active, experts) = (f64::from(model.active_experts), f64::from(model.experts));
        let (extend_pair_flops, decode_pair_flops) = model.attention_flops();
        Ok(Roofline {
            flop_s: 1.0 / (flops * usage.compute_efficiency),
            attention_flop_s: 1.0 / (bf16 * usage.compute_efficiency),
            byte_s: 1.0 / (device.memory_gb_per_s * 1e9 * usage.memory_efficiency),
            common: part(common, common * model.weight_bytes),
            head: part(head, head * model.vocabulary_bytes()),
            experts: part(active * expert, experts * expert * model.weight_bytes),
            expert_count: experts,
            unused_share: if model.experts > 0 { 1.0 - active / experts } else { 0.0 },
            extend_pair_flops: extend_pair_flops / count,
            decode_pair_flops: decode_pair_flops / count,
            kv_token_bytes: model.kv_bytes_per_token(usage.count),
            exchange_token_s: exchange_token_s(model, device, usage),
            fixed_s: fixed_s(model, usage),
        })
    }

    /// What the pass takes, in seconds.
    pub fn pass_s(&self, shape: &PassShape) -> f64 {
        let rows = f64::from(shape.extend_rows) + f64::from(shape.decode_rows);
        let tokens = shape.extend_tokens as f64 + f64::from(shape.decode_rows);
        self.part_s(self.common, tokens, 1.0)
            + self.experts_s(tokens)
            + self.part_s(self.head, rows, 1.0)
            + self.attention_s(shape)
            + self.exchange_token_s * tokens
            + self.fixed_s
    }

    fn part_s(&self, part: Part, tokens: f64, share: f64) -> f64 {
        (part.flops_per_token * tokens * self.flop_s).max(part.bytes * share * self.byte_s)
    }

    /// The experts that are read are those that some token uses, if tokens choose evenly and independently.
    fn experts_s(&self, tokens: f64) -> f64 {
        if self.expert_count == 0.0 {
            return 0.0;
        }
        self.part_s(self.experts, tokens, 1.0 - libm::pow(self.unused_share, tokens))
    }

    /// A causal mask leaves each new token the context up to itself.
    fn attention_s(&self, shape: &PassShape) -> f64 {
        let masked = (shape.extend_squares.saturating_sub(u128::from(shape.extend_tokens))) / 2;
        let pairs = shape.extend_attention.saturating_sub(masked) as f64;
        let extend_bytes = (shape.extend_tokens + shape.cached_tokens) as f64 * self.kv_token_bytes;
        let extend = (pairs * self.extend_pair_flops * self.attention_flop_s).max(extend_bytes * self.byte_s);
        let kv_tokens = shape.decode_kv_tokens as f64;
        let decode_flops = kv_tokens * self.decode_pair_flops;
        extend + (decode_flops * self.attention_flop_s).max(kv_tokens * self.kv_token_bytes * self.byte_s)
    }
}

/// A layer has two exchanges, in each of which a device sends its part of the sum round the ring and then the sum.
fn exchange_token_s(model: &ModelDescription, device: &DeviceDescription, usage: &Usage) -> f64 {
    if usage.count == 1 {
        return 0.0;
    }
    let count = f64::from(usage.count);
    let bytes = 2.0 * (count - 1.0) / count * f64::from(model.hidden_size) * EXCHANGED_BYTES;
    let rate = device.interconnect_gb_per_s * 1e9 * usage.interconnect_efficiency;
    2.0 * f64::from(model.layers) * bytes / rate
}

fn fixed_s(model: &ModelDescription, usage: &Usage) -> f64 {
    let exchanges_us = if usage.count > 1 { 2.0 * usage.exchange_us } else { 0.0 };
    (f64::from(model.layers) * (usage.layer_us + exchanges_us) + usage.pass_us) * 1e-6
}

fn check_usage(model: &ModelDescription, device: &DeviceDescription, usage: &Usage) -> Result<(), Fault> {
    let shares = [
        ("compute_efficiency", usage.compute_efficiency),
        ("memory_efficiency", usage.memory_efficiency),
        ("interconnect_efficiency", usage.interconnect_efficiency),
    ];
    for (field, share) in shares {
        if !(share > 0.0 && share <= 1.0) {
            return Err(Fault::new(field, share.to_string(), "above 0, at most 1"));
        }
    }
    let heads = model.heads;
    if usage.count == 0 || !heads.is_multiple_of(usage.count) {
        return Err(Fault::new("count", usage.count.to_string(), format!("a divisor of the model's {heads} heads")));
    }
    if usage.count > 1 && device.interconnect_gb_per_s == 0.0 {
        return Err(Fault::new("device.interconnect_gb_per_s", "0", format!("above 0, for {} devices", usage.count)));
    }
    Ok(())
}

impl TimingModel for Roofline {
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        checked_ns(self.pass_s(shape) * 1e9)
    }
}

#[cfg(test)]
mod measurements;
#[cfg(test)]
mod tests;

//! The size of the KV pool that devices have room for, as SGLang's `mem_fraction_static` has it: weights and pool together take
//! that fraction of the memory.

use std::fmt;

use super::device::DeviceDescription;
use super::model::ModelDescription;
use crate::trace::field::Fault;

/// The largest pool of the engine, in tokens.
const MOST_TOKENS: f64 = (1_u64 << 40) as f64;

/// A pool that follows from descriptions, and from what.
#[derive(Clone, Debug, PartialEq)]
pub struct DerivedPool {
    /// Tokens, rounded down.
    pub tokens: u64,
    /// The fraction of the memory for weights and pool.
    pub fraction: f64,
    /// Devices.
    pub count: u32,
    /// Memory of all devices, in bytes.
    pub memory_bytes: f64,
    /// Bytes of the weights, of all devices.
    pub weight_bytes: f64,
    /// Bytes of a KV token, of all devices, copies included.
    pub kv_token_bytes: f64,
}

impl fmt::Display for DerivedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gib = |bytes: f64| bytes / (1_u64 << 30) as f64;
        write!(
            f,
            "{} tokens: ({:.2} GiB on {} {} x {} - {:.2} GiB of weights) / {:.0} bytes a token",
            self.tokens,
            gib(self.memory_bytes),
            self.count,
            if self.count == 1 { "device" } else { "devices" },
            self.fraction,
            gib(self.weight_bytes),
            self.kv_token_bytes
        )
    }
}

/// The pool of a model on `count` devices.
///
/// # Errors
/// The weights leave no room, or more than the engine's largest pool.
pub fn pool(
    model: &ModelDescription,
    device: &DeviceDescription,
    count: u32,
    fraction: f64,
) -> Result<DerivedPool, Fault> {
    let devices = f64::from(count);
    let memory_bytes = device.memory_bytes() * devices;
    let weight_bytes = model.all_weight_bytes();
    let kv_token_bytes = model.kv_bytes_per_token(count) * devices;
    let tokens = ((memory_bytes * fraction - weight_bytes) / kv_token_bytes).floor();
    let pool = |tokens| DerivedPool { tokens, fraction, count, memory_bytes, weight_bytes, kv_token_bytes };
    if !(1.0..=MOST_TOKENS).contains(&tokens) {
        let found = format!("{fraction}, which gives {}", pool(0).to_string().trim_start_matches("0 tokens: "));
        return Err(Fault::new("mem_fraction_static", found, "room for 1 to 2^40 KV tokens beside the weights"));
    }
    Ok(pool(tokens as u64))
}

#[cfg(test)]
mod tests {
    use super::super::presets::{device, model};
    use super::*;

    #[test]
    fn what_weights_leave_is_the_pool() {
        let (model, device) = (model("llama-3.1-8b").expect("there"), device("h100-sxm").expect("there"));
        let pool = pool(&model, &device, 1, 0.9).expect("room");
        // 128 KiB a token: 32 layers x 2 x 8 heads x 128 x 2 bytes. 72 GiB less 8,030,044,160 weights of 2 bytes (norms left out).
        assert_eq!(pool.kv_token_bytes, 131_072.0);
        let weights = 8_029_995_008_u64 * 2;
        assert_eq!(pool.weight_bytes, weights as f64);
        assert_eq!(pool.tokens, (72 * (1 << 30) - weights) / 131_072);
        assert_eq!(
            pool.to_string(),
            format!(
                "{} tokens: (80.00 GiB on 1 device x 0.9 - 14.96 GiB of weights) / 131072 bytes a token",
                pool.tokens
            )
        );
    }

    #[test]
    fn devices_share_heads_as_far_as_they_go_and_then_have_copies() {
        let model = model("qwen3-30b-a3b").expect("there");
        let device = device("h100-sxm").expect("there");
        let bytes = |count| pool(&model, &device, count, 0.9).expect("room").kv_token_bytes;
        assert_eq!((bytes(2), bytes(4), bytes(8)), (bytes(1), bytes(1), 2.0 * bytes(1)));
        let latent = super::super::presets::model("deepseek-v3").expect("there");
        // 61 layers x 576 elements x 2 bytes, on each of 16 devices.
        assert_eq!(pool(&latent, &device, 16, 0.9).expect("room").kv_token_bytes, 70_272.0 * 16.0);
    }

    #[test]
    fn no_room_is_refused() {
        let (model, device) = (model("llama-3.1-70b").expect("there"), device("h100-sxm").expect("there"));
        let fault = pool(&model, &device, 1, 0.9).expect_err("131 GiB of weights");
        assert_eq!(fault.field, "mem_fraction_static");
        assert!(fault.found.contains("131.41 GiB of weights"), "{}", fault.found);
        assert!(pool(&model, &device, 4, 0.9).is_ok());
    }
}

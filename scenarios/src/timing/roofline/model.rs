//! A language model as the roofline sees it: sizes, from which follow weights, KV bytes and operations.

use serde::{Deserialize, Serialize};

use crate::trace::field::Fault;

/// The type in which weights and activations are multiplied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ComputeType {
    /// 16-bit floats, either kind.
    #[default]
    Bf16,
    /// 8-bit floats.
    Fp8,
}

/// A decoder-only transformer: attention over the whole context, gated MLPs of three matrices, layers all alike but for a few
/// dense ones before layers of experts. Biases and norms are left out. Sizes are those of the whole model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelDescription {
    /// Its name.
    pub name: String,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Width of a head.
    pub head_size: u32,
    /// Width of the MLP of a dense layer; not used if every layer has experts.
    pub intermediate_size: u32,
    /// Entries of the vocabulary.
    pub vocabulary: u32,
    /// Whether the output projection is the embedding.
    pub tied_embeddings: bool,
    /// Routed experts of a layer; 0 for a dense model.
    pub experts: u32,
    /// Routed experts that a token uses.
    pub active_experts: u32,
    /// Width of a routed expert's MLP.
    pub expert_size: u32,
    /// Width of the MLP that every token uses beside its experts, all shared experts together.
    pub shared_expert_size: u32,
    /// Dense layers before the layers of experts.
    pub dense_layers: u32,
    /// Multi-head latent attention: width of the compressed KV; 0 for ordinary attention.
    pub kv_lora_rank: u32,
    /// Of it: width of the compressed query; 0 if the query is not compressed.
    pub q_lora_rank: u32,
    /// Of it: width of a head's part with a rotary position.
    pub qk_rope_head_size: u32,
    /// Of it: width of a head's part without.
    pub qk_nope_head_size: u32,
    /// Of it: width of a head's value.
    pub v_head_size: u32,
    /// Bytes of a weight.
    pub weight_bytes: f64,
    /// Bytes of a weight of the embedding and of the output projection; 0 is that of other weights.
    pub embedding_bytes: f64,
    /// Bytes of an element of the KV cache.
    pub kv_bytes: f64,
    /// The type of products with weights.
    pub compute_type: ComputeType,
}

/// The largest size.
const MOST: u32 = 1 << 24;

impl ModelDescription {
    /// Whether attention is multi-head latent.
    pub fn is_latent(&self) -> bool {
        self.kv_lora_rank > 0
    }

    /// Layers with experts.
    pub fn expert_layers(&self) -> u32 {
        if self.experts == 0 { 0 } else { self.layers - self.dense_layers }
    }

    /// Checks that the sizes can be a model's.
    ///
    /// # Errors
    /// The first field that is out of bounds.
    pub fn validate(&self) -> Result<(), Fault> {
        self.check_sizes()?;
        self.check_attention()?;
        self.check_experts()?;
        for (field, bytes) in [("weight_bytes", self.weight_bytes), ("kv_bytes", self.kv_bytes)] {
            check(field, bytes, (0.1..=8.0).contains(&bytes), "0.1 to 8 bytes")?;
        }
        let embedding = self.embedding_bytes;
        check(
            "embedding_bytes",
            embedding,
            embedding == 0.0 || (0.1..=8.0).contains(&embedding),
            "0, or 0.1 to 8 bytes",
        )
    }

    fn check_sizes(&self) -> Result<(), Fault> {
        let needed = [
            ("layers", self.layers),
            ("hidden_size", self.hidden_size),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("vocabulary", self.vocabulary),
        ];
        for (field, size) in needed {
            check(field, size, (1..=MOST).contains(&size), "1 to 2^24")?;
        }
        let others = [
            ("head_size", self.head_size),
            ("intermediate_size", self.intermediate_size),
            ("experts", self.experts),
            ("expert_size", self.expert_size),
            ("shared_expert_size", self.shared_expert_size),
            ("kv_lora_rank", self.kv_lora_rank),
            ("q_lora_rank", self.q_lora_rank),
            ("qk_rope_head_size", self.qk_rope_head_size),
            ("qk_nope_head_size", self.qk_nope_head_size),
            ("v_head_size", self.v_head_size),
        ];
        others.into_iter().try_for_each(|(field, size)| check(field, size, size <= MOST, "0 to 2^24"))
    }

    fn check_attention(&self) -> Result<(), Fault> {
        if !self.is_latent() {
            check("head_size", self.head_size, self.head_size > 0, "at least 1")?;
            return check("kv_heads", self.kv_heads, self.heads.is_multiple_of(self.kv_heads), "a divisor of heads");
        }
        for (field, size) in [
            ("qk_rope_head_size", self.qk_rope_head_size),
            ("qk_nope_head_size", self.qk_nope_head_size),
            ("v_head_size", self.v_head_size),
        ] {
            check(field, size, size > 0, "at least 1, beside kv_lora_rank")?;
        }
        Ok(())
    }

    fn check_experts(&self) -> Result<(), Fault> {
        if self.experts == 0 {
            return check("intermediate_size", self.intermediate_size, self.intermediate_size > 0, "at least 1");
        }
        let active = self.active_experts;
        check("active_experts", active, (1..=self.experts).contains(&active), "1 to the number of experts")?;
        check("expert_size", self.expert_size, self.expert_size > 0, "at least 1")?;
        let dense = self.dense_layers;
        check("dense_layers", dense, dense < self.layers, "less than layers")?;
        let width = self.intermediate_size;
        check("intermediate_size", width, dense == 0 || width > 0, "at least 1, beside dense_layers")
    }

    /// Weights of the attention of a layer.
    pub fn attention_weights(&self) -> f64 {
        let [hidden, heads, kv_heads, head] =
            [self.hidden_size, self.heads, self.kv_heads, self.head_size].map(f64::from);
        if !self.is_latent() {
            return 2.0 * hidden * heads * head + 2.0 * hidden * kv_heads * head;
        }
        let [kv_rank, q_rank, rope, nope, value] =
            [self.kv_lora_rank, self.q_lora_rank, self.qk_rope_head_size, self.qk_nope_head_size, self.v_head_size]
                .map(f64::from);
        let query = heads * (nope + rope);
        let query = if q_rank > 0.0 { hidden * q_rank + q_rank * query } else { hidden * query };
        query + hidden * (kv_rank + rope) + kv_rank * heads * (nope + value) + heads * value * hidden
    }

    /// Weights that every token meets: attention, dense MLPs, shared experts and routers of all layers.
    pub fn common_weights(&self) -> f64 {
        let hidden = f64::from(self.hidden_size);
        let expert_layers = f64::from(self.expert_layers());
        let dense_layers = f64::from(self.layers) - expert_layers;
        let router = hidden * f64::from(self.experts);
        f64::from(self.layers) * self.attention_weights()
            + dense_layers * mlp(hidden, self.intermediate_size)
            + expert_layers * (mlp(hidden, self.shared_expert_size) + router)
    }

    /// Weights of one routed expert.
    pub fn expert_weights(&self) -> f64 {
        mlp(f64::from(self.hidden_size), self.expert_size)
    }

    /// Weights of the output projection, and of the embedding.
    pub fn vocabulary_weights(&self) -> f64 {
        f64::from(self.hidden_size) * f64::from(self.vocabulary)
    }

    /// All weights.
    pub fn weights(&self) -> f64 {
        self.layer_weights() + self.vocabulary_weights() * if self.tied_embeddings { 1.0 } else { 2.0 }
    }

    fn layer_weights(&self) -> f64 {
        let experts = f64::from(self.expert_layers()) * f64::from(self.experts);
        self.common_weights() + experts * self.expert_weights()
    }

    /// Bytes of a weight of the embedding and of the output projection.
    pub fn vocabulary_bytes(&self) -> f64 {
        if self.embedding_bytes > 0.0 { self.embedding_bytes } else { self.weight_bytes }
    }

    /// Bytes of all weights.
    pub fn all_weight_bytes(&self) -> f64 {
        let layers = self.layer_weights();
        layers * self.weight_bytes + (self.weights() - layers) * self.vocabulary_bytes()
    }

    /// Bytes that the KV cache holds for a token, on one of `count` devices that share the heads. Key and value heads are shared
    /// out as far as they go, then every device has a copy; a compressed KV is on every device.
    pub fn kv_bytes_per_token(&self, count: u32) -> f64 {
        let elements = if self.is_latent() {
            f64::from(self.kv_lora_rank + self.qk_rope_head_size)
        } else {
            let kv_heads = self.kv_heads.div_ceil(count);
            2.0 * f64::from(kv_heads) * f64::from(self.head_size)
        };
        f64::from(self.layers) * elements * self.kv_bytes
    }

    /// Operations of attention for a pair of a new token and one of its context, over all layers and heads, in an extend pass
    /// and in a decode pass. Compressed attention decodes on the compressed KV, with more operations.
    pub fn attention_flops(&self) -> (f64, f64) {
        let heads = f64::from(self.layers) * f64::from(self.heads);
        if !self.is_latent() {
            let flops = heads * 4.0 * f64::from(self.head_size);
            return (flops, flops);
        }
        let [kv_rank, rope, nope, value] =
            [self.kv_lora_rank, self.qk_rope_head_size, self.qk_nope_head_size, self.v_head_size].map(f64::from);
        (heads * 2.0 * (nope + rope + value), heads * 2.0 * (2.0 * kv_rank + rope))
    }
}

/// Weights of a gated MLP.
fn mlp(hidden: f64, width: u32) -> f64 {
    3.0 * hidden * f64::from(width)
}

fn check(field: &str, found: impl ToString, fits: bool, expected: &str) -> Result<(), Fault> {
    if fits { Ok(()) } else { Err(Fault::new(field, found.to_string(), expected)) }
}

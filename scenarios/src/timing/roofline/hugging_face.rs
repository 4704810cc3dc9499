//! A model description from a Hugging Face `config.json`.

use serde_json::{Map, Value};

use super::model::{ComputeType, ModelDescription};
use crate::trace::field::Fault;

/// Reads the fields that a description needs. `name` stands for a model that does not say its own.
///
/// # Errors
/// No JSON object, a field that is missing or of the wrong type, or an architecture that the roofline does not stand for.
pub fn read(text: &str, name: &str) -> Result<ModelDescription, Fault> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| Fault::new("content", error.to_string(), "a Hugging Face config.json"))?;
    let Value::Object(whole) = value else {
        return Err(Fault::new("content", "no JSON object", "a Hugging Face config.json"));
    };
    // A model of several modalities has its language part inside.
    let inner =
        whole.get("text_config").and_then(Value::as_object).filter(|_| !whole.contains_key("num_hidden_layers"));
    let config = Config { fields: inner.unwrap_or(&whole), whole: &whole };
    config.refuse_other_attention()?;
    let description = config.description(name)?;
    description.validate()?;
    Ok(description)
}

struct Config<'c> {
    fields: &'c Map<String, Value>,
    whole: &'c Map<String, Value>,
}

impl Config<'_> {
    /// The first of the fields that is there and not null.
    fn find(&self, names: &[&'static str]) -> Option<(&'static str, &Value)> {
        names.iter().find_map(|name| Some((*name, self.fields.get(*name).filter(|value| !value.is_null())?)))
    }

    fn size(&self, names: &[&'static str]) -> Result<Option<u32>, Fault> {
        let Some((name, value)) = self.find(names) else { return Ok(None) };
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        size.map(Some).ok_or_else(|| Fault::new(name, value.to_string(), "a whole number of at most 32 bits"))
    }

    fn needed(&self, names: &[&'static str]) -> Result<u32, Fault> {
        self.size(names)?.ok_or_else(|| Fault::new(names[0], "nothing", "a whole number"))
    }

    fn or_zero(&self, names: &[&'static str]) -> Result<u32, Fault> {
        Ok(self.size(names)?.unwrap_or(0))
    }

    fn flag(&self, name: &'static str) -> Option<bool> {
        self.fields.get(name).and_then(Value::as_bool)
    }

    /// Layers that do not attend to the whole context are not modelled.
    fn refuse_other_attention(&self) -> Result<(), Fault> {
        let window = self.find(&["sliding_window"]).filter(|_| self.flag("use_sliding_window") != Some(false));
        if let Some((name, value)) = window {
            return Err(Fault::new(name, value.to_string(), "null: attention over the whole context only"));
        }
        if let Some((name, Value::Array(types))) = self.find(&["layer_types"])
            && let Some(other) = types.iter().find(|kind| kind.as_str() != Some("full_attention"))
        {
            return Err(Fault::new(name, other.to_string(), "\"full_attention\" for every layer"));
        }
        if let Some((name, value)) = self.find(&["full_attention_interval", "ssm_state_size", "mamba_d_state"]) {
            return Err(Fault::new(name, value.to_string(), "a model whose layers all attend to the whole context"));
        }
        Ok(())
    }

    /// Some layers of experts and some dense ones between them are not modelled.
    fn refuse_mixed_layers(&self) -> Result<(), Fault> {
        for name in ["decoder_sparse_step", "moe_layer_freq", "interleave_moe_layer_step"] {
            if let Some((name, value)) = self.find(&[name]).filter(|(_, value)| value.as_u64() != Some(1)) {
                return Err(Fault::new(name, value.to_string(), "1: experts in every layer after the dense ones"));
            }
        }
        match self.find(&["mlp_only_layers"]) {
            Some((name, Value::Array(layers))) if !layers.is_empty() => {
                Err(Fault::new(name, format!("{} layers", layers.len()), "none"))
            }
            _ => Ok(()),
        }
    }

    fn description(&self, name: &str) -> Result<ModelDescription, Fault> {
        let hidden_size = self.needed(&["hidden_size"])?;
        let heads = self.needed(&["num_attention_heads"])?;
        let experts = self.or_zero(&["num_local_experts", "num_experts", "n_routed_experts"])?;
        let mut model = ModelDescription {
            name: self
                .whole
                .get("_name_or_path")
                .and_then(Value::as_str)
                .filter(|name| !name.is_empty())
                .unwrap_or(name)
                .to_owned(),
            layers: self.needed(&["num_hidden_layers"])?,
            hidden_size,
            heads,
            kv_heads: self.size(&["num_key_value_heads"])?.unwrap_or(heads),
            head_size: self.size(&["head_dim"])?.unwrap_or(hidden_size.checked_div(heads).unwrap_or(0)),
            intermediate_size: self.or_zero(&["intermediate_size"])?,
            vocabulary: self.needed(&["vocab_size"])?,
            tied_embeddings: self
                .flag("tie_word_embeddings")
                .or(self.whole.get("tie_word_embeddings").and_then(Value::as_bool))
                .unwrap_or(false),
            kv_lora_rank: self.or_zero(&["kv_lora_rank"])?,
            q_lora_rank: self.or_zero(&["q_lora_rank"])?,
            qk_rope_head_size: self.or_zero(&["qk_rope_head_dim"])?,
            qk_nope_head_size: self.or_zero(&["qk_nope_head_dim"])?,
            v_head_size: self.or_zero(&["v_head_dim"])?,
            experts,
            ..ModelDescription::default()
        };
        if experts > 0 {
            self.refuse_mixed_layers()?;
            model.active_experts = self.needed(&["num_experts_per_tok", "moe_topk"])?;
            model.expert_size = self.size(&["moe_intermediate_size"])?.unwrap_or(model.intermediate_size);
            let shared = self.or_zero(&["n_shared_experts"])?.saturating_mul(model.expert_size);
            model.shared_expert_size = self.size(&["shared_expert_intermediate_size"])?.unwrap_or(shared);
            model.dense_layers = self.or_zero(&["first_k_dense_replace"])?;
        }
        self.set_bytes(&mut model)?;
        Ok(model)
    }

    fn set_bytes(&self, model: &mut ModelDescription) -> Result<(), Fault> {
        let dtype = self
            .find(&["dtype", "torch_dtype"])
            .or_else(|| ["dtype", "torch_dtype"].iter().find_map(|name| Some((*name, self.whole.get(*name)?))));
        let bytes: f64 = match dtype.map(|(name, value)| (name, value.as_str())) {
            None | Some((_, Some("bfloat16" | "float16"))) => 2.0,
            Some((_, Some("float32"))) => 4.0,
            Some((name, found)) => {
                return Err(Fault::new(name, format!("{found:?}"), "bfloat16, float16 or float32"));
            }
        };
        (model.weight_bytes, model.embedding_bytes, model.kv_bytes) = (bytes, bytes, bytes.min(2.0));
        let quantized = self.whole.get("quantization_config").or_else(|| self.fields.get("quantization_config"));
        let Some(quantized) = quantized.filter(|value| !value.is_null()) else { return Ok(()) };
        let method = quantized.get("quant_method").and_then(Value::as_str).unwrap_or("");
        let bits = quantized.get("bits").and_then(Value::as_f64);
        match (method, bits) {
            ("fp8" | "fbgemm_fp8", _) => {
                model.weight_bytes = 1.0;
                model.compute_type = ComputeType::Fp8;
            }
            (_, Some(bits)) if (1.0..=16.0).contains(&bits) => model.weight_bytes = bits / 8.0,
            _ => {
                let expected = "fp8, or a method with bits; for another describe the model in the scenario";
                return Err(Fault::new("quantization_config", format!("method \"{method}\""), expected));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENSE: &str = r#"{"num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 12288, "vocab_size": 151936,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "sliding_window": null}"#;

    #[test]
    fn a_dense_config_gives_the_preset_of_the_same_model() {
        let read = read(DENSE, "qwen3-8b").expect("good");
        let preset = super::super::presets::model("qwen3-8b").expect("there");
        assert_eq!(ModelDescription { name: preset.name.clone(), ..read }, preset);
    }

    #[test]
    fn latent_attention_and_experts_are_read() {
        let config = r#"{"num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
            "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
            "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
            "first_k_dense_replace": 3, "moe_layer_freq": 1, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}"#;
        let read = read(config, "x").expect("good");
        let preset = super::super::presets::model("deepseek-v3").expect("there");
        let same = ModelDescription { name: preset.name.clone(), head_size: preset.head_size, ..read };
        assert_eq!(same, preset);
    }

    #[test]
    fn what_is_not_modelled_or_wrong_is_named() {
        let with = |more: &str| DENSE.replacen('{', &format!("{{{more},"), 1);
        let cases = [
            ("[1]".to_owned(), "content"),
            ("{".to_owned(), "content"),
            ("{}".to_owned(), "hidden_size"),
            (DENSE.replace("layers\": 36", "layers\": \"x\""), "num_hidden_layers"),
            (DENSE.replace("layers\": 36", "layers\": 0"), "layers"),
            (DENSE.replace("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7"), "kv_heads"),
            (DENSE.replace("null", "4096"), "sliding_window"),
            (with(r#""layer_types": ["full_attention", "linear_attention"]"#), "layer_types"),
            (with(r#""num_experts": 8, "decoder_sparse_step": 2"#), "decoder_sparse_step"),
            (with(r#""num_experts": 8, "num_experts_per_tok": 9"#), "active_experts"),
            (with(r#""quantization_config": {"quant_method": "strange"}"#), "quantization_config"),
            (DENSE.replace("bfloat16", "int3"), "torch_dtype"),
        ];
        for (text, field) in cases {
            assert_eq!(read(&text, "x").expect_err(field).field, field, "{text}");
        }
        let windowless = DENSE.replace("null", "4096, \"use_sliding_window\": false");
        assert!(read(&windowless, "x").is_ok());
        let awq = with(r#""quantization_config": {"quant_method": "awq", "bits": 4}"#);
        assert_eq!(read(&awq, "x").expect("good").weight_bytes, 0.5);
    }
}

//! Tiny cases by hand, and bad descriptions.

use super::*;

/// One layer of width 4 with one head, a vocabulary of 10, one byte a weight and an element.
fn tiny() -> ModelDescription {
    ModelDescription {
        layers: 1,
        hidden_size: 4,
        heads: 2,
        kv_heads: 1,
        head_size: 2,
        intermediate_size: 5,
        vocabulary: 10,
        weight_bytes: 1.0,
        kv_bytes: 1.0,
        ..ModelDescription::default()
    }
}

/// 10^12 operations, 10^9 bytes of memory and as many of exchange a second.
fn device() -> DeviceDescription {
    DeviceDescription {
        bf16_tflops: 1.0,
        memory_gib: 1.0,
        memory_gb_per_s: 1.0,
        interconnect_gb_per_s: 1.0,
        ..DeviceDescription::default()
    }
}

/// Peaks are reached, and nothing else costs time.
fn ideal() -> Usage {
    Usage {
        count: 1,
        compute_efficiency: 1.0,
        memory_efficiency: 1.0,
        interconnect_efficiency: 1.0,
        exchange_us: 0.0,
        layer_us: 0.0,
        pass_us: 0.0,
    }
}

fn decode(rows: u32, kv_tokens: u64) -> PassShape {
    PassShape { decode_rows: rows, decode_kv_tokens: kv_tokens, ..PassShape::default() }
}

#[test]
fn a_small_decode_pass_reads_weights_and_kv() {
    // Attention: query 4 x 4, key and value 4 x 2 each, output 4 x 4: 48 weights. MLP: 3 x 4 x 5 = 60. Head: 40.
    // KV: 2 x 1 x 2 = 4 bytes a token. In all 148 + 4 x 13 bytes, at a nanosecond each.
    let mut roofline = Roofline::new(&tiny(), &device(), &ideal()).expect("good");
    assert_eq!(roofline.duration_ns(&decode(3, 13)), Ok(200));
}

#[test]
fn a_large_pass_is_bound_by_operations() {
    let mut roofline = Roofline::new(&tiny(), &device(), &ideal()).expect("good");
    // One row of 10,000 new tokens behind 2,000 cached. Layers: 2 x 108 x 10^4 operations of a picosecond. Head: its bytes,
    // 40 ns, for the one row. Attention: 10^4 x 2 x 10^3 pairs and 10^4 x 10,001 / 2, 16 operations each (4 x 2 heads x 2).
    let pairs: u128 = 10_000 * 2_000 + 10_000 * 10_001 / 2;
    let operations = 2 * 108 * 10_000 + 16 * pairs;
    let shape = PassShape {
        extend_rows: 1,
        extend_tokens: 10_000,
        cached_tokens: 2_000,
        extend_attention: 10_000 * 12_000,
        extend_squares: 10_000 * 10_000,
        ..PassShape::default()
    };
    assert_eq!(u128::from(roofline.duration_ns(&shape).expect("priced")), operations / 1_000 + 40);
}

#[test]
fn two_devices_halve_the_work_and_exchange_twice_a_layer() {
    let usage = Usage { count: 2, exchange_us: 1.0, layer_us: 2.0, pass_us: 3.0, ..ideal() };
    let mut roofline = Roofline::new(&tiny(), &device(), &usage).expect("good");
    // 74 bytes of weights, 4 of each KV token (one head cannot be halved), and twice 3 tokens x 4 x 2 bytes on the ring.
    assert_eq!(roofline.duration_ns(&decode(3, 13)), Ok(74 + 52 + 2 * 24 + 2 * 1_000 + 2_000 + 3_000));
}

#[test]
fn experts_that_no_token_uses_are_not_read() {
    let model = ModelDescription { experts: 4, active_experts: 2, expert_size: 5, ..tiny() };
    let mut roofline = Roofline::new(&model, &device(), &ideal()).expect("good");
    // Attention 48, router 16, head 40, KV 4 x 10; of 240 bytes of experts half for one token and three quarters for two.
    assert_eq!(roofline.duration_ns(&decode(1, 10)), Ok(144 + 120));
    assert_eq!(roofline.duration_ns(&decode(2, 10)), Ok(144 + 180));
}

#[test]
fn latent_attention_decodes_on_the_compressed_kv() {
    let model = ModelDescription {
        kv_lora_rank: 3,
        q_lora_rank: 2,
        qk_rope_head_size: 1,
        qk_nope_head_size: 2,
        v_head_size: 2,
        ..tiny()
    };
    // Query 4 x 2 + 2 x 2 x 3, KV 4 x 4 + 3 x 2 x 4, output 2 x 2 x 4: 76 weights.
    assert_eq!(model.attention_weights(), 76.0);
    assert_eq!(model.kv_bytes_per_token(2), 4.0);
    assert_eq!(model.attention_flops(), (2.0 * 2.0 * 5.0, 2.0 * 2.0 * 7.0));
}

#[test]
fn bad_descriptions_are_named() {
    let refused = |model: ModelDescription, device: DeviceDescription, usage: Usage| {
        Roofline::new(&model, &device, &usage).expect_err("refused").field
    };
    let model = |change: fn(&mut ModelDescription)| {
        let mut model = tiny();
        change(&mut model);
        refused(model, device(), ideal())
    };
    assert_eq!(model(|model| model.layers = 0), "model.layers");
    assert_eq!(model(|model| model.kv_heads = 3), "model.kv_heads");
    assert_eq!(model(|model| model.intermediate_size = 0), "model.intermediate_size");
    assert_eq!(model(|model| model.weight_bytes = f64::NAN), "model.weight_bytes");
    assert_eq!(model(|model| model.kv_lora_rank = 4), "model.qk_rope_head_size");
    assert_eq!(model(|model| model.experts = 4), "model.active_experts");
    assert_eq!(model(|model| model.compute_type = ComputeType::Fp8), "model.compute_type");
    let bare = DeviceDescription { interconnect_gb_per_s: 0.0, ..device() };
    assert_eq!(refused(tiny(), bare, Usage { count: 2, ..ideal() }), "device.interconnect_gb_per_s");
    assert_eq!(refused(tiny(), DeviceDescription { memory_gib: -1.0, ..device() }, ideal()), "device.memory_gib");
    assert_eq!(refused(tiny(), device(), Usage { count: 3, ..ideal() }), "count");
    assert_eq!(refused(tiny(), device(), Usage { compute_efficiency: 1.5, ..ideal() }), "compute_efficiency");
}

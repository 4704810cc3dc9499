//! The presets, with default efficiencies, beside public measurements. `docs/timing.md` has the same table.
//!
//! The defaults of [`Usage`] were chosen with these measurements in view, so this shows how well one set of defaults serves many
//! models and devices; it is no prediction. Bounds are ratios of model to measurement.

use super::presets::{device, model};
use super::*;

/// pytorch-labs/gpt-fast, README.md and mixtral-moe/README.md, "Benchmarks" and "Tensor Parallelism": batch 1, prompt of 5 tokens,
/// bf16, 8 A100-80GB limited to 330 W. Here: the pass in the middle of its 200 output tokens.
/// <https://github.com/pytorch-labs/gpt-fast>
const GPT_FAST: [(&str, u32, f64); 10] = [
    ("llama-2-7b", 1, 104.9),
    ("llama-2-7b", 2, 168.84),
    ("llama-2-7b", 4, 254.02),
    ("llama-2-7b", 8, 328.43),
    ("llama-2-70b", 2, 21.32),
    ("llama-2-70b", 4, 38.01),
    ("llama-2-70b", 8, 62.50),
    ("mixtral-8x7b", 2, 78.75),
    ("mixtral-8x7b", 4, 118.23),
    ("mixtral-8x7b", 8, 203.69),
];

fn priced_ms(model: &ModelDescription, device_key: &str, count: u32, shape: &PassShape) -> f64 {
    let device = device(device_key).expect("a preset");
    let usage = Usage { count, ..Usage::default() };
    Roofline::new(model, &device, &usage).expect("good").pass_s(shape) * 1e3
}

fn decode(rows: u32, kv_tokens: u64) -> PassShape {
    PassShape { decode_rows: rows, decode_kv_tokens: kv_tokens, ..PassShape::default() }
}

fn prefill(rows: u32, tokens: u64) -> PassShape {
    let squares = u128::from(rows) * u128::from(tokens) * u128::from(tokens);
    PassShape {
        extend_rows: rows,
        extend_tokens: u64::from(rows) * tokens,
        extend_attention: squares,
        extend_squares: squares,
        ..PassShape::default()
    }
}

/// Checks a ratio. One model of experts is bounded apart: what a few tokens leave unread is not all saved on a real device.
fn check(what: &str, key: &str, priced_ms: f64, measured_ms: f64) {
    let ratio = priced_ms / measured_ms;
    let bounds = if key == "mixtral-8x7b" { 0.70..1.0 } else { 0.80..1.10 };
    assert!(bounds.contains(&ratio), "{what} {key}: {priced_ms:.2} ms of {measured_ms:.2} ms, ratio {ratio:.2}");
}

#[test]
fn decode_at_batch_1_on_a100() {
    for (key, count, tokens_per_s) in GPT_FAST {
        let model = model(key).expect("a preset");
        check("gpt-fast", key, priced_ms(&model, "a100-sxm-80gb", count, &decode(1, 105)), 1e3 / tokens_per_s);
    }
}

/// InternLM/lmdeploy, docs/en/benchmark/a100_fp16.md, "Static Inference Benchmark", A100-80G, v0.1.0a1: the first-token latency of
/// a single prompt of 2,048 tokens, and the median time of an output token.
/// <https://github.com/InternLM/lmdeploy>
#[test]
fn prefill_and_batched_decode_on_a100() {
    let cases = [
        ("llama-2-7b", 1, prefill(1, 2048), 139.0),
        ("llama-2-7b", 1, decode(16, 16 * 192), 11.0),
        ("llama-2-7b", 1, decode(64, 64 * 65), 12.0),
        ("llama-2-7b", 1, decode(16, 16 * 2112), 20.0),
        ("llama-2-70b", 4, prefill(1, 2048), 402.0),
        ("llama-2-70b", 4, decode(1, 192), 29.0),
        ("llama-2-70b", 4, decode(16, 16 * 192), 30.0),
    ];
    for (key, count, shape, measured_ms) in cases {
        let model = model(key).expect("a preset");
        check("lmdeploy", key, priced_ms(&model, "a100-sxm-80gb", count, &shape), measured_ms);
    }
}

/// NVIDIA NIM LLM benchmarking guide, "Performance", Llama-3.3-70b-instruct 1.8.0, two H100 80G, fp8, 5,000 tokens in and 500 out,
/// concurrency 1: TTFT 406.77 ms, ITL 18.58 ms. The model has the sizes of Llama-3.1-70B.
/// <https://docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance.md>
#[test]
fn fp8_on_h100() {
    let bf16 = model("llama-3.1-70b").expect("a preset");
    let fp8 = ModelDescription { weight_bytes: 1.0, embedding_bytes: 2.0, compute_type: ComputeType::Fp8, ..bf16 };
    check("NIM TTFT", "llama-3.3-70b", priced_ms(&fp8, "h100-sxm", 2, &prefill(1, 5000)), 406.77);
    check("NIM ITL", "llama-3.3-70b", priced_ms(&fp8, "h100-sxm", 2, &decode(1, 5250)), 18.58);
}

/// vLLM performance benchmark, build 9515, "Latency tests", H200: batches of 8 with 32 tokens in and 128 out, the whole batch.
/// Llama 3 70B has the sizes of Llama-3.1-70B.
/// <https://buildkite.com/vllm/performance-benchmark/builds/9515>
#[test]
fn whole_batches_on_h200() {
    for (key, count, measured_ms) in
        [("llama-3.1-8b", 1, 833.42), ("llama-3.1-70b", 4, 2077.53), ("mixtral-8x7b", 2, 1917.44)]
    {
        let model = model(key).expect("a preset");
        let passes = (1..128).map(|produced| priced_ms(&model, "h200-sxm", count, &decode(8, 8 * (32 + produced))));
        let first = priced_ms(&model, "h200-sxm", count, &prefill(8, 32));
        check("vLLM", key, first + passes.sum::<f64>(), measured_ms);
    }
}

//! `linear`: a pass costs a fixed time and so much for each token and row, apart for extend and decode.

use servesim_engine::timing::{PassShape, TimingError, TimingModel, checked_ns};

use super::{NS_PER_US, decode_rows_folded};

/// The costs, each in microseconds and at least 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Linear {
    /// An extend pass.
    pub extend_pass_us: f64,
    /// A token that a prefill row computes.
    pub extend_new_token_us: f64,
    /// A token that a prefill row finds cached.
    pub extend_cached_token_us: f64,
    /// A prefill row.
    pub extend_row_us: f64,
    /// A new token times a token of context after it.
    pub extend_attention_us: f64,
    /// A decode pass.
    pub decode_pass_us: f64,
    /// A decode row, which is one new token.
    pub decode_row_us: f64,
    /// A KV token that a decode row reads.
    pub decode_kv_token_us: f64,
}

impl Linear {
    /// The names of the costs in a scenario, in the order of [`Linear::costs`].
    pub const NAMES: [&str; 8] = [
        "extend_pass_us",
        "extend_new_token_us",
        "extend_cached_token_us",
        "extend_row_us",
        "extend_attention_us",
        "decode_pass_us",
        "decode_row_us",
        "decode_kv_token_us",
    ];

    /// From the costs in the order of [`Linear::NAMES`].
    pub fn new(costs: [f64; 8]) -> Linear {
        let [
            extend_pass_us,
            extend_new_token_us,
            extend_cached_token_us,
            extend_row_us,
            extend_attention_us,
            decode_pass_us,
            decode_row_us,
            decode_kv_token_us,
        ] = costs;
        Linear {
            extend_pass_us,
            extend_new_token_us,
            extend_cached_token_us,
            extend_row_us,
            extend_attention_us,
            decode_pass_us,
            decode_row_us,
            decode_kv_token_us,
        }
    }

    /// The costs in the order of [`Linear::NAMES`].
    pub fn costs(&self) -> [f64; 8] {
        [
            self.extend_pass_us,
            self.extend_new_token_us,
            self.extend_cached_token_us,
            self.extend_row_us,
            self.extend_attention_us,
            self.decode_pass_us,
            self.decode_row_us,
            self.decode_kv_token_us,
        ]
    }

    /// What the pass takes, in microseconds.
    pub fn pass_us(&self, shape: &PassShape) -> f64 {
        if shape.extend_rows == 0 {
            return self.decode_pass_us
                + self.decode_row_us * f64::from(shape.decode_rows)
                + self.decode_kv_token_us * shape.decode_kv_tokens as f64;
        }
        let shape = decode_rows_folded(shape);
        self.extend_pass_us
            + self.extend_new_token_us * shape.extend_tokens as f64
            + self.extend_cached_token_us * shape.cached_tokens as f64
            + self.extend_row_us * f64::from(shape.extend_rows)
            + self.extend_attention_us * shape.extend_attention as f64
    }
}

impl TimingModel for Linear {
    fn duration_ns(&mut self, shape: &PassShape) -> Result<u64, TimingError> {
        checked_ns(self.pass_us(shape) * NS_PER_US)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: [f64; 8] = [1000.0, 2.0, 0.5, 10.0, 0.001, 3000.0, 20.0, 0.25];

    #[test]
    fn costs_add_up() {
        let mut linear = Linear::new(COSTS);
        assert_eq!(linear.costs(), COSTS);
        let extend = PassShape {
            extend_rows: 2,
            extend_tokens: 300,
            cached_tokens: 40,
            extend_attention: 50_000,
            ..PassShape::default()
        };
        // 1000 + 600 + 20 + 20 + 50 us.
        assert_eq!(linear.duration_ns(&extend), Ok(1_690_000));
        let decode = PassShape { decode_rows: 4, decode_kv_tokens: 1_001, ..PassShape::default() };
        // 3000 + 80 + 250.25 us.
        assert_eq!(linear.duration_ns(&decode), Ok(3_330_250));
        // The decode rows are 4 rows with 4 new and 997 cached tokens: + 8 + 498.5 + 40 + 1.001 us.
        let mixed = PassShape { decode_rows: 4, decode_kv_tokens: 1_001, ..extend };
        assert_eq!(linear.duration_ns(&mixed), Ok(2_237_501));
    }

    #[test]
    fn a_sum_that_is_no_time_is_refused() {
        let mut linear = Linear { decode_pass_us: f64::INFINITY, ..Linear::default() };
        let decode = PassShape { decode_rows: 1, ..PassShape::default() };
        assert!(matches!(linear.duration_ns(&decode), Err(TimingError::NotFinite { .. })));
        assert_eq!(linear.duration_ns(&PassShape { extend_rows: 1, ..PassShape::default() }), Ok(0));
    }
}

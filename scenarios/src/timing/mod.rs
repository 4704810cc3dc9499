//! Timing models: how long a pass takes, from the sums of its shape. `docs/timing.md` has the formulae.
//!
//! - [`linear`]: a sum of costs per pass, token and row.
//! - [`table`]: measured passes on a grid, interpolated.
//! - [`roofline`]: from a description of the model and of the device.
//! - [`host`]: what the host spends on a pass, over any of them.
//! - [`measured`]: files of measured passes, in CSV or Parquet.
//! - [`fit`]: a linear model or a table from measured passes.
//!
//! The model `constant` is the engine's own. All models compute in 64-bit floats with `+ - * /` and `libm`, and round the sum of
//! a pass to the nearest nanosecond, so that every machine gives the same bits.

pub mod fit;
pub mod host;
pub mod linear;
pub mod measured;
pub mod roofline;
pub mod table;

use servesim_engine::timing::PassShape;

/// Nanoseconds in a microsecond.
pub const NS_PER_US: f64 = 1e3;
/// Nanoseconds in a millisecond.
pub const NS_PER_MS: f64 = 1e6;

/// An extend pass as a model sees it that knows no mixed batches: SGLang runs the decode rows of a mixed batch as prefill rows of
/// one new token, whose other KV tokens are cached.
pub(crate) fn decode_rows_folded(shape: &PassShape) -> PassShape {
    if shape.extend_rows == 0 || shape.decode_rows == 0 {
        return *shape;
    }
    let rows = u64::from(shape.decode_rows);
    PassShape {
        extend_rows: shape.extend_rows + shape.decode_rows,
        extend_tokens: shape.extend_tokens + rows,
        cached_tokens: shape.cached_tokens + shape.decode_kv_tokens.saturating_sub(rows),
        extend_attention: shape.extend_attention + u128::from(shape.decode_kv_tokens),
        extend_squares: shape.extend_squares + u128::from(rows),
        decode_rows: 0,
        decode_kv_tokens: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_rows_of_a_mixed_pass_become_rows_of_one_token() {
        let mixed = PassShape {
            extend_rows: 1,
            extend_tokens: 10,
            cached_tokens: 5,
            extend_attention: 150,
            extend_squares: 100,
            decode_rows: 2,
            decode_kv_tokens: 30,
        };
        let folded = decode_rows_folded(&mixed);
        let expected = PassShape {
            extend_rows: 3,
            extend_tokens: 12,
            cached_tokens: 33,
            extend_attention: 180,
            extend_squares: 102,
            ..PassShape::default()
        };
        assert_eq!(folded, expected);
        let decode = PassShape { decode_rows: 2, decode_kv_tokens: 30, ..PassShape::default() };
        assert_eq!(decode_rows_folded(&decode), decode);
    }
}

//! The new-token ratio: how much of their `max_new_tokens` running requests are expected to use.

use crate::config::EngineConfig;

/// The ratio with its bounds (`behaviour.md` section 5). Decayed by repeated subtraction, so that it equals the reference bit
/// for bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewTokenRatio {
    start: f64,
    floor: f64,
    decay: f64,
    current: f64,
}

impl NewTokenRatio {
    pub(crate) fn new(config: &EngineConfig) -> NewTokenRatio {
        let start = (config.init_new_token_ratio * config.schedule_conservativeness).min(1.0);
        let floor = (start * config.min_new_token_ratio_factor).min(1.0);
        let decay = (start - floor) / f64::from(config.new_token_ratio_decay_steps);
        NewTokenRatio { start, floor, decay, current: start }
    }

    /// The ratio now, 0 to 1.
    pub fn current(&self) -> f64 {
        self.current
    }

    /// The ratio's bits, for the digest.
    pub(crate) fn bits(&self) -> u64 {
        self.current.to_bits()
    }

    /// One decode pass without retraction.
    pub(crate) fn decay(&mut self) {
        self.current = (self.current - self.decay).max(self.floor);
    }

    /// After a retraction: what the rows left have produced, plus room for `steps` more each, over what they may produce.
    pub(crate) fn retracted(&mut self, rows: u64, produced: u64, max_new_tokens: u64, steps: u32) {
        let expected = (produced + u64::from(steps) * rows) as f64;
        self.current = (expected / (max_new_tokens + 1) as f64).min(1.0);
    }

    /// Back to the start value, when the worker is idle.
    pub(crate) fn reset(&mut self) {
        self.current = self.start;
    }
}

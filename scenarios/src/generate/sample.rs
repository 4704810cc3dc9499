//! Random draws that are the same on every machine.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::Span;

/// A source of draws, named by a seed and a stream number.
#[derive(Clone, Debug)]
pub struct Sampler(ChaCha8Rng);

impl Sampler {
    /// Stream `stream` of the draws of `seed`; streams are independent.
    pub fn new(seed: u64, stream: u64) -> Sampler {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(stream);
        Sampler(rng)
    }

    /// A whole number of `span`, all equally likely up to 2^-32.
    pub fn uniform(&mut self, span: Span) -> u32 {
        let values = u64::from(span.high.saturating_sub(span.low)) + 1;
        let scaled = (u128::from(self.0.next_u64()) * u128::from(values)) >> 64;
        span.low + scaled as u32
    }

    /// A number above 0 and at most 1.
    fn unit(&mut self) -> f64 {
        // 53 bits fill a double's mantissa exactly.
        ((self.0.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A draw from the log-normal distribution with this median and this standard deviation of the logarithm.
    pub fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        // Box and Muller's transform; `libm` is code, not the platform's, so every machine gets the same bits.
        let radius = libm::sqrt(-2.0 * libm::log(self.unit()));
        let normal = radius * libm::cos(std::f64::consts::TAU * self.unit());
        median * libm::exp(sigma * normal)
    }

    /// A draw from the exponential distribution with this mean.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_of_a_seed_are_fixed() {
        let mut sampler = Sampler::new(7, 3);
        let draws: Vec<u32> = (0..4).map(|_| sampler.uniform(Span::new(1, 1000))).collect();
        let log_normal = sampler.log_normal(140.0, 1.62).to_bits();
        let mut again = Sampler::new(7, 3);
        assert_eq!(draws, (0..4).map(|_| again.uniform(Span::new(1, 1000))).collect::<Vec<_>>());
        assert_eq!(log_normal, again.log_normal(140.0, 1.62).to_bits());
        // Written down once, so that a change of the generator or of the mathematics shows.
        assert_eq!(draws, PINNED);
        let mut other = Sampler::new(7, 4);
        assert_ne!(draws, (0..4).map(|_| other.uniform(Span::new(1, 1000))).collect::<Vec<_>>());
    }

    const PINNED: [u32; 4] = [663, 505, 737, 44];

    #[test]
    fn draws_have_the_shape_they_claim() {
        let mut sampler = Sampler::new(1, 0);
        let mut values: Vec<f64> = (0..20_001).map(|_| sampler.log_normal(140.0, 1.62)).collect();
        values.sort_by(f64::total_cmp);
        assert!((values[10_000] / 140.0 - 1.0).abs() < 0.05, "median {}", values[10_000]);
        let one_sigma = libm::log(values[16_826] / values[10_000]);
        assert!((one_sigma / 1.62 - 1.0).abs() < 0.05, "sigma {one_sigma}");
        let mean = (0..20_000).map(|_| sampler.exponential(3.0)).sum::<f64>() / 20_000.0;
        assert!((mean / 3.0 - 1.0).abs() < 0.05, "mean {mean}");
        assert!((0..1000).all(|_| (5..=9).contains(&sampler.uniform(Span::new(5, 9)))));
    }
}

//! What the tests share: where the recorded runs and the traces are, a plain model of the engine, random cases.

pub mod compare;
pub mod files;
pub mod mirror;
pub mod random_case;
pub mod twin;

/// The first seed and how many random cases a test tries: `SERVESIM_SEED` and `SERVESIM_SCENARIOS`, or 1 and `usual`.
pub fn rounds(usual: u64) -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    (number("SERVESIM_SEED").unwrap_or(1), number("SERVESIM_SCENARIOS").unwrap_or(usual))
}

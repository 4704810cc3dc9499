//! The probe: the host's monotonic clock, with the processor's counters where they are wanted and there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quanta::Clock;
use servesim_engine::laps::{Probe, Reading};

use super::counters::Counters;

/// Rounds of the calibration, of which the median counts.
const ROUNDS: usize = 33;
/// Readings in a row in each round.
const READINGS: u64 = 300;

/// Reads the clock, and the counters if there are any.
pub struct HostProbe {
    clock: Clock,
    base: u64,
    counters: Option<Counters>,
    /// One call in so many is read by system.
    every: u64,
    calls: u64,
    /// The last reading, for who wants to know when a call ended.
    last_ns: Arc<AtomicU64>,
}

impl HostProbe {
    /// A probe that reads 0 ns now, and one call in `every` by system.
    pub fn new(counters: Option<Counters>, every: u64) -> HostProbe {
        let clock = Clock::new();
        let base = clock.raw();
        HostProbe { clock, base, counters, every: every.max(1), calls: 0, last_ns: Arc::default() }
    }

    /// Where the time of the last reading is to be found, in nanoseconds since the probe was made.
    pub fn last_ns(&self) -> Arc<AtomicU64> {
        self.last_ns.clone()
    }

    /// What one reading costs, itself measured with readings.
    pub fn calibrate(&mut self) -> Reading {
        let mut rounds: Vec<Reading> = (0..ROUNDS).map(|_| self.round()).collect();
        let mut median = |of: fn(&Reading) -> u64| {
            rounds.sort_unstable_by_key(of);
            of(&rounds[ROUNDS / 2]) / READINGS
        };
        Reading {
            host_ns: median(|round| round.host_ns),
            instructions: median(|round| round.instructions),
            cycles: median(|round| round.cycles),
        }
    }

    fn round(&mut self) -> Reading {
        let started = self.read();
        for _ in 1..READINGS {
            std::hint::black_box(self.read());
        }
        self.read().since(started)
    }
}

impl Probe for HostProbe {
    fn read(&mut self) -> Reading {
        let host_ns = self.clock.delta_as_nanos(self.base, self.clock.raw());
        self.last_ns.store(host_ns, Ordering::Relaxed);
        match &mut self.counters {
            None => Reading { host_ns, ..Reading::default() },
            Some(counters) => counters.read(host_ns),
        }
    }

    fn reads_systems(&mut self) -> bool {
        self.calls += 1;
        // Scattered, since calls come in patterns: an extend batch, a stride, an extend batch.
        self.every == 1 || mixed(self.calls).is_multiple_of(self.every)
    }
}

/// The finalizer of splitmix64: neighbours come out far apart.
fn mixed(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_go_back_and_a_reading_costs_something_but_not_much() {
        let mut probe = HostProbe::new(None, 1);
        let last_ns = probe.last_ns();
        let mut last = probe.read();
        for _ in 0..10_000 {
            let now = probe.read();
            assert!(now.host_ns >= last.host_ns && now.instructions == 0 && now.cycles == 0);
            last = now;
        }
        assert_eq!(last_ns.load(Ordering::Relaxed), last.host_ns);
        let cost = probe.calibrate();
        assert!(cost.host_ns < 100_000, "{cost:?}");
    }

    #[test]
    fn one_call_in_so_many_is_read_by_system() {
        for every in [1, 2, 8, 100] {
            let mut probe = HostProbe::new(None, every);
            let read = (0..100_000).filter(|_| probe.reads_systems()).count() as f64;
            assert!((read * every as f64 / 100_000.0 - 1.0).abs() < 0.1, "{read} of 100,000 at 1 in {every}");
        }
    }
}

//! The probe: the host's monotonic clock, with the processor's counters where they are wanted and there.

use servesim_engine::laps::{Probe, Reading};

use super::clock::HostClock;
use super::counters::Counters;

/// Rounds of the calibration, of which the median counts.
const ROUNDS: usize = 15;
/// Readings in a row in each round.
const READINGS: u64 = 100;

/// Reads the clock, and the processor's counters if there are any.
pub struct HostProbe {
    clock: HostClock,
    counters: Option<Counters>,
    /// One call in so many is read by system.
    every: u64,
    /// Calls until the next of them.
    calls_left: u64,
    /// Those so far.
    picked: u64,
}

impl HostProbe {
    /// A probe that reads one call in `every` by system.
    pub fn new(clock: HostClock, counters: Option<Counters>, every: u64) -> HostProbe {
        let every = every.clamp(1, u64::MAX / 2);
        let mut probe = HostProbe { clock, counters, every, calls_left: 0, picked: 0 };
        probe.pick();
        probe
    }

    /// What one reading costs, itself measured with readings.
    pub fn calibrate(&mut self) -> Reading {
        let mut rounds: Vec<Reading> = (0..ROUNDS).map(|_| self.round()).collect();
        let mut median = |of: fn(&Reading) -> u64| {
            rounds.sort_unstable_by_key(of);
            (of(&rounds[ROUNDS / 2]) + READINGS / 2) / READINGS
        };
        Reading {
            host_ns: median(|round| round.host_ns),
            instructions: median(|round| round.instructions),
            cycles: median(|round| round.cycles),
        }
    }

    /// Picks the next call that is read by system. They are scattered, since calls come in patterns: an extend batch, a stride,
    /// an extend batch. The mean of 1 to 2n - 1 is n.
    fn pick(&mut self) {
        self.picked += 1;
        self.calls_left = 1 + mixed(self.picked) % (2 * self.every - 1);
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
        let host_ns = self.clock.now_ns();
        match &mut self.counters {
            None => Reading { host_ns, ..Reading::default() },
            Some(counters) => counters.read(host_ns),
        }
    }

    fn reads_systems(&mut self) -> bool {
        self.calls_left -= 1;
        if self.calls_left > 0 {
            return false;
        }
        self.pick();
        true
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
    use super::super::clock::Moment;
    use super::*;

    fn probe(every: u64) -> HostProbe {
        HostProbe::new(HostClock::since(&Moment::now()), None, every)
    }

    #[test]
    fn time_does_not_go_back_and_a_reading_costs_something_but_not_much() {
        let mut probe = probe(1);
        let mut last = probe.read();
        for _ in 0..10_000 {
            let now = probe.read();
            assert!(now.host_ns >= last.host_ns && now.instructions == 0 && now.cycles == 0);
            last = now;
        }
        let cost = probe.calibrate();
        assert!(cost.host_ns < 100_000, "{cost:?}");
    }

    #[test]
    fn one_call_in_so_many_is_read_by_system() {
        assert!(!probe(u64::MAX).reads_systems() && probe(0).reads_systems());
        for every in [1, 2, 8, 100] {
            let mut probe = probe(every);
            let read = (0..100_000).filter(|_| probe.reads_systems()).count() as f64;
            assert!((read * every as f64 / 100_000.0 - 1.0).abs() < 0.1, "{read} of 100,000 at 1 in {every}");
        }
    }
}

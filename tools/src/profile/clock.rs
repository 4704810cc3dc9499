//! The host's monotonic clock: the processor's time stamp counter where the kernel keeps time by it, else what the standard
//! library reads, at some 25 ns a reading instead of 10.

use std::time::{Duration, Instant};

/// The least time between the two ends of the calibration. Each is known to some 20 ns, so that the rate is off by 1 in 10,000 at
/// most.
const CALIBRATION: Duration = Duration::from_micros(400);
/// Fractional bits of the rate.
const FRACTION: u32 = 32;

/// A moment on both clocks, to calibrate one by the other.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    instant: Instant,
    ticks: Option<u64>,
}

impl Moment {
    /// Now.
    pub fn now() -> Moment {
        Moment::read(counter::keeps_time())
    }

    fn read(with_ticks: bool) -> Moment {
        if !with_ticks {
            return Moment { instant: Instant::now(), ticks: None };
        }
        // Of some readings, the one whose counts lie closest together: nothing came between.
        let reading = || {
            let before = counter::ticks();
            let instant = Instant::now();
            let took = counter::ticks().saturating_sub(before);
            (took, Moment { instant, ticks: Some(before + took / 2) })
        };
        let (_, moment) =
            (1..8).map(|_| reading()).fold(reading(), |best, next| if next.0 < best.0 { next } else { best });
        moment
    }
}

/// A clock that shows nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub enum HostClock {
    /// The time stamp counter.
    Ticks {
        /// Its count at 0.
        base: u64,
        /// Nanoseconds a tick, in units of 2^-32.
        rate: u64,
    },
    /// The standard library's.
    Instant(Instant),
}

impl HostClock {
    /// A clock that shows 0 now. Its rate is that since `start`; if that is too short ago, this waits.
    pub fn since(start: &Moment) -> HostClock {
        while start.instant.elapsed() < CALIBRATION {
            std::hint::spin_loop();
        }
        let now = Moment::read(start.ticks.is_some());
        match (start.ticks, now.ticks) {
            (Some(from), Some(to)) if to > from => {
                let ns = now.instant.duration_since(start.instant).as_nanos();
                let rate = (ns << FRACTION) / u128::from(to - from);
                HostClock::Ticks { base: to, rate: u64::try_from(rate).unwrap_or(u64::MAX) }
            }
            _ => HostClock::Instant(now.instant),
        }
    }

    /// Nanoseconds since it was made.
    pub fn now_ns(&self) -> u64 {
        match *self {
            HostClock::Ticks { base, rate } => {
                let ticks = counter::ticks().saturating_sub(base);
                ((u128::from(ticks) * u128::from(rate)) >> FRACTION) as u64
            }
            HostClock::Instant(base) => elapsed_ns(base),
        }
    }
}

/// Kept out of line, so that a reading of the counter has no registers to save.
#[inline(never)]
fn elapsed_ns(base: Instant) -> u64 {
    base.elapsed().as_nanos() as u64
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod counter {
    /// Whether the kernel keeps time by the counter: it watches that it is steady, and the same on all cores.
    pub fn keeps_time() -> bool {
        let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        source.is_ok_and(|source| source.trim() == "tsc")
    }

    /// The counter.
    #[allow(unsafe_code)]
    pub fn ticks() -> u64 {
        // SAFETY: it only reads a register; where the kernel keeps time by it, the kernel's clock reads it, too.
        unsafe { std::arch::x86_64::_rdtsc() }
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod counter {
    /// Nobody says so here.
    pub fn keeps_time() -> bool {
        false
    }

    /// Never read.
    pub fn ticks() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_as_the_systems_clock_and_not_back() {
        let start = Moment::now();
        for clock in [HostClock::since(&start), HostClock::Instant(Instant::now())] {
            let mut last_ns = clock.now_ns();
            // A machine that is interrupted between two readings shows more on one clock: the best of some tries counts.
            let off = |_| {
                let (from, from_ns) = (Instant::now(), clock.now_ns());
                while from.elapsed() < Duration::from_millis(10) {
                    let now_ns = clock.now_ns();
                    assert!(now_ns >= last_ns, "{clock:?}");
                    last_ns = now_ns;
                }
                ((clock.now_ns() - from_ns) as f64 / from.elapsed().as_nanos() as f64 - 1.0).abs()
            };
            let least = (0..10).map(off).fold(f64::INFINITY, f64::min);
            assert!(least < 0.001, "off by {least}: {clock:?}");
        }
    }

    #[test]
    fn a_rate_turns_ticks_into_nanoseconds() {
        let start = Moment { instant: Instant::now(), ticks: None };
        assert!(matches!(HostClock::since(&start), HostClock::Instant(_)), "no ticks, no rate");
        let half = HostClock::Ticks { base: u64::MAX, rate: 1 << 31 };
        assert_eq!(half.now_ns(), 0, "a count before its base is none");
        if counter::keeps_time() {
            let (before, half) = (counter::ticks(), HostClock::Ticks { base: 0, rate: 1 << 31 });
            let (shown_ns, after) = (half.now_ns(), counter::ticks());
            assert!((before / 2..=after / 2).contains(&shown_ns), "{before} {shown_ns} {after}");
        }
    }
}

//! Instructions and cycles of this process, where the kernel counts them. Linux alone has the call that is used.

use servesim_engine::laps::Reading;

pub use self::host::Counters;

#[cfg(target_os = "linux")]
mod host {
    use perf_event::events::Hardware;
    use perf_event::{Builder, Counter, Group};

    use super::Reading;

    /// A group of two counters of this thread, kernel work left out.
    pub struct Counters {
        group: Group,
        instructions: Counter,
        cycles: Counter,
    }

    impl Counters {
        /// Starts to count.
        ///
        /// # Errors
        /// A kernel or processor that does not count, or does not let this user.
        pub fn start() -> std::io::Result<Counters> {
            let mut group = Group::new()?;
            let instructions = group.add(&Builder::new(Hardware::INSTRUCTIONS))?;
            let cycles = group.add(&Builder::new(Hardware::CPU_CYCLES))?;
            group.enable()?;
            Ok(Counters { group, instructions, cycles })
        }

        /// The counts now, beside a time. A reading that fails counts nothing. Kept out of line, so that a reading of the clock
        /// alone has no registers to save.
        #[inline(never)]
        pub fn read(&mut self, host_ns: u64) -> Reading {
            let counts = self.group.read().ok();
            let of = |counter| counts.as_ref().and_then(|counts| counts.get(counter)).map_or(0, |entry| entry.value());
            Reading { host_ns, instructions: of(&self.instructions), cycles: of(&self.cycles) }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod host {
    use super::Reading;

    /// Counters of a system that has none.
    pub enum Counters {}

    impl Counters {
        /// There is nothing to start.
        ///
        /// # Errors
        /// Always.
        pub fn start() -> std::io::Result<Counters> {
            Err(std::io::Error::from(std::io::ErrorKind::Unsupported))
        }

        /// Cannot be called.
        pub fn read(&mut self, _host_ns: u64) -> Reading {
            match *self {}
        }
    }
}

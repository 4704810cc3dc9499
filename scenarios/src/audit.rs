//! The invariants of a run, checked after each iteration: those of the worker, and those that only who drives it can see.

use std::collections::BTreeSet;

use servesim_engine::check::Violation;

use crate::player::Played;

/// Watches a run, and keeps the first invariant that breaks.
#[derive(Debug, Default)]
pub struct Audit {
    in_flight: BTreeSet<u64>,
    now_ns: u64,
    first: Option<Violation>,
}

impl Audit {
    /// Notes an iteration.
    pub fn note(&mut self, played: &Played) {
        if self.first.is_none() {
            self.first = self.check(played).err();
        }
    }

    /// The first invariant that broke, if any has.
    pub fn first_violation(&self) -> Option<&Violation> {
        self.first.as_ref()
    }

    fn check(&mut self, played: &Played) -> Result<(), Violation> {
        played.worker.check()?;
        let broken = |invariant, detail| Err(Violation { invariant, detail });
        if played.now_ns < self.now_ns {
            return broken("time never goes back", format!("{} ns after {} ns", played.now_ns, self.now_ns));
        }
        self.now_ns = played.now_ns;
        for job in played.submitted {
            if !self.in_flight.insert(job.request.tag) {
                return broken("a request is submitted once", format!("request {}", job.request.tag));
            }
        }
        let record = played.record;
        let finished = record.finished.iter().map(|finished| finished.tag);
        let rejected = record.rejected.iter().map(|&(tag, _)| tag);
        for tag in finished.chain(rejected).chain(record.dropped.iter().copied()) {
            if !self.in_flight.remove(&tag) {
                return broken("a submitted request ends exactly once", format!("request {tag}"));
            }
        }
        if self.in_flight.len() as u64 != played.in_flight {
            let detail = format!("{} in flight, {} counted", self.in_flight.len(), played.in_flight);
            return broken("who is in flight is counted", detail);
        }
        Ok(())
    }
}

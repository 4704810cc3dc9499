//! Preemption, a part of `admit`: running requests make room for a preferred one (`behaviour.md` section 3).
//!
//! Reads the settings and the ratio; writes the running batch, the cache (by eviction too), the requests' progress, the budget
//! and the record.

use std::cmp::Reverse;

use bumpalo::Bump;

use crate::cache::Cache;
use crate::request::RequestKey;
use crate::requests::Requests;
use crate::running::Running;
use crate::systems::admit::{Admit, Budget};
use crate::systems::enter::preference;
use crate::systems::settle::free_slot;

impl Admit<'_> {
    /// Takes running requests of a worse priority until what they claim covers the request; none if it cannot be covered.
    pub(crate) fn preempt_for(&mut self, request: RequestKey, budget: &mut Budget, scratch: &Bump) -> bool {
        let config = &self.cache.config;
        let mut candidates = bumpalo::collections::Vec::new_in(scratch);
        candidates.extend(self.running.rows().iter().copied().filter(|&row| self.requests.get(row).finish.is_none()));
        candidates
            .sort_by_key(|&row| Reverse((preference(config, self.requests, row), self.requests.get(row).queue_entry)));
        let progress = self.requests.get(request);
        let tested = i64::from(progress.tested_total) - i64::from(progress.tested_prefix);
        let mut missing = (tested + self.clip(self.max_new(request))) as f64 - self.total(budget);
        let wanted = preference(config, self.requests, request);
        let mut taken = 0;
        for &row in &candidates {
            let better_by = preference(config, self.requests, row) - wanted;
            if better_by <= config.priority_scheduling_preemption_threshold {
                break;
            }
            taken += 1;
            missing -= self.claim(row);
            if missing <= 0.0 {
                break;
            }
        }
        if taken == 0 || missing > 0.0 {
            return false;
        }
        self.preempt(&candidates[..taken], budget);
        true
    }

    /// Releases running requests without insertion, in batch order.
    fn preempt(&mut self, chosen: &[RequestKey], budget: &mut Budget) {
        let rows = self.running.rows().len() as u64;
        let mut index = 0;
        let mut released = 0;
        while let Some(&request) = self.running.rows().get(index) {
            if !chosen.contains(&request) {
                index += 1;
                continue;
            }
            budget.total_offset -= self.claim(request);
            released += 1;
            let steps = u64::from(self.cache.config.retract_decode_steps);
            retract_row(self.cache, self.requests, self.running, index);
            self.cache.make_room((rows - released) * steps);
            self.record.retracted.push(self.requests.spec(request).tag);
            self.plan.preempted.push(request);
        }
    }
}

/// Releases the running row at `at` without insertion: nothing but its produced tokens stays.
pub(crate) fn retract_row(cache: &mut Cache, requests: &mut Requests, running: &mut Running, at: usize) -> RequestKey {
    let request = running.leave(requests, at, &mut cache.journal);
    let committed = running.committed(requests.get(request));
    cache.settle_pages(requests, request, committed);
    cache.release_without_insert(requests, request);
    free_slot(cache, requests, running, request);
    requests.update(request, &mut cache.journal, |progress| progress.retract());
    request
}

//! Making room for a better request at the cost of worse running ones.

use super::admission::Budget;
use super::model::Model;
use super::request::ReqId;

impl Model {
    /// Releases running requests that are worse enough until a waiting one fits. Answers whether it did.
    pub fn preempt_for(&mut self, budget: &mut Budget, id: ReqId) -> bool {
        let request = &self.requests[id];
        let mut short =
            (request.fill - request.prefix + request.max_new.min(self.settings.clip)) as f64 - self.total(budget);
        let mut chosen = Vec::new();
        for other in self.worst_first() {
            if self.rank(other) - self.rank(id) <= self.settings.preemption_threshold {
                break;
            }
            chosen.push(other);
            short -= self.claim(other);
            if short <= 0.0 {
                break;
            }
        }
        if chosen.is_empty() || short > 0.0 {
            return false;
        }
        self.preempt(budget, &chosen);
        true
    }

    fn worst_first(&self) -> Vec<ReqId> {
        let mut rows: Vec<ReqId> = self.running.rows.iter().copied().filter(|id| !self.requests[*id].ended()).collect();
        rows.sort_by_key(|id| std::cmp::Reverse((self.rank(*id), self.requests[*id].queued_at)));
        rows
    }

    /// Releases the chosen rows in the order of the batch, and they are queued again in that order. The reference queues several of
    /// one call in the order of a set of objects, which is not the same from run to run; any order is as right as another.
    fn preempt(&mut self, budget: &mut Budget, chosen: &[ReqId]) {
        let rows = self.running.rows.clone();
        let mut left = rows.len();
        for id in rows.iter().copied().filter(|id| chosen.contains(id)) {
            budget.promised -= self.claim(id);
            left -= 1;
            self.retract(id, left);
            budget.preempted.push(id);
        }
        self.running.rows.retain(|id| !chosen.contains(id));
    }
}

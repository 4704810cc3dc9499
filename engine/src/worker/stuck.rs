//! When a worker can make no progress, and what to say of it.

use super::Worker;
use crate::batch::BatchMode;
use crate::results;

impl Worker {
    /// Whether requests wait while nothing is under way that could ever let them in: the batch is latched full though no row
    /// runs, no chunk pends, nothing is held, no results are to come. Another iteration without an arrival would do the same
    /// again.
    pub fn is_stuck(&self) -> bool {
        let batches = &self.scheduler().batches;
        let running = &self.scheduler().running;
        let overlap = !self.config().disable_overlap_schedule;
        let quiet = batches.last.mode == BatchMode::Idle && !results::pending(batches, overlap);
        quiet
            && running.numbers.full
            && running.rows().is_empty()
            && running.numbers.chunked.is_none()
            && running.numbers.prefill_defer == 0
            && self.held().is_empty()
            && self.waiting().len() > 0
            && self.scheduler().inbox.asked.is_empty()
    }

    /// Who holds what, in words, for the error of a worker that can make no progress.
    pub fn describe_holders(&self) -> String {
        let (pool, tree) = (self.pool(), self.tree());
        let requests = &self.scheduler().requests;
        let running = &self.scheduler().running;
        let mut text = format!(
            "pool {} tokens, free {}, evictable {}, protected {}",
            pool.total_tokens(),
            pool.free_tokens(),
            tree.evictable_tokens(),
            tree.protected_tokens()
        );
        for (request, progress) in requests.iter().filter(|(_, progress)| progress.has_slot).take(4) {
            let (spec, tokens) = (requests.spec(request), running.committed(progress));
            text.push_str(&format!("; request {} holds {tokens} tokens", spec.tag));
        }
        for request in self.waiting().take(4) {
            let spec = requests.spec(request);
            text.push_str(&format!(
                "; request {} waits with {} prompt and at most {} new tokens",
                spec.tag, spec.prompt_tokens, spec.max_new_tokens
            ));
        }
        text
    }
}

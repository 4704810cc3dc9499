//! The prefill role of a disaggregated deployment: prompts only, held while their transfer runs.

use super::model::{Last, Model};
use super::request::{Batch, ReqId};

impl Model {
    /// The role's choice of the next batch: it never decodes.
    ///
    /// # Errors
    /// What the reference itself would fail at.
    pub fn choose_prefill_role(&mut self) -> Result<Option<Batch>, String> {
        self.drop_cancelled_chunk();
        self.running.full = false;
        if let Some(id) = self.chunked {
            self.keep_unfinished(id, true);
        }
        if let Last::Extend(mut batch) = self.last.clone() {
            self.filter_extended(&mut batch);
            self.last = Last::Extend(batch);
        }
        self.new_extend_batch()
    }

    /// Runs the role's batch, then looks at the transfers. Answers whose transfer has ended.
    pub fn run_prefill_role(&mut self, batch: Option<&Batch>) -> Vec<ReqId> {
        match batch {
            Some(batch) => {
                self.counter += batch.extend_tokens.unwrap_or(0);
                self.take_role_results(batch);
            }
            None => self.rest_prefill_role(),
        }
        let pass = self.pass;
        let (done, held): (Vec<_>, Vec<_>) =
            self.held.iter().copied().partition(|(id, since)| pass >= since + self.requests[*id].hold);
        self.held = held;
        let done: Vec<ReqId> = done.into_iter().map(|(id, _)| id).collect();
        for id in done.iter().copied() {
            self.requests[id].end = Some("length".to_string());
            self.release(id, true);
        }
        self.in_order_of_entry(&done)
    }

    fn take_role_results(&mut self, batch: &Batch) {
        for id in batch.rows.iter().copied() {
            let request = &mut self.requests[id];
            if request.middle_chunks > 0 {
                request.middle_chunks -= 1;
                continue;
            }
            request.say();
            // Its end comes with the transfer's.
            request.end = None;
            self.keep_unfinished(id, false);
            self.held.push((id, self.pass));
        }
        self.publish("prefill");
    }
}

//! Results of a batch, row by row.

use super::model::Model;
use super::request::{Batch, Kind, ReqId};

impl Model {
    /// Takes the results of a batch. Answers who ended by them.
    pub fn take_results(&mut self, batch: &Batch) -> Vec<ReqId> {
        let mut finished = Vec::new();
        for id in batch.rows.iter().copied() {
            let was_over = self.requests[id].ended();
            match batch.kind {
                Kind::Extend => self.take_extend_row(batch, id),
                Kind::Decode => self.take_decode_row(id),
            }
            if self.requests[id].ended() && !was_over {
                finished.push(id);
            }
        }
        match batch.kind {
            Kind::Extend => self.publish("prefill"),
            Kind::Decode => {
                self.decoded += 1;
                if self.decoded.is_multiple_of(self.settings.decode_log_interval) {
                    self.publish("decode_interval");
                }
            }
        }
        finished
    }

    fn take_extend_row(&mut self, batch: &Batch, id: ReqId) {
        let request = &mut self.requests[id];
        if request.retracted || request.ended() && request.middle_chunks <= 0 {
            return;
        }
        if request.middle_chunks > 0 {
            request.middle_chunks -= 1;
            return;
        }
        request.say();
        if request.ended() {
            self.release(id, true);
        } else if !batch.decoding.contains(&id) {
            self.keep_unfinished(id, false);
        }
    }

    fn take_decode_row(&mut self, id: ReqId) {
        let request = &mut self.requests[id];
        if request.ended() || request.retracted {
            // It ended or left while this batch was on its way.
            return;
        }
        request.say();
        if request.ended() {
            self.release(id, true);
        }
    }
}

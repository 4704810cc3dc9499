//! The running batch's next token: slots for it, and retraction when there are none.

use super::model::Model;
use super::request::{Kind, ReqId};

/// Tokens that a retraction makes room for, for each row that stays.
const RETRACT_STEPS: i64 = 20;

impl Model {
    /// Makes the running batch a decode batch; it may be empty afterwards.
    ///
    /// # Errors
    /// What the reference itself would fail at.
    pub fn prepare_decode(&mut self) -> Result<(), String> {
        let before = self.running.rows.len();
        self.filter_running();
        if self.running.rows.is_empty() {
            self.running.full = false;
            return Ok(());
        }
        if self.decode_fits(&self.running.rows.clone()) {
            self.ratio = f64::max(self.ratio - self.settings.ratio_step, self.settings.least_ratio);
        } else {
            self.retract_rows();
        }
        if self.running.rows.len() < before {
            self.running.full = false;
        }
        if self.running.rows.is_empty() {
            return Ok(());
        }
        self.running.kind = Kind::Decode;
        self.take_decode_slots()
    }

    /// Takes the slot of one more token for each running row.
    ///
    /// # Errors
    /// The pool has no slots; the reference stops there.
    pub fn take_decode_slots(&mut self) -> Result<(), String> {
        let rows = self.running.rows.clone();
        // The room that is made is a page a row, needed or not.
        self.make_room(rows.len() as i64 * self.settings.page);
        let need = self.decode_need(&rows);
        if need > self.free() {
            return Err(format!("decode out of memory: {need} tokens wanted, {} free", self.free()));
        }
        for id in rows {
            self.requests[id].computed += 1;
        }
        Ok(())
    }

    fn decode_need(&self, rows: &[ReqId]) -> i64 {
        let page = self.settings.page;
        rows.iter().filter(|id| self.requests[**id].computed % page == 0).count() as i64 * page
    }

    fn decode_fits(&mut self, rows: &[ReqId]) -> bool {
        let need = self.decode_need(rows);
        self.make_room(need);
        self.free() >= need
    }

    fn retract_rows(&mut self) {
        let mut stay = self.retraction_order();
        let mut retracted = Vec::new();
        let mut first = true;
        while first || !self.decode_fits(&stay) {
            if stay.len() == 1 {
                break;
            }
            first = false;
            if let Some(id) = stay.pop() {
                self.retract(id, stay.len());
                retracted.push(id);
            }
        }
        if stay.len() == 1 && !self.decode_fits(&stay) {
            // Even alone it does not fit.
            let id = stay.remove(0);
            self.requests[id].cancelled = true;
            self.retract(id, 0);
        }
        // The rows that stay stand in the order in which they were kept.
        self.running.rows = stay;
        self.ratio = self.ratio_after_retraction();
        for id in retracted {
            self.enqueue(id);
        }
    }

    /// The rows, those to keep first.
    fn retraction_order(&self) -> Vec<ReqId> {
        let mut rows = self.running.rows.clone();
        rows.sort_by_key(|id| {
            let request = &self.requests[*id];
            let rank = if self.settings.retract_by_priority { self.rank(*id) } else { 0 };
            (rank, -request.output_len(), request.prompt.len())
        });
        rows
    }

    /// Releases a running request without insertion.
    pub fn retract(&mut self, id: ReqId, rows_left: usize) {
        self.release(id, false);
        self.make_room(RETRACT_STEPS * rows_left as i64);
        let request = &mut self.requests[id];
        request.prefix = 0;
        request.matched = 0;
        request.middle_chunks = 0;
        request.retracted = true;
        request.retractions += 1;
    }

    fn ratio_after_retraction(&self) -> f64 {
        let rows = &self.running.rows;
        let produced: i64 = rows.iter().map(|id| self.requests[*id].output_len()).sum();
        let most: i64 = rows.iter().map(|id| self.requests[*id].max_new).sum();
        f64::min(1.0, (produced + RETRACT_STEPS * rows.len() as i64) as f64 / (most + 1) as f64)
    }
}

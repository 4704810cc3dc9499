//! What is written down of an iteration.

use servesim_scenarios::case::{BatchLog, Gauges, PassLog, RowLog};

use super::model::{Last, Model};
use super::request::{Batch, Kind, ReqId};

impl Model {
    /// The batch as it is written down.
    pub fn describe(&self, batch: &Batch) -> BatchLog {
        let row = |id: &ReqId| {
            let request = &self.requests[*id];
            let rid = request.rid.clone();
            if batch.kind == Kind::Extend && !batch.decoding.contains(id) {
                RowLog::Extend(rid, request.extend.0 as u64, request.extend.1 as u64)
            } else {
                RowLog::Decode((rid,))
            }
        };
        let mode = if batch.kind == Kind::Extend { "extend" } else { "decode" };
        BatchLog { mode: mode.to_string(), rows: batch.rows.iter().map(row).collect() }
    }

    /// The sizes as they are written down.
    pub fn gauges(&self) -> Gauges {
        Gauges {
            free: self.free() as u64,
            ratio: round_nine(self.ratio),
            evictable: self.tree.as_ref().map(|tree| tree.evictable() as u64),
            protected: self.tree.as_ref().map(|tree| tree.protected() as u64),
        }
    }

    /// The waiting queue, when it is not as it was last written down.
    pub fn changed_waiting(&mut self) -> Option<Vec<String>> {
        let waiting: Vec<String> = self.waiting.iter().map(|id| self.requests[*id].rid.clone()).collect();
        if self.logged_waiting.as_ref() == Some(&waiting) {
            return None;
        }
        self.logged_waiting = Some(waiting.clone());
        Some(waiting)
    }

    /// Who ended how. A request that is nowhere any more and has not ended was lost by preemption or by the queue limit.
    pub fn report_ends(&mut self, log: &mut PassLog, batch: Option<&Batch>, retracted: &[ReqId], finished: &[ReqId]) {
        let name = |id: &ReqId| self.requests[*id].rid.clone();
        let is_gone = |id: &&ReqId| !self.dropped.contains(id) && !self.rejected.contains(&self.requests[**id].rid);
        let mut rejected = self.rejected.clone();
        let mut dropped = self.dropped.clone();
        if !self.settings.prefill_role {
            let lost = self.present.iter().filter(is_gone).filter(|id| self.is_lost(**id, batch, retracted));
            let aborted = self.present.iter().filter(|id| !finished.contains(id) && self.is_aborted_and_out(**id));
            rejected.extend(lost.map(name));
            dropped.extend(aborted.copied());
        }
        log.rejected = rejected;
        log.dropped = dropped.iter().map(name).collect();
        log.retracted = retracted.iter().map(name).collect();
        log.finished = finished.iter().map(|id| self.describe_end(*id)).collect();
        let left: Vec<ReqId> = finished.iter().chain(&dropped).copied().collect();
        let requests = &self.requests;
        self.present.retain(|id| !left.contains(id) && !log.rejected.contains(&requests[*id].rid));
        self.dropped.clear();
        self.rejected.clear();
    }

    fn describe_end(&self, id: ReqId) -> (String, String, u64) {
        let request = &self.requests[id];
        let how = if self.settings.prefill_role { "transferred" } else { request.end.as_deref().unwrap_or("") };
        (request.rid.clone(), how.to_string(), request.produced.len() as u64)
    }

    fn is_lost(&self, id: ReqId, batch: Option<&Batch>, retracted: &[ReqId]) -> bool {
        let request = &self.requests[id];
        if request.ended() || request.cancelled {
            return false;
        }
        let in_last = matches!(&self.last, Last::Extend(last) if last.rows.contains(&id));
        let in_flight = in_last || self.launched.iter().any(|batch| batch.rows.contains(&id));
        let here = self.running.rows.contains(&id)
            || batch.is_some_and(|batch| batch.rows.contains(&id))
            || in_flight && !retracted.contains(&id);
        !here && !self.waiting.contains(&id) && self.chunked != Some(id)
    }

    fn is_aborted_and_out(&self, id: ReqId) -> bool {
        let request = &self.requests[id];
        let aborted = request.cancelled || request.end.as_deref() == Some("abort");
        let out = !self.running.rows.contains(&id) && !self.waiting.contains(&id) && self.chunked != Some(id);
        aborted && out && !self.launched.iter().any(|batch| batch.rows.contains(&id))
    }

    /// In the prefill role: those of `gone` in the order in which they entered.
    pub fn in_order_of_entry(&self, gone: &[ReqId]) -> Vec<ReqId> {
        self.present.iter().copied().filter(|id| gone.contains(id)).collect()
    }
}

/// Rounds to nine digits, as the recorder does.
pub fn round_nine(number: f64) -> f64 {
    format!("{number:.9}").parse().unwrap_or(number)
}

//! The columns of requests, intervals, sessions and turns. Times are simulated milliseconds from the start of the run, of
//! intervals seconds.

use super::table::{Cell, Column, Kind, Row};
use crate::metrics::request::EndedRequest;
use crate::metrics::tables::{RequestSums, SessionRow};
use crate::metrics::timeline::Sample;

const fn whole(name: &'static str) -> Column {
    Column { name, kind: Kind::Whole }
}

const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number }
}

const fn maybe(name: &'static str) -> Column {
    Column { name, kind: Kind::MaybeNumber }
}

fn ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

impl Row for EndedRequest {
    const COLUMNS: &'static [Column] = &[
        whole("id"),
        whole("session"),
        whole("turn"),
        number("submit_ms"),
        maybe("admit_ms"),
        maybe("first_token_ms"),
        number("end_ms"),
        whole("prompt_tokens"),
        whole("output_tokens"),
        whole("cached_tokens"),
        whole("retractions"),
        Column { name: "outcome", kind: Kind::Word },
        maybe("queue_time_ms"),
        maybe("ttft_ms"),
        maybe("tpot_ms"),
        number("e2e_latency_ms"),
    ];

    fn cells(&self, cells: &mut Vec<Cell>) {
        let progress = &self.progress;
        cells.extend([
            Cell::Whole(self.id),
            Cell::Whole(progress.session),
            Cell::Whole(progress.turn.into()),
            Cell::Number(ms(progress.submit_ns)),
            progress.admit_ns.map(ms).into(),
            progress.first_token_ns.map(ms).into(),
            Cell::Number(ms(self.end_ns)),
            Cell::Whole(progress.prompt_tokens.into()),
            Cell::Whole(self.output_tokens.into()),
            Cell::Whole(progress.cached_tokens.into()),
            Cell::Whole(progress.retractions.into()),
            Cell::Word(self.outcome.as_str()),
            self.queue_time_ns().map(ms).into(),
            self.ttft_ns().map(ms).into(),
            self.tpot_ns().map(ms).into(),
            Cell::Number(ms(self.e2e_latency_ns())),
        ]);
    }
}

impl Row for Sample {
    const COLUMNS: &'static [Column] = &[
        number("time_s"),
        whole("running"),
        whole("waiting"),
        whole("used_tokens"),
        whole("evictable_tokens"),
        whole("free_tokens"),
        number("token_usage"),
        whole("submitted"),
        whole("completed"),
        whole("retractions"),
        whole("prefill_tokens"),
        whole("decode_tokens"),
        whole("admitted_tokens"),
        whole("cached_tokens"),
        maybe("cache_hit_rate_pct"),
        whole("stored_events"),
        whole("stored_blocks"),
        whole("removed_events"),
        whole("removed_blocks"),
    ];

    fn cells(&self, cells: &mut Vec<Cell>) {
        let (state, sums) = (&self.state, &self.sums);
        let free_tokens = state.total_tokens.saturating_sub(state.used_tokens + state.evictable_tokens);
        let usage = if state.total_tokens == 0 { 0.0 } else { state.used_tokens as f64 / state.total_tokens as f64 };
        let admitted = sums.admitted_tokens;
        let hit_pct = (admitted > 0).then(|| sums.cached_tokens as f64 * 100.0 / admitted as f64);
        cells.extend([
            Cell::Number(self.end_ns as f64 / 1e9),
            Cell::Whole(state.running),
            Cell::Whole(state.waiting),
            Cell::Whole(state.used_tokens),
            Cell::Whole(state.evictable_tokens),
            Cell::Whole(free_tokens),
            Cell::Number(usage),
            Cell::Whole(sums.submitted),
            Cell::Whole(sums.completed),
            Cell::Whole(sums.retractions),
            Cell::Whole(sums.prefill_tokens),
            Cell::Whole(sums.decode_tokens),
            Cell::Whole(admitted),
            Cell::Whole(sums.cached_tokens),
            hit_pct.into(),
            Cell::Whole(sums.stored_events),
            Cell::Whole(sums.stored_blocks),
            Cell::Whole(sums.removed_events),
            Cell::Whole(sums.removed_blocks),
        ]);
    }
}

/// A turn with its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnRow {
    /// The turn, from 0.
    pub turn: u32,
    /// Sums over the requests of this turn of all sessions.
    pub sums: RequestSums,
}

fn push_sums(cells: &mut Vec<Cell>, sums: &RequestSums) {
    cells.extend([
        Cell::Whole(sums.requests),
        Cell::Whole(sums.completed),
        Cell::Whole(sums.input_tokens),
        Cell::Whole(sums.cached_tokens),
        Cell::Whole(sums.output_tokens),
        Cell::Whole(sums.retractions),
        Cell::Number(sums.cache_hit_rate_pct()),
        Cell::Number(sums.mean_ttft_ms()),
        Cell::Number(sums.mean_e2e_latency_ms()),
    ]);
}

impl Row for TurnRow {
    const COLUMNS: &'static [Column] = &[
        whole("turn"),
        whole("requests"),
        whole("completed"),
        whole("input_tokens"),
        whole("cached_tokens"),
        whole("output_tokens"),
        whole("retractions"),
        number("cache_hit_rate_pct"),
        number("mean_ttft_ms"),
        number("mean_e2e_latency_ms"),
    ];

    fn cells(&self, cells: &mut Vec<Cell>) {
        cells.push(Cell::Whole(self.turn.into()));
        push_sums(cells, &self.sums);
    }
}

impl Row for SessionRow {
    const COLUMNS: &'static [Column] = &[
        whole("session"),
        number("start_ms"),
        number("end_ms"),
        whole("requests"),
        whole("completed"),
        whole("input_tokens"),
        whole("cached_tokens"),
        whole("output_tokens"),
        whole("retractions"),
        number("cache_hit_rate_pct"),
        number("mean_ttft_ms"),
        number("mean_e2e_latency_ms"),
    ];

    fn cells(&self, cells: &mut Vec<Cell>) {
        cells.push(Cell::Whole(self.session));
        cells.extend([Cell::Number(ms(self.start_ns)), Cell::Number(ms(self.end_ns))]);
        push_sums(cells, &self.sums);
    }
}

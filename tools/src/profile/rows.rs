//! The file of passes: a row a call of the worker.

use servesim_engine::laps::Stage;
use servesim_scenarios::output::table::{Cell, Column, Kind, Row};

use super::call::{Call, named};

/// A call with what is only looked at when it is written.
pub struct PassRow {
    /// The call.
    pub call: Call,
    /// Variance over decode rows of the KV tokens that they read.
    pub var_decode_kv_tokens: f64,
    /// Whether instructions and cycles were counted.
    pub counters: bool,
}

const fn whole(name: &'static str) -> Column {
    Column { name, kind: Kind::Whole }
}

const fn number(name: &'static str) -> Column {
    Column { name, kind: Kind::Number }
}

const fn maybe(name: &'static str) -> Column {
    Column { name, kind: Kind::MaybeNumber }
}

impl Row for PassRow {
    const COLUMNS: &'static [Column] = &[
        whole("iteration"),
        whole("passes"),
        Column { name: "kind", kind: Kind::Word },
        number("simulated_ms"),
        whole("num_prefill_requests"),
        whole("sum_prefill_tokens"),
        number("var_prefill_length"),
        whole("sum_prefill_kv_tokens"),
        whole("num_decode_requests"),
        whole("sum_decode_kv_tokens"),
        number("var_decode_kv_tokens"),
        whole("num_queue_reqs"),
        whole("cache_nodes"),
        whole("evictable_leaves"),
        whole("kv_used_tokens"),
        whole("retracted"),
        whole("finished"),
        whole("total_ns"),
        maybe("enter_ns"),
        maybe("settle_ns"),
        maybe("order_ns"),
        maybe("admit_ns"),
        maybe("allocate_ns"),
        maybe("decode_ns"),
        maybe("price_ns"),
        maybe("commit_ns"),
        maybe("publish_ns"),
        maybe("observe_ns"),
        maybe("undo_ns"),
        maybe("stride_ns"),
        maybe("instructions"),
        maybe("cycles"),
        whole("nodes_walked"),
        whole("runs_compared"),
        whole("splits"),
        whole("leaves_added"),
        whole("leaves_evicted"),
        whole("journal_entries"),
        whole("requests_examined"),
        whole("tokens_matched"),
        whole("pages_taken"),
        whole("bytes_hashed"),
        whole("locks"),
        maybe("path_nodes"),
        whole("eviction_calls"),
        whole("eviction_leaves"),
        maybe("reference_ns"),
    ];

    fn cells(&self, cells: &mut Vec<Cell>) {
        let (shape, cost) = (&self.call.shape, &self.call.cost);
        cells.extend([
            Cell::Whole(shape.iteration),
            Cell::Whole(shape.passes),
            Cell::Word(shape.kind.as_str()),
            Cell::Number(shape.now_ns as f64 / 1e6),
            Cell::Whole(shape.num_prefill_requests),
            Cell::Whole(shape.sum_prefill_tokens),
            Cell::Number(shape.var_prefill_length),
            Cell::Whole(shape.sum_prefill_kv_tokens),
            Cell::Whole(shape.num_decode_requests),
            Cell::Whole(shape.sum_decode_kv_tokens),
            Cell::Number(self.var_decode_kv_tokens),
            Cell::Whole(shape.waiting),
            Cell::Whole(shape.cache_nodes),
            Cell::Whole(shape.evictable_leaves),
            Cell::Whole(shape.kv_used_tokens),
            Cell::Whole(shape.retracted),
            Cell::Whole(shape.finished),
            Cell::Whole(cost.total.host_ns),
        ]);
        let systems = Stage::ALL.map(|stage| cost.systems.map(|systems| systems[stage as usize].host_ns as f64));
        cells.extend(systems.map(Cell::from));
        let counted = |count: u64| Cell::from(self.counters.then_some(count as f64));
        cells.extend([counted(cost.total.instructions), counted(cost.total.cycles)]);
        // Paths to the root are counted in calls that are read by system alone.
        let counted_paths = |paths: u64| Cell::from(cost.systems.map(|_| paths as f64));
        cells.extend(named(&self.call.work).map(|(name, count)| match name {
            "path_nodes" => counted_paths(count),
            _ => Cell::Whole(count),
        }));
        cells.push(Cell::from(self.call.reference_ns));
    }
}

#[cfg(test)]
mod tests {
    use servesim_engine::laps::Reading;
    use servesim_engine::work::Work;

    use super::super::call::{Cost, Kind as CallKind, Shape};
    use super::*;

    #[test]
    fn each_column_has_its_cell() {
        let shape = Shape {
            num_prefill_requests: 2,
            iteration: 7,
            now_ns: 1_500_000,
            kind: CallKind::Extend,
            passes: 1,
            ..Shape::default()
        };
        let ns = |stage: Stage| Reading { host_ns: 100 + stage as u64, ..Reading::default() };
        let cost = Cost { systems: Some(Stage::ALL.map(ns)), ..Cost::default() };
        let work = Work { eviction_leaves: 9, ..Work::default() };
        let call = Call { shape, cost, work, reference_ns: Some(0.5) };
        let mut cells = Vec::new();
        PassRow { call, var_decode_kv_tokens: 0.0, counters: false }.cells(&mut cells);
        assert_eq!(cells.len(), PassRow::COLUMNS.len());
        let cell = |name: &str| {
            cells[PassRow::COLUMNS.iter().position(|column| column.name == name).expect("there is such a column")]
        };
        for stage in Stage::ALL {
            assert_eq!(cell(&format!("{}_ns", stage.as_str())), Cell::Number(100.0 + f64::from(stage as u8)));
        }
        for (name, _) in named(&work) {
            assert_eq!(matches!(cell(name), Cell::Whole(_)), name != "path_nodes", "{name}");
        }
        assert_eq!((cell("eviction_leaves"), cell("iteration")), (Cell::Whole(9), Cell::Whole(7)));
        assert_eq!((cell("kind"), cell("simulated_ms")), (Cell::Word("extend"), Cell::Number(1.5)));
        assert_eq!((cell("cycles"), cell("reference_ns")), (Cell::Missing, Cell::Number(0.5)));
    }
}

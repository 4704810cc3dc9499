//! One call of the worker: a pass, or a stride of decode passes, with its shape, its work and what it cost the host.

use servesim_engine::batch::BatchMode;
use servesim_engine::laps::{Reading, Spent, Stage};
use servesim_engine::record::PassRecord;
use servesim_engine::work::Work;
use servesim_engine::worker::Worker;

/// What a call ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Nothing.
    #[default]
    Idle,
    /// A prefill.
    Extend,
    /// A prefill with decode rows behind it.
    Mixed,
    /// One decode pass.
    Decode,
    /// Several decode passes that only count.
    Stride,
}

impl Kind {
    /// What a record says.
    pub fn of(record: &PassRecord) -> Kind {
        match record.mode {
            BatchMode::Idle => Kind::Idle,
            BatchMode::Extend if record.decode_rows > 0 => Kind::Mixed,
            BatchMode::Extend => Kind::Extend,
            BatchMode::Decode if record.passes > 1 => Kind::Stride,
            BatchMode::Decode => Kind::Decode,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Idle => "idle",
            Kind::Extend => "extend",
            Kind::Mixed => "mixed",
            Kind::Decode => "decode",
            Kind::Stride => "stride",
        }
    }
}

/// What a call ran and the sizes it met. The first seven numbers are named as in forward-pass metrics (FPM) version 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Shape {
    /// Prefill rows.
    pub num_prefill_requests: u64,
    /// Tokens that the prefill rows computed.
    pub sum_prefill_tokens: u64,
    /// Variance of the lengths of their prompts.
    pub var_prefill_length: f64,
    /// Tokens that the prefill rows found computed.
    pub sum_prefill_kv_tokens: u64,
    /// Decode rows; of a stride, of its last pass.
    pub num_decode_requests: u64,
    /// KV tokens that the decode rows read; of a stride, in its last pass.
    pub sum_decode_kv_tokens: u64,
    /// The iteration's number; of a stride, that of its last pass.
    pub iteration: u64,
    /// Simulated time after it, in nanoseconds.
    pub now_ns: u64,
    /// What it ran.
    pub kind: Kind,
    /// Passes that it stands for: more than 1 only for a stride.
    pub passes: u64,
    /// Requests that waited when it was chosen, new ones included.
    pub waiting: u64,
    /// Nodes of the cache after it.
    pub cache_nodes: u64,
    /// Leaves after it that could be evicted.
    pub evictable_leaves: u64,
    /// Tokens of the pool after it that are not free.
    pub kv_used_tokens: u64,
    /// Requests retracted or preempted.
    pub retracted: u64,
    /// Requests that finished.
    pub finished: u64,
}

impl Shape {
    /// The shape of the call that a worker has just done. `waited` is how many requests waited when it was chosen.
    pub fn of(worker: &Worker, waited: u64, now_ns: u64) -> Shape {
        let record = worker.record();
        let prompts = || record.extend.iter().filter_map(|row| worker.prompt_tokens(row.request)).map(f64::from);
        Shape {
            num_prefill_requests: record.extend.len() as u64,
            sum_prefill_tokens: record.extend.iter().map(|row| u64::from(row.end - row.prefix)).sum(),
            var_prefill_length: variance(prompts),
            sum_prefill_kv_tokens: record.extend.iter().map(|row| u64::from(row.prefix)).sum(),
            num_decode_requests: record.decode_rows.into(),
            sum_decode_kv_tokens: worker.decode_kv_tokens(),
            iteration: record.iteration,
            now_ns,
            kind: Kind::of(record),
            passes: record.passes.max(1),
            waiting: waited,
            cache_nodes: worker.tree().node_count() as u64,
            evictable_leaves: worker.tree().evictable_leaves() as u64,
            kv_used_tokens: worker.pool().total_tokens() - worker.pool().free_tokens(),
            retracted: record.retracted.len() as u64,
            finished: record.finished.len() as u64,
        }
    }

    /// Rows of the batch.
    pub fn rows(&self) -> u64 {
        self.num_prefill_requests + self.num_decode_requests
    }
}

/// The variance of a whole population; 0 when there is none.
pub fn variance<I: Iterator<Item = f64>>(values: impl Fn() -> I) -> f64 {
    let (count, sum) = values().fold((0.0, 0.0), |(count, sum), value| (count + 1.0, sum + value));
    if count < 2.0 {
        return 0.0;
    }
    let mean = sum / count;
    values().map(|value| (value - mean).powi(2)).sum::<f64>() / count
}

/// What a call cost the host, the cost of the readings taken off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// By system, in the order of [`Stage::ALL`], if it was read by system.
    pub systems: Option<[Reading; Stage::COUNT]>,
    /// From start to end.
    pub total: Reading,
}

impl Cost {
    /// Takes off what the readings cost: the time of calls holds all readings but the first of each.
    pub fn of(spent: &Spent, reading: Reading) -> Cost {
        let systems = (spent.calls_by_system > 0).then(|| {
            let mut systems = spent.stages;
            for (system, &readings) in systems.iter_mut().zip(&spent.readings_in) {
                *system = system.since(times(reading, readings));
            }
            systems
        });
        Cost { systems, total: total(spent, &Spent::default(), reading) }
    }

    /// By system with its name, if it was read by system; those that took no time are left out.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let systems = self.systems.unwrap_or_default();
        let named = Stage::ALL.into_iter().zip(systems).map(|(stage, cost)| (stage.as_str(), cost.host_ns));
        named.filter(|&(_, ns)| ns > 0)
    }
}

/// What calls took between two counts, the cost of all readings but the first of each call taken off.
pub fn total(spent: &Spent, earlier: &Spent, reading: Reading) -> Reading {
    let readings = (spent.readings - earlier.readings).saturating_sub(spent.calls - earlier.calls);
    spent.total.since(earlier.total).since(times(reading, readings))
}

/// What `count` readings cost.
pub fn times(reading: Reading, count: u64) -> Reading {
    Reading {
        host_ns: reading.host_ns * count,
        instructions: reading.instructions * count,
        cycles: reading.cycles * count,
    }
}

/// One call, whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Call {
    /// What it ran.
    pub shape: Shape,
    /// What it cost.
    pub cost: Cost,
    /// The work it was.
    pub work: Work,
    /// What the reference's scheduler would pay for that work, in nanoseconds, if it was read by system: its paths to the root
    /// are counted in no other.
    pub reference_ns: Option<f64>,
}

impl Call {
    /// Host nanoseconds a pass.
    pub fn ns_per_pass(&self) -> u64 {
        self.cost.total.host_ns / self.shape.passes
    }
}

/// The counts of work with their names, in the order of the files.
pub fn named(work: &Work) -> [(&'static str, u64); 14] {
    [
        ("nodes_walked", work.nodes_walked),
        ("runs_compared", work.runs_compared),
        ("splits", work.splits),
        ("leaves_added", work.leaves_added),
        ("leaves_evicted", work.leaves_evicted),
        ("journal_entries", work.journal_entries),
        ("requests_examined", work.requests_examined),
        ("tokens_matched", work.tokens_matched),
        ("pages_taken", work.pages_taken),
        ("bytes_hashed", work.bytes_hashed),
        ("locks", work.locks),
        ("path_nodes", work.path_nodes),
        ("eviction_calls", work.eviction_calls),
        ("eviction_leaves", work.eviction_leaves),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(host_ns: u64) -> Reading {
        Reading { host_ns, instructions: 2 * host_ns, cycles: 3 * host_ns }
    }

    #[test]
    fn the_cost_of_readings_is_taken_off() {
        let mut spent = Spent { total: ns(1_000), readings: 4, calls: 1, calls_by_system: 1, ..Spent::default() };
        let (settle, observe) = (Stage::Settle as usize, Stage::Observe as usize);
        (spent.stages[settle], spent.readings_in[settle]) = (ns(600), 1);
        (spent.stages[observe], spent.readings_in[observe]) = (ns(70), 2);
        let cost = Cost::of(&spent, ns(40));
        assert_eq!(cost.total, ns(1_000 - 3 * 40));
        let systems = cost.systems.expect("it was read by system");
        assert_eq!((systems[settle], systems[observe]), (ns(560), ns(0)), "not below nothing");
        assert_eq!(cost.named().collect::<Vec<_>>(), [("settle", 560)]);
        let unread = Spent { total: ns(90), readings: 2, calls: 1, ..Spent::default() };
        assert_eq!(Cost::of(&unread, ns(40)), Cost { systems: None, total: ns(50) });
    }

    #[test]
    fn variance_is_that_of_the_whole_population() {
        assert_eq!(variance(|| [2.0, 4.0, 9.0].into_iter()), 26.0 / 3.0);
        assert_eq!(variance(|| [7.0].into_iter()), 0.0);
        assert_eq!(variance(|| [].into_iter()), 0.0);
    }
}

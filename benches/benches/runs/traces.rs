//! Recorded traces. Claims: at most 5 µs a request on `agents16` and 12 on Mooncake's conversations at every page size, and at
//! most 2 s for all of Weka. Criterion measures wall time; on an idle machine it is the CPU time of these runs.

use criterion::{BenchmarkId, Criterion};
use servesim_scenarios::scenario::build::traces_folder;

use crate::{PAGE_SIZES, scenario, whole_run};

/// Whole traces, where there are any.
pub fn recorded(criterion: &mut Criterion) {
    let Some(folder) = traces_folder() else {
        eprintln!("skipped: SERVESIM_TRACES names no folder of traces");
        return;
    };
    let mut group = criterion.benchmark_group("trace_run");
    for (file, claim) in [
        ("agents16.toml", "agents16_at_most_5_us_a_request"),
        ("mooncake-conversation.toml", "mooncake_conversation_at_most_12_us_a_request"),
    ] {
        for page_size in PAGE_SIZES {
            let scenario = scenario(file, &folder, &[format!("engine.page_size={page_size}")]);
            whole_run(&mut group, BenchmarkId::new(claim, format!("page_{page_size}")), &scenario);
        }
    }
    let weka = scenario("weka.toml", &folder, &["engine.page_size=1".to_owned()]);
    whole_run(&mut group, BenchmarkId::new("weka_710_at_most_2_s", "page_1"), &weka);
    group.finish();
}

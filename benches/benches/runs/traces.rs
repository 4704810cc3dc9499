//! Recorded traces. Claims: at most 5 µs a request on `agents16` and 12 on Mooncake's conversations at every page size, and at
//! most 2 s for all of Weka. Criterion measures wall time; on an idle machine it is the CPU time of these runs.

use std::path::Path;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use servesim_scenarios::scenario::build::traces_folder;

use crate::{PAGE_SIZES, scenario, whole_run};

/// Whole traces. The one of `agents16` lies beside its scenario; the others are played where there is a folder of traces.
pub fn recorded(criterion: &mut Criterion) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios");
    let mut group = criterion.benchmark_group("trace_run");
    paged(&mut group, "agents16_at_most_5_us_a_request", "agents16.toml", &folder);
    if traces_folder().is_none() {
        eprintln!("skipped: Mooncake and Weka, since SERVESIM_TRACES names no folder of traces");
        return;
    }
    paged(&mut group, "mooncake_conversation_at_most_12_us_a_request", "mooncake-conversation.toml", &folder);
    let weka = scenario("weka.toml", &folder, &["engine.page_size=1".to_owned()]);
    whole_run(&mut group, BenchmarkId::new("weka_710_at_most_2_s", "page_1"), &weka);
    group.finish();
}

fn paged(group: &mut BenchmarkGroup<WallTime>, claim: &str, file: &str, folder: &Path) {
    for page_size in PAGE_SIZES {
        let scenario = scenario(file, folder, &[format!("engine.page_size={page_size}")]);
        whole_run(group, BenchmarkId::new(claim, format!("page_{page_size}")), &scenario);
    }
}

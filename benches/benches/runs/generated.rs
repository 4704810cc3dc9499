//! Generated sessions of coding agents, at three page sizes that should cost the same within 1.2 times.

use std::path::Path;

use criterion::{BenchmarkId, Criterion};

use crate::{PAGE_SIZES, scenario, whole_run};

/// 20,000 requests on 16 lanes, on a pool that is too small for all of them.
pub fn coding_agent(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("generated_run_page_sizes_within_1.2x");
    for page_size in PAGE_SIZES {
        let set = [
            format!("engine.page_size={page_size}"),
            "engine.max_total_tokens=393216".to_owned(),
            "workload.lanes=16".to_owned(),
            "workload.requests=20000".to_owned(),
        ];
        let scenario = scenario("coding-agent.toml", Path::new("."), &set);
        whole_run(&mut group, BenchmarkId::new("coding_agent_20k/page", page_size), &scenario);
    }
    group.finish();
}

//! Claim: a turn appended to a session of 200 turns costs what one appended to a session of 5 does, within 1.5 times.

use criterion::{BenchmarkId, Criterion};
use servesim_benches::session::Sessions;

/// A whole turn: content appended, request submitted, prefilled, 16 tokens decoded, inserted.
pub fn flat_in_the_turns_before(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("appended_turn_flat_within_1.5x");
    // A turn of a long session takes the unmeasured ones before it, so a sample holds few.
    group.sample_size(20);
    for page_size in [1, 16] {
        for turns in [5, 50, 200] {
            let mut sessions = Sessions::new(turns, page_size);
            group.bench_function(BenchmarkId::new(format!("page_{page_size}"), turns), |bencher| {
                bencher.iter_custom(|count| sessions.measure(count));
            });
        }
    }
    group.finish();
}

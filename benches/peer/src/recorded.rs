//! Sums of runs of SGLang's own classes, where there are any: the totals in `tests/golden/big`.

use std::path::Path;

use anyhow::Result;
use servesim_scenarios::totals::Totals;

use crate::case::{Counts, Trace};
use crate::ours::events;

/// What the reference came to on a trace without the overlap schedule; none where that was not recorded.
///
/// # Errors
/// A file of totals that is not one.
pub fn counts(trace: Trace, page_size: u32) -> Result<Option<Counts>> {
    let file = format!("../../tests/golden/big/{}_page{page_size}.json", trace.name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if !path.exists() {
        return Ok(None);
    }
    let sums = Totals::load(&path)?.totals;
    Ok(Some(Counts {
        finished: sums.finished,
        rejected: 0,
        retracted: sums.retracted,
        extend_passes: sums.extend,
        decode_passes: sums.decode,
        hit_tokens: sums.hit_tokens,
        output_tokens: sums.output_tokens,
        stored: events(&sums.stored),
        removed: events(&sums.removed),
    }))
}

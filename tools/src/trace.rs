//! `servesim trace info`: what a trace holds.

use std::process::ExitCode;

use servesim_scenarios::trace::info::trace_info;

use crate::Failure;
use crate::arguments::InfoOptions;
use crate::run::print;

/// Sums the trace up.
pub fn info(options: &InfoOptions) -> Result<ExitCode, Failure> {
    let info = trace_info(&options.file, options.block_size, options.lenient)
        .map_err(|error| Failure::BadInput(error.into()))?;
    if options.json {
        let text = serde_json::to_string_pretty(&info).map_err(|error| Failure::Run(error.into()))?;
        print(&format!("{text}\n"))?;
    } else {
        print(&format!("{info}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

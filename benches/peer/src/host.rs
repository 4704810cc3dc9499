//! CPU time and memory of this process, by `getrusage`.

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// User and system CPU time so far, in microseconds.
///
/// # Errors
/// The kernel does not say.
pub fn cpu_us() -> Result<u64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()).unsigned_abs())
}

/// Largest resident memory so far, in bytes.
///
/// # Errors
/// The kernel does not say.
pub fn peak_bytes() -> Result<u64> {
    // The kernel counts in KiB.
    Ok(getrusage(UsageWho::RUSAGE_SELF)?.max_rss().unsigned_abs() * 1024)
}

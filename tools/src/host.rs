//! What a run costs its host. Never part of a result.

use std::time::Instant;

use nix::sys::resource::{UsageWho, getrusage};
use serde::Serialize;

use crate::kv_events::Delivery;

/// Wall time, CPU time and memory of this process since a start.
pub struct Stopwatch {
    started: Instant,
    cpu_s: f64,
}

/// What a run cost.
#[derive(Debug, Serialize)]
pub struct HostCost {
    /// Seconds on the clock.
    pub wall_s: f64,
    /// Seconds of CPU, user and system, loading included.
    pub cpu_s: f64,
    /// Largest resident memory of the process in MB (10^6 bytes).
    pub peak_memory_mb: f64,
    /// CPU microseconds per request that ended.
    pub cpu_us_per_request: f64,
    /// CPU microseconds per pass.
    pub cpu_us_per_pass: f64,
    /// What became of KV events that were published over ZeroMQ: it depends on who listened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_events: Option<Delivery>,
}

fn cpu_s() -> f64 {
    cpu_s_of(UsageWho::RUSAGE_SELF)
}

/// Seconds of CPU that ended child processes took.
pub fn children_cpu_s() -> f64 {
    cpu_s_of(UsageWho::RUSAGE_CHILDREN)
}

fn cpu_s_of(who: UsageWho) -> f64 {
    getrusage(who).map_or(0.0, |usage| {
        let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
        seconds(usage.user_time()) + seconds(usage.system_time())
    })
}

/// How often the kernel took the processor away from this process to run something else.
pub fn interruptions() -> u64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(0, |usage| usage.involuntary_context_switches().max(0) as u64)
}

/// The largest resident memory of this process until now, in MB (10^6 bytes).
pub fn peak_memory_mb() -> f64 {
    // Linux counts a parent's memory into a child's `ru_maxrss`, but not into this.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if let Some(kib) = peak {
        return kib as f64 * 1024.0 / 1e6;
    }
    // The kernel counts in KiB.
    getrusage(UsageWho::RUSAGE_SELF).map_or(0.0, |usage| usage.max_rss() as f64 * 1024.0 / 1e6)
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Stopwatch {
        Stopwatch { started: Instant::now(), cpu_s: cpu_s() }
    }

    /// What was used since the start.
    pub fn cost(&self, requests: u64, passes: u64) -> HostCost {
        let cpu_s = cpu_s() - self.cpu_s;
        let per = |count: u64| if count == 0 { 0.0 } else { cpu_s * 1e6 / count as f64 };
        HostCost {
            wall_s: self.started.elapsed().as_secs_f64(),
            cpu_s,
            peak_memory_mb: peak_memory_mb(),
            cpu_us_per_request: per(requests),
            cpu_us_per_pass: per(passes),
            kv_events: None,
        }
    }
}

impl std::fmt::Display for HostCost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "host: {:.2} s wall, {:.2} s CPU, {:.0} MB peak; {:.1} us CPU a request, {:.2} us a pass",
            self.wall_s, self.cpu_s, self.peak_memory_mb, self.cpu_us_per_request, self.cpu_us_per_pass
        )
    }
}

//! What the player asks of a workload: jobs that are due, and to be told when one has ended.
//!
//! A workload is a source of jobs in simulated time. Closed loops release a lane's next job when the previous one has ended;
//! open loops release jobs by timestamp. A workload reads its trace as it goes: it holds what is live, never a whole file,
//! where the file's order allows.
//!
//! - [`lanes`], [`open`]: the closed and the open loop that all workloads share.
//! - [`deadline`]: an end to submissions.
//! - [`turn`], [`ids`]: a request's content, and token ids that nothing else has.
//! - [`sessions`], [`mooncake`], [`azure`]: traces of one request after another.
//! - [`weka`], [`weka_open`], [`weka_content`]: plays with sub-agents, in both loops, and their content.

pub mod azure;
pub mod deadline;
pub mod ids;
pub mod lanes;
pub mod mooncake;
pub mod open;
pub mod sessions;
pub mod turn;
pub mod weka;
pub mod weka_content;
pub mod weka_open;

use servesim_engine::content::Contents;
use servesim_engine::request::RequestSpec;

/// One request that a workload wants submitted.
#[derive(Clone, Debug)]
pub struct Job {
    /// The request. `tag` is the job's number, unique in a run and counted from 0 in the order of submission. The workload
    /// hands over one reference to the request's content stream; the player gives it back after submission.
    pub request: RequestSpec,
    /// Orders jobs that enter at the same iteration: lane index in a closed loop, row number in an open one.
    pub order: u64,
    /// When the request was due, in simulated nanoseconds. The player submits it at the first iteration at or after it.
    pub due_ns: u64,
    /// Session (conversation, play, agent) it belongs to, counted from 0.
    pub session: u64,
    /// Turn in its session, from 0.
    pub turn: u32,
    /// Whether no later turn of its session will come. A workload that reads as it goes may not know, and then says no.
    pub ends_session: bool,
}

/// A source of jobs.
pub trait Workload {
    /// Appends every job that is due at or before `now_ns`, in the order of [`Job::order`].
    ///
    /// # Errors
    /// A row of the trace that cannot be used.
    fn take_due(&mut self, now_ns: u64, contents: &mut Contents, jobs: &mut Vec<Job>) -> Result<(), InputError>;

    /// When the next job is due that waits for nothing but time; none while all wait for others to end, or at the end.
    ///
    /// # Errors
    /// A row of the trace that cannot be used.
    fn next_due_ns(&mut self, contents: &mut Contents) -> Result<Option<u64>, InputError>;

    /// The job with this tag has ended (finished, dropped or rejected) at `now_ns`.
    fn ended(&mut self, tag: u64, now_ns: u64, contents: &mut Contents);

    /// How many jobs there will be in all, where the workload knows; for progress displays.
    fn jobs_total(&self) -> Option<u64>;

    /// Rows that were skipped under `--lenient`.
    fn skipped_rows(&self) -> u64 {
        0
    }
}

impl<W: Workload + ?Sized> Workload for Box<W> {
    fn take_due(&mut self, now_ns: u64, contents: &mut Contents, jobs: &mut Vec<Job>) -> Result<(), InputError> {
        (**self).take_due(now_ns, contents, jobs)
    }

    fn next_due_ns(&mut self, contents: &mut Contents) -> Result<Option<u64>, InputError> {
        (**self).next_due_ns(contents)
    }

    fn ended(&mut self, tag: u64, now_ns: u64, contents: &mut Contents) {
        (**self).ended(tag, now_ns, contents);
    }

    fn jobs_total(&self) -> Option<u64> {
        (**self).jobs_total()
    }

    fn skipped_rows(&self) -> u64 {
        (**self).skipped_rows()
    }
}

/// A row of a trace or scenario that cannot be used. Shown as `file:line: field: found ..., expected ...`, without the line
/// where there is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {field}: found {found}, expected {expected}", place(file, *line))]
pub struct InputError {
    /// The file, as the user named it.
    pub file: String,
    /// Line number from 1; 0 where there is none.
    pub line: u64,
    /// The field, dotted where it is nested.
    pub field: String,
    /// What was found.
    pub found: String,
    /// What would be right.
    pub expected: String,
}

fn place(file: &str, line: u64) -> String {
    if line == 0 { file.to_owned() } else { format!("{file}:{line}") }
}

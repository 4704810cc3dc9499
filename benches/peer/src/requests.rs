//! Requests for the peer, made from servesim's own workloads, so that both play the same requests in the same closed loop. The
//! peer's interface takes a prompt as a list of token ids.

use std::hint::black_box;

use aisimulate_core::engine::Request;
use anyhow::Result;
use servesim_engine::content::{Contents, StreamKey};
use servesim_scenarios::workload::{Job, Workload};
use uuid::Uuid;

use crate::case::{Counts, Trace};

/// A workload with the content that its requests are made from.
pub struct Source {
    workload: Box<dyn Workload>,
    contents: Contents,
    due: Vec<Job>,
}

impl Source {
    /// Opens the trace.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn open(trace: Trace, page_size: u32) -> Result<Source> {
        let workload = trace.scenario(page_size)?.build_workload()?;
        Ok(Source { workload, contents: Contents::default(), due: Vec::new() })
    }

    /// Hands every request that is due at `now_ns` to `submit`; says how many there were.
    ///
    /// # Errors
    /// A row of the trace that cannot be used, or what `submit` returns.
    pub fn take_due(&mut self, now_ns: u64, mut submit: impl FnMut(Request) -> Result<()>) -> Result<usize> {
        self.due.clear();
        self.workload.take_due(now_ns, &mut self.contents, &mut self.due)?;
        for job in &self.due {
            submit(request(&self.contents, job))?;
            self.contents.release(job.request.content);
        }
        Ok(self.due.len())
    }

    /// When the next request is due that waits for nothing but time.
    ///
    /// # Errors
    /// A row of the trace that cannot be used.
    pub fn next_due_ns(&mut self) -> Result<Option<u64>> {
        Ok(self.workload.next_due_ns(&mut self.contents)?)
    }

    /// A request has ended.
    pub fn ended(&mut self, request_id: Uuid, now_ns: u64) {
        self.workload.ended(request_id.as_u128() as u64, now_ns, &mut self.contents);
    }
}

/// The request of a job, with its tag for an identity and with the output that the trace tells.
fn request(contents: &Contents, job: &Job) -> Request {
    let spec = &job.request;
    let end = spec.prompt_tokens + spec.output_tokens;
    let output = tokens(contents, spec.content, spec.prompt_tokens, end);
    Request {
        request_id: Uuid::from_u128(spec.tag.into()),
        tokens: tokens(contents, spec.content, 0, spec.prompt_tokens),
        max_output_tokens: output.len(),
        output_token_ids: Some(output),
    }
}

fn tokens(contents: &Contents, stream: StreamKey, start: u32, end: u32) -> Vec<u32> {
    let mut tokens = Vec::with_capacity((end - start) as usize);
    for run in contents.runs(stream, start, end) {
        // An inclusive range, since a run may reach the last id.
        tokens.extend(run.first..=run.first + (run.count - 1));
    }
    tokens
}

/// Makes every request of a trace, each ending as it is made.
///
/// # Errors
/// A trace that cannot be read.
pub fn make_all(trace: Trace, page_size: u32) -> Result<Counts> {
    let mut source = Source::open(trace, page_size)?;
    let mut counts = Counts::default();
    let mut now_ns = 0;
    let mut made = Vec::new();
    loop {
        source.take_due(now_ns, |request| {
            counts.output_tokens += request.max_output_tokens as u64;
            made.push(black_box(request).request_id);
            Ok(())
        })?;
        counts.finished += made.len() as u64;
        if made.is_empty() {
            let Some(due_ns) = source.next_due_ns()? else { return Ok(counts) };
            now_ns = now_ns.max(due_ns);
        }
        for request_id in made.drain(..) {
            source.ended(request_id, now_ns);
        }
    }
}

//! One request on its way from a source to the player, and the content work that all sources share.

use servesim_engine::content::{Contents, Namespace, Run, StreamKey};
use servesim_engine::request::RequestSpec;

use super::{InputError, Job};
use crate::trace::field::Fault;

/// A request with its content, before it has a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// The stream of prompt and output. The turn owns one reference to it, which the job hands on.
    pub content: StreamKey,
    /// Length of the prompt in tokens, at least 1.
    pub prompt_tokens: u32,
    /// Tokens that the stream holds after the prompt, at least 1.
    pub output_tokens: u32,
    /// The most tokens to produce; 0 is prefill only.
    pub max_new_tokens: u32,
    /// Priority, where the trace has one.
    pub priority: Option<i32>,
    /// The session it belongs to, counted from 0.
    pub session: u64,
    /// Turn in its session, from 0.
    pub turn: u32,
    /// Whether no later turn of its session will come, as far as its source knows.
    pub ends_session: bool,
}

impl Turn {
    /// A turn that produces all the `output_tokens` its stream holds; takes over one reference to `content`.
    pub fn new(content: StreamKey, prompt_tokens: u32, output_tokens: u32, session: u64, turn: u32) -> Turn {
        let (max_new_tokens, priority, ends_session) = (output_tokens, None, false);
        Turn { content, prompt_tokens, output_tokens, max_new_tokens, priority, session, turn, ends_session }
    }

    /// The same turn, said to be the last of its session or not.
    pub fn ending_session(self, ends_session: bool) -> Turn {
        Turn { ends_session, ..self }
    }

    /// The job with number `tag`.
    pub fn job(self, tag: u64, order: u64, due_ns: u64) -> Job {
        let mut request = RequestSpec::new(tag, self.content, self.prompt_tokens, self.output_tokens);
        request.max_new_tokens = self.max_new_tokens;
        request.priority = self.priority;
        Job { request, order, due_ns, session: self.session, turn: self.turn, ends_session: self.ends_session }
    }
}

/// Where a row stands, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or what stands for it.
    pub file: String,
    /// Its line from 1; 0 where there are no lines.
    pub line: u64,
}

impl Place {
    /// A place in a file.
    pub fn new(file: &str, line: u64) -> Place {
        Place { file: file.to_owned(), line }
    }
}

impl From<(&str, u64)> for Place {
    fn from((file, line): (&str, u64)) -> Place {
        Place::new(file, line)
    }
}

/// Appends runs to a stream; returns its new length in tokens.
///
/// # Errors
/// Content that no stream can hold, as an error of the row at `place`.
pub fn append(
    contents: &mut Contents,
    stream: StreamKey,
    runs: impl IntoIterator<Item = Run>,
    place: impl Fn() -> Place,
) -> Result<u32, InputError> {
    for run in runs {
        contents.append(stream, run).map_err(|error| {
            let place = place();
            Fault::new("content", error.to_string(), "a prompt and output of at most 2^31 tokens, ids below 2^32")
                .at(&place.file, place.line)
        })?;
    }
    Ok(contents.len(stream))
}

/// Makes a stream of `runs`, owned by the caller.
///
/// # Errors
/// As [`append`].
pub fn create(
    contents: &mut Contents,
    runs: impl IntoIterator<Item = Run>,
    place: impl Fn() -> Place,
) -> Result<StreamKey, InputError> {
    let stream = contents.create(Namespace::default());
    append(contents, stream, runs, place)?;
    Ok(stream)
}

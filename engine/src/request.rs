//! What a caller says of a request, and how one can end.

use std::sync::Arc;

use slotmap::new_key_type;

use crate::content::StreamKey;

new_key_type! {
    /// Names a request in a worker, from its submission to its end.
    pub struct RequestKey;
}

/// How long a prefill-role worker holds a request after its prefill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transfer {
    /// Until the worker is told that the transfer has ended.
    #[default]
    UntilReleased,
    /// For this many iterations after that of its last chunk; 0 ends in the same iteration.
    Iterations(u64),
    /// For this long in simulated nanoseconds after the pass of its last chunk.
    DurationNs(u64),
}

/// One request. Its content is a stream: the prompt first, then what the model will say.
#[derive(Clone, Debug)]
pub struct RequestSpec {
    /// The caller's name for the request; records carry it. `hrrn` breaks ties by it, smallest first.
    pub tag: u64,
    /// The stream that starts with the prompt and goes on with the output. The worker takes a reference of its own.
    pub content: StreamKey,
    /// Length of the prompt in tokens, at least 1.
    pub prompt_tokens: u32,
    /// How many tokens after the prompt the stream holds, at least 1. A request that does not stop at the end of its
    /// output must hold `max_new_tokens` of them.
    pub output_tokens: u32,
    /// The most tokens to produce; 0 makes the request prefill-only.
    pub max_new_tokens: u32,
    /// Whether the last output token is a stop token. Otherwise the request ends at `max_new_tokens` (`ignore_eos`).
    pub stop_at_end: bool,
    /// Priority; absent is the least preferred under priority scheduling.
    pub priority: Option<i32>,
    /// Key of the `routing-key` policy.
    pub routing_key: Option<Arc<str>>,
    /// In the prefill role: how long the request is held.
    pub transfer: Transfer,
}

impl RequestSpec {
    /// A request that produces all the tokens its stream holds after `prompt_tokens`, with nothing else set.
    pub fn new(tag: u64, content: StreamKey, prompt_tokens: u32, output_tokens: u32) -> Self {
        RequestSpec {
            tag,
            content,
            prompt_tokens,
            output_tokens,
            max_new_tokens: output_tokens,
            stop_at_end: false,
            priority: None,
            routing_key: None,
            transfer: Transfer::default(),
        }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Finish {
    /// It produced its stop token.
    Stop,
    /// It reached `max_new_tokens`.
    Length,
    /// It was cancelled while running.
    Abort,
    /// In the prefill role: its transfer ended.
    Transferred,
}

impl Finish {
    /// The word that logs use.
    pub fn as_str(self) -> &'static str {
        match self {
            Finish::Stop => "stop",
            Finish::Length => "length",
            Finish::Abort => "abort",
            Finish::Transferred => "transferred",
        }
    }
}

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reject {
    /// Prompt of `max_request_len - 5` tokens or more (`behaviour.md` section 2).
    PromptTooLong {
        /// Length of the prompt in tokens.
        prompt_tokens: u32,
        /// The longest prompt that is taken.
        longest: u64,
    },
    /// The queue was full and the request not preferred to any that waits.
    QueueFull,
    /// The queue was full and a preferred request took the place.
    Displaced {
        /// The tag of that request.
        by: u64,
        /// Whether its cancellation was under way: it had been cancelled while it ran, and was retracted before it ended.
        cancelled: bool,
    },
    /// It was preempted for a request that was then not admitted; the reference forgets it.
    LostByPreemption,
    /// The caller gave it up after a refused pass.
    Refused,
}

impl std::fmt::Display for Reject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reject::PromptTooLong { prompt_tokens, longest } => {
                write!(f, "the prompt has {prompt_tokens} tokens, at most {longest} fit")
            }
            Reject::QueueFull => f.write_str("the request queue is full"),
            Reject::Displaced { by, .. } => {
                write!(f, "request {by} of a better priority took its place in a full queue")
            }
            Reject::LostByPreemption => f.write_str("lost by preemption"),
            Reject::Refused => f.write_str("dropped after the timing model refused its pass"),
        }
    }
}

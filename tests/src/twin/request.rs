//! A request, and a batch of them.

use servesim_engine::content::Run;
use servesim_scenarios::case::CaseRequest;

use super::tree::NodeId;

/// What the model says when the table of a request's answer has run out.
const SAY_NOTHING: u32 = 7;

/// Names a request in the model.
pub type ReqId = usize;

/// One request, from its entry to its end.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its name.
    pub rid: String,
    /// The prompt.
    pub prompt: Vec<u32>,
    /// What the model would say.
    pub answer: Vec<u32>,
    /// Most tokens to produce.
    pub max_new: i64,
    /// The token it stops at; none when it runs to its limit.
    pub stop: Option<u32>,
    /// Its priority, as given or as filled in at entry.
    pub priority: Option<i128>,
    /// Its namespace.
    pub extra_key: Option<String>,
    /// Its routing key.
    pub routing_key: Option<String>,
    /// In the prefill role: iterations that its transfer takes.
    pub hold: u64,
    /// What it has produced.
    pub produced: Vec<u32>,
    /// When it last entered the queue.
    pub queued_at: u64,
    /// The counter of computed tokens at that time.
    pub counter_at_entry: i64,
    /// How it ended.
    pub end: Option<String>,
    /// Whether it is to end as aborted at its next result.
    pub cancelled: bool,
    /// Whether it has a slot.
    pub holds_slot: bool,
    /// Tokens whose KV is in the pool.
    pub computed: i64,
    /// Leading tokens whose slots belong to the tree.
    pub protected: i64,
    /// Tokens that were there already at its last match or insert.
    pub prefix: i64,
    /// Length of prompt and produced tokens when they were last looked at.
    pub fill: i64,
    /// The range that its last extend row computed.
    pub extend: (i64, i64),
    /// The end of its last match.
    pub node: NodeId,
    /// The node from which its path is locked.
    pub lock: Option<NodeId>,
    /// The length of its last match by the schedule policy.
    pub matched: i64,
    /// Launched middle chunks without results.
    pub middle_chunks: i64,
    /// Whether it was retracted and not admitted since.
    pub retracted: bool,
    /// How often it was retracted or preempted.
    pub retractions: u64,
}

/// Writes token runs out.
pub fn tokens_of(runs: &[Run]) -> Vec<u32> {
    runs.iter().flat_map(|run| (0..run.count).map(move |i| run.first + i)).collect()
}

impl Request {
    /// A request that has not entered yet.
    pub fn new(spec: &CaseRequest) -> Request {
        let answer = tokens_of(&spec.output);
        Request {
            rid: spec.rid.clone(),
            prompt: tokens_of(&spec.input),
            max_new: i64::from(spec.max_new_tokens),
            stop: if spec.stop_at_end.unwrap_or(false) { answer.last().copied() } else { None },
            answer,
            priority: spec.priority.map(i128::from),
            extra_key: spec.extra_key.clone(),
            routing_key: spec.routing_key.clone(),
            hold: spec.hold.unwrap_or(5),
            produced: Vec::new(),
            queued_at: 0,
            counter_at_entry: 0,
            end: None,
            cancelled: false,
            holds_slot: false,
            computed: 0,
            protected: 0,
            prefix: 0,
            fill: 0,
            extend: (0, 0),
            node: 0,
            lock: None,
            matched: 0,
            middle_chunks: 0,
            retracted: false,
            retractions: 0,
        }
    }

    /// Prompt and produced tokens.
    pub fn tokens(&self) -> Vec<u32> {
        let mut all = self.prompt.clone();
        all.extend(&self.produced);
        all
    }

    /// Their number.
    pub fn len(&self) -> i64 {
        (self.prompt.len() + self.produced.len()) as i64
    }

    /// Whether there is not a single token.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many tokens it has produced.
    pub fn output_len(&self) -> i64 {
        self.produced.len() as i64
    }

    /// Whether it has ended.
    pub fn ended(&self) -> bool {
        self.end.is_some()
    }

    /// Whether it runs to its limit, whatever the model says.
    pub fn ignores_stop(&self) -> bool {
        self.stop.is_none()
    }

    /// Appends the next token and sees whether this is the end.
    pub fn say(&mut self) {
        let token = self.answer.get(self.produced.len()).copied().unwrap_or(SAY_NOTHING);
        self.produced.push(token);
        let produced = self.output_len();
        let how = if self.cancelled {
            self.cancelled = false;
            "abort"
        } else if self.stop == Some(token) && produced <= self.max_new {
            "stop"
        } else if produced >= self.max_new {
            "length"
        } else {
            return;
        };
        self.end = Some(how.to_string());
    }
}

/// What a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Computes prompt tokens, and one token of each decoding row of a mixed batch.
    Extend,
    /// Computes one token a row.
    Decode,
}

/// Rows that run together.
#[derive(Clone, Debug)]
pub struct Batch {
    /// What it does.
    pub kind: Kind,
    /// Its rows.
    pub rows: Vec<ReqId>,
    /// Those of them that decode inside an extend batch.
    pub decoding: Vec<ReqId>,
    /// The request whose middle chunk it computes.
    pub chunked: Option<ReqId>,
    /// The latch: nobody else fits.
    pub full: bool,
    /// Whether all of its parts were wholly prefill-only.
    pub prefill_only: bool,
    /// The tokens that it computed as an extend batch.
    pub extend_tokens: Option<i64>,
}

impl Batch {
    /// A batch without rows.
    pub fn empty() -> Batch {
        Batch {
            kind: Kind::Decode,
            rows: Vec::new(),
            decoding: Vec::new(),
            chunked: None,
            full: false,
            prefill_only: false,
            extend_tokens: None,
        }
    }
}

//! Weka agent traces: one play of a coding agent a line, with its sub-agents; block ids name content within a play only.
//!
//! The reader flattens a play: agent 0 is the play's own, each sub-agent follows in file order, and the list of what an
//! agent does holds its requests and the markers where it starts others.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::field::{Fault, Scalar, object};
use super::hash_ids::{BlockRun, HashIds};
use super::lines::unreadable;
use super::rows::Rows;
use crate::workload::InputError;

const SECOND: u64 = 1_000_000_000;
/// Tokens of a play's blocks lie below this, counted from the play's first block id.
pub const MOST_PLAY_TOKENS: u64 = 1 << 31;

/// One play: a session of a coding agent with its sub-agents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Play {
    /// Its name in the trace.
    pub id: String,
    /// Tokens in a block.
    pub block_size: u32,
    /// The agents; agent 0 is the play's own.
    pub agents: Vec<Agent>,
    /// The smallest block id.
    pub first_block: u32,
    /// How many ids there are from the smallest to the largest.
    pub block_span: u32,
}

/// What one agent does, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Requests and starts of sub-agents.
    pub steps: Vec<Step>,
}

/// One step of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request.
    Request(WekaRequest),
    /// A sub-agent is started.
    Start {
        /// Its index in the play.
        agent: u32,
        /// When, in nanoseconds since the starting agent began.
        time_ns: u64,
        /// How long after the end of the request before it, as recorded, in nanoseconds; not below 0.
        offset_ns: u64,
    },
}

/// One request of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WekaRequest {
    /// When it was sent, in nanoseconds since its agent began.
    pub time_ns: u64,
    /// How long it took, in nanoseconds; 0 where the trace does not say.
    pub api_time_ns: u64,
    /// Pause between the end of the request before and this one, in nanoseconds; 0 where the trace does not say.
    pub think_time_ns: u64,
    /// Length of the prompt in tokens.
    pub input_tokens: u32,
    /// Length of the output in tokens; 0 is a request that was only prefilled.
    pub output_tokens: u32,
    /// The full blocks of the prompt.
    pub blocks: Box<[BlockRun]>,
    /// How many full blocks it starts with that the agent's request before started with as well.
    pub shared_blocks: u32,
    /// Whether it starts with all full blocks of the agent's request before.
    pub continues: bool,
}

impl Agent {
    /// The requests of the agent in order.
    pub fn requests(&self) -> impl Iterator<Item = &WekaRequest> {
        self.steps.iter().filter_map(|step| match step {
            Step::Request(request) => Some(request),
            Step::Start { .. } => None,
        })
    }
}

#[derive(Deserialize)]
struct WirePlay<'a> {
    #[serde(borrow, default)]
    id: Scalar<'a>,
    #[serde(borrow, default)]
    block_size: Scalar<'a>,
    #[serde(borrow, default)]
    hash_id_scope: Scalar<'a>,
    #[serde(borrow)]
    requests: Option<Vec<WireRow<'a>>>,
}

#[derive(Deserialize)]
struct WireRow<'a> {
    #[serde(borrow, default)]
    t: Scalar<'a>,
    #[serde(borrow, default, rename = "type")]
    kind: Scalar<'a>,
    #[serde(borrow, default, rename = "in")]
    input: Scalar<'a>,
    #[serde(borrow, default, rename = "out")]
    output: Scalar<'a>,
    #[serde(default)]
    hash_ids: HashIds,
    #[serde(borrow, default)]
    api_time: Scalar<'a>,
    #[serde(borrow, default)]
    think_time: Scalar<'a>,
    #[serde(borrow)]
    requests: Option<Vec<WireRow<'a>>>,
}

/// Parses one line.
///
/// # Errors
/// The first field that cannot be used, dotted with the index of its request.
pub fn parse_play(line: &[u8]) -> Result<Play, Fault> {
    let wire: WirePlay = object(line)?;
    let id = match &wire.id {
        Scalar::Text(name) => name.to_string(),
        other => other.to_string(),
    };
    if !wire.hash_id_scope.is_absent() && wire.hash_id_scope != Scalar::Text("local".into()) {
        return Err(Fault::new("hash_id_scope", wire.hash_id_scope.to_string(), "\"local\""));
    }
    let block_size = wire.block_size.integer("block_size", 1..=65_536)? as u32;
    let mut play = Play { id, block_size, agents: vec![Agent::default()], first_block: 0, block_span: 0 };
    add_agent(&mut play, 0, wire.requests)?;
    let runs = || play.agents.iter().flat_map(Agent::requests).flat_map(|request| request.blocks.iter());
    let first = runs().map(|run| run.first).min().unwrap_or(0);
    let end = runs().map(|run| run.first + run.count).max().unwrap_or(0);
    (play.first_block, play.block_span) = (first, end - first);
    Ok(play)
}

/// Fills agent `agent` of a play from its rows.
fn add_agent(play: &mut Play, agent: usize, rows: Option<Vec<WireRow<'_>>>) -> Result<(), Fault> {
    let rows = rows.filter(|rows| !rows.is_empty());
    let rows = rows.ok_or_else(|| Fault::new("requests", "nothing", "a list of one or more requests"))?;
    let mut last_ns = 0;
    let mut steps = Vec::with_capacity(rows.len());
    for (index, row) in rows.into_iter().enumerate() {
        let place = || format!("requests[{index}]");
        let time_ns = time_after(&row.t, last_ns).map_err(|fault| fault.within(&place()))?;
        last_ns = time_ns;
        if row.kind == Scalar::Text("subagent".into()) {
            let ended_ns = last_request(&steps).map_or(0, |last| last.time_ns + last.api_time_ns);
            let child = play.agents.len();
            play.agents.push(Agent::default());
            steps.push(Step::Start { agent: child as u32, time_ns, offset_ns: time_ns.saturating_sub(ended_ns) });
            add_agent(play, child, row.requests).map_err(|fault| fault.within(&place()))?;
        } else {
            let request = parse_request(row, time_ns, play.block_size, last_request(&steps));
            steps.push(Step::Request(request.map_err(|fault| fault.within(&place()))?));
        }
    }
    play.agents[agent].steps = steps;
    Ok(())
}

fn last_request(steps: &[Step]) -> Option<&WekaRequest> {
    steps.iter().rev().find_map(|step| match step {
        Step::Request(request) => Some(request),
        Step::Start { .. } => None,
    })
}

fn time_after(time: &Scalar<'_>, last_ns: u64) -> Result<u64, Fault> {
    let time_ns = time.time_ns("t", SECOND)?;
    if time_ns < last_ns {
        let last = last_ns as f64 / SECOND as f64;
        return Err(Fault::new("t", time.to_string(), format!("not before the previous row's {last}")));
    }
    Ok(time_ns)
}

fn parse_request(
    row: WireRow<'_>,
    time_ns: u64,
    block_size: u32,
    last: Option<&WekaRequest>,
) -> Result<WekaRequest, Fault> {
    if !matches!(&row.kind, Scalar::Text(kind) if kind == "n" || kind == "s") {
        return Err(Fault::new("type", row.kind.to_string(), "\"n\", \"s\" or \"subagent\""));
    }
    let input_tokens = row.input.tokens("in", 1)?;
    let full_blocks = input_tokens / block_size;
    let blocks = row.hash_ids.checked(input_tokens, full_blocks.into(), block_size, MOST_PLAY_TOKENS)?;
    let shared_blocks = last.map_or(0, |last| common_blocks(&last.blocks, &blocks));
    Ok(WekaRequest {
        time_ns,
        api_time_ns: optional_ns("api_time", &row.api_time)?,
        think_time_ns: optional_ns("think_time", &row.think_time)?,
        input_tokens,
        // The recorded sessions hold a few requests without output, so 0 is a length here.
        output_tokens: row.output.tokens("out", 0)?,
        continues: last.is_some_and(|last| last.input_tokens / block_size == shared_blocks),
        shared_blocks,
        blocks,
    })
}

fn optional_ns(field: &str, value: &Scalar<'_>) -> Result<u64, Fault> {
    if value.is_absent() { Ok(0) } else { value.time_ns(field, SECOND) }
}

/// How many leading blocks two lists share.
fn common_blocks(left: &[BlockRun], right: &[BlockRun]) -> u32 {
    let mut common = 0;
    // Runs are joined wherever they can be, so two lists agree run by run up to the first difference.
    for (a, b) in left.iter().zip(right) {
        if a.first != b.first {
            break;
        }
        common += a.count.min(b.count);
        if a.count != b.count {
            break;
        }
    }
    common
}

/// Reads plays one at a time from a file, or from all files of a folder in name order.
pub struct WekaReader {
    files: Vec<PathBuf>,
    next_file: usize,
    rows: Option<Rows>,
    lenient: bool,
    skipped: u64,
}

impl WekaReader {
    /// Opens a file or a folder of `.json`, `.jsonl` and `.gz` files.
    ///
    /// # Errors
    /// A path that cannot be read, or a folder without such files.
    pub fn open(path: &Path, lenient: bool) -> Result<WekaReader, InputError> {
        let files = if path.is_dir() { folder_files(path)? } else { vec![path.to_owned()] };
        let mut reader = WekaReader { files, next_file: 0, rows: None, lenient, skipped: 0 };
        reader.open_next()?;
        Ok(reader)
    }

    /// The next play; none at the end.
    ///
    /// # Errors
    /// A read that fails, and without `lenient` a play that cannot be used.
    pub fn next_play(&mut self) -> Result<Option<Play>, InputError> {
        loop {
            let Some(rows) = &mut self.rows else { return Ok(None) };
            if let Some(play) = rows.next_with(parse_play)? {
                return Ok(Some(play));
            }
            self.skipped += rows.skipped();
            self.open_next()?;
        }
    }

    /// Starts again with the first play.
    ///
    /// # Errors
    /// A file that can no longer be opened.
    pub fn rewind(&mut self) -> Result<(), InputError> {
        self.skipped = self.skipped();
        self.next_file = 0;
        self.open_next()
    }

    /// The file and line of the last play.
    pub fn place(&self) -> (&str, u64) {
        self.rows.as_ref().map_or(("", 0), |rows| (rows.file(), rows.line()))
    }

    /// How many plays were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped + self.rows.as_ref().map_or(0, Rows::skipped)
    }

    fn open_next(&mut self) -> Result<(), InputError> {
        self.rows = match self.files.get(self.next_file) {
            Some(file) => Some(Rows::open(file, self.lenient)?),
            None => None,
        };
        self.next_file += 1;
        Ok(())
    }
}

fn folder_files(folder: &Path) -> Result<Vec<PathBuf>, InputError> {
    let name = folder.display().to_string();
    let mut files = Vec::new();
    for entry in folder.read_dir().map_err(|error| unreadable(&name, 0, &error))? {
        let path = entry.map_err(|error| unreadable(&name, 0, &error))?.path();
        let known = path.extension().and_then(OsStr::to_str).is_some_and(|end| ["json", "jsonl", "gz"].contains(&end));
        if known && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Fault::new("file", "an empty folder", "one or more .json, .jsonl or .gz files").at(&name, 0));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = r#"{"t":0.0,"type":"n","in":130,"out":9,"hash_ids":[4,5],"api_time":2.5,"think_time":0.0}"#;
    const NEXT: &str = r#"{"t":7,"type":"s","in":200,"out":0,"hash_ids":[[4,3]],"think_time":4.5}"#;

    fn play(rows: &[&str]) -> String {
        format!(r#"{{"id":"p","block_size":64,"hash_id_scope":"local","requests":[{}]}}"#, rows.join(","))
    }

    fn parse(rows: &[&str]) -> Result<Play, Fault> {
        parse_play(play(rows).as_bytes())
    }

    #[test]
    fn a_play_is_agents_with_steps() {
        let child = format!(r#"{{"t":3.25,"type":"subagent","agent_id":"a","requests":[{ROW},{NEXT}]}}"#);
        let play = parse(&[ROW, &child, NEXT]).expect("a good play");
        assert_eq!((play.agents.len(), play.first_block, play.block_span), (2, 4, 3));
        let [Step::Request(first), start, Step::Request(second)] = play.agents[0].steps.as_slice() else {
            panic!("three steps: {:?}", play.agents[0].steps);
        };
        assert_eq!(*start, Step::Start { agent: 1, time_ns: 3_250_000_000, offset_ns: 750_000_000 });
        assert_eq!((first.api_time_ns, first.think_time_ns, first.continues), (2_500_000_000, 0, false));
        assert_eq!((second.api_time_ns, second.think_time_ns), (0, 4_500_000_000));
        assert_eq!((second.continues, second.shared_blocks, second.output_tokens), (true, 2, 0));
        assert_eq!(play.agents[1].requests().count(), 2);
    }

    #[test]
    fn bad_plays_name_their_field() {
        let cases = [
            (r#""t":7,"#, "", "requests[1].t"),
            (r#""t":7"#, r#""t":-1"#, "requests[1].t"),
            (r#""type":"s""#, r#""type":"x""#, "requests[1].type"),
            (r#""in":200"#, r#""in":0"#, "requests[1].in"),
            (r#""in":200"#, r#""in":-200"#, "requests[1].in"),
            (r#""in":200"#, r#""in":256"#, "requests[1].hash_ids"),
            (r#""in":200"#, r#""in":191"#, "requests[1].hash_ids"),
            (r#""out":0"#, r#""out":-1"#, "requests[1].out"),
            ("[[4,3]]", "[4,5,9223372036854775808]", "requests[1].hash_ids"),
            (r#""think_time":4.5"#, r#""think_time":-4.5"#, "requests[1].think_time"),
        ];
        for (old, new, field) in cases {
            assert!(NEXT.contains(old));
            let fault = parse(&[ROW, &NEXT.replace(old, new)]).expect_err(new);
            assert_eq!(fault.field, field, "{fault:?}");
        }
        let back = parse(&[NEXT, ROW]).expect_err("time goes back");
        assert_eq!((back.field.as_str(), back.found.as_str()), ("requests[1].t", "0"));
        let nested = format!(r#"{{"t":3,"type":"subagent","requests":[{}]}}"#, ROW.replace("130", "0"));
        assert_eq!(parse(&[ROW, &nested]).expect_err("nested").field, "requests[1].requests[0].in");
        assert_eq!(parse(&[]).expect_err("no requests").field, "requests");
        let text = play(&[ROW]);
        assert_eq!(parse_play(&text.as_bytes()[..60]).expect_err("cut").found, "a row cut off after 60 bytes");
    }

    #[test]
    fn a_folder_is_read_in_name_order_and_can_be_rewound() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, rows) in [("b.jsonl", vec![ROW]), ("a.jsonl", vec![ROW, NEXT]), ("skip.txt", vec![])] {
            std::fs::write(folder.path().join(name), play(&rows) + "\r\n\r\n").expect("written");
        }
        let mut reader = WekaReader::open(folder.path(), false).expect("a folder");
        for _ in 0..2 {
            let mut requests = Vec::new();
            while let Some(play) = reader.next_play().expect("good plays") {
                requests.push(play.agents[0].steps.len());
            }
            assert_eq!(requests, [2, 1]);
            reader.rewind().expect("still there");
        }
    }

    #[test]
    fn lenient_counts_bad_plays_over_all_rounds() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), format!("{}\n{}\n", play(&[]), play(&[ROW]))).expect("written");
        let error = WekaReader::open(file.path(), false).expect("a file").next_play().expect_err("a bad play");
        assert_eq!((error.line, error.field.as_str()), (1, "requests"));
        let mut reader = WekaReader::open(file.path(), true).expect("a file");
        assert!(reader.next_play().expect("skipped").is_some());
        reader.rewind().expect("still there");
        assert!(reader.next_play().expect("skipped").is_some());
        assert_eq!(reader.skipped(), 2);
    }
}

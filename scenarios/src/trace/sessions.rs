//! Session traces: one request a line, `lane`, `session`, `turn`, `delay_ms`, `append`, `output`; a turn's prompt is the
//! whole history of its session.
//!
//! The file holds one lane after the other and a closed loop runs them all at once, so the rows are kept: numbers and
//! runs, not the text.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use servesim_engine::content::Run;

use super::field::{Fault, LONGEST_TOKENS, Scalar, object};
use super::rows::Rows;
use crate::workload::InputError;

const MS: u64 = 1_000_000;

/// One request of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The lane that plays it.
    pub lane: u32,
    /// Its session's name.
    pub session: String,
    /// Turn in its session, from 0.
    pub turn: u32,
    /// Wait after the lane's previous request ended, in nanoseconds.
    pub delay_ns: u64,
    /// What is added to the history to make the prompt.
    pub append: Vec<Run>,
    /// What the model will say; part of the history from then on.
    pub output: Vec<Run>,
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow, default)]
    lane: Scalar<'a>,
    #[serde(borrow, default)]
    session: Scalar<'a>,
    #[serde(borrow, default)]
    turn: Scalar<'a>,
    #[serde(borrow, default)]
    delay_ms: Scalar<'a>,
    #[serde(default)]
    append: TokenRuns,
    #[serde(default)]
    output: TokenRuns,
}

/// A list of runs as it stands in a row: none if the field is missing or `null`, with the first pair that is no run.
#[derive(Default)]
struct TokenRuns {
    runs: Option<Vec<Run>>,
    bad: Option<String>,
}

impl<'de> Deserialize<'de> for TokenRuns {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(TokenRunsVisitor)
    }
}

struct TokenRunsVisitor;

impl<'de> Visitor<'de> for TokenRunsVisitor {
    type Value = TokenRuns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of pairs")
    }

    fn visit_none<E: de::Error>(self) -> Result<TokenRuns, E> {
        Ok(TokenRuns::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<TokenRuns, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<TokenRuns, A::Error> {
        let (mut runs, mut bad) = (Vec::new(), None);
        while let Some(pair) = list.next_element::<(Scalar<'de>, Scalar<'de>)>()? {
            match token_run(&pair) {
                Some(run) => runs.push(run),
                None if bad.is_none() => bad = Some(format!("[{}, {}]", pair.0, pair.1)),
                None => {}
            }
        }
        Ok(TokenRuns { runs: Some(runs), bad })
    }
}

/// A pair as a run, if it is one.
fn token_run((first, count): &(Scalar<'_>, Scalar<'_>)) -> Option<Run> {
    let first = first.whole().filter(|&first| first <= u64::from(u32::MAX))?;
    let count = count.whole().filter(|count| (1..=LONGEST_TOKENS).contains(count))?;
    (first + count <= 1 << 32).then_some(Run { first: first as u32, count: count as u32 })
}

impl TokenRuns {
    fn checked(self, field: &str, least: usize) -> Result<Vec<Run>, Fault> {
        let expected = "runs [first, count] of 1 or more tokens with ids below 2^32";
        let runs = self.runs.ok_or_else(|| Fault::new(field, "nothing", expected))?;
        match self.bad {
            Some(bad) => Err(Fault::new(field, bad, expected)),
            None if runs.len() < least => Err(Fault::new(field, "an empty list", expected)),
            None => Ok(runs),
        }
    }
}

/// Parses one line.
///
/// # Errors
/// The first field that cannot be used.
pub fn parse_row(line: &[u8]) -> Result<SessionRow, Fault> {
    let wire: Wire = object(line)?;
    let turn = wire.turn.integer("turn", 0..=u64::from(u32::MAX))? as u32;
    Ok(SessionRow {
        lane: wire.lane.integer("lane", 0..=65_535)? as u32,
        session: match &wire.session {
            Scalar::Text(name) => name.to_string(),
            Scalar::Int(number) => number.to_string(),
            other => return Err(Fault::new("session", other.to_string(), "a name or a number")),
        },
        turn,
        delay_ns: wire.delay_ms.time_ns("delay_ms", MS)?,
        // The first prompt of a session is what is appended, so there must be something.
        append: wire.append.checked("append", usize::from(turn == 0))?,
        output: wire.output.checked("output", 1)?,
    })
}

/// A kept row.
#[derive(Clone, Copy, Debug)]
struct Kept {
    delay_ns: u64,
    session: u32,
    turn: u32,
    first_run: u32,
    append_runs: u32,
}

/// One request as [`SessionTable`] hands it out.
#[derive(Clone, Copy, Debug)]
pub struct SessionTurn<'a> {
    /// Wait after the lane's previous request ended, in nanoseconds.
    pub delay_ns: u64,
    /// Number of its session in the file, from 0.
    pub session: u32,
    /// Turn in its session, from 0.
    pub turn: u32,
    /// What is added to the history to make the prompt.
    pub append: &'a [Run],
    /// What the model will say.
    pub output: &'a [Run],
}

/// The rows of one lane.
#[derive(Debug, Default)]
struct Lane {
    rows: Vec<Kept>,
    runs: Vec<Run>,
    /// Name, last turn and length so far of the session that the last row belongs to.
    open: Option<(String, u32, u64)>,
}

/// A whole session trace, by lane.
#[derive(Debug, Default)]
pub struct SessionTable {
    lanes: Vec<Lane>,
    sessions: u32,
    skipped: u64,
}

impl SessionTable {
    /// Reads a file; lanes come in the order of their numbers.
    ///
    /// # Errors
    /// A file that cannot be read, or without `lenient` a row that cannot be used.
    pub fn read(path: &Path, lenient: bool) -> Result<SessionTable, InputError> {
        SessionTable::collect(Rows::open(path, lenient)?)
    }

    /// Reads all of `rows`.
    ///
    /// # Errors
    /// As [`SessionTable::read`].
    pub fn collect(mut rows: Rows) -> Result<SessionTable, InputError> {
        let mut lanes = BTreeMap::new();
        let mut sessions = 0;
        while rows.next_with(|line| add_row(&mut lanes, &mut sessions, parse_row(line)?))?.is_some() {}
        Ok(SessionTable { lanes: lanes.into_values().collect(), sessions, skipped: rows.skipped() })
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> u32 {
        self.sessions
    }

    /// How many rows were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// How many requests a lane has; none for a lane that is not there.
    pub fn requests(&self, lane: usize) -> usize {
        self.lanes.get(lane).map_or(0, |lane| lane.rows.len())
    }

    /// Request `index` of a lane.
    pub fn turn(&self, lane: usize, index: usize) -> Option<SessionTurn<'_>> {
        let lane = self.lanes.get(lane)?;
        let row = lane.rows.get(index)?;
        let end = lane.rows.get(index + 1).map_or(lane.runs.len(), |next| next.first_run as usize);
        let split = (row.first_run + row.append_runs) as usize;
        Some(SessionTurn {
            delay_ns: row.delay_ns,
            session: row.session,
            turn: row.turn,
            append: &lane.runs[row.first_run as usize..split],
            output: &lane.runs[split..end],
        })
    }
}

/// Adds a row behind its lane's others; its turn must follow, because a turn without the ones before it has no history.
fn add_row(lanes: &mut BTreeMap<u32, Lane>, sessions: &mut u32, row: SessionRow) -> Result<(), Fault> {
    let lane = lanes.entry(row.lane).or_default();
    let held = lane.open.as_ref().filter(|(name, _, _)| *name == row.session);
    let (expected, history) = held.map_or((0, 0), |(_, turn, tokens)| (turn + 1, *tokens));
    if row.turn != expected {
        let expected = format!("turn {expected} of session {} in lane {}", row.session, row.lane);
        return Err(Fault::new("turn", row.turn.to_string(), expected));
    }
    let tokens = history + row.append.iter().chain(&row.output).map(|run| u64::from(run.count)).sum::<u64>();
    if tokens > LONGEST_TOKENS {
        return Err(Fault::new("append", format!("a session of {tokens} tokens"), "at most 2^30 tokens a session"));
    }
    if row.turn == 0 {
        *sessions += 1;
    }
    let first_run = lane.runs.len() as u32;
    let append_runs = row.append.len() as u32;
    lane.rows.push(Kept { delay_ns: row.delay_ns, session: *sessions - 1, turn: row.turn, first_run, append_runs });
    lane.runs.extend(row.append.into_iter().chain(row.output));
    lane.open = Some((row.session, row.turn, tokens));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::lines::Lines;

    const GOOD: &str = r#"{"lane":0,"session":"a","turn":0,"delay_ms":3,"append":[[10,5],[100,2]],"output":[[102,3]]}"#;

    fn table(text: &str, lenient: bool) -> Result<SessionTable, InputError> {
        let lines = Lines::from_bytes("s.jsonl", text.as_bytes().to_vec())?;
        SessionTable::collect(Rows::new(lines, lenient))
    }

    #[test]
    fn a_row_is_numbers_and_runs() {
        let row = parse_row(GOOD.as_bytes()).expect("a good row");
        assert_eq!((row.lane, row.turn, row.delay_ns), (0, 0, 3_000_000));
        assert_eq!(row.append, [Run { first: 10, count: 5 }, Run { first: 100, count: 2 }]);
        assert_eq!(row.output, [Run { first: 102, count: 3 }]);
    }

    #[test]
    fn bad_rows_name_their_field() {
        let cases = [
            (r#""turn":0"#, r#""turn":-1"#, "turn"),
            (r#""turn":0,"#, "", "turn"),
            (r#""lane":0"#, r#""lane":"x""#, "lane"),
            (r#""session":"a""#, r#""session":null"#, "session"),
            (r#""delay_ms":3"#, r#""delay_ms":-3"#, "delay_ms"),
            (r#""delay_ms":3,"#, "", "delay_ms"),
            ("[100,2]", "[100,0]", "append"),
            ("[100,2]", "[100,-2]", "append"),
            ("[100,2]", "[9223372036854775808,2]", "append"),
            ("[[10,5],[100,2]]", "[]", "append"),
            ("[[102,3]]", "[]", "output"),
            ("[[102,3]]}", "[[102,3]", "row"),
        ];
        for (old, new, field) in cases {
            assert!(GOOD.contains(old));
            let error = table(&format!("\n{}", GOOD.replace(old, new)), false).expect_err(new);
            assert_eq!((error.file.as_str(), error.line, error.field.as_str()), ("s.jsonl", 2, field), "{error}");
        }
    }

    #[test]
    fn a_row_cut_off_says_so() {
        let error = table(&GOOD[..40], false).expect_err("cut");
        assert_eq!(error.found, "a row cut off after 40 bytes");
    }

    #[test]
    fn turns_must_follow_and_lenient_counts_the_rest() {
        let second = GOOD.replace(r#""turn":0"#, r#""turn":2"#);
        let other = GOOD.replace(r#""session":"a""#, r#""session":"b""#);
        let text = format!("{GOOD}\r\n{second}\r\n\r\n{other}\r\n");
        assert_eq!(table(&text, false).expect_err("turn 1 is missing").line, 2);
        let table = table(&text, true).expect("lenient");
        assert_eq!((table.requests(0), table.skipped(), table.sessions()), (2, 1, 2));
        let turn = table.turn(0, 1).expect("two rows");
        assert_eq!((turn.session, turn.turn, turn.append.len(), turn.output.len()), (1, 0, 2, 1));
    }
}

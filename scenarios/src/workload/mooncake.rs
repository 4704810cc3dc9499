//! Plays a Mooncake trace: open loop by timestamp, or lanes that take the rows in file order.

use std::collections::BTreeMap;
use std::path::PathBuf;

use servesim_engine::content::{Contents, Run};

use super::InputError;
use super::ids::TokenIds;
use super::lanes::LaneSource;
use super::open::{OpenSource, Speedup, TimedTurn};
use super::turn::{Place, Turn, create};
use crate::trace::hash_ids::BlockRun;
use crate::trace::mooncake::{FIRST_OUTPUT_TOKEN, MooncakeReader, MooncakeRow, Times};

/// The rows of a Mooncake trace as turns. Outputs have token ids of their own above those of the blocks; the ids start
/// again after 2^31 output tokens.
pub struct MooncakeTurns {
    path: PathBuf,
    block_size: u32,
    lenient: bool,
    times: Times,
    reader: MooncakeReader,
    loops_left: u32,
    rows_in_round: u64,
    skipped_before: u64,
    outputs: TokenIds,
    speedup: Speedup,
    first_ns: Option<u64>,
    next_session: u64,
    /// Number and turns so far of the sessions that rows name; this grows with the sessions of the trace.
    sessions: BTreeMap<String, (u64, u32)>,
}

impl MooncakeTurns {
    /// Opens a trace that is played `loops` times. An open loop needs times.
    ///
    /// # Errors
    /// A file that cannot be opened.
    pub fn open(
        path: PathBuf,
        block_size: u32,
        lenient: bool,
        times: Times,
        loops: u32,
        speedup: Speedup,
    ) -> Result<MooncakeTurns, InputError> {
        let reader = MooncakeReader::open(&path, block_size, lenient, times)?;
        Ok(MooncakeTurns {
            path,
            block_size,
            lenient,
            times,
            reader,
            loops_left: loops.saturating_sub(1),
            rows_in_round: 0,
            skipped_before: 0,
            outputs: TokenIds::new(FIRST_OUTPUT_TOKEN.into(), 1 << 32),
            speedup,
            first_ns: None,
            next_session: 0,
            sessions: BTreeMap::new(),
        })
    }

    fn next_row(&mut self) -> Result<Option<MooncakeRow>, InputError> {
        loop {
            if let Some(row) = self.reader.next_row()? {
                self.rows_in_round += 1;
                return Ok(Some(row));
            }
            // A round without a row would be followed by others like it.
            if self.loops_left == 0 || self.rows_in_round == 0 {
                return Ok(None);
            }
            self.loops_left -= 1;
            self.rows_in_round = 0;
            self.skipped_before += self.reader.skipped();
            self.sessions.clear();
            self.reader = MooncakeReader::open(&self.path, self.block_size, self.lenient, self.times)?;
        }
    }

    fn session(&mut self, name: Option<String>) -> (u64, u32) {
        let fresh = self.next_session;
        let (session, turn) = match name {
            None => (fresh, 0),
            Some(name) => {
                let known = self.sessions.entry(name).or_insert((fresh, 0));
                known.1 += 1;
                (known.0, known.1 - 1)
            }
        };
        self.next_session += u64::from(session == fresh);
        (session, turn)
    }

    fn turn(&mut self, row: MooncakeRow, contents: &mut Contents) -> Result<Turn, InputError> {
        let output = self.outputs.take(row.output_tokens);
        let prompt = prompt_runs(&row.blocks, self.block_size, row.input_tokens);
        let place = || Place::from(self.reader.place());
        let content = create(contents, prompt.chain([output]), place)?;
        let alone = row.session.is_none();
        let (session, turn) = self.session(row.session);
        let priority = row.priority;
        let turn = Turn::new(content, row.input_tokens, row.output_tokens, session, turn);
        Ok(Turn { priority, ends_session: alone, ..turn })
    }
}

/// The tokens of a prompt's blocks; the last block is cut to the prompt's length.
fn prompt_runs(blocks: &[BlockRun], block_size: u32, tokens: u32) -> impl Iterator<Item = Run> + '_ {
    let mut left = tokens;
    blocks.iter().map(move |run| {
        let count = (u64::from(run.count) * u64::from(block_size)).min(left.into()) as u32;
        left -= count;
        Run { first: run.first * block_size, count }
    })
}

impl LaneSource for MooncakeTurns {
    fn next_turn(&mut self, _lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        Ok(Some((row.delay_ns, self.turn(row, contents)?)))
    }

    fn close(&mut self, _contents: &mut Contents) {}

    fn skipped_rows(&self) -> u64 {
        self.skipped_before + self.reader.skipped()
    }
}

impl OpenSource for MooncakeTurns {
    fn next_timed(&mut self, contents: &mut Contents) -> Result<Option<TimedTurn>, InputError> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        // The reader of an open loop takes no row without a time.
        let time_ns = row.time_ns.unwrap_or_default();
        let first_ns = *self.first_ns.get_or_insert(time_ns);
        let due_ns = self.speedup.scale_ns(time_ns.saturating_sub(first_ns));
        Ok(Some(TimedTurn { due_ns, turn: self.turn(row, contents)? }))
    }

    fn close(&mut self, _contents: &mut Contents) {}

    fn skipped_rows(&self) -> u64 {
        LaneSource::skipped_rows(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::lanes::{InTurn, Lanes};
    use crate::workload::open::OpenLoop;

    const TRACE: &str = r#"{"timestamp": 100, "input_length": 1000, "output_length": 3, "hash_ids": [0, 1]}
{"timestamp": 100, "input_length": 1500, "output_length": 2, "hash_ids": [0, 1, 5], "session_id": "x"}
{"timestamp": 120, "input_length": 513, "output_length": 1, "hash_ids": [0, 9], "session_id": "x", "delay": 4}
"#;

    fn turns(loops: u32, speedup: f64) -> (tempfile::NamedTempFile, MooncakeTurns) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), TRACE).expect("written");
        let turns =
            MooncakeTurns::open(file.path().to_owned(), 512, false, Times::Needed, loops, Speedup::new(speedup));
        (file, turns.expect("opened"))
    }

    #[test]
    fn blocks_are_runs_and_outputs_are_fresh() {
        let (_file, mut source) = turns(1, 1.0);
        let mut contents = Contents::default();
        let mut all = Vec::new();
        while let Some((_, turn)) = source.next_turn(0, &mut contents).expect("good rows") {
            let end = turn.prompt_tokens + turn.output_tokens;
            let runs: Vec<(u32, u32)> = contents.runs(turn.content, 0, end).map(Into::into).collect();
            all.push((turn.session, turn.turn, runs));
        }
        let high = FIRST_OUTPUT_TOKEN;
        assert_eq!(all[0], (0, 0, vec![(0, 1000), (high, 3)]));
        assert_eq!(all[1], (1, 0, vec![(0, 1024), (2560, 476), (high + 3, 2)]));
        assert_eq!(all[2], (1, 1, vec![(0, 512), (4608, 1), (high + 5, 1)]));
    }

    #[test]
    fn open_loop_times_count_from_the_first_row() {
        let (_file, source) = turns(1, 2.0);
        let mut contents = Contents::default();
        let mut open = OpenLoop::new(source, None);
        let mut jobs = Vec::new();
        open.take_due(0, &mut contents, &mut jobs).expect("good rows");
        assert_eq!(jobs.iter().map(|job| job.order).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(open.next_due_ns(&mut contents), Ok(Some(10_000_000)));
        open.take_due(10_000_000, &mut contents, &mut jobs).expect("good rows");
        assert_eq!((jobs.len(), jobs[2].request.tag), (3, 2));
        assert_eq!(open.next_due_ns(&mut contents), Ok(None));
    }

    #[test]
    fn lanes_take_rows_in_file_order_round_after_round() {
        let (_file, source) = turns(2, 1.0);
        let mut contents = Contents::default();
        let mut lanes = Lanes::new(InTurn(source), 2, None);
        let mut jobs = Vec::new();
        let mut ended = 0;
        while ended < 6 {
            lanes.take_due(1_000_000_000 * ended, &mut contents, &mut jobs).expect("good rows");
            lanes.ended(ended, 1_000_000_000 * ended, &mut contents);
            ended += 1;
        }
        let prompts: Vec<u32> = jobs.iter().map(|job| job.request.prompt_tokens).collect();
        assert_eq!(prompts, [1000, 1500, 513, 1000, 1500, 513]);
        assert_eq!(lanes.next_due_ns(&mut contents), Ok(None));
    }
}

//! Plays an Azure trace: every prompt is content that nothing else has.

use std::path::PathBuf;

use servesim_engine::content::Contents;

use super::InputError;
use super::ids::TokenIds;
use super::lanes::LaneSource;
use super::open::{OpenSource, Speedup, TimedTurn};
use super::turn::{Place, Turn, create};
use crate::trace::azure::{AzureReader, AzureRow};

/// The rows of an Azure trace as turns. Token ids start again after 2^32 tokens.
pub struct AzureTurns {
    path: PathBuf,
    lenient: bool,
    reader: AzureReader,
    loops_left: u32,
    rows_in_round: u64,
    skipped_before: u64,
    ids: TokenIds,
    speedup: Speedup,
    next_session: u64,
}

impl AzureTurns {
    /// Opens a trace that is played `loops` times.
    ///
    /// # Errors
    /// A file that cannot be opened, or that has other columns.
    pub fn open(path: PathBuf, lenient: bool, loops: u32, speedup: Speedup) -> Result<AzureTurns, InputError> {
        let reader = AzureReader::open(&path, lenient)?;
        Ok(AzureTurns {
            path,
            lenient,
            reader,
            loops_left: loops.saturating_sub(1),
            rows_in_round: 0,
            skipped_before: 0,
            ids: TokenIds::new(0, 1 << 32),
            speedup,
            next_session: 0,
        })
    }

    fn next_row(&mut self) -> Result<Option<AzureRow>, InputError> {
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
            self.reader = AzureReader::open(&self.path, self.lenient)?;
        }
    }

    fn turn(&mut self, row: AzureRow, contents: &mut Contents) -> Result<Turn, InputError> {
        let tokens = self.ids.take(row.input_tokens + row.output_tokens);
        let content = create(contents, [tokens], || Place::from(self.reader.place()))?;
        let session = self.next_session;
        self.next_session += 1;
        Ok(Turn::new(content, row.input_tokens, row.output_tokens, session, 0).ending_session(true))
    }
}

impl LaneSource for AzureTurns {
    fn next_turn(&mut self, _lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        Ok(Some((0, self.turn(row, contents)?)))
    }

    fn close(&mut self, _contents: &mut Contents) {}

    fn skipped_rows(&self) -> u64 {
        self.skipped_before + self.reader.skipped()
    }
}

impl OpenSource for AzureTurns {
    fn next_timed(&mut self, contents: &mut Contents) -> Result<Option<TimedTurn>, InputError> {
        let Some(row) = self.next_row()? else { return Ok(None) };
        Ok(Some(TimedTurn { due_ns: self.speedup.scale_ns(row.time_ns), turn: self.turn(row, contents)? }))
    }

    fn close(&mut self, _contents: &mut Contents) {}

    fn skipped_rows(&self) -> u64 {
        LaneSource::skipped_rows(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_is_fresh() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let text =
            "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.5,5,2\r\n2023-11-16 18:17:04,7,3\r\n";
        std::fs::write(file.path(), text).expect("written");
        let open = |loops| AzureTurns::open(file.path().to_owned(), false, loops, Speedup::new(0.5)).expect("opened");
        let mut contents = Contents::default();
        let mut source = open(1);
        let mut times = Vec::new();
        while let Some(timed) = source.next_timed(&mut contents).expect("good rows") {
            times.push(timed.due_ns);
        }
        assert_eq!(times, [0, 1_000_000_000]);
        let mut source = open(2);
        let mut seen = Vec::new();
        while let Some((_, turn)) = source.next_turn(0, &mut contents).expect("good rows") {
            seen.push((turn.session, turn.prompt_tokens, contents.token(turn.content, 0)));
        }
        assert_eq!(seen, [(0, 5, 0), (1, 7, 7), (2, 5, 17), (3, 7, 24)]);
    }
}

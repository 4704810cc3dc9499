//! Plays a session trace: each lane of the file is a lane of the loop, each session one stream.

use servesim_engine::content::{Contents, StreamKey};

use super::InputError;
use super::lanes::LaneSource;
use super::turn::{Place, Turn, append, create};
use crate::trace::sessions::SessionTable;

/// The lanes of a session trace.
#[derive(Debug)]
pub struct SessionLanes {
    table: SessionTable,
    file: String,
    loops: u32,
    lanes: Vec<LaneState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LaneState {
    next: usize,
    round: u32,
    stream: Option<StreamKey>,
}

impl SessionLanes {
    /// Plays the first `lanes` lanes of a trace (all, if absent) `loops` times each.
    pub fn new(table: SessionTable, file: &str, lanes: Option<u32>, loops: u32) -> SessionLanes {
        let count = lanes.map_or(table.lanes(), |lanes| table.lanes().min(lanes as usize));
        SessionLanes { table, file: file.to_owned(), loops, lanes: vec![LaneState::default(); count] }
    }

    /// How many lanes play.
    pub fn lanes(&self) -> u32 {
        self.lanes.len() as u32
    }
}

impl LaneSource for SessionLanes {
    fn next_turn(&mut self, lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError> {
        let Some(state) = self.lanes.get_mut(lane as usize) else { return Ok(None) };
        if state.next == self.table.requests(lane as usize) {
            state.next = 0;
            state.round += 1;
        }
        let row = self.table.turn(lane as usize, state.next).filter(|_| state.round < self.loops);
        if row.is_none_or(|row| row.turn == 0)
            && let Some(stream) = state.stream.take()
        {
            contents.release(stream);
        }
        let Some(row) = row else { return Ok(None) };
        state.next += 1;
        let place = || Place::new(&self.file, 0);
        let stream = match state.stream {
            Some(stream) => stream,
            None => *state.stream.insert(create(contents, [], place)?),
        };
        let prompt_tokens = append(contents, stream, row.append.iter().copied(), place)?;
        let tokens = append(contents, stream, row.output.iter().copied(), place)?;
        contents.retain(stream);
        let session = u64::from(row.session) + u64::from(state.round) * u64::from(self.table.sessions());
        let ends_session = self.table.turn(lane as usize, state.next).is_none_or(|next| next.turn == 0);
        let turn = Turn::new(stream, prompt_tokens, tokens - prompt_tokens, session, row.turn);
        Ok(Some((row.delay_ns, turn.ending_session(ends_session))))
    }

    fn close(&mut self, contents: &mut Contents) {
        for stream in self.lanes.iter_mut().filter_map(|lane| lane.stream.take()) {
            contents.release(stream);
        }
    }

    fn jobs_total(&self) -> Option<u64> {
        let requests: usize = (0..self.lanes.len()).map(|lane| self.table.requests(lane)).sum();
        Some(requests as u64 * u64::from(self.loops))
    }

    fn skipped_rows(&self) -> u64 {
        self.table.skipped()
    }
}

#[cfg(test)]
mod tests {
    use servesim_engine::content::Run;

    use super::*;
    use crate::trace::lines::Lines;
    use crate::trace::rows::Rows;

    const TRACE: &str = r#"{"lane":0,"session":"a","turn":0,"delay_ms":1,"append":[[10,5]],"output":[[100,2]]}
{"lane":0,"session":"a","turn":1,"delay_ms":2,"append":[[102,4]],"output":[[106,1]]}
{"lane":0,"session":"b","turn":0,"delay_ms":3,"append":[[10,5],[200,1]],"output":[[201,2]]}
{"lane":1,"session":"c","turn":0,"delay_ms":0,"append":[[300,5]],"output":[[305,2]]}
"#;

    #[test]
    fn a_prompt_is_the_history_and_loops_do_not_grow() {
        let rows = Rows::new(Lines::from_bytes("s", TRACE.into()).expect("memory"), false);
        let table = SessionTable::collect(rows).expect("good rows");
        let mut lanes = SessionLanes::new(table, "s", None, 2);
        assert_eq!((lanes.lanes(), lanes.jobs_total()), (2, Some(8)));
        let mut contents = Contents::default();
        let mut seen = Vec::new();
        while let Some((delay_ns, turn)) = lanes.next_turn(0, &mut contents).expect("good rows") {
            seen.push((delay_ns / 1_000_000, turn.prompt_tokens, turn.output_tokens, turn.session, turn.turn));
            if turn.turn == 1 {
                let runs: Vec<Run> = contents.runs(turn.content, 0, 12).collect();
                assert_eq!(runs, [Run { first: 10, count: 5 }, Run { first: 100, count: 7 }]);
            }
            contents.release(turn.content);
            assert_eq!(contents.streams(), 1);
        }
        let round = |add| [(1, 5, 2, add, 0), (2, 11, 1, add, 1), (3, 6, 2, add + 1, 0)];
        assert_eq!(seen, [round(0), round(3)].concat());
        assert_eq!(contents.streams(), 0);
    }
}

//! Turns the requests of Weka plays into content: one stream an agent, forked where a prompt leaves it.
//!
//! A prompt is its full blocks and a tail of less than a block; the trace names the blocks only. What tail and output
//! are is the next prompt's to say, if it starts with this one's blocks: its blocks hold what this request added.

use servesim_engine::content::{Contents, Run, StreamKey};

use super::InputError;
use super::ids::TokenIds;
use super::turn::{Place, Turn, append, create};
use crate::trace::weka::{Play, Step, WekaReader, WekaRequest};

/// What the tokens are that the trace has no blocks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputContent {
    /// Those that the agent's next prompt has at their places, where it starts with this prompt's blocks and reaches so
    /// far; else fresh ones.
    #[default]
    NextTurn,
    /// Always fresh ones.
    Fresh,
}

/// The longest common prefix that can be put before all prompts, in tokens.
pub const MOST_SHARED_PREFIX_TOKENS: u32 = 1 << 30;

/// A play that is being played.
#[derive(Debug)]
pub struct LivePlay {
    /// What the trace says.
    pub play: Play,
    /// Number of the session of agent 0; the other agents follow.
    pub first_session: u64,
    place: Place,
    first_token: u32,
    streams: Vec<AgentStream>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AgentStream {
    key: Option<StreamKey>,
    turns: u32,
}

/// Reads plays and makes their content. The token ids of a play's blocks and all fresh tokens come from one counter, which
/// starts again after 2^32 ids; until then no two plays have a token in common, except in the shared prefix.
pub struct WekaContent {
    reader: WekaReader,
    loops_left: u32,
    plays_in_round: u64,
    ids: TokenIds,
    output_content: OutputContent,
    shared_prefix_tokens: u32,
    next_session: u64,
}

impl WekaContent {
    /// Plays what `reader` reads `loops` times; every prompt starts with the same `shared_prefix_tokens` tokens.
    pub fn new(
        reader: WekaReader,
        loops: u32,
        output_content: OutputContent,
        shared_prefix_tokens: u32,
    ) -> WekaContent {
        let shared_prefix_tokens = shared_prefix_tokens.min(MOST_SHARED_PREFIX_TOKENS);
        WekaContent {
            reader,
            loops_left: loops.saturating_sub(1),
            plays_in_round: 0,
            ids: TokenIds::new(shared_prefix_tokens.into(), 1 << 32),
            output_content,
            shared_prefix_tokens,
            next_session: 0,
        }
    }

    /// The next play; none after the last of the last round.
    ///
    /// # Errors
    /// A read that fails, or a play that cannot be used.
    pub fn next_play(&mut self) -> Result<Option<LivePlay>, InputError> {
        loop {
            if let Some(play) = self.reader.next_play()? {
                self.plays_in_round += 1;
                return Ok(Some(self.begin(play)));
            }
            // A round without a play would be followed by others like it.
            if self.loops_left == 0 || self.plays_in_round == 0 {
                return Ok(None);
            }
            self.loops_left -= 1;
            self.plays_in_round = 0;
            self.reader.rewind()?;
        }
    }

    fn begin(&mut self, play: Play) -> LivePlay {
        let streams = vec![AgentStream::default(); play.agents.len()];
        let first_session = self.next_session;
        self.next_session += streams.len() as u64;
        let first_token = self.ids.take(play.block_span * play.block_size).first;
        LivePlay { play, first_session, place: self.reader.place().into(), first_token, streams }
    }

    /// Makes the content of the request at `step` of an agent. An agent's requests must be asked for in order.
    ///
    /// # Errors
    /// A prompt with output longer than a stream can be.
    pub fn turn(
        &mut self,
        live: &mut LivePlay,
        agent: u32,
        step: usize,
        contents: &mut Contents,
    ) -> Result<Option<Turn>, InputError> {
        let steps = &live.play.agents[agent as usize].steps;
        let Some(Step::Request(request)) = steps.get(step) else { return Ok(None) };
        let stream = self.prompt_start(live, agent, request, contents)?;
        let output_tokens = request.output_tokens.max(1);
        let place = || live.place.clone();
        let prefix = self.shared_prefix_tokens;
        let in_blocks = full_block_tokens(&live.play, request);
        let at = contents.len(stream) - prefix;
        append(contents, stream, block_runs(live, request, at, in_blocks), place)?;
        let end = u64::from(request.input_tokens) + u64::from(output_tokens);
        self.fill(live, &steps[step + 1..], stream, end, contents)?;
        let held = &mut live.streams[agent as usize];
        held.key = Some(stream);
        held.turns += 1;
        contents.retain(stream);
        let session = live.first_session + u64::from(agent);
        let prompt_tokens = prefix + request.input_tokens;
        let turn = Turn::new(stream, prompt_tokens, output_tokens, session, held.turns - 1);
        let ends_session = !steps[step + 1..].iter().any(|step| matches!(step, Step::Request(_)));
        Ok(Some(Turn { max_new_tokens: request.output_tokens, ends_session, ..turn }))
    }

    /// The stream that starts with what the prompt has in common with the agent's stream so far: the stream itself if
    /// that is all of it, else a fork.
    fn prompt_start(
        &self,
        live: &LivePlay,
        agent: u32,
        request: &WekaRequest,
        contents: &mut Contents,
    ) -> Result<StreamKey, InputError> {
        let prefix = self.shared_prefix_tokens;
        let Some(old) = live.streams[agent as usize].key else {
            return create(contents, [Run { first: 0, count: prefix }], || live.place.clone());
        };
        let common = if request.continues && self.output_content == OutputContent::NextTurn {
            request.input_tokens
        } else {
            request.shared_blocks * live.play.block_size
        };
        if contents.len(old) <= prefix + common {
            return Ok(old);
        }
        let fork = contents.fork(old, prefix + common);
        contents.release(old);
        Ok(fork)
    }

    /// Appends what follows a prompt's blocks up to offset `end` of the prompt: tail and output. `later` are the agent's
    /// next steps.
    fn fill(
        &mut self,
        live: &LivePlay,
        later: &[Step],
        stream: StreamKey,
        end: u64,
        contents: &mut Contents,
    ) -> Result<(), InputError> {
        let place = || live.place.clone();
        let mut at = contents.len(stream) - self.shared_prefix_tokens;
        let mut reach = end.min(u32::MAX.into()) as u32;
        let later = if self.output_content == OutputContent::NextTurn { later } else { &[] };
        for step in later {
            let Step::Request(next) = step else { continue };
            // What a prompt has past its blocks is in turn the business of the prompt after it.
            reach = reach.min(next.input_tokens);
            if !next.continues || at >= reach {
                break;
            }
            let stop = reach.min(full_block_tokens(&live.play, next));
            append(contents, stream, block_runs(live, next, at, stop), place)?;
            at = at.max(stop);
        }
        let fresh = end.saturating_sub(at.into());
        if fresh > 0 {
            append(contents, stream, [self.ids.take(fresh.min(u32::MAX.into()) as u32)], place)?;
        }
        Ok(())
    }

    /// Lets go of an agent's stream, after its last request.
    pub fn release(&self, live: &mut LivePlay, agent: u32, contents: &mut Contents) {
        if let Some(stream) = live.streams[agent as usize].key.take() {
            contents.release(stream);
        }
    }

    /// Lets go of all streams of a play.
    pub fn release_all(&self, live: &mut LivePlay, contents: &mut Contents) {
        for stream in live.streams.iter_mut().filter_map(|stream| stream.key.take()) {
            contents.release(stream);
        }
    }

    /// How many plays were skipped.
    pub fn skipped(&self) -> u64 {
        self.reader.skipped()
    }
}

/// How many of a prompt's tokens are in full blocks.
fn full_block_tokens(play: &Play, request: &WekaRequest) -> u32 {
    request.input_tokens - request.input_tokens % play.block_size
}

/// The tokens `[from, to)` of a prompt, which lie in its full blocks.
fn block_runs<'a>(live: &'a LivePlay, request: &'a WekaRequest, from: u32, to: u32) -> impl Iterator<Item = Run> + 'a {
    let size = live.play.block_size;
    let mut start = 0;
    request.blocks.iter().filter_map(move |run| {
        let (begin, end) = (start, start + run.count * size);
        start = end;
        let (low, high) = (begin.max(from), end.min(to));
        let first = live.first_token + (run.first - live.play.first_block) * size;
        (low < high).then(|| Run { first: first + (low - begin), count: high - low })
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A request with `input` tokens in blocks of 4.
    pub(crate) fn row(t: f64, input: u32, output: u32, ids: &str) -> String {
        format!(r#"{{"t":{t},"type":"n","in":{input},"out":{output},"hash_ids":{ids},"api_time":1,"think_time":0.5}}"#)
    }

    /// A file of plays with blocks of 4 tokens.
    pub(crate) fn plays(plays: &[&[String]]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let lines: Vec<String> = plays
            .iter()
            .map(|rows| format!(r#"{{"id":"p","block_size":4,"requests":[{}]}}"#, rows.join(",")))
            .collect();
        std::fs::write(file.path(), lines.join("\n")).expect("written");
        file
    }

    type Runs = Vec<(u32, u32)>;

    /// The runs of each request of the first agent of a single play: prompt and output.
    fn content(rows: &[String], mode: OutputContent, prefix: u32) -> Vec<(Runs, Runs)> {
        let file = plays(&[rows]);
        let reader = WekaReader::open(file.path(), false).expect("opened");
        let mut source = WekaContent::new(reader, 1, mode, prefix);
        let mut contents = Contents::default();
        let mut live = source.next_play().expect("a good play").expect("one play");
        let mut found = Vec::new();
        for step in 0..live.play.agents[0].steps.len() {
            if let Some(turn) = source.turn(&mut live, 0, step, &mut contents).expect("short") {
                let runs = |from, to| contents.runs(turn.content, from, to).map(Into::into).collect();
                let end = turn.prompt_tokens + turn.output_tokens;
                found.push((runs(0, turn.prompt_tokens), runs(turn.prompt_tokens, end)));
                contents.release(turn.content);
                assert_eq!(contents.streams(), 1);
            }
        }
        source.release(&mut live, 0, &mut contents);
        assert_eq!(contents.streams(), 0);
        found
    }

    #[test]
    fn tail_and_output_are_what_the_next_prompt_has_there() {
        // Blocks 1..=5, so block 1 is tokens 0..4 and fresh tokens start at 20.
        let rows = [row(0.0, 10, 5, "[1,2]"), row(1.0, 20, 3, "[1,2,3,4,5]")];
        let found = content(&rows, OutputContent::NextTurn, 0);
        assert_eq!(found[0], (vec![(0, 10)], vec![(10, 5)]));
        assert_eq!(found[1], (vec![(0, 20)], vec![(20, 3)]));
    }

    #[test]
    fn past_the_next_prompts_blocks_the_prompt_after_it_decides() {
        // The output of the first reaches to 15: the second has blocks to 12 and a tail to 14, which the third's block 4
        // settles; place 14 lies past the second prompt, so it is fresh.
        let rows = [row(0.0, 9, 6, "[1,2]"), row(1.0, 14, 4, "[1,2,3]"), row(2.0, 16, 1, "[1,2,3,4]")];
        let found = content(&rows, OutputContent::NextTurn, 0);
        assert_eq!(found[0], (vec![(0, 9)], vec![(9, 5), (16, 1)]));
        assert_eq!(found[1], (vec![(0, 14)], vec![(14, 2), (17, 2)]));
        assert_eq!(found[2], (vec![(0, 16)], vec![(19, 1)]));
    }

    #[test]
    fn where_the_next_prompt_diverges_tail_and_output_are_fresh() {
        let rows = [row(0.0, 10, 2, "[1,2]"), row(1.0, 12, 2, "[1,7,8]")];
        let found = content(&rows, OutputContent::NextTurn, 0);
        // Ids 1..=8 span 32 tokens; blocks 7 and 8 are tokens 24..32.
        assert_eq!(found[0], (vec![(0, 8), (32, 2)], vec![(34, 2)]));
        assert_eq!(found[1], (vec![(0, 4), (24, 8)], vec![(36, 2)]));
    }

    #[test]
    fn fresh_output_is_never_the_next_prompts() {
        let rows = [row(0.0, 10, 2, "[1,2]"), row(1.0, 12, 2, "[1,2,3]")];
        let found = content(&rows, OutputContent::Fresh, 0);
        assert_eq!(found[0], (vec![(0, 8), (12, 2)], vec![(14, 2)]));
        assert_eq!(found[1], (vec![(0, 12)], vec![(16, 2)]));
    }

    #[test]
    fn a_shared_prefix_stands_before_every_prompt_and_a_request_without_output_is_prefill_only() {
        let rows = [row(0.0, 4, 0, "[9]"), row(1.0, 8, 1, "[9,10]")];
        let found = content(&rows, OutputContent::NextTurn, 100);
        assert_eq!(found[0], (vec![(0, 104)], vec![(104, 1)]));
        assert_eq!(found[1], (vec![(0, 108)], vec![(108, 1)]));
    }
}

//! A coding-agent workload: lanes that run one multi-turn session after another. Each turn appends a tool result to the
//! whole history, and the model answers, mostly with a short tool call.
//!
//! The shape is that of sessions recorded on a real server. Lanes draw from streams of their own and make their next turn
//! when it is asked for, so memory follows the live sessions.

use servesim_engine::content::{Contents, Run, StreamKey};

use super::Span;
use super::sample::Sampler;
use crate::workload::InputError;
use crate::workload::ids::TokenIds;
use crate::workload::lanes::LaneSource;
use crate::workload::turn::{Place, Turn, append, create};

const MS: u64 = 1_000_000;

/// The settings of the generator.
#[derive(Clone, Debug, PartialEq)]
pub struct CodingAgentConfig {
    /// Seeds all draws.
    pub seed: u64,
    /// Lanes side by side.
    pub lanes: u32,
    /// Requests in all, shared out evenly over the lanes.
    pub requests: u64,
    /// Turns of a session.
    pub turns: Span,
    /// Tokens of the system prompt that all sessions start with.
    pub system_tokens: u32,
    /// Tokens of the task that follows it.
    pub task_tokens: Span,
    /// Median of the tokens that a later turn appends.
    pub tool_result_median_tokens: f64,
    /// Standard deviation of their logarithm.
    pub tool_result_sigma: f64,
    /// The most tokens that a later turn appends.
    pub tool_result_max_tokens: u32,
    /// Median of the output tokens.
    pub output_median_tokens: f64,
    /// Standard deviation of their logarithm.
    pub output_sigma: f64,
    /// The most output tokens.
    pub output_max_tokens: u32,
    /// A session ends before its history with the next output passes this many tokens.
    pub session_max_tokens: u32,
    /// Wait between the end of a request and its lane's next one, in milliseconds.
    pub delay_ms: Span,
}

impl Default for CodingAgentConfig {
    fn default() -> Self {
        CodingAgentConfig {
            seed: 42,
            lanes: 16,
            requests: 2000,
            turns: Span::new(12, 36),
            system_tokens: 4000,
            task_tokens: Span::new(400, 3000),
            tool_result_median_tokens: 140.0,
            tool_result_sigma: 1.62,
            tool_result_max_tokens: 24_000,
            output_median_tokens: 68.0,
            output_sigma: 1.15,
            output_max_tokens: 8000,
            session_max_tokens: 120_000,
            delay_ms: Span::new(3, 30),
        }
    }
}

/// The fewest tokens that a later turn appends, and the fewest that the model says.
const LEAST_TOKENS: (f64, f64) = (4.0, 2.0);
/// The first token id of the system prompt; ids below are left to hand-written content.
const FIRST_TOKEN: u32 = 10;

impl CodingAgentConfig {
    /// The length that the first turn of any session fits in, in tokens; `session_max_tokens` must not be below.
    pub fn longest_first_turn(&self) -> u64 {
        u64::from(self.system_tokens) + u64::from(self.task_tokens.high) + u64::from(self.output_max_tokens.max(2))
    }

    fn tool_result_tokens(&self, sampler: &mut Sampler) -> u32 {
        let drawn = sampler.log_normal(self.tool_result_median_tokens, self.tool_result_sigma);
        drawn.min(self.tool_result_max_tokens.into()).max(LEAST_TOKENS.0) as u32
    }

    fn output_tokens(&self, sampler: &mut Sampler) -> u32 {
        let drawn = sampler.log_normal(self.output_median_tokens, self.output_sigma);
        drawn.min(self.output_max_tokens.into()).max(LEAST_TOKENS.1) as u32
    }
}

/// The lanes of the generator.
///
/// Token ids: the system prompt has the first ones, and each lane an equal part of the rest, from which its sessions take
/// theirs in a row. A lane starts its part again after 2^32 / lanes tokens (16.7 million with 256 lanes), so its content
/// is distinct from all that was made since.
#[derive(Debug)]
pub struct CodingAgent {
    config: CodingAgentConfig,
    lanes: Vec<Lane>,
}

#[derive(Debug)]
struct Lane {
    sampler: Sampler,
    ids: TokenIds,
    requests_left: u64,
    sessions: u64,
    started: bool,
    /// Turns that the session may still have, and the next one's number.
    turns_left: u32,
    turn: u32,
    /// What the session's next turn appends and says, drawn ahead to know whether there is room for it.
    ahead: Option<(u32, u32)>,
    stream: Option<StreamKey>,
}

impl CodingAgent {
    /// A generator; `config.lanes` is at least 1 and `session_max_tokens` no less than
    /// [`CodingAgentConfig::longest_first_turn`].
    pub fn new(config: CodingAgentConfig) -> CodingAgent {
        // One id is left out, so that the system prompt is a run of its own everywhere.
        let ids = TokenIds::new(u64::from(FIRST_TOKEN) + u64::from(config.system_tokens) + 1, 1 << 32);
        let (lanes, requests) = (u64::from(config.lanes), config.requests);
        let lane = |lane: u32| Lane {
            sampler: Sampler::new(config.seed, lane.into()),
            ids: ids.part(lane, config.lanes),
            requests_left: requests / lanes + u64::from(u64::from(lane) < requests % lanes),
            sessions: 0,
            started: false,
            turns_left: 0,
            turn: 0,
            ahead: None,
            stream: None,
        };
        CodingAgent { lanes: (0..config.lanes).map(lane).collect(), config }
    }
}

impl Lane {
    /// The tokens that the next turn appends and says. A session that is out of turns or of room ends, and the turn is the
    /// first of the next one.
    fn draw(&mut self, config: &CodingAgentConfig, contents: &mut Contents) -> (u32, u32) {
        if let Some(ahead) = self.ahead.take()
            && self.has_room(config, ahead, contents)
        {
            return ahead;
        }
        self.end_session(contents);
        self.turns_left = self.sampler.uniform(config.turns);
        let task = self.sampler.uniform(config.task_tokens);
        (task, config.output_tokens(&mut self.sampler))
    }

    /// Draws the session's next turn, if it may have one, and says whether it will have it.
    fn look_ahead(&mut self, config: &CodingAgentConfig, contents: &Contents) -> bool {
        self.ahead = None;
        if self.turns_left > 0 && self.requests_left > 0 {
            let append = config.tool_result_tokens(&mut self.sampler);
            self.ahead = Some((append, config.output_tokens(&mut self.sampler)));
        }
        self.ahead.is_some_and(|ahead| self.has_room(config, ahead, contents))
    }

    fn has_room(&self, config: &CodingAgentConfig, (append, output): (u32, u32), contents: &Contents) -> bool {
        let used = self.stream.map_or(0, |stream| contents.len(stream));
        u64::from(used) + u64::from(append) + u64::from(output) <= u64::from(config.session_max_tokens)
    }

    fn end_session(&mut self, contents: &mut Contents) {
        if let Some(stream) = self.stream.take() {
            contents.release(stream);
            self.sessions += 1;
        }
        self.turn = 0;
        self.turns_left = 0;
    }

    /// The first request of a lane does not wait.
    fn delay_ns(&mut self, config: &CodingAgentConfig) -> u64 {
        let delay_ms = if self.started { self.sampler.uniform(config.delay_ms) } else { 0 };
        self.started = true;
        u64::from(delay_ms) * MS
    }
}

impl LaneSource for CodingAgent {
    fn next_turn(&mut self, lane: u32, contents: &mut Contents) -> Result<Option<(u64, Turn)>, InputError> {
        let (config, lanes) = (&self.config, u64::from(self.config.lanes));
        let Some(state) = self.lanes.get_mut(lane as usize) else { return Ok(None) };
        if state.requests_left == 0 {
            state.end_session(contents);
            return Ok(None);
        }
        let (append_tokens, output_tokens) = state.draw(config, contents);
        let place = || Place::new("coding-agent", 0);
        let stream = match state.stream {
            Some(stream) => stream,
            None => {
                let system = Run { first: FIRST_TOKEN, count: config.system_tokens };
                *state.stream.insert(create(contents, [system], place)?)
            }
        };
        let prompt_tokens = append(contents, stream, [state.ids.take(append_tokens)], place)?;
        let end = append(contents, stream, [state.ids.take(output_tokens)], place)?;
        contents.retain(stream);
        let session = u64::from(lane) + state.sessions * lanes;
        let turn = Turn::new(stream, prompt_tokens, end - prompt_tokens, session, state.turn);
        state.turn += 1;
        state.turns_left = state.turns_left.saturating_sub(1);
        state.requests_left -= 1;
        let delay_ns = state.delay_ns(config);
        let goes_on = state.look_ahead(config, contents);
        Ok(Some((delay_ns, turn.ending_session(!goes_on))))
    }

    fn close(&mut self, contents: &mut Contents) {
        for lane in &mut self.lanes {
            lane.end_session(contents);
        }
    }

    fn jobs_total(&self) -> Option<u64> {
        Some(self.config.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delay, prompt, output, session, turn and runs of all requests of all lanes.
    type Made = Vec<(u64, u32, u32, u64, u32, Vec<(u32, u32)>)>;

    fn make(config: &CodingAgentConfig, order: impl Iterator<Item = u32>) -> (Made, usize) {
        let mut generator = CodingAgent::new(config.clone());
        let mut contents = Contents::default();
        let (mut made, mut most_streams) = (Vec::new(), 0);
        for lane in order {
            while let Some((delay_ns, turn)) = generator.next_turn(lane, &mut contents).expect("bounded") {
                let end = turn.prompt_tokens + turn.output_tokens;
                let runs = contents.runs(turn.content, 0, end).map(Into::into).collect();
                made.push((delay_ns, turn.prompt_tokens, turn.output_tokens, turn.session, turn.turn, runs));
                contents.release(turn.content);
                most_streams = most_streams.max(contents.streams());
            }
        }
        assert_eq!(contents.streams(), 0);
        (made, most_streams)
    }

    #[test]
    fn a_seed_gives_the_same_requests_in_any_order_of_lanes() {
        let config = CodingAgentConfig { requests: 403, lanes: 4, ..CodingAgentConfig::default() };
        let (mut made, most_streams) = make(&config, 0..4);
        let (mut again, _) = make(&config, (0..4).rev());
        made.sort();
        again.sort();
        assert_eq!((made.len(), most_streams), (403, 1));
        assert_eq!(made, again);
        let (mut other, _) = make(&CodingAgentConfig { seed: 43, ..config }, 0..4);
        other.sort();
        assert_ne!(made, other);
    }

    #[test]
    fn lanes_and_sessions_share_the_system_prompt_only() {
        let config = CodingAgentConfig { requests: 300, lanes: 3, ..CodingAgentConfig::default() };
        let (made, _) = make(&config, 0..3);
        let mut last_of_session = std::collections::BTreeMap::new();
        for (_, _, _, session, _, runs) in &made {
            last_of_session.insert(session, runs);
        }
        assert!(last_of_session.len() > 9);
        let mut own: Vec<(u32, u32)> = last_of_session.values().flat_map(|runs| runs[1..].iter().copied()).collect();
        assert!(last_of_session.values().all(|runs| runs[0] == (10, 4000)));
        own.sort_unstable();
        assert!(own.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
    }

    #[test]
    fn the_shape_is_that_of_the_recorded_sessions() {
        let config = CodingAgentConfig { requests: 6262, ..CodingAgentConfig::default() };
        let (made, _) = make(&config, 0..16);
        let mut fresh_tokens = 0;
        let mut held = 0;
        for (delay_ns, prompt, output, _, turn, _) in &made {
            fresh_tokens += u64::from(prompt - if *turn == 0 { 0 } else { held });
            held = prompt + output;
            assert!(held <= 120_000 && *delay_ns <= 30_000_000);
        }
        let mean = fresh_tokens / made.len() as u64;
        assert!((600..850).contains(&mean), "about 720 new tokens a request, not {mean}");
        let first_delays: Vec<u64> = made.iter().filter(|row| row.3 < 16 && row.4 == 0).map(|row| row.0).collect();
        assert_eq!(first_delays, [0; 16]);
    }

    #[test]
    fn a_session_ends_before_it_passes_its_limit() {
        let config = CodingAgentConfig { session_max_tokens: 15_000, ..CodingAgentConfig::default() };
        assert_eq!(config.longest_first_turn(), 15_000);
        let (made, _) = make(&config, 0..16);
        assert!(made.iter().all(|row| row.1 + row.2 <= 15_000));
        assert_eq!(made.len(), 2000);
    }
}

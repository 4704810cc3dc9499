//! Plays Weka traces in an open loop: every request enters at its recorded time, whatever has become of the others.
//!
//! Times count from the begin of the play, those of a sub-agent from its marker. A lane plays one play after another; the
//! next one begins when the last request of the one before is recorded to end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use servesim_engine::content::Contents;

use super::InputError;
use super::open::{OpenSource, Speedup, TimedTurn};
use super::weka_content::{LivePlay, WekaContent};
use crate::trace::weka::Step;

/// The requests of plays by recorded time.
pub struct WekaTimes {
    content: WekaContent,
    speedup: Speedup,
    lanes: Vec<Option<LanePlay>>,
    started: bool,
    /// The next request of every agent that has one: time as written, lane, agent, step.
    next: BinaryHeap<Reverse<(u64, u32, u32, usize)>>,
}

struct LanePlay {
    live: LivePlay,
    /// When each agent begins, as written, in nanoseconds since the start of the run.
    begins_ns: Vec<u64>,
    /// When the last request ends, as written.
    end_ns: u64,
    requests_left: usize,
}

impl WekaTimes {
    /// Plays `content` on `lanes` lanes.
    pub fn new(content: WekaContent, lanes: u32, speedup: Speedup) -> WekaTimes {
        let lanes = (0..lanes).map(|_| None).collect();
        WekaTimes { content, speedup, lanes, started: false, next: BinaryHeap::new() }
    }

    fn begin(&mut self, lane: u32, begin_ns: u64) -> Result<(), InputError> {
        let Some(live) = self.content.next_play()? else { return Ok(()) };
        let mut begins_ns = vec![begin_ns; live.play.agents.len()];
        let (mut end_ns, mut requests_left) = (begin_ns, 0);
        // A sub-agent's index is above its parent's, so one pass knows every begin before it is used.
        for (index, agent) in live.play.agents.iter().enumerate() {
            for step in &agent.steps {
                match step {
                    Step::Start { agent, time_ns, .. } => {
                        begins_ns[*agent as usize] = begins_ns[index].saturating_add(*time_ns);
                    }
                    Step::Request(request) => {
                        let sent_ns = begins_ns[index].saturating_add(request.time_ns);
                        end_ns = end_ns.max(sent_ns.saturating_add(request.api_time_ns));
                        requests_left += 1;
                    }
                }
            }
        }
        let play = self.lanes[lane as usize].insert(LanePlay { live, begins_ns, end_ns, requests_left });
        for agent in 0..play.begins_ns.len() as u32 {
            self.next.extend(play.next_request(lane, agent, 0).map(Reverse));
        }
        Ok(())
    }
}

impl LanePlay {
    /// Time, lane, agent and step of the agent's first request from step `from` on.
    fn next_request(&self, lane: u32, agent: u32, from: usize) -> Option<(u64, u32, u32, usize)> {
        let steps = &self.live.play.agents[agent as usize].steps;
        let begin_ns = self.begins_ns[agent as usize];
        steps.iter().enumerate().skip(from).find_map(|(at, step)| match step {
            Step::Request(request) => Some((begin_ns.saturating_add(request.time_ns), lane, agent, at)),
            Step::Start { .. } => None,
        })
    }
}

impl OpenSource for WekaTimes {
    fn next_timed(&mut self, contents: &mut Contents) -> Result<Option<TimedTurn>, InputError> {
        if !self.started {
            self.started = true;
            for lane in 0..self.lanes.len() as u32 {
                self.begin(lane, 0)?;
            }
        }
        let Some(Reverse((time_ns, lane, agent, step))) = self.next.pop() else { return Ok(None) };
        let Some(play) = &mut self.lanes[lane as usize] else { return Ok(None) };
        let Some(turn) = self.content.turn(&mut play.live, agent, step, contents)? else { return Ok(None) };
        play.requests_left -= 1;
        let next = play.next_request(lane, agent, step + 1);
        if next.is_none() {
            self.content.release(&mut play.live, agent, contents);
        }
        self.next.extend(next.map(Reverse));
        if play.requests_left == 0 {
            let end_ns = play.end_ns;
            self.lanes[lane as usize] = None;
            self.begin(lane, end_ns)?;
        }
        Ok(Some(TimedTurn { due_ns: self.speedup.scale_ns(time_ns), turn }))
    }

    fn close(&mut self, contents: &mut Contents) {
        for mut play in self.lanes.iter_mut().filter_map(Option::take) {
            self.content.release_all(&mut play.live, contents);
        }
        self.next.clear();
    }

    fn skipped_rows(&self) -> u64 {
        self.content.skipped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::weka::WekaReader;
    use crate::workload::weka_content::OutputContent;
    use crate::workload::weka_content::tests::{plays, row};

    #[test]
    fn nested_times_count_from_the_marker_and_plays_follow_each_other() {
        let child =
            format!(r#"{{"t":2,"type":"subagent","requests":[{},{}]}}"#, row(0.0, 4, 1, "[1]"), row(4.0, 4, 1, "[1]"));
        let file = plays(&[
            &[row(0.0, 4, 1, "[1]"), child, row(3.0, 8, 1, "[1,2]")],
            &[row(0.0, 4, 1, "[1]")],
            &[row(0.0, 4, 1, "[1]")],
        ]);
        let reader = WekaReader::open(file.path(), false).expect("opened");
        let content = WekaContent::new(reader, 1, OutputContent::NextTurn, 0);
        let mut source = WekaTimes::new(content, 2, Speedup::new(2.0));
        let mut contents = Contents::default();
        let mut seen = Vec::new();
        while let Some(timed) = source.next_timed(&mut contents).expect("good plays") {
            seen.push((timed.due_ns / 1_000_000, timed.turn.session, timed.turn.turn));
            contents.release(timed.turn.content);
        }
        // Lane 1 plays the second play and then, from its end at 1 s, the third; all times are halved.
        assert_eq!(seen, [(0, 0, 0), (0, 2, 0), (500, 3, 0), (1000, 1, 0), (1500, 0, 1), (3000, 1, 1)]);
        assert_eq!(contents.streams(), 0);
    }
}

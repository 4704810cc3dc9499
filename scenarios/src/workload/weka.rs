//! Plays Weka traces in a closed loop: a lane plays one play after another, sub-agents run beside each other.
//!
//! The requests of an agent follow each other by their think times. Where an agent starts a sub-agent, that one begins at
//! its recorded offset from the end of the request before; the agent's next request waits until the sub-agents that it has
//! started are done, and then for its think time.

use servesim_engine::content::Contents;

use super::InputError;
use super::lanes::{LaneScript, Waiting};
use super::weka_content::{LivePlay, WekaContent};
use crate::trace::weka::Step;

/// The lanes of a closed loop over plays. A strand is an agent's index in its play.
pub struct WekaLanes {
    content: WekaContent,
    lanes: Vec<Option<LanePlay>>,
}

/// The play of a lane.
struct LanePlay {
    live: LivePlay,
    agents: Vec<AgentProgress>,
}

#[derive(Clone, Copy, Debug, Default)]
struct AgentProgress {
    next_step: usize,
    parent: Option<u32>,
    /// Sub-agents that are not done.
    children: u32,
}

impl WekaLanes {
    /// Plays `content` on `lanes` lanes.
    pub fn new(content: WekaContent, lanes: u32) -> WekaLanes {
        WekaLanes { content, lanes: (0..lanes).map(|_| None).collect() }
    }

    /// Begins the next play on a lane, if there is one.
    fn begin(
        &mut self,
        lane: u32,
        now_ns: u64,
        contents: &mut Contents,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), InputError> {
        let Some(live) = self.content.next_play()? else { return Ok(()) };
        let mut agents = vec![AgentProgress::default(); live.play.agents.len()];
        for (index, agent) in live.play.agents.iter().enumerate() {
            for step in &agent.steps {
                if let Step::Start { agent: child, .. } = step {
                    agents[*child as usize].parent = Some(index as u32);
                }
            }
        }
        let play = self.lanes[lane as usize].insert(LanePlay { live, agents });
        play.proceed(&mut self.content, (lane, 0), now_ns, contents, waiting)?;
        Ok(())
    }
}

impl LanePlay {
    /// Goes on with an agent that has nothing running at `now_ns`: starts sub-agents and queues the next request, unless
    /// that must wait for sub-agents. Returns whether the play is over.
    fn proceed(
        &mut self,
        content: &mut WekaContent,
        (lane, agent): (u32, u32),
        now_ns: u64,
        contents: &mut Contents,
        waiting: &mut Vec<Waiting>,
    ) -> Result<bool, InputError> {
        loop {
            let progress = self.agents[agent as usize];
            let steps = &self.live.play.agents[agent as usize].steps;
            match steps.get(progress.next_step) {
                Some(&Step::Start { agent: child, offset_ns, .. }) => {
                    self.agents[agent as usize].next_step += 1;
                    self.agents[agent as usize].children += 1;
                    self.proceed(content, (lane, child), now_ns.saturating_add(offset_ns), contents, waiting)?;
                }
                _ if progress.children > 0 => return Ok(false),
                Some(Step::Request(request)) => {
                    let due_ns = now_ns.saturating_add(request.think_time_ns);
                    self.agents[agent as usize].next_step += 1;
                    let turn = content.turn(&mut self.live, agent, progress.next_step, contents)?;
                    waiting.extend(turn.map(|turn| Waiting { due_ns, lane, strand: agent, turn }));
                    return Ok(false);
                }
                None => return self.finish(content, (lane, agent), now_ns, contents, waiting),
            }
        }
    }

    /// An agent is done, sub-agents included; its parent goes on if it waited for this one last.
    fn finish(
        &mut self,
        content: &mut WekaContent,
        (lane, agent): (u32, u32),
        now_ns: u64,
        contents: &mut Contents,
        waiting: &mut Vec<Waiting>,
    ) -> Result<bool, InputError> {
        content.release(&mut self.live, agent, contents);
        let Some(parent) = self.agents[agent as usize].parent else { return Ok(true) };
        let children = &mut self.agents[parent as usize].children;
        *children -= 1;
        if *children > 0 {
            return Ok(false);
        }
        self.proceed(content, (lane, parent), now_ns, contents, waiting)
    }
}

impl LaneScript for WekaLanes {
    fn start(&mut self, lane: u32, contents: &mut Contents, waiting: &mut Vec<Waiting>) -> Result<(), InputError> {
        self.begin(lane, 0, contents, waiting)
    }

    fn ended(
        &mut self,
        lane: u32,
        strand: u32,
        now_ns: u64,
        contents: &mut Contents,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), InputError> {
        let Some(play) = &mut self.lanes[lane as usize] else { return Ok(()) };
        if play.proceed(&mut self.content, (lane, strand), now_ns, contents, waiting)? {
            self.lanes[lane as usize] = None;
            self.begin(lane, now_ns, contents, waiting)?;
        }
        Ok(())
    }

    fn close(&mut self, contents: &mut Contents) {
        for mut play in self.lanes.iter_mut().filter_map(Option::take) {
            self.content.release_all(&mut play.live, contents);
        }
    }

    fn skipped_rows(&self) -> u64 {
        self.content.skipped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::weka::WekaReader;
    use crate::workload::Workload;
    use crate::workload::lanes::Lanes;
    use crate::workload::weka_content::OutputContent;
    use crate::workload::weka_content::tests::{plays, row};

    fn lanes(plays: &tempfile::NamedTempFile, count: u32, loops: u32) -> Lanes<WekaLanes> {
        let reader = WekaReader::open(plays.path(), false).expect("opened");
        let content = WekaContent::new(reader, loops, OutputContent::NextTurn, 0);
        Lanes::new(WekaLanes::new(content, count), count, None)
    }

    fn subagent(t: f64, rows: &[String]) -> String {
        format!(r#"{{"t":{t},"type":"subagent","requests":[{}]}}"#, rows.join(","))
    }

    /// Plays to the end; a request with `out` tokens takes so many seconds. Returns (due in ms, lane, session, turn).
    fn run(mut lanes: Lanes<WekaLanes>) -> Vec<(u64, u64, u64, u32)> {
        let mut contents = Contents::default();
        let (mut jobs, mut running, mut seen) = (Vec::new(), std::collections::BTreeSet::new(), Vec::new());
        let mut now_ns = 0;
        loop {
            lanes.take_due(now_ns, &mut contents, &mut jobs).expect("good plays");
            for job in jobs.drain(..) {
                contents.release(job.request.content);
                running.insert((now_ns + u64::from(job.request.output_tokens) * 1_000_000_000, job.request.tag));
                seen.push((job.due_ns / 1_000_000, job.order, job.session, job.turn));
            }
            let due_ns = lanes.next_due_ns(&mut contents).expect("good plays");
            let end = running.first().copied();
            let Some(next_ns) = due_ns.into_iter().chain(end.map(|end| end.0)).min() else { break };
            now_ns = next_ns;
            while let Some(&(end_ns, tag)) = running.first().filter(|end| end.0 <= now_ns) {
                running.pop_first();
                lanes.ended(tag, end_ns, &mut contents);
            }
        }
        assert_eq!(contents.streams(), 0);
        seen
    }

    #[test]
    fn sub_agents_run_beside_each_other_and_the_parent_waits_for_them() {
        // The first request is recorded to end at 1 s; the markers are 2 s and 3 s after that.
        let file = plays(&[&[
            row(0.0, 4, 5, "[1]"),
            subagent(3.0, &[row(0.0, 4, 4, "[1]"), row(3.0, 4, 1, "[1]")]),
            subagent(4.0, &[row(0.0, 4, 9, "[2]")]),
            row(5.0, 4, 1, "[1]"),
        ]]);
        // Think times are 0.5 s. 0.5 -> 5.5; first sub-agent at 7.5 + 0.5 -> 12, 12.5 -> 13.5; second at 8.5 + 0.5 -> 18;
        // then the parent at 18 + 0.5.
        let expected = [(500, 0, 0, 0), (8000, 0, 1, 0), (9000, 0, 2, 0), (12500, 0, 1, 1), (18500, 0, 0, 1)];
        assert_eq!(run(lanes(&file, 1, 1)), expected);
    }

    #[test]
    fn a_marker_before_the_recorded_end_starts_at_once_and_a_last_one_holds_the_play() {
        let file =
            plays(&[&[row(0.0, 4, 1, "[1]"), subagent(0.25, &[row(0.0, 4, 3, "[1]")])], &[row(0.0, 4, 1, "[1]")]]);
        // 0.5 -> 1.5; the sub-agent at 1.5 + 0.5 -> 5; the next play at 5 + 0.5.
        assert_eq!(run(lanes(&file, 1, 1)), [(500, 0, 0, 0), (2000, 0, 1, 0), (5500, 0, 2, 0)]);
    }

    #[test]
    fn lanes_take_plays_in_file_order_and_loops_follow_on() {
        let file = plays(&[&[row(0.0, 4, 2, "[1]")], &[row(0.0, 4, 1, "[1]")], &[row(0.0, 4, 1, "[1]")]]);
        let seen = run(lanes(&file, 2, 2));
        let expected =
            [(500, 0, 0, 0), (500, 1, 1, 0), (2000, 1, 2, 0), (3000, 0, 3, 0), (3500, 1, 4, 0), (5000, 1, 5, 0)];
        assert_eq!(seen, expected);
    }
}

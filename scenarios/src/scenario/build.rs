//! From the settings to a workload that plays.

use std::path::{Path, PathBuf};

use super::Scenario;
use super::workload::{Load, Pace, Rate, TraceSource, WorkloadConfig};
use crate::generate::arrivals::{Arrivals, AtRate, Gaps, Numbered};
use crate::generate::coding_agent::CodingAgent;
use crate::trace::field::Fault;
use crate::trace::mooncake::Times;
use crate::trace::sessions::SessionTable;
use crate::trace::weka::WekaReader;
use crate::workload::azure::AzureTurns;
use crate::workload::deadline::Deadline;
use crate::workload::lanes::{InTurn, LaneSource, Lanes};
use crate::workload::mooncake::MooncakeTurns;
use crate::workload::open::{OpenLoop, OpenSource, Speedup};
use crate::workload::sessions::SessionLanes;
use crate::workload::weka::WekaLanes;
use crate::workload::weka_content::{OutputContent, WekaContent};
use crate::workload::weka_open::WekaTimes;
use crate::workload::{InputError, Workload};

/// The environment variable that names a folder of traces.
pub const TRACES_VARIABLE: &str = "SERVESIM_TRACES";

/// The folder of traces that the environment names; an empty name is none.
pub fn traces_folder() -> Option<PathBuf> {
    std::env::var_os(TRACES_VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

impl Scenario {
    /// Makes the workload, opening its trace if it plays one.
    ///
    /// # Errors
    /// A trace that cannot be found or read, or a row of a session trace that cannot be used.
    pub fn build_workload(&self) -> Result<Box<dyn Workload>, InputError> {
        let workload = self.endless_workload()?;
        Ok(match self.ends.last_ns {
            Some(last_ns) => Box::new(Deadline::new(workload, last_ns)),
            None => workload,
        })
    }

    fn endless_workload(&self) -> Result<Box<dyn Workload>, InputError> {
        let limit = self.ends.limit;
        match &self.workload {
            WorkloadConfig::Sessions { source, lanes, loops } => self.sessions(source, *lanes, *loops),
            WorkloadConfig::Weka { source, lanes, pace, output_content, shared_prefix_tokens } => {
                self.weka(source, *lanes, *pace, *output_content, *shared_prefix_tokens)
            }
            WorkloadConfig::Mooncake { source, pace, block_size } => {
                let (loops, speedup) = rounds(*pace);
                let path = self.trace_path(source)?;
                let times = if matches!(pace, Pace::Open { .. }) { Times::Needed } else { Times::Optional };
                let turns = MooncakeTurns::open(path, *block_size, source.lenient, times, loops, speedup)?;
                Ok(paced(turns, *pace, limit))
            }
            WorkloadConfig::Azure { source, pace } => {
                let (loops, speedup) = rounds(*pace);
                let turns = AzureTurns::open(self.trace_path(source)?, source.lenient, loops, speedup)?;
                Ok(paced(turns, *pace, limit))
            }
            WorkloadConfig::CodingAgent(config) => {
                Ok(Box::new(Lanes::new(InTurn(CodingAgent::new(config.clone())), config.lanes, limit)))
            }
            WorkloadConfig::SharedPrefix { groups, load } => Ok(loaded(*groups, *load, limit)),
            WorkloadConfig::Random { lengths, load } => Ok(loaded(*lengths, *load, limit)),
        }
    }

    fn sessions(&self, source: &TraceSource, lanes: Option<u32>, loops: u32) -> Result<Box<dyn Workload>, InputError> {
        let path = self.trace_path(source)?;
        let table = SessionTable::read(&path, source.lenient)?;
        let lanes = SessionLanes::new(table, &path.display().to_string(), lanes, loops);
        let count = lanes.lanes();
        Ok(Box::new(Lanes::new(InTurn(lanes), count, self.ends.limit)))
    }

    fn weka(
        &self,
        source: &TraceSource,
        lanes: u32,
        pace: Pace,
        output_content: OutputContent,
        shared_prefix_tokens: u32,
    ) -> Result<Box<dyn Workload>, InputError> {
        let reader = WekaReader::open(&self.trace_path(source)?, source.lenient)?;
        let (loops, speedup) = rounds(pace);
        let content = WekaContent::new(reader, loops, output_content, shared_prefix_tokens);
        Ok(match pace {
            Pace::Closed { .. } => Box::new(Lanes::new(WekaLanes::new(content, lanes), lanes, self.ends.limit)),
            _ => Box::new(OpenLoop::new(WekaTimes::new(content, lanes, speedup), self.ends.limit)),
        })
    }

    /// Where a file is that a setting names: beside the scenario file, else in the folder that `SERVESIM_TRACES` names.
    pub fn find_input(&self, path: &Path) -> Option<PathBuf> {
        find_trace(&self.folder, traces_folder().as_deref(), path)
    }

    /// Where a trace is: beside the scenario file, else in the folder that `SERVESIM_TRACES` names.
    fn trace_path(&self, source: &TraceSource) -> Result<PathBuf, InputError> {
        let folder = traces_folder();
        find_trace(&self.folder, folder.as_deref(), &source.path).ok_or_else(|| {
            let found = format!("no file {}", self.folder.join(&source.path).display());
            let expected = format!("a trace there, or in the folder that {TRACES_VARIABLE} names");
            Fault::new("workload.path", found, expected).at(&self.name, 0)
        })
    }
}

/// The first of the two folders that has `path`; an absolute path needs neither.
fn find_trace(beside: &Path, traces: Option<&Path>, path: &Path) -> Option<PathBuf> {
    let candidates = [Some(beside.join(path)), traces.map(|traces| traces.join(path))];
    candidates.into_iter().flatten().find(|candidate| candidate.exists())
}

/// How often a trace is played, and how fast.
fn rounds(pace: Pace) -> (u32, Speedup) {
    match pace {
        Pace::Closed { loops, .. } => (loops, Speedup::new(1.0)),
        Pace::Open { speedup } => (1, Speedup::new(speedup)),
        Pace::Rate(_) => (1, Speedup::new(1.0)),
    }
}

fn paced<S: LaneSource + OpenSource + 'static>(source: S, pace: Pace, limit: Option<u64>) -> Box<dyn Workload> {
    match pace {
        Pace::Closed { lanes, .. } => Box::new(Lanes::new(InTurn(source), lanes, limit)),
        Pace::Open { .. } => Box::new(OpenLoop::new(source, limit)),
        Pace::Rate(rate) => Box::new(OpenLoop::new(AtRate::new(source, gaps(rate)), limit)),
    }
}

fn loaded<G: Numbered + 'static>(generator: G, load: Load, limit: Option<u64>) -> Box<dyn Workload> {
    match load {
        Load::Lanes(lanes) => Box::new(Lanes::new(InTurn(Arrivals::new(generator)), lanes, limit)),
        Load::Rate(rate) => Box::new(OpenLoop::new(AtRate::new(Arrivals::new(generator), gaps(rate)), limit)),
    }
}

fn gaps(rate: Rate) -> Gaps {
    Gaps::new(rate.rate_per_s, rate.spacing, rate.seed)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use servesim_engine::content::Contents;

    use super::*;
    use crate::testing::trace;

    /// Plays a workload whose requests take 50 ms each; returns jobs, prompt tokens, output tokens and most streams.
    fn play(workload: &mut dyn Workload) -> (u64, u64, u64, usize) {
        let mut contents = Contents::default();
        let (mut jobs, mut running) = (Vec::new(), VecDeque::new());
        let (mut now_ns, mut count, mut input, mut output, mut most) = (0, 0, 0, 0, 0);
        loop {
            workload.take_due(now_ns, &mut contents, &mut jobs).expect("good rows");
            for job in jobs.drain(..) {
                assert_eq!(job.request.tag, count);
                count += 1;
                input += u64::from(job.request.prompt_tokens);
                output += u64::from(job.request.output_tokens);
                let end = job.request.prompt_tokens + job.request.output_tokens;
                assert!(contents.len(job.request.content) >= end && job.due_ns <= now_ns);
                running.push_back((now_ns + 50_000_000, job.request.tag, job.request.content));
            }
            most = most.max(contents.streams());
            let due_ns = workload.next_due_ns(&mut contents).expect("good rows");
            let Some(next_ns) = due_ns.into_iter().chain(running.front().map(|end| end.0)).min() else { break };
            assert!(next_ns >= now_ns);
            now_ns = next_ns;
            while running.front().is_some_and(|end| end.0 <= now_ns) {
                if let Some((end_ns, tag, content)) = running.pop_front() {
                    contents.release(content);
                    workload.ended(tag, end_ns, &mut contents);
                }
            }
        }
        assert_eq!(contents.streams(), 0, "all content is given back");
        (count, input, output, most)
    }

    fn scenario(text: &str, overrides: &[&str]) -> Scenario {
        let overrides: Vec<String> = overrides.iter().map(|text| text.to_string()).collect();
        Scenario::from_str(text, "x/s.toml", &overrides).expect("valid")
    }

    fn played(text: &str, overrides: &[&str]) -> (u64, u64, u64, usize) {
        play(scenario(text, overrides).build_workload().expect("built").as_mut())
    }

    fn trace_scenario(kind: &str, name: &str) -> Option<String> {
        let path = trace(name)?;
        Some(format!("[workload]\nkind = \"{kind}\"\npath = {:?}\n", path.display().to_string()))
    }

    #[test]
    fn generated_workloads_play_to_their_end_with_live_content_only() {
        let (jobs, _, _, most) = played("[workload]\nkind = \"coding-agent\"\nrequests = 900\nlanes = 5\n", &[]);
        assert_eq!((jobs, most), (900, 5));
        assert_eq!(played("[workload]\nkind = \"shared-prefix\"\n", &[]).0, 256);
        assert_eq!(played("[workload]\nkind = \"random\"\nmode = \"open\"\nlimit = 77\n", &[]).0, 77);
        let text = "[workload]\nkind = \"coding-agent\"\nlimit = 33\n";
        let workload = scenario(text, &[]).build_workload().expect("built");
        assert_eq!(workload.jobs_total(), Some(33));
        assert_eq!(played(text, &[]).0, 33);
    }

    #[test]
    fn session_traces_play_whole() {
        let Some(text) = trace_scenario("sessions", "agents16.jsonl.gz") else { return };
        let (jobs, _, _, most) = played(&text, &[]);
        assert_eq!((jobs, most), (6262, 16));
        assert_eq!(played(&text, &["workload.loops=2", "workload.lanes=16"]).0, 2 * 6262);
    }

    #[test]
    fn weka_plays_whole_in_both_modes() {
        let Some(text) = trace_scenario("weka", "weka_710_rle.jsonl.gz") else { return };
        let (jobs, input, output, most) = played(&text, &["workload.lanes=32"]);
        assert_eq!((jobs, input / 1_000_000, output / 100_000), (49_334, 6037, 217));
        assert!(most < 200, "{most} streams live at once");
        let open = played(&text, &["workload.lanes=710", "workload.mode=open"]);
        assert_eq!((open.0, open.1, open.2), (jobs, input, output));
        let fresh = played(&text, &["workload.output_content=fresh", "workload.shared_prefix_tokens=10"]);
        assert_eq!((fresh.0, fresh.1), (jobs, input + 10 * jobs));
    }

    #[test]
    fn mooncake_and_azure_traces_play_whole() {
        if let Some(text) = trace_scenario("mooncake", "mooncake_conversation.jsonl.gz") {
            assert_eq!(played(&text, &["workload.mode=closed", "workload.lanes=32"]).0, 12_031);
            assert_eq!(played(&text, &["workload.speedup=10"]).0, 12_031);
        }
        if let Some(text) = trace_scenario("azure", "azure_code_2023.csv.gz") {
            assert_eq!(played(&text, &[]).0, 8819);
        }
    }

    #[test]
    fn a_trace_is_looked_for_beside_the_scenario_and_then_in_the_traces_folder() {
        let (beside, traces) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let find = || find_trace(beside.path(), Some(traces.path()), Path::new("t.jsonl"));
        assert_eq!(find(), None);
        std::fs::write(traces.path().join("t.jsonl"), "").expect("written");
        assert_eq!(find(), Some(traces.path().join("t.jsonl")));
        std::fs::write(beside.path().join("t.jsonl"), "").expect("written");
        assert_eq!(find(), Some(beside.path().join("t.jsonl")));
        let text = "[workload]\nkind = \"sessions\"\npath = \"no-such-trace.jsonl\"\n";
        let error = scenario(text, &[]).build_workload().err().expect("there is none");
        assert_eq!(error.field, "workload.path");
    }
}

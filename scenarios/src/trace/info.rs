//! Sums over a trace: what is in it, and how much of it an unlimited cache would hit.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::azure::AzureReader;
use super::covered::Covered;
use super::detect::{TraceFormat, detect};
use super::hash_ids::BlockRun;
use super::mooncake::{DEFAULT_BLOCK_SIZE, MooncakeReader, Times};
use super::sessions::SessionTable;
use super::weka::{Play, Step, WekaReader};
use crate::workload::InputError;

/// What a trace holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceInfo {
    /// The file or folder.
    pub file: String,
    /// Its format, found by its content.
    pub format: TraceFormat,
    /// Rows; in a Weka trace, plays.
    pub rows: u64,
    /// Rows that cannot be used, skipped under `lenient`.
    pub skipped_rows: u64,
    /// Requests, those of sub-agents included.
    pub requests: u64,
    /// Sub-agents.
    pub subagents: u64,
    /// Requests of sub-agents.
    pub subagent_requests: u64,
    /// Sessions: agents in a Weka trace, named sessions or else requests elsewhere.
    pub sessions: u64,
    /// Lanes, where the trace has them.
    pub lanes: Option<u64>,
    /// Prompt tokens of all requests.
    pub input_tokens: u64,
    /// Output tokens of all requests.
    pub output_tokens: u64,
    /// The longest prompt, in tokens.
    pub largest_prompt_tokens: u64,
    /// Distinct prompt content in tokens: that of distinct blocks where the trace has blocks, else of distinct token ids.
    pub unique_tokens: u64,
    /// Tokens in a block, where the trace has blocks.
    pub block_size: Option<u32>,
    /// Blocks of all prompts, where the trace has blocks.
    pub blocks: Option<u64>,
    /// Distinct blocks, where the trace has blocks.
    pub unique_blocks: Option<u64>,
    /// From the first request to the last, in nanoseconds (the longest play of a Weka trace); none without timestamps.
    pub span_ns: Option<u64>,
    /// The unit that times are taken to be in.
    pub time_unit: &'static str,
    /// Share of the prompts that an unlimited cache would hit, see [`trace_info`].
    pub ideal_prefix_hit: f64,
}

/// Sums a trace up.
///
/// The ideal prefix hit of a request is how much of its prompt, from its start, has been in the trace before (requests in
/// file order, none evicted). Where the trace has blocks it is counted in blocks, over all blocks that the prompts list:
/// a last partial block of a Mooncake prompt counts as one, the tail of a Weka prompt, which has no block, as none. Weka ids
/// are forgotten after each play. In a session trace it is counted in tokens, outputs being seen like prompts.
///
/// # Errors
/// A file that cannot be read or whose format is unknown, and without `lenient` a row that cannot be used.
pub fn trace_info(path: &Path, block_size: Option<u32>, lenient: bool) -> Result<TraceInfo, InputError> {
    let format = detect(path)?;
    let mut sums = Sums::new(path, format);
    match format {
        TraceFormat::Sessions => sums.add_sessions(path, lenient)?,
        TraceFormat::Weka => sums.add_weka(path, lenient)?,
        TraceFormat::Mooncake => sums.add_mooncake(path, block_size.unwrap_or(DEFAULT_BLOCK_SIZE), lenient)?,
        TraceFormat::Azure => sums.add_azure(path, lenient)?,
    }
    Ok(sums.finish())
}

struct Sums {
    info: TraceInfo,
    seen: Covered,
    hit: u64,
    hit_of: u64,
}

impl Sums {
    fn new(path: &Path, format: TraceFormat) -> Sums {
        let info = TraceInfo {
            file: path.display().to_string(),
            format,
            rows: 0,
            skipped_rows: 0,
            requests: 0,
            subagents: 0,
            subagent_requests: 0,
            sessions: 0,
            lanes: None,
            input_tokens: 0,
            output_tokens: 0,
            largest_prompt_tokens: 0,
            unique_tokens: 0,
            block_size: None,
            blocks: None,
            unique_blocks: None,
            span_ns: None,
            time_unit: match format {
                TraceFormat::Sessions => "ms (delays)",
                TraceFormat::Weka => "s",
                TraceFormat::Mooncake => "ms",
                TraceFormat::Azure => "date and time",
            },
            ideal_prefix_hit: 0.0,
        };
        Sums { info, seen: Covered::default(), hit: 0, hit_of: 0 }
    }

    fn add_request(&mut self, input_tokens: u64, output_tokens: u64) {
        let info = &mut self.info;
        info.requests += 1;
        info.input_tokens += input_tokens;
        info.output_tokens += output_tokens;
        info.largest_prompt_tokens = info.largest_prompt_tokens.max(input_tokens);
    }

    /// Counts how many of a prompt's leading ids have been seen and adds them all; returns how many were new.
    fn add_prompt(&mut self, runs: impl Iterator<Item = (u64, u64)> + Clone) -> u64 {
        for (first, count) in runs.clone() {
            let leading = self.seen.leading(first, count);
            self.hit += leading;
            if leading < count {
                break;
            }
        }
        self.hit_of += runs.clone().map(|(_, count)| count).sum::<u64>();
        runs.map(|(first, count)| self.seen.add(first, count)).sum()
    }

    fn add_blocks(&mut self, blocks: &[BlockRun]) -> u64 {
        self.add_prompt(blocks.iter().map(|run| (run.first.into(), run.count.into())))
    }

    fn add_sessions(&mut self, path: &Path, lenient: bool) -> Result<(), InputError> {
        let table = SessionTable::read(path, lenient)?;
        self.info.lanes = Some(table.lanes() as u64);
        self.info.sessions = table.sessions().into();
        self.info.skipped_rows = table.skipped();
        for lane in 0..table.lanes() {
            let mut history = 0;
            for row in (0..table.requests(lane)).filter_map(|index| table.turn(lane, index)) {
                history = if row.turn == 0 { 0 } else { history };
                let output: u64 = row.output.iter().map(|run| u64::from(run.count)).sum();
                // The history has been seen whole, so only what is appended must be looked at.
                self.hit += history;
                self.hit_of += history;
                self.info.unique_tokens +=
                    self.add_prompt(row.append.iter().map(|run| (run.first.into(), run.count.into())));
                history += row.append.iter().map(|run| u64::from(run.count)).sum::<u64>();
                self.add_request(history, output);
                for run in row.output {
                    self.info.unique_tokens += self.seen.add(run.first.into(), run.count.into());
                }
                history += output;
            }
        }
        self.info.rows = self.info.requests;
        Ok(())
    }

    fn add_weka(&mut self, path: &Path, lenient: bool) -> Result<(), InputError> {
        let mut reader = WekaReader::open(path, lenient)?;
        let (mut blocks, mut longest_ns) = (0, 0);
        while let Some(play) = reader.next_play()? {
            self.info.rows += 1;
            self.info.block_size = Some(play.block_size);
            self.seen.clear();
            let new_blocks = self.add_agent(&play, 0, 0, &mut longest_ns);
            blocks += new_blocks;
            self.info.unique_tokens += new_blocks * u64::from(play.block_size);
            self.info.subagents += play.agents.len() as u64 - 1;
            self.info.sessions += play.agents.len() as u64;
            self.info.subagent_requests +=
                play.agents[1..].iter().map(|agent| agent.requests().count() as u64).sum::<u64>();
        }
        self.info.unique_blocks = Some(blocks);
        self.info.blocks = Some(self.hit_of);
        self.info.span_ns = Some(longest_ns);
        self.info.skipped_rows = reader.skipped();
        Ok(())
    }

    /// Adds an agent's requests, those of sub-agents where their markers stand; returns how many blocks were new.
    fn add_agent(&mut self, play: &Play, agent: usize, begin_ns: u64, longest_ns: &mut u64) -> u64 {
        let mut new_blocks = 0;
        for step in &play.agents[agent].steps {
            match step {
                Step::Start { agent, time_ns, .. } => {
                    new_blocks += self.add_agent(play, *agent as usize, begin_ns.saturating_add(*time_ns), longest_ns);
                }
                Step::Request(request) => {
                    self.add_request(request.input_tokens.into(), request.output_tokens.into());
                    new_blocks += self.add_blocks(&request.blocks);
                    *longest_ns = (*longest_ns).max(begin_ns.saturating_add(request.time_ns));
                }
            }
        }
        new_blocks
    }

    fn add_mooncake(&mut self, path: &Path, block_size: u32, lenient: bool) -> Result<(), InputError> {
        let mut reader = MooncakeReader::open(path, block_size, lenient, Times::Optional)?;
        let (mut first_ns, mut unique_blocks) = (None, 0);
        let mut names = std::collections::BTreeSet::new();
        while let Some(row) = reader.next_row()? {
            self.add_request(row.input_tokens.into(), row.output_tokens.into());
            // A last partial block that is new has only the prompt's tokens in it.
            let last = row.blocks.last().map_or(0, |run| u64::from(run.first) + u64::from(run.count) - 1);
            let missing = row.input_tokens.next_multiple_of(block_size) - row.input_tokens;
            let missing = if self.seen.leading(last, 1) == 0 { missing } else { 0 };
            let new_blocks = self.add_blocks(&row.blocks);
            unique_blocks += new_blocks;
            self.info.unique_tokens += new_blocks * u64::from(block_size) - u64::from(missing);
            if let Some(time_ns) = row.time_ns {
                self.info.span_ns = Some(time_ns - *first_ns.get_or_insert(time_ns));
            }
            match row.session {
                Some(name) => self.info.sessions += u64::from(names.insert(name)),
                None => self.info.sessions += 1,
            }
        }
        self.info.rows = self.info.requests;
        self.info.block_size = Some(block_size);
        self.info.blocks = Some(self.hit_of);
        self.info.unique_blocks = Some(unique_blocks);
        self.info.skipped_rows = reader.skipped();
        Ok(())
    }

    fn add_azure(&mut self, path: &Path, lenient: bool) -> Result<(), InputError> {
        let mut reader = AzureReader::open(path, lenient)?;
        while let Some(row) = reader.next_row()? {
            self.add_request(row.input_tokens.into(), row.output_tokens.into());
            self.info.span_ns = Some(row.time_ns);
        }
        self.info.rows = self.info.requests;
        self.info.sessions = self.info.requests;
        self.info.unique_tokens = self.info.input_tokens;
        self.info.skipped_rows = reader.skipped();
        Ok(())
    }

    fn finish(mut self) -> TraceInfo {
        if self.hit_of > 0 {
            self.info.ideal_prefix_hit = self.hit as f64 / self.hit_of as f64;
        }
        self.info
    }
}

impl fmt::Display for TraceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.file)?;
        let what = if self.format == TraceFormat::Weka { "plays" } else { "rows" };
        writeln!(f, "  format              {}, {} {what}, {} skipped", self.format, self.rows, self.skipped_rows)?;
        write!(f, "  requests            {}", self.requests)?;
        if self.subagents > 0 {
            write!(f, ", {} of them in {} sub-agents", self.subagent_requests, self.subagents)?;
        }
        let lanes = self.lanes.map_or(String::new(), |lanes| format!(" in {lanes} lanes"));
        writeln!(f, "\n  sessions            {}{lanes}", self.sessions)?;
        writeln!(f, "  input tokens        {}, largest prompt {}", self.input_tokens, self.largest_prompt_tokens)?;
        writeln!(f, "  output tokens       {}", self.output_tokens)?;
        write!(f, "  distinct content    {} tokens", self.unique_tokens)?;
        if let (Some(blocks), Some(size)) = (self.unique_blocks, self.block_size) {
            write!(f, ", {blocks} blocks of {size}")?;
        }
        let span = self.span_ns.map_or("no timestamps".into(), |span_ns| format!("{:.3} s", span_ns as f64 / 1e9));
        writeln!(f, "\n  time span           {span}, times read as {}", self.time_unit)?;
        let unit = if self.blocks.is_some() { "blocks" } else { "tokens" };
        write!(f, "  ideal prefix hit    {:.2} % of {unit}", 100.0 * self.ideal_prefix_hit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{percent, trace};

    #[test]
    fn weka_sums_are_the_known_ones() {
        let Some(path) = trace("weka_710_rle.jsonl.gz") else { return };
        let info = trace_info(&path, None, false).expect("a good trace");
        assert_eq!((info.rows, info.requests, info.subagents, info.subagent_requests), (710, 49_334, 63, 676));
        assert_eq!((info.input_tokens / 1_000_000, info.output_tokens / 100_000), (6037, 217));
        assert_eq!((info.unique_blocks.expect("blocks") / 10_000, info.largest_prompt_tokens), (345, 894_371));
        assert_eq!(percent(info.ideal_prefix_hit), 96.34);
    }

    #[test]
    fn weka_plain_ids_give_the_same_kind_of_sums() {
        let Some(path) = trace("weka_small_12.jsonl") else { return };
        let info = trace_info(&path, None, false).expect("a good trace");
        assert_eq!((info.rows, info.format, info.block_size), (12, TraceFormat::Weka, Some(64)));
    }

    #[test]
    fn mooncake_sums_are_the_known_ones() {
        for (name, requests, hit) in
            [("mooncake_conversation.jsonl.gz", 12_031, 36.64), ("mooncake_synthetic.jsonl.gz", 3993, 63.96)]
        {
            let Some(path) = trace(name) else { return };
            let info = trace_info(&path, None, false).expect("a good trace");
            assert_eq!((info.requests, percent(info.ideal_prefix_hit)), (requests, hit));
        }
    }

    #[test]
    fn azure_and_session_rows_are_all_read() {
        for (name, requests) in
            [("azure_code_2023.csv.gz", 8819), ("azure_conv_2023.csv.gz", 19_366), ("agents16.jsonl.gz", 6262)]
        {
            let Some(path) = trace(name) else { return };
            let info = trace_info(&path, None, false).expect("a good trace");
            assert_eq!((info.requests, info.skipped_rows), (requests, 0));
        }
    }

    #[test]
    fn a_last_partial_block_counts_as_a_block_and_its_own_tokens() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let rows = [(1000, "[0,1]"), (1000, "[0,1]"), (1500, "[0,2,3]")];
        let text: Vec<String> = rows
            .iter()
            .map(|(tokens, ids)| {
                format!(r#"{{"timestamp":5,"input_length":{tokens},"output_length":1,"hash_ids":{ids}}}"#)
            })
            .collect();
        std::fs::write(file.path(), text.join("\n")).expect("written");
        let info = trace_info(file.path(), None, false).expect("good rows");
        assert_eq!((info.blocks, info.unique_blocks, info.unique_tokens), (Some(7), Some(4), 1000 + 988));
        assert_eq!(info.ideal_prefix_hit, 3.0 / 7.0);
        assert!(info.to_string().contains("1988 tokens, 4 blocks of 512"));
    }
}

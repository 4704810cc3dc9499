//! Result files. `docs/metrics.md` has their columns.
//!
//! - [`table`]: rows of named columns as JSON lines, CSV or Parquet, written as they come.
//! - [`rows`]: the columns of requests, intervals, sessions and turns.
//! - [`parquet_table`]: the Parquet form.
//!
//! A file is written under a name that ends in `.partial` and gets its own when it is whole. Memory does not grow with the run.

pub mod parquet_table;
pub mod rows;
pub mod table;

use std::path::{Path, PathBuf};

use self::rows::TurnRow;
use self::table::{Format, Table};
use crate::metrics::Metrics;
use crate::metrics::request::EndedRequest;
use crate::metrics::tables::SessionRow;
use crate::metrics::timeline::Sample;
use crate::scenario::OutputConfig;

/// A result file that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot be written: {source}", path.display())]
pub struct OutputError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// The form of the file of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RequestFormat {
    /// JSON lines.
    #[default]
    Jsonl,
    /// Parquet.
    Parquet,
    /// No such file.
    None,
}

impl RequestFormat {
    /// All of them.
    pub const ALL: [RequestFormat; 3] = [RequestFormat::Jsonl, RequestFormat::Parquet, RequestFormat::None];
    /// Their names in a scenario.
    pub const NAMES: [&'static str; 3] = ["jsonl", "parquet", "none"];

    fn format(self) -> Option<Format> {
        match self {
            RequestFormat::Jsonl => Some(Format::Jsonl),
            RequestFormat::Parquet => Some(Format::Parquet),
            RequestFormat::None => None,
        }
    }
}

/// The form of the file of intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeseriesFormat {
    /// Comma-separated values.
    #[default]
    Csv,
    /// Parquet.
    Parquet,
    /// No such file.
    None,
}

impl TimeseriesFormat {
    /// All of them.
    pub const ALL: [TimeseriesFormat; 3] = [TimeseriesFormat::Csv, TimeseriesFormat::Parquet, TimeseriesFormat::None];
    /// Their names in a scenario.
    pub const NAMES: [&'static str; 3] = ["csv", "parquet", "none"];

    fn format(self) -> Option<Format> {
        match self {
            TimeseriesFormat::Csv => Some(Format::Csv),
            TimeseriesFormat::Parquet => Some(Format::Parquet),
            TimeseriesFormat::None => None,
        }
    }
}

/// The tables of one run.
pub struct RunFiles {
    folder: PathBuf,
    requests: Option<Table<EndedRequest>>,
    timeseries: Option<Table<Sample>>,
    sessions: Table<SessionRow>,
    turns: Table<TurnRow>,
}

impl RunFiles {
    /// Opens the files in `folder`, which is there.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(folder: &Path, config: &OutputConfig) -> Result<RunFiles, OutputError> {
        let requests = config.requests.format().map(|format| Table::create(folder, "requests", format));
        let timeseries = config.timeseries.format().map(|format| Table::create(folder, "timeseries", format));
        Ok(RunFiles {
            folder: folder.to_owned(),
            requests: requests.transpose()?,
            timeseries: timeseries.transpose()?,
            sessions: Table::create(folder, "sessions", Format::Csv)?,
            turns: Table::create(folder, "turns", Format::Csv)?,
        })
    }

    /// Writes what ended in the last iteration.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn add(&mut self, metrics: &mut Metrics) -> Result<(), OutputError> {
        if let Some(requests) = &mut self.requests {
            metrics.ended().iter().try_for_each(|ended| requests.write(ended))?;
        }
        metrics.closed_sessions().iter().try_for_each(|session| self.sessions.write(session))?;
        match &mut self.timeseries {
            Some(timeseries) => metrics.take_samples().try_for_each(|sample| timeseries.write(&sample)),
            None => Ok(()),
        }
    }

    /// Writes what is left after the run and puts the files in their places.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(mut self, metrics: &mut Metrics) -> Result<(), OutputError> {
        metrics.finish();
        self.add(metrics)?;
        for (turn, sums) in metrics.turns().rows().iter().enumerate() {
            self.turns.write(&TurnRow { turn: turn as u32, sums: *sums })?;
        }
        self.sessions.finish()?;
        self.turns.finish()?;
        let requests = self.requests.map(Table::finish).transpose()?;
        let timeseries = self.timeseries.map(Table::finish).transpose()?;
        // What an earlier run left here in another form would contradict this one's files.
        let kept = [requests, timeseries];
        for name in ["requests.jsonl", "requests.parquet", "timeseries.csv", "timeseries.parquet"] {
            let path = self.folder.join(name);
            if !kept.iter().flatten().any(|kept| *kept == path) && path.is_file() {
                std::fs::remove_file(&path).map_err(|error| OutputError { path, source: error.into() })?;
            }
        }
        Ok(())
    }
}

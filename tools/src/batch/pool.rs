//! Runs cases in child processes, some at a time.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::case::Case;
use super::child::{COMMAND, Job};
use super::display::Display;
use super::folder::Folder;
use crate::progress::LINE;

/// The most lines that are kept of what a run says.
const MOST_NOTES: usize = 100;

/// How a child ended.
pub struct Ended {
    /// The case's place in the list that was given.
    pub place: usize,
    /// The folder that it wrote into.
    pub partial: PathBuf,
    /// Why it failed, if it did.
    pub reason: Option<String>,
    /// What it said else.
    pub notes: Vec<String>,
    /// How long its process was there.
    pub lifetime: Duration,
}

/// Runs cases `jobs` at a time, in their order, and hands each to `finish` as it ends. `finish` runs on the calling thread,
/// while the next cases run.
///
/// # Errors
/// The first error of `finish`. No case is started after it, and those that run are waited for and finished.
pub fn run(
    cases: &[&Case],
    folder: &Folder,
    jobs: usize,
    display: &Display,
    mut finish: impl FnMut(Ended) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let mut first_error = Ok(());
    std::thread::scope(|scope| {
        let (sender, ends) = channel();
        for _ in 0..jobs.min(cases.len()) {
            let (sender, next) = (sender.clone(), &next);
            scope.spawn(move || work(cases, folder, next, display, &sender));
        }
        drop(sender);
        for ended in ends {
            if let Err(error) = finish(ended)
                && first_error.is_ok()
            {
                next.store(cases.len(), Ordering::Relaxed);
                first_error = Err(error);
            }
        }
    });
    first_error
}

fn work(cases: &[&Case], folder: &Folder, next: &AtomicUsize, display: &Display, sender: &Sender<Ended>) {
    loop {
        let place = next.fetch_add(1, Ordering::Relaxed).min(cases.len());
        let Some(case) = cases.get(place) else { return };
        let (partial, started) = (folder.attempt(&case.name), Instant::now());
        let (reason, notes) = match &case.settings {
            Err(error) => (Some(error.to_string()), Vec::new()),
            Ok(_) => match run_child(case, &partial, display) {
                Ok(said) => said,
                Err(error) => (Some(crate::in_one_line(&error)), Vec::new()),
            },
        };
        // The text would differ from attempt to attempt.
        let reason = reason.map(|reason| reason.replace(&format!("{}/", partial.display()), ""));
        let lifetime = started.elapsed();
        if sender.send(Ended { place, partial, reason, notes, lifetime }).is_err() {
            return;
        }
    }
}

/// Starts a child. One at a time, so that no child gets a copy of a pipe to another one, which would keep that open.
fn start(job: &Job) -> anyhow::Result<Child> {
    static STARTING: Mutex<()> = Mutex::new(());
    let program = std::env::current_exe().context("the program cannot find itself")?;
    let mut command = Command::new(program);
    command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = {
        let _one_at_a_time = STARTING.lock();
        command.spawn().context("the case's process cannot be started")?
    };
    let mut line = serde_json::to_vec(job)?;
    line.push(b'\n');
    if let Some(mut stdin) = child.stdin.as_ref() {
        // A child that has ended already says itself why.
        let _ = stdin.write_all(&line);
    }
    Ok(child)
}

/// Why a child failed, if it did, and what it said else.
type Said = (Option<String>, Vec<String>);

fn run_child(case: &Case, partial: &std::path::Path, display: &Display) -> anyhow::Result<Said> {
    let line = display.start(&case.name);
    let job = Job {
        file: case.base.file.clone(),
        text: case.base.text.clone(),
        overrides: case.overrides.clone(),
        out: partial.to_owned(),
        limits: case.limits,
        progress: display.is_shown(),
    };
    let mut child = start(&job)?;
    // Taken out, since a wait would close it, and the child would take that for the end of its parent.
    let stdin = child.stdin.take();
    let (mut error, mut notes, mut last) = (None, Vec::new(), None);
    for text in child.stderr.take().into_iter().flat_map(|stderr| BufReader::new(stderr).lines()).map_while(Result::ok)
    {
        if let Some(text) = text.strip_prefix(LINE) {
            line.tell(text);
        } else if let Some(text) = text.strip_prefix("error: ") {
            error = Some(text.to_owned());
        } else if !text.starts_with("host: ") {
            if notes.len() < MOST_NOTES {
                notes.push(text.clone());
            }
            last = Some(text);
        }
    }
    let status = child.wait().context("the case's process cannot be waited for")?;
    drop(stdin);
    line.end();
    if status.success() {
        return Ok((None, notes));
    }
    Ok((Some(error.or_else(|| ended_by_signal(status)).or(last).unwrap_or_else(|| status.to_string())), notes))
}

#[cfg(unix)]
fn ended_by_signal(status: ExitStatus) -> Option<String> {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal()?;
    let name =
        nix::sys::signal::Signal::try_from(signal).map_or_else(|_| "unknown".to_owned(), |name| name.to_string());
    Some(format!("ended by signal {signal} ({name})"))
}

#[cfg(not(unix))]
fn ended_by_signal(_status: ExitStatus) -> Option<String> {
    None
}

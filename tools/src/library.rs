//! `servesim scenarios`: the scenarios and batches that come with the program.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use servesim_scenarios::scenario::{BATCHES, EMBEDDED};

use crate::arguments::ScenariosCommand;
use crate::run::print;
use crate::{Failure, note};

/// Lists, shows or copies.
pub fn scenarios(command: &ScenariosCommand) -> Result<ExitCode, Failure> {
    match command {
        ScenariosCommand::List => print(&list())?,
        ScenariosCommand::Show { name } => print(find(name).map_err(Failure::BadInput)?.1)?,
        ScenariosCommand::Copy { name, to, force } => {
            let (file, text) = find(name).map_err(Failure::BadInput)?;
            let path = place(file, to.as_deref());
            copy(&path, text, *force).map_err(Failure::BadInput)?;
            note(&format!("wrote {}", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A file that comes with the program, and its text.
type Embedded = (&'static str, &'static str);

fn find(name: &str) -> anyhow::Result<Embedded> {
    let mut all = EMBEDDED.iter().chain(BATCHES);
    let found = all.find(|(file, _)| *file == name || file.strip_suffix(".toml") == Some(name));
    found.copied().ok_or_else(|| {
        let names: Vec<&str> =
            EMBEDDED.iter().chain(BATCHES).filter_map(|(file, _)| file.strip_suffix(".toml")).collect();
        anyhow!("{name}: found no such scenario or batch, expected one of {}", names.join(", "))
    })
}

fn list() -> String {
    let mut text = String::new();
    for (heading, files) in
        [("scenarios, for `servesim run` and `servesim batch`", EMBEDDED), ("batches, for `servesim batch`", BATCHES)]
    {
        let _ = writeln!(text, "{heading}");
        for (file, content) in files {
            let _ = writeln!(text, "  {:<22} {}", file.trim_end_matches(".toml"), description(content));
        }
    }
    text
}

/// What a file says of itself.
fn description(content: &str) -> String {
    let table: Option<toml::Table> = content.parse().ok();
    let description = table.and_then(|mut table| table.remove("description"));
    description.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Where a copy goes.
fn place(file: &str, to: Option<&Path>) -> PathBuf {
    match to {
        None => PathBuf::from(file),
        Some(folder) if folder.is_dir() => folder.join(file),
        Some(path) => path.to_owned(),
    }
}

fn copy(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let mut options = File::options();
    let options = if force { options.create(true).truncate(true) } else { options.create_new(true) };
    let cannot = || format!("{}: cannot be written", path.display());
    let file = options.write(true).open(path);
    if file.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::AlreadyExists) {
        return Err(anyhow!("{}: found a file, expected none, or --force to write over it", path.display()));
    }
    std::io::Write::write_all(&mut file.with_context(cannot)?, text.as_bytes()).with_context(cannot)
}

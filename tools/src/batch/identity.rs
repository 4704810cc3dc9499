//! What makes a case the same case: its resolved settings, the files it reads and the program's version.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use servesim_scenarios::scenario::Scenario;
use sha2::{Digest, Sha256};
use toml::Value;

/// The program's version, which stands in every digest: another version may come to other results.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A file that a case reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputFile {
    /// The setting that names it.
    pub key: String,
    /// As the setting names it.
    pub path: String,
    /// Digest of its content, in hexadecimal; absent where there is no such file.
    pub sha256: Option<String>,
}

/// Digests of files, each computed once.
#[derive(Default)]
pub struct FileDigests(BTreeMap<PathBuf, Option<String>>);

impl FileDigests {
    /// The files that a scenario reads: every text that names a file which is there, and paths whose file is not.
    pub fn of_scenario(&mut self, scenario: &Scenario) -> Vec<InputFile> {
        let may_name_file = |key: &str| !["name", "description", "output.dir"].contains(&key);
        let mut files = Vec::new();
        for setting in scenario.settings.iter().filter(|setting| may_name_file(&setting.key)) {
            if let Some(Value::String(path)) = &setting.value {
                let is_path = setting.key.ends_with("path");
                let found = scenario.find_input(Path::new(path)).filter(|found| is_path || found.is_file());
                if found.is_some() || is_path {
                    let sha256 = found.and_then(|found| self.of_file(found));
                    files.push(InputFile { key: setting.key.clone(), path: path.clone(), sha256 });
                }
            }
        }
        files
    }

    fn of_file(&mut self, path: PathBuf) -> Option<String> {
        if let Some(known) = self.0.get(&path) {
            return known.clone();
        }
        let mut hasher = Sha256::new();
        // A file that cannot be read is the case's own error, which the case will tell.
        let digest = add_file(&path, &mut hasher).ok().map(|()| hexadecimal(hasher));
        self.0.insert(path, digest.clone());
        digest
    }
}

/// Adds a file, or all files of a folder by name.
fn add_file(path: &Path, hasher: &mut Sha256) -> std::io::Result<()> {
    if path.is_dir() {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        files.sort();
        for file in files {
            hasher.update(file.file_name().map(|name| name.as_encoded_bytes().to_vec()).unwrap_or_default());
            add_file(&file, hasher)?;
        }
        return Ok(());
    }
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

/// The digest of a case whose scenario is valid.
pub fn of_scenario(scenario: &Scenario, files: &[InputFile]) -> String {
    let mut hasher = start();
    hasher.update(scenario.render_config());
    for file in files {
        hasher.update(format!("{} {} {:?}\n", file.key, file.path, file.sha256));
    }
    hexadecimal(hasher)
}

/// The digest of a case whose scenario is not valid.
pub fn of_text(text: &str, overrides: &[String]) -> String {
    let mut hasher = start();
    hasher.update(text);
    for argument in overrides {
        hasher.update(argument);
        hasher.update("\n");
    }
    hexadecimal(hasher)
}

fn start() -> Sha256 {
    let mut hasher = Sha256::new();
    hasher.update(format!("servesim {VERSION}\n"));
    hasher
}

fn hexadecimal(hasher: Sha256) -> String {
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

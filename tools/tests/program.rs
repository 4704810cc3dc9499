//! Calls the program and keeps what it said. Every call also checks that the program did not panic.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// What a call of the program came to.
pub struct Said {
    /// Its exit code.
    pub code: i32,
    /// Its results.
    pub stdout: String,
    /// Everything else it said.
    pub stderr: String,
}

impl Said {
    /// Its results as one JSON value.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {}", self.stdout))
    }

    /// Checks that it refused its input: exit code 2, no results, and one line that holds all of `parts`.
    pub fn refuses(&self, parts: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (2, ""), "{}", self.stderr);
        assert!(self.stderr.starts_with("error: ") && self.stderr.lines().count() == 1, "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is missing in: {}", self.stderr);
        }
    }

    /// Checks that it did what was asked.
    pub fn succeeds(self) -> Said {
        assert_eq!(self.code, 0, "{}{}", self.stdout, self.stderr);
        self
    }
}

/// A call of the program, with no folder of traces.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_servesim"));
    command.args(arguments).env_remove("SERVESIM_TRACES").stdin(Stdio::null());
    command
}

/// Runs a call to its end.
pub fn said(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } = command.output().expect("the program was built for this test");
    let text = |bytes| String::from_utf8(bytes).expect("the program says UTF-8");
    let said = Said { code: status.code().unwrap_or(-1), stdout: text(stdout), stderr: text(stderr) };
    assert!(!said.stderr.contains("panicked") && said.code != -1, "{command:?}: {}", said.stderr);
    said
}

/// Runs the program with these arguments.
pub fn servesim(arguments: &[&str]) -> Said {
    said(&mut command(arguments))
}

/// A folder of files that a test makes, gone after it.
pub struct Files(TempDir);

impl Files {
    /// An empty folder.
    pub fn new() -> Files {
        Files(tempfile::tempdir().expect("the system has a folder for temporary files"))
    }

    /// Writes a file and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), content).expect("the folder can be written to");
        self.path(name)
    }

    /// The path of a file, there or not.
    pub fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("the folder's name is UTF-8").to_owned()
    }

    /// What a file holds.
    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }
}

/// The path of a recorded run.
pub fn golden(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden").join(name);
    path.to_str().expect("the project's path is UTF-8").to_owned()
}

/// The folder of traces: the one that `SERVESIM_TRACES` names, or `shared/traces` beside the repository. Says so when there
/// is none.
pub fn traces() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let folder = std::env::var_os("SERVESIM_TRACES").map_or(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: no traces");
    None
}

/// Bytes as gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

//! Writes events as they come, plain or gzipped, under another name until the file is whole.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::event::{Event, Track};

#[derive(Serialize)]
struct Named<'n> {
    name: &'n str,
}

#[derive(Serialize)]
struct Sorted {
    sort_index: u32,
}

enum Sink {
    Plain(BufWriter<File>),
    /// Boxed, since the encoder is much larger than a plain file.
    Gzip(Box<BufWriter<GzEncoder<File>>>),
}

impl Sink {
    fn as_write(&mut self) -> &mut dyn Write {
        match self {
            Sink::Plain(file) => file,
            Sink::Gzip(file) => file,
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Sink::Plain(mut file) => file.flush(),
            Sink::Gzip(file) => file.into_inner().map_err(|error| error.into_error())?.finish().map(|_| ()),
        }
    }
}

/// A file of events under way. It is an object: `traceEvents`, then what is said about the file.
pub struct Writer {
    path: PathBuf,
    beside: PathBuf,
    sink: Option<Sink>,
    written: u64,
    failed: Option<std::io::Error>,
}

impl Writer {
    /// Begins a file.
    ///
    /// # Errors
    /// A file that cannot be made.
    pub fn create(path: &Path) -> anyhow::Result<Writer> {
        let mut beside = path.as_os_str().to_owned();
        beside.push(".partial");
        let beside = PathBuf::from(beside);
        let file = File::create(&beside).with_context(|| format!("{}: cannot be written", beside.display()))?;
        let gzip = path.extension().is_some_and(|extension| extension == "gz");
        let sink = if gzip {
            Sink::Gzip(Box::new(BufWriter::new(GzEncoder::new(file, Compression::fast()))))
        } else {
            Sink::Plain(BufWriter::new(file))
        };
        let mut writer = Writer { path: path.to_owned(), beside, sink: Some(sink), written: 0, failed: None };
        // The unit is also what `chrome://tracing` rounds to before it puts slices inside each other: by milliseconds, to 1 us.
        writer.raw(|out| out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":["));
        Ok(writer)
    }

    /// Events written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes an event. An error is kept for [`Writer::finish`], and nothing more is written.
    pub fn write<A: Serialize>(&mut self, event: &Event<A>) {
        let between: &[u8] = if self.written == 0 { b"\n" } else { b",\n" };
        self.written += 1;
        self.raw(|out| {
            out.write_all(between)?;
            Ok(serde_json::to_writer(out, event)?)
        });
    }

    /// Writes both ends of a slice that holds no other.
    pub fn slice<A: Serialize>(&mut self, name: &str, track: Track, from_ns: u64, to_ns: u64, args: A) {
        self.write(&Event::begin(name, track, from_ns, args));
        self.write(&Event::close(name, track, to_ns));
    }

    /// Names a thread. Those of a process are shown in the order of their numbers.
    pub fn name_thread(&mut self, track: Track, name: &str) {
        self.write(&Event::metadata("thread_name", track, Named { name }));
        self.write(&Event::metadata("thread_sort_index", track, Sorted { sort_index: track.tid }));
    }

    /// The same of a process.
    pub fn name_process(&mut self, pid: u32, name: &str) {
        let track = Track { pid, tid: 0 };
        self.write(&Event::metadata("process_name", track, Named { name }));
        self.write(&Event::metadata("process_sort_index", track, Sorted { sort_index: pid }));
    }

    fn raw(&mut self, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) {
        if self.failed.is_none()
            && let Some(sink) = &mut self.sink
        {
            self.failed = write(sink.as_write()).err();
        }
    }

    /// Ends the file with what is to be said about it, and puts it in its place.
    ///
    /// # Errors
    /// What could not be written, now or before.
    pub fn finish<A: Serialize>(mut self, about: &A) -> anyhow::Result<()> {
        self.raw(|out| {
            out.write_all(b"\n],\"otherData\":")?;
            serde_json::to_writer(&mut *out, about)?;
            out.write_all(b"}\n")
        });
        let done = match self.failed.take() {
            Some(error) => Err(error),
            None => self.sink.take().map_or(Ok(()), Sink::finish),
        };
        done.with_context(|| format!("{}: cannot be written", self.beside.display()))?;
        std::fs::rename(&self.beside, &self.path)
            .with_context(|| format!("{}: cannot be put in place", self.path.display()))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.sink.take().is_some() {
            // A run that could not start leaves no half of a file behind.
            let _ = std::fs::remove_file(&self.beside);
        }
    }
}

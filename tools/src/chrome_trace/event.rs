//! One event of the Trace Event Format, as Perfetto and `chrome://tracing` read it.

use serde::Serialize;

/// What there is to say about an event that has nothing to say.
#[derive(Serialize)]
pub struct Nothing {}

/// A place for events: a process and a thread of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Track {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

/// One event. `ph` is its phase: `B` and `E` the ends of a slice, `i` an instant, `C` a counter, `M` a name.
///
/// There is no `X`, a slice with a duration: readers round start and duration each for itself, so that slices that touch come to
/// overlap, and Perfetto drops one that overlaps another. The end of one and the start of the next are the same number here.
#[derive(Serialize)]
pub struct Event<'e, A> {
    name: &'e str,
    ph: &'static str,
    pid: u32,
    tid: u32,
    /// Microseconds.
    ts: f64,
    /// The scope of an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<A>,
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl<'e, A> Event<'e, A> {
    fn new(name: &'e str, ph: &'static str, track: Track, at_ns: u64, args: Option<A>) -> Event<'e, A> {
        Event { name, ph, pid: track.pid, tid: track.tid, ts: us(at_ns), s: None, args }
    }

    /// The start of a slice.
    pub fn begin(name: &'e str, track: Track, at_ns: u64, args: A) -> Event<'e, A> {
        Event::new(name, "B", track, at_ns, Some(args))
    }

    /// The end of the slice that was begun last.
    pub fn end(name: &'e str, track: Track, at_ns: u64, args: A) -> Event<'e, A> {
        Event::new(name, "E", track, at_ns, Some(args))
    }

    /// Something that takes no time.
    pub fn instant(name: &'e str, track: Track, at_ns: u64, args: A) -> Event<'e, A> {
        Event { s: Some("t"), ..Event::new(name, "i", track, at_ns, Some(args)) }
    }

    /// The values of a counter from now on.
    pub fn counter(name: &'e str, track: Track, at_ns: u64, args: A) -> Event<'e, A> {
        Event::new(name, "C", track, at_ns, Some(args))
    }

    /// Names a process or thread, or says its place among the others.
    pub fn metadata(what: &'e str, track: Track, args: A) -> Event<'e, A> {
        Event::new(what, "M", track, 0, Some(args))
    }
}

impl<'e> Event<'e, Nothing> {
    /// The end of the slice that was begun last, with nothing to say.
    pub fn close(name: &'e str, track: Track, at_ns: u64) -> Event<'e, Nothing> {
        Event::new(name, "E", track, at_ns, None)
    }
}

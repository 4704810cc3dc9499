//! Traces for Perfetto, as the program writes them.
//!
//! - Schema: each event of a trace has the fields of its phase, stands on a track that is named, and comes no earlier than the
//!   one before on its track; each slice is ended by its own name, before the one around it.
//! - Oracle: passes, requests and KV events of a trace are those of the summary.
//! - A trace that is cut is still whole, gzip changes nothing, and a trace changes no result.
//! - Bad input: files that cannot be written.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use serde_json::Value;

use crate::program::{Files, servesim};

/// A pool that is too small for its requests, so that some are retracted.
const TIGHT: &str = "[engine]\nmax_total_tokens = 4096\npage_size = 16\ninit_new_token_ratio = 0.05\n\
                     [workload]\nkind = \"random\"\nrequests = 200\nlanes = 32\ninput_tokens = [16, 5000]\n\
                     output_tokens = [100, 400]\n";

/// A short run of coding agents.
const AGENTS: [&str; 4] = ["coding-agent", "--set", "workload.requests=150", "--json"];

type Track = (u64, u64);

/// A slice of a track, from the event that begins it and the one that ends it.
#[derive(Clone)]
struct Slice {
    track: Track,
    /// Slices around it.
    depth: usize,
    begin: Value,
    end: Value,
}

impl Slice {
    fn name(&self) -> &str {
        text(&self.begin, "name")
    }
}

/// A trace that was checked.
struct Trace {
    events: Vec<Value>,
    /// In the order of their ends.
    slices: Vec<Slice>,
    about: Value,
}

fn number(event: &Value, field: &str) -> f64 {
    let value = event[field].as_f64().unwrap_or_else(|| panic!("{field} is no number in {event}"));
    assert!(value.is_finite() && value >= 0.0, "{field} in {event}");
    value
}

fn whole(event: &Value, field: &str) -> u64 {
    event[field].as_u64().unwrap_or_else(|| panic!("{field} is no whole number in {event}"))
}

fn text<'e>(event: &'e Value, field: &str) -> &'e str {
    event[field].as_str().unwrap_or_else(|| panic!("{field} is no text in {event}"))
}

fn track(event: &Value) -> Track {
    (whole(event, "pid"), whole(event, "tid"))
}

/// Nanoseconds, which microseconds with three digits hold exactly.
fn ns(us: f64) -> u64 {
    (us * 1e3).round() as u64
}

impl Trace {
    /// Reads a trace and checks all that holds for any.
    fn checked(json: &str) -> Trace {
        let mut file: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(file["displayTimeUnit"], "ns", "chrome://tracing rounds to it");
        let events = match file["traceEvents"].take() {
            Value::Array(events) => events,
            other => panic!("traceEvents is {other}"),
        };
        let mut trace = Trace { events, slices: Vec::new(), about: file["otherData"].take() };
        trace.check_schema();
        trace.check_times();
        trace.pair();
        trace
    }

    fn check_schema(&self) {
        let mut processes = BTreeSet::new();
        let mut threads = BTreeSet::new();
        for event in &self.events {
            let phase = text(event, "ph");
            assert!(!text(event, "name").is_empty(), "{event}");
            number(event, "ts");
            let place = track(event);
            match phase {
                "B" | "E" => {}
                "i" => assert_eq!(text(event, "s"), "t", "{event}"),
                "C" => drop(whole(&event["args"], "value")),
                "M" if event["name"] == "process_name" => assert!(processes.insert(place.0), "{event}"),
                "M" if event["name"] == "thread_name" => assert!(threads.insert(place), "{event}"),
                "M" => {
                    assert!(["process_sort_index", "thread_sort_index"].contains(&text(event, "name")), "{event}");
                    whole(&event["args"], "sort_index");
                }
                _ => panic!("a phase that is not written: {event}"),
            }
            if phase != "M" {
                assert!(processes.contains(&place.0) && threads.contains(&place), "a track without a name: {event}");
            }
        }
    }

    fn check_times(&self) {
        let mut last: BTreeMap<(Track, String), f64> = BTreeMap::new();
        for event in &self.events {
            let (phase, ts) = (text(event, "ph"), number(event, "ts"));
            let kind = match phase {
                "M" => continue,
                "C" => text(event, "name").to_owned(),
                _ => String::new(),
            };
            let before = last.insert((track(event), kind), ts).unwrap_or(0.0);
            assert!(
                before <= ts && (before * 1e3) as u64 <= (ts * 1e3) as u64,
                "time goes back from {before} us: {event}"
            );
        }
    }

    fn pair(&mut self) {
        let mut open: BTreeMap<Track, Vec<&Value>> = BTreeMap::new();
        for event in &self.events {
            let track = track(event);
            match text(event, "ph") {
                "B" => open.entry(track).or_default().push(event),
                "E" => {
                    let open = open.entry(track).or_default();
                    let begin = open.pop().unwrap_or_else(|| panic!("ends what is not open: {event}"));
                    assert_eq!(begin["name"], event["name"], "ends another slice: {event}");
                    let depth = open.len();
                    self.slices.push(Slice { track, depth, begin: begin.clone(), end: event.clone() });
                }
                _ => {}
            }
        }
        for (track, open) in open {
            assert!(open.is_empty(), "slices have no end on {track:?}: {open:?}");
        }
    }

    fn of(&self, pid: u64, phase: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["pid"] == pid && event["ph"] == phase)
    }

    /// The slices of a process that have so many slices around them.
    fn slices(&self, pid: u64, depth: usize) -> impl Iterator<Item = &Slice> {
        self.slices.iter().filter(move |slice| slice.track.0 == pid && slice.depth == depth)
    }

    /// Checks what must be as in the summary of the same run, whole.
    fn agrees_with(&self, summary: &Value) {
        let passes: u64 = self.slices(1, 0).map(|pass| whole(&pass.begin["args"], "passes")).sum();
        let counts = &summary["passes"];
        assert_eq!(passes, whole(counts, "extend") + whole(counts, "decode"));
        let sum = |name: &str| self.slices(1, 0).map(|pass| whole(&pass.begin["args"], name)).sum::<u64>();
        assert_eq!(sum("sum_prefill_tokens"), whole(&summary["tokens"], "computed"));
        assert_eq!(sum("retracted"), whole(summary, "retracted"));
        assert_eq!(self.of(1, "i").count() as u64, whole(&summary["kv_events"], "publishes"));
        let blocks = |name: &str| self.of(1, "i").map(|batch| whole(&batch["args"], name)).sum::<u64>();
        assert_eq!(blocks("stored_blocks"), whole(&summary["kv_events"]["stored"], "blocks"));
        assert_eq!(blocks("removed_blocks"), whole(&summary["kv_events"]["removed"], "blocks"));
        let submitted = whole(&summary["requests"], "submitted");
        assert_eq!(self.slices(2, 0).count() as u64, submitted);
        let ended =
            |outcome: &str| self.slices(2, 0).filter(|slice| slice.end["args"]["outcome"] == outcome).count() as u64;
        assert_eq!(ended("rejected"), whole(&summary["requests"], "rejected"));
        assert_eq!(ended("length") + ended("stop"), whole(&summary["requests"], "completed"));
        let output = self.slices(2, 0).filter_map(|slice| slice.end["args"]["output_tokens"].as_u64()).sum::<u64>();
        assert_eq!(output, whole(&summary["tokens"], "output"));
        let retracted = self.slices(2, 1).filter(|slice| slice.name() == "retracted").count() as u64;
        assert_eq!(retracted, whole(summary, "retracted"));
        for name in ["num_running_reqs", "num_queue_reqs", "kv_used_tokens"] {
            let last = self.of(1, "C").filter(|counter| counter["name"] == name).last().expect("it was counted");
            assert_eq!(whole(&last["args"], "value"), 0, "nothing is left at the end: {last}");
        }
        let last_ns = self.slices(1, 0).map(|pass| ns(number(&pass.end, "ts"))).max();
        let duration_ns = ns(number(summary, "duration_ms") * 1e3);
        assert!(last_ns.expect("there are passes") <= duration_ns, "{last_ns:?} of {duration_ns}");
        assert!(self.about["cut_at_ms"].is_null() && self.about["requests_without_lane"] == 0, "{}", self.about);
    }
}

fn traced(command: &str, arguments: &[&str], files: &Files, name: &str) -> (Value, String) {
    let path = files.path(name);
    let said = servesim(&[&[command], arguments, &["--trace-out", &path]].concat()).succeeds();
    (said.json(), said.stderr)
}

#[test]
fn a_trace_holds_what_the_summary_counts_in_both_schedules() {
    let files = Files::new();
    for overlap in ["engine.disable_overlap_schedule=false", "engine.disable_overlap_schedule=true"] {
        let (summary, _) = traced("run", &[&AGENTS[..], &["--set", overlap]].concat(), &files, "t.json");
        let trace = Trace::checked(&files.read("t.json"));
        trace.agrees_with(&summary);
        let strides = trace.slices(1, 0).filter(|pass| pass.name().starts_with("decode x ")).count();
        assert!(strides > 0, "strides are folded");
        assert!(trace.slices(3, 0).next().is_none(), "only a profile has the host's time");
    }
}

#[test]
fn retracted_and_rejected_requests_are_seen_in_both_schedules() {
    let files = Files::new();
    let scenario = files.write("tight.toml", TIGHT);
    for overlap in ["engine.disable_overlap_schedule=false", "engine.disable_overlap_schedule=true"] {
        let (summary, _) = traced("run", &[&scenario, "--json", "--set", overlap], &files, "t.json");
        assert!(whole(&summary, "retracted") > 0 && whole(&summary["requests"], "rejected") > 0);
        Trace::checked(&files.read("t.json")).agrees_with(&summary);
    }
}

#[test]
fn gzip_changes_nothing_and_a_trace_no_result() {
    let files = Files::new();
    let (plain, _) = traced("run", &AGENTS, &files, "t.json");
    let (gzipped, _) = traced("run", &AGENTS, &files, "t.json.gz");
    assert_eq!((&plain, &gzipped), (&servesim(&[&["run"], &AGENTS[..]].concat()).succeeds().json(), &plain));
    let file = std::fs::File::open(files.path("t.json.gz")).expect("it was written");
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("it is gzip of text");
    assert_eq!(text, files.read("t.json"));
    assert!(!std::fs::exists(files.path("t.json.partial")).expect("readable"), "nothing is left beside it");
}

#[test]
fn a_trace_that_is_cut_is_whole_and_says_so() {
    let files = Files::new();
    for limit in [0, 1, 500, 2_000] {
        let most = limit.to_string();
        let arguments = [&AGENTS[..], &["--trace-limit", &most]].concat();
        let (_, stderr) = traced("run", &arguments, &files, "t.json");
        assert!(stderr.contains("the trace was cut at ") && stderr.contains("--trace-limit"), "{stderr}");
        let trace = Trace::checked(&files.read("t.json"));
        // The events of the last iteration, and the ends of what was open, come on top.
        assert!(trace.events.len() < limit + 100, "{} events", trace.events.len());
        assert!(trace.about["cut_at_ms"].is_number(), "{}", trace.about);
    }
}

#[test]
fn a_profile_shows_systems_inside_calls_on_the_hosts_time() {
    let files = Files::new();
    let (report, _) = traced("profile", &[&AGENTS[..], &["--every", "1"]].concat(), &files, "t.json");
    let trace = Trace::checked(&files.read("t.json"));
    let kinds = ["idle", "extend", "mixed", "decode", "stride"];
    let calls: Vec<&Slice> = trace.slices(3, 0).collect();
    assert!(calls.iter().all(|call| kinds.contains(&call.name()) && call.begin["args"]["iteration"].is_u64()));
    assert_eq!(calls.len() as u64, whole(&report, "calls"));
    for system in ["settle", "order", "admit", "commit", "observe", "stride"] {
        assert!(trace.slices(3, 1).any(|slice| slice.name() == system), "{system}");
    }
    assert!(trace.slices(3, 2).next().is_none(), "no system lies in another");
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_run() {
    let files = Files::new();
    let path = files.path("none/t.json");
    servesim(&["run", "coding-agent", "--trace-out", &path]).refuses(&["none/t.json.partial", "cannot be written"]);
    servesim(&["profile", "coding-agent", "--trace-out", &path]).refuses(&["none/t.json.partial"]);
    let limit = servesim(&["run", "coding-agent", "--trace-limit", "5"]);
    assert!(limit.code == 2 && limit.stderr.contains("--trace-out"), "{}", limit.stderr);
}

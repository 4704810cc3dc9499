//! Bad input in traces, for every format through `servesim run`.
//!
//! - Each kind of bad row, between good ones, ends the run with exit code 2 and one line `file:line: field: found ..., expected
//!   ...`; with `--lenient` the run goes on without it and counts it.
//! - A byte order mark, blank lines, CRLF and gzip are no fault: such a file gives the result of the plain one.
//! - A file that is cut off, or is no trace at all, ends the run whether lenient or not.

use crate::program::{Files, Said, gzip, servesim};

/// A format with the ways to write a good row of it.
struct Format {
    /// What a scenario says about it.
    workload: &'static str,
    /// What stands before the rows.
    head: &'static str,
    /// The good row number `n`.
    good: fn(u32) -> String,
}

const MOONCAKE_OPEN: Format = Format {
    workload: "kind = \"mooncake\"\nmode = \"open\"",
    head: "",
    good: |n| format!(r#"{{"timestamp": {}, "input_length": 1000, "output_length": 3, "hash_ids": [7, 8]}}"#, 40 + n),
};

const MOONCAKE_CLOSED: Format = Format { workload: "kind = \"mooncake\"\nmode = \"closed\"", ..MOONCAKE_OPEN };

const AZURE: Format = Format {
    workload: "kind = \"azure\"",
    head: "TIMESTAMP,ContextTokens,GeneratedTokens\n",
    good: |n| format!("2023-11-16 18:17:{:02}.9799600,480,10", 10 + n),
};

const SESSIONS: Format = Format {
    workload: "kind = \"sessions\"",
    head: "",
    good: |n| {
        format!(r#"{{"lane":0,"session":"s{n}","turn":0,"delay_ms":3,"append":[[10,5],[100,2]],"output":[[102,3]]}}"#)
    },
};

const WEKA: Format = Format {
    workload: "kind = \"weka\"",
    head: "",
    good: |n| {
        let (a, b) = (weka_row(0, 130, 9, "[4,5]"), weka_row(7, 200, 4, "[[4,3]]"));
        let child = format!(r#"{{"t":3,"type":"subagent","requests":[{}]}}"#, weka_row(0, 64, 1, "[9]"));
        format!(r#"{{"id":"p{n}","block_size":64,"hash_id_scope":"local","requests":[{a},{child},{b}]}}"#)
    },
};

fn weka_row(t: u32, input: u32, output: u32, ids: &str) -> String {
    format!(r#"{{"t":{t},"type":"s","in":{input},"out":{output},"hash_ids":{ids},"api_time":2.5,"think_time":0.5}}"#)
}

impl Format {
    /// A whole file: rows that end in `line_end`.
    fn file(&self, rows: &[String], line_end: &str) -> String {
        let head = self.head.replace('\n', line_end);
        rows.iter().fold(head, |file, row| file + row + line_end)
    }

    /// The good rows up to number `count`.
    fn good_rows(&self, count: u32) -> Vec<String> {
        (0..count).map(self.good).collect()
    }

    /// Plays a trace of this format.
    fn play(&self, files: &Files, trace: impl AsRef<[u8]>, more: &[&str]) -> Said {
        let scenario = format!("[workload]\n{}\npath = \"trace\"\n", self.workload);
        files.write("trace", trace);
        servesim(&[&["run", &files.write("s.toml", scenario), "--json"], more].concat())
    }

    /// Puts `row` behind a good row and before another, and checks that it is refused at its line with these words, and that
    /// `--lenient` skips it alone.
    fn refuses(&self, files: &Files, row: &str, field: &str, found: &str, expected: &str) {
        let mut rows = self.good_rows(3);
        rows[1] = row.to_owned();
        let file = self.file(&rows, "\n");
        let line = 2 + self.head.lines().count();
        let place = format!("{}:{line}: {field}: found {found}", files.path("trace"));
        self.play(files, &file, &[]).refuses(&[&place, ", expected ", expected]);
        let lenient = self.play(files, &file, &["--lenient"]).succeeds();
        let skipped = lenient.stderr.lines().next();
        assert_eq!(skipped, Some("skipped 1 row that cannot be used"), "{row}: {}", lenient.stderr);
        rows.remove(1);
        let without = self.play(files, self.file(&rows, "\n"), &[]).succeeds();
        assert_eq!(lenient.stdout, without.stdout, "{row}: the run is that of the other rows");
        assert_eq!(without.stderr.lines().count(), 1, "nothing was skipped: {}", without.stderr);
    }

    /// Checks a list of bad rows, each a good row with `old` replaced by `new`.
    fn refuses_each(&self, cases: &[(&str, &str, &str, &str, &str)]) {
        let files = Files::new();
        for &(old, new, field, found, expected) in cases {
            let good = (self.good)(1);
            assert!(good.contains(old), "`{old}` is in {good}");
            self.refuses(&files, &good.replace(old, new), field, found, expected);
        }
    }
}

const BIG: &str = "9223372036854775808";

#[test]
fn times_are_needed_only_where_requests_enter_at_them() {
    MOONCAKE_OPEN.refuses_each(&[
        (r#""timestamp": 41, "#, "", "timestamp", "nothing", "milliseconds, at least 0"),
        ("41", "null", "timestamp", "null", "milliseconds"),
    ]);
    let files = Files::new();
    let rows: Vec<String> =
        (0..3).map(|n| (MOONCAKE_OPEN.good)(n).replace(&format!("\"timestamp\": {}, ", 40 + n), "")).collect();
    let file = MOONCAKE_OPEN.file(&rows, "\n");
    let played = [
        MOONCAKE_CLOSED.play(&files, &file, &[]),
        MOONCAKE_OPEN.play(&files, &file, &["--set", "workload.rate_per_s=5"]),
    ];
    for run in played {
        assert_eq!(run.succeeds().json()["completed"], 3);
    }
}

#[test]
fn bad_mooncake_rows() {
    for format in [MOONCAKE_OPEN, MOONCAKE_CLOSED] {
        format.refuses_each(&[
            ("[7, 8]", "[7, 8, 9]", "hash_ids", "3 ids", "2 for 1000 input tokens in blocks of 512"),
            ("[7, 8]", "[7]", "hash_ids", "1 ids", "2 for 1000 input tokens in blocks of 512"),
            ("[7, 8]", "[]", "hash_ids", "0 ids", "2 for 1000 input tokens in blocks of 512"),
            ("[7, 8]", "[7, 9223372036854775808]", "hash_ids", BIG, "block ids from 0 to 4194303"),
            ("[7, 8]", "[7, 99999999999999999999999]", "hash_ids", "", "block ids from 0 to 4194303"),
            ("[7, 8]", "[-7, 8]", "hash_ids", "-7", "block ids"),
            ("[7, 8]", "[7.5, 8]", "hash_ids", "7.5", "block ids"),
            ("[7, 8]", "[\"x\", 8]", "hash_ids", "\"x\"", "block ids"),
            ("[7, 8]", "[[7, 0], 8]", "hash_ids", "[7, 0]", "block ids"),
            ("[7, 8]", "7", "hash_ids", "7", "block ids"),
            ("[7, 8]", "\"7, 8\"", "hash_ids", "\"7, 8\"", "block ids"),
            ("[7, 8]", "null", "hash_ids", "nothing", "block ids"),
            (r#", "hash_ids": [7, 8]"#, "", "hash_ids", "nothing", "block ids"),
            ("41", "-41", "timestamp", "-41", "milliseconds"),
            ("41", "\"noon\"", "timestamp", "\"noon\"", "milliseconds"),
            ("41", BIG, "timestamp", BIG, "milliseconds"),
            ("41", "39", "timestamp", "39 ms", "not before the previous row's 40 ms"),
            ("1000", "0", "input_length", "0", "a whole number from 1"),
            ("1000", "-1000", "input_length", "-1000", "a whole number from 1"),
            ("1000", "1000.5", "input_length", "1000.5", "a whole number from 1"),
            ("1000", BIG, "input_length", BIG, "a whole number from 1"),
            (r#""output_length": 3"#, r#""output_length": 0"#, "output_length", "0", "a whole number from 1"),
            (r#""output_length": 3"#, r#""output_length": -3"#, "output_length", "-3", "a whole number from 1"),
            (r#", "output_length": 3"#, "", "output_length", "nothing", "a whole number from 1"),
            ("[7, 8]}", "[7, 8", "row", "a row cut off after", "one JSON object a line"),
            ("[7, 8]}", "[7, 8]} {}", "row", "trailing characters", "one JSON object a line"),
            ("41", "NaN", "row", "expected value", "one JSON object a line"),
            ("41", "1e999", "row", "number out of range", "one JSON object a line"),
            (r#""output_length": 3"#, r#""output_length": 3, "delay": -1"#, "delay_ms", "-1", "milliseconds"),
            (r#""output_length": 3"#, r#""output_length": 3, "priority": 0.5"#, "priority", "0.5", "a whole number"),
            (
                r#""output_length": 3"#,
                r#""output_length": 3, "session_id": [1]"#,
                "session_id",
                "a list",
                "a name or a number",
            ),
        ]);
    }
}

#[test]
fn bad_azure_rows() {
    AZURE.refuses_each(&[
        ("2023-11-16 18:17:11.9799600", "yesterday", "TIMESTAMP", "\"yesterday\"", "a time such as 2023-11-16"),
        ("2023-11-16 18:17:11.9799600", "", "TIMESTAMP", "\"\"", "a time such as"),
        ("2023-11-16", "2023-13-16", "TIMESTAMP", "\"2023-13-16", "a time such as"),
        ("18:17:11", "25:17:11", "TIMESTAMP", "\"2023-11-16 25", "a time such as"),
        ("18:17:11", "18:17:09", "TIMESTAMP", "\"2023-11-16 18:17:09", "not before the previous row's time"),
        ("2023", "2223", "TIMESTAMP", "\"2223", "less than 126 years"),
        ("480", "0", "ContextTokens", "\"0\"", "a whole number from 1"),
        ("480", "-480", "ContextTokens", "\"-480\"", "a whole number from 1"),
        ("480", "4.8", "ContextTokens", "\"4.8\"", "a whole number from 1"),
        ("480", BIG, "ContextTokens", "\"9223372036854775808\"", "a whole number from 1"),
        (",10", ",0", "GeneratedTokens", "\"0\"", "a whole number from 1"),
        (",10", ",-10", "GeneratedTokens", "\"-10\"", "a whole number from 1"),
        (",10", ",", "GeneratedTokens", "\"\"", "a whole number from 1"),
        (",10", "", "row", "2 fields", "3 fields"),
        (",480,10", "", "row", "1 fields", "3 fields"),
        (",10", ",10,1", "row", "4 fields", "3 fields"),
    ]);
}

#[test]
fn an_azure_file_needs_its_columns() {
    let files = Files::new();
    let good = AZURE.file(&AZURE.good_rows(2), "\r\n");
    let headless = good.split_once('\n').expect("a header").1;
    for (file, found) in [
        (headless.to_owned(), "header: found \"2023-11-16 18:17:10.9799600,480,10\""),
        (good.replace(",GeneratedTokens", ""), "header: found \"TIMESTAMP,ContextTokens\""),
        (good.replace("ContextTokens,GeneratedTokens", "GeneratedTokens,ContextTokens"), "header: found "),
        (String::new(), "header: found \"\""),
    ] {
        for lenient in [&[][..], &["--lenient"]] {
            AZURE.play(&files, &file, lenient).refuses(&[found, "expected TIMESTAMP,ContextTokens,GeneratedTokens"]);
        }
    }
}

#[test]
fn bad_session_rows() {
    let runs = "runs [first, count] of 1 or more tokens with ids below 2^32";
    SESSIONS.refuses_each(&[
        ("[100,2]", "[100,0]", "append", "[100, 0]", runs),
        ("[100,2]", "[100,-2]", "append", "[100, -2]", runs),
        ("[100,2]", "[-100,2]", "append", "[-100, 2]", runs),
        ("[100,2]", "[100,2.5]", "append", "[100, 2.5]", runs),
        ("[100,2]", "[9223372036854775808,2]", "append", "[9223372036854775808, 2]", runs),
        ("[100,2]", "[4294967295,2]", "append", "[4294967295, 2]", runs),
        ("[100,2]", "[100]", "row", "", "one JSON object a line"),
        ("[100,2]", "[100,2,3]", "row", "", "one JSON object a line"),
        ("[[10,5],[100,2]]", "[]", "append", "an empty list", runs),
        ("[[10,5],[100,2]]", "null", "append", "nothing", runs),
        ("[[10,5],[100,2]]", "[[0,1000000000],[0,1000000000]]", "append", "a session of 2000000003 tokens", "2^30"),
        ("[[102,3]]", "[]", "output", "an empty list", runs),
        (r#","output":[[102,3]]"#, "", "output", "nothing", runs),
        (r#""delay_ms":3"#, r#""delay_ms":-3"#, "delay_ms", "-3", "milliseconds, at least 0"),
        (r#""delay_ms":3,"#, "", "delay_ms", "nothing", "milliseconds, at least 0"),
        (r#""delay_ms":3"#, r#""delay_ms":9223372036854775808"#, "delay_ms", BIG, "milliseconds"),
        (r#""lane":0"#, r#""lane":-1"#, "lane", "-1", "a whole number from 0 to 65535"),
        (r#""lane":0"#, r#""lane":65536"#, "lane", "65536", "a whole number from 0 to 65535"),
        (r#""turn":0"#, r#""turn":1"#, "turn", "1", "turn 0 of session s1 in lane 0"),
        (r#""turn":0,"#, "", "turn", "nothing", "a whole number"),
        (r#""session":"s1","#, "", "session", "nothing", "a name or a number"),
        (r#""session":"s1""#, r#""session":"s0""#, "turn", "0", "turn 1 of session s0 in lane 0"),
        ("]]}", "]", "row", "a row cut off after", "one JSON object a line"),
    ]);
}

#[test]
fn bad_weka_plays() {
    let ids = "block ids from 0 to 33554431, plain or as runs [first, count]";
    WEKA.refuses_each(&[
        ("[[4,3]]", "[[4,4]]", "requests[2].hash_ids", "4 ids", "3 for 200 input tokens in blocks of 64"),
        ("[[4,3]]", "[4,5]", "requests[2].hash_ids", "2 ids", "3 for 200 input tokens in blocks of 64"),
        ("[[4,3]]", "[[4,3,1]]", "requests[2].hash_ids", "a list of 3", ids),
        ("[[4,3]]", "[[4,2],9223372036854775808]", "requests[2].hash_ids", BIG, ids),
        ("[[4,3]]", "[[33554430,3]]", "requests[2].hash_ids", "33554432", ids),
        ("[[4,3]]", "[[4,2],[5,-1]]", "requests[2].hash_ids", "[5, -1]", ids),
        (r#""t":7"#, r#""t":-7"#, "requests[2].t", "-7", "seconds, at least 0"),
        (r#""t":7,"#, "", "requests[2].t", "nothing", "seconds, at least 0"),
        (r#""t":7"#, r#""t":2"#, "requests[2].t", "2", "not before the previous row's 3"),
        (r#""in":200"#, r#""in":0"#, "requests[2].in", "0", "a whole number from 1"),
        (r#""in":200"#, r#""in":-200"#, "requests[2].in", "-200", "a whole number from 1"),
        (r#""out":4"#, r#""out":-4"#, "requests[2].out", "-4", "a whole number from 0"),
        (r#""in":64"#, r#""in":63"#, "requests[1].requests[0].hash_ids", "1 ids", "0 for 63 input tokens"),
        (r#""type":"subagent""#, r#""type":"agent""#, "requests[1].type", "\"agent\"", "\"subagent\""),
        (
            r#"]],"api_time":2.5,"think_time":0.5"#,
            r#"]],"api_time":2.5,"think_time":-1"#,
            "requests[2].think_time",
            "-1",
            "seconds, at least 0",
        ),
        (r#""block_size":64"#, r#""block_size":0"#, "block_size", "0", "a whole number from 1"),
        (r#""block_size":64,"#, "", "block_size", "nothing", "a whole number from 1"),
        (r#""local""#, r#""global""#, "hash_id_scope", "\"global\"", "\"local\""),
        (r#""requests""#, r#""turns""#, "requests", "nothing", "a list of one or more requests"),
        ("0.5}]}", "0.5}", "row", "a row cut off after", "one JSON object a line"),
    ]);
}

#[test]
fn rows_that_are_no_objects() {
    let files = Files::new();
    let deep = "[".repeat(500);
    for format in [MOONCAKE_OPEN, SESSIONS, WEKA] {
        for row in ["[]", "[40, 1, 2, 3]", "7", "null", "\"text\"", "text", &deep, "\u{0}"] {
            format.refuses(&files, row, "row", "", "one JSON object a line");
        }
    }
}

#[test]
fn bytes_that_are_no_text() {
    let files = Files::new();
    for format in [MOONCAKE_OPEN, SESSIONS, WEKA, AZURE] {
        let mut file = format.file(&format.good_rows(1), "\n").into_bytes();
        file.extend([0xff, 0xfe, b'{', 0, b'\n']);
        let line = format!("trace:{}: row: found ", 2 + format.head.lines().count());
        format.play(&files, &file, &[]).refuses(&[&line, ", expected "]);
        let lenient = format.play(&files, &file, &["--lenient"]).succeeds();
        assert!(lenient.stderr.starts_with("skipped 1 row "), "{}", lenient.stderr);
    }
}

#[test]
fn marks_blank_lines_line_ends_and_gzip_are_no_fault() {
    let files = Files::new();
    for format in [MOONCAKE_OPEN, MOONCAKE_CLOSED, AZURE, SESSIONS, WEKA] {
        let rows = format.good_rows(3);
        let plain = format.file(&rows, "\n");
        let expected = format.play(&files, &plain, &[]).succeeds().stdout;
        assert!(expected.contains("\"submitted\": 3") || expected.contains("\"submitted\": 9"), "{expected}");
        let others = [
            format!("\u{feff}{plain}").into_bytes(),
            format.file(&rows, "\r\n").into_bytes(),
            format.file(&rows, "\n\n  \r\n").into_bytes(),
            format!("\u{feff}\r\n\n{}", format.file(&rows, "\r\n\r\n")).into_bytes(),
            plain.trim_end().as_bytes().to_vec(),
            gzip(plain.as_bytes()),
            // Two members one after the other are one file.
            [gzip(&plain.as_bytes()[..50]), gzip(&plain.as_bytes()[50..])].concat(),
        ];
        for (index, other) in others.iter().enumerate() {
            let run = format.play(&files, other, &[]).succeeds();
            assert_eq!(run.stdout, expected, "{} in form {index}", format.workload);
            assert_eq!(run.stderr.lines().count(), 1, "nothing was skipped: {}", run.stderr);
        }
    }
}

#[test]
fn blank_lines_count_where_an_error_stands() {
    let files = Files::new();
    let rows = format!("\u{feff}{}\r\n\r\n{{\r\n", (SESSIONS.good)(0));
    SESSIONS.play(&files, rows, &[]).refuses(&["trace:3: row: found a row cut off after 1 byte"]);
}

#[test]
fn a_file_cut_off_ends_the_run_lenient_or_not() {
    let files = Files::new();
    for format in [MOONCAKE_OPEN, AZURE, SESSIONS, WEKA] {
        let packed = gzip(format.file(&format.good_rows(40), "\n").as_bytes());
        for lenient in [&[][..], &["--lenient"]] {
            let cut = format.play(&files, &packed[..packed.len() / 2], lenient);
            cut.refuses(&[&files.path("trace"), ": file: found ", "expected a file that can be read to its end"]);
        }
    }
}

#[test]
fn a_trace_without_a_usable_row_is_refused() {
    let files = Files::new();
    for format in [MOONCAKE_OPEN, MOONCAKE_CLOSED, AZURE, SESSIONS, WEKA] {
        for rows in ["", "\n\r\n", "x\n"] {
            let file = format!("{}{rows}", format.head);
            let run = format.play(&files, file, &["--lenient"]);
            run.refuses(&["error: trace: found no row that can be used, expected at least one"]);
        }
    }
}

#[test]
fn waits_that_pass_the_end_of_time_are_an_error() {
    let files = Files::new();
    let row = |turn: u32| {
        (SESSIONS.good)(0).replace(r#""turn":0,"delay_ms":3"#, &format!(r#""turn":{turn},"delay_ms":3900000000000"#))
    };
    let rows: Vec<String> = (0..8).map(row).collect();
    let run = SESSIONS.play(&files, SESSIONS.file(&rows, "\n"), &[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("overflows the clock"), "{}", run.stderr);
}

#[test]
fn every_skipped_row_is_counted_in_every_round() {
    let files = Files::new();
    let mut rows = MOONCAKE_CLOSED.good_rows(4);
    rows[1] = "x".to_owned();
    rows[3] = rows[3].replace("43", "41");
    let file = MOONCAKE_CLOSED.file(&rows, "\n");
    let run = MOONCAKE_CLOSED.play(&files, file, &["--lenient", "--set", "workload.loops=3"]).succeeds();
    assert_eq!(run.json()["requests"]["submitted"], 6);
    assert!(run.stderr.starts_with("skipped 6 rows that cannot be used\n"), "{}", run.stderr);
}

//! Looks at a report in a browser: headless Chromium, and is skipped where there is none.
//!
//! - Contract: no error on the console, nothing is loaded from elsewhere, the page fits a phone, columns sort, values are found,
//!   light and dark differ.

use std::path::Path;
use std::process::Command;

use super::batch;
use crate::program::Files;

const CASES: &str = "name = \"b\"\nbase = \"coding-agent\"\n[set]\n\"workload.requests\" = 200\n\
                     [sweep]\n\"engine.max_total_tokens\" = [65536, 98304, 131072]\n\"engine.page_size\" = [64, 1, 16]\n\
                     \"engine.schedule_policy\" = [\"fcfs\"]\n[[case]]\nname = \"plain\"\n\
                     [[case]]\nname = \"bad <i>\"\nset = { \"engine.decode_log_interval\" = 0 }\n";

/// Asks the page about itself and writes the answers into its title, where `--dump-dom` shows them.
const PROBE: &str = r##"<script>
  const column = [...document.querySelectorAll("#table thead button")].findIndex((button) => button.textContent === "engine.page_size");
  const cells = () => [...document.querySelectorAll("#table tbody tr:not(.undone)")].map((row) => row.cells[column + 1].dataset.value).join(" ");
  const before = cells();
  const button = document.querySelectorAll("#table thead button")[column];
  button.click();
  const ascending = cells();
  button.click();
  const descending = cells();
  const more = document.querySelector("#table td.more");
  const hidden = getComputedStyle(more).display;
  document.getElementById("all-metrics").click();
  const point = document.querySelector(".points circle");
  point.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 9, clientY: 9}));
  document.title = JSON.stringify({
    width: document.documentElement.scrollWidth, window: innerWidth, before, ascending, descending,
    hidden, shown: getComputedStyle(more).display, tip: document.getElementById("tip").textContent,
    failed: document.querySelectorAll("#failed li").length, plots: document.querySelectorAll("#plots figure svg").length,
    paper: getComputedStyle(document.body).backgroundColor, elements: document.querySelectorAll("i").length,
    resources: performance.getEntriesByType("resource").filter((entry) => !entry.name.startsWith("data:")).length,
  });
</script>"##;

/// The first of the usual names that is there.
fn chromium() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
    let found = names
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success()));
    if found.is_none() {
        eprintln!("skipped: no Chromium");
    }
    found
}

/// Opens a page; returns what the browser says on stdout, after a look at its console.
fn open(browser: &str, files: &Files, page: &Path, width: u32, more: &[&str]) -> String {
    let profile = tempfile::tempdir_in(files.folder()).expect("a folder");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--v=0"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--window-size={width},1600"))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("CONSOLE"), "{said}");
    assert!(output.status.success(), "{said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_report_works_in_a_browser() {
    let Some(browser) = chromium() else { return };
    let files = Files::new();
    assert_eq!(batch(&files, CASES, "out", &[]).code, 1);
    let report = files.read("out/report.html");
    for elsewhere in ["src=\"http", "href=\"http", "url(", "@import"] {
        assert!(!report.contains(elsewhere), "{elsewhere}");
    }
    files.write("probe.html", report.replace("</body>", &format!("{PROBE}</body>")));
    let probe = files.path("probe.html");
    let mut papers = Vec::new();
    for (width, scheme) in [(1280, "1"), (500, "0")] {
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        let page = open(browser, &files, probe.as_ref(), width, &["--dump-dom", &scheme]);
        let title = page.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).expect("a title");
        let answers: serde_json::Value = serde_json::from_str(&title.replace("&amp;", "&")).expect(title);
        assert!(answers["width"].as_u64() <= answers["window"].as_u64(), "{answers}");
        assert_eq!(answers["before"], "64 1 16 64 1 16 64 1 16");
        assert_eq!(answers["ascending"], "1 1 1 16 16 16 64 64 64");
        assert_eq!(answers["descending"], "64 64 64 16 16 16 1 1 1");
        assert_eq!((&answers["hidden"], &answers["shown"]), (&"none".into(), &"table-cell".into()));
        assert!(answers["tip"].as_str().is_some_and(|tip| tip.contains("b+plain+")), "{answers}");
        assert_eq!(
            (&answers["failed"], &answers["elements"], &answers["resources"]),
            (&9.into(), &0.into(), &0.into())
        );
        assert!(answers["plots"].as_u64() >= Some(4), "{answers}");
        papers.push(answers["paper"].clone());
    }
    assert_ne!(papers[0], papers[1], "light and dark");
    for (name, width) in [("desktop.png", 1280), ("phone.png", 390)] {
        let picture = files.path(name);
        open(
            browser,
            &files,
            files.path("out/report-host.html").as_ref(),
            width,
            &[&format!("--screenshot={picture}")],
        );
        assert!(std::fs::metadata(picture).expect("a picture").len() > 20_000, "{name} is empty");
    }
}

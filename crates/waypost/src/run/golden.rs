//! What people see of runs, word for word, at three widths, with fixed ids and times. `INSTA_UPDATE=always` rewrites it.

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use waypost_kernel::{Failure, Span, Time};
use waypost_store::sqlite::SqliteStore;
use waypost_store::{EventRow, ItemRow, NewRun, RunRow, Store};

use super::follow::entries::EntryReader;
use super::follow::{header, shown};
use super::look::logs::{Reader, Style, steps_width};
use super::look::{list, show};
use super::times::Clock;
use crate::output::Format;

const WIDTHS: [usize; 3] = [60, 100, 200];

fn at(seconds: i64) -> Time {
    Time::from_micros(Time::parse("2026-02-14T08:00:00Z").unwrap_or_default().micros() + seconds * 1_000_000)
}

fn clock() -> Clock {
    Clock { now: at(3_600), zone: TimeZone::UTC }
}

/// A run of a store, with an id and times that stay.
async fn run(new: NewRun, id: &str, status: &str) -> RunRow {
    let folder = tempfile::tempdir().expect("a folder");
    let store = SqliteStore::open(&folder.path().join("golden.db")).expect("a store");
    let mut row = store.enqueue(vec![new]).await.expect("a store").remove(0).expect("a run").run;
    row.run.id = id.into();
    row.run.created_at = at(0);
    row.run.available_at = Some(at(0));
    row.run.state = row.lifecycle.state_named(status).expect("a state");
    row
}

async fn failed() -> RunRow {
    let new = NewRun {
        lifecycle: "job".into(),
        playbook: Some("shop-deploy@4d923fbf81e82191".into()),
        input: json!({ "region": "eu" }),
        by: "kim".into(),
        ..NewRun::default()
    };
    let mut row = run(new, "01a1e501-08a0-772f-bfb0-061280480ab8", "failed").await;
    row.run.started_at = Some(at(1));
    row.run.finished_at = Some(at(43));
    row.run.failure = Some(Failure::new("EXIT_3", "ship to eu: the registry did not answer in time"));
    row
}

async fn runs() -> Vec<RunRow> {
    let command = |words: &[&str]| Some(json!({ "command": words, "directory": "/srv" }));
    let deploy = |carried| NewRun { lifecycle: "deploy".into(), carried, ..NewRun::default() };
    let new =
        deploy(command(&["./deploy.sh", "staging", "--with", "a long list of words that does not fit"]));
    let mut running = run(new, "run-01a1e056-9ee7-7625-a3cf-1c6bf9aac1c9", "running").await;
    running.run.started_at = Some(at(3_590));
    let new = NewRun { queue: "builds".into(), ..deploy(command(&["make", "release"])) };
    let mut scheduled = run(new, "run-01a1e056-9ee8-7625-a3cf-1c6bf9aac1d0", "queued").await;
    scheduled.run.available_at = Some(at(11_100));
    let mut done = run(
        deploy(command(&["echo", "日本語のとても長いタイトル"])),
        "run-01a1e056-9ee9-7625-a3cf-1c6bf9aac1d1",
        "success",
    )
    .await;
    done.run.started_at = Some(at(10));
    done.run.finished_at = Some(at(10));
    vec![running, scheduled, done, failed().await]
}

fn event(
    seq: u64,
    seconds: i64,
    (command, from, to): (&str, Option<&str>, &str),
    message: &str,
    payload: Value,
) -> EventRow {
    EventRow {
        seq,
        at: at(seconds),
        command: command.into(),
        from: from.map(str::to_owned),
        to: to.into(),
        actor: if seq == 1 { "client" } else { "worker" }.into(),
        by: if seq == 1 { "kim" } else { "build-7" }.into(),
        level: "info".into(),
        message: message.into(),
        payload,
        ..EventRow::default()
    }
}

fn events() -> Vec<EventRow> {
    let stays = |command| (command, Some("running"), "running");
    let step = |key: &str, from: &str, to: &str| json!({ "items": [{ "kind": "step", "key": key, "from": from, "to": to }] });
    let task = |percent: u64, to: &str| json!({ "items": [{ "kind": "task", "key": "build: pack", "from": "pending", "to": to, "progress": percent }] });
    vec![
        event(1, 0, ("create", None, "pending"), "Run queued", json!({})),
        event(2, 1, ("claim", Some("pending"), "running"), "Run claimed by worker", json!({})),
        event(3, 1, stays("items"), "build: running", step("build", "pending", "running")),
        event(4, 2, stays("items"), "build: pack: running 30 %", task(30, "running")),
        event(
            5,
            3,
            stays("note"),
            "output",
            json!({ "lines": [["out", "\u{1b}[32mbuilding\u{1b}[0m"], ["err", "a \u{1b}]0;title\u{7} b"]] }),
        ),
        event(6, 30, stays("items"), "build: completed", step("build", "running", "completed")),
        event(7, 30, stays("items"), "ship", step("ship {{ inputs.region }}", "pending", "running")),
        event(8, 40, stays("note"), "2 of 3 layers are there", json!({})),
        event(
            9,
            42,
            stays("items"),
            "ship",
            json!({ "items": [{ "kind": "step", "key": "ship {{ inputs.region }}", "from": "running", "to": "failed", "error_code": "EXIT_3" }] }),
        ),
        event(10, 43, ("fail", Some("running"), "failed"), "Run finished: failed", json!({})),
    ]
}

fn items() -> Vec<ItemRow> {
    let item = |kind: &str, key: &str, name: &str, status: &str| ItemRow {
        kind: kind.into(),
        key: key.into(),
        name: name.into(),
        status: status.into(),
        started_at: Some(at(1)),
        finished_at: Some(at(30)),
        progress: 100,
        ..ItemRow::default()
    };
    let mut build = item("step", "build", "build", "completed");
    build.output =
        json!({ "image": "registry.example/shop:1", "digest": "sha256:0123456789abcdef0123456789abcdef" });
    build.details.insert("duration_ms".into(), json!(29_000));
    let mut pack = item("task", "build: pack", "pack", "completed");
    pack.details.insert("step".into(), json!("build"));
    let mut ship = item("step", "ship {{ inputs.region }}", "ship to eu", "failed");
    ship.details.insert("order".into(), json!(1));
    ship.details.insert("duration_ms".into(), json!(12_000));
    ship.progress = 0;
    ship.failure = Some(Failure::new("EXIT_3", "the registry did not answer in time"));
    vec![build, pack, ship]
}

fn fits(text: &str, width: usize) {
    let widest = text.lines().map(unicode_width::UnicodeWidthStr::width).max().unwrap_or_default();
    assert!(widest <= width, "{widest} of {width}: {text}");
}

// proves U9
#[tokio::test]
async fn lists() {
    let runs = runs().await;
    let worked = [Some(10_000), None, Some(0), Some(42_000)].map(|ms| ms.map(Span::from_ms));
    let mut text = String::new();
    for width in WIDTHS {
        let listed = list::as_table(&runs, &worked, &clock(), Some(width));
        fits(&listed, width);
        text.push_str(&format!("--- {width}\n{listed}\n"));
    }
    insta::assert_snapshot!("list", text);
}

// proves U9
#[tokio::test]
async fn pages() {
    let (failed, events, items) = (failed().await, events(), items());
    let mut text = String::new();
    for width in WIDTHS {
        text.push_str(&format!(
            "--- {width}\n{}\n",
            show::page(&failed, &items, &events, &clock(), (Some(width), false))
        ));
    }
    let verbose = show::page(&failed, &items, &events, &clock(), (Some(100), true));
    insta::assert_snapshot!("show", format!("{text}--- 100, verbose\n{verbose}\n"));
}

// proves U9
#[tokio::test]
async fn followed() {
    let failed = failed().await;
    let mut entries = EntryReader::default();
    entries.learn(items());
    let mut lines = vec![header(&failed, at(1))];
    lines.extend(events().iter().flat_map(|event| entries.read(event)).map(|entry| shown(&entry)));
    insta::assert_snapshot!("watch", lines.join("\n").replace('\u{1b}', "ESC"));
}

// proves U9
#[tokio::test]
async fn logged() {
    let failed = failed().await;
    let mut text = String::new();
    for (name, times, steps) in
        [("plain", false, None), ("with steps and times", true, steps_width(&failed, &items()))]
    {
        let style = Style { format: Format::Table, clock: clock(), times, steps };
        let mut reader = Reader::new(items());
        let lines: Vec<String> =
            events().iter().flat_map(|event| reader.lines(event)).map(|line| line.shown(&style)).collect();
        text.push_str(&format!("--- {name}\n{}\n", lines.join("\n")));
    }
    insta::assert_snapshot!("logs", text.replace('\u{1b}', "ESC"));
}

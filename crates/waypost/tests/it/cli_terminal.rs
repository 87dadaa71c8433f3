//! What others wrote cannot move a terminal: two hundred ways to try, through every command that prints.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Map, Value, json};
use waypost_store::{CommandWrite, NewItem, NewRun};

use crate::support::{Ran, Running, Shop, eventually};

/// Ends of control sequences that move, ask, hide or switch.
const MOVES: &str = "2J,H,10;10H,A,5B,C,D,K,2K,1G,?25l,?1049h,?2004h,?1000h,6n,c,>c,>q,!p,s,u,r,3;20r,L,M,P,@,X,S,T,4h,20t,21t,8;1;1t,8m,5m,1;8m,38;5;1;8m,>4;2m,0 q,?6n,5i,4i";

/// Marks that are not seen, and turn what follows around.
const UNSEEN: &str = "\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2060}\u{2066}\u{2067}\u{2068}\u{2069}\u{feff}\u{e0041}";

/// Payloads without line ends; what stands around them must survive.
fn corpus() -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let controls = (0_u8..0x20).chain([0x7f]).map(char::from).filter(|c| !matches!(c, '\n' | '\r' | '\t'));
    all.extend(controls.map(String::from));
    all.extend(('\u{80}'..='\u{9f}').map(String::from));
    all.extend("78cDEHMNOZ=>#()%*+~}|ln6 ".chars().map(|c| format!("\x1b{c}")));

    all.extend(MOVES.split(',').map(|it| format!("\x1b[{it}")));
    for text in [
        "0;title",
        "2;title",
        "8;;http://evil",
        "52;c;ZXZpbA==",
        "1337;File=:AAAA",
        "10;?",
        "104",
        "P0000000",
    ] {
        let ends = ["\x07", "\x1b\\", "\u{9c}", "", "\u{fffd}"];
        all.extend(ends.map(|end| format!("\x1b]{text}{end}")));
    }
    for (begin, text) in
        [("P", "q#0;2"), ("P", "+q544e"), ("_", "Gf=100;AAAA"), ("^", "private"), ("X", "string")]
    {
        all.extend(["\x1b\\", "", "\x07"].map(|end| format!("\x1b{begin}{text}{end}")));
    }
    all.extend(
        [
            "\x1b",
            "\x1b[",
            "\x1b[3",
            "\x1b[31;",
            "\x1b[31;\x1b[2J",
            "\x1b]",
            "\x1b\x1b]0;t\x07",
            "\u{9b}2J",
            "\u{9d}0;t\u{9c}",
        ]
        .map(String::from),
    );

    all.extend(UNSEEN.chars().map(String::from));
    all.extend([format!("e{}", "\u{301}".repeat(90)), "\u{20dd}".repeat(60), "\u{36f}".repeat(100)]);
    all
}

/// Nothing but text, line ends, tabs and whole colours.
#[track_caller]
fn is_harmless(what: &str, text: &str) {
    let mut rest = text;
    let is_obeyed = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
    };
    while let Some(at) = rest.find(is_obeyed) {
        rest = &rest[at..];
        let colour = rest.strip_prefix("\x1b[").and_then(|body| body.split_once('m'));
        let Some((numbers, after)) =
            colour.filter(|(it, _)| it.bytes().all(|b| b.is_ascii_digit() || b == b';'))
        else {
            panic!("{what}: {:?} is left", rest.chars().take(20).collect::<String>());
        };
        assert!(!["8", "5", "1;8"].contains(&numbers), "{what}: hides or blinks");
        rest = after;
    }
    let accents =
        text.split(|c: char| !('\u{300}'..='\u{36f}').contains(&c)).map(|run| run.chars().count()).max();
    assert!(accents.unwrap_or_default() <= 4, "{what}: a flood of accents");
}

/// As on a terminal: colours are wanted.
fn on_terminal(shop: &Shop, args: &[&str]) -> Ran {
    Ran::from(shop.command(args).env("CLICOLOR_FORCE", "1").env("COLUMNS", "100").output().unwrap())
}

/// Texts of bounded length that hold all payloads, each between its marks.
fn packed(max_bytes: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    for (at, payload) in corpus().iter().filter(|payload| !payload.contains('\0')).enumerate() {
        let payload = format!("a{at}{payload}z{at} ");
        if texts.last().is_some_and(|text| text.len() + payload.len() > max_bytes) {
            texts.push(String::new());
        }
        if let Some(text) = texts.last_mut().filter(|_| payload.len() <= max_bytes) {
            text.push_str(&payload);
        }
    }
    texts
}

// proves U8
#[test]
fn output_of_commands_keeps_its_text_and_colours_and_moves_nothing() {
    let shop = Shop::new();
    let corpus = corpus();
    assert!(corpus.len() >= 200, "{}", corpus.len());
    let lines = corpus.iter().enumerate().map(|(at, payload)| format!("\x1b[32ma{at}{payload}→z{at}\n"));
    std::fs::write(shop.path("corpus"), lines.collect::<String>()).unwrap();
    // Sequences that are cut by lines, and by the writes of a process.
    let script = "cat corpus; printf '\\033'; printf ']0;t'; printf '\\007end\\n'; printf 'x\\033\\n]0;y\\n'; cat corpus >&2; exit 3";
    let started = on_terminal(&shop, &["run", "start", "--wait", "--", "sh", "-c", script]);
    assert_eq!(started.code, Some(3), "{}", started.err);
    let checks: &[&[&str]] = &[
        &["logs", "@1"],
        &["logs", "@1", "-t"],
        &["watch", "@1"],
        &["show", "@1"],
        &["show", "@1", "-v"],
        &["events", "@1"],
    ];
    for args in checks {
        let ran = on_terminal(&shop, &[&["run"], *args].concat());
        is_harmless(&args.join(" "), &ran.out);
        is_harmless(&args.join(" "), &ran.err);
    }
    is_harmless("start --wait", &started.out);
    is_harmless("start --wait", &started.err);
    let logs = on_terminal(&shop, &["run", "logs", "@1"]).out;
    for at in 0..corpus.len() {
        assert!(logs.contains(&format!("→z{at}")), "the text after payload {at} is swallowed");
    }
    assert!(logs.contains("end") && logs.contains("]0;y") && logs.contains("\x1b[32m"), "{logs}");
    let piped = shop.ok(&["run", "logs", "@1"]);
    assert!(!piped.contains('\x1b') && piped.matches('\n').count() >= 2 * corpus.len(), "one line for each");
}

/// A run that has the text wherever somebody else may write one.
fn named(text: &str) -> NewRun {
    let item = NewItem {
        kind: "step".into(),
        key: text.to_owned(),
        name: text.to_owned(),
        status: None,
        max_retries: 3,
        reruns: false,
        role: waypost_kernel::item::Role::Step,
        details: Map::new(),
        copied: false,
    };
    let metadata: Map<String, Value> = [(text.to_owned(), json!({ "nested": text }))].into_iter().collect();
    NewRun {
        lifecycle: "job".into(),
        title: Some(text.to_owned()),
        correlation_id: Some(text.to_owned()),
        concurrency_key: Some(text.to_owned()),
        queue: text.to_owned(),
        input: json!({ "text": text }),
        by: text.to_owned(),
        items: vec![item],
        metadata,
        ..NewRun::default()
    }
}

// proves U8
#[tokio::test]
async fn names_reasons_and_errors_of_others_are_shown_and_not_obeyed() {
    let shop = Shop::new();
    shop.queue(&[], "true");
    let store = shop.store().await;
    for text in packed(240) {
        let run = store.enqueue(vec![named(&text)]).await.unwrap().remove(0).unwrap().run;
        let listed = on_terminal(&shop, &["run", "show", run.id()]);
        is_harmless("show", &listed.out);
        let cancel = CommandWrite {
            tenant: "default".into(),
            run_id: run.id().to_owned(),
            name: "cancel".into(),
            by: text.clone(),
            reason: Some(text.clone()),
            ..CommandWrite::default()
        };
        store.command(cancel).await.unwrap();
        for args in [
            &["run", "show", "-v"][..],
            &["run", "events"],
            &["run", "watch"],
            &["run", "show", "-o", "json"],
        ] {
            let ran = on_terminal(&shop, &[args, &[run.id()]].concat());
            is_harmless(&args.join(" "), &ran.out);
            is_harmless(&args.join(" "), &ran.err);
        }
        for args in [
            &["run", "show"][..],
            &["run", "list", "--status"],
            &["run", "list", "--queue"],
            &["lifecycle", "show"],
            &["queue", "resume"],
        ] {
            let ran = on_terminal(&shop, &[args, &[text.as_str()]].concat());
            is_harmless(&args.join(" "), &ran.err);
            is_harmless(&args.join(" "), &ran.out);
        }
    }
    for args in [
        &["run", "list", "--limit", "100"][..],
        &["queue", "stats"],
        &["stats"],
        &["run", "list", "-o", "jsonl"],
        &["queue", "stats", "-o", "json"],
    ] {
        let ran = on_terminal(&shop, args);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        is_harmless(&args.join(" "), &ran.out);
    }
}

// proves U8
#[test]
fn a_log_has_no_colours_off_a_terminal_and_may_be_json() {
    let shop = Shop::new();
    // Time cancels a run that nobody takes, and the server tells of it.
    let log = |flags: &[&str]| {
        shop.queue(&["--ttl", "1ms"], "true");
        let file = shop.path("log");
        let mut command = shop.command(&["serve", "--no-worker", "--listen", "127.0.0.1:0"]);
        command.args(flags).stderr(std::fs::File::create(&file).unwrap()).stdout(Stdio::null());
        let server = Running(command.spawn().unwrap());
        let text = || std::fs::read_to_string(&file).unwrap();
        eventually("a line is logged", Duration::from_secs(60), || text().contains("time moved a run"));
        drop(server);
        assert!(!text().contains('\x1b'), "{}", text());
        text()
    };
    assert!(log(&[]).contains("INFO waypost_worker"), "text");
    let lines = log(&["--log-format", "json"]);
    let objects: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(!objects.is_empty(), "{lines}");
    for object in &objects {
        for key in ["time", "level", "target", "message", "run_id"] {
            assert!(object.get(key).is_some(), "no {key} in {object}");
        }
    }
    shop.run(&["--log", "loud,,=", "worker", "--allow-commands"]).expect(2, &["log:", "allowed"]);
    shop.run(&["--log-format", "xml", "run", "list"]).expect(2, &["xml", "json"]);
}

/// A name stands on one line, and what follows an error further in: neither looks like a line of the page's own.
// proves U8
#[test]
fn no_line_of_a_page_is_forged() {
    let shop = Shop::new();
    let title = "harmless\ncompleted 3s ago, after 1s\n\n  run    another\u{202e}";
    let failing = ["--title", title, "--wait", "--", "sh", "-c", "printf 'no\\nrun  fine' >&2; exit 3"];
    let run = shop.run(&[&["run", "start", "-o", "json"], &failing[..]].concat());
    run.expect(3, &[]);
    let run: Value = serde_json::from_str(&run.out).unwrap();
    let id = run["run_id"].as_str().unwrap();
    let shown = shop.ok(&["run", "show", id]);
    let mut lines = shown.lines();
    assert_eq!(
        lines.next(),
        Some("harmless^Jcompleted 3s ago, after 1s^J^J  run    another\\u{202e}"),
        "{shown}"
    );
    assert!(lines.next().unwrap().starts_with("failed "), "{shown}");
    let listed = shop.ok(&["run", "list"]);
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let watched = shop.run(&["run", "watch", id]);
    assert!(watched.err.lines().next().unwrap().contains("harmless^Jcompleted"), "{}", watched.err);
}

//! Bad input is refused in words that name the field, and leaves nothing behind.

use crate::support::Shop;

struct Case {
    /// What is wrong, for the message of a failed test.
    what: &'static str,
    args: Vec<String>,
    env: Option<(&'static str, &'static str)>,
    code: i32,
    words: &'static [&'static str],
}

fn case(what: &'static str, args: &[&str], code: i32, words: &'static [&'static str]) -> Case {
    let args = args.iter().map(|arg| (*arg).to_owned()).collect();
    Case { what, args, env: None, code, words }
}

/// `run start FLAGS -- true`.
fn start(what: &'static str, flags: &[&str], code: i32, words: &'static [&'static str]) -> Case {
    case(what, &[&["run", "start"], flags, &["--", "true"]].concat(), code, words)
}

fn runs_that_cannot_start() -> Vec<Case> {
    // An argument may have 128 KiB on Linux, so that it takes nine of them to pass the limit of 1 MiB.
    let large: Vec<String> = (0..9).map(|at| format!("--metadata=m{at}={}", "x".repeat(120_000))).collect();
    let large: Vec<&str> = large.iter().map(String::as_str).collect();
    let long_key = "k".repeat(10_000);
    vec![
        start("unknown lifecycle", &["--lifecycle", "nope"], 2, &["lifecycle", "nope", "deploy"]),
        start("an item's lifecycle", &["--lifecycle", "step"], 2, &["lifecycle", "step"]),
        start("metadata above its limit", &large, 2, &["metadata", "bytes"]),
        start("NUL in an input", &["--input", r#"a="x\u0000y""#], 2, &["input", "NUL"]),
        start("NUL in an input's name", &["--input", r#"a={"x\u0000y":1}"#], 2, &["input", "NUL"]),
        start("NUL in metadata", &["--metadata", r#"a=["\u0000"]"#], 2, &["metadata", "NUL"]),
        start("an input that is no pair", &["--input", "novalue"], 2, &["input", "KEY=VALUE"]),
        start("an input without a name", &["--input", "=1"], 2, &["input", "KEY=VALUE"]),
        start("an empty key", &["--idempotency-key", ""], 2, &["idempotency_key", "empty"]),
        start("an endless key", &["--idempotency-key", &long_key], 2, &["idempotency_key", "bytes"]),
        start("an empty queue", &["--queue", ""], 2, &["queue", "empty"]),
        start("a time that is none", &["--schedule-at", "tomorrow"], 2, &["schedule-at", "tomorrow"]),
        start("a length that is none", &["--ttl", "soon"], 2, &["--ttl", "60s"]),
        start("a priority that is none", &["--priority", "99999"], 2, &["--priority"]),
        start("too many retries", &["--retries", "1000"], 2, &["--retries", "0..=100"]),
        case(
            "waiting at most, but not waiting",
            &["run", "start", "gone.toml", "--timeout", "1s"],
            2,
            &["timeout", "--wait"],
        ),
        start(
            "a key with another body",
            &["--idempotency-key", "used"],
            2,
            &["used", "another body", "run-"],
        ),
        case("no command", &["run", "start"], 2, &["COMMAND"]),
    ]
}

fn asked_for_wrongly() -> Vec<Case> {
    let mut cases = vec![
        case("no noun", &[], 2, &["Usage"]),
        case("an unknown noun", &["runs"], 2, &["runs", "run"]),
        case("an unknown format", &["run", "list", "-o", "xml"], 2, &["xml", "jsonl"]),
        case("an unknown run", &["run", "show", "run-x"], 4, &["no run", "run-x"]),
        case("an unknown run's log", &["run", "logs", "run-x"], 4, &["no run", "run-x"]),
        case("a missing argument, for programs", &["run", "pause", "run-x", "-o", "json"], 2, &["--reason"]),
        case("a limit that is none", &["queue", "limit", "q", "many"], 2, &["at_most", "many"]),
        case("a worker that may do nothing", &["worker"], 2, &["--allow-commands"]),
        case("a lease that is none", &["worker", "--allow-commands", "--lease", "0s"], 2, &["--lease"]),
        case("an unknown lifecycle", &["lifecycle", "show", "nope"], 4, &["nope", "deploy"]),
        case("malformed TOML", &["lifecycle", "check", "broken.toml"], 2, &["broken.toml:2"]),
        case("not UTF-8", &["lifecycle", "check", "latin.toml"], 2, &["latin.toml:1", "UTF-8"]),
        case("no such file", &["lifecycle", "check", "gone.toml"], 4, &["gone.toml"]),
        case(
            "a server",
            &["--url", "http://127.0.0.1:9", "run", "list"],
            1,
            &["cannot reach", "127.0.0.1:9"],
        ),
    ];
    cases.push(Case {
        env: Some(("WAYPOST_URL", "http://127.0.0.1:9")),
        ..case(
            "a server by its variable",
            &["run", "start", "--", "true"],
            1,
            &["cannot reach", "WAYPOST_URL"],
        )
    });
    cases
}

#[test]
fn bad_input_is_refused_and_leaves_nothing_behind() {
    let shop = Shop::new();
    std::fs::write(shop.path("broken.toml"), "name = \"x\"\nversion = = 1\n").unwrap();
    std::fs::write(shop.path("latin.toml"), b"name = \"caf\xe9\"\n").unwrap();
    shop.queue(&["--idempotency-key", "used"], "echo first");
    let before = shop.runs();
    for Case { what, args, env, code, words } in
        runs_that_cannot_start().into_iter().chain(asked_for_wrongly())
    {
        let mut command = shop.command(&[]);
        let ran = crate::support::Ran::from(command.args(&args).envs(env).output().unwrap());
        assert_eq!(ran.code, Some(code), "{what}: {}{}", ran.out, ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{what}: no {word:?} in {}", ran.err);
        }
        assert!(ran.err.len() < 4_200, "{what}: a wall of text: {}", ran.err);
        assert_eq!(ran.out, "", "{what}: data on stdout");
        assert!(!ran.err.contains("panicked"), "{what}: {}", ran.err);
    }
    assert_eq!(shop.runs(), before);
    shop.verifies();
}

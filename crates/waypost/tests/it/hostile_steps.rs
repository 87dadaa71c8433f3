//! Steps that behave badly: the run ends and says why, nothing of them is left, and the worker's memory stays small.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Running, Shop, eventually, parent};

/// However long a gigabyte takes here.
const PATIENCE: Duration = Duration::from_secs(600);
/// Far above what a worker needs, far below what it is sent.
const MOST_KIB: u64 = 200 * 1024;

/// `./scripts/soak hostile-steps` asks for all of it.
fn megabytes() -> u64 {
    std::env::var("WAYPOST_MEGABYTES").map_or(64, |text| text.parse().unwrap())
}

struct Hostile {
    name: &'static str,
    script: String,
    /// Further lines of the step.
    more: &'static str,
    ends: (&'static str, Option<&'static str>),
    says: &'static str,
}

fn hostile() -> Vec<Hostile> {
    let megabytes = megabytes();
    let all = |name, script: String, more, ends, says| Hostile { name, script, more, ends, says };
    vec![
        all(
            "ignores SIGTERM and forks",
            "trap '' TERM; echo $$ >> pids; (trap '' TERM; echo $BASHPID >> pids; sleep 301) & setsid sleep 302 & wait".into(),
            "timeout = \"500ms\"",
            ("failed", Some("TIMEOUT")),
            "no end within 500ms",
        ),
        all(
            "prints very much",
            format!("head -c {megabytes}M /dev/zero | tr '\\0' 'x' | fold -w 1000"),
            "",
            ("completed", None),
            "output cut after 16 MiB",
        ),
        all(
            "prints one endless line",
            format!("head -c {megabytes}M /dev/zero | tr '\\0' 'y'"),
            "",
            ("completed", None),
            "",
        ),
        all(
            "prints what is no text",
            "head -c 1M /dev/urandom; printf '\\xff\\xfe\\x00\\xed\\xa0\\x80\\n'; exit 7".into(),
            "",
            ("failed", Some("EXIT_7")),
            "exit code 7",
        ),
        all(
            "writes an Outcome that is far too large",
            format!("head -c {}M /dev/zero | tr '\\0' 'z' > $WAYPOST_OUTPUT", megabytes.min(100)),
            "",
            ("failed", Some("BAD_OUTCOME")),
            "larger than 1048576 bytes",
        ),
        all(
            "makes its Outcome a pipe",
            "rm -f $WAYPOST_OUTPUT; mkfifo $WAYPOST_OUTPUT".into(),
            "",
            ("failed", Some("BAD_OUTCOME")),
            "not a plain file",
        ),
        all(
            "kills itself",
            "kill -SEGV $$".into(),
            "",
            ("failed", Some("SIGNAL")),
            "killed by signal 11",
        ),
    ]
}

// proves X8 and X10
#[test]
fn hostile_steps_end_explained_and_leave_nothing() {
    let shop = Shop::new();
    shop.ok(&["run", "list"]);
    let worker = shop.spawn(&["worker", "--allow-commands", "--grace", "300ms"]);
    for it in hostile() {
        let file = shop.path("hostile.toml");
        let text = format!(
            "name = \"hostile\"\nlifecycle = \"job\"\n\n[[step]]\nname = \"{}\"\nexec = [\"bash\", \"-c\", '''{}''']\n{}\n",
            it.name, it.script, it.more
        );
        fs::write(&file, text).unwrap();
        let id = shop.ok(&["run", "start", "hostile.toml"]).trim().to_owned();
        let mut run = Value::Null;
        eventually(it.name, PATIENCE, || {
            run = shop.show(&id);
            run["phase"] == "settled"
        });
        assert_eq!(
            (run["status"].as_str(), run["error_code"].as_str()),
            (Some(it.ends.0), it.ends.1),
            "{}: {run}",
            it.name
        );
        let events = shop.ok(&["run", "events", &id, "-o", "jsonl"]);
        assert!(run.to_string().contains(it.says) || events.contains(it.says), "{}: {run}", it.name);
        eprintln!(
            "{}: {} {}, worker at most {} KiB",
            it.name,
            run["status"],
            run["error_msg"],
            peak_kib(&worker)
        );
    }
    for pid in fs::read_to_string(shop.path("pids")).unwrap().lines() {
        let pid: u32 = pid.parse().unwrap();
        assert_eq!(parent(pid), None, "{pid} is left");
    }
    let peak = peak_kib(&worker);
    assert!(peak < MOST_KIB, "the worker took {peak} KiB");
    shop.verifies();
}

fn peak_kib(process: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

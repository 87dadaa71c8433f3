//! Workers that are stopped, not killed: what they execute is ended before another worker begins the same.

use std::fs;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use waypost_kernel::{Span, Time};

use crate::support::{Process, Running, SOON, Shop, eventually, parent, playbook, process};

const LEASE: Span = Span::from_seconds(3);

/// Its second try looks whether the first one goes on. `going` has the command of each.
const SLOW: &str = r#"exec = ["sh", "-c", """
for pid in $(cat going); do
  case $(cut -d ' ' -f 3 /proc/$pid/stat 2> /dev/null) in ''|Z|X) ;; *) echo met >> met ;; esac
done
echo $$ >> going
until test -e go; do sleep 0.01; done
"""]"#;

struct Frozen {
    shop: Shop,
    run_id: String,
    worker: Running,
    /// What it executes.
    command: Process,
    guardian: Pid,
}

fn worker(shop: &Shop) -> Running {
    shop.spawn(&["worker", "--allow-commands", "--lease", &LEASE.to_string()])
}

fn going(shop: &Shop, count: usize) -> Vec<u32> {
    let read = || -> Vec<u32> {
        let text = fs::read_to_string(shop.path("going")).unwrap();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    };
    eventually("the command begins", SOON, || read().len() == count);
    read()
}

/// A worker is at it.
fn at_work(shop: Shop) -> Frozen {
    let shop = shop.with("slow.toml", &playbook("slow", "job", &[("slow", SLOW)])).with("going", "");
    let run_id = shop.ok(&["run", "start", "slow.toml"]).trim().to_owned();
    let worker = worker(&shop);
    let pid = going(&shop, 1)[0];
    let guardian = Pid::from_raw(parent(pid).unwrap() as i32).unwrap();
    Frozen { run_id, worker, command: process(pid), guardian, shop }
}

impl Frozen {
    /// A worker that is stopped while it writes to a file has that locked until it goes on: nobody could take anything over.
    fn freeze(&self) {
        eventually("the worker is stopped between two writes", SOON, || {
            self.worker.signal("STOP");
            let is_free = self.shop.run(&["queue", "limit", "other", "1"]).code == Some(0);
            if !is_free {
                self.worker.signal("CONT");
            }
            is_free
        });
    }
}

fn both() -> [Shop; 2] {
    [Shop::new(), Shop::on_postgres()]
}

fn until_gone(command: Process) {
    eventually("the stopped worker's command ends", SOON, || !command.is_alive());
}

/// The run ends, and once.
fn ends_well(frozen: &Frozen) {
    fs::write(frozen.shop.path("go"), "").unwrap();
    assert_eq!(frozen.shop.run(&["run", "watch", &frozen.run_id]).code, Some(0));
    assert!(!frozen.shop.path("met").exists(), "two of the same step at once");
    frozen.shop.verifies();
}

// proves X5
#[test]
fn a_stopped_workers_command_is_ended_before_another_begins_it() {
    for shop in both() {
        let frozen = at_work(shop);
        frozen.freeze();
        let _other = worker(&frozen.shop);
        going(&frozen.shop, 2);
        assert!(!frozen.command.is_alive());
        // Awake again, it has nothing to say.
        frozen.worker.signal("CONT");
        ends_well(&frozen);
    }
}

// proves X5
#[test]
fn a_command_that_was_stopped_with_its_guardian_ends_when_they_go_on() {
    for shop in both() {
        let frozen = at_work(shop);
        frozen.freeze();
        kill_process_group(frozen.guardian, Signal::STOP).unwrap();
        let _other = worker(&frozen.shop);
        eventually("another worker has it", SOON, || {
            fs::read_to_string(frozen.shop.path("going")).unwrap().lines().count() == 2
        });
        kill_process_group(frozen.guardian, Signal::CONT).unwrap();
        until_gone(frozen.command);
        fs::remove_file(frozen.shop.path("met")).unwrap();
        frozen.worker.signal("CONT");
        ends_well(&frozen);
    }
}

/// A worker that goes on renewing its lease has told so by the time its guardian goes on.
// proves X5
#[test]
fn a_guardian_that_was_stopped_alone_hears_that_the_lease_was_renewed() {
    let frozen = at_work(Shop::new());
    kill_process(frozen.guardian, Signal::STOP).unwrap();
    let ends_at = || {
        let shown = frozen.shop.show(&frozen.run_id);
        Time::parse(shown["stale_after"].as_str().unwrap()).unwrap()
    };
    // What is renewed now ends later than what was known then lasts.
    let known = ends_at() + LEASE;
    eventually("the lease that it knows of is over", SOON, || ends_at() > known);
    kill_process(frozen.guardian, Signal::CONT).unwrap();
    ends_well(&frozen);
    assert_eq!(going(&frozen.shop, 1).len(), 1, "it was executed once");
}

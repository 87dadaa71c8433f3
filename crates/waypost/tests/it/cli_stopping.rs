//! Cancelling, giving up and interrupting.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use crate::support::{Process, Running, Shop, eventually};

const SLEEPS: &str = "echo $$ $(cut -d' ' -f22 /proc/$$/stat); exec sleep 600";
const STOPPED: &str = "queued → claimed → running → cancelled";
const SOON: Duration = Duration::from_secs(20);

/// The first line that the running command prints: which process it is.
fn process(running: &mut Running) -> Process {
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap());
    Process { pid: numbers.next().unwrap() as u32, started: numbers.next().unwrap() }
}

#[test]
fn a_waiting_run_is_cancelled_at_once_and_a_settled_one_is_refused() {
    let shop = Shop::new();
    let id = shop.queue(&[], "true");
    shop.ok(&["run", "cancel", &id, "--reason", "wrong branch"]);
    let run = shop.show(&id);
    assert_eq!(run["status"], "cancelled");
    assert_eq!(run["error_msg"], "wrong branch");
    shop.run(&["run", "watch", &id]).expect(3, &["queued → cancelled"]);
    shop.run(&["run", "start", "--wait", "--", "true"]).expect(0, &[]);
    let settled = shop.runs()[0]["run_id"].as_str().unwrap().to_owned();
    shop.run(&["run", "cancel", &settled]).expect(5, &["INVALID_TRANSITION", "success"]);
    shop.run(&["run", "cancel", "run-nope"]).expect(4, &["there is no run"]);
}

#[test]
fn a_running_command_is_stopped_by_a_cancel_from_another_process() {
    let shop = Shop::new();
    let mut waiting = shop.spawn(&["run", "start", "--wait", "--", "sh", "-c", SLEEPS]);
    let process = process(&mut waiting);
    assert!(process.is_alive());
    let id = shop.runs()[0]["run_id"].as_str().unwrap().to_owned();
    shop.ok(&["run", "cancel", &id]);
    shop.run(&["run", "watch", &id, "--timeout", "20s"]).expect(3, &[STOPPED, "CANCELLED"]);
    assert_eq!(waiting.end(), Some(3));
    assert!(!process.is_alive());
    shop.verifies();
}

#[test]
fn an_interrupt_cancels_the_run_and_is_the_exit_code() {
    for (signal, flag) in
        [("INT", "--wait"), ("TERM", "--wait"), ("HUP", "--wait"), ("TERM", "--here"), ("HUP", "--here")]
    {
        let shop = Shop::new();
        let mut waiting = shop.spawn(&["run", "start", flag, "--", "sh", "-c", SLEEPS]);
        let process = process(&mut waiting);
        waiting.signal(signal);
        assert_eq!(waiting.end(), Some(130), "{signal}");
        assert!(!process.is_alive(), "{signal}");
        assert_eq!(shop.runs()[0]["status"], "cancelled", "{signal}");
        assert_eq!(shop.runs()[0]["error_msg"], "interrupted", "{signal}");
        shop.verifies();
    }
}

#[test]
fn who_follows_a_run_again_is_interrupted_alike() {
    let shop = Shop::new();
    let script = "test -e again || exit 1; echo $$ $(cut -d' ' -f22 /proc/$$/stat); exec sleep 600";
    shop.run(&["run", "start", "--wait", "--", "sh", "-c", script]).expect(3, &[]);
    let old = shop.runs().remove(0);
    std::fs::write(shop.path("again"), "").unwrap();
    let mut replay = shop.spawn(&["run", "replay", old["run_id"].as_str().unwrap(), "--here"]);
    let process = process(&mut replay);
    replay.signal("TERM");
    assert_eq!(replay.end(), Some(130));
    assert!(!process.is_alive());
    assert_eq!(shop.runs()[0]["error_msg"], "interrupted");
}

#[test]
fn a_second_signal_does_not_wait_for_the_cancel() {
    let shop = Shop::new();
    let stubborn = "trap '' TERM; echo $$ $(cut -d' ' -f22 /proc/$$/stat); while :; do sleep 0.05; done";
    let mut waiting = shop.spawn(&["run", "start", "--here", "--", "sh", "-c", stubborn]);
    let process = process(&mut waiting);
    waiting.signal("TERM");
    eventually("the cancel is asked for", SOON, || shop.runs()[0]["intent"] == "cancel");
    waiting.signal("HUP");
    assert_eq!(waiting.end(), Some(130));
    eventually("nothing of it is left", SOON, || !process.is_alive());
}

/// `nohup` has the hangup ignored.
#[test]
fn a_hangup_that_is_ignored_stays_so() {
    let shop = Shop::new();
    let script = "touch begun; until test -e go; do sleep 0.01; done";
    let mut command = shop.command(&[]);
    let program = command.get_program().to_owned();
    command = {
        let mut nohup = std::process::Command::new("nohup");
        crate::support::surround(&mut nohup, shop.folder());
        nohup.arg(program).args(["run", "start", "--here", "--", "sh", "-c", script]);
        nohup
    };
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut waiting = Running(command.spawn().unwrap());
    eventually("it begins", SOON, || shop.path("begun").exists());
    waiting.signal("HUP");
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(waiting.end(), Some(0));
}

#[test]
fn giving_up_cancels_what_this_process_works_but_not_what_it_watches() {
    let shop = Shop::new();
    let ran = shop.run(&["run", "start", "--wait", "--timeout", "500ms", "--", "sleep", "600"]);
    ran.expect(124, &[STOPPED, "not done in time"]);
    let id = shop.queue(&["--queue", "nobody"], "true");
    shop.run(&["run", "watch", &id, "--timeout", "200ms"]).expect(124, &[]);
    assert_eq!(shop.show(&id)["status"], "queued");
}

#[test]
fn a_worker_that_is_asked_to_stop_ends_what_it_has_and_takes_nothing_more() {
    let shop = Shop::new();
    let first = shop.queue(&[], "touch begun; while [ ! -e go ]; do sleep 0.02; done");
    let second = shop.queue(&[], "true");
    let mut worker = shop.spawn(&["worker", "--allow-commands"]);
    eventually("the first run begins", SOON, || shop.path("begun").exists());
    worker.signal("TERM");
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(worker.end(), Some(0));
    assert_eq!(shop.show(&first)["status"], "success");
    assert_eq!(shop.show(&second)["status"], "queued");
}

#[test]
fn what_nobody_takes_in_time_is_cancelled() {
    let shop = Shop::new();
    let id = shop.queue(&["--ttl", "1s", "--queue", "nobody"], "true");
    let _sweeps = shop.spawn(&["worker", "--allow-commands", "--queue", "other"]);
    shop.run(&["run", "watch", &id, "--timeout", "20s"]).expect(3, &["queued → cancelled"]);
}

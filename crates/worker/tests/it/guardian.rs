//! No orphans: whoever of worker and guardian dies, the command dies too.

use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::support::{PROBE, Shop, code, eventually, is_alive, kill, until_gone};

// proves X5
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_takes_its_commands_with_it() {
    let shop = Shop::new();
    let script = "trap '' TERM HUP; echo $$ >> pids; sleep 300 & echo $! >> pids; \
                  setsid sh -c 'echo $$ >> pids; sleep 300' & wait";
    let id = shop.script(script).await;
    let mut worker =
        Command::new(PROBE).arg("worker").arg(shop.database()).stdin(Stdio::null()).spawn().unwrap();
    let pids = shop.pids("pids", 3).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    kill(Pid::from_child(&worker));
    worker.wait().unwrap();
    until_gone(&pids).await;
    assert_eq!(shop.run(&id).await.status(), "running", "its end is for the engine to say");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_guardian_takes_its_command_with_it() {
    let shop = Shop::new();
    // In the group; in a session of its own; the same without its parent, twice removed.
    let script = "trap '' TERM; echo $PPID >> pids; echo $$ >> pids; sleep 300 & echo $! >> pids; \
                  setsid sh -c 'echo $$ >> pids; sleep 300' & \
                  (setsid sh -c '(setsid sh -c \"echo \\$\\$ >> pids; exec sleep 300\" &)' > /dev/null 2>&1 &); wait";
    let id = shop.script(script).await;
    let running = shop.start();
    let pids = shop.pids("pids", 5).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    kill(pids[0]);
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("SIGNAL")));
    let left: Vec<&Pid> = pids.iter().filter(|pid| is_alive(**pid)).collect();
    assert!(left.is_empty(), "{left:?} outlive the try");
    running.stop().await;
}

/// The next try must not meet what is left of the one before.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_killed_guardian_is_left_when_the_next_try_begins() {
    let shop = Shop::new();
    // Who has ended may wait for its new parent to take note.
    let script = "if test -e first; then \
                    case $(cut -d ' ' -f 3 /proc/$(cat first)/stat 2> /dev/null) in ''|Z|X) ;; *) echo met ;; esac; exit 0; \
                  fi; \
                  setsid sh -c 'echo $$ > first.tmp; mv first.tmp first; exec sleep 300' & \
                  until test -e first; do sleep 0.01; done; echo $PPID > guardian.tmp; mv guardian.tmp guardian; wait";
    let id = shop.enqueue(shop.carrying(&["sh", "-c", script], 1)).await;
    let running = shop.start();
    let guardian = shop.pids("guardian", 1).await[0];
    kill(guardian);
    assert_eq!(shop.until_settled(&id).await.status(), "success");
    assert_eq!(shop.lines(&id).await, []);
    running.stop().await;
}

/// Other commands of the same worker have their own guardians, and go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_guardian_takes_nobody_elses_command_with_it() {
    let mut shop = Shop::new();
    shop.options.slots = 2;
    let script = |name: &str| {
        format!(
            "echo $PPID > {name}.tmp; setsid sh -c 'until test -e go; do sleep 0.01; done; echo {name} >> done' & \
             mv {name}.tmp {name}; wait"
        )
    };
    let (one, two) = (shop.script(&script("one")).await, shop.script(&script("two")).await);
    let running = shop.start();
    let guardian = shop.pids("one", 1).await[0];
    shop.pids("two", 1).await;
    kill(guardian);
    assert_eq!(shop.until_settled(&one).await.status(), "failed");
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(shop.until_settled(&two).await.status(), "success");
    assert_eq!(std::fs::read_to_string(shop.path("done")).unwrap(), "two\n");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_reaped_while_the_command_goes_on() {
    let shop = Shop::new();
    let script = "for n in 1 2 3 4 5; do (sh -c 'echo $$ >> orphans' &); done; echo $PPID > guardian; \
                  echo ready; until test -e go; do sleep 0.01; done";
    let id = shop.script(script).await;
    let running = shop.start();
    shop.until_printed(&id, "ready").await;
    for pid in shop.pids("orphans", 5).await {
        let entry = format!("/proc/{}", pid.as_raw_pid());
        eventually("no zombie is left", async || (!std::path::Path::new(&entry).exists()).then_some(()))
            .await;
    }
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(shop.until_settled(&id).await.status(), "success");
    running.stop().await;
}

#[test]
fn a_guardian_without_a_worker_starts_nothing() {
    for command in [&["guardian", "--", "echo", "started"][..], &["guardian", "--"]] {
        let output = Command::new(PROBE).args(command).stdin(Stdio::null()).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(126), &b""[..]));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.starts_with("waypost: cannot start"), "{words}");
    }
}

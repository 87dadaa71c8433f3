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
    let script = "trap '' TERM; echo $$ >> pids; echo $PPID >> pids; sleep 300 & wait";
    let id = shop.script(script).await;
    let running = shop.start();
    let pids = shop.pids("pids", 2).await;
    kill(pids[1]);
    let row = shop.until_settled(&id).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("SIGNAL")));
    until_gone(&pids).await;
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

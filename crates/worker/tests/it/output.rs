//! What processes print becomes events, within bounds.

use std::process::{Command, Stdio};

use waypost_kernel::text::{MAX_EVENT_BYTES, MAX_LINE_BYTES, MAX_OUTPUT_BYTES_PER_RUN};

use crate::support::{PROBE, Shop, until_gone};

// proves X10
#[tokio::test(flavor = "multi_thread")]
async fn output_is_cleaned_line_by_line() {
    for shop in Shop::both() {
        let script = r#"printf 'caf\377 \000\n'; printf '10%%\r20%%\r\nlast'; printf 'oops\n' >&2"#;
        let id = shop.script(script).await;
        assert_eq!(shop.work().await.succeeded, 1);
        let mut lines = shop.lines(&id).await;
        lines.sort();
        let expected = [
            ("err", "oops"),
            ("out", "10%"),
            ("out", "20%"),
            ("out", "caf\u{fffd} \u{fffd}"),
            ("out", "last"),
        ];
        assert_eq!(lines, expected.map(|(stream, line)| (stream.to_owned(), line.to_owned())));
    }
}

// proves X4, X10
#[tokio::test(flavor = "multi_thread")]
async fn fifty_megabytes_end_in_a_bounded_number_of_bounded_events() {
    let shop = Shop::new();
    let id = shop.script("head -c 50000000 /dev/zero | tr '\\0' x | fold -w 100; echo end >&2").await;
    assert_eq!(shop.work().await.succeeded, 1);
    let events = shop.events(&id).await;
    let output: Vec<usize> = events
        .iter()
        .filter(|event| event.message == "output")
        .map(|event| event.payload.to_string().len())
        .collect();
    assert!(output.iter().all(|bytes| *bytes <= MAX_EVENT_BYTES));
    let total: usize = output.iter().sum();
    assert!(total <= MAX_OUTPUT_BYTES_PER_RUN + MAX_EVENT_BYTES, "{total}");
    assert!(total > MAX_OUTPUT_BYTES_PER_RUN - 2 * MAX_EVENT_BYTES, "{total}");
    // Full chunks, and a few that were due before they were full.
    assert!(output.len() < 1_000, "{} events", output.len());
    let cut = events.iter().filter(|event| event.message == "output cut after 16 MiB").count();
    assert_eq!(cut, 1);
    shop.verify().await;
}

// proves X10
#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_megabytes_is_cut_and_marked() {
    let shop = Shop::new();
    let id = shop.script("head -c 5000000 /dev/zero | tr '\\0' x; echo; echo after").await;
    assert_eq!(shop.work().await.succeeded, 1);
    let lines = shop.lines(&id).await;
    assert!(lines[0].1.len() <= MAX_LINE_BYTES && lines[0].1.ends_with("… [cut]"));
    assert_eq!(lines[1].1, "after");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_behind_does_not_keep_its_run_open() {
    for shop in Shop::both() {
        let id = shop.script("sleep 300 & echo $! > pids; echo done").await;
        assert_eq!(shop.work().await.succeeded, 1);
        assert_eq!(shop.lines(&id).await[0].1, "done");
        until_gone(&shop.pids("pids", 1).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_words_of_a_pipe_are_not_lost() {
    for shop in Shop::both() {
        // As `tee` does in a shell's pipe, somebody writes once the shell has ended.
        let gone = "! test -e /proc/$$/stat || grep -qs ') Z' /proc/$$/stat";
        let id = shop.script(&format!("(until {gone}; do sleep 0.005; done; echo late) & exit 0")).await;
        assert_eq!(shop.work().await.succeeded, 1);
        assert_eq!(shop.lines(&id).await, [("out".to_owned(), "late".to_owned())]);
    }
}

// proves X10
#[tokio::test(flavor = "multi_thread")]
async fn memory_stays_small_however_much_is_printed() {
    let shop = Shop::new();
    let id = shop.script("yes 'the same line again and again' | head -c 1000000000").await;
    let mut worker =
        Command::new(PROBE).arg("worker").arg(shop.database()).stdin(Stdio::null()).spawn().unwrap();
    assert_eq!(shop.until_settled(&id).await.status(), "success");
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.id())).unwrap();
    worker.kill().unwrap();
    worker.wait().unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak_kib < 100 * 1024, "{peak_kib} KiB");
}

//! `waypost demo` plays its runs, and says so.

use crate::support::{SOON, Shop, eventually};

#[test]
fn the_demo_plays_its_runs_as_announced() {
    let shop = Shop::new();
    let ran = shop.run(&["demo", "--once"]);
    ran.expect(0, &["stale claim", "Run lost: failed", "Retry 2/2", "rolling update"]);
    let rows = ran.out.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(rows.count(), 18, "{}", ran.out);
    for words in [
        "WORKER_LOST",
        "EXPIRED",
        "MAX_RETRIES",
        "3 tries",
        "power_off",
        "HA as it was",
        "schedule that fails",
        "EXIT_4",
        "approved by a person, written by a worker",
        "20 rolled back, 2 found changed by others",
        "Every run ended as announced",
        "Try next",
    ] {
        assert!(ran.out.contains(words), "no {words:?} in {}", ran.out);
    }
    assert!(!shop.database().exists(), "the demo has a database of its own");
}

/// It stays until it is told to end, off a terminal too, and leaves something to decide.
#[test]
fn the_demo_shows_its_console_until_it_is_ended() {
    let shop = Shop::new();
    let (mut demo, url, heard) = shop.heard(&["demo"], "The console: ");
    let url = url.trim_end_matches('/');
    assert!(shop.page(url, "/").contains("Waypost"));
    let said = heard.iter().find_map(|line| Some(line.strip_prefix("Look at them: ")?.to_owned()));
    assert_eq!(said.expect("it tells when all is played").trim_end_matches('/'), url);
    let waiting = shop.page(url, "/waiting");
    assert!(waiting.contains("deploy to staging?"), "{waiting}");
    // Its workers are still there: an answer has consequences.
    let runs = shop.curl(url, "/v1/runs?needs=person");
    let asked = |run: &&serde_json::Value| run["title"] == "deploy to staging";
    let id =
        runs["runs"].as_array().unwrap().iter().find(asked).unwrap()["run_id"].as_str().unwrap().to_owned();
    shop.asks(url, &["run", "resume", &id, "--resolve", "go ahead?=yes"]).expect(0, &[]);
    eventually("the run ends", SOON, || shop.curl(url, &format!("/v1/runs/{id}"))["outcome"] == "succeeded");
    demo.signal("TERM");
    assert_eq!(demo.end(), Some(0));
}

//! `waypost demo` plays its twelve runs, and says so.

use std::time::{Duration, Instant};

use crate::support::Shop;

#[test]
fn the_demo_plays_twelve_runs_as_announced() {
    let shop = Shop::new();
    let began = Instant::now();
    let ran = shop.run(&["demo", "--once"]);
    ran.expect(0, &["stale claim", "Run lost: failed", "Retry 2/2"]);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let rows = ran.out.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(rows.count(), 12, "{}", ran.out);
    for words in
        ["WORKER_LOST", "EXPIRED", "MAX_RETRIES", "3 tries", "Every run ended as announced", "Try next"]
    {
        assert!(ran.out.contains(words), "no {words:?} in {}", ran.out);
    }
    assert!(!shop.database().exists(), "the demo has a database of its own");
}

//! `waypost demo` plays its runs, and says so.

use crate::support::Shop;

#[test]
fn the_demo_plays_its_runs_as_announced() {
    let shop = Shop::new();
    let ran = shop.run(&["demo", "--once"]);
    ran.expect(0, &["stale claim", "Run lost: failed", "Retry 2/2", "rolling update"]);
    let rows = ran.out.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    assert_eq!(rows.count(), 13, "{}", ran.out);
    for words in [
        "WORKER_LOST",
        "EXPIRED",
        "MAX_RETRIES",
        "3 tries",
        "power_off",
        "HA as it was",
        "Every run ended as announced",
        "Try next",
    ] {
        assert!(ran.out.contains(words), "no {words:?} in {}", ran.out);
    }
    assert!(!shop.database().exists(), "the demo has a database of its own");
}

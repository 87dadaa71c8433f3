//! Many runs at once.

use super::browser::Browser;
use crate::support::Shop;

fn shops() -> [Shop; 2] {
    [Shop::new(), Shop::on_postgres()]
}

/// So many, without a process for each.
fn queue_many(url: &str, count: usize, queue: &str) {
    let runs: Vec<serde_json::Value> = (0..count)
        .map(|number| serde_json::json!({ "lifecycle": "deploy", "queue": queue, "title": format!("build {number}") }))
        .collect();
    let body = serde_json::json!({ "runs": runs }).to_string();
    let words = ["-sf", "--noproxy", "*", "-H", "content-type: application/json", "-d", &body];
    let asked =
        std::process::Command::new("curl").args(words).arg(format!("{url}/v1/runs/batch")).output().unwrap();
    assert!(asked.status.success(), "{asked:?}");
}

#[test]
fn five_hundred_runs_are_filtered_and_cancelled_with_one_typed_count() {
    for shop in shops() {
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        queue_many(&url, 500, "builds");
        queue_many(&url, 2, "others");
        let browser = Browser::open(&url);
        browser.goto("/runs");
        browser.keys("/");
        browser.keys("queue:builds status:queued\u{e007}");
        browser.sees(".strip figcaption", "500 runs");
        browser.click("button[name=all]");
        browser.sees("h1", "cancel 500 runs?");
        browser.fill("input[name=reason]", "too many");
        browser.fill("input[name=typed]", "500");
        browser.click("button.primary");
        browser.sees("#progress .badge", "completed");
        browser.sees("#progress .figure", "Done500");
        browser.goto("/runs?filter=queue%3Abuilds%20status%3Aqueued");
        browser.sees(".empty", "No run matches");
        browser.goto("/runs?filter=queue%3Aothers%20status%3Aqueued");
        assert_eq!(browser.count("tr[data-row]"), 2, "nobody meant these");
        browser.is_clean();
        shop.verifies();
    }
}

#[test]
fn rows_are_selected_and_cancelled_by_keys() {
    for shop in shops() {
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        queue_many(&url, 3, "builds");
        let browser = Browser::open(&url);
        browser.goto("/runs");
        browser.keys("jxjx");
        assert_eq!(browser.count("tr[data-row] input:checked"), 2);
        browser.keys("c");
        browser.sees("h1", "cancel 2 runs?");
        browser.fill("input[name=typed]", "2");
        browser.click("button.primary");
        browser.sees("#progress .badge", "completed");
        browser.goto("/runs?filter=status%3Aqueued");
        assert_eq!(browser.count("tr[data-row]"), 1);
        browser.is_clean();
    }
}

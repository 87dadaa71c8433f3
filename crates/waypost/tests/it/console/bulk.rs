//! Bulk changes against the simulated shop, by people with a browser.

use serde_json::json;

use super::browser::Browser;
use crate::agents::ask;
use crate::cli_bulk::{simulated, with_files};
use crate::support::Shop;

// proves R1, R8 and R10
#[test]
fn a_bulk_change_is_previewed_queued_retried_and_partly_rolled_back() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let simulated = simulated();
        let faults = |method: &str, body| ask(&simulated.url(), method, "/admin/faults", &[], body);
        let broken = json!({ "faults": { "permanent": { "only": ["3"] } } });
        assert_eq!(faults("PATCH", Some(&broken)).status, 200);
        let file = with_files(&shop, "1,10\n2,20.00\n3,30\n4,0\n");
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let id = shop.ok(&["run", "start", &file, "--input", &format!("shop={}", simulated.url())]);
        let _worker = shop.spawn(&["worker", "--playbooks", "rules"]);
        let browser = Browser::open(&url);
        browser.goto(&format!("/runs/{}", id.trim()));
        browser.sees(".preview .figure", "Would change3");
        browser.sees(".preview .figure", "Unchanged1");
        browser.sees(".targets td", "11");
        assert!(simulated.state().changes().is_empty(), "a preview changes nothing");
        browser.click("#actions details.act summary");
        browser.click("#actions details.act[open] button");
        browser.sees("#head .badge", "PARTIAL");
        browser.sees(".targets .why", "3");
        // What failed is tried again once the shop takes it.
        assert_eq!(faults("DELETE", None).status, 200);
        browser.click(".targets input[value='3']");
        browser.click("#tab details.act summary");
        browser.fill("#chosen input[name=reason]", "the shop is well");
        browser.click("#chosen button[value=retry]");
        browser.sees("#head .badge", "APPLIED");
        assert_eq!(simulated.state().changes().len(), 3);
        browser.click(".targets input[value='1']");
        browser.click(".targets input[value='2']");
        browser.click("#tab details.act summary");
        browser.click("#chosen button[value=rollback]");
        browser.sees(".operation h3", "rollback of 2 chosen");
        browser.sees(".operation .figure", "Rolled back2");
        browser.sees(".chips .badge", "ROLLED_BACK");
        assert_eq!(simulated.state().changes().len(), 5);
        assert_eq!(shop.show(id.trim())["items"]["target"], json!({ "APPLIED": 1, "ROLLED_BACK": 2 }));
        browser.goto("/dlq");
        browser.sees(".empty", "No target failed for good.");
        browser.is_clean();
        shop.verifies();
    }
}

// proves R11
#[test]
fn dead_letters_and_mismatches_are_found_and_dealt_with() {
    [Shop::new(), Shop::on_postgres()].iter().for_each(dead_letters_and_mismatches);
}

fn dead_letters_and_mismatches(shop: &Shop) {
    let simulated = simulated();
    let file = with_files(shop, "1,10\n2,20\n998,5\n999,5\n");
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let id = shop.ok(&["run", "start", &file, "--input", &format!("shop={}", simulated.url())]);
    shop.run(&["run", "queue", id.trim(), "--wait"]);
    let _worker = shop.spawn(&["worker", "--playbooks", "rules"]);
    let browser = Browser::without_scripts(&url);
    browser.goto("/dlq");
    browser.sees("tr[data-row]", "NOT_FOUND");
    browser.sees(".advice", "discard them, or correct the source");
    browser.click("tr[data-row] input[value=NOT_FOUND]");
    browser.click("#rows > .actions details.act summary");
    browser.fill("#chosen input[name=reason]", "not sold any more");
    browser.click("#chosen button[value=discard]");
    browser.sees(".empty", "No target failed for good.");
    simulated.state().drift_now(&[2]);
    browser.goto(&format!("/runs/{}", id.trim()));
    browser.click("#tab .actions details.act:last-of-type summary");
    browser.click("#tab .actions details.act[open] button");
    browser.goto(&format!("/reconciliations?run_id={}", id.trim()));
    browser.sees(".card .figure", "Mismatches1");
    browser.sees(".card td", "23.54");
    browser.is_clean();
}

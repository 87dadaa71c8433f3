//! Who may do what, in a browser.

use super::browser::Browser;
use super::runs::shops;
use crate::support::Shop;

fn token(shop: &Shop, name: &str, role: &str) -> String {
    let made = shop.json(&["token", "create", name, "--role", role]);
    made["token"].as_str().unwrap().to_owned()
}

#[test]
fn a_viewer_signs_in_and_looks_and_an_operator_acts() {
    shops().iter().for_each(a_viewer_looks_and_an_operator_acts);
}

fn a_viewer_looks_and_an_operator_acts(shop: &Shop) {
    let id = shop.queue(&[], "echo one");
    let (viewer, operator) = (token(shop, "vera", "viewer"), token(shop, "otto", "operator"));
    let (_server, url) = shop.serve(&["serve", "--no-worker", "--require-tokens"]);
    let browser = Browser::open(&url);
    browser.goto(&format!("/runs/{id}"));
    browser.sees("h1", "Sign in");
    browser.fill("#token", "wp_nonsense");
    browser.click("button.primary");
    browser.sees(".alert", "no token of this server");
    browser.fill("#token", &viewer);
    browser.click("button.primary");
    browser.sees("#head .badge", "queued");
    browser.sees("footer", "vera");
    assert_eq!(browser.count("#actions button, #actions summary"), 0);
    browser.goto(&format!("/runs/{id}/replay"));
    browser.sees("#head .badge", "queued");
    assert_eq!(browser.count("main form[method=post]"), 0, "no form that would be refused");
    browser.goto("/runs/none-such");
    browser.sees("nav a", "Waiting for you");
    assert_eq!(browser.count("main a[href='/sign-in']"), 0, "who is signed in is not asked to");
    browser.goto("/nothing-here");
    browser.sees("h1", "There is no such thing");
    browser.goto("/");
    let cookie = browser.execute("return document.cookie");
    assert_eq!(cookie, "", "no script reads it");
    browser.click("form[action='/sign-out'] button");
    browser.sees("h1", "Sign in");
    browser.fill("#token", &operator);
    browser.click("button.primary");
    browser.goto(&format!("/runs/{id}"));
    browser.click("#actions details.act summary");
    browser.click("#actions details.act[open] button");
    browser.sees("#head .badge", "cancelled");
    assert!(shop.ok(&["run", "events", &id]).contains("otto"));
    // What was not there, and the token that was none, are all that the browser complains of.
    browser.is_clean_but_for(&["403", "404"]);
}

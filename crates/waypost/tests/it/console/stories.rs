//! Ways through the console that are not everybody's: by keys alone, without scripts, without a stream, in a hidden tab, with a lifecycle of one's own.

use serde_json::json;

use super::browser::Browser;
use super::runs::{SHIP, shops};
use crate::support::Shop;

const TAB: &str = "\u{e004}";
const ENTER: &str = "\u{e007}";

/// Presses Tab until what has the focus fits, as somebody without a mouse would.
#[track_caller]
fn tab_to(browser: &Browser, css: &str) {
    let fits = format!("return document.activeElement?.matches({})", json!(css));
    for _ in 0..60 {
        browser.keys(TAB);
        if browser.execute(&fits) == true {
            let outline = "const style = getComputedStyle(document.activeElement); return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0";
            assert_eq!(browser.execute(outline), true, "the focus on {css} is seen");
            return;
        }
    }
    panic!("Tab does not lead to {css}");
}

#[test]
fn a_run_is_found_and_cancelled_by_keys_alone() {
    shops().iter().for_each(found_and_cancelled_by_keys);
}

fn found_and_cancelled_by_keys(shop: &Shop) {
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    shop.queue(&[], "echo one");
    let id = shop.queue(&[], "echo two");
    let browser = Browser::open(&url);
    browser.goto("/runs");
    tab_to(&browser, ".skip");
    let place = browser.execute("return document.activeElement.getBoundingClientRect().left");
    assert!(place.as_f64().unwrap() >= 0.0, "the link past the navigation is seen: {place}");
    browser.keys(ENTER);
    assert_eq!(browser.execute("return document.activeElement.id"), "main");
    browser.keys("jjk");
    browser.keys(ENTER);
    browser.sees("#head .ids", &id);
    tab_to(&browser, "#actions details.act summary");
    browser.keys(ENTER);
    tab_to(&browser, "#actions details.act[open] input[name=reason]");
    browser.keys(&format!("by keys{ENTER}"));
    browser.sees("#head .badge", "cancelled");
    assert_eq!(shop.show(&id)["error_msg"], "by keys");
    browser.is_clean();
}

#[test]
fn a_lifecycle_of_ones_own_has_its_own_buttons() {
    for shop in shops() {
        std::fs::write(shop.path("release.toml"), include_str!("../../../src/init/release.toml")).unwrap();
        shop.ok(&["lifecycle", "add", "release.toml"]);
        let started = shop.ok(&["run", "start", "--lifecycle", "release", "--", "echo", "rolled out"]);
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let browser = Browser::open(&url);
        browser.goto(&format!("/runs/{}", started.trim()));
        browser.sees("#head .badge", "draft");
        browser.sees(".state.current text", "draft");
        // What is not open now says why to whoever presses it, by a finger or by keys.
        tab_to(&browser, "#actions .why-not summary");
        browser.sees("#actions .why-not", "approve");
        browser.keys(ENTER);
        browser.sees("#actions .why-not[open] p", "It is for runs that are review; this one is draft.");
        let height =
            "return document.querySelector('#actions .why-not[open] p').getBoundingClientRect().height";
        assert!(browser.execute(height).as_f64().unwrap() > 0.0, "it is seen");
        let act = |command: &str, reason: &str| {
            browser.click(&format!("#actions details.act:has(form[action$='/{command}']) summary"));
            browser.fill("details.act[open] input[name=reason]", reason);
            browser.click("details.act[open] button.primary");
        };
        act("submit", "ready");
        browser.sees("#head .badge", "review");
        act("approve", "looked at it");
        browser.sees("#head .badge", "approved");
        browser.sees(".state.current text", "approved");
        browser.goto("/lifecycles");
        browser.sees("h2, h3, summary", "release");
        browser.is_clean();
        shop.verifies();
    }
}

#[test]
fn a_question_is_answered_without_scripts() {
    shops().iter().for_each(answered_without_scripts);
}

fn answered_without_scripts(shop: &Shop) {
    std::fs::create_dir(shop.path("playbooks")).unwrap();
    std::fs::write(shop.path("playbooks/ship.toml"), SHIP).unwrap();
    let (_server, url) = shop.serve(&["serve", "--playbooks", "playbooks"]);
    let id = shop.asks(&url, &["run", "start", "ship", "--input", "version=3"]).out.trim().to_owned();
    crate::support::eventually("it asks", crate::support::SOON, || shop.show(&id)["phase"] == "parked");
    let browser = Browser::without_scripts(&url);
    browser.goto("/waiting");
    browser.click(".decide input[value=approve]");
    browser.click(".decide button.primary");
    browser.sees("#head .ids", &id);
    crate::support::eventually("it ends", crate::support::SOON, || shop.show(&id)["status"] == "completed");
    browser.is_clean();
}

/// Streams that fail, and that say whether they are open.
const NO_STREAM: &str = "window.streams = [];
    window.EventSource = class extends EventTarget {
      constructor() { super(); this.isOpen = true; window.streams.push(this); setTimeout(() => this.dispatchEvent(new Event(window.name === 'ready' ? 'ready' : 'error'))); }
      close() { this.isOpen = false; }
    };
    Object.defineProperty(document, 'hidden', { get: () => window.isHidden === true });
    window.hide = (isHidden) => { window.isHidden = isHidden; document.dispatchEvent(new Event('visibilitychange')); };";

/// A page is asked for every 5 seconds where there is no stream, and every 30 if nobody answers.
#[test]
fn pages_ask_as_often_as_they_say() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let page = shop.page(&url, "/");
    let module = page.split("src=\"/assets/console-").nth(1).unwrap().split('"').next().unwrap();
    let module = shop.page(&url, &format!("/assets/console-{module}"));
    for said in
        ["const POLL_MS = 5_000;", "const POLL_SLOWLY_MS = 30_000;", "failures > 2 ? POLL_SLOWLY_MS : pace"]
    {
        assert!(module.contains(said), "{said}");
    }
}

#[test]
fn without_a_stream_pages_ask_again() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let id = shop.queue(&[], "echo one");
    let browser = Browser::open(&url);
    browser.inject(NO_STREAM);
    browser.goto(&format!("/runs/{id}"));
    browser.sees("#head .badge", "queued");
    shop.ok(&["run", "cancel", &id]);
    browser.sees("#head .badge", "cancelled");
    assert_eq!(browser.execute("return window.streams.length > 0"), true);
    browser.is_clean();
}

#[test]
fn a_hidden_tab_asks_for_nothing_and_catches_up() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let id = shop.queue(&[], "echo one");
    let browser = Browser::open(&url);
    browser.inject(NO_STREAM);
    browser.goto(&format!("/runs/{id}"));
    browser.sees("#head .badge", "queued");
    let open = "return window.streams.filter((it) => it.isOpen).length";
    assert_eq!(browser.execute(open), 1, "one stream for a page");
    browser.execute("window.hide(true); window.asked = 0; const ask = window.fetch; window.fetch = (...all) => { window.asked += 1; return ask(...all); }");
    assert_eq!(browser.execute(open), 0);
    shop.ok(&["run", "cancel", &id]);
    assert_eq!(browser.execute("return window.asked"), 0);
    browser.execute("window.hide(false)");
    browser.sees("#head .badge", "cancelled");
    assert_eq!(browser.execute(open), 0, "nothing more will happen");
    browser.is_clean();
}

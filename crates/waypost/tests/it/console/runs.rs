//! What people do to runs.

use super::browser::Browser;
use crate::support::Shop;

pub const SHIP: &str = r#"
name = "ship"
lifecycle = "job"
description = "Builds and ships a version."
[inputs.version]
type = "string"
required = true
[[step]]
name = "build"
exec = ["sh", "-c", "printf '\\033[31mred\\033[0m alert\\n'; echo built"]
[[step]]
name = "approval"
ask = "ship {{ inputs.version }}?"
choices = ["approve", "reject"]
[[step]]
name = "deliver"
exec = ["sh", "-c", "echo delivered"]
"#;

pub fn shops() -> [Shop; 2] {
    [Shop::new(), Shop::on_postgres()]
}

// proves D13 and A9
#[test]
fn a_deploy_is_watched_live_from_queued_to_its_end() {
    for shop in shops() {
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let id = shop.queue(&[], "echo one; echo two");
        let browser = Browser::open(&url);
        browser.goto(&format!("/runs/{id}"));
        browser.sees("#head .badge", "queued");
        browser.sees("#head .waits", "no live worker");
        // A page that was loaded again would not have this.
        browser.execute("window.wasHere = true");
        let _worker = shop.spawn(&["worker", "--allow-commands"]);
        browser.sees("#head .badge", "success");
        browser.sees("#log .text", "two");
        browser.sees(".state.current text", "success");
        assert_eq!(browser.execute("return window.wasHere"), true);
        let live = browser.execute("return document.body.dataset.live ?? null");
        assert!(live.is_null(), "nothing more will happen: {live}");
        browser.click(".tabs a[href*=timeline]");
        browser.sees(".gantt th", "run");
        browser.is_clean();
    }
}

#[test]
fn the_list_is_filtered_by_its_bar_and_shows_new_runs_by_itself() {
    for shop in shops() {
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        shop.queue(&[], "echo one");
        shop.queue(&["--queue", "builds"], "echo two");
        let browser = Browser::open(&url);
        browser.goto("/runs");
        assert_eq!(browser.count("tr[data-row]"), 2);
        browser.keys("/");
        browser.keys("queue:builds\u{e007}");
        browser.sees("h1", "Runs");
        browser.sees("tr[data-row]", "echo two");
        assert_eq!(browser.path(), "/runs?filter=queue%3Abuilds");
        assert_eq!(browser.count("tr[data-row]"), 1);
        shop.queue(&["--queue", "builds"], "echo three");
        browser.sees("tr[data-row]", "echo three");
        browser.is_clean();
    }
}

/// Streams as a proxy may leave them: one that never says a word, one that breaks off as often as it is asked for.
const BAD_STREAMS: [&str; 2] = [
    "window.EventSource = class extends EventTarget { close() {} }",
    "window.EventSource = class extends EventTarget {
        constructor() { super(); this.again = setInterval(() => this.dispatchEvent(new Event('error')), 1000); }
        close() { clearInterval(this.again); }
    }",
];

// proves A9
#[test]
fn a_page_whose_stream_fails_is_fetched_and_one_of_a_dead_server_says_so() {
    let shop = Shop::new();
    let (server, url) = shop.serve(&["serve", "--no-worker"]);
    for (place, stream) in BAD_STREAMS.into_iter().enumerate() {
        let browser = Browser::open(&url);
        browser.inject(stream);
        browser.goto("/runs");
        shop.queue(&[], &format!("echo number {place}"));
        browser.sees("tr[data-row]", &format!("echo number {place}"));
        browser.is_clean();
    }
    let browser = Browser::open(&url);
    browser.goto("/runs?filter=stauts%3Ax");
    assert_eq!(browser.count("body[data-live]"), 0, "a filter that is wrong stays wrong");
    browser.goto("/runs");
    browser.sees("tr[data-row]", "echo number 1");
    drop(server);
    browser.sees("body.stale", "echo number 1");
}

/// Of what opens over a page one is open, and it closes by Esc, wherever the focus is, and by a click elsewhere.
#[test]
fn what_opens_over_a_page_closes_again() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    shop.queue(&["--queue", "builds"], "echo one");
    let browser = Browser::open(&url);
    browser.goto("/queues");
    let open = "details.act[open]";
    browser.click("details.act:nth-of-type(1) > summary");
    browser.click("details.act:nth-of-type(2) > summary");
    assert_eq!(browser.count(open), 1);
    browser.click("details.act[open] input[name=reason]");
    browser.keys("\u{e00c}");
    assert_eq!(browser.count(open), 0);
    browser.click("details.act:nth-of-type(2) > summary");
    browser.click("h1");
    assert_eq!(browser.count(open), 0);
    browser.width(400);
    browser.goto("/");
    let top = "return document.querySelector('.menu > summary').getBoundingClientRect().top";
    let before = browser.execute(top);
    browser.click(".menu > summary");
    assert_eq!(browser.execute(top), before, "the menu's button stays where it is");
    assert_eq!(browser.overhang(), 0);
    browser.is_clean();
}

#[test]
fn a_run_is_cancelled_with_a_reason() {
    for shop in shops() {
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let id = shop.queue(&[], "echo one");
        let browser = Browser::open(&url);
        browser.goto("/runs");
        browser.click("tr[data-row] a.title");
        browser.click("details.act summary");
        browser.fill("details.act[open] input[name=reason]", "enough for today");
        browser.click("details.act[open] button");
        browser.sees("#head .badge", "cancelled");
        browser.sees("#head .alert", "enough for today");
        assert_eq!(shop.show(&id)["status"], "cancelled");
        browser.is_clean();
        shop.verifies();
    }
}

// proves U4
#[test]
fn a_run_is_started_by_a_form_and_its_question_answered() {
    for shop in shops() {
        std::fs::create_dir(shop.path("playbooks")).unwrap();
        std::fs::write(shop.path("playbooks/ship.toml"), SHIP).unwrap();
        let (_server, url) = shop.serve(&["serve", "--playbooks", "playbooks"]);
        let browser = Browser::open(&url);
        browser.goto("/playbooks");
        browser.click("tr[data-row] a.title");
        browser.fill("input[name='input.version']", "1.2");
        browser.click("button[value=preview]");
        browser.sees("section[role=status]", "deliver");
        browser.click("form.card button.primary");
        browser.sees("#head .waits", "ship 1.2?");
        browser.sees("#log .c1", "red");
        // The preview is there for who goes back, and started again it says what it has started.
        let run = browser.path();
        browser.execute("history.back()");
        browser.sees("section[role=status]", "deliver");
        browser.click("form.card button.primary");
        browser.sees(".waits", "This form was sent before");
        browser.goto(&run);
        browser.goto("/waiting");
        browser.sees(".decide legend", "ship 1.2?");
        browser.click(".decide input[value=approve]");
        browser.click(".decide button.primary");
        browser.sees("#head .badge", "completed");
        browser.sees("#log .text", "delivered");
        browser.click("a[href*=replay]");
        browser.click("input[value=from]");
        browser.click("form.card button.primary");
        browser.sees("#head .facts", "Repeats");
        browser.is_clean();
    }
}

#[test]
fn everything_works_without_scripts() {
    shops().iter().for_each(works_without_scripts);
}

fn works_without_scripts(shop: &Shop) {
    std::fs::create_dir(shop.path("playbooks")).unwrap();
    std::fs::write(shop.path("playbooks/ship.toml"), SHIP).unwrap();
    let (_server, url) = shop.serve(&["serve", "--playbooks", "playbooks"]);
    let id = shop.queue(&["--queue", "nobodys"], "echo one");
    let browser = Browser::without_scripts(&url);
    // Who could be typing is not interrupted; a page that is only looked at loads itself again.
    let refresh = "<meta http-equiv=\"refresh\"";
    assert!(
        !shop.page(&url, &format!("/runs/{id}")).contains(refresh) && shop.page(&url, "/").contains(refresh)
    );
    browser.goto("/runs?filter=queue%3Anobodys");
    browser.click("tr[data-row] a.title");
    browser.click("details.act summary");
    browser.fill("details.act[open] input[name=reason]", "no scripts");
    browser.click("details.act[open] button");
    browser.sees("#head .badge", "cancelled");
    assert_eq!(shop.show(&id)["error_msg"], "no scripts");
    browser.goto("/playbooks/ship");
    browser.fill("input[name='input.version']", "2.0");
    browser.click("form.card button.primary");
    browser.sees("h1", "ship");
    browser.is_clean();
}

//! How pages look: on a phone, in the dark, with keys alone.

use super::browser::Browser;
use crate::support::Shop;

const PAGES: [&str; 15] = [
    "/",
    "/runs",
    "/waiting",
    "/playbooks",
    "/schedules",
    "/queues",
    "/workers",
    "/dlq",
    "/agents",
    "/reconciliations",
    "/destinations",
    "/alerts",
    "/proposals",
    "/lifecycles",
    "/audit",
];

#[test]
fn no_page_is_wider_than_a_phone_or_fails_on_a_large_screen() {
    no_page_is_wider_than_its_window(Shop::new());
}

#[test]
fn no_page_is_wider_than_a_phone_or_fails_on_a_large_screen_on_postgres() {
    no_page_is_wider_than_its_window(Shop::on_postgres());
}

fn no_page_is_wider_than_its_window(shop: Shop) {
    let shop = shop.with(
        "waypost.toml",
        "[[schedule]]\nname = \"nightly-backup-of-everything\"\ncron = \"30 2 * * *\"\nexec = [\"true\"]\n",
    );
    let (_server, url) = shop.serve(&["serve", "--allow-commands"]);
    let long = "a-title-that-does-not-end-".repeat(8);
    let id = shop.queue(&["--queue", "builds"], &format!("echo {long}; exit 1"));
    shop.ok(&["run", "start", "--wait", "--", "sh", "-c", "echo fine"]);
    let browser = Browser::open(&url);
    let tabs =
        ["log", "timeline", "items", "events", "data", "lease"].map(|tab| format!("/runs/{id}?tab={tab}"));
    let more = [
        "/schedules/nightly-backup-of-everything".to_owned(),
        format!("/runs/{id}/replay"),
        "/sign-in".to_owned(),
    ];
    let paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).chain(tabs).chain(more).collect();
    for scheme in ["light", "dark"] {
        browser.prefer(scheme);
        for width in [400, 1280, 2560] {
            browser.width(width);
            for path in &paths {
                browser.goto(path);
                assert_eq!(browser.overhang(), 0, "{path} at {width}");
            }
        }
        let back = "return getComputedStyle(document.body).backgroundColor";
        let back = browser.execute(back);
        let is_dark = back.as_str().unwrap().contains("(15, 20, 27)");
        assert_eq!(is_dark, scheme == "dark", "{back}");
    }
    // Chosen by hand, it stays so.
    browser.click("button[name=theme][value=light]");
    browser.sees("h1", "");
    let theme = "return document.documentElement.dataset.theme";
    assert_eq!(browser.execute(theme), "light");
    browser.is_clean();
}

#[test]
fn keys_lead_everywhere() {
    let shop = Shop::new();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    shop.queue(&[], "echo one");
    let id = shop.queue(&[], "echo two");
    let browser = Browser::open(&url);
    browser.goto("/");
    browser.keys("?");
    browser.sees("#help[open] h2", "Keys");
    browser.keys("\u{e00c}");
    browser.keys("gr");
    browser.sees("h1", "Runs");
    browser.keys("j");
    browser.keys("\u{e007}");
    browser.sees("#head .ids", &id);
    browser.keys("gl");
    browser.sees("h1", "Lifecycles");
    assert_eq!(browser.path(), "/lifecycles");
    browser.is_clean();
}

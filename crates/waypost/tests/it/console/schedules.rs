//! Schedules, by people with a browser.

use super::browser::Browser;
use crate::support::{SOON, Shop, eventually};

const NIGHTLY: &str = "[[schedule]]\nname = \"nightly\"\ncron = \"30 2 * * *\"\ntimezone = \"Europe/Kyiv\"\nmax_attempts = 1\n\
exec = [\"sh\", \"-c\", \"test -e well\"]\n";

// proves C10
#[test]
fn a_schedule_is_paused_triggered_and_a_failed_plan_executed_again() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let shop = shop.with("waypost.toml", NIGHTLY);
        let (_server, url) = shop.serve(&["serve", "--allow-commands"]);
        let browser = Browser::open(&url);
        browser.goto("/schedules");
        browser.sees("tr[data-row] .why", "at 02:30 every day (Europe/Kyiv)");
        browser.click("tr[data-row] a.title");
        browser.sees(".card li", "02:30:00");
        browser.click("#actions details.act summary");
        browser.fill("#actions details.act[open] input[name=reason]", "the shop is closed");
        browser.click("#actions details.act[open] button");
        browser.sees("#head .warn", "the shop is closed");
        browser.click("#actions details.act summary");
        browser.click("#actions details.act[open] button");
        browser.sees("#actions summary", "pause");
        browser.click("#actions details.act:nth-of-type(2) summary");
        browser.click("#actions details.act[open] button");
        browser.sees("#rows .badge", "FAILED");
        browser.sees("#calendar title", "1 failed");
        std::fs::write(shop.path("well"), "").unwrap();
        browser.click("#rows form.inline button");
        browser.sees("#rows .badge", "SUCCESS");
        eventually("the schedule counts it", SOON, || {
            shop.curl(&url, "/v1/schedules/nightly")["succeeded"] == 1
        });
        browser.is_clean();
    }
}

//! What people decide with a browser: proposals of agents, and hosts that block a run.

use serde_json::json;

use super::browser::Browser;
use super::runs::SHIP;
use crate::proposals::{PLAYBOOK, proposed, serve};
use crate::support::{SOON, Shop, eventually};

// proves A8
#[test]
fn a_proposal_is_approved_and_another_rejected() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (_server, url) = serve(&shop, PLAYBOOK);
        let (_, ids) =
            proposed(&url, &json!([{ "title": "tune the violin" }, { "title": "sell the violin" }]));
        let browser = Browser::open(&url);
        browser.goto("/waiting");
        browser.sees(".proposal h2", "tune the violin");
        browser.goto("/proposals");
        browser.click(&format!("input[value={}]", ids[0]));
        browser.click("#rows > .actions details.act summary");
        browser.fill("#chosen input[name=note]", "high time");
        browser.click("#chosen button[value=approve]");
        browser.sees("h1", "Proposals");
        eventually("the first is applied", SOON, || {
            shop.curl(&url, &format!("/v1/proposals/{}", ids[0]))["status"] == "applied"
        });
        browser.goto("/proposals");
        browser.click(".proposal details.act:last-of-type summary");
        browser.fill(".proposal details.act[open] input[name=note]", "never");
        browser.click(".proposal details.act[open] button");
        browser.sees(".empty", "There are none.");
        assert_eq!(shop.curl(&url, &format!("/v1/proposals/{}", ids[1]))["status"], "rejected");
        assert_eq!(std::fs::read_to_string(shop.path("applied.txt")).unwrap().lines().count(), 1);
        browser.is_clean();
    }
}

const BLOCKED: &str = r#"
name = "update"
lifecycle = "job"
[[step]]
name = "scan"
exec = ["sh", "-c", '''
  [ -e scanned ] || printf '{"outcome":"pause","reason":"3 hosts are blocked","blockers":{"esx1":{"choices":["power_off","skip"],"blockers":[{"vm_name":"vm-7","reason":"usb","remediation":"power it off"}]},"esx2":{"choices":["power_off","skip"]},"esx3":{"choices":["power_off","skip"]}}}' > $WAYPOST_OUTPUT; touch scanned''']
[[step]]
name = "update"
exec = ["sh", "-c", "echo updated"]
"#;

// proves J8
#[test]
fn blocked_hosts_are_decided_one_by_one_and_then_together() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        std::fs::create_dir(shop.path("playbooks")).unwrap();
        std::fs::write(shop.path("playbooks/update.toml"), BLOCKED).unwrap();
        let (_server, url) = shop.serve(&["serve", "--playbooks", "playbooks"]);
        let id = shop.asks(&url, &["run", "start", "update"]).out.trim().to_owned();
        let browser = Browser::open(&url);
        browser.goto("/waiting");
        browser.sees(".decide legend", "esx1");
        browser.sees(".decide .blockers li", "vm-7 (usb): power it off");
        let legend = browser.execute("return document.querySelector('.decide legend').textContent");
        assert_eq!(legend, "esx1", "what blocks a host stands below its name");
        browser.sees(".decide label", "power off");
        browser.click("input[name='decision.esx1'][value=power_off]");
        browser.click(".decide button.primary");
        browser.sees("#head .badge", "paused");
        // One is decided, and is not asked about again; the others are decided together.
        browser.sees(".decide legend", "esx2");
        assert_eq!(browser.count("input[name='decision.esx1']"), 0);
        browser.click("select[name=others] option[value=skip]");
        browser.fill(".decide input[name=reason]", "only one today");
        browser.click(".decide button.primary");
        browser.sees("#head .badge", "completed");
        browser.sees("#log .text", "updated");
        assert_eq!(shop.show(&id)["details"]["maintenance_blocker_resolutions"]["esx3"]["decision"], "skip");
        browser.is_clean();
    }
}

/// As when somebody comes back to the tab; its title is what is taken over last.
fn renewed(browser: &Browser) {
    browser.execute("document.title = 'old'; document.dispatchEvent(new Event('visibilitychange'))");
    browser.sees("title", "Waypost");
}

#[test]
fn what_somebody_fills_in_stays_until_it_is_sent() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        std::fs::create_dir(shop.path("playbooks")).unwrap();
        std::fs::write(shop.path("playbooks/ship.toml"), SHIP).unwrap();
        let (_server, url) = shop.serve(&["serve", "--playbooks", "playbooks"]);
        let start = |version: &str| {
            let id = shop.asks(&url, &["run", "start", "ship", "--input", &format!("version={version}")]);
            let id = id.out.trim().to_owned();
            eventually("it asks", SOON, || shop.show(&id)["phase"] == "parked");
            id
        };
        let id = start("1");
        let browser = Browser::open(&url);
        for path in ["/waiting".to_owned(), format!("/runs/{id}")] {
            browser.goto(&path);
            browser.click(".decide input[value=reject]");
            browser.fill(".decide input[name=reason]", "not today");
            browser.click("h1");
            renewed(&browser);
            let left = "const form = document.querySelector('.decide');
                return [form.querySelector('input[value=reject]').checked, form.querySelector('input[name=reason]').value]";
            assert_eq!(browser.execute(left), json!([true, "not today"]), "{path}");
        }
        // Without it the page goes on being renewed.
        browser.goto("/waiting");
        start("2");
        browser.sees(".decide legend", "ship 2?");
        // What was opened stays open, and nothing else is, though there is something new above it.
        browser.goto(&format!("/runs/{id}?tab=events"));
        let opened =
            "const it = document.querySelector('#tab details'); it.open = true; return it.closest('tr').id";
        let opened = browser.execute(opened);
        shop.ok(&["run", "cancel", &id, "--reason", "enough"]);
        browser.sees("#head .badge", "cancelled");
        let open =
            "return [...document.querySelectorAll('#tab details[open]')].map((it) => it.closest('tr').id)";
        assert_eq!(browser.execute(open), json!([opened]));
        browser.is_clean();
    }
}

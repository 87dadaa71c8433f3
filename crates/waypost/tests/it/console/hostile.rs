//! What others wrote, in a browser: nothing of it is executed, and no page gets wider by it.

use std::fs;

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_kernel::breaker::Settings;
use waypost_kernel::destination::Limit;
use waypost_store::{
    Admit, AgentChange, AgentWrite, CommandWrite, Database, NewItem, NewRun, OfferedPlaybook, SilenceAlert,
    Who,
};

use super::browser::Browser;
use crate::support::Shop;

fn texts() -> Vec<String> {
    waypost_testkit::HOSTILE.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

const PAGES: [&str; 13] = [
    "/",
    "/runs",
    "/queues",
    "/audit",
    "/waiting",
    "/schedules",
    "/playbooks",
    "/proposals",
    "/agents",
    "/alerts",
    "/dlq",
    "/destinations",
    "/workers",
];

/// Of each in a text.
const TOGETHER: usize = 4;

/// Runs whose every text is some of these.
async fn write(shop: &Shop, texts: &[String]) -> Vec<String> {
    let store = shop.store().await;
    let mut ids = Vec::new();
    for text in texts.chunks(TOGETHER).map(|some| some.join(" ")) {
        let item = NewItem { name: text.clone(), ..NewItem::new("step", "s1") };
        let new = NewRun {
            lifecycle: "job".into(),
            title: Some(text.clone()),
            concurrency_key: Some(text.clone()),
            input: json!({ "text": text }),
            metadata: json!({ "note": text }).as_object().cloned().unwrap(),
            items: vec![item],
            by: "somebody".into(),
            ..NewRun::default()
        };
        // What no run may have, as a title that is too long, is refused in words.
        let Ok(Ok(started)) = store.enqueue(vec![new]).await.map(|mut all| all.remove(0)) else { continue };
        let run_id = started.run.id().to_owned();
        let cancel = CommandWrite {
            tenant: "default".into(),
            run_id: run_id.clone(),
            name: "cancel".into(),
            by: "somebody".into(),
            reason: Some(text.chars().take(1_000).collect()),
            ..CommandWrite::default()
        };
        let _ = store.command(cancel).await;
        ids.push(run_id);
    }
    beside_runs(&*store, texts).await;
    ids
}

/// The same in what else people write: playbooks, agents, proposals, alerts and destinations.
async fn beside_runs(store: &dyn Database, texts: &[String]) {
    for (at, text) in texts.chunks(TOGETHER).map(|some| some.join(" ")).enumerate().take(MOST_BESIDE) {
        let offered = OfferedPlaybook {
            tenant: "default".into(),
            name: text.clone(),
            hash: String::new(),
            file: text.clone(),
            text: String::new(),
            by: text.clone(),
        };
        let _ = store.offer_playbooks(vec![offered]).await;
        let agent =
            AgentWrite { slug: format!("agent-{at}"), playbook: Some(text.clone()), ..AgentWrite::default() };
        let _ = store.change_agent(AgentChange::Put(agent), "somebody".into()).await;
        let proposal = NewRun {
            lifecycle: "proposal".into(),
            title: Some(text.clone()),
            input: json!({ "proposal": { "text": text, &*text: [text] } }),
            metadata: json!({ "agent_slug": text, "target": text, "base_revision": text, "step": text, "run_id": text })
                .as_object()
                .cloned()
                .unwrap(),
            by: "somebody".into(),
            ..NewRun::default()
        };
        let _ = store.enqueue(vec![proposal]).await;
        let because = Who { reason: Some(text.chars().take(1_000).collect()), ..Who::from("somebody") };
        let silence = SilenceAlert {
            name: "429-burst".into(),
            subject: text.clone(),
            lasts: Some(Span::from_seconds(3_600)),
        };
        let _ = store.silence_alert(silence, because).await;
        let limit = Limit { capacity_milli: 40_000, rate_milli_per_s: 2_000, breaker: Settings::default() };
        let admit =
            Admit { tenant: "default".into(), destination: text.clone(), limit, calls: 1, cost_milli: 1_000 };
        let _ = store.admit(admit).await;
    }
}

/// So many of each: a page of them is full.
const MOST_BESIDE: usize = 30;

#[test]
fn nothing_that_others_wrote_is_executed() {
    nothing_is_executed(&Shop::new(), &texts());
}

/// Of the texts every fourth: pages are the same, and stores keep all of them by tests of their own.
#[test]
fn nothing_that_others_wrote_is_executed_on_postgres() {
    nothing_is_executed(&Shop::on_postgres(), &texts().into_iter().step_by(4).collect::<Vec<_>>());
}

fn nothing_is_executed(shop: &Shop, texts: &[String]) {
    let ids = tokio::runtime::Runtime::new().unwrap().block_on(write(shop, texts));
    assert!(texts.len() > 50 && ids.len() > texts.len() / TOGETHER - 10, "{} of {}", ids.len(), texts.len());
    fs::write(shop.path("texts"), texts.join("\n")).unwrap();
    let script = "cat texts; sed 's/^/\\o033[31m/' texts >&2; exit 3";
    let printed = shop.run(&["run", "start", "--wait", "-o", "json", "--", "sh", "-c", script]);
    assert_eq!(printed.code, Some(3), "{}", printed.err);
    let printed: Value = serde_json::from_str(&printed.out).unwrap();
    let printed = printed["run_id"].as_str().unwrap();
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let browser = Browser::open(&url);
    browser.width(400);
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.extend(["log", "timeline", "events"].map(|tab| format!("/runs/{printed}?tab={tab}")));
    // Each run by one of its tabs: they show the same texts in different places.
    let tabs = ["log", "timeline", "items", "events", "data", "lease"].iter().cycle();
    paths.extend(ids.iter().zip(tabs).map(|(id, tab)| format!("/runs/{id}?tab={tab}")));
    // What opens is open.
    let look = "const root = document.documentElement;
        document.querySelectorAll('details').forEach((it) => { it.open = true; });
        return [window.pwned ?? null, root.scrollWidth - root.clientWidth, document.querySelectorAll('main').length]";
    for path in paths {
        browser.goto(&path);
        assert_eq!(browser.execute(look), json!([null, 0, 1]), "{path}");
        let proposals = browser.count(".proposal");
        assert!(
            !["/proposals", "/waiting"].contains(&&*path) || proposals > 10,
            "{path}: {proposals} proposals"
        );
    }
    browser.is_clean();
}

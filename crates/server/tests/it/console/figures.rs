//! What the console counts and says of how it goes: on the overview, of queues and keys, of workers, of schedules and of what people did.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_kernel::alert::{Condition, Status};
use waypost_store::{
    AlertRow, CommandWrite, DEFAULT_TENANT, FinishWrite, HOUSEKEEPING, Held, ItemWrite, ItemsWrite, NewItem,
    NewRun, Setting, parse_time,
};

use super::Person;
use crate::roles::{ask, token, with_tokens};
use crate::support::{On, Server, open};

const BY: &str = "tests";

async fn advance(server: &Server, seconds: i64) {
    server.store.advance_clock(Span::from_seconds(seconds)).await.unwrap();
}

/// A figure of the overview.
#[track_caller]
fn figure<'p>(page: &'p str, label: &str) -> &'p str {
    let (_, after) =
        page.split_once(&format!("<dt>{label}</dt>")).unwrap_or_else(|| panic!("{label}: {page}"));
    let value = after.split("</dd>").next().unwrap();
    value
        .split('>')
        .find(|part| !part.starts_with('<') && !part.is_empty())
        .unwrap()
        .split('<')
        .next()
        .unwrap()
}

async fn ended(server: &Server, new: NewRun, status: &str) {
    let new = NewRun { lifecycle: "deploy".into(), by: BY.into(), ..new };
    let run = server.store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run;
    let claimed = server.store.claim_run(run.id().to_owned(), BY.into()).await.unwrap();
    let finish = FinishWrite {
        run_id: run.id().to_owned(),
        token: Some(claimed.token),
        by: BY.into(),
        status: status.into(),
        ..FinishWrite::default()
    };
    server.store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
}

// proves D12, U11
#[tokio::test]
async fn the_overview_counts_what_there_is() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let person = Person::at(&server, "");
        let page = person.get("/").await.text;
        assert!(page.contains("Start your first run") && page.contains("waypost run start -- echo hi"));
        assert_eq!((figure(&page, "Wait for you"), figure(&page, "Orphaned")), ("0", "0"), "{on:?}");

        ended(&server, NewRun::default(), "success").await;
        ended(&server, NewRun::default(), "failed").await;
        for _ in 0..3 {
            ended(&server, NewRun { queue: HOUSEKEEPING.into(), ..NewRun::default() }, "failed").await;
        }
        let proposal =
            json!({ "lifecycle": "proposal", "title": "a proposal", "metadata": { "agent_slug": "violin" } });
        server.post("/v1/runs", proposal).await.expect(201);
        for source in ["agent", "mail"] {
            let entry = json!({ "lifecycle": "inbox", "title": source, "metadata": { "source": source } });
            server.post("/v1/runs", entry).await.expect(201);
        }
        server.start_with(json!({ "queue": "lost" })).await;
        let claim = json!({ "worker": "gone", "queues": ["lost"], "start": true });
        server.post("/v1/claims", claim).await.expect(200);
        advance(&server, 600).await;

        let page = person.get("/").await.text;
        assert!(!page.contains("Start your first run"));
        assert_eq!(figure(&page, "Succeeded in 24 h"), "50 %", "{on:?}: housekeeping is left out");
        assert_eq!(figure(&page, "Orphaned"), "1", "{on:?}");
        assert_eq!(figure(&page, "Wait for you"), "2", "{on:?}: an entry is decided with its proposal");
        let waiting = person.get("/waiting").await.text;
        assert_eq!(waiting.matches("<section class=\"card ").count(), 2, "{on:?}: {waiting}");
        assert!(page.contains(">Mean, 7 days<") && page.contains(">24 hours<"), "{on:?}");
        assert!(!page.contains("Alerts that fire"));

        for (name, fires) in [("dlq-backlog", true), ("dlq-critical", true), ("429-burst", false)] {
            let status = if fires { Status::Firing } else { Status::Pending };
            let condition = Condition { status, ..Condition::default() };
            let row = AlertRow {
                tenant: DEFAULT_TENANT.into(),
                name: name.into(),
                condition,
                summary: format!("{name} is so"),
                ..AlertRow::default()
            };
            assert!(server.store.put_alert(row).await.unwrap());
        }
        let page = person.get("/").await.text;
        let (_, alerts) = page.split_once("<h2><a href=\"/alerts\">Alerts that fire</a></h2>").unwrap();
        let alerts = alerts.split("</section>").next().unwrap();
        let told: Vec<&str> = alerts.split("<p class=\"").skip(1).collect();
        assert_eq!(told.len(), 2, "{on:?}: {alerts}");
        assert!(told[0].starts_with("alert\"") && told[0].contains("dlq-critical is so"), "{alerts}");
        assert!(told[1].starts_with("waits\"") && told[1].contains("dlq-backlog is so"), "{alerts}");
    }
}

#[tokio::test]
async fn a_page_of_entries_that_are_decided_elsewhere_says_so() {
    let server = Server::new().await;
    let entry = json!({ "lifecycle": "inbox", "metadata": { "source": "agent" } });
    server.post("/v1/runs", entry).await.expect(201);
    let person = Person::at(&server, "");
    let page = person.get("/waiting").await.text;
    assert!(page.contains("decided with their proposals") && !page.contains("Nothing waits"), "{page}");
    assert_eq!(figure(&person.get("/").await.text, "Wait for you"), "0");
}

/// A bulk change that was applied in part for 9 minutes, and whose rest was retried an hour later, within a moment.
async fn retried(server: &Server) -> String {
    let store = &*server.store;
    let items = ["a", "b"].map(|key| NewItem { name: key.into(), ..NewItem::new("target", key) });
    let new = NewRun {
        lifecycle: "rule".into(),
        status: Some("QUEUED".into()),
        items: items.to_vec(),
        by: BY.into(),
        ..NewRun::default()
    };
    let id = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned();
    for (moves, end) in
        [(&[("a", "APPLIED"), ("b", "FAILED")][..], "PARTIAL"), (&[("b", "APPLIED")], "APPLIED")]
    {
        let claimed = store.claim_run(id.clone(), BY.into()).await.unwrap();
        if end == "PARTIAL" {
            advance(server, 540).await;
        }
        let write = |(key, status): &(&str, &str)| ItemWrite {
            kind: "target".into(),
            key: (*key).into(),
            status: (*status).into(),
            ..ItemWrite::default()
        };
        let held = Held { run_id: id.clone(), token: claimed.token };
        let items = moves.iter().map(write).collect();
        store.put_items(ItemsWrite { held, by: BY.into(), items }).await.unwrap();
        let finish = FinishWrite {
            run_id: id.clone(),
            token: Some(claimed.token),
            by: BY.into(),
            status: end.into(),
            ..FinishWrite::default()
        };
        store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
        if end == "PARTIAL" {
            advance(server, 3_600).await;
            let retry = CommandWrite {
                tenant: DEFAULT_TENANT.into(),
                run_id: id.clone(),
                name: "retry".into(),
                by: BY.into(),
                ..CommandWrite::default()
            };
            store.command(retry).await.unwrap();
        }
    }
    id
}

#[tokio::test]
async fn a_run_took_what_all_its_attempts_took() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let id = retried(&server).await;
        let person = Person::at(&server, "");
        for path in [format!("/runs/{id}"), "/runs".to_owned(), "/".to_owned()] {
            let page = person.get(&path).await.text;
            assert!(page.contains("<span class=\"num\">9m"), "{on:?} {path}: {page}");
        }
        let minutes = |ms: &Value| ms.as_i64().unwrap() / 60_000;
        let activity = server.get("/v1/activity?window_ms=86400000").await.expect(200);
        assert_eq!(minutes(&activity["duration"]["p50_ms"]), 9, "{on:?}: {activity}");
        let stats = server.get("/v1/stats").await.expect(200);
        assert_eq!(minutes(&stats["ended"][0]["mean_duration_ms"]), 9, "{on:?}: {stats}");
    }
}

// proves U2, U14
#[tokio::test]
async fn keys_are_listed_with_who_holds_them() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let (store, lives) = open(on).await;
        let options = waypost_server::Options { needs_tokens: true, ..waypost_server::Options::default() };
        let server = Server::with(store, lives, options).await;
        let mut held = Vec::new();
        for (tenant, key) in [("a", "k1"), ("a", "k1"), ("a", "k1"), ("a", "k2"), ("b", "k1"), ("b", "free")]
        {
            let new = NewRun {
                lifecycle: "deploy".into(),
                tenant: tenant.into(),
                concurrency_key: Some(key.into()),
                by: BY.into(),
                ..NewRun::default()
            };
            held.push(server.store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned());
        }
        for at in [0, 3, 4] {
            server.store.claim_run(held[at].clone(), BY.into()).await.unwrap();
        }
        let who = waypost_store::Who { tenant: "b".into(), ..BY.into() };
        server.store.configure(Setting::KeyLimit("rare".into(), Some(4)), who).await.unwrap();
        let [a, b, all] = [
            token(&*server.store, "viewer", "a").await,
            token(&*server.store, "viewer", "b").await,
            token(&*server.store, "viewer", waypost_store::EVERY_TENANT).await,
        ];
        let keys = async |token: &str, query: &str| {
            let path = format!("/v1/keys{query}");
            ask(&server, token, "GET", &path, &Value::Null).await.expect(200)
        };
        let of_a = keys(&a, "").await;
        let one = json!({ "tenant": "a", "key": "k1", "at_most": 1, "held": 1, "held_by": [held[0]], "waiting": 2 });
        let two = json!({ "tenant": "a", "key": "k2", "at_most": 1, "held": 1, "held_by": [held[3]], "waiting": 0 });
        assert_eq!(of_a, json!({ "keys": [one, two], "next_cursor": null }), "{on:?}");
        let first = keys(&a, "?limit=1").await;
        assert_eq!(first["keys"], json!([one]), "{on:?}");
        let next = first["next_cursor"].as_str().unwrap().replace('/', "%2F");
        assert_eq!(
            keys(&a, &format!("?limit=1&cursor={next}")).await,
            json!({ "keys": [two], "next_cursor": null })
        );
        let told = |found: &Value| -> Vec<String> {
            let row = |it: &Value| {
                format!("{} {} {}/{}", it["tenant"], it["key"], it["held"], it["at_most"]).replace('"', "")
            };
            let mut told: Vec<String> = found["keys"].as_array().unwrap().iter().map(row).collect();
            told.sort();
            told
        };
        assert_eq!(told(&keys(&b, "").await), ["b k1 1/1", "b rare 0/4"], "{on:?}");
        assert_eq!(told(&keys(&all, "").await), ["a k1 1/1", "a k2 1/1", "b k1 1/1", "b rare 0/4"], "{on:?}");
        let page = Person::at(&server, &a).get("/queues").await.text;
        assert!(page.contains("<b>k1</b>") && page.contains("<b>k2</b>") && !page.contains("rare"), "{page}");
        assert_eq!(
            page.matches(&format!("href=\"/runs/{}\"", held[0])).count(),
            2,
            "of its queue and its key: {page}"
        );
        assert!(!page.contains(&held[4]), "{on:?}: another tenant's");
    }
}

#[tokio::test]
async fn a_keys_limit_is_set_on_its_page() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    server.start_with(json!({ "concurrency_key": "a/b" })).await;
    server.claim("w1").await;
    let done = person.post("/keys/a%2Fb/limit", &[("at_most", "3"), ("reason", "more of them")]).await;
    assert_eq!((done.status, done.header("location")), (303, "/queues"), "{}", done.text);
    assert!(person.get("/queues").await.text.contains("<span class=\"num\">1 of 3</span>"));
    assert_eq!(person.post("/keys/a%2Fb/limit", &[("at_most", "many")]).await.status, 422);
}

/// Their names are everybody's admin's to know; that they are there is not.
// proves U14
#[tokio::test]
async fn a_tenant_is_told_of_workers_that_take_its_runs_and_not_who_they_are() {
    let server = with_tokens().await;
    let [own, every] = ["default", "*"].map(|tenant| token(&*server.store, "admin", tenant));
    let (own, every) = (own.await, every.await);
    let person = Person::at(&server, &own);
    assert!(person.get("/workers").await.text.contains("No worker is up"));
    let beat = json!({ "name": "the-servers-own", "queues": ["default"], "slots": 3 });
    ask(&server, &every, "POST", "/v1/workers", &beat).await.expect(204);
    let told = ask(&server, &own, "GET", "/v1/workers", &json!({})).await.expect(200);
    assert_eq!((&told["workers"], &told["shared"]), (&json!([]), &json!({ "workers": 1, "slots": 3 })));
    let all = ask(&server, &every, "GET", "/v1/workers", &json!({})).await.expect(200);
    assert_eq!((all["workers"].as_array().unwrap().len(), &all["shared"]), (1, &json!(null)));
    let page = person.get("/workers").await.text;
    assert!(page.contains("<b>1 worker</b> of all tenants with <b>3 slots</b> takes"), "{page}");
    assert!(!page.contains("No worker is up") && !page.contains("the-servers-own"), "{page}");
    assert!(person.get("/").await.text.contains(">0 %</a>"), "slots in use");
    ask(&server, &own, "POST", "/v1/runs", &json!({ "lifecycle": "deploy" })).await.expect(201);
    ask(&server, &every, "POST", "/v1/claims", &json!({ "worker": "the-servers-own" })).await.expect(200);
    assert!(person.get("/").await.text.contains(">33 %</a>"), "one of three");
}

#[tokio::test]
async fn links_to_the_runs_of_a_queue_lead_to_them_whatever_its_name() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    for (at, name) in ["my builds", "the \"fast\" one", "a\\b c"].into_iter().enumerate() {
        server.start_with(json!({ "queue": name, "title": format!("run number {at}") })).await;
    }
    for page in ["/queues", "/", "/runs"] {
        let text = person.get(page).await.text;
        let links = text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let links: BTreeSet<&str> = links.filter(|link| link.starts_with("/runs?filter=queue")).collect();
        assert_eq!(links.len(), 3, "{page}: {links:?}");
        for link in links {
            let runs = person.get(link).await.text;
            assert_eq!(runs.matches("run number ").count(), 2, "one run and its box: {page} {link}");
        }
    }
}

#[tokio::test]
async fn a_queue_without_runs_is_listed_if_somebody_takes_from_it_and_any_is_paused_by_its_name() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    let beat = json!({ "name": "w", "queues": ["nightly"], "slots": 1 });
    server.post("/v1/workers", beat).await.expect(204);
    let page = person.get("/queues").await.text;
    assert!(page.contains(">nightly</a>") && page.contains("Another queue…"), "{page}");
    let limited = [("queue", "not yet there"), ("command", "limit"), ("at_most", "2")];
    assert_eq!(person.post("/queues", &limited).await.status, 303);
    assert_eq!(person.post("/queues", &[("queue", "not yet there"), ("command", "pause")]).await.status, 303);
    let page = person.get("/queues").await.text;
    assert!(
        page.contains(">not yet there</a>") && page.contains("0 of 2") && page.contains("paused by"),
        "{page}"
    );
    assert_eq!(person.post("/queues", &[("command", "pause")]).await.status, 422);
    assert_eq!(person.post("/queues", &[("queue", "x"), ("command", "burn")]).await.status, 404);
}

/// Every run is in some column, and headings stand over what they are about.
#[tokio::test]
async fn the_overview_has_a_place_for_every_run() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    for _ in 0..3 {
        server.start().await;
    }
    let id = server.start().await["run_id"].as_str().unwrap().to_owned();
    server.post(&format!("/v1/runs/{id}/cancel"), json!({})).await.expect(200);
    let page = person.get("/").await.text;
    let table = page
        .split("aria-label=\"Lifecycles\"")
        .nth(1)
        .and_then(|rest| rest.split("</table>").next())
        .unwrap();
    for words in [
        "<th class=\"num\" scope=\"col\">Wait</th>",
        ">Cancelled</th>",
        "<td class=\"num\">3</td>",
        "<td class=\"num\">1</td>",
    ] {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(!table.contains("Drafts"), "no run is one: {table}");
    assert!(page.contains("<th class=\"num\" scope=\"col\">24 hours</th>"), "{page}");
    assert!(
        page.contains("<td class=\"num\"><span class=\"none\">–</span></td>"),
        "it was never worked: {page}"
    );
    let runs = person.get("/runs?filter=status%3Acancelled").await.text;
    assert!(runs.contains(">1 run<") && !runs.contains("1 runs"), "{runs}");
}

#[tokio::test]
async fn the_keys_are_those_of_pages_that_one_may_see() {
    let server = with_tokens().await;
    let help = async |role: &str| {
        let person = Person::at(&server, &token(&*server.store, role, "default").await);
        let page = person.get("/").await.text;
        page.split("id=\"help\"").nth(1).unwrap().to_owned()
    };
    assert!(help("admin").await.contains(">Audit<") && !help("operator").await.contains(">Audit<"));
}

// proves U2
#[tokio::test]
async fn who_was_silent_for_long_is_gone() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let report = async |name: &str| {
            let answer =
                server.post("/v1/workers", json!({ "name": name, "queues": ["default"], "slots": 2 })).await;
            answer.expect(204);
        };
        report("a-silent").await;
        advance(&server, 120).await;
        report("z-lively").await;
        let page = Person::at(&server, "").get("/workers").await.text;
        assert_eq!(page.matches("> gone<").count(), 1, "{on:?}: {page}");
        let (first, second) = (page.find("z-lively").unwrap(), page.find("a-silent").unwrap());
        assert!(
            first < second && page[second..].contains("> gone<"),
            "{on:?}: who was seen last stands first"
        );
    }
}

#[tokio::test]
async fn what_people_did_is_told_from_the_newest_on() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        for number in 0..130 {
            let pause = json!({ "reason": format!("pause {number}.") });
            let command = if number % 2 == 0 { "pause" } else { "resume" };
            server.post(&format!("/v1/queues/builds/{command}"), pause).await.expect(200);
        }
        let id = server.start().await["run_id"].as_str().unwrap().to_owned();
        server.post(&format!("/v1/runs/{id}/cancel"), json!({ "reason": "the last" })).await.expect(200);
        let person = Person::at(&server, "");
        let page = person.get("/audit").await.text;
        assert!(
            page.contains("the last") && page.contains("pause 129.") && !page.contains("pause 0."),
            "{on:?}"
        );
        assert!(page.find("the last") < page.find("pause 129."), "{on:?}");
        assert!(
            page.contains(&format!("<a href=\"/runs/{id}\">"))
                && page.contains("<a href=\"/queues\">builds</a>")
        );
        let (_, older) = page.split_once("href=\"/audit?before=").unwrap();
        let older = person.get(&format!("/audit?before={}", older.split('"').next().unwrap())).await.text;
        assert!(
            older.contains("pause 0.") && !older.contains("pause 129.") && !older.contains("/audit?before=")
        );
        let oldest = server.get("/v1/audit?limit=1").await.expect(200);
        assert_eq!(oldest["audit"][0]["reason"], "pause 0.", "{on:?}: as it was");
    }
}

// proves C10 and C2
#[tokio::test]
async fn a_schedules_page_says_how_it_goes_and_when_clocks_change() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        // Two days before clocks go forward there.
        let eve = parse_time("2031-03-28T12:00:00Z").unwrap() - server.store.now().await.unwrap();
        server.store.advance_clock(eve).await.unwrap();
        let definition = json!({ "cron": "30 2 * * *", "timezone": "Europe/Berlin", "exec": ["true"] });
        let put = server.put("/v1/schedules/nightly", json!({ "definition": definition })).await;
        assert!(put.status < 300, "{}", put.text);
        let person = Person::at(&server, "");
        let page = person.get("/schedules/nightly").await.text;
        for words in [
            "Lag, since",
            "Failed for good",
            "Under way without a renewed lease",
            "Plans that were not executed",
        ] {
            assert!(page.contains(words), "{on:?} {words}: {page}");
        }
        let (_, fires) = page.split_once("Next fires").unwrap();
        let fires = fires.split("</section>").next().unwrap();
        assert!(fires.contains("2031-03-30") && fires.contains("class=\"warn\""), "{on:?}: {fires}");
        let list = person.get("/schedules").await.text;
        assert!(list.contains(">Lag<") && list.contains(">Skipped<") && list.contains(">Failed for good<"));
    }
}

//! What people decide on pages: proposals, and what blocks runs.

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_store::iso;

use super::Person;
use crate::support::{On, Server};

const FOUL: &str = "<script>alert(1)</script>\u{202e}";

/// A proposal, as an agent's run would make it.
async fn proposed(server: &Server, title: &str) -> String {
    let body = json!({
        "lifecycle": "proposal", "title": title, "input": { "proposal": { "text": FOUL } },
        "metadata": { "agent_slug": "violin", "target": "notes", "kind": "note" },
    });
    let run = server.post("/v1/runs", body).await.expect(201);
    run["run_id"].as_str().unwrap().to_owned()
}

async fn status(server: &Server, id: &str) -> Value {
    server.get(&format!("/v1/proposals/{id}")).await.expect(200)["status"].clone()
}

#[tokio::test]
async fn proposals_are_decided_one_by_one_and_together() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let person = Person::at(&server, "");
        assert!(person.get("/proposals").await.text.contains("There are none."));
        let mut ids = Vec::new();
        for title in ["one <b>", "two", "three", "four"] {
            ids.push(proposed(&server, title).await);
        }
        for path in ["/proposals", "/waiting"] {
            let page = person.get(path).await.text;
            for words in ["one &lt;b&gt;", "violin", "notes", "expires", ">approve<", ">reject<"] {
                assert!(page.contains(words), "{on:?} {path} {words}: {page}");
            }
            assert!(!page.contains("<script>alert") && !page.contains('\u{202e}'));
        }
        // Its own page says what is proposed, and what it waits for.
        let page = person.get(&format!("/runs/{}", ids[0])).await.text;
        for words in
            ["waits for a decision", "What is proposed", "&lt;script&gt;", "tab=data#tab\" aria-current"]
        {
            assert!(page.contains(words), "{on:?} {words}: {page}");
        }
        let done =
            person.post("/proposals", &[("act", "approve"), ("proposal", &ids[0]), ("note", "good")]).await;
        assert_eq!((done.status, done.header("location")), (303, "/proposals"));
        assert_eq!(status(&server, &ids[0]).await, "approved");
        let both =
            [("act", "reject"), ("proposal", &*ids[1]), ("proposal", &*ids[2]), ("note", "we have them")];
        assert_eq!(person.post("/proposals", &both).await.status, 303);
        assert_eq!(status(&server, &ids[2]).await, "rejected");
        // Decided by somebody else meanwhile, or without a note: told, and the others are decided.
        let late = [("act", "reject"), ("proposal", &*ids[0]), ("proposal", &*ids[3]), ("note", "no")];
        let told = person.post("/proposals", &late).await;
        assert!(
            told.status == 200 && told.text.contains("These were not decided") && told.text.contains(&ids[0])
        );
        assert_eq!(status(&server, &ids[3]).await, "rejected");
        assert_eq!(person.post("/proposals", &[("act", "approve")]).await.status, 422);
        assert_eq!(person.post("/proposals", &[("act", "burn"), ("proposal", &ids[0])]).await.status, 404);
        assert!(person.get("/proposals?status=rejected").await.text.contains("we have them"));
        assert!(person.get("/proposals?status=all").await.text.contains("one &lt;b&gt;"));
        assert_eq!(person.get("/proposals?status=nonsense").await.status, 400);
    }
}

/// Rejected alone it would leave its proposal open, to be approved and applied.
// proves A8
#[tokio::test]
async fn an_entry_of_the_inbox_is_decided_with_its_proposal() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let person = Person::at(&server, "");
        let made = async |metadata: Value| {
            let body = json!({ "lifecycle": "inbox", "metadata": metadata });
            server.post("/v1/runs", body).await.expect(201)["run_id"].as_str().unwrap().to_owned()
        };
        let entry = made(json!({ "source": "agent" })).await;
        let path = format!("/runs/{entry}");
        let page = person.get(&path).await.text;
        assert!(
            page.contains("It is decided with its proposal") && !page.contains("/reject\""),
            "{on:?}: {page}"
        );
        let refused = person.post(&format!("{path}/reject"), &[("reason", "no")]).await;
        assert!(
            refused.status == 409 && refused.text.contains("decided with its proposal"),
            "{}",
            refused.text
        );
        server.post(&format!("/v1{path}/reject"), json!({})).await.refused(409, "INVALID_TRANSITION");
        server.post(&format!("/v1{path}/reject"), json!({ "force": true })).await.expect(200);
        // What came in otherwise is decided by itself.
        let other = made(json!({ "source": "mail" })).await;
        assert_eq!(person.post(&format!("/runs/{other}/process"), &[]).await.status, 303);
    }
}

/// What a run leaves behind, and what others know of it.
#[tokio::test]
async fn artifacts_are_shown_and_lead_nowhere_by_themselves() {
    let server = Server::new().await;
    let artifacts = json!([{ "type": "image", "url": "javascript:alert(1)//<b>", "digest": "sha256:1" }]);
    let run = server.start_with(json!({ "details": { "artifacts": artifacts } })).await;
    let path = format!("/runs/{}", run["run_id"].as_str().unwrap());
    let person = Person::at(&server, "");
    let page = person.get(&format!("{path}?tab=artifacts")).await.text;
    assert!(page.contains("javascript:alert(1)//&lt;b&gt;") && page.contains("sha256:1"), "{page}");
    assert!(!page.contains("href=\"javascript"), "{page}");
    let plain = server.start().await;
    let page = person.get(&format!("/runs/{}", plain["run_id"].as_str().unwrap())).await.text;
    assert!(!page.contains("tab=artifacts") && !page.contains("tab=status") && !page.contains("tab=report"));
    // Where no object store is, the document is not there, and the page says so.
    let agent = server.start_with(json!({ "lifecycle": "agent" })).await;
    let path = format!("/runs/{}?tab=status", agent["run_id"].as_str().unwrap());
    let page = person.get(&path).await;
    assert!(page.status == 200 && page.text.contains("no object store"), "{} {}", page.status, page.text);
}

// proves C10
#[tokio::test]
async fn a_schedule_says_when_in_words_and_shows_its_past() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let definition =
            json!({ "cron": "30 2 * * *", "timezone": "Europe/Kyiv", "exec": ["true"], "description": FOUL });
        server.put("/v1/schedules/nightly", json!({ "definition": definition })).await.expect(200);
        let person = Person::at(&server, "");
        let now = server.store.now().await.unwrap();
        let ago = |days: i64| iso(now - Span::from_seconds(days * 86_400));
        let (from, to) = (ago(9), ago(1));
        let range = [("from", from.as_str()), ("to", to.as_str()), ("reason", "again <b>")];
        let filled = person.post("/schedules/nightly/backfill", &range).await;
        assert_eq!(filled.status, 303, "{on:?} {}", filled.text);
        let page = person.get("/schedules/nightly").await.text;
        for words in [
            "at 02:30 every day (Europe/Kyiv)",
            "02:30:00 +0",
            ": 1 fires, 0 succeeded, 0 failed",
            "The calendar as a table",
            "has not begun",
        ] {
            assert!(page.contains(words), "{on:?} {words}: {page}");
        }
        assert!(!page.contains("<script>alert"));
        assert_eq!(person.post("/schedules/nightly/explode", &[]).await.status, 404);
        assert_eq!(
            person.post("/schedules/nightly/backfill", &[("from", "soon"), ("to", "later")]).await.status,
            422
        );
        assert_eq!(person.get("/schedules/nobody").await.status, 404);
        assert_eq!(person.post("/schedules/nightly/pause", &[("reason", "closed <i>")]).await.status, 303);
        assert!(person.get("/schedules").await.text.contains("closed &lt;i&gt;"));
    }
}

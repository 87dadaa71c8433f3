//! Bulk changes on pages: targets, dead letters, reconciliations, destinations and alerts.

use serde_json::{Value, json};

use super::Person;
use crate::roles::{token, with_tokens};
use crate::support::{Answer, On, Server, send, with_body};

const FOUL: &str = "\"'><script>alert(1)</script>\u{202e}";

/// As who has this token, or nobody in particular.
async fn ask(server: &Server, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    let request = with_body(server.request(method, path), body);
    send(if token.is_empty() { request } else { request.bearer_auth(token) }).await
}

/// A preview of so many targets, of which the last is past a guardrail.
async fn preview(server: &Server, admin: &str, count: usize) -> String {
    let body = json!({ "lifecycle": "rule", "title": "prices up" });
    let run = ask(server, admin, "POST", "/v1/runs", &body).await.expect(201);
    let id = run["run_id"].as_str().unwrap().to_owned();
    let mut targets: Vec<Value> = (0..count)
        .map(|at| json!({ "key": format!("t{at:03}"), "name": format!("Tea {at} {FOUL}"), "before": "10.00", "after": { "unit_amount": 12.5 }, "destination": "shop" }))
        .collect();
    targets[count - 1]["violation_code"] = json!("GUARDRAIL");
    targets[count - 1]["violation_msg"] = json!(format!("floor: too low {FOUL}"));
    let totals = json!({
        "before": 100, "after": 125, "difference": 25, "rises": count - 1, "falls": 0, "no_value": 1, "largest_fall": null,
        "largest_rise": { "target": "t000", "percent": 25 }, "stopped_by": { "floor": 1 },
    });
    let batch = json!({ "at": 0, "rows": count + 3, "targets": targets, "unchanged": 2, "totals": totals, "last": true });
    ask(server, admin, "POST", &format!("/v1/runs/{id}/targets"), &batch).await.expect(200);
    id
}

/// Takes it, and ends it with every third target failed.
async fn applied(server: &Server, admin: &str, id: &str) {
    let claim = json!({ "worker": "w1" });
    let claim = ask(server, admin, "POST", &format!("/v1/runs/{id}/claim"), &claim).await.expect(200);
    let lease = claim["lease"]["token"].clone();
    let work = format!("/v1/runs/{id}/targets/work");
    let taken =
        ask(server, admin, "POST", &work, &json!({ "lease_token": lease, "take": 1_000 })).await.expect(200);
    let result = |(at, item): (usize, &Value)| {
        let (key, try_no) = (&item["key"], &item["try_no"]);
        match at % 3 {
            2 => {
                json!({ "key": key, "try_no": try_no, "tried": "error", "error_code": "TIMEOUT", "error_msg": format!("too late {FOUL}") })
            }
            _ => json!({ "key": key, "try_no": try_no, "tried": "applied" }),
        }
    };
    let results: Vec<Value> = taken["taken"].as_array().unwrap().iter().enumerate().map(result).collect();
    let body = json!({ "lease_token": lease, "results": results, "end": "when-done" });
    ask(server, admin, "POST", &work, &body).await.expect(200);
}

/// What a page shows of a run's targets.
fn part<'p>(page: &'p str, id: &str) -> &'p str {
    page.split(&format!("id=\"{id}\"")).nth(1).expect(id)
}

// proves R8, R10 and R11
#[tokio::test]
async fn a_bulk_change_is_previewed_queued_retried_and_rolled_back() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let id = preview(&server, "", 10).await;
        let (person, path) = (Person::at(&server, ""), format!("/runs/{id}"));
        let page = person.get(&path).await.text;
        let totals = part(&page, "totals");
        for words in [
            "Would change</dt><dd>9<",
            "Unchanged</dt><dd>2<",
            "guardrails</dt><dd>1<",
            "100",
            "125",
            "+25",
            "t000",
        ] {
            assert!(totals.contains(words), "{on:?} {words}: {totals}");
        }
        assert!(page.contains("floor: too low") && page.contains("+2.5") && page.contains("12.5"), "{page}");
        assert!(person.get("/waiting").await.text.contains("Would change"), "it waits for a person");
        assert_eq!(person.post(&format!("{path}/queue"), &[]).await.status, 303);
        applied(&server, "", &id).await;
        let page = person.get(&path).await.text;
        for words in
            ["Retry all 4 failed", "Roll back all 6 applied", "Reconcile now", "value=\"t000\"", "1 of 4"]
        {
            assert!(page.contains(words), "{on:?} {words}: {page}");
        }
        assert!(!page.contains(FOUL) && !page.contains("<script>alert"), "{page}");
        let class = person.get(&format!("{path}?tab=items&class=TIMEOUT")).await.text;
        assert!(
            class.contains("Retry all TIMEOUT")
                && class.contains("t002")
                && !class.contains("value=\"t000\"")
        );
        let none =
            person.get(&format!("{path}?tab=items&class=NOT_FOUND&status=FAILED&kind=target")).await.text;
        assert!(none.contains("There are none."));
        // Some are given up, one is tried again, the others stay.
        let act = format!("{path}/targets");
        assert_eq!(
            person.post(&act, &[("act", "discard"), ("target", "t009")]).await.status,
            422,
            "without a reason"
        );
        let discard = [("act", "discard"), ("target", "t009"), ("reason", "a guardrail's")];
        assert_eq!(person.post(&act, &discard).await.status, 303);
        assert_eq!(person.post(&act, &[("act", "retry")]).await.status, 422);
        assert_eq!(person.post(&act, &[("act", "explode"), ("target", "t002")]).await.status, 404);
        let retried = person.post(&act, &[("act", "retry"), ("target", "t002"), ("reason", "again")]).await;
        assert_eq!(
            (retried.status, retried.header("location")),
            (303, format!("{path}?tab=items#tab").as_str())
        );
        applied(&server, "", &id).await;
        let run = server.get(&format!("/v1/runs/{id}")).await.expect(200);
        assert_eq!(run["items"]["target"], json!({ "APPLIED": 7, "FAILED": 3 }), "{on:?}");
        assert_eq!(
            person.post(&act, &[("act", "rollback"), ("target", "t000"), ("target", "t001")]).await.status,
            303
        );
        let page = person.get(&path).await.text;
        assert!(
            page.contains("rollback of 2 chosen") && page.contains("Another operation is under way."),
            "{page}"
        );
        let refused = person.post(&format!("{path}/rollback"), &[]).await;
        assert_eq!(refused.status, 409, "{}", refused.text);
    }
}

#[tokio::test]
async fn dead_letters_are_retried_and_given_up_by_class() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let person = Person::at(&server, "");
        assert!(person.get("/dlq").await.text.contains("No target failed for good."));
        let id = preview(&server, "", 10).await;
        person.post(&format!("/runs/{id}/queue"), &[]).await;
        applied(&server, "", &id).await;
        let page = person.get("/dlq").await.text;
        for words in
            ["TIMEOUT", "GUARDRAIL", "raise [apply] timeout", "Targets</dt><dd>4<", "discard 3 targets", &*id]
        {
            assert!(page.contains(words), "{on:?} {words}: {page}");
        }
        assert!(!page.contains("<script>alert") && !page.contains('\u{202e}'));
        assert!(person.get(&format!("/dlq?run_id={id}")).await.text.contains("only of"));
        assert_eq!(person.get("/dlq?run_id=run-none").await.status, 200);
        assert_eq!(person.post("/dlq", &[("act", "retry")]).await.status, 422, "nothing chosen");
        assert_eq!(person.post("/dlq", &[("act", "burn"), ("class", "TIMEOUT")]).await.status, 404);
        assert_eq!(
            person.post("/dlq", &[("act", "discard"), ("class", "TIMEOUT")]).await.status,
            422,
            "no reason"
        );
        let discard = [("act", "discard"), ("class", "GUARDRAIL"), ("reason", "as it should be")];
        assert_eq!(person.post("/dlq", &discard).await.status, 303);
        let retry = [("act", "retry"), ("class", "TIMEOUT"), ("class", "NOT_FOUND"), ("reason", "quiet now")];
        let done = person.post("/dlq", &retry).await;
        assert_eq!((done.status, done.header("location")), (303, "/dlq"), "{}", done.text);
        let run = server.get(&format!("/v1/runs/{id}")).await.expect(200);
        assert_eq!(run["items"]["target"], json!({ "APPLIED": 6, "FAILED": 1, "QUEUED": 3 }), "{on:?}");
        assert!(person.get("/dlq").await.text.contains("No target failed for good."));
    }
}

#[tokio::test]
async fn what_a_run_refuses_is_told_on_the_page() {
    let server = Server::new().await;
    let person = Person::at(&server, "");
    let id = preview(&server, "", 10).await;
    person.post(&format!("/runs/{id}/queue"), &[]).await;
    applied(&server, "", &id).await;
    assert_eq!(person.post(&format!("/runs/{id}/reconcile"), &[]).await.status, 303);
    let told = person.post("/dlq", &[("act", "retry"), ("class", "TIMEOUT")]).await;
    assert_eq!(told.status, 200);
    assert!(
        told.text.contains("nothing was done")
            && told.text.contains("reconciliation of the run is under way"),
        "{}",
        told.text
    );
    // The operation ends with a report, which two pages show.
    let found = server.get(&format!("/v1/runs?parent_run_id={id}")).await.expect(200);
    let operation = found["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let claim =
        server.post(&format!("/v1/runs/{operation}/claim"), json!({ "worker": "w1" })).await.expect(200);
    let mismatch = json!({ "targetId": "t000", "expected": "12.50", "actual": "11.00", "difference": -1.5 });
    let failure = json!({ "targetId": "t001", "code": "TIMEOUT", "message": FOUL });
    let report = json!({ "run_id": id, "totalChecked": 6, "mismatches": 1, "fetchErrors": 1, "details": [mismatch], "failures": [failure], "retriedBy": null });
    let end = json!({ "lease_token": claim["lease"]["token"], "status": "partial", "details": { "report": report } });
    server.post(&format!("/v1/runs/{operation}/finish"), end).await.expect(200);
    for path in [
        "/reconciliations".to_owned(),
        format!("/reconciliations?run_id={id}"),
        format!("/runs/{operation}"),
        format!("/runs/{id}?tab=items"),
    ] {
        let page = person.get(&path).await.text;
        for words in ["Compared</dt><dd>6<", "12.50", "11.00", "−1.5", "t001"] {
            assert!(page.contains(words), "{path} {words}: {page}");
        }
        assert!(!page.contains("<script>alert"), "{path}");
    }
    assert!(person.get("/reconciliations").await.text.contains("reconcile again"));
    assert!(person.get("/reconciliations?run_id=run-none").await.text.contains("Nothing was compared"));
}

// proves U14
#[tokio::test]
async fn viewers_have_no_buttons_and_others_see_nothing_of_it() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    let id = preview(&server, &admin, 10).await;
    let queue = format!("/v1/runs/{id}/queue");
    ask(&server, &admin, "POST", &queue, &json!({})).await.expect(200);
    applied(&server, &admin, &id).await;
    let viewer = Person::at(&server, &token(&*server.store, "viewer", "default").await);
    let paths = [
        format!("/runs/{id}?tab=items"),
        "/dlq".into(),
        "/alerts".into(),
        "/proposals".into(),
        "/reconciliations".into(),
        "/destinations".into(),
    ];
    for path in &paths {
        let page = viewer.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        let main = page.text.split("<main").nth(1).unwrap().split("</main>").next().unwrap();
        assert!(
            !main.contains("type=\"submit\"")
                && !main.contains("method=\"post\"")
                && !main.contains("data-pick"),
            "{path}: {main}"
        );
    }
    let forged = [
        (format!("/runs/{id}/targets"), vec![("act", "rollback"), ("target", "t000")]),
        ("/dlq".to_owned(), vec![("act", "retry"), ("class", "TIMEOUT")]),
        ("/alerts/test".to_owned(), vec![]),
        ("/alerts/dlq-backlog/silence".to_owned(), vec![("lasts_ms", "1000")]),
        ("/proposals".to_owned(), vec![("act", "approve"), ("proposal", "prop_x")]),
    ];
    let foreign = Person::at(&server, &token(&*server.store, "operator", "elsewhere").await);
    for (path, fields) in forged {
        assert_eq!(viewer.post(&path, &fields).await.status, 403, "{path}");
    }
    for path in &paths[1..] {
        assert!(!foreign.get(path).await.text.contains(&id), "{path}");
    }
    assert_eq!(foreign.get(&paths[0]).await.status, 404);
    assert_eq!(
        foreign.post(&format!("/runs/{id}/targets"), &[("act", "retry"), ("target", "t002")]).await.status,
        404
    );
    assert_eq!(
        foreign.post("/dlq", &[("act", "retry"), ("class", "TIMEOUT")]).await.status,
        303,
        "it has none"
    );
    let run = ask(&server, &admin, "GET", &format!("/v1/runs/{id}"), &Value::Null).await.expect(200);
    assert_eq!(run["status"], "PARTIAL");
}

#[tokio::test]
async fn alerts_are_silenced_for_a_time_and_destinations_shown() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let person = Person::at(&server, "");
        let page = person.get("/alerts").await.text;
        assert!(
            page.contains("Nothing has been wrong.")
                && page.contains("dlq-critical")
                && page.contains("Nobody is told.")
        );
        let silence = [("alert", "dlq-backlog"), ("lasts_ms", "3600000"), ("reason", "known <b>")];
        let done = person.post("/alerts/silence", &silence).await;
        assert_eq!((done.status, done.header("location")), (303, "/alerts"), "{}", done.text);
        let page = person.get("/alerts").await.text;
        assert!(
            page.contains("silenced by") && page.contains("known &lt;b&gt;") && page.contains("ends <time"),
            "{page}"
        );
        assert_eq!(person.post("/alerts/dlq-backlog/unsilence", &[]).await.status, 303);
        assert!(!person.get("/alerts").await.text.contains("silenced by"));
        for (path, fields, status) in [
            ("/alerts/silence", vec![("alert", "nonsense"), ("lasts_ms", "1000")], 422),
            ("/alerts/silence", vec![("alert", "dlq-backlog"), ("lasts_ms", "soon")], 422),
            ("/alerts/silence", vec![("alert", "dlq-backlog"), ("lasts_ms", "99999999999999")], 422),
            ("/alerts/dlq-backlog/explode", vec![], 404),
            ("/alerts/explode", vec![], 404),
            ("/alerts/test", vec![("sink", "nobody")], 422),
        ] {
            assert_eq!(person.post(path, &fields).await.status, status, "{on:?} {path} {fields:?}");
        }
        let tested = person.post("/alerts/test", &[]).await;
        assert!(tested.status == 200 && tested.text.contains("This server has no sinks."));
        assert!(person.get("/destinations").await.text.contains("No destination was called yet."));
        let admit = json!({ "capacity_milli": 40_000, "rate_milli_per_s": 2_000, "calls": 10 });
        server.post("/v1/destinations/shop%3Cscript%3E/admit", admit).await.expect(200);
        let throttled = vec![json!({ "throttled": true }); 6];
        server
            .post("/v1/destinations/shop%3Cscript%3E/answers", json!({ "answers": throttled }))
            .await
            .expect(200);
        let page = person.get("/destinations").await.text;
        for words in
            ["shop&lt;script&gt;", "open", "nobody calls it", "opened 1 times", "2 a second", "of 40"]
        {
            assert!(page.contains(words), "{on:?} {words}: {page}");
        }
    }
}

/// A page of 100,000 targets is like a page of 100.
#[tokio::test]
async fn a_page_of_many_targets_is_as_large_as_one_of_few() {
    let server = Server::new().await;
    let id = preview(&server, "", 1_000).await;
    let person = Person::at(&server, "");
    let page = person.get(&format!("/runs/{id}?tab=items")).await.text;
    assert!(page.len() < 300_000 && page.contains("t099") && !page.contains("t100"), "{}", page.len());
    let next =
        page.split("rel=\"next\" href=\"").nth(1).unwrap().split('"').next().unwrap().replace("&amp;", "&");
    let page = person.get(&next).await.text;
    assert!(page.contains(">t100<") && !page.contains(">t099<"), "{next}");
}

//! Many runs at once: filters, figures over time, files, and one command for all.

use serde_json::{Value, json};
use waypost_worker::loops::Operator;

use crate::console::Person;
use crate::roles::{ask, token, with_tokens};
use crate::support::{On, Server};

const EVERYWHERE: [On; 3] = [On::Memory, On::Sqlite, On::Postgres];

async fn started(server: &Server, more: Value) -> String {
    server.start_with(more).await["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn figures_over_time_are_of_what_fits() {
    for on in EVERYWHERE {
        let server = Server::on(on).await;
        let none = server.get("/v1/activity").await.expect(200);
        assert_eq!((&none["runs"], &none["cut_at"]), (&json!(0), &Value::Null));
        for queue in ["builds", "builds", "other", "default"] {
            started(&server, json!({ "queue": queue })).await;
        }
        let (id, lease) = server.claim("w").await;
        let end = json!({ "lease_token": lease, "status": "failed", "error_code": "X", "error_msg": "y" });
        server.post(&format!("/v1/runs/{id}/start"), json!({ "lease_token": lease, "by": "w" })).await;
        server.post(&format!("/v1/runs/{id}/finish"), end).await.expect(200);
        let day = server.get("/v1/activity?window_ms=86400000&buckets=24").await.expect(200);
        let last = &day["buckets"][23];
        assert_eq!(day["buckets"].as_array().unwrap().len(), 24, "{on:?}");
        assert_eq!((&last["came_in"], &last["ended"]), (&json!(4), &json!(1)), "{day}");
        assert_eq!(last["by"], json!({ "failed": 1, "ready": 3 }));
        assert_eq!(
            (&day["lifecycles"][0]["lifecycle"], &day["duration"]["count"]),
            (&json!("deploy"), &json!(1))
        );
        let builds = server.get("/v1/activity?queue=builds").await.expect(200);
        assert_eq!(builds["runs"], 2);
        server.get("/v1/activity?status=nonsense").await.refused(400, "INVALID_QUERY");
        server
            .get("/v1/activity?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z")
            .await
            .refused(400, "INVALID_QUERY");
        server.get("/v1/activity?buckets=0").await.refused(400, "INVALID_QUERY");
    }
}

#[tokio::test]
async fn one_command_is_given_to_all_that_fit() {
    for on in EVERYWHERE {
        let server = Server::on(on).await;
        for _ in 0..60 {
            started(&server, json!({ "queue": "builds" })).await;
        }
        let other = started(&server, json!({ "queue": "other" })).await;
        let asked = json!({ "command": "cancel", "filter": { "queue": "builds" }, "expected": 60, "reason": "enough" });
        let made = server.post("/v1/operations", asked).await;
        assert_eq!(made.status, 202, "{}", made.text);
        let id = made.body["run_id"].as_str().unwrap().to_owned();
        assert_eq!(made.header("location"), format!("/v1/runs/{id}"));
        Operator::new(server.store.clone()).work_all().await.unwrap();
        let ended = server.get(&format!("/v1/runs/{id}")).await.expect(200);
        assert_eq!(
            (&ended["status"], &ended["details"]["report"]["done"]),
            (&json!("completed"), &json!(60)),
            "{on:?} {ended}"
        );
        assert_eq!(server.get("/v1/runs?queue=builds&status=queued").await.expect(200)["runs"], json!([]));
        assert_eq!(server.get(&format!("/v1/runs/{other}")).await.expect(200)["status"], "queued");
    }
}

#[tokio::test]
async fn a_bulk_command_that_makes_no_sense_is_refused_at_once() {
    let server = Server::new().await;
    let id = started(&server, json!({ "queue": "builds" })).await;
    for (body, code, part) in [
        (json!({ "filter": { "queue": "builds" } }), "INVALID_INPUT", "command"),
        (
            json!({ "command": "cancle", "filter": { "queue": "builds" } }),
            "INVALID_INPUT",
            "did you mean `cancel`",
        ),
        (json!({ "command": "cancel" }), "INVALID_INPUT", "filter"),
        (json!({ "command": "cancel", "filter": {} }), "INVALID_INPUT", "every run"),
        (json!({ "command": "cancel", "ids": [] }), "INVALID_INPUT", "ids"),
        (
            json!({ "command": "cancel", "ids": [id], "filter": { "queue": "builds" } }),
            "INVALID_INPUT",
            "one of them",
        ),
        (json!({ "command": "cancel", "filter": { "stauts": "queued" } }), "INVALID_INPUT", "stauts"),
        (json!({ "command": "cancel", "ids": [id], "reason": "x".repeat(1_000) }), "INVALID_INPUT", "reason"),
    ] {
        let told = server.post("/v1/operations", body.clone()).await.refused(422, code);
        assert!(told.to_string().contains(part), "{body}: {told}");
    }
    let wrong = json!({ "command": "cancel", "filter": { "status": "nonsense" } });
    server.post("/v1/operations", wrong).await.refused(400, "INVALID_QUERY");
    let other = json!({ "command": "cancel", "filter": { "queue": "builds" }, "expected": 2 });
    let told = server.post("/v1/operations", other).await.refused(409, "CHANGED_MEANWHILE");
    assert_eq!(told["count"], 1);
    assert_eq!(
        server.get("/v1/runs?lifecycle=operation").await.expect(200)["runs"],
        json!([]),
        "nothing was begun"
    );
}

#[tokio::test]
async fn a_bulk_command_is_of_its_tenant_and_of_who_may() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    let foreign = token(&*server.store, "operator", "elsewhere").await;
    let viewer = token(&*server.store, "viewer", "default").await;
    let body = json!({ "lifecycle": "deploy", "queue": "builds" });
    let made = ask(&server, &admin, "POST", "/v1/runs", &body).await.expect(201);
    let id = made["run_id"].as_str().unwrap();
    let bulk = json!({ "command": "cancel", "filter": { "queue": "builds" } });
    ask(&server, &viewer, "POST", "/v1/operations", &bulk).await.refused(403, "FORBIDDEN");
    let by_ids = json!({ "command": "cancel", "ids": [id] });
    for body in [bulk, by_ids] {
        ask(&server, &foreign, "POST", "/v1/operations", &body).await.expect(202);
    }
    Operator::new(server.store.clone()).work_all().await.unwrap();
    let run = ask(&server, &admin, "GET", &format!("/v1/runs/{id}"), &Value::Null).await.expect(200);
    assert_eq!(run["status"], "queued", "another tenant's command does not reach it");
    let page = Person::at(&server, &viewer).get("/runs").await.text;
    assert!(!page.contains("type=\"checkbox\"") && !page.contains("/runs/bulk"), "a viewer selects nothing");
    let forged = [("command", "cancel"), ("run", id), ("typed", "1")];
    assert_eq!(Person::at(&server, &viewer).post("/runs/bulk", &forged).await.status, 403);
    let chosen = Person::at(&server, &foreign).post("/runs/bulk", &forged[..2]).await;
    assert_eq!(chosen.status, 404, "whose run it is is not told: {}", chosen.text);
}

#[tokio::test]
async fn the_console_asks_for_the_count_before_it_acts() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        for _ in 0..3 {
            started(&server, json!({ "queue": "my builds", "title": "a <b> title" })).await;
        }
        let person = Person::at(&server, "");
        let page = person.get("/runs?filter=queue%3A%22my%20builds%22").await;
        assert_eq!(page.text.matches("name=\"run\"").count(), 3, "{}", page.text);
        let all = [("command", "cancel"), ("all", "yes"), ("filter", "queue:\"my builds\"")];
        let asked = person.post("/runs/bulk", &all).await;
        assert!(asked.status == 200 && asked.text.contains("cancel 3 runs?"), "{}", asked.text);
        assert_eq!(
            server.get("/v1/runs?lifecycle=operation").await.expect(200)["runs"],
            json!([]),
            "only asked"
        );
        let wrong = person.post("/runs/bulk", &[&all[..], &[("typed", "4")]].concat()).await;
        assert!(wrong.status == 422 && wrong.text.contains("Type 3 to go on"), "{}", wrong.text);
        let done =
            person.post("/runs/bulk", &[&all[..], &[("typed", "3"), ("reason", "because")]].concat()).await;
        assert_eq!(done.status, 303, "{}", done.text);
        let path = done.header("location").to_owned();
        assert!(person.get(&path).await.text.contains("Left"));
        Operator::new(server.store.clone()).work_all().await.unwrap();
        let told = person.get(&path).await.text;
        assert!(
            told.contains("completed") && told.contains("because") && !told.contains("data-live"),
            "{told}"
        );
        let nothing = person.post("/runs/bulk", &[("command", "cancel")]).await;
        assert_eq!(nothing.status, 422, "nothing is ticked: {}", nothing.text);
        let every = person.post("/runs/bulk", &[("command", "cancel"), ("all", "yes")]).await;
        assert_eq!(every.status, 422, "that would be every run");
        assert_eq!(person.get("/operations/run-nothing").await.status, 404);
    }
}

#[tokio::test]
async fn filters_are_mended_where_they_were_typed_and_bars_lead_to_their_time() {
    for on in EVERYWHERE {
        let server = Server::on(on).await;
        started(&server, json!({ "queue": "builds" })).await;
        let person = Person::at(&server, "");
        let page = person.get("/runs?filter=since%3A1h+queue%3Abuilds").await;
        assert!(page.status == 200 && page.text.contains("data-row"), "{}", page.text);
        let bar = page.text.split("<a href=\"/runs?filter=since").nth(1).expect("a bar");
        let path = format!("/runs?filter=since{}", bar.split('"').next().unwrap());
        assert!(person.get(&path).await.text.contains("data-row"), "{path}");
        assert!(!person.get("/runs?filter=until%3A1h").await.text.contains("data-row"));
        for (typed, part) in [
            ("stauts%3Afailed", "did you mean"),
            ("since%3Asoon", "neither a time"),
            ("status%3Afialed", "failed"),
        ] {
            let wrong = person.get(&format!("/runs?filter={typed}")).await;
            assert!(
                wrong.status == 400 && wrong.text.contains(part) && wrong.text.contains("id=\"filter\""),
                "{typed}: {}",
                wrong.text
            );
        }
    }
}

#[tokio::test]
async fn what_matches_is_exported_and_no_cell_is_a_formula() {
    for on in EVERYWHERE {
        let server = Server::on(on).await;
        started(&server, json!({ "queue": "builds", "title": "=HYPERLINK(\"http://evil\")" })).await;
        for _ in 0..600 {
            server
                .store
                .enqueue(vec![waypost_store::NewRun {
                    lifecycle: "deploy".into(),
                    queue: "many".into(),
                    ..Default::default()
                }])
                .await
                .unwrap();
        }
        let person = Person::at(&server, "");
        let csv = person.get("/runs/export?filter=queue%3Abuilds&format=csv").await;
        assert!(csv.header("content-disposition").contains("runs.csv"));
        let lines: Vec<&str> = csv.text.lines().collect();
        assert!(lines.len() == 2 && lines[0].starts_with("run_id,title,"), "{}", csv.text);
        assert!(lines[1].contains(",\"'=HYPERLINK(\"\"http://evil\"\")\","), "{}", lines[1]);
        let many = person.get("/runs/export?filter=queue%3Amany&format=jsonl").await.text;
        assert_eq!(
            many.lines()
                .filter(|line| serde_json::from_str::<Value>(line).unwrap()["queue"] == "many")
                .count(),
            600
        );
        assert_eq!(person.get("/runs/export?format=xls").await.status, 400);
        assert_eq!(person.get("/runs/export?filter=stauts%3Ax").await.status, 400);
    }
}

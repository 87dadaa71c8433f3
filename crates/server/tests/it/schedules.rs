//! Schedules and executions over HTTP: apply, look, pause, trigger, backfill, each with its role and its trace.

use serde_json::{Value, json};
use waypost_kernel::{Actor, Span};
use waypost_server::Options;
use waypost_store::{Birth, Firing, NewRun};

use crate::openapi::fits;
use crate::roles::{ask, token, with_tokens};
use crate::support::{On, Server, open, send};

fn nightly() -> Value {
    json!({ "definition": { "cron": "0 2 * * *", "timezone": "Europe/Kyiv", "exec": ["./backup.sh"] }, "folder": "/srv" })
}

/// Fires the first plan of a schedule's only scope, as a scheduler beside the database would; gives the run's id.
async fn fire(server: &Server, schedule: &str) -> String {
    let plan = server.store.now().await.unwrap();
    let run = NewRun {
        lifecycle: "cron".into(),
        queue: "cron".into(),
        idempotency_key: Some(format!("waypost:schedule:{schedule}")),
        max_attempts: 3,
        by: "s1".into(),
        actor: Actor::Worker,
        ..NewRun::default()
    };
    let firing = Firing {
        schedule: schedule.into(),
        kind: "global".into(),
        id: "global".into(),
        through: Some(plan),
        wake_at: Some(plan + Span::from_seconds(60)),
        plans: vec![(plan, Birth { run, lease: Some(Span::from_seconds(600)) })],
        ..Firing::default()
    };
    let begun = server.store.fire(vec![firing]).await.unwrap().remove(0).unwrap().unwrap();
    begun[0].run_id().to_owned()
}

// proves C8
#[tokio::test]
async fn a_schedule_is_applied_looked_at_paused_and_removed() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let path = "/v1/schedules/{schedule}";
        let applied = server.put("/v1/schedules/nightly", nightly()).await;
        fits("put", path, &applied);
        assert_eq!(applied.body["result"], "added");
        let again = server.put("/v1/schedules/nightly", nightly()).await.expect(200);
        assert_eq!(again["result"], "unchanged");
        let shown = server.get("/v1/schedules/nightly").await;
        fits("get", path, &shown);
        let it = &shown.body;
        assert_eq!((&it["when"], &it["scopes"]), (&json!("at 02:00 every day (Europe/Kyiv)"), &json!(1)));
        assert_eq!((it["next"].as_array().unwrap().len(), &it["applied"]), (5, &json!(true)));
        let why = json!({ "by": "olena", "reason": "migration" });
        let paused = server.post("/v1/schedules/nightly/pause", why).await;
        fits("post", "/v1/schedules/{schedule}/pause", &paused);
        let other = json!({ "definition": { "cadence": "5m", "exec": ["./backup.sh"] }, "folder": "/srv" });
        let changed = server.put("/v1/schedules/nightly", other).await.expect(200);
        assert_eq!(changed["result"], "changed");
        assert_eq!(changed["schedule"]["paused"]["reason"], "migration", "a redeploy leaves it in place");
        assert_eq!(changed["schedule"]["paused"]["by"], "olena");
        let resumed = server.post("/v1/schedules/nightly/resume", json!({})).await.expect(200);
        assert_eq!(resumed["paused"], Value::Null);
        let next = server.get("/v1/schedules/nightly/next?count=3").await;
        fits("get", "/v1/schedules/{schedule}/next", &next);
        assert_eq!(next.body["next"].as_array().unwrap().len(), 3);
        let scopes = server.get("/v1/schedules/nightly/scopes").await;
        fits("get", "/v1/schedules/{schedule}/scopes", &scopes);
        assert_eq!(scopes.body["scopes"][0]["scope_kind"], "global");
        send(server.request("DELETE", "/v1/schedules/nightly")).await.expect(204);
        for path in ["", "/next", "/scopes"] {
            let gone = server.get(&format!("/v1/schedules/nightly{path}")).await;
            assert_eq!(gone.refused(404, "NOT_FOUND")["what"], "schedule");
        }
        send(server.request("DELETE", "/v1/schedules/nightly")).await.refused(404, "NOT_FOUND");
    }
}

// proves C8 and C10
#[tokio::test]
async fn executions_are_found_by_what_they_are() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        for name in ["nightly", "weekly"] {
            server.put(&format!("/v1/schedules/{name}"), nightly()).await.expect(200);
        }
        let run_id = fire(&server, "nightly").await;
        let added = server.post("/v1/schedules/weekly/trigger", json!({ "by": "olena" })).await;
        fits("post", "/v1/schedules/{schedule}/trigger", &added);
        assert_eq!(added.body["added"], 1);
        let range = json!({ "from": "2026-02-01T00:00:00Z", "to": "2026-02-03T12:00:00Z" });
        let added = server.post("/v1/schedules/weekly/backfill", range.clone()).await;
        fits("post", "/v1/schedules/{schedule}/backfill", &added);
        assert_eq!(added.body["added"], 3);
        assert_eq!(server.post("/v1/schedules/weekly/backfill", range).await.expect(200)["added"], 0);
        let found = server.get("/v1/executions?schedule=nightly&status=RUNNING").await;
        fits("get", "/v1/executions", &found);
        assert_eq!(found.body["executions"][0]["run"]["run_id"], run_id.as_str());
        let one = server.get(&format!("/v1/executions/{run_id}")).await;
        fits("get", "/v1/executions/{run_id}", &one);
        assert_eq!(one.body["schedule"], "nightly");
        server.get("/v1/executions/nothing").await.refused(404, "NOT_FOUND");
        // Page by page, by the links that the answers give.
        let mut path = "/v1/schedules/weekly/history?limit=3&scope_kind=global".to_owned();
        let mut seen = Vec::new();
        loop {
            let page = server.get(&path).await;
            fits("get", "/v1/schedules/{schedule}/history", &page);
            let link = page.header("link").to_owned();
            let all = page.body["executions"].as_array().unwrap().clone();
            assert_eq!(page.body["next_cursor"].is_null(), link.is_empty());
            seen.extend(all.iter().map(|it| (it["manual"].clone(), it["plan_time"].clone())));
            let Some(next) = link.strip_prefix('<').and_then(|rest| rest.split('>').next()) else { break };
            path = next.to_owned();
        }
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[0].0, "trigger");
        assert_eq!(seen[3], (json!("backfill"), json!("2026-02-01T00:00:00.000Z")));
        let listed = server.get("/v1/schedules?limit=1").await;
        fits("get", "/v1/schedules", &listed);
        assert_eq!(listed.body["next_cursor"], "nightly");
        assert_eq!(
            (&listed.body["schedules"][0]["running"], &listed.body["schedules"][0]["claims"]["won"]),
            (&json!(1), &json!(1))
        );
        let rest = server.get("/v1/schedules?cursor=nightly").await.expect(200);
        assert_eq!((&rest["schedules"][0]["name"], &rest["next_cursor"]), (&json!("weekly"), &Value::Null));
    }
}

#[tokio::test]
async fn what_is_wrong_is_named() {
    let server = Server::new().await;
    server.put("/v1/schedules/s", nightly()).await.expect(200);
    let exec = json!(["true"]);
    for (definition, words) in [
        (json!({ "exec": exec }), "does not say when"),
        (json!({ "cron": "61 * * * *", "exec": exec }), "cron"),
        (json!({ "name": "other", "cadence": "1m", "exec": exec }), "not \"s\" as in the path"),
        (json!({ "cadence": "1m", "exec": exec, "timezone": "Mars/Olympus" }), "timezone"),
        (json!({ "cadence": "1m" }), "exec"),
        (
            json!({ "cadence": "1m", "run": { "lifecycle": "deploy", "playbook": "../etc/p.toml" } }),
            "not read here",
        ),
        (json!({ "cadence": null, "exec": exec }), ""),
    ] {
        let body = json!({ "definition": definition });
        let problem = server.put("/v1/schedules/s", body.clone()).await.refused(422, "INVALID_INPUT");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{body}: {problem}");
        assert_eq!(problem["errors"][0]["pointer"], "/definition", "{problem}");
    }
    for (body, words) in [
        (json!({}), "from and to, or plan_times"),
        (json!({ "from": "2026-02-02T00:00:00Z", "to": "2026-02-01T00:00:00Z" }), "to: "),
        (json!({ "from": "2026-02-02T00:00:00Z", "to": "9999-02-01T00:00:00Z" }), "to: "),
        (json!({ "plan_times": ["today"] }), "plan_times"),
    ] {
        let problem = server.post("/v1/schedules/s/backfill", body).await.refused(422, "INVALID_INPUT");
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
    let unknown = server.post("/v1/schedules/s/trigger", json!({ "scopes": ["moon"] })).await;
    assert_eq!(unknown.refused(422, "INVALID_INPUT")["detail"], "scopes: s has no \"moon\"; it has global");
    server.get("/v1/executions?cursor=x").await.refused(422, "INVALID_INPUT");
}

#[tokio::test]
async fn what_is_brought_along_needs_an_admin_and_a_playbook_does_not() {
    let server = with_tokens().await;
    let operator = token(&*server.store, "operator", "default").await;
    let admin = token(&*server.store, "admin", "default").await;
    let run = json!({ "lifecycle": "deploy", "playbook": "nightly" });
    for (definition, needs_admin) in [
        (json!({ "cadence": "1m", "exec": ["true"] }), true),
        (json!({ "cadence": "1m", "http": { "url": "https://example.com" } }), true),
        (json!({ "cadence": "1m", "handler": "h" }), true),
        (json!({ "cadence": "1m", "run": { "lifecycle": "deploy", "exec": ["true"] } }), true),
        (json!({ "cadence": "1m", "run": run, "scopes": { "kind": "k", "sql": "SELECT 1" } }), true),
        (json!({ "cadence": "1m", "run": run, "scopes": { "kind": "k", "ids": ["a"] } }), false),
        (json!({ "cadence": "1m", "run": run }), false),
    ] {
        let body = json!({ "definition": definition, "unknown_playbook": true });
        let answer = ask(&server, &operator, "PUT", "/v1/schedules/s", &body).await;
        assert_eq!(answer.status == 403, needs_admin, "{body}: {}", answer.text);
        ask(&server, &admin, "PUT", "/v1/schedules/s", &body).await.expect(200);
    }
}

#[tokio::test]
async fn the_default_tenants_schedules_are_nobody_elses() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    ask(&server, &admin, "PUT", "/v1/schedules/s", &nightly()).await.expect(200);
    let run_id = fire(&server, "s").await;
    let foreign = token(&*server.store, "admin", "b").await;
    for (method, path) in [
        ("GET", "/s"),
        ("GET", "/s/scopes"),
        ("GET", "/s/next"),
        ("POST", "/s/pause"),
        ("POST", "/s/resume"),
        ("POST", "/s/trigger"),
        ("DELETE", "/s"),
    ] {
        let answer = ask(&server, &foreign, method, &format!("/v1/schedules{path}"), &json!({})).await;
        answer.refused(404, "NOT_FOUND");
    }
    let none = |path: &'static str| ask(&server, &foreign, "GET", path, &Value::Null);
    assert_eq!(none("/v1/schedules").await.expect(200)["schedules"], json!([]));
    assert_eq!(none("/v1/executions").await.expect(200)["executions"], json!([]));
    assert_eq!(none("/v1/schedules/s/history").await.expect(200)["executions"], json!([]));
    let path = format!("/v1/executions/{run_id}");
    ask(&server, &foreign, "GET", &path, &Value::Null).await.refused(404, "NOT_FOUND");
}

#[tokio::test]
async fn what_people_do_to_schedules_is_kept() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    let why = json!({ "by": "ann", "reason": "why" });
    let mut apply = nightly();
    apply.as_object_mut().unwrap().extend(why.as_object().unwrap().clone());
    ask(&server, &admin, "PUT", "/v1/schedules/s", &apply).await.expect(200);
    ask(&server, &admin, "PUT", "/v1/schedules/s", &apply).await.expect(200);
    for verb in ["pause", "resume", "trigger"] {
        ask(&server, &admin, "POST", &format!("/v1/schedules/s/{verb}"), &why).await.expect(200);
    }
    let mut range = json!({ "plan_times": ["2026-02-14T00:00:00Z"] });
    range.as_object_mut().unwrap().extend(why.as_object().unwrap().clone());
    ask(&server, &admin, "POST", "/v1/schedules/s/backfill", &range).await.expect(200);
    ask(&server, &admin, "DELETE", "/v1/schedules/s", &Value::Null).await.expect(204);
    let audit = ask(&server, &admin, "GET", "/v1/audit", &Value::Null).await.expect(200);
    let rows = audit["audit"].as_array().unwrap();
    let told: Vec<String> =
        rows.iter().map(|row| format!("{} {} {}", row["action"], row["by"], row["reason"])).collect();
    let by_ann = |verb: &str| format!("\"schedule.{verb}\" \"admin-of-default/ann\" \"why\"");
    let mut expected: Vec<String> = ["apply", "pause", "resume", "trigger", "backfill"].map(by_ann).to_vec();
    expected.push("\"schedule.remove\" \"admin-of-default\" null".to_owned());
    assert_eq!(told, expected, "what changed nothing is not there");
    assert!(rows.iter().all(|row| row["subject"] == "s"));
}

#[tokio::test]
async fn a_playbook_that_somebody_has_is_pinned() {
    let server = Server::new().await;
    let text = "name = \"nightly\"\nlifecycle = \"deploy\"\n\n[[step]]\nname = \"a\"\nexec = [\"true\"]\n";
    let offered = json!({ "by": "serve", "playbooks": [{ "name": "nightly", "text": text }] });
    server.post("/v1/playbooks", offered).await.expect(204);
    let known = server.get("/v1/playbooks").await.expect(200);
    let pin = format!("nightly@{}", known["playbooks"][0]["hash"].as_str().unwrap());
    let body =
        json!({ "definition": { "cadence": "1m", "run": { "lifecycle": "deploy", "playbook": "nightly" } } });
    let applied = server.put("/v1/schedules/s", body).await.expect(200);
    assert_eq!(applied["schedule"]["definition"]["run"]["playbook"], pin.as_str());
}

async fn metrics(server: &Server) -> Vec<String> {
    let page = server.get("/metrics").await;
    assert_eq!(page.status, 200, "{}", page.text);
    page.text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

// proves C10
#[tokio::test]
async fn lag_stale_skipped_failed_and_claims_are_metrics() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        server.put("/v1/schedules/nightly", nightly()).await.expect(200);
        fire(&server, "nightly").await;
        let has = |lines: &[String], start: &str| lines.iter().any(|line| line.starts_with(start));
        let lines = metrics(&server).await;
        for expected in [
            "waypost_schedules 1",
            "waypost_schedule_running{schedule=\"nightly\"} 1",
            "waypost_schedule_running_stale{schedule=\"nightly\"} 0",
            "waypost_schedule_failed_unretried_total{schedule=\"nightly\"} 0",
            "waypost_schedule_claims_total{schedule=\"nightly\",result=\"won\"} 1",
            "waypost_schedule_skipped_plans_total{schedule=\"nightly\",reason=\"late\"} 0",
        ] {
            assert!(has(&lines, expected), "{expected}: {lines:#?}");
        }
        assert!(!has(&lines, "waypost_schedule_lag_seconds{"), "it never succeeded");
        server.store.advance_clock(Span::from_seconds(700)).await.unwrap();
        let lines = metrics(&server).await;
        assert!(has(&lines, "waypost_schedule_running_stale{schedule=\"nightly\"} 1"), "{lines:#?}");
    }
}

#[tokio::test]
async fn ten_thousand_schedules_do_not_make_a_long_page_of_metrics() {
    let server = Server::on(On::Memory).await;
    let empty = metrics(&server).await.len();
    for n in 0..10_000 {
        let write = waypost_store::ScheduleWrite {
            name: format!("job{n:05}"),
            hash: format!("h{n}"),
            carried: true,
            kind: "global".into(),
            ids: Some(vec!["global".into()]),
            ..waypost_store::ScheduleWrite::default()
        };
        server.store.put_schedule(write).await.unwrap();
    }
    let lines = metrics(&server).await;
    assert!(lines.contains(&"waypost_schedules 10000".to_owned()));
    assert!(lines.len() - empty <= 201 * 13, "{} lines", lines.len());
    assert!(lines.iter().any(|line| line.contains("schedule=\"(others)\"")));
}

/// What a restart would bring back is not changed from outside.
#[tokio::test]
async fn schedules_of_the_engine_and_of_a_server_s_own_file_are_left_alone() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, lives) = open(on).await;
        let options = Options { own_schedules: vec!["own".into()], ..Options::default() };
        let server = Server::with(store, lives, options).await;
        let other = Server::with(server.store.clone(), Box::new(()), Options::default()).await;
        let write = server.put("/v1/schedules/elsewhere", nightly()).await.expect(200);
        assert_eq!(write["result"], "added");
        for (name, status, code) in [
            ("own", 409, "OWN_SCHEDULE"),
            ("waypost.prune", 422, "INVALID_INPUT"),
            ("waypost.anything", 422, "INVALID_INPUT"),
        ] {
            let path = format!("/v1/schedules/{name}");
            let problem = server.put(&path, nightly()).await.refused(status, code);
            assert!(problem.to_string().contains(name), "{problem}");
            send(server.request("DELETE", &path)).await.refused(status, code);
        }
        // Another server's file has it.
        let row = server
            .store
            .schedules(waypost_store::ScheduleFilter::named("elsewhere"))
            .await
            .unwrap()
            .remove(0)
            .row;
        let write = waypost_store::ScheduleWrite {
            name: "theirs".into(),
            definition: row.definition.clone(),
            folder: row.folder.clone(),
            hash: "h".into(),
            timing: row.timing.clone(),
            carried: false,
            kind: "global".into(),
            ids: Some(vec!["global".into()]),
        };
        server.store.put_schedule(write).await.unwrap();
        other.put("/v1/schedules/theirs", nightly()).await.refused(409, "OWN_SCHEDULE");
        send(other.request("DELETE", "/v1/schedules/elsewhere")).await.expect(204);
    }
}

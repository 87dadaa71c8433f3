//! Lifecycles and schedules as tokens of two tenants and of all tenants see and change them.

use serde_json::{Value, json};
use waypost_kernel::lifecycle::SHIPPED;
use waypost_kernel::{Actor, Span};
use waypost_server::Options;
use waypost_store::{Birth, EVERY_TENANT, Firing, NewRun, Ownership};

use crate::roles::{ask, token};
use crate::support::{Answer, On, Server, open, send, with_body};

/// A server with tokens, and admins of `shop`, of `bank`, of the default tenant and of all.
struct Site {
    server: Server,
    tokens: Vec<(&'static str, String)>,
}

impl Site {
    async fn on(on: On) -> Site {
        let (store, lives) = open(on).await;
        let server = Server::with(store, lives, Options { needs_tokens: true, ..Options::default() }).await;
        let mut tokens = Vec::new();
        for tenant in ["shop", "bank", "default", EVERY_TENANT] {
            tokens.push((tenant, token(&*server.store, "admin", tenant).await));
        }
        Site { server, tokens }
    }

    fn token(&self, of: &str) -> &str {
        &self.tokens.iter().find(|(tenant, _)| *tenant == of).unwrap().1
    }

    async fn ask(&self, of: &str, method: &str, path: &str, body: Value) -> Answer {
        ask(&self.server, self.token(of), method, path, &body).await
    }

    async fn get(&self, of: &str, path: &str) -> Answer {
        self.ask(of, "GET", path, Value::Null).await
    }

    /// Asked with the token of all tenants, which names one.
    async fn naming(&self, tenant: &str, method: &str, path: &str, body: Value) -> Answer {
        let request = self.server.request(method, path).bearer_auth(self.token(EVERY_TENANT));
        send(with_body(request.header("waypost-tenant", tenant), &body)).await
    }

    /// Names of a list's entries.
    async fn names(&self, of: &str, path: &str, list: &str) -> Vec<String> {
        let answer = self.get(of, path).await.expect(200);
        let entries = answer[list].as_array().unwrap().iter();
        entries.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn like_deploy(name: &str, version: u32) -> Value {
    let (_, deploy) = SHIPPED.into_iter().find(|(name, _)| *name == "deploy").unwrap();
    let text = deploy.replacen("name    = \"deploy\"", &format!("name = \"{name}\""), 1);
    json!({ "source": text.replacen("version = 1", &format!("version = {version}"), 1) })
}

// proves U14
#[tokio::test]
async fn a_tenants_lifecycles_are_its_own() {
    for on in [On::Sqlite, On::Postgres] {
        let site = Site::on(on).await;
        for of in ["shop", "bank"] {
            let added = site.ask(of, "POST", "/v1/lifecycles", like_deploy("release", 1)).await.expect(201);
            assert_eq!(added["name"], format!("{of}/release"));
        }
        // Nobody else's deploy has a second version.
        site.ask("bank", "POST", "/v1/lifecycles", like_deploy("deploy", 2)).await.expect(201);
        for (of, name, lifecycle, version) in [
            ("shop", "release", "shop/release", 1),
            ("bank", "release", "bank/release", 1),
            ("shop", "deploy", "deploy", 1),
            ("bank", "deploy", "bank/deploy", 2),
            ("default", "deploy", "deploy", 1),
            (EVERY_TENANT, "deploy", "deploy", 1),
        ] {
            let run = site.ask(of, "POST", "/v1/runs", json!({ "lifecycle": name })).await.expect(201);
            assert_eq!(
                (&run["lifecycle"], &run["version"]),
                (&json!(lifecycle), &json!(version)),
                "{of} {name}"
            );
            let shown = site.get(of, &format!("/v1/lifecycles/{name}")).await.expect(200);
            assert_eq!(
                (&shown["name"], &shown["version"]),
                (&json!(lifecycle), &json!(version)),
                "{of} {name}"
            );
            let found = site.get(of, &format!("/v1/runs?lifecycle={name}")).await.expect(200);
            assert_eq!(found["runs"][0]["run_id"], run["run_id"], "{of} {name}");
        }
        for of in ["shop", "default"] {
            for path in ["/v1/lifecycles/bank%2Frelease", "/v1/lifecycles/bank%2Fdeploy"] {
                site.get(of, path).await.refused(404, "NOT_FOUND");
            }
            let start = json!({ "lifecycle": "bank/release" });
            let refused = site.ask(of, "POST", "/v1/runs", start).await.refused(422, "INVALID_INPUT");
            assert!(!refused["detail"].as_str().unwrap().contains("bank/deploy"), "{refused}");
            let all = site.names(of, "/v1/lifecycles", "lifecycles").await;
            assert!(!all.iter().any(|name| name.starts_with("bank/")), "{all:?}");
        }
        site.get("default", "/v1/lifecycles/release").await.refused(404, "NOT_FOUND");
        let all = site.names(EVERY_TENANT, "/v1/lifecycles", "lifecycles").await;
        for name in ["deploy", "bank/deploy", "bank/release", "shop/release"] {
            assert!(all.iter().any(|known| known == name), "{name}: {all:?}");
        }
        assert_eq!(
            site.names("bank", "/v1/lifecycles?name=deploy", "lifecycles").await,
            ["bank/deploy", "deploy"]
        );
        // The installation's, for everybody; and one of a tenant that it names.
        site.ask(EVERY_TENANT, "POST", "/v1/lifecycles", like_deploy("common", 1)).await.expect(201);
        site.ask("shop", "POST", "/v1/runs", json!({ "lifecycle": "common" })).await.expect(201);
        let named = site.naming("shop", "POST", "/v1/lifecycles", like_deploy("common", 1)).await.expect(201);
        assert_eq!(named["name"], "shop/common");
        let audit = site.get("bank", "/v1/audit").await.expect(200);
        let told: Vec<&str> =
            audit["audit"].as_array().unwrap().iter().map(|it| it["subject"].as_str().unwrap()).collect();
        assert_eq!(told, ["bank/release@1", "bank/deploy@2"]);
    }
}

fn rollup() -> Value {
    json!({ "definition": { "cadence": "1m", "exec": ["true"] }, "folder": "/srv" })
}

// proves U14 and C1
#[tokio::test]
async fn a_tenants_schedules_are_its_own() {
    for on in [On::Sqlite, On::Postgres] {
        let site = Site::on(on).await;
        for of in ["shop", "bank", "default"] {
            let applied = site.ask(of, "PUT", "/v1/schedules/rollup", rollup()).await.expect(200);
            let stored = if of == "default" { "rollup".to_owned() } else { format!("{of}/rollup") };
            assert_eq!((&applied["result"], &applied["schedule"]["name"]), (&json!("added"), &json!(stored)));
            assert_eq!(site.names(of, "/v1/schedules", "schedules").await, [stored]);
            let again = site.ask(of, "PUT", "/v1/schedules/rollup", rollup()).await.expect(200);
            assert_eq!(again["result"], "unchanged");
        }
        let all = site.names(EVERY_TENANT, "/v1/schedules", "schedules").await;
        assert_eq!(all, ["bank/rollup", "rollup", "shop/rollup"]);
        fires(&site).await;
        acts_on_its_own(&site).await;
        site.ask("shop", "DELETE", "/v1/schedules/rollup", Value::Null).await.expect(204);
        assert_eq!(site.names(EVERY_TENANT, "/v1/schedules", "schedules").await, ["bank/rollup", "rollup"]);
        site.ask(EVERY_TENANT, "DELETE", "/v1/schedules/bank%2Frollup", Value::Null).await.expect(204);
        assert_eq!(site.names(EVERY_TENANT, "/v1/schedules", "schedules").await, ["rollup"]);
        let audit = site.get("bank", "/v1/audit").await.expect(200);
        let last = audit["audit"].as_array().unwrap().last().unwrap();
        assert_eq!((&last["action"], &last["subject"]), (&json!("schedule.remove"), &json!("bank/rollup")));
        assert_eq!(last["by"], format!("admin-of-{EVERY_TENANT}"), "in the log of whose it was");
    }
}

/// One execution each, of the same plan; each tenant sees its own.
async fn fires(site: &Site) {
    let store = &site.server.store;
    let due = store.due(Ownership { carried: true, ..Ownership::default() }, 10).await.unwrap();
    assert_eq!(due.scopes.len(), 3, "schedulers are told of all alike");
    let mut hashes: Vec<&str> = due.scopes.iter().map(|it| it.hash.as_str()).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 3, "what says the same is still each tenant's own");
    let plan = store.now().await.unwrap();
    for (of, schedule) in [("shop", "shop/rollup"), ("bank", "bank/rollup"), ("default", "rollup")] {
        let run = NewRun {
            lifecycle: "/cron".into(),
            queue: "cron".into(),
            idempotency_key: Some("schedule:rollup".into()),
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
        let begun = store.fire(vec![firing]).await.unwrap().remove(0).unwrap().unwrap();
        let id = begun[0].run_id();
        let run = site.get(of, &format!("/v1/runs/{id}")).await.expect(200);
        assert_eq!(run["tenant"], of);
        let execution = site.get(of, &format!("/v1/executions/{id}")).await.expect(200);
        assert_eq!(execution["schedule"], schedule);
        for path in ["/v1/executions", "/v1/executions?schedule=rollup", "/v1/schedules/rollup/history"] {
            let found = site.get(of, path).await.expect(200);
            let found: Vec<&Value> =
                found["executions"].as_array().unwrap().iter().map(|it| &it["schedule"]).collect();
            assert_eq!(found, [schedule], "{of} {path}");
        }
        for other in ["shop", "bank", "default"].into_iter().filter(|other| *other != of) {
            site.get(other, &format!("/v1/executions/{id}")).await.refused(404, "NOT_FOUND");
        }
        site.get(EVERY_TENANT, &format!("/v1/executions/{id}")).await.expect(200);
    }
}

async fn acts_on_its_own(site: &Site) {
    for (verb, body) in [
        ("pause", json!({ "reason": "why" })),
        ("resume", json!({})),
        ("trigger", json!({})),
        ("backfill", json!({ "plan_times": ["2026-02-14T00:00:00Z"] })),
    ] {
        site.ask("shop", "POST", &format!("/v1/schedules/rollup/{verb}"), body.clone()).await.expect(200);
        let shown = site.get("bank", "/v1/schedules/rollup").await.expect(200);
        assert_eq!(shown["paused"], Value::Null, "nobody else's");
        let foreign = format!("/v1/schedules/shop%2Frollup/{verb}");
        site.ask("bank", "POST", &foreign, body.clone()).await.refused(404, "NOT_FOUND");
        site.ask("default", "POST", &foreign, body.clone()).await.refused(404, "NOT_FOUND");
        // By its stored name, as answers show it; and by those who see several tenants.
        site.ask("shop", "POST", &foreign, body.clone()).await.expect(200);
        site.ask(EVERY_TENANT, "POST", &foreign, body.clone()).await.expect(200);
        site.naming("shop", "POST", &format!("/v1/schedules/rollup/{verb}"), body).await.expect(200);
    }
    for path in ["", "/next", "/scopes", "/history"] {
        site.get("bank", &format!("/v1/schedules/shop%2Frollup{path}")).await.refused(404, "NOT_FOUND");
        site.get("shop", &format!("/v1/schedules/shop%2Frollup{path}")).await.expect(200);
    }
    // Whose names there are is not told by it: no name with a slash is the tenant's to give.
    site.ask("bank", "PUT", "/v1/schedules/shop%2Frollup", rollup()).await.refused(422, "INVALID_INPUT");
    site.ask("bank", "PUT", "/v1/schedules/none%2Frollup", rollup()).await.refused(422, "INVALID_INPUT");
    site.ask("bank", "DELETE", "/v1/schedules/shop%2Frollup", Value::Null).await.refused(404, "NOT_FOUND");
}

/// A tenant's schedules take its lifecycles, and nothing that reaches beyond the tenant.
#[tokio::test]
async fn a_tenants_schedule_takes_its_lifecycles_and_reaches_nobody_else() {
    let site = Site::on(On::Sqlite).await;
    site.ask("shop", "POST", "/v1/lifecycles", like_deploy("release", 1)).await.expect(201);
    let queues = |lifecycle: &str| json!({ "definition": { "cadence": "1m", "run": { "lifecycle": lifecycle, "playbook": "p" } }, "unknown_playbook": true });
    site.ask("shop", "PUT", "/v1/schedules/s", queues("release")).await.expect(200);
    for of in ["bank", "default"] {
        let refused =
            site.ask(of, "PUT", "/v1/schedules/s", queues("release")).await.refused(422, "INVALID_INPUT");
        assert!(!refused["detail"].as_str().unwrap().contains("shop/"), "{refused}");
    }
    for definition in [
        json!({ "cadence": "1m", "exec": ["true"], "scopes": { "kind": "k", "sql": "SELECT 1" } }),
        json!({ "cadence": "1m", "handler": "waypost.prune" }),
    ] {
        let body = json!({ "definition": definition });
        site.ask("shop", "PUT", "/v1/schedules/t", body.clone()).await.refused(403, "FORBIDDEN");
        site.naming("shop", "PUT", "/v1/schedules/t", body.clone()).await.expect(200);
        site.ask("default", "PUT", "/v1/schedules/t", body).await.expect(200);
    }
    let operator = token(&*site.server.store, "operator", "shop").await;
    ask(&site.server, &operator, "PUT", "/v1/schedules/o", &rollup()).await.refused(403, "FORBIDDEN");
    ask(&site.server, &operator, "PUT", "/v1/schedules/o", &queues("release")).await.expect(200);
}

#[tokio::test]
async fn tenants_and_names_have_no_slash() {
    let site = Site::on(On::Sqlite).await;
    let problem = site.naming("a%2Fb", "GET", "/v1/runs", Value::Null).await.refused(400, "INVALID_QUERY");
    assert!(problem["detail"].as_str().unwrap().contains("without \"/\""), "{problem}");
    let new = json!({ "name": "n", "role": "viewer", "tenant": "a/b" });
    let problem = site.ask(EVERY_TENANT, "POST", "/v1/tokens", new).await.refused(422, "INVALID_INPUT");
    assert!(problem["detail"].as_str().unwrap().starts_with("tenant: "), "{problem}");
    site.ask("shop", "POST", "/v1/lifecycles", like_deploy("a/b", 1)).await.refused(422, "INVALID_INPUT");
    for path in ["/v1/schedules/shop%2Fa%2Fb", "/v1/schedules/a%2Fb"] {
        let answer = site.ask("shop", "PUT", path, rollup()).await;
        assert!([404, 422].contains(&answer.status), "{path}: {}", answer.text);
    }
    let body = json!({ "definition": { "name": "a/b", "cadence": "1m", "exec": ["true"] } });
    site.ask(EVERY_TENANT, "PUT", "/v1/schedules/a%2Fb", body).await.refused(422, "INVALID_INPUT");
}

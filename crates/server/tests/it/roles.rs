//! Every route, for every role, for a foreign tenant and for nobody.

use std::time::Duration;

use serde_json::{Value, json};
use waypost_kernel::Span;
use waypost_server::{Options, Rate};
use waypost_store::{Database, EVERY_TENANT, NewToken, Secret, TokenChange, Who};

use crate::support::{Answer, On, Server, open, send, with_body};

/// By hand: what the table of routes says is held to this.
const VIEWER: &[&str] = &[
    "GET /metrics",
    "GET /v1/changes",
    "GET /v1/clock",
    "GET /v1/events",
    "GET /v1/events/last",
    "GET /v1/events/stream",
    "GET /v1/executions",
    "GET /v1/executions/{run_id}",
    "GET /v1/lifecycles",
    "GET /v1/lifecycles/{name}",
    "GET /v1/playbooks",
    "GET /v1/playbooks/{name}",
    "GET /v1/queues",
    "GET /v1/runs",
    "GET /v1/runs/{run_id}",
    "GET /v1/runs/{run_id}/events",
    "GET /v1/runs/{run_id}/items",
    "GET /v1/schedules",
    "GET /v1/schedules/{schedule}",
    "GET /v1/schedules/{schedule}/history",
    "GET /v1/schedules/{schedule}/next",
    "GET /v1/schedules/{schedule}/scopes",
    "GET /v1/stats",
    "GET /v1/workers",
];
const OPERATOR: &[&str] = &[
    "POST /v1/runs",
    "POST /v1/runs/batch",
    "POST /v1/runs/dry-run",
    "POST /v1/runs/{run_id}/replay",
    "POST /v1/runs/{run_id}/{command}",
    "POST /v1/queues/{queue}/pause",
    "POST /v1/queues/{queue}/resume",
    "PUT /v1/queues/{queue}/limit",
    "PUT /v1/keys/{key}/limit",
    "PUT /v1/schedules/{schedule}",
    "POST /v1/schedules/{schedule}/pause",
    "POST /v1/schedules/{schedule}/resume",
    "POST /v1/schedules/{schedule}/trigger",
    "POST /v1/schedules/{schedule}/backfill",
];
const WORKER: &[&str] = &[
    "DELETE /v1/workers/{worker}",
    "POST /v1/workers",
    "POST /v1/claims",
    "POST /v1/playbooks",
    "POST /v1/runs/{run_id}/claim",
    "POST /v1/runs/{run_id}/heartbeat",
    "POST /v1/runs/{run_id}/events",
    "POST /v1/runs/{run_id}/items",
    "POST /v1/runs/{run_id}/finish",
    "POST /v1/runs/{run_id}/release",
    "POST /v1/runs/{run_id}/require-cleanup",
    "POST /v1/runs/{run_id}/owe",
    "POST /v1/heartbeats",
    "POST /v1/events",
    "POST /v1/finishes",
];
const ADMIN: &[&str] = &[
    "DELETE /v1/schedules/{schedule}",
    "POST /v1/lifecycles",
    "POST /v1/tokens",
    "GET /v1/tokens",
    "POST /v1/tokens/{token_id}/revoke",
    "GET /v1/audit",
];
const ANYBODY: &[&str] =
    &["GET /livez", "GET /readyz", "GET /openapi.json", "GET /reference", "POST /webhooks/github"];

pub async fn with_tokens() -> Server {
    let (store, lives) = open(On::Sqlite).await;
    Server::with(store, lives, Options { needs_tokens: true, ..Options::default() }).await
}

pub async fn token(store: &dyn Database, role: &str, tenant: &str) -> String {
    lasting(store, role, tenant, None).await
}

/// One that counts no longer than this.
pub async fn lasting(store: &dyn Database, role: &str, tenant: &str, lasts: Option<Span>) -> String {
    let secret = Secret::fresh();
    let new = NewToken {
        id: secret.id.clone(),
        digest: secret.digest(),
        name: format!("{role}-of-{tenant}"),
        role: role.into(),
        tenant: tenant.into(),
        lasts,
        by: "test".into(),
    };
    // The audit log of the tests' tenants has what they do, and not how they were set up.
    store.change_token(TokenChange::Issue(new), Who::new("setup", "tests", None)).await.unwrap();
    secret.reveal()
}

pub async fn ask(server: &Server, token: &str, method: &str, path: &str, body: &Value) -> Answer {
    send(with_body(server.request(method, path).bearer_auth(token), body)).await
}

/// A route of the table with a request that fits its shape, made of the document: a route that comes later is asked too.
struct Asked {
    /// `POST /v1/runs`.
    route: String,
    method: String,
    path: String,
    body: Value,
    /// As the document says it.
    role: String,
}

impl Asked {
    fn all(run_id: &str, lease: &str) -> Vec<Asked> {
        let document = waypost_server::openapi();
        let mut found = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
                found.push(Asked {
                    route: format!("{} {path}", method.to_uppercase()),
                    method: method.to_uppercase(),
                    path: filled(path, run_id),
                    body: fitting(&document, schema, "", lease),
                    role: operation["x-waypost-role"].as_str().unwrap().to_owned(),
                });
            }
        }
        found
    }

    fn may(&self, role: &str) -> bool {
        self.role == "none" || self.role.replace(',', " ").split_whitespace().any(|word| word == role)
    }

    fn is_of_a_run(&self) -> bool {
        self.route.contains("{run_id}")
    }

    async fn by(&self, server: &Server, token: &str) -> Answer {
        ask(server, token, &self.method, &self.path, &self.body).await
    }
}

fn filled(path: &str, run_id: &str) -> String {
    let part = |part: &str| match part {
        "{run_id}" => run_id.to_owned(),
        "{command}" => "cancel".to_owned(),
        "{name}" => "deploy".to_owned(),
        part if part.starts_with('{') => "something".to_owned(),
        part => part.to_owned(),
    };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

/// What the schema asks for, and no more.
fn fitting(document: &Value, schema: &Value, name: &str, lease: &str) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        return fitting(document, document.pointer(&reference[1..]).unwrap(), name, lease);
    }
    match (name, schema["type"].as_str()) {
        ("lease_token", _) => json!(lease),
        ("lifecycle", _) => json!("deploy"),
        (_, Some("string")) if schema["enum"].is_array() => schema["enum"][0].clone(),
        (_, Some("string")) => json!("success"),
        (_, Some("integer")) => schema["minimum"].clone(),
        (_, Some("boolean")) => json!(true),
        (_, Some("array")) => json!([]),
        _ => {
            let needed = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let member =
                |name: &str| (name.to_owned(), fitting(document, &schema["properties"][name], name, lease));
            needed.map(member).collect()
        }
    }
}

const NO_LEASE: &str = "00000000000000000000000000000000";

#[test]
fn the_matrix_is_what_was_decided() {
    let by_hand = [
        (VIEWER, "viewer, operator, worker or admin"),
        (OPERATOR, "operator or admin"),
        (WORKER, "worker or admin"),
        (ADMIN, "admin"),
        (ANYBODY, "none"),
    ];
    let table = Asked::all("r", NO_LEASE);
    for (routes, role) in by_hand {
        for route in routes {
            let found = table.iter().find(|asked| asked.route == *route);
            assert_eq!(found.map(|asked| asked.role.as_str()), Some(role), "{route}");
        }
    }
    for asked in &table {
        assert!(
            asked.role != "none" || ANYBODY.contains(&asked.route.as_str()),
            "{} is for anybody",
            asked.route
        );
        // A webhook is signed instead.
        let is_signed = asked.route == "POST /webhooks/github";
        assert!(
            asked.method == "GET" || is_signed || !asked.may("viewer"),
            "{} changes something",
            asked.route
        );
    }
}

#[tokio::test]
async fn every_route_asks_for_its_role() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    let mut tokens = Vec::new();
    for role in ["viewer", "worker", "operator", "admin"] {
        tokens.push((role, token(&*server.store, role, "default").await));
    }
    let mut asked_for = 0;
    for at in 0..Asked::all("r", NO_LEASE).len() {
        let run =
            ask(&server, &admin, "POST", "/v1/runs", &json!({ "lifecycle": "deploy" })).await.expect(201);
        let asked = Asked::all(run["run_id"].as_str().unwrap(), NO_LEASE).remove(at);
        for (role, token) in &tokens {
            let answer = asked.by(&server, token).await;
            assert_eq!(answer.status != 403, asked.may(role), "{role} {}: {}", asked.route, answer.text);
            // Without an object store there is nothing that front ends could follow.
            let is_told = answer.status < 500 || answer.body["error"]["code"] == "UPSTREAM_UNAVAILABLE";
            assert!(is_told && answer.status != 401, "{role} {}: {}", asked.route, answer.text);
            asked_for += 1;
        }
        for nobody in [None, Some("wp_0123456789ab_0"), Some("Basic x")] {
            let mut request = with_body(server.request(&asked.method, &asked.path), &asked.body);
            if let Some(text) = nobody {
                request = request.header("authorization", format!("Bearer {text}"));
            }
            let answer = send(request).await;
            assert_eq!(
                answer.status == 401,
                asked.role != "none",
                "{nobody:?} {}: {}",
                asked.route,
                answer.text
            );
        }
    }
    let reference = waypost_server::reference();
    let routes = reference.lines().filter(|line| line.starts_with("## ") && line.contains(" /")).count();
    assert_eq!(asked_for, 4 * routes, "no route is left out");
}

#[tokio::test]
async fn a_foreign_tenant_sees_and_moves_nothing() {
    let server = with_tokens().await;
    let own = token(&*server.store, "admin", "tenant-a").await;
    let run = ask(&server, &own, "POST", "/v1/runs", &json!({ "lifecycle": "deploy" })).await.expect(201);
    let id = run["run_id"].as_str().unwrap();
    let claims =
        ask(&server, &own, "POST", "/v1/claims", &json!({ "worker": "worker-of-a" })).await.expect(200);
    let lease = claims["claims"][0]["lease"]["token"].as_str().unwrap();
    let foreign = token(&*server.store, "admin", "tenant-b").await;
    // Even with the lease's own token, which it cannot know.
    for asked in Asked::all(id, lease) {
        let answer = asked.by(&server, &foreign).await;
        for secret in ["tenant-a", "worker-of-a", lease] {
            assert!(!answer.text.contains(secret), "{}: {}", asked.route, answer.text);
        }
        if asked.is_of_a_run() {
            answer.refused(404, "NOT_FOUND");
        } else {
            assert!(!answer.text.contains(id), "{}: {}", asked.route, answer.text);
        }
    }
    let stream = format!("/v1/events/stream?run={id}");
    ask(&server, &foreign, "GET", &stream, &Value::Null).await.refused(404, "NOT_FOUND");
    let none = |path: &'static str| ask(&server, &foreign, "GET", path, &Value::Null);
    let stats = none("/v1/stats").await.expect(200);
    assert_eq!(stats["ended"], json!([]));
    let tokens = none("/v1/tokens").await.expect(200);
    assert!(
        tokens["tokens"].as_array().unwrap().iter().all(|token| token["tenant"] == "tenant-b"),
        "{tokens}"
    );
    let named = server.request("GET", "/v1/runs").bearer_auth(&foreign).header("waypost-tenant", "tenant-a");
    send(named).await.refused(403, "FORBIDDEN");
    let other = json!({ "name": "n", "role": "admin", "tenant": "tenant-a" });
    ask(&server, &foreign, "POST", "/v1/tokens", &other).await.refused(403, "FORBIDDEN");
    let still = ask(&server, &own, "GET", &format!("/v1/runs/{id}"), &Value::Null).await.expect(200);
    assert_eq!((&still["status"], &still["seq"]), (&json!("claimed"), &json!(2)));
}

#[tokio::test]
async fn a_token_of_all_tenants_names_one_or_works_for_all() {
    let server = with_tokens().await;
    let every = token(&*server.store, "admin", EVERY_TENANT).await;
    let start = with_body(server.request("POST", "/v1/runs"), &json!({ "lifecycle": "deploy" }));
    let run = send(start.bearer_auth(&every).header("waypost-tenant", "a")).await.expect(201);
    assert_eq!(run["tenant"], "a");
    let claims = ask(&server, &every, "POST", "/v1/claims", &json!({ "worker": "w" })).await.expect(200);
    let claim = &claims["claims"][0];
    assert_eq!(claim["run"]["run_id"], run["run_id"]);
    let path = format!("/v1/runs/{}/finish", run["run_id"].as_str().unwrap());
    let finish = json!({ "lease_token": claim["lease"]["token"], "status": "success" });
    ask(&server, &every, "POST", &path, &finish).await.expect(200);
}

#[tokio::test]
async fn commands_brought_along_are_for_admins() {
    let server = with_tokens().await;
    let carried = json!({ "lifecycle": "deploy", "embedded": { "command": ["true"] } });
    let operator = token(&*server.store, "operator", "default").await;
    let problem = ask(&server, &operator, "POST", "/v1/runs", &carried).await.refused(403, "FORBIDDEN");
    assert!(problem["detail"].as_str().unwrap().contains("admin"));
    let batch = json!({ "runs": [carried, { "lifecycle": "deploy" }] });
    let answers = ask(&server, &operator, "POST", "/v1/runs/batch", &batch).await.expect(200);
    assert_eq!(
        (&answers["runs"][0]["error"]["code"], &answers["runs"][1]["replayed"]),
        (&json!("FORBIDDEN"), &json!(false))
    );
    let admin = token(&*server.store, "admin", "default").await;
    ask(&server, &admin, "POST", "/v1/runs", &carried).await.expect(201);
}

#[tokio::test]
async fn what_people_do_is_kept_with_who_and_why() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    let operator = token(&*server.store, "operator", "default").await;
    let run =
        ask(&server, &operator, "POST", "/v1/runs", &json!({ "lifecycle": "deploy" })).await.expect(201);
    let id = run["run_id"].as_str().unwrap();
    let why = json!({ "reason": "wrong branch", "by": "ann" });
    ask(&server, &operator, "POST", &format!("/v1/runs/{id}/cancel"), &why).await.expect(200);
    ask(&server, &operator, "POST", "/v1/queues/q/pause", &why).await.expect(200);
    ask(&server, &operator, "POST", &format!("/v1/runs/{id}/promote"), &why)
        .await
        .refused(409, "INVALID_TRANSITION");
    let made = ask(&server, &admin, "POST", "/v1/tokens", &json!({ "name": "n", "role": "viewer" }))
        .await
        .expect(201);
    let made_id = made["row"]["id"].as_str().unwrap();
    ask(&server, &admin, "POST", &format!("/v1/tokens/{made_id}/revoke"), &json!({ "reason": "leaked" }))
        .await
        .expect(200);
    let audit = ask(&server, &admin, "GET", "/v1/audit", &Value::Null).await.expect(200);
    let told: Vec<String> = audit["audit"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| format!("{} {} {} {}", row["by"], row["action"], row["subject"], row["reason"]))
        .collect();
    let expected = [
        format!("\"operator-of-default/ann\" \"cancel\" \"{id}\" \"wrong branch\""),
        "\"operator-of-default/ann\" \"queue.pause\" \"q\" \"wrong branch\"".to_owned(),
        format!("\"admin-of-default\" \"token.create\" \"{made_id}\" null"),
        format!("\"admin-of-default\" \"token.revoke\" \"{made_id}\" \"leaked\""),
    ];
    assert_eq!(told, expected, "what was refused is not there");
    let events =
        ask(&server, &admin, "GET", &format!("/v1/runs/{id}/events"), &Value::Null).await.expect(200);
    assert_eq!(events["events"][1]["by"], "operator-of-default/ann");
    let secret = made["token"].as_str().unwrap().rsplit('_').next().unwrap();
    assert!(!audit.to_string().contains(secret));
}

#[tokio::test]
async fn a_revoked_token_is_refused_soon() {
    let server = with_tokens().await;
    let viewer = token(&*server.store, "viewer", "default").await;
    ask(&server, &viewer, "GET", "/v1/runs", &Value::Null).await.expect(200);
    for scheme in ["bearer", "BEARER"] {
        let request = server.request("GET", "/v1/runs").header("authorization", format!("{scheme} {viewer}"));
        send(request).await.expect(200);
    }
    let id = viewer.split('_').nth(1).unwrap().to_owned();
    server.store.change_token(TokenChange::Revoke(id), "test".into()).await.unwrap();
    let refused =
        async { while ask(&server, &viewer, "GET", "/v1/runs", &Value::Null).await.status != 401 {} };
    tokio::time::timeout(Duration::from_secs(20), refused).await.expect("within 2 s and some");
}

// proves U13
#[tokio::test]
async fn an_expired_token_is_refused_with_its_end_and_its_last_use_is_kept_by_the_minute() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let (store, lives) = open(on).await;
        let server = Server::with(store, lives, Options { needs_tokens: true, ..Options::default() }).await;
        let admin = token(&*server.store, "admin", "default").await;
        let body = json!({ "name": "ci", "role": "viewer", "expires_in_ms": 3_600_000 });
        let made = ask(&server, &admin, "POST", "/v1/tokens", &body).await.expect(201);
        let (viewer, id) = (made["token"].as_str().unwrap(), made["row"]["id"].as_str().unwrap());
        assert!(made["row"]["expires_at"].is_string() && made["row"]["last_used_at"].is_null(), "{made}");
        ask(&server, viewer, "GET", "/v1/runs", &Value::Null).await.expect(200);
        let used = async || server.store.tokens(Some(id.to_owned())).await.unwrap()[0].last_used_at;
        let soon = Duration::from_secs(20);
        let noted = async { while used().await.is_none() {} };
        tokio::time::timeout(soon, noted).await.expect("it was used");
        let first = used().await;
        for _ in 0..20 {
            ask(&server, viewer, "GET", "/v1/runs", &Value::Null).await.expect(200);
        }
        server.store.token_used(id.to_owned()).await.unwrap();
        assert_eq!(used().await, first, "one write a minute");
        server.store.advance_clock(Span::from_seconds(3_601)).await.unwrap();
        let expired = async {
            loop {
                let answer = ask(&server, viewer, "GET", "/v1/runs", &Value::Null).await;
                if answer.status == 401 {
                    break answer;
                }
            }
        };
        let expired = tokio::time::timeout(soon, expired).await.expect("within 2 s and some");
        assert!(expired.text.contains("the token expired at 20"), "{}", expired.text);
        let listed = ask(&server, &admin, "GET", "/v1/tokens", &Value::Null).await.expect(200);
        assert_eq!(listed["tokens"][1]["last_used_at"], json!(first.map(waypost_store::iso)));
    }
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", "default").await;
    for bad in [json!(0), json!(-1), json!("90d"), json!(i64::MAX)] {
        let body = json!({ "name": "ci", "role": "viewer", "expires_in_ms": bad });
        let refused = ask(&server, &admin, "POST", "/v1/tokens", &body).await;
        assert!(refused.status == 422 && refused.text.contains("expires_in_ms"), "{bad}: {}", refused.text);
    }
}

#[tokio::test]
async fn a_token_has_a_rate() {
    let (store, lives) = open(On::Memory).await;
    let rate = Rate { per_second: 1, burst: 3 };
    let server = Server::with(store, lives, Options { needs_tokens: true, rate, ..Options::default() }).await;
    let (one, other) =
        (token(&*server.store, "viewer", "default").await, token(&*server.store, "viewer", "default").await);
    for _ in 0..3 {
        ask(&server, &one, "GET", "/v1/clock", &Value::Null).await.expect(200);
    }
    let limited = ask(&server, &one, "GET", "/v1/clock", &Value::Null).await;
    assert_eq!(limited.header("retry-after"), "1");
    limited.refused(429, "RATE_LIMITED");
    ask(&server, &other, "GET", "/v1/clock", &Value::Null).await.expect(200);
}

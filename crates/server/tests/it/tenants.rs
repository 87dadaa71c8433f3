//! Queues, limits, workers and figures as tokens of different tenants see and change them.

use serde_json::{Value, json};
use waypost_server::Options;
use waypost_store::EVERY_TENANT;

use crate::roles::{ask, token};
use crate::support::{On, Server, open, send, with_body};

async fn with_tokens_on(on: On) -> Server {
    let (store, lives) = open(on).await;
    Server::with(store, lives, Options { needs_tokens: true, ..Options::default() }).await
}

/// Whoever asks, as the server of a test.
struct Caller<'s>(&'s Server, String);

impl Caller<'_> {
    async fn get(&self, path: &str) -> Value {
        ask(self.0, &self.1, "GET", path, &Value::Null).await.expect(200)
    }

    async fn page(&self, path: &str) -> String {
        ask(self.0, &self.1, "GET", path, &Value::Null).await.text
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let answer = ask(self.0, &self.1, "POST", path, &body).await;
        let status = answer.status;
        assert!(status < 300, "{path}: {}", answer.text);
        answer.expect(status)
    }

    async fn put(&self, path: &str, body: Value) {
        ask(self.0, &self.1, "PUT", path, &body).await.expect(204);
    }

    async fn start(&self, count: usize) {
        for _ in 0..count {
            self.post("/v1/runs", json!({ "lifecycle": "deploy" })).await;
        }
    }

    /// Whose runs a claim takes.
    async fn claim(&self, worker: &str, limit: usize) -> Vec<String> {
        let claims = self.post("/v1/claims", json!({ "worker": worker, "limit": limit })).await;
        let tenant = |claim: &Value| claim["run"]["tenant"].as_str().unwrap().to_owned();
        claims["claims"].as_array().unwrap().iter().map(tenant).collect()
    }

    /// The queues that it sees: tenant, name, what waits, whether it is paused.
    async fn queues(&self) -> Value {
        let seen = self.get("/v1/queues").await;
        let row = |row: &Value| json!([row["tenant"], row["queue"], row["ready"], !row["paused"].is_null()]);
        seen["queues"].as_array().unwrap().iter().map(row).collect()
    }

    async fn workers(&self) -> Value {
        let seen = self.get("/v1/workers").await;
        let row = |row: &Value| json!([row["name"], row["tenant"], row["busy"]]);
        seen["workers"].as_array().unwrap().iter().map(row).collect()
    }
}

async fn callers<'s>(server: &'s Server, role: &str) -> [Caller<'s>; 3] {
    let store = &*server.store;
    [
        Caller(server, token(store, role, "a").await),
        Caller(server, token(store, role, "b").await),
        Caller(server, token(store, role, EVERY_TENANT).await),
    ]
}

// proves U14
#[tokio::test(flavor = "multi_thread")]
async fn a_token_changes_and_sees_its_own_queues() {
    for on in [On::Sqlite, On::Postgres] {
        let server = with_tokens_on(on).await;
        let [a, b, every] = callers(&server, "admin").await;
        a.start(3).await;
        b.start(2).await;
        let paused = a.post("/v1/queues/default/pause", json!({ "reason": "upgrade" })).await;
        assert_eq!((&paused["tenant"], &paused["ready"]), (&json!("a"), &json!(3)), "{on:?}");
        assert_eq!(a.queues().await, json!([["a", "default", 3, true]]));
        assert_eq!(b.queues().await, json!([["b", "default", 2, false]]));
        assert_eq!(every.queues().await, json!([["a", "default", 3, true], ["b", "default", 2, false]]));
        assert_eq!(every.claim("w", 9).await, ["b", "b"], "a's pause is a's");
        a.post("/v1/queues/default/resume", json!({})).await;
        b.put("/v1/queues/default/limit", json!({ "at_most": 0 })).await;
        b.put("/v1/keys/k/limit", json!({ "at_most": 0 })).await;
        assert_eq!(every.claim("w", 9).await, ["a", "a", "a"], "b's limit is b's");
        let audit = |seen: Value| -> Vec<String> {
            let entries = seen["audit"].as_array().unwrap().iter();
            entries.map(|row| format!("{} {}", row["tenant"], row["action"]).replace('"', "")).collect()
        };
        assert_eq!(audit(a.get("/v1/audit").await), ["a queue.pause", "a queue.resume"]);
        assert_eq!(audit(b.get("/v1/audit").await), ["b queue.limit", "b key.limit"]);
        // Who is of all tenants names one, or means the default one.
        every.post("/v1/queues/default/pause", json!({})).await;
        let request = server.request("POST", "/v1/queues/default/pause").bearer_auth(&every.1);
        let named = send(with_body(request.header("waypost-tenant", "b"), &json!({}))).await.expect(200);
        assert_eq!(named["tenant"], "b");
        assert_eq!(a.queues().await, json!([["a", "default", 0, false]]), "{on:?}");
        let seen = every.queues().await;
        assert_eq!(seen[2], json!(["default", "default", 0, true]), "{seen}");
    }
}

// proves U14 and D12
#[tokio::test(flavor = "multi_thread")]
async fn figures_and_workers_are_a_tenants_own() {
    for on in [On::Sqlite, On::Postgres] {
        let server = with_tokens_on(on).await;
        let [a, b, every] = callers(&server, "admin").await;
        a.start(4).await;
        b.start(3).await;
        assert_eq!(a.claim("w", 1).await, ["a"]);
        assert_eq!(b.claim("w", 1).await, ["b"], "two tenants' workers of one name are two");
        every.claim("all", 2).await;
        assert_eq!(a.workers().await, json!([["all", "a", 1], ["w", "a", 1]]), "{on:?}");
        assert_eq!(b.workers().await, json!([["all", "b", 1], ["w", "b", 1]]));
        assert_eq!(every.workers().await, json!([["all", "*", 2], ["w", "a", 1], ["w", "b", 1]]));
        let stats = a.get("/v1/stats").await;
        assert_eq!((&stats["queue_depth"], stats["queues"].as_array().unwrap().len()), (&json!(2), 1));
        assert_eq!(every.get("/v1/stats").await["queue_depth"], 3);
        let own = a.page("/metrics").await;
        assert!(own.contains("waypost_queue_depth{queue=\"default\",tenant=\"a\"} 2"), "{own}");
        assert!(!own.contains("tenant=\"b\""), "{own}");
        let all = every.page("/metrics").await;
        for line in ["{queue=\"default\",tenant=\"a\"} 2", "{queue=\"default\",tenant=\"b\"} 1"] {
            assert!(all.contains(&format!("waypost_queue_depth{line}")), "{all}");
        }
    }
}

// proves X9 and U14
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_of_all_tenants_serves_them_in_turn() {
    for on in [On::Sqlite, On::Postgres] {
        let server = with_tokens_on(on).await;
        let [a, b, every] = callers(&server, "admin").await;
        a.start(40).await;
        b.start(5).await;
        let mut taken = Vec::new();
        for limit in [1, 1, 2, 6] {
            taken.extend(every.claim("w", limit).await);
        }
        let count = |tenant: &str| taken.iter().filter(|it| *it == tenant).count();
        assert_eq!((count("a"), count("b")), (5, 5), "{on:?}: {taken:?}");
        assert_eq!(b.claim("w", 9).await, [""; 0]);
    }
}

//! Lists show what they are asked for, and no page is larger than it may be.

use std::collections::BTreeSet;
use std::sync::Mutex;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use waypost_server::Options;
use waypost_store::{EVERY_TENANT, NewRun, PAGE_BYTES};

use crate::roles::{ask, token, with_tokens};
use crate::support::{On, Server, open};

const PARTS: [&str; 4] = ["input", "metadata", "details", "carried"];

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_large_parts_only_if_it_is_asked_for_them() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let made = server
            .start_with(json!({
                "input": { "a": 1 }, "metadata": { "b": 2 }, "details": { "c": 3 },
                "embedded": { "command": ["true"] }, "title": "what it is",
            }))
            .await;
        let first = async |query: &str| -> Value {
            server.get(&format!("/v1/runs?{query}")).await.expect(200)["runs"][0].take()
        };
        let lean = first("").await;
        assert!(PARTS.iter().all(|part| lean.get(part).is_none()), "{on:?}: {lean}");
        assert_eq!((&lean["run_id"], &lean["title"]), (&made["run_id"], &json!("what it is")));
        // They are looked for in metadata and details: without those nobody knows.
        assert!(
            first("").await.get("artifacts").is_none()
                && first("include=metadata").await.get("artifacts").is_none()
        );
        let all = first("include=input,metadata,details,carried").await;
        assert!(all["artifacts"].is_array(), "{all}");
        for part in PARTS {
            assert_eq!(all[part], made[part], "{on:?}: {part}");
            let one = first(&format!("include={part}")).await;
            assert_eq!(one[part], made[part], "{on:?}: {part}");
            assert!(PARTS.iter().all(|other| *other == part || one.get(other).is_none()), "{on:?}: {one}");
        }
        let problem = server.get("/v1/runs?include=input,all").await.refused(400, "INVALID_QUERY");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("\"all\" cannot be included; allowed: input, metadata"), "{detail}");
        let mut shown =
            server.get(&format!("/v1/runs/{}", made["run_id"].as_str().unwrap())).await.expect(200);
        assert_eq!(
            shown["waiting"]["reason"], "no_worker",
            "whoever asks for a run is told why it waits: {shown}"
        );
        assert_eq!(shown["queue_position"], 1, "and where it stands in line");
        for member in ["waiting", "queue_position"] {
            shown.as_object_mut().unwrap().remove(member);
        }
        assert_eq!(shown, made, "one run is shown as a whole");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_runs_is_short_and_leads_on() {
    const RUNS: usize = 9;
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let input = json!("x".repeat(1_000_000));
        for _ in 0..RUNS {
            let new = NewRun {
                lifecycle: "deploy".into(),
                input: input.clone(),
                metadata: [("m".to_owned(), input.clone())].into_iter().collect(),
                ..NewRun::default()
            };
            server.store.enqueue(vec![new]).await.unwrap().remove(0).unwrap();
        }
        let lean = server.get("/v1/runs?limit=500").await;
        assert!(lean.text.len() < 100_000 && lean.body["runs"].as_array().unwrap().len() == RUNS);
        let (mut path, mut seen) = ("/v1/runs?limit=500&include=input,metadata".to_owned(), 0);
        loop {
            let page = server.get(&path).await;
            assert!(page.text.len() <= PAGE_BYTES, "{on:?}: {} bytes", page.text.len());
            let link = page.header("link").to_owned();
            seen += page.expect(200)["runs"].as_array().unwrap().len();
            let Some(next) = link.strip_prefix('<') else { break };
            path = next.strip_suffix(">; rel=\"next\"").unwrap().to_owned();
        }
        assert_eq!(seen, RUNS, "{on:?}");
        if matches!(on, On::Memory) {
            continue;
        }
        // What runs were born with is in the feed too.
        let (mut after, mut seen) = (0, 0);
        loop {
            let page = server.get(&format!("/v1/events?after={after}&limit=500")).await;
            assert!(page.text.len() <= 2 * PAGE_BYTES + 1_100_000, "{on:?}: {} bytes", page.text.len());
            let page = page.expect(200);
            let count = page["events"].as_array().unwrap().len();
            if count == 0 {
                break;
            }
            seen += count;
            after = page["next_after"].as_u64().unwrap();
        }
        assert_eq!(seen, RUNS, "{on:?}");
    }
}

#[tokio::test]
async fn workers_are_listed_page_by_page_with_their_queues() {
    let server = Server::new().await;
    let queues: Vec<String> = (0..100).map(|at| format!("{at}{}", "q".repeat(240))).collect();
    for at in 0..5 {
        server.post("/v1/claims", json!({ "worker": format!("w-{at}"), "queues": queues })).await.expect(200);
    }
    let first = server.get("/v1/workers?limit=3").await.expect(200);
    assert_eq!(first["workers"][0]["queues"].as_array().unwrap().len(), 100);
    assert_eq!((first["workers"].as_array().unwrap().len(), &first["next_cursor"]), (3, &json!("w-2/*")));
    let rest = server.get("/v1/workers?limit=3&cursor=w-2/*").await.expect(200);
    let names: Vec<&Value> = rest["workers"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    assert_eq!((names, &rest["next_cursor"]), (vec![&json!("w-3"), &json!("w-4")], &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_another_tenant_is_no_parent_and_is_not_repeated() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, lives) = open(on).await;
        let server = Server::with(store, lives, Options { needs_tokens: true, ..Options::default() }).await;
        let operator = token(&*server.store, "operator", "default").await;
        let new =
            |tenant: &str| NewRun { tenant: tenant.into(), lifecycle: "deploy".into(), ..NewRun::default() };
        let foreign = server.store.enqueue(vec![new("a")]).await.unwrap().remove(0).unwrap();
        let own = server.store.enqueue(vec![new("default")]).await.unwrap().remove(0).unwrap();
        for field in ["parent_run_id", "retry_of"] {
            let body = |id: &str| json!({ "lifecycle": "deploy", field: id });
            let post = |path: &'static str, body: Value| {
                let (server, operator) = (&server, &operator);
                async move { ask(server, operator, "POST", path, &body).await }
            };
            let refused = post("/v1/runs", body(foreign.run.id())).await.refused(422, "INVALID_INPUT");
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.starts_with(field) && detail.contains("there is no run"), "{on:?}: {detail}");
            let unknown = "run-01890a5d-ac96-774b-bcce-b302099a8057";
            let same = post("/v1/runs", body(unknown)).await.refused(422, "INVALID_INPUT");
            assert_eq!(same["detail"].as_str().unwrap().replace(unknown, foreign.run.id()), detail);
            post("/v1/runs", body(own.run.id())).await.expect(201);
            let batch = json!({ "runs": [body(foreign.run.id()), body(own.run.id())] });
            let made = post("/v1/runs/batch", batch).await.expect(200);
            assert_eq!(made["runs"][0]["error"]["code"], "INVALID_INPUT");
            assert_eq!(made["runs"][1]["replayed"], false);
        }
    }
}

#[tokio::test]
async fn the_log_names_the_token_beside_whom_it_speaks_for() {
    let server = with_tokens().await;
    let admin = token(&*server.store, "admin", EVERY_TENANT).await;
    ask(&server, &admin, "POST", "/v1/runs", &json!({ "lifecycle": "deploy" })).await.expect(201);
    let worker = token(&*server.store, "worker", "default").await;
    let claims = ask(&server, &worker, "POST", "/v1/claims", &json!({ "worker": "w" })).await.expect(200);
    let path = format!("/v1/runs/{}", claims["claims"][0]["run"]["run_id"].as_str().unwrap());
    let lease = &claims["claims"][0]["lease"]["token"];
    let event = json!({ "lease_token": lease, "message": "hello", "by": "a-admin" });
    ask(&server, &worker, "POST", &format!("{path}/events"), &event).await.expect(201);
    let finish = json!({ "lease_token": lease, "status": "success", "by": "a-admin" });
    ask(&server, &worker, "POST", &format!("{path}/finish"), &finish).await.expect(200);
    let events = ask(&server, &admin, "GET", &format!("{path}/events"), &Value::Null).await.expect(200);
    let by: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .skip(2)
        .map(|event| event["by"].as_str().unwrap())
        .collect();
    assert_eq!(by, ["worker-of-default/a-admin", "worker-of-default/a-admin"]);
}

/// proves X3
#[tokio::test(flavor = "multi_thread")]
async fn a_second_finish_is_the_first_one_or_refused() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        server.start().await;
        let (id, lease) = server.claim("w").await;
        let finish = async |metadata: Value| {
            let body = json!({ "lease_token": lease, "status": "success", "metadata": metadata });
            server.post(&format!("/v1/runs/{id}/finish"), body).await
        };
        finish(json!({ "a": 1, "large": 1e16 })).await.expect(200);
        // The database may spell a number otherwise.
        let shown = async || {
            let mut shown = server.get(&format!("/v1/runs/{id}")).await.expect(200);
            assert_eq!(shown.as_object_mut().unwrap().remove("waiting"), Some(Value::Null), "it has ended");
            shown
        };
        let first = shown().await;
        assert_eq!(finish(json!({ "a": 1, "large": 1e16 })).await.expect(200), first, "{on:?}");
        assert_eq!(finish(json!({})).await.expect(200), first);
        let problem = finish(json!({ "a": 2 })).await.refused(409, "INVALID_TRANSITION");
        assert!(problem["detail"].as_str().unwrap().contains("with other metadata"), "{problem}");
        assert_eq!(shown().await, first);
    }
}

/// Runs of one key, and who claims them: enough that claims and looks meet.
const LINE: usize = 30;
const CLAIMERS: usize = 3;

// proves A7
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_place_in_line_is_right_at_every_look_while_workers_claim() {
    for on in [On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        let mut line = Vec::new();
        for _ in 0..LINE {
            let made = server.start_with(json!({ "concurrency_key": "agent/violin" })).await;
            line.push(made["run_id"].as_str().unwrap().to_owned());
        }
        let claimed: Mutex<BTreeSet<usize>> = Mutex::default();
        let known = || claimed.lock().unwrap().clone();
        // Each look lets one more run be claimed beside it, so that there are as many looks as claims.
        let may_claim = Semaphore::new(0);
        let claim = async |worker: String| {
            while let Ok(permit) = may_claim.acquire().await {
                permit.forget();
                let taken = loop {
                    let ask = json!({ "worker": worker, "start": true });
                    let taken = server.post("/v1/claims", ask).await.expect(200);
                    // The key is another claimer's for a moment.
                    match taken["claims"].get(0) {
                        Some(taken) => break taken.clone(),
                        None if known().len() == LINE => return,
                        None => tokio::task::yield_now().await,
                    }
                };
                let at = line.iter().position(|id| taken["run"]["run_id"] == id.as_str()).unwrap();
                assert!(claimed.lock().unwrap().insert(at), "{on:?}: {at} was taken before");
                let held = json!({ "run_id": line[at], "lease_token": taken["lease"]["token"], "status": "success" });
                server.post("/v1/finishes", json!({ "finishes": [held] })).await.expect(200);
            }
        };
        // Of one claim at most nobody knows yet, since the key is one run's.
        let look = async || {
            let mut looks = 0;
            while known().len() < LINE {
                for (at, id) in line.iter().enumerate().step_by(4) {
                    let ahead = |gone: &BTreeSet<usize>| (0..=at).filter(|it| !gone.contains(it)).count();
                    let most = ahead(&known());
                    may_claim.add_permits(1);
                    let run = server.get(&format!("/v1/runs/{id}")).await.expect(200);
                    let least = ahead(&known()).saturating_sub(1);
                    match run["queue_position"].as_u64() {
                        None => assert_ne!(run["status"], "queued", "{on:?}: {at}"),
                        Some(place) => {
                            let place = usize::try_from(place).unwrap();
                            let words = format!("{on:?}: {at} is at {place}, of {least} to {most}");
                            assert!(place >= 1 && (least..=most).contains(&place), "{words}");
                        }
                    }
                    looks += 1;
                }
            }
            may_claim.close();
            looks
        };
        let claims = futures_util::future::join_all((0..CLAIMERS).map(|at| claim(format!("w{at}"))));
        let (looks, _) = tokio::join!(look(), claims);
        assert!(looks >= LINE, "the line is looked at while it moves: {looks}");
    }
}

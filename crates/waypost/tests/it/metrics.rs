//! What `/metrics` of a real server says, held to what was done to it.

use std::cell::RefCell;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::post;
use crate::support::{Running, Shop, eventually, surround};

const SOON: Duration = Duration::from_secs(60);

/// The value of one series.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.trim().parse().ok())
}

#[track_caller]
fn shows(page: &str, expected: &[(&str, f64)]) {
    for (series, number) in expected {
        assert_eq!(value(page, series), Some(*number), "{series}\n{page}");
    }
}

fn streaming(shop: &Shop, url: &str) -> Running {
    let mut curl = Command::new("curl");
    surround(&mut curl, shop.folder());
    curl.args(["-sN", "--noproxy", "*"]).arg(format!("{url}/v1/events/stream")).stdout(Stdio::null());
    Running(curl.spawn().unwrap())
}

/// A run of `deploy` in a queue, worked to this end; gives whether the finish was taken.
fn work(url: &str, status: &str) {
    let ask = |path: &str, body| post(url, path, &[], &body).unwrap().body;
    ask("/v1/runs", json!({ "lifecycle": "deploy", "queue": "q" }));
    let claims = ask("/v1/claims", json!({ "worker": "w", "queues": ["q"] }));
    let (run, token) = (&claims["claims"][0]["run"]["run_id"], &claims["claims"][0]["lease"]["token"]);
    let path = |verb: &str| format!("/v1/runs/{}/{verb}", run.as_str().unwrap());
    ask(&path("heartbeat"), json!({ "lease_token": token }));
    ask(&path("heartbeat"), json!({ "lease_token": "0".repeat(32) }));
    ask(&path("events"), json!({ "lease_token": token, "message": "begun" }));
    ask(&path("finish"), json!({ "lease_token": token, "status": status }));
}

/// The loops ask for connections too, at their own times.
fn pool_is_sound(look: &dyn Fn() -> String, pool: &str, most: f64) {
    let number =
        |page: &str, name: &str| value(page, &format!("waypost_store_pool_{name}{{pool=\"{pool}\"}}"));
    eventually("nobody waits for a connection", SOON, || number(&look(), "waiting") == Some(0.0));
    let page = look();
    assert_eq!(number(&page, "limit"), Some(most), "{pool}\n{page}");
    assert!(
        number(&page, "size") <= Some(most) && number(&page, "idle") <= number(&page, "size"),
        "{pool}\n{page}"
    );
}

// proves D12
#[test]
fn every_figure_is_there_and_right() {
    for (shop, pools) in [
        (Shop::new(), [("writer", 1.0), ("readers", 2.0)]),
        (Shop::on_postgres(), [("work", 10.0), ("heartbeats", 2.0)]),
    ] {
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        for status in ["success", "success", "success", "failed"] {
            work(&url, status);
        }
        for more in [json!({ "ttl_ms": 1 }), json!({ "queue": "q" }), json!({ "queue": "q" })] {
            let mut run = json!({ "lifecycle": "deploy" });
            run.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            post(&url, "/v1/runs", &[], &run).unwrap();
        }
        post(&url, "/v1/claims", &[], &json!({ "worker": "w2", "queues": ["q"] })).unwrap();
        let look = || shop.page(&url, "/metrics");
        let is = |series: &str, number: f64| value(&look(), series) == Some(number);
        eventually("one run's time is over", SOON, || is("waypost_runs_swept_total", 1.0));
        let stream = streaming(&shop, &url);
        eventually("a client follows", SOON, || is("waypost_sse_clients", 1.0));
        drop(stream);
        eventually("it is gone", SOON, || is("waypost_sse_clients", 0.0));
        let page = look();
        shows(
            &page,
            &[
                // D12's four, beside the durations below.
                ("waypost_queue_depth{queue=\"q\"}", 1.0),
                ("waypost_success_ratio_24h", 0.75),
                // 1 held; each of 2 workers asked for 1.
                ("waypost_worker_utilisation_ratio", 1.0 / 3.0),
                ("waypost_queue_held{queue=\"q\"}", 1.0),
                ("waypost_queue_scheduled{queue=\"q\"}", 0.0),
                ("waypost_workers", 2.0),
                ("waypost_runs_enqueued_total", 7.0),
                ("waypost_claim_requests_total", 5.0),
                ("waypost_runs_claimed_total", 5.0),
                ("waypost_claim_duration_seconds_count", 5.0),
                ("waypost_heartbeats_total", 4.0),
                ("waypost_leases_lost_total", 4.0),
                (
                    "waypost_runs_finished_total{lifecycle=\"deploy\",status=\"success\",queue=\"q\",playbook=\"\"}",
                    3.0,
                ),
                (
                    "waypost_runs_finished_total{lifecycle=\"deploy\",status=\"failed\",queue=\"q\",playbook=\"\"}",
                    1.0,
                ),
                ("waypost_runs_orphaned{queue=\"q\"}", 0.0),
                ("waypost_sse_resets_total", 0.0),
                ("waypost_store_up", 1.0),
                (&format!("waypost_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0),
            ],
        );
        for status in ["success", "failed"] {
            let series =
                format!("waypost_run_duration_mean_7d_seconds{{lifecycle=\"deploy\",status=\"{status}\"}}");
            assert!(value(&page, &series).is_some_and(|seconds| seconds < 60.0), "{series}\n{page}");
        }
        assert!(value(&page, "waypost_queue_oldest_age_seconds{queue=\"q\"}").is_some());
        assert!(value(&page, "waypost_sweeps_total").is_some_and(|sweeps| sweeps >= 1.0));
        for (pool, most) in pools {
            pool_is_sound(&look, pool, most);
        }
        assert!(page.ends_with("# EOF\n"));
    }
}

// proves D12: what the engine does for itself is no success of anybody's
#[test]
fn with_a_worker_the_figures_are_those_of_peoples_runs() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let (_server, url) = shop.serve(&["serve"]);
        let pruned =
            || shop.curl(&url, "/v1/executions?schedule=waypost.prune&status=SUCCESS")["executions"].clone();
        eventually("the engine has pruned", SOON, || pruned().as_array().is_some_and(|all| !all.is_empty()));
        for status in ["success", "failed", "failed"] {
            work(&url, status);
        }
        let page = shop.page(&url, "/metrics");
        shows(&page, &[("waypost_success_ratio_24h", 1.0 / 3.0)]);
        assert_eq!(shop.curl(&url, "/v1/stats")["success_rate_24h"], json!(1.0 / 3.0));
        let mut remote = shop.command(&["stats", "-o", "json"]);
        let remote = remote.env("WAYPOST_URL", &url).output().unwrap();
        let remote: Value = serde_json::from_slice(&remote.stdout).unwrap();
        let mut local = shop.json(&["stats"]);
        for figures in [&remote, &local] {
            assert_eq!(
                (&figures["success_rate_24h"], &figures["queue_depth"]),
                (&json!(1.0 / 3.0), &json!(0))
            );
            let failed =
                figures["ended"].as_array().unwrap().iter().find(|it| it["status"] == "failed").unwrap();
            assert_eq!((&failed["in_24h"], &failed["lifecycle"]), (&json!(2), &json!("deploy")));
            assert!(failed["mean_duration_ms"].is_u64(), "{figures}");
        }
        let workers = local["workers"].take();
        assert!(workers.as_array().unwrap().iter().all(|it| it["active_runs"] == 0), "{workers}");
        let words = shop.ok(&["stats"]);
        assert!(
            words.contains("queue depth: 0\nsuccess rate over 24 hours: 33.33 %\nactive runs: 0"),
            "{words}"
        );
    }
}

/// More requests than there are ways, while something keeps the database from answering: that is seen, and passes.
#[track_caller]
fn crowds(
    shop: &Shop,
    pool: &str,
    (path, body, expected): (&str, &Value, u16),
    stuck: impl FnOnce(&dyn Fn()),
) {
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let waiting = format!("waypost_store_pool_waiting{{pool=\"{pool}\"}}");
    let page = || shop.page(&url, "/metrics");
    let ask = || post(&url, path, &[], body).unwrap().status;
    thread::scope(|scope| {
        let (clients, ask) = (RefCell::new(Vec::new()), &ask);
        stuck(&|| {
            clients.borrow_mut().extend((0..20).map(|_| scope.spawn(ask)));
            let idle = format!("waypost_store_pool_idle{{pool=\"{pool}\"}}");
            eventually("some wait, and none is idle", SOON, || {
                let page = page();
                value(&page, &waiting) > Some(0.0) && value(&page, &idle) == Some(0.0)
            });
        });
        for client in clients.into_inner() {
            // Who waits too long for a connection is told so.
            assert!([expected, 503].contains(&client.join().unwrap()));
        }
    });
    shows(&page(), &[(&waiting, 0.0), ("waypost_store_up", 1.0)]);
}

#[test]
fn requests_that_wait_for_the_writer_are_counted() {
    let shop = Shop::new();
    crowds(&shop, "writer", ("/v1/runs", &json!({ "lifecycle": "deploy" }), 201), |meanwhile| {
        let other = rusqlite::Connection::open(shop.database()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        meanwhile();
        other.execute_batch("ROLLBACK").unwrap();
    });
    assert_eq!(shop.runs().len(), 20);
}

#[test]
fn requests_that_wait_for_a_connection_are_counted() {
    let shop = Shop::on_postgres();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    crowds(&shop, "work", ("/v1/runs/nothing/cancel", &json!({}), 404), |meanwhile| {
        let (other, connection) =
            runtime.block_on(tokio_postgres::connect(&shop.database_url(), tokio_postgres::NoTls)).unwrap();
        runtime.spawn(connection);
        runtime.block_on(other.batch_execute("BEGIN; LOCK TABLE waypost.runs")).unwrap();
        meanwhile();
        runtime.block_on(other.batch_execute("ROLLBACK")).unwrap();
    });
}

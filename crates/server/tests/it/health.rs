//! Whether it lives, what it counts, and how it ends.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use waypost_worker::Stage;

use crate::support::{On, Server};

#[tokio::test]
async fn it_says_that_it_lives_and_is_ready() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        assert_eq!(server.get("/livez").await.expect(200)["status"], "ok");
        assert_eq!(server.get("/readyz").await.expect(200)["status"], "ok");
        assert!(server.get("/v1/clock").await.expect(200)["now"].as_str().unwrap().ends_with('Z'));
    }
}

// proves D12
#[tokio::test]
async fn the_four_figures_are_in_stats_and_metrics() {
    for on in [On::Memory, On::Sqlite, On::Postgres] {
        let server = Server::on(on).await;
        for status in ["success", "success", "success", "failed"] {
            server.start().await;
            let (id, token) = server.claim("w").await;
            let finish = json!({ "lease_token": token, "status": status });
            server.post(&format!("/v1/runs/{id}/finish"), finish).await.expect(200);
        }
        server.start().await;
        let stats = server.get("/v1/stats").await.expect(200);
        assert_eq!((&stats["queue_depth"], &stats["success_rate_24h"]), (&json!(1), &json!(0.75)), "{on:?}");
        let ended = &stats["ended"];
        assert_eq!((&ended[0]["status"], &ended[0]["in_7d"]), (&json!("failed"), &json!(1)), "{ended}");
        assert_eq!((&ended[1]["status"], &ended[1]["in_24h"]), (&json!("success"), &json!(3)), "{ended}");
        assert!(ended[1]["mean_duration_ms"].is_u64());
        let page = server.get("/metrics").await;
        assert!(page.header("content-type").starts_with("application/openmetrics-text"));
        for line in [
            "waypost_queue_depth{queue=\"default\"} 1",
            "waypost_success_ratio_24h 0.75",
            "waypost_run_duration_mean_7d_seconds{lifecycle=\"deploy\",status=\"success\"}",
            "waypost_worker_utilisation_ratio 0.0",
            "waypost_runs_enqueued_total 5",
            "waypost_runs_claimed_total 4",
            "waypost_runs_finished_total{lifecycle=\"deploy\",status=\"success\",queue=\"default\",playbook=\"\"} 3",
            "waypost_build_info{version=",
            "waypost_http_requests_total{method=\"POST\",route=\"/v1/runs\",status=\"201\"} 5",
            "waypost_claim_duration_seconds_count 4",
            "# EOF",
        ] {
            assert!(page.text.contains(line), "{line}\n{}", page.text);
        }
    }
}

/// Whoever may start runs names queues: the page has the first 200 of them by name, and one line for all others.
#[tokio::test]
async fn many_queues_do_not_make_a_long_page_of_metrics() {
    let server = Server::on(On::Memory).await;
    let run = |at: usize| waypost_store::NewRun {
        lifecycle: "deploy".into(),
        queue: format!("q{at:04}"),
        ..waypost_store::NewRun::default()
    };
    for made in server.store.enqueue((0..1_000).map(run).collect()).await.unwrap() {
        made.unwrap();
    }
    let page = server.get("/metrics").await.text;
    let depths: Vec<&str> = page.lines().filter(|line| line.starts_with("waypost_queue_depth{")).collect();
    assert_eq!(depths.len(), 201, "{depths:?}");
    assert!(depths.contains(&"waypost_queue_depth{queue=\"q0199\"} 1"));
    assert!(depths.contains(&"waypost_queue_depth{queue=\"(others)\"} 800"), "{depths:?}");
    assert!(page.contains("\nwaypost_queues 1000\n"), "{page}");
}

#[tokio::test]
async fn a_server_that_ends_answers_what_is_under_way() {
    let server = Server::new().await;
    server.get("/livez").await.expect(200);
    let wait = json!({ "worker": "w", "wait_ms": 60_000 });
    let waiting = server.post("/v1/claims", wait);
    let stop = async {
        let seen = async { while server.get("/v1/workers").await.expect(200)["workers"] == json!([]) {} };
        timeout(Duration::from_secs(20), seen).await.unwrap();
        server.stage.send_replace(Stage::Draining);
    };
    let (answered, ()) = tokio::join!(waiting, stop);
    assert_eq!(answered.expect(200)["claims"], json!([]));
    timeout(Duration::from_secs(20), server.serving).await.expect("it ends").unwrap();
}

//! Executions and scopes that are requests.

use serde_json::json;

use super::stage::Stage;
use crate::http::server::{Said, Server};

const ONCE: &str = "cron = \"0 0 1 1 *\"\nfirst = \"latest\"\n";

// proves C7
#[tokio::test]
async fn a_request_that_takes_too_long_ends_by_the_limit_each_time() {
    const TRIES: usize = 12;
    let stage = Stage::new();
    let server = Server::start((0..TRIES).map(|_| Said::silence()).collect()).await;
    let ids: Vec<String> = (0..TRIES).map(|at| format!("shop{at}")).collect();
    let times = "run_timeout = \"200ms\"\nstale_timeout = \"20s\"\nheartbeat = \"1s\"\nmax_attempts = 1";
    let scopes = format!("scopes = {{ kind = \"shop\", ids = {} }}", json!(ids));
    stage.apply(&format!("{ONCE}{times}\n{scopes}\nhttp = {{ url = \"{}\" }}", server.url("/x"))).await;
    let mut scheduler = stage.scheduler("s1").await;
    stage.tick(&mut scheduler).await;
    let ends: Vec<_> = stage.executions().await.iter().map(|it| it.run.as_ref().unwrap().object()).collect();
    let codes: Vec<&str> = ends.iter().filter_map(|run| run["error_code"].as_str()).collect();
    assert_eq!(codes, ["run_timeout"; TRIES]);
}

fn listing(server: &Server) -> String {
    let ask = format!("{{ method = \"GET\", url = \"{}\" }}", server.url("/shops"));
    format!("{ONCE}scopes = {{ kind = \"shop\", http = {ask} }}\nexec = [\"true\"]")
}

/// Far above what a step's output may hold: all of them are listed.
#[tokio::test]
async fn a_long_list_of_scopes_is_read_in_full() {
    let ids: Vec<String> = (0..20_000).map(|at| format!("00000000-0000-4000-8000-{at:012}")).collect();
    let server = Server::start(vec![Said::json(200, &json!({ "ids": ids }).to_string())]).await;
    let stage = Stage::new();
    stage.apply(&listing(&server)).await;
    let mut scheduler = stage.scheduler("s1").await;
    scheduler.run_once().await.unwrap();
    scheduler.settle().await;
    assert_eq!(stage.store.scopes("job".into()).await.unwrap().len(), ids.len());
}

/// What an endpoint says in place of a list leaves the scopes as they are.
#[tokio::test]
async fn an_answer_that_is_no_list_changes_no_scope() {
    let many = json!((0..100_001).collect::<Vec<u32>>()).to_string();
    for said in [
        Said::json(200, &many),
        Said::json(200, "{\"shops\": []}"),
        Said::json(500, "[\"b\"]"),
        Said::json(200, &format!("[\"{}\"]", "x".repeat(33 * 1024 * 1024))),
    ] {
        let server = Server::start(vec![Said::json(200, "[\"a\"]"), said]).await;
        let stage = Stage::new();
        stage.apply(&listing(&server)).await;
        let mut scheduler = stage.scheduler("s1").await;
        for _ in 0..2 {
            scheduler.run_once().await.unwrap();
            scheduler.settle().await;
            stage.advance(61).await;
        }
        server.heard().await;
        server.heard().await;
        let scopes = stage.store.scopes("job".into()).await.unwrap();
        assert_eq!(scopes.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), ["a"]);
    }
}

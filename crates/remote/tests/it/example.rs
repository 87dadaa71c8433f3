//! The client of the examples, beside a worker.

use std::process::Command;

use waypost_store::{Claim, FinishWrite};

use crate::split;

#[tokio::test(flavor = "multi_thread")]
async fn the_client_starts_a_run_and_follows_it_to_its_end() {
    let (server, url, _lives) = split::serve().await;
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let client = tokio::task::spawn_blocking(move || {
        let args = ["run", "--quiet", "--locked", "--offline", "-p", "waypost-remote", "--example", "client"];
        Command::new(cargo).args(args).env("WAYPOST_URL", url).output().unwrap()
    });
    let claimed = loop {
        let claim =
            Claim { worker: "w".into(), queues: vec!["example".into()], limit: 1, ..Claim::default() };
        if let Some(claimed) = server.claim(claim).await.unwrap().pop() {
            break claimed;
        }
        assert!(!client.is_finished(), "the client ended early");
        server.changed(std::time::Duration::from_millis(100)).await;
    };
    let finish = FinishWrite {
        run_id: claimed.run.id().into(),
        token: Some(claimed.token),
        by: "w".into(),
        status: "success".into(),
        ..FinishWrite::default()
    };
    server.finish(vec![finish]).await.unwrap().remove(0).unwrap();
    let ran = client.await.unwrap();
    let out = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(
        ran.status.success() && out.contains("4 success"),
        "{out}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

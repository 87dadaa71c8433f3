//! A client in Rust: starts a run through a server, follows it, and prints what happened.
//!
//! `WAYPOST_URL=http://127.0.0.1:7070 cargo run -p waypost-remote --example client`

use std::time::Duration;

use serde_json::json;
use waypost_kernel::Phase;
use waypost_remote::RemoteStore;
use waypost_store::{NewRun, Result, Store};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::var("WAYPOST_URL").unwrap_or_else(|_| "http://127.0.0.1:7070".to_owned());
    let server = RemoteStore::open(&url, std::env::var("WAYPOST_TOKEN").ok().as_deref()).await?;
    let new = NewRun {
        lifecycle: "deploy".into(),
        queue: "example".into(),
        input: json!({ "steps": 2 }),
        by: "client".into(),
        ..NewRun::default()
    };
    let started = server.enqueue(vec![new]).await?.remove(0)?;
    let (tenant, id) = (started.run.tenant.clone(), started.run.id().to_owned());
    let mut seen = 0;
    loop {
        let run = server.run(tenant.clone(), id.clone()).await?;
        for event in server.events(id.clone(), seen, 100).await? {
            seen = event.seq;
            println!("{} {} {}", event.seq, event.to, event.message);
        }
        if run.phase() == Phase::Settled {
            return Ok(());
        }
        server.changed(Duration::from_secs(1)).await;
    }
}

//! A worker of your own, with handlers in Rust. Try it:
//!
//! ```sh
//! waypost run list                                    # makes ./.waypost
//! cargo run -p waypost-worker --example invoices -- .waypost/waypost.db
//! ```
//!
//! Heartbeats, cancellation, logging and shutdown are the worker's; a handler does its work and returns an Outcome.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::watch;
use waypost_kernel::request::Level;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{NewRun, Store};
use waypost_worker::{Context, Handlers, Options, Outcome, Stage, Worker};

/// Runs ask for it by the playbook's name.
async fn invoice(context: Context) -> Outcome {
    match bill(&context).await {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

/// Each step is done once. A worker that takes this run over gets the number from the first and goes on with the
/// second, under the same key.
async fn bill(context: &Context) -> Result<Outcome, Outcome> {
    let customer = context.input["customer"].as_str().unwrap_or("nobody").to_owned();
    let number = context.step("draw a number", |_key| async { Outcome::done_with(json!(1_001)) }).await?;
    let sent = context
        .step("send it", |key| async move {
            // An HTTP call would send `key` as its Idempotency-Key.
            Outcome::done_with(json!({ "to": customer, "key": key }))
        })
        .await?;
    context.note(Level::Info, "invoice sent", json!({ "number": number })).await;
    Ok(Outcome::done_with(json!({ "number": number, "sent": sent })))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let path = words.next().ok_or("the path of a database is missing")?;
    let store = Arc::new(SqliteStore::open(Path::new(&path))?);
    let run = NewRun {
        lifecycle: "job".to_owned(),
        playbook: Some("invoice".to_owned()),
        input: json!({ "customer": "Ann" }),
        ..NewRun::default()
    };
    for queued in store.enqueue(vec![run]).await? {
        println!("{}", queued?.run.id());
    }
    let handlers = Handlers::default().with("invoice", invoice);
    let worker = Worker::new(store, Options { handlers, guardian: None, ..Options::default() });
    if words.next().as_deref() == Some("--once") {
        worker.run_once().await?;
        return Ok(());
    }
    let (stop, shutdown) = watch::channel(Stage::Working);
    tokio::spawn(async move {
        // The first lets what is under way end, the second does not.
        for stage in [Stage::Draining, Stage::Now] {
            let _ = tokio::signal::ctrl_c().await;
            stop.send_replace(stage);
        }
    });
    worker.run(shutdown).await?;
    Ok(())
}

//! Pruning is itself such a job: SUCCESS 30 days, FAILED 90, and whatever else lifecycles say.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use waypost_kernel::Catalog;
use waypost_store::Database;

use super::file::parse;
use super::schedule::Schedule;
use crate::handler::{Context, Handler};
use crate::outcome::Outcome;

pub const NAME: &str = "waypost.prune";

/// Small, so that nobody waits long for the write lock.
const BATCH: usize = 500;

const TEXT: &str = r#"
[[schedule]]
name = "waypost.prune"
description = "Settled runs leave when their time is over, with their events."
cadence = "10m"
run_timeout = "9m"
stale_timeout = "12m"
max_attempts = 1
handler = "waypost.prune"
"#;

pub fn schedule(catalog: &Catalog) -> Option<Schedule> {
    let built_in = parse(TEXT, Path::new("built-in"), Path::new("/"), catalog);
    built_in.map_err(|problems| tracing::error!(%problems, "the built-in schedule")).ok()?.pop()
}

pub fn handler(store: Arc<dyn Database>) -> impl Handler {
    move |context: Context| {
        let store = store.clone();
        async move {
            let (mut runs, mut events) = (0, 0);
            loop {
                match store.prune(BATCH).await {
                    Ok(pruned) => {
                        (runs, events) = (runs + pruned.runs, events + pruned.events);
                        if !pruned.more {
                            break;
                        }
                    }
                    Err(error) => return Outcome::fail("PRUNE", &error.to_string()),
                }
                tokio::select! {
                    () = context.stopped() => break,
                    () = tokio::time::sleep(std::time::Duration::from_millis(60)) => {}
                }
            }
            Outcome { output: json!({ "rows_affected": runs, "events": events }), ..Outcome::done() }
        }
    }
}

//! A handler in Rust runs as a task of its own: a panic ends the try and not the worker.

use std::sync::Arc;

use super::{Answer, Try};
use crate::handler::{Context, Handler};
use crate::outcome::Outcome;

pub(super) async fn execute(it: &Try<'_>, handler: &dyn Handler) -> Option<Answer> {
    let durable = Arc::new(it.journal.durable(it.row));
    let context = Context {
        run_id: it.row.id().to_owned(),
        input: (*it.row.input).clone(),
        metadata: (*it.row.metadata).clone(),
        attempt: it.row.run.attempt,
        try_no: it.number,
        fence: it.lease.fence,
        idempotency_key: it.idempotency_key(),
        journal: it.journal.clone(),
        lease: it.lease.clone(),
        durable: durable.clone(),
    };
    let mut task = tokio::spawn(handler.handle(context));
    tokio::select! {
        biased;
        result = &mut task => {
            // What it panicked with is for the worker's own log, where the panic hook wrote it.
            durable.flush().await;
            let outcome = result.unwrap_or_else(|_| Outcome::fail("HANDLER_PANIC", "the handler panicked"));
            return Some(Answer { outcome: Some(Ok(outcome.cleaned())), ..Answer::default() });
        }
        () = it.stopped() => {}
    }
    tokio::select! {
        _ = &mut task => {}
        () = it.lease.kill_due(it.grace) => task.abort(),
    }
    None
}

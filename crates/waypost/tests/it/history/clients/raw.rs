//! SQL users who set a status by hand instead of claiming.

use std::sync::Arc;

use tokio_postgres::Row;

use super::super::record::{Answer, Ask, Granted};
use super::super::shared::Shared;
use super::sql::Session;

/// Deploy runs begin their ids so; a job's is a UUID, and other lifecycles have no table of their own.
const DEPLOY: &str = "run-";
const UUID_LENGTH: usize = 36;

pub async fn begin_by_hand(shared: Arc<Shared>, number: usize) {
    let mut session = Session::new(&shared, "hand", number);
    while !shared.is_over() {
        shared.rest(30 + session.dice.below(120)).await;
        let Some(run_id) = shared.some_run(&mut session.dice) else { continue };
        let sql = if run_id.starts_with(DEPLOY) {
            "UPDATE ops.runs SET status = 'claimed', claimed_by = $1 WHERE run_id = $2 AND status = 'queued' RETURNING run_id"
        } else if run_id.len() == UUID_LENGTH {
            "UPDATE ops.jobs SET status = 'running', claimed_by = $1 WHERE run_id = $2 AND status = 'pending' RETURNING run_id"
        } else {
            continue;
        };
        let number = session.number();
        let worker = format!("{}-{number}", session.name);
        let ask = Ask::Begin { worker: worker.clone(), run_id: run_id.clone() };
        let granted = |rows: &[Row]| {
            Answer::Claims(rows.iter().map(|row| Granted { run_id: row.get(0), fence: None }).collect())
        };
        let answer = session.ask(ask, sql, &[&worker, &run_id], granted).await;
        if matches!(answer, Answer::Claims(granted) if !granted.is_empty()) {
            shared.rest(session.dice.below(300)).await;
            end_by_hand(&mut session, &worker, &run_id).await;
        }
    }
}

/// One in eight is forgotten.
async fn end_by_hand(session: &mut Session, worker: &str, run_id: &str) {
    if session.dice.one_in(8) || !session.connected().await {
        return;
    }
    if run_id.starts_with(DEPLOY) {
        session.note(worker, run_id).await;
        session.finish(worker, run_id, "success").await;
    } else {
        // The log says that it was done by hand, not by whom: there is nothing to compare an answer with.
        let sql = "UPDATE ops.jobs SET status = 'completed' WHERE run_id = $1 AND status = 'running' AND claimed_by = $2";
        let _ = session.rows(sql, &[&run_id, &worker]).await;
    }
}

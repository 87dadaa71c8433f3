//! SQL users: queue runs and commit late, claim and work, cancel.

use std::sync::Arc;

use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Row};

use super::super::plan::{Dice, OPS};
use super::super::record::{Answer, Ask, Call, Granted, Moment, NOT_REACHED, NewRun};
use super::super::shared::Shared;

pub type Rows = Result<Vec<Row>, tokio_postgres::Error>;

pub struct Session {
    pub name: String,
    pub shared: Arc<Shared>,
    pub dice: Dice,
    connection: Option<tokio_postgres::Client>,
    asked: u64,
}

/// The database went away, or sent this session away: a commit under way may have been done.
fn is_lost(error: &tokio_postgres::Error) -> bool {
    error.code().is_none_or(|code| code.code().starts_with("57P") || code.code().starts_with("08"))
}

pub fn answer_of(error: &tokio_postgres::Error) -> Answer {
    match error.code() {
        Some(code) if !is_lost(error) => Answer::Refused { status: 0, code: code.code().to_owned() },
        _ => Answer::Unknown { status: None, why: error.to_string() },
    }
}

impl Session {
    pub fn new(shared: &Arc<Shared>, name: &str, number: usize) -> Session {
        let name = format!("{name}{number}");
        let dice = Dice::new(shared.seed, &name);
        Session { name, shared: shared.clone(), dice, connection: None, asked: 0 }
    }

    pub fn number(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    /// There is one, or there will be: tried again for as long as the history goes on.
    pub async fn connected(&mut self) -> bool {
        while self.connection.as_ref().is_none_or(tokio_postgres::Client::is_closed) {
            if self.shared.is_over() {
                return false;
            }
            let url = self.shared.database_url.clone().unwrap();
            match tokio_postgres::connect(&url, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    self.connection = Some(client);
                }
                Err(_) => self.shared.rest(20).await,
            }
        }
        true
    }

    pub async fn rows(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Rows {
        self.connection.as_ref().expect("connected before").query(sql, values).await
    }

    async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.connection.as_ref().expect("connected before").batch_execute(sql).await
    }

    pub fn record(&self, ask: Ask, invoked: Moment, answer: Answer) {
        let (client, answered) = (self.name.clone(), self.shared.recorder.now());
        self.shared.recorder.add(Call { client, server: None, ask, invoked, answered, answer });
    }

    /// One statement, written down.
    pub async fn ask(
        &mut self,
        ask: Ask,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        read: impl Fn(&[Row]) -> Answer,
    ) -> Answer {
        let invoked = self.shared.recorder.now();
        let answer = if self.connected().await {
            self.rows(sql, values).await.map_or_else(|error| answer_of(&error), |rows| read(&rows))
        } else {
            Answer::Refused { status: 0, code: NOT_REACHED.to_owned() }
        };
        self.record(ask, invoked, answer.clone());
        answer
    }

    /// A transaction that does this and is ended a while later. What it gave counts if it was committed.
    async fn late(
        &mut self,
        sql: &str,
        values: &[&(dyn ToSql + Sync)],
        late_ms: u64,
        end: &str,
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.run("BEGIN").await?;
        let rows = self.rows(sql, values).await;
        let rows = match rows {
            Ok(rows) => rows,
            Err(error) => {
                let _ = self.run("ROLLBACK").await;
                return Err(error);
            }
        };
        self.shared.rest(late_ms).await;
        self.run(end).await?;
        Ok(rows)
    }

    /// A new run, there as late as this.
    pub async fn queue(&mut self, late_ms: u64, is_keyed: bool, takes_back: bool) {
        if !self.connected().await {
            return;
        }
        let at = self.number();
        let key = is_keyed.then(|| format!("{}-{at}", self.name));
        let new = NewRun {
            lifecycle: "deploy".into(),
            queue: OPS.into(),
            idempotency_key: key.clone(),
            body: at,
            ..NewRun::default()
        };
        let (sha, end) = (format!("sha{at}"), if takes_back { "ROLLBACK" } else { "COMMIT" });
        let sql = "SELECT run_id FROM ops.queue_run('project', 'staging', $1, 'main', '{}', $2)";
        let invoked = self.shared.recorder.now();
        let answer = match self.late(sql, &[&sha, &key], late_ms, end).await {
            Err(error) => answer_of(&error),
            Ok(rows) if takes_back => Answer::TakenBack { run_id: rows[0].get(0) },
            Ok(rows) => Answer::Made { run_id: rows[0].get(0), is_new: false },
        };
        if let Answer::Made { run_id, .. } = &answer {
            self.shared.remember(run_id);
        }
        self.record(Ask::Enqueue(new), invoked, answer);
    }

    pub async fn finish(&mut self, worker: &str, run_id: &str, status: &str) -> Answer {
        let ask = Ask::Finish { worker: worker.into(), run_id: run_id.into(), status: status.into() };
        let sql = "SELECT ops.finish_run($1, $2, '{}', $3)";
        self.ask(ask, sql, &[&run_id, &status, &worker], status_of).await
    }

    pub async fn note(&mut self, worker: &str, run_id: &str) -> Answer {
        let number = self.number();
        let message = format!("{} note {number}", self.name);
        let ask = Ask::Note { worker: worker.into(), run_id: run_id.into(), message: message.clone() };
        let sql = "SELECT ops.append_event($1, 'info', $2, '{}', $3)::text";
        self.ask(ask, sql, &[&run_id, &message, &worker], |rows| {
            let id: String = rows[0].get(0);
            Answer::Noted { position: id.strip_prefix("evt-").unwrap().parse().unwrap() }
        })
        .await
    }
}

fn status_of(rows: &[Row]) -> Answer {
    Answer::Status(rows[0].get(0))
}

/// Queues a run, and commits up to a tenth of a second later, or not at all.
pub async fn queue_late(shared: Arc<Shared>, number: usize) {
    let mut session = Session::new(&shared, "late", number);
    while !shared.is_over() {
        let (late_ms, is_keyed) = (session.dice.below(100), session.dice.one_in(2));
        let takes_back = !is_keyed && session.dice.one_in(8);
        shared.rest(20 + session.dice.below(60)).await;
        if !shared.has_enough(OPS) {
            session.queue(late_ms, is_keyed, takes_back).await;
        }
    }
}

/// Claims, some of them in a transaction that stays open, then events and an end. Now and then a cancel of any run.
pub async fn work_in_sql(shared: Arc<Shared>, number: usize) {
    let mut session = Session::new(&shared, "sql", number);
    while !shared.is_over() {
        shared.rest(10 + session.dice.below(60)).await;
        if !session.connected().await {
            continue;
        }
        let number = session.number();
        let worker = format!("{}-{number}", session.name);
        let (late_ms, notes) = (session.dice.below(80), session.dice.below(3));
        let ask = Ask::Claim { worker: worker.clone(), queues: vec![OPS.to_owned()] };
        let sql = "SELECT run_id FROM ops.claim_next_run($1)";
        let invoked = shared.recorder.now();
        let claimed = match session.dice.one_in(4) {
            true => session.late(sql, &[&worker], late_ms, "COMMIT").await,
            false => session.rows(sql, &[&worker]).await,
        };
        let granted = |rows: &[Row]| -> Vec<Granted> {
            rows.iter().map(|row| Granted { run_id: row.get(0), fence: None }).collect()
        };
        let answer = claimed.map_or_else(|error| answer_of(&error), |rows| Answer::Claims(granted(&rows)));
        session.record(ask, invoked, answer.clone());
        if let Answer::Claims(granted) = answer {
            for Granted { run_id, .. } in granted {
                for _ in 0..notes {
                    session.note(&worker, &run_id).await;
                }
                if !session.dice.one_in(12) {
                    let end = if session.dice.one_in(5) { "failed" } else { "success" };
                    session.finish(&worker, &run_id, end).await;
                }
            }
        }
        if session.dice.one_in(3)
            && let Some(run_id) = shared.some_run(&mut session.dice)
        {
            let sql = "SELECT ops.finish_run($1, 'cancelled')";
            session.ask(Ask::Cancel { run_id: run_id.clone() }, sql, &[&run_id], status_of).await;
        }
    }
}

//! The raw limit of PostgreSQL: as many connections as the store's tasks, statements sent without waiting where
//! none needs another's answer.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::{try_join, try_join4};
use serde_json::Value;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;
use waypost_store::postgres::client;

use super::super::runs::{INPUT, METADATA, PLAYBOOK, fresh_key};
use super::{one, section, two};
use crate::output::{ERROR, Failed, Result};

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Failed {
        let why = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
        Failed::new(ERROR, format!("raw: {why}"))
    }
}

#[derive(Debug)]
pub struct Raw {
    connections: Vec<Arc<Connection>>,
    runs: i32,
}

#[derive(Debug)]
struct Connection {
    client: Client,
    copy: String,
    claim: [Statement; 2],
    finish: [Statement; 2],
}

type Held = (Vec<Uuid>, Vec<Uuid>);

impl Raw {
    pub async fn open(url: &str, connections: usize) -> Result<Raw> {
        client(url).await?.batch_execute(&section("postgres schema")).await?;
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(Arc::new(Connection::open(url).await?));
        }
        Ok(Raw { connections: open, runs: 0 })
    }

    pub async fn full(&self, runs: usize, batch: usize) -> Result<f64> {
        self.on_all(runs, batch, move |raw| async move {
            raw.enqueue(batch).await?;
            let held = raw.claim(batch).await?;
            raw.finish(held).await
        })
        .await
    }

    pub async fn drained(&self, runs: usize, batch: usize) -> Result<f64> {
        self.enqueued(runs, batch).await?;
        self.on_all(runs, batch, move |raw| async move {
            let held = raw.claim(batch).await?;
            raw.finish(held).await
        })
        .await
    }

    pub async fn enqueued(&self, runs: usize, batch: usize) -> Result<f64> {
        self.on_all(runs, batch, move |raw| async move { raw.enqueue(batch).await }).await
    }

    /// Targets per second from queued to applied: what was taken is reported with the next, by one connection.
    pub async fn targets(&mut self, count: usize, batch: usize) -> Result<f64> {
        let Some(connection) = self.connections.first().cloned() else { return Ok(f64::NAN) };
        let client = &connection.client;
        if self.runs == 0 {
            client.batch_execute(&section("postgres targets schema")).await?;
        }
        self.runs += 1;
        let run = self.runs;
        client.execute(&one("postgres targets add"), &[&run, &(count as i32)]).await?;
        let [report, event] = two("postgres targets report")?;
        let (report, event) = (client.prepare(&report).await?, client.prepare(&event).await?);
        let take = client.prepare(&one("postgres targets take")).await?;
        let start = Instant::now();
        let mut taken: Vec<String> = Vec::new();
        loop {
            let (payload, batch) = (taken.join(","), batch as i64);
            let reported: [&(dyn ToSql + Sync); 2] = [&run, &taken];
            let told: [&(dyn ToSql + Sync); 2] = [&run, &payload];
            let next: [&(dyn ToSql + Sync); 2] = [&run, &batch];
            let begin = client.batch_execute("begin");
            let report = client.execute(&report, &reported);
            let event = client.execute(&event, &told);
            let ((), _, _, rows) = try_join4(begin, report, event, client.query(&take, &next)).await?;
            client.batch_execute("commit").await?;
            taken = rows.iter().map(|row| row.try_get(0)).collect::<std::result::Result<_, _>>()?;
            if taken.is_empty() {
                return Ok(count as f64 / start.elapsed().as_secs_f64());
            }
        }
    }

    /// A share of the batches on each connection; gives runs per second.
    async fn on_all<F>(
        &self,
        runs: usize,
        batch: usize,
        work: impl Fn(Arc<Connection>) -> F + Copy + Send + 'static,
    ) -> Result<f64>
    where
        F: Future<Output = Result<()>> + Send,
    {
        let each = (runs / batch / self.connections.len()).max(1);
        let start = Instant::now();
        let tasks = self.connections.iter().map(|connection| {
            let connection = connection.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    work(connection.clone()).await?;
                }
                Ok::<(), Failed>(())
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.map_err(|error| Failed::new(ERROR, error.to_string()))??;
        }
        Ok((each * batch * self.connections.len()) as f64 / start.elapsed().as_secs_f64())
    }
}

impl Connection {
    async fn open(url: &str) -> Result<Connection> {
        let client = client(url).await?;
        let both = async |name: &str| -> Result<[Statement; 2]> {
            let [first, second] = two(name)?;
            Ok([client.prepare(&first).await?, client.prepare(&second).await?])
        };
        let (claim, finish) = (both("postgres claim").await?, both("postgres finish").await?);
        let copy = section("postgres enqueue").trim_end_matches([';', '\n']).to_owned();
        Ok(Connection { client, copy, claim, finish })
    }

    async fn enqueue(&self, count: usize) -> Result<()> {
        let mut lines = String::with_capacity(count * 420);
        let (input, metadata) = (INPUT.to_string(), Value::Object(METADATA.clone()).to_string());
        for _ in 0..count {
            let (id, key) = (Uuid::now_v7(), fresh_key());
            let _ = writeln!(lines, "{id}\tt1\tnoop\tqueued\t0\t{PLAYBOOK}\t{key}\t{input}\t{metadata}");
        }
        let sink = self.client.copy_in(&self.copy).await?;
        let mut sink = std::pin::pin!(sink);
        futures_util::SinkExt::send(&mut sink, bytes::Bytes::from(lines)).await?;
        sink.finish().await?;
        Ok(())
    }

    async fn claim(&self, count: usize) -> Result<Held> {
        let count = count as i64;
        let values: [&(dyn ToSql + Sync); 2] = [&count, &"w1"];
        let begin = self.client.batch_execute("begin");
        let ((), rows) = try_join(begin, self.client.query(&self.claim[0], &values)).await?;
        let mut held = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        for row in &rows {
            // Whoever claims reads what to do.
            let _metadata: String = row.try_get(2)?;
            held.0.push(row.try_get(0)?);
            held.1.push(row.try_get(1)?);
        }
        let values: [&(dyn ToSql + Sync); 1] = [&held.0];
        let commit = self.client.batch_execute("commit");
        try_join(self.client.execute(&self.claim[1], &values), commit).await?;
        Ok(held)
    }

    async fn finish(&self, held: Held) -> Result<()> {
        let (events, rows): ([&(dyn ToSql + Sync); 1], [&(dyn ToSql + Sync); 2]) =
            ([&held.0], [&held.0, &held.1]);
        let begin = self.client.batch_execute("begin");
        let insert = self.client.execute(&self.finish[0], &events);
        let update = self.client.execute(&self.finish[1], &rows);
        try_join4(begin, insert, update, self.client.batch_execute("commit")).await?;
        Ok(())
    }
}

//! The raw limit of SQLite.

use std::path::Path;
use std::time::Instant;

use rusqlite::{Connection, params};
use serde_json::Value;

use super::super::runs::{INPUT, METADATA, PLAYBOOK, fresh_key};
use super::{one, section, two};
use crate::output::{ERROR, Failed, Result};

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Failed {
        Failed::new(ERROR, format!("raw: {error}"))
    }
}

#[derive(Debug)]
pub struct Raw {
    conn: Connection,
    enqueue: String,
    claim: [String; 2],
    finish: [String; 2],
    next: u64,
    runs: i64,
}

/// A claimed run: its id and its token.
type Held = (Vec<u8>, Vec<u8>);

impl Raw {
    pub fn open(path: &Path) -> Result<Raw> {
        let conn = Connection::open(path)?;
        conn.execute_batch(
            "PRAGMA journal_mode = wal; PRAGMA synchronous = full; PRAGMA cache_size = -65536",
        )?;
        conn.execute_batch(&section("sqlite schema"))?;
        Ok(Raw {
            conn,
            enqueue: section("sqlite enqueue"),
            claim: two("sqlite claim")?,
            finish: two("sqlite finish")?,
            next: 0,
            runs: 0,
        })
    }

    pub fn enqueue(&mut self, count: usize) -> Result<()> {
        let first = self.next;
        self.next += count as u64;
        self.transaction(|raw| {
            let mut insert = raw.conn.prepare_cached(&raw.enqueue)?;
            let (input, metadata) = (INPUT.to_string(), Value::Object(METADATA.clone()).to_string());
            for number in first..first + count as u64 {
                let values =
                    params![id(number), "t1", "noop", 0, number, PLAYBOOK, fresh_key(), input, metadata];
                insert.execute(values)?;
            }
            Ok(())
        })
    }

    fn claim(&mut self, count: usize) -> Result<Vec<Held>> {
        self.transaction(|raw| {
            let mut update = raw.conn.prepare_cached(&raw.claim[0])?;
            let rows = update.query_map(params![1, count], |row| {
                // Whoever claims reads what to do.
                let _metadata: String = row.get(2)?;
                Ok((row.get(0)?, row.get(1)?))
            })?;
            let held: Vec<Held> = rows.collect::<rusqlite::Result<_>>()?;
            let mut event = raw.conn.prepare_cached(&raw.claim[1])?;
            for (id, _) in &held {
                event.execute(params![id, 1])?;
            }
            Ok(held)
        })
    }

    fn finish(&mut self, held: &[Held]) -> Result<()> {
        self.transaction(|raw| {
            let mut event = raw.conn.prepare_cached(&raw.finish[0])?;
            let mut update = raw.conn.prepare_cached(&raw.finish[1])?;
            for (id, token) in held {
                event.execute(params![id, 2])?;
                update.execute(params![1, id, token])?;
            }
            Ok(())
        })
    }

    /// Runs per second through all three groups.
    pub fn full(&mut self, runs: usize, batch: usize) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..runs / batch {
            self.enqueue(batch)?;
            let held = self.claim(batch)?;
            self.finish(&held)?;
        }
        Ok(runs as f64 / start.elapsed().as_secs_f64())
    }

    /// Runs per second from waiting to finished.
    pub fn drained(&mut self, runs: usize, batch: usize) -> Result<f64> {
        for _ in 0..runs / batch {
            self.enqueue(batch)?;
        }
        let start = Instant::now();
        for _ in 0..runs / batch {
            let held = self.claim(batch)?;
            self.finish(&held)?;
        }
        Ok(runs as f64 / start.elapsed().as_secs_f64())
    }

    pub fn enqueued(&mut self, runs: usize, batch: usize) -> Result<f64> {
        let start = Instant::now();
        for _ in 0..runs / batch {
            self.enqueue(batch)?;
        }
        Ok(runs as f64 / start.elapsed().as_secs_f64())
    }

    /// Targets per second from queued to applied: what was taken is reported with the next.
    pub fn targets(&mut self, count: usize, batch: usize) -> Result<f64> {
        if self.runs == 0 {
            self.conn.execute_batch(&section("sqlite targets schema"))?;
        }
        self.runs += 1;
        let run = self.runs;
        self.transaction(|raw| {
            let mut add = raw.conn.prepare(&one("sqlite targets add"))?;
            for number in 0..count {
                add.execute(params![run, format!("target-{number:06}"), number as i64])?;
            }
            Ok(())
        })?;
        let [report, event] = two("sqlite targets report")?;
        let take = one("sqlite targets take");
        let start = Instant::now();
        let mut taken: Vec<String> = Vec::new();
        loop {
            taken = self.transaction(|raw| {
                let mut update = raw.conn.prepare_cached(&report)?;
                for key in &taken {
                    update.execute(params![run, key, 1])?;
                }
                raw.conn.prepare_cached(&event)?.execute(params![run, 1, taken.join(",")])?;
                let mut take = raw.conn.prepare_cached(&take)?;
                let rows = take.query_map(params![run, batch as i64], |row| {
                    // Whoever takes one reads what to do.
                    let _body: String = row.get(1)?;
                    row.get(0)
                })?;
                rows.collect::<rusqlite::Result<Vec<String>>>()
            })?;
            if taken.is_empty() {
                return Ok(count as f64 / start.elapsed().as_secs_f64());
            }
        }
    }

    fn transaction<T>(&mut self, work: impl FnOnce(&Raw) -> rusqlite::Result<T>) -> Result<T> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let done = work(self)?;
        self.conn.execute_batch("COMMIT")?;
        Ok(done)
    }
}

/// Ascending, as the client of raw.sql makes its UUIDv7.
fn id(number: u64) -> [u8; 16] {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    id[8..].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    id
}

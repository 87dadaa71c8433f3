//! The raw limit: `bench/raw.sql` run as it stands, one transaction per group.

mod postgres;
mod sqlite;

use super::Place;
use crate::output::{ERROR, Failed, Result};

const SQL: &str = include_str!("../../../../../bench/raw.sql");

pub enum Raw {
    Sqlite(Box<sqlite::Raw>),
    Postgres(postgres::Raw),
}

impl Raw {
    /// A database of its own, next to the store's.
    pub async fn open(place: &Place, name: &str, connections: usize) -> Result<Raw> {
        Ok(match place {
            Place::Folder(folder) => {
                Raw::Sqlite(Box::new(sqlite::Raw::open(&folder.path().join(format!("{name}-raw.db")))?))
            }
            Place::Server(server) => Raw::Postgres(
                postgres::Raw::open(&server.database(&format!("{name}_raw")).await?, connections).await?,
            ),
        })
    }

    /// Runs per second through all three groups.
    pub async fn full(&mut self, runs: usize, batch: usize) -> Result<f64> {
        match self {
            Raw::Sqlite(raw) => raw.full(runs, batch),
            Raw::Postgres(raw) => raw.full(runs, batch).await,
        }
    }

    /// Runs per second from waiting to finished.
    pub async fn drained(&mut self, runs: usize, batch: usize) -> Result<f64> {
        match self {
            Raw::Sqlite(raw) => raw.drained(runs, batch),
            Raw::Postgres(raw) => raw.drained(runs, batch).await,
        }
    }

    pub async fn enqueued(&mut self, runs: usize, batch: usize) -> Result<f64> {
        match self {
            Raw::Sqlite(raw) => raw.enqueued(runs, batch),
            Raw::Postgres(raw) => raw.enqueued(runs, batch).await,
        }
    }
}

impl Raw {
    /// Targets per second from queued to applied, by one holder.
    pub async fn targets(&mut self, count: usize, batch: usize) -> Result<f64> {
        match self {
            Raw::Sqlite(raw) => raw.targets(count, batch),
            Raw::Postgres(raw) => raw.targets(count, batch).await,
        }
    }
}

/// The one statement of `--@ NAME`.
fn one(name: &str) -> String {
    section(name).trim().trim_end_matches(';').to_owned()
}

/// The statements of `--@ NAME`.
fn section(name: &str) -> String {
    let begin = format!("--@ {name}");
    let begins =
        |line: &str| line.strip_prefix(&begin).is_some_and(|rest| rest.is_empty() || rest.starts_with("  "));
    let lines = SQL.lines().skip_while(|line| !begins(line)).skip(1);
    lines.take_while(|line| !line.starts_with("--@")).collect::<Vec<_>>().join("\n")
}

fn two(name: &str) -> Result<[String; 2]> {
    let text = section(name);
    let mut parts = text.splitn(2, ";\n");
    match (parts.next(), parts.next()) {
        (Some(first), Some(second)) => {
            Ok([first.to_owned(), second.trim_end_matches([';', '\n']).to_owned()])
        }
        _ => Err(Failed::new(ERROR, format!("bench/raw.sql has no two statements for {name}"))),
    }
}

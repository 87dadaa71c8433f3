//! The steps of a held run: read once, and from then on kept equal to what was written. Every write is all or
//! none, and a result and the beginning of what follows travel in one.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::time::sleep;
use waypost_kernel::{Failure, Span};
use waypost_store::{ItemRow, ItemWrite, ItemsWrite, RunRow, Store, StoreError};

use super::words::{Standing, Words};
use crate::journal::is_lost;
use crate::lease::Lease;
use crate::pace;

/// Nothing more can be written: the lease is lost, or the store refuses what is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

pub(crate) struct Sheet {
    store: Arc<dyn Store>,
    lease: Arc<Lease>,
    by: String,
    pub words: Words,
    rows: Vec<ItemRow>,
    /// To be written with the next ones.
    waiting: Vec<ItemWrite>,
}

/// How an item is left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark {
    pub failure: Option<Failure>,
    pub output: Option<Value>,
    pub details: Map<String, Value>,
    /// The outside gave an answer, whatever it was.
    pub answered: bool,
    pub retry_in: Option<Span>,
}

/// A step that a run gets while it is under way.
#[derive(Clone, Debug)]
pub(crate) struct Added {
    pub key: String,
    pub name: String,
    pub retries: u32,
    pub reruns: bool,
    pub details: Map<String, Value>,
}

impl Sheet {
    /// Nothing: the lifecycle has no steps.
    pub async fn open(
        store: &Arc<dyn Store>,
        lease: &Arc<Lease>,
        by: &str,
        row: &RunRow,
    ) -> Result<Option<Sheet>, Gone> {
        let Some(words) = Words::of_steps(&row.lifecycle) else { return Ok(None) };
        let mut sheet = Sheet {
            store: store.clone(),
            lease: lease.clone(),
            by: by.to_owned(),
            words,
            rows: Vec::new(),
            waiting: Vec::new(),
        };
        sheet.rows = sheet.read().await?;
        Ok(Some(sheet))
    }

    async fn read(&self) -> Result<Vec<ItemRow>, Gone> {
        let run_id = self.lease.held.run_id.clone();
        for retry in 1.. {
            match self.store.items(run_id.clone(), Some(self.words.kind.clone())).await {
                Ok(rows) => return Ok(rows),
                Err(error @ StoreError::Unavailable(_)) => self.away(&error, retry).await?,
                Err(error) => {
                    tracing::error!(run_id, %error, "the steps of the run cannot be read");
                    return Err(Gone);
                }
            }
        }
        Err(Gone)
    }

    pub fn row(&self, key: &str) -> Option<&ItemRow> {
        self.rows.iter().find(|row| row.key == key)
    }

    /// The items of a `for_each`, in their order.
    pub fn parts_of(&self, step: &str) -> Vec<&ItemRow> {
        let mut parts: Vec<&ItemRow> = self.rows.iter().filter(|row| told(row, "of") == step).collect();
        parts.sort_by_key(|row| told(row, "number").as_u64());
        parts
    }

    pub fn standing(&self, key: &str) -> Standing {
        self.row(key).map_or(Standing::Open, |row| self.words.standing(&row.status))
    }

    pub fn rows(&self) -> &[ItemRow] {
        &self.rows
    }

    pub fn parked(&self) -> Option<&ItemRow> {
        self.rows.iter().find(|row| self.words.standing(&row.status) == Standing::Parked)
    }

    pub async fn add(&mut self, added: Vec<Added>) -> Result<(), Gone> {
        let writes: Vec<ItemWrite> = added.into_iter().map(|it| self.write_of_new(it)).collect();
        if writes.is_empty() { Ok(()) } else { self.write(writes).await }
    }

    fn write_of_new(&self, added: Added) -> ItemWrite {
        ItemWrite {
            kind: self.words.kind.clone(),
            key: added.key,
            name: Some(added.name),
            status: self.words.status(Standing::Open).to_owned(),
            max_retries: Some(added.retries),
            reruns: added.reruns,
            details: added.details,
            ..ItemWrite::default()
        }
    }

    /// Writes with what waited.
    pub async fn put(&mut self, key: &str, standing: Standing, mark: Mark) -> Result<(), Gone> {
        let write = self.write_of(key, standing, mark);
        self.write(vec![write]).await
    }

    /// Written together with what comes next: see [`Sheet::flush`].
    pub fn put_later(&mut self, key: &str, standing: Standing, mark: Mark) {
        let write = self.write_of(key, standing, mark);
        if let Some(row) = self.rows.iter_mut().find(|row| row.key == key) {
            row.status.clone_from(&write.status);
            row.output = write.output.clone().unwrap_or(Value::Null);
            row.failure.clone_from(&write.failure);
            row.details.extend(write.details.clone());
        }
        self.waiting.push(write);
    }

    pub async fn flush(&mut self) -> Result<(), Gone> {
        if self.waiting.is_empty() { Ok(()) } else { self.write(Vec::new()).await }
    }

    fn write_of(&self, key: &str, standing: Standing, mark: Mark) -> ItemWrite {
        let retries = standing == Standing::Open;
        ItemWrite {
            kind: self.words.kind.clone(),
            key: key.to_owned(),
            status: self.words.status(standing).to_owned(),
            command: retries.then(|| "retry".to_owned()),
            failure: mark.failure,
            retry_in: mark.retry_in,
            answered: mark.answered,
            try_no: self.row(key).map(|row| row.try_no),
            output: mark.output,
            details: mark.details,
            ..ItemWrite::default()
        }
    }

    async fn write(&mut self, writes: Vec<ItemWrite>) -> Result<(), Gone> {
        let run_id = self.lease.held.run_id.clone();
        let mut items = std::mem::take(&mut self.waiting);
        items.extend(writes);
        let write = ItemsWrite { held: self.lease.held.clone(), by: self.by.clone(), items };
        for retry in 1.. {
            let lease = self.lease.clone();
            let answer = tokio::select! {
                biased;
                () = lease.lost() => return Err(Gone),
                answer = self.store.put_items(write.clone()) => answer,
            };
            match answer {
                Ok(rows) => {
                    self.keep(rows);
                    return Ok(());
                }
                Err(error) if is_lost(&error) => break,
                Err(error @ StoreError::Unavailable(_)) => self.away(&error, retry).await?,
                Err(error) => {
                    // What is asked for is legal; somebody changed the rows by hand.
                    tracing::error!(run_id, %error, "a step was not accepted: leaving the run");
                    return Err(Gone);
                }
            }
        }
        self.lease.lose();
        Err(Gone)
    }

    fn keep(&mut self, rows: Vec<ItemRow>) {
        for row in rows {
            match self.rows.iter_mut().find(|known| known.key == row.key) {
                Some(known) => *known = row,
                None => self.rows.push(row),
            }
        }
    }

    async fn away(&self, error: &StoreError, retry: u32) -> Result<(), Gone> {
        tracing::warn!(run_id = self.lease.held.run_id, %error, "steps not accepted; trying again");
        tokio::select! {
            () = self.lease.lost() => Err(Gone),
            () = sleep(pace::store_away(retry)) => Ok(()),
        }
    }
}

impl Mark {
    pub fn failed(failure: Failure) -> Mark {
        Mark { failure: Some(failure), ..Mark::default() }
    }

    pub fn told(mut self, key: &str, value: impl Into<Value>) -> Mark {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// For the log and for people: why a step was left out.
pub(crate) fn because(reason: &str) -> Mark {
    Mark { details: Map::from_iter([("reason".to_owned(), json!(reason))]), ..Mark::default() }
}

fn told<'r>(row: &'r ItemRow, key: &str) -> &'r Value {
    row.details.get(key).unwrap_or(&Value::Null)
}

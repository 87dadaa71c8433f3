//! Every change of a price, and what was answered to the key that it came with. In a folder it is `ledger.jsonl`, one
//! line for a request: a line is whole or it is not there, so a process that is killed has made a change and knows its
//! key, or it has done neither.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One price, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// From 1, without gaps.
    pub seq: u64,
    pub at_ms: u64,
    /// `rest`, `graphql`, or `drift` for what no client did.
    pub via: String,
    /// The `Idempotency-Key`, if one came.
    pub key: Option<Arc<str>>,
    pub id: u64,
    pub from_cents: i64,
    pub to_cents: i64,
}

/// What a request did, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub at_ms: u64,
    pub via: String,
    /// Number, price before, price after.
    pub changes: Vec<(u64, i64, i64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Answered>,
}

/// What the next request with this key is answered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answered {
    pub key: Arc<str>,
    /// Of the request, so that another one under the same key is noticed.
    pub fingerprint: u64,
    pub status: u16,
    pub body: String,
}

#[derive(Debug)]
pub struct Ledger {
    file: Option<File>,
    changes: Vec<Change>,
    answered: HashMap<Arc<str>, Answered>,
}

impl Ledger {
    pub fn open(dir: Option<&Path>) -> io::Result<Ledger> {
        let mut ledger = Ledger { file: None, changes: Vec::new(), answered: HashMap::new() };
        let Some(dir) = dir else { return Ok(ledger) };
        let path = dir.join("ledger.jsonl");
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another shop is served from this folder"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let text = std::fs::read(&path)?;
        // What has no end of line was never answered.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        for (at, line) in
            text[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).enumerate()
        {
            let record: Record = serde_json::from_slice(line).map_err(|error| {
                io::Error::new(io::ErrorKind::InvalidData, format!("ledger.jsonl, line {}: {error}", at + 1))
            })?;
            ledger.keep(record);
        }
        ledger.file = Some(file);
        Ok(ledger)
    }

    /// On disk first: who is answered may rely on it. A crash of the machine may lose the last ones, one of the process
    /// does not.
    pub fn append(&mut self, record: Record) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            let mut line = serde_json::to_vec(&record)?;
            line.push(b'\n');
            file.write_all(&line)?;
        }
        self.keep(record);
        Ok(())
    }

    fn keep(&mut self, record: Record) {
        let key = record.answered.as_ref().map(|answered| answered.key.clone());
        for (id, from_cents, to_cents) in record.changes {
            let seq = self.changes.len() as u64 + 1;
            let (via, key) = (record.via.clone(), key.clone());
            self.changes.push(Change { seq, at_ms: record.at_ms, via, key, id, from_cents, to_cents });
        }
        if let Some(answered) = record.answered {
            self.answered.insert(answered.key.clone(), answered);
        }
    }

    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub fn answered(&self, key: &str) -> Option<&Answered> {
        self.answered.get(key)
    }
}

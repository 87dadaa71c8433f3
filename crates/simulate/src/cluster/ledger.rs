//! What happened, one line each, in the order in which it happened.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub at_ms: u64,
    /// The idempotency key that came with it, if any.
    pub by: Option<String>,
    /// `govc`, `redfish`, or `site` for what follows by itself.
    pub via: String,
    /// `cluster.change`, `UpdateService.SimpleUpdate`, `firmware.applied`, …
    pub what: String,
    /// A host, a machine or the cluster.
    pub on: String,
    pub with: Value,
    /// `ok`, the words of a refusal, or what a fault made of it.
    pub answer: String,
    pub changed: bool,
}

impl Entry {
    pub fn of_itself(at_ms: u64, what: &str, on: &str, with: Value) -> Entry {
        Entry {
            at_ms,
            by: None,
            via: "site".to_owned(),
            what: what.to_owned(),
            on: on.to_owned(),
            with,
            answer: "ok".to_owned(),
            changed: true,
        }
    }
}

/// Adds to the first `valid_bytes` of it, and gives how much is valid then.
pub fn append(path: &Path, valid_bytes: u64, entries: &[Entry]) -> io::Result<u64> {
    let mut lines = String::new();
    for entry in entries {
        lines.push_str(&serde_json::to_string(entry)?);
        lines.push('\n');
    }
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.set_len(valid_bytes)?;
    file.write_all(lines.as_bytes())?;
    Ok(valid_bytes + lines.len() as u64)
}

pub fn read(path: &Path, valid_bytes: u64) -> io::Result<Vec<Entry>> {
    if valid_bytes == 0 {
        return Ok(Vec::new());
    }
    let mut text = String::new();
    File::open(path)?.take(valid_bytes).read_to_string(&mut text)?;
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

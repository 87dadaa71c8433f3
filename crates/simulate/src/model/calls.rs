//! What was asked and what became of it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

/// In memory; `calls.jsonl` has all.
const KEPT: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// From 1.
    pub seq: u64,
    pub at_ms: u64,
    pub idempotency_key: Option<String>,
    pub traceparent: Option<String>,
    /// As it came; a text if it was no JSON.
    pub body: Value,
    /// What went wrong, in the markers' words.
    pub effects: Vec<String>,
    /// None of a call whose connection was cut.
    pub status: Option<u16>,
    /// What the model said, if it came to that.
    pub content: Option<String>,
}

#[derive(Debug)]
pub struct Calls {
    file: Option<File>,
    seq: u64,
    kept: VecDeque<Call>,
}

impl Calls {
    pub fn open(dir: Option<&Path>) -> io::Result<Calls> {
        let mut calls = Calls { file: None, seq: 0, kept: VecDeque::new() };
        let Some(dir) = dir else { return Ok(calls) };
        std::fs::create_dir_all(dir)?;
        let path = dir.join("calls.jsonl");
        let file = OpenOptions::new().create(true).append(true).read(true).open(&path)?;
        let text = std::fs::read(&path)?;
        // A process that was killed may have left half a line.
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64)?;
        calls.seq = text[..whole].iter().filter(|&&byte| byte == b'\n').count() as u64;
        calls.file = Some(file);
        Ok(calls)
    }

    pub fn next_seq(&self) -> u64 {
        self.seq + 1
    }

    pub fn push(&mut self, call: Call) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            let mut line = serde_json::to_vec(&call)?;
            line.push(b'\n');
            file.write_all(&line)?;
        }
        self.seq = call.seq;
        self.kept.push_back(call);
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Call> {
        self.kept.iter()
    }

    pub fn forget(&mut self) {
        self.kept.clear();
    }
}

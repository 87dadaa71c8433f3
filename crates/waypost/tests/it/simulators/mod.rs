//! `waypost simulate shop` and `waypost simulate model`, as processes that are started, asked and stopped.

mod model;
mod page;
mod shop;

use std::io::{BufRead, BufReader};
use std::process::Command;

use serde_json::Value;

use crate::support::{Running, Shop};

/// A simulator that is served, and the line that it printed.
pub struct Served {
    pub process: Running,
    pub line: Value,
}

impl Served {
    pub fn start(folder: &Shop, args: &[&str]) -> Served {
        let mut process = folder.spawn(&[&["simulate"], args].concat());
        let mut line = String::new();
        BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Served { process, line: serde_json::from_str(&line).unwrap() }
    }

    /// Status and body; 0 of a connection that was cut.
    fn ask(&self, method: &str, path: &str, headers: &[&str], body: &Value) -> (u16, Value) {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--noproxy", "*", "-X", method, "-w", "\n%{http_code}"]);
        for header in headers {
            curl.args(["-H", header]);
        }
        if !body.is_null() {
            curl.args(["-d", &body.to_string()]);
        }
        let asked = curl.arg(format!("{}{path}", self.line["url"].as_str().unwrap())).output().unwrap();
        let text = String::from_utf8(asked.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let (status, body) = self.ask("GET", path, &[], &Value::Null);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Asked to, it ends well.
    pub fn stop(mut self) {
        self.process.signal("TERM");
        assert_eq!(self.process.end(), Some(0));
    }
}

//! Those who ask: over HTTP and in SQL.

mod families;
mod governor;
mod producer;
mod race;
mod raw;
mod sql;
mod worker;

use std::sync::Arc;

use serde_json::Value;

use super::plan::Dice;
use super::record::{Answer, Ask, Call, NOT_REACHED};
use super::shared::Shared;
use super::wire::{Failed, Reply, request};
pub use families::cancel_parents;
pub use governor::{govern_keys, govern_lifecycles, govern_limit, govern_pauses, monitor};
pub use producer::{cancel, produce};
pub use race::race_limits;
pub use raw::begin_by_hand;
pub use sql::{queue_late, work_in_sql};
pub use worker::work;

/// One client over HTTP: stays with a server until that fails it.
pub struct Client {
    pub name: String,
    pub shared: Arc<Shared>,
    pub dice: Dice,
    server: usize,
    asked: u64,
}

/// How a call is sent.
pub struct Sent<'a> {
    pub method: &'a str,
    pub path: String,
    pub headers: String,
    pub body: Value,
}

impl<'a> Sent<'a> {
    pub fn post(path: impl Into<String>, body: Value) -> Sent<'a> {
        Sent { method: "POST", path: path.into(), headers: String::new(), body }
    }
}

impl Client {
    pub fn new(shared: &Arc<Shared>, name: &str, number: usize) -> Client {
        let name = format!("{name}{number}");
        let dice = Dice::new(shared.seed, &name);
        Client { server: number % shared.addresses.len(), name, shared: shared.clone(), dice, asked: 0 }
    }

    /// A number that no other call of this client has.
    pub fn number(&mut self) -> u64 {
        self.asked += 1;
        self.asked
    }

    pub fn next_server(&mut self) {
        self.server = (self.server + 1) % self.shared.addresses.len();
    }

    /// Asks once, and writes it down. `read` says what an answer below 300 means.
    pub async fn ask(&mut self, ask: Ask, sent: &Sent<'_>, read: impl Fn(&Reply) -> Answer) -> Answer {
        let (server, recorder) = (self.server, &self.shared.recorder);
        let address = &self.shared.addresses[server];
        let invoked = recorder.now();
        let asked = request(address, sent.method, &sent.path, &sent.headers, &sent.body).await;
        let answered = recorder.now();
        let answer = match asked {
            Ok(reply) if reply.status < 300 => read(&reply),
            Ok(reply) if reply.status < 500 => {
                let code = reply.body["code"].as_str().unwrap_or_default().to_owned();
                Answer::Refused { status: reply.status, code }
            }
            Ok(reply) => Answer::Unknown { status: Some(reply.status), why: reply.body["code"].to_string() },
            Err(Failed::NotReached) => Answer::Refused { status: 0, code: NOT_REACHED.to_owned() },
            Err(Failed::BrokeOff(why)) => Answer::Unknown { status: None, why },
        };
        let client = self.name.clone();
        recorder.add(Call { client, server: Some(server), ask, invoked, answered, answer: answer.clone() });
        if must_ask_again(&answer) {
            self.next_server();
        }
        answer
    }

    /// Asks the servers in turn until one answers: for what may be done twice.
    pub async fn insist(&mut self, ask: Ask, sent: &Sent<'_>, read: impl Fn(&Reply) -> Answer) -> Answer {
        loop {
            let answer = self.ask(ask.clone(), sent, &read).await;
            if !must_ask_again(&answer) {
                return answer;
            }
            self.shared.moment().await;
        }
    }
}

pub fn must_ask_again(answer: &Answer) -> bool {
    match answer {
        Answer::Unknown { .. } => true,
        Answer::Refused { code, .. } => code == NOT_REACHED,
        _ => false,
    }
}

pub fn done(_: &Reply) -> Answer {
    Answer::Done
}

pub fn status(reply: &Reply) -> Answer {
    Answer::Status(reply.body["status"].as_str().unwrap_or_default().to_owned())
}

#![allow(clippy::unwrap_used)]
//! The shop as its clients see it, on a clock of the tests' own.

mod admin;
mod bulk;
mod faults;
mod kept;
mod limits;
mod products;

use serde_json::Value;

use super::{CatalogueFlags, FAULTS, Options, Settings, Shop};
use crate::serving::{Answer, Faults, Now, Reply, Request, Simulator};

/// Enough that no test meets the limit by chance.
pub fn settings(faults: &[&str]) -> Settings {
    let mut set = Faults::default();
    for fault in faults {
        set.set(fault, FAULTS).unwrap();
    }
    Settings { rate: 1e6, burst: 1e6, cost_rate: 1e6, cost_burst: 1e6, faults: set, ..Settings::default() }
}

pub fn shop(settings: Settings) -> Shop {
    Shop::open(Options { settings, ..Options::default() }).unwrap()
}

pub fn of(products: u64, archived: f64, settings: Settings) -> Shop {
    let catalogue =
        CatalogueFlags { products: Some(products), archived: Some(archived), ..CatalogueFlags::default() };
    Shop::open(Options { settings, catalogue, ..Options::default() }).unwrap()
}

pub fn request(method: &str, path: &str, key: Option<&str>, body: &Value) -> Request {
    Request::made(method, path, key, body)
}

pub fn at(ms: u64) -> Now {
    Now { unix_ms: 1_700_000_000_000 + ms, elapsed_us: ms * 1_000 }
}

/// An answer that is expected to come.
#[track_caller]
pub fn ask(shop: &mut Shop, method: &str, path: &str, key: Option<&str>, body: &Value) -> (u16, Value) {
    let answer = answered(shop.answer(&request(method, path, key, body), at(0)));
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[track_caller]
pub fn get(shop: &mut Shop, path: &str) -> Value {
    let (status, body) = ask(shop, "GET", path, None, &Value::Null);
    assert_eq!(status, 200, "{path}: {body}");
    body
}

#[track_caller]
pub fn answered(reply: Reply) -> Answer {
    reply.answered()
}

pub fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(it, _)| *it == name).map(|(_, value)| value.as_str())
}

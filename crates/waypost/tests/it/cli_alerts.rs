//! Alerts and destinations by the command line, over HTTP and in `/metrics`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::http::post;
use crate::support::{Ran, Shop};

/// On either stream.
#[track_caller]
fn says(ran: &Ran, code: i32, words: &[&str]) {
    let said = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

/// Takes whatever is posted to it.
fn receiver() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = heard.clone();
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let mut read = Vec::new();
            let mut chunk = [0; 4_096];
            while !read.ends_with(b"}") {
                match socket.read(&mut chunk) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => read.extend_from_slice(&chunk[..count]),
                }
            }
            to.lock().unwrap().push(String::from_utf8_lossy(&read).into_owned());
            let _ = socket.write_all(b"HTTP/1.1 204 x\r\nconnection: close\r\n\r\n");
        }
    });
    (url, heard)
}

fn with_sink(shop: &Shop, url: &str) {
    let sink = "[[alert.sink]]\nkind = \"webhook\"\nname = \"ops\"\nallow_private = true\n";
    std::fs::write(shop.path("waypost.toml"), format!("{sink}url = \"{url}\"\n")).unwrap();
}

// proves R13
#[test]
fn alerts_are_listed_tried_and_silenced() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        says(&shop.run(&["alert", "list"]), 0, &["no alerts"]);
        says(&shop.run(&["alert", "test"]), 0, &["no sinks"]);
        shop.ok(&["migrate"]);
        let (url, heard) = receiver();
        with_sink(&shop, &url);
        says(&shop.run(&["alert", "test"]), 0, &["ops", "webhook", "sent"]);
        says(&shop.run(&["alert", "test", "--sink", "mail"]), 2, &["mail", "ops"]);
        assert!(heard.lock().unwrap()[0].contains("alert.test"), "{heard:?}");
        says(&shop.run(&["alert", "silence", "coffee"]), 2, &["dlq-backlog"]);
        says(&shop.run(&["alert", "silence", "dlq-backlog", "--for", "90d"]), 2, &["30 days"]);
        says(
            &shop.run(&["alert", "silence", "dlq-backlog", "--for", "2h", "--reason", "known"]),
            0,
            &["nobody is told until"],
        );
        let listed = shop.json(&["alert", "list"]);
        assert_eq!((&listed[0]["silence_reason"], &listed[0]["status"]), (&"known".into(), &"ok".into()));
        says(&shop.run(&["alert", "list"]), 0, &["dlq-backlog", "silenced for"]);
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let over_http = &shop.curl(&url, "/v1/alerts")["alerts"][0];
        for field in ["name", "severity", "silenced_until", "silenced_by"] {
            assert_eq!(over_http[field], listed[0][field], "the same over HTTP");
        }
        says(&shop.asks(&url, &["alert", "test"]), 0, &["ops", "sent"]);
        says(&shop.asks(&url, &["alert", "test", "--sink", "mail"]), 2, &["mail", "ops"]);
        says(&shop.asks(&url, &["alert", "silence", "dlq-backlog", "--off"]), 0, &["told again"]);
        says(&shop.asks(&url, &["alert", "list", "--firing"]), 0, &["no alerts"]);
        says(&shop.asks(&url, &["audit"]), 0, &["alert.silence", "alert.unsilence", "known"]);
        assert_eq!(heard.lock().unwrap().len(), 2);
        let wrong = |path: &str, body: Value| post(&url, path, &[], &body).unwrap();
        assert_eq!(wrong("/v1/alerts/coffee/silence", json!({ "lasts_ms": 5 })).body["field"], "alert");
        assert_eq!(
            wrong("/v1/alerts/dlq-backlog/silence", json!({})).body["errors"][0]["pointer"],
            "/lasts_ms"
        );
    }
}

// proves R13
#[test]
fn a_sink_whose_secret_is_not_there_is_told_of_at_once() {
    let shop = Shop::new();
    let sink = "[[alert.sink]]\nkind = \"slack\"\nurl = \"env:WAYPOST_SECRET_NOBODY\"\n";
    std::fs::write(shop.path("waypost.toml"), sink).unwrap();
    for args in [&["alert", "test"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        says(&shop.run(args), 2, &["waypost.toml", "slack", "WAYPOST_SECRET_NOBODY"]);
    }
}

// proves R6, R13
#[test]
fn destinations_are_listed_and_measured() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        says(&shop.run(&["destination", "list"]), 0, &["no destinations"]);
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let ask = |verb: &str, body: Value| {
            post(&url, &format!("/v1/destinations/shop/{verb}"), &[], &body).unwrap()
        };
        assert_eq!(
            ask("admit", json!({ "capacity_milli": 40_000, "rate_milli_per_s": 1, "calls": 4 })).body["granted"],
            4
        );
        says(&shop.run(&["destination", "list"]), 0, &["shop", "36 of 40", "100%", "closed"]);
        let throttled: Vec<Value> = vec![json!({ "throttled": true }); 6];
        ask("answers", json!({ "answers": throttled }));
        ask("pace", json!({ "burst": true }));
        for listed in [shop.run(&["destination", "list"]), shop.asks(&url, &["destination", "list"])] {
            says(&listed, 0, &["shop", "0 of 40", "90%", "open", "in "]);
        }
        let page = shop.page(&url, "/metrics");
        let of = |name: &str| format!("waypost_{name}{{tenant=\"default\",destination=\"shop\"}}");
        for (series, value) in [
            (of("destination_breaker_open"), "1"),
            (of("destination_breaker_opened_total"), "1"),
            (of("destination_throttled_total"), "6"),
            (of("destination_pace_ratio"), "0.9"),
            ("waypost_rules_429_total".to_owned(), "6"),
            ("waypost_rules_apply_total".to_owned(), "0"),
            ("waypost_rules_target_retries_total".to_owned(), "0"),
            ("waypost_rules_apply_duration_ms_count".to_owned(), "0"),
        ] {
            assert!(page.contains(&format!("\n{series} {value}\n")), "{series} {value}\n{page}");
        }
    }
}

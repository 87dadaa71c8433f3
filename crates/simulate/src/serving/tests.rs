#![allow(clippy::unwrap_used)]
//! Over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use super::{Answer, Now, Reply, Request, Running, Simulator};

/// Answers with what it was asked; `/cut` and `/held` get no answer, `/soon` gets one a little later.
struct Echo(u64);

impl Simulator for Echo {
    fn answer(&mut self, request: &Request, now: Now) -> Reply {
        self.0 += 1;
        assert!(now.unix_ms > 1_600_000_000_000);
        let echo = json!({
            "path": request.path, "query": request.query,
            "key": request.idempotency_key(), "body": String::from_utf8_lossy(&request.body),
        });
        match request.path.as_str() {
            "/cut" => Reply::Cut,
            "/held" => Reply::from(Answer::ok(&echo)).held(600_000),
            "/soon" => Reply::from(Answer::ok(&echo)).held(1),
            _ => Answer::ok(&echo).with("link", "</next>").into(),
        }
    }
}

fn echo() -> (Running<Echo>, TcpStream) {
    let running = Running::start("127.0.0.1:0".parse().unwrap(), Echo(0)).unwrap();
    let stream = TcpStream::connect(running.url().strip_prefix("http://").unwrap()).unwrap();
    (running, stream)
}

fn send(stream: &mut TcpStream, path: &str, body: &str) {
    let length = body.len();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
}

/// Head and body of one answer; nothing of a connection that was cut.
fn receive(stream: &mut TcpStream) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    loop {
        let wanted = text.split_once("\r\n\r\n").map(|(head, body)| {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            length.parse::<usize>().unwrap() - body.len()
        });
        if wanted == Some(0) {
            return text;
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return text,
            Ok(count) => text.push_str(str::from_utf8(&buffer[..count]).unwrap()),
        }
    }
}

#[test]
fn a_connection_has_many_requests() {
    let (running, mut stream) = echo();
    for at in 0..100 {
        send(&mut stream, "/a%20b/?x=1+2&y=%26&z", &at.to_string());
        let answer = receive(&mut stream);
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("link: </next>\r\n"),
            "{answer}"
        );
        let body: serde_json::Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let query = json!([["x", "1 2"], ["y", "&"], ["z", ""]]);
        assert_eq!(body, json!({ "path": "/a b/", "query": query, "key": "k", "body": at.to_string() }));
    }
    send(&mut stream, "/soon", "");
    assert!(receive(&mut stream).contains("/soon"));
    assert_eq!(running.state().0, 101);
}

#[test]
fn a_connection_is_cut_without_a_word() {
    let (running, mut stream) = echo();
    send(&mut stream, "/cut", "x");
    assert_eq!(receive(&mut stream), "");
    assert_eq!(running.state().0, 1);
}

/// One that waits for an answer keeps nobody else waiting, and does not keep the server from ending.
#[test]
fn held_answers_hold_nobody_else() {
    let (running, mut stream) = echo();
    send(&mut stream, "/held", "");
    let mut other = TcpStream::connect(running.url().strip_prefix("http://").unwrap()).unwrap();
    send(&mut other, "/other", "");
    assert!(receive(&mut other).contains("/other"));
    drop(running);
    assert_eq!(receive(&mut stream), "");
}

#[test]
fn bodies_have_an_end() {
    let (running, mut stream) = echo();
    let head = format!("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", super::MAX_BODY_BYTES + 1);
    stream.write_all(head.as_bytes()).unwrap();
    // What does not fit is not waited for.
    assert!(receive(&mut stream).starts_with("HTTP/1.1 413 "));
    assert_eq!(running.state().0, 0);
}

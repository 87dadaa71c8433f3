//! Answers that go well.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use serde::Serialize;

use crate::problem::Problem;

pub type Answer = Response<Body>;
pub type Result<T = Answer> = std::result::Result<T, Problem>;

const JSON: &str = "application/json";
/// A long text is many of these: no piece of memory is larger, and each is free as soon as its client has it.
const PIECE: usize = 64 * 1024;

pub fn json(status: u16, value: &impl Serialize) -> Answer {
    let mut text = Pieces::default();
    text.value(value);
    text.answer(status)
}

/// An object with one list, and what comes after it. Each entry is written out as it comes, and may be dropped then.
pub fn list<T>(
    status: u16,
    name: &str,
    entries: impl IntoIterator<Item = T>,
    write: impl Fn(&mut Pieces, &T),
    next: (&str, &impl Serialize),
) -> Answer {
    let mut text = Pieces::default();
    text.entries(name, entries, write);
    text.raw(b",");
    text.value(&next.0);
    text.raw(b":");
    text.value(next.1);
    text.raw(b"}");
    text.answer(status)
}

pub fn text(status: u16, kind: &'static str, text: String) -> Answer {
    of_body(status, kind, Body::from(text))
}

/// The same of what other answers have too.
pub fn shared(status: u16, kind: &'static str, text: Bytes) -> Answer {
    of_body(status, kind, Body::from(text))
}

fn of_body(status: u16, kind: &'static str, body: Body) -> Answer {
    let mut answer = empty(status);
    *answer.body_mut() = body;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

pub fn empty(status: u16) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    answer
}

/// What cannot be a header is left out: none of these is worth failing for.
pub fn with(mut answer: Answer, name: &'static str, value: &str) -> Answer {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().append(HeaderName::from_static(name), value);
    }
    answer
}

/// A text as it is written, and then as it is sent.
#[derive(Debug, Default)]
pub struct Pieces {
    full: VecDeque<Bytes>,
    open: Vec<u8>,
    bytes: usize,
}

impl Pieces {
    pub fn raw(&mut self, text: &[u8]) {
        let _ = self.write_all(text);
    }

    /// Writing to memory does not fail, and what is shown has no key that is not text.
    pub fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        let _ = serde_json::to_writer(&mut *self, value);
    }

    /// An object's beginning, with a list.
    pub fn entries<T>(
        &mut self,
        name: &str,
        entries: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Pieces, &T),
    ) {
        self.raw(b"{");
        self.value(&name);
        self.raw(b":[");
        for (at, entry) in entries.into_iter().enumerate() {
            if at > 0 {
                self.raw(b",");
            }
            write(self, &entry);
        }
        self.raw(b"]");
    }

    pub fn byte_count(&self) -> usize {
        self.bytes
    }

    pub fn answer(mut self, status: u16) -> Answer {
        let open = std::mem::take(&mut self.open);
        if self.full.is_empty() {
            return of_body(status, JSON, Body::from(open));
        }
        self.full.push_back(open.into());
        of_body(status, JSON, Body::new(self))
    }
}

impl Write for Pieces {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let count = text.len().min(PIECE - self.open.len());
        self.open.extend_from_slice(&text[..count]);
        self.bytes += count;
        if self.open.len() == PIECE {
            let full = std::mem::replace(&mut self.open, Vec::with_capacity(PIECE));
            self.full.push_back(full.into());
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        let next = self.full.pop_front();
        self.bytes -= next.as_ref().map_or(0, Bytes::len);
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.full.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    async fn read_back(answer: Answer) -> (Option<u64>, usize, Value) {
        let said = answer.body().size_hint().exact();
        let text = answer.into_body().collect().await.expect("a body").to_bytes();
        (said, text.len(), serde_json::from_slice(&text).expect("JSON"))
    }

    #[tokio::test]
    async fn a_long_text_is_whole_and_says_how_long_it_is() {
        for length in [0, 10, PIECE - 2, PIECE - 1, PIECE, 3 * PIECE + 7] {
            let value = json!({ "a": "x".repeat(length) });
            let (said, bytes, read) = read_back(json(200, &value)).await;
            assert_eq!((said, read), (Some(bytes as u64), value), "{length}");
        }
    }

    #[tokio::test]
    async fn a_list_is_an_object_with_its_entries_and_what_follows() {
        for entries in [vec![], vec![1], vec![1, 2, 3]] {
            let expected = json!({ "runs": entries, "next_cursor": null });
            let answer = list(200, "runs", entries, Pieces::value, ("next_cursor", &None::<String>));
            assert_eq!(read_back(answer).await.2, expected);
        }
    }
}

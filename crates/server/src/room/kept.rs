//! A body that keeps hold of something until it is written. What comes in one large piece is handed on in small ones: the connection
//! asks for the next when the socket has taken the last, so that the body lives as long as its client reads.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

const PIECE: usize = 64 * 1024;

struct Kept<T> {
    body: Body,
    /// Of the last piece of the body, what was not handed on.
    rest: Bytes,
    _kept: T,
}

pub fn keeping<T: Send + Unpin + 'static>(body: Body, kept: T) -> Body {
    Body::new(Kept { body, rest: Bytes::new(), _kept: kept })
}

impl<T: Unpin> HttpBody for Kept<T> {
    type Data = Bytes;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                ended => return Poll::Ready(ended),
            }
        }
        let size = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        if let Some(exact) = hint.exact() {
            hint.set_exact(exact + self.rest.len() as u64);
        }
        hint
    }
}

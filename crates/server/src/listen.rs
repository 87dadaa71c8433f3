//! Connections: how many, how large their heads, how patient the server is, and how it ends.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower_service::Service;

use crate::app::App;
use crate::dispatch::router;
use crate::problem::{HEADERS_TOO_LARGE, Problem};
use crate::room::kept::keeping;
use crate::room::seats::{Seats, Taken};
use crate::room::socket::Socket;

const HEAD_WITHIN: Duration = Duration::from_secs(15);
/// On a seat that is kept for others.
const KEPT_HEAD_WITHIN: Duration = Duration::from_secs(2);
/// Connections at once that are told that there is no room.
const MOST_REJECTED: usize = 256;
const MOST_HEADERS: usize = 64;
/// Request line and headers together.
const HEAD_BYTES: usize = 32 * 1024;
/// For requests that are under way when the server is told to end.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// When the system has no more to give (EMFILE), asking at once would only burn the processor.
const AFTER_AN_ERROR: Duration = Duration::from_millis(100);

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 111\r\n\r\n{\"type\":\"description:blank\",\"title\":\"Service Unavailable\",\"status\":503,\
\"detail\":\"too many connections\",\"code\":\"BUSY\"}";

/// Answers requests until the app is told to stop, and then those that are under way.
pub async fn serve(app: Arc<App>, listener: TcpListener) {
    let seats = Seats::new(app.options.connections);
    let rejections = Arc::new(Semaphore::new(MOST_REJECTED));
    let router = router(&app);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = app.stopping() => break,
            Some(_) = connections.join_next() => {}
            taken = listener.accept() => match taken {
                Ok((stream, _)) => match seats.take() {
                    Some(seat) => {
                        connections.spawn(serve_connection(app.clone(), router.clone(), stream, seat));
                    }
                    // Beyond that they are closed without a word: words cost a socket each.
                    None => {
                        if let Ok(turn) = rejections.clone().try_acquire_owned() {
                            connections.spawn(reject_busy(stream, turn));
                        }
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    sleep(AFTER_AN_ERROR).await;
                }
            },
        }
    }
    drop(listener);
    let all = async { while connections.join_next().await.is_some() {} };
    if timeout(LAST_ANSWERS, all).await.is_err() {
        tracing::warn!("some connections did not end in time");
    }
}

/// What the client has sent is read and dropped: else the system would drop our words.
async fn reject_busy(mut stream: TcpStream, _turn: OwnedSemaphorePermit) {
    let told = async {
        stream.write_all(FULL).await?;
        stream.shutdown().await?;
        let mut rest = [0; 4_096];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(1), told).await;
}

async fn serve_connection(app: Arc<App>, router: axum::Router, stream: TcpStream, taken: Taken) {
    let seat = taken.seat.clone();
    let _open = app.metrics.connected();
    let _ = stream.set_nodelay(true);
    let asked = seat.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let mut router = router.clone();
        let under_way = asked.begin();
        request.extensions_mut().insert(asked.clone());
        async move {
            let answer: Result<Response<Body>, Infallible> = match head_bytes(&request) > HEAD_BYTES {
                true => Ok(refuse_head()),
                false => router.call(request.map(Body::new)).await,
            };
            // The seat is at work until the answer is written.
            answer.map(|answer| answer.map(|body| keeping(body, under_way)))
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).max_headers(MOST_HEADERS).max_buf_size(HEAD_BYTES).keep_alive(true);
    let head_within = if seat.is_kept { KEPT_HEAD_WITHIN } else { HEAD_WITHIN };
    builder.header_read_timeout(head_within);
    let socket = Socket::new(stream, seat.clone(), app.options.write_within);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    tokio::select! {
        ended = connection.as_mut() => return log_end(ended),
        () = seat.asked_to_leave() => return,
        () = app.stopping() => connection.as_mut().graceful_shutdown(),
    }
    log_end(connection.await);
}

/// What hyper reads at once may be more than it was told to take.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let uri = request.uri();
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let query = uri.query().map_or(0, str::len);
    request.method().as_str().len() + uri.path().len() + authority + query + headers.sum::<usize>()
}

fn refuse_head() -> Response<Body> {
    let message = format!("the request line and the headers may have at most {HEAD_BYTES} bytes together");
    let problem = Problem::new(&HEADERS_TOO_LARGE, message);
    let request_id = uuid::Uuid::now_v7().simple().to_string();
    let mut response = problem.response(&request_id, "");
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Clients that go away or send nonsense are everyday.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

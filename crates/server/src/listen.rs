//! Connections: how many, how large their heads, how patient the server is, and how it ends.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower_service::Service;

use crate::app::App;
use crate::dispatch::router;

const HEAD_WITHIN: Duration = Duration::from_secs(15);
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
    let seats = Arc::new(Semaphore::new(app.options.connections));
    let router = router(&app);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = app.stopping() => break,
            Some(_) = connections.join_next() => {}
            taken = listener.accept() => match taken {
                Ok((stream, _)) => match seats.clone().try_acquire_owned() {
                    Ok(seat) => {
                        connections.spawn(serve_connection(app.clone(), router.clone(), stream, seat));
                    }
                    Err(_) => {
                        connections.spawn(reject_busy(stream));
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

async fn reject_busy(mut stream: TcpStream) {
    let _ = timeout(Duration::from_secs(1), stream.write_all(FULL)).await;
}

async fn serve_connection(
    app: Arc<App>,
    router: axum::Router,
    stream: TcpStream,
    seat: OwnedSemaphorePermit,
) {
    let _seat = seat;
    let _open = app.metrics.connected();
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut router = router.clone();
        async move {
            let answer: Result<Response<Body>, Infallible> = router.call(request.map(Body::new)).await;
            answer
        }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_headers(MOST_HEADERS)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(true);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        ended = connection.as_mut() => return log_end(ended),
        () = app.stopping() => connection.as_mut().graceful_shutdown(),
    }
    log_end(connection.await);
}

/// Clients that go away or send nonsense are everyday.
fn log_end(ended: hyper::Result<()>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

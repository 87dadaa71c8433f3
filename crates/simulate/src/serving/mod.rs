//! HTTP for the simulators that are one process: hyper on one thread, connections kept open, and the simulator as a
//! state that answers one request after the other. Decision 17 says why not what the cluster's iDRACs have.

mod bucket;
mod faults;
mod merge;
mod reply;
mod request;
mod routes;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request as HttpRequest, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub use bucket::Bucket;
pub use faults::{Chance, FaultKind, Faults, Subject, Tally, hash, share_of};
pub use merge::merge;
pub use reply::{Answer, Reply, RetryAfter};
pub use request::Request;
pub use routes::{Asked, Route, Shown, shown};

const MAX_BODY_BYTES: usize = 8 << 20;

/// When a request came: tests give their own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Since 1970.
    pub unix_ms: u64,
    /// Since some time; it never goes back. Limits are measured by it.
    pub elapsed_us: u64,
}

pub trait Simulator: Send + 'static {
    fn answer(&mut self, request: &Request, now: Now) -> Reply;
}

/// A simulator that is served, until this is dropped.
#[derive(Debug)]
pub struct Running<S> {
    address: SocketAddr,
    simulator: Arc<Mutex<S>>,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Simulator> Running<S> {
    pub fn start(listen: SocketAddr, simulator: S) -> io::Result<Running<S>> {
        let listener = std::net::TcpListener::bind(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let simulator = Arc::new(Mutex::new(simulator));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let served = simulator.clone();
        let thread = thread::Builder::new().name("simulator".to_owned()).spawn(move || {
            runtime.block_on(async {
                let Ok(listener) = TcpListener::from_std(listener) else { return };
                tokio::select! {
                    () = accept(&listener, &served) => {}
                    _ = stopped => {}
                }
            });
            // Answers that are held back are not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Running { address, simulator, stop: Some(stop), thread: Some(thread) })
    }

    /// `http://127.0.0.1:12345`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its state, which no request changes meanwhile.
    pub fn state(&self) -> MutexGuard<'_, S> {
        lock(&self.simulator)
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock<S>(simulator: &Mutex<S>) -> MutexGuard<'_, S> {
    simulator.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept<S: Simulator>(listener: &TcpListener, simulator: &Arc<Mutex<S>>) {
    let started = Instant::now();
    loop {
        // Out of file descriptors: those who are connected go on, and somebody will leave.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let simulator = simulator.clone();
        let service = service_fn(move |request| serve(simulator.clone(), started, request));
        tokio::spawn(async move {
            // A client that is gone is nobody's trouble, and a cut connection is an error here.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// The connection is cut, as a broken one is.
#[derive(Debug)]
struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut")
    }
}

impl std::error::Error for Cut {}

async fn serve<S: Simulator>(
    simulator: Arc<Mutex<S>>,
    started: Instant,
    request: HttpRequest<Incoming>,
) -> Result<Response<Full<Bytes>>, Cut> {
    let (head, body) = request.into_parts();
    let too_large = || Ok(Answer::refusal(413, "TOO_LARGE", "the body is longer than 8 MiB").into_response());
    // One whose head says so is not waited for.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return too_large();
    }
    let Ok(body) = Limited::new(body, MAX_BODY_BYTES).collect().await else { return too_large() };
    let request = Request::new(&head, body.to_bytes());
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Now { unix_ms: unix.as_millis() as u64, elapsed_us: started.elapsed().as_micros() as u64 };
    // The guard ends before anything is waited for.
    let mut reply = lock(&simulator).answer(&request, now);
    loop {
        reply = match reply {
            Reply::Answer(answer) => return Ok(answer.into_response()),
            Reply::Cut => return Err(Cut),
            Reply::Held { for_ms, then } => {
                tokio::time::sleep(std::time::Duration::from_millis(for_ms)).await;
                *then
            }
        };
    }
}

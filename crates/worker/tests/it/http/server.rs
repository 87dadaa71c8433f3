//! A server that says what it is told, once per connection, and remembers what it heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;

#[derive(Clone, Debug)]
pub struct Said {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
    manner: Manner,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    Whole,
    /// Announces more than it sends.
    Cut,
    HangUp,
    /// Without listening first.
    HangUpAtOnce,
    Silence,
    Endless,
    /// A part of what it announces, and then nothing.
    Stall,
    /// A byte now and then.
    Drip,
}

#[derive(Debug)]
pub struct Heard {
    pub head: String,
    pub body: String,
}

pub struct Server {
    address: std::net::SocketAddr,
    connections: Arc<AtomicUsize>,
    heard: Mutex<mpsc::UnboundedReceiver<Heard>>,
    task: JoinHandle<()>,
}

impl Said {
    pub fn bytes(status: u16, body: &[u8]) -> Said {
        let headers = vec!["Content-Type: application/json".to_owned()];
        Said { status, headers, body: body.to_vec(), manner: Manner::Whole }
    }

    pub fn json(status: u16, body: &str) -> Said {
        Said::bytes(status, body.as_bytes())
    }

    pub fn with(mut self, header: &str) -> Said {
        self.headers.push(header.to_owned());
        self
    }

    fn in_manner(manner: Manner) -> Said {
        Said { manner, ..Said::json(200, "{}") }
    }

    pub fn silence() -> Said {
        Said::in_manner(Manner::Silence)
    }

    pub fn hang_up() -> Said {
        Said::in_manner(Manner::HangUp)
    }

    pub fn hang_up_at_once() -> Said {
        Said::in_manner(Manner::HangUpAtOnce)
    }

    pub fn cut() -> Said {
        Said::in_manner(Manner::Cut)
    }

    pub fn endless() -> Said {
        Said::in_manner(Manner::Endless)
    }

    /// With this status and header, in every way in which a body can fail to come.
    pub fn half_said(status: u16, header: &str) -> Vec<Said> {
        let ways = [Manner::Cut, Manner::Stall, Manner::Drip, Manner::Endless];
        ways.map(|manner| Said { manner, ..Said::json(status, "why").with(header) }).into()
    }
}

impl Heard {
    pub fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }
}

impl Server {
    pub async fn start(said: Vec<Said>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (tell, heard) = mpsc::unbounded_channel();
        let counter = connections.clone();
        let task = tokio::spawn(async move {
            let mut said = said.into_iter();
            while let Ok((stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                if let Some(said) = said.next() {
                    tokio::spawn(converse(stream, said, tell.clone()));
                }
            }
        });
        Server { address, connections, heard: Mutex::new(heard), task }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many came.
    pub fn count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub async fn heard(&self) -> Heard {
        self.heard.lock().await.recv().await.unwrap()
    }

    /// Where nobody listens any more.
    pub async fn close(self) -> String {
        self.task.abort();
        let _ = self.task.await;
        format!("http://{}/", self.address)
    }
}

async fn converse(mut stream: TcpStream, said: Said, tell: mpsc::UnboundedSender<Heard>) {
    if said.manner == Manner::HangUpAtOnce {
        return;
    }
    let Some(heard) = listen(&mut stream).await else { return };
    let _ = tell.send(heard);
    match said.manner {
        Manner::HangUp => return,
        Manner::Silence => return std::future::pending().await,
        _ => {}
    }
    let announced = match said.manner {
        Manner::Whole => format!("Content-Length: {}\r\n", said.body.len()),
        Manner::Cut | Manner::Stall | Manner::Drip => "Content-Length: 1000\r\n".to_owned(),
        _ => String::new(),
    };
    let headers: String = said.headers.iter().map(|header| format!("{header}\r\n")).collect();
    let head = format!("HTTP/1.1 {} X\r\n{headers}{announced}Connection: close\r\n\r\n", said.status);
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(&said.body).await;
    while said.manner == Manner::Endless && stream.write_all(&[b'x'; 16 * 1024]).await.is_ok() {}
    let mut now_and_then = tokio::time::interval(std::time::Duration::from_millis(5));
    while said.manner == Manner::Drip && stream.write_all(b".").await.is_ok() {
        now_and_then.tick().await;
    }
    if said.manner == Manner::Stall {
        std::future::pending::<()>().await;
    }
}

async fn listen(stream: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let heard = Heard { head: head.to_owned(), body: body.to_owned() };
            let length = heard.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
            if heard.body.len() >= length {
                return Some(heard);
            }
        }
        match stream.read(&mut chunk).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

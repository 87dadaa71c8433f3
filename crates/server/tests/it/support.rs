//! A server on a port of its own, and a client that keeps what it was answered.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

use reqwest::{Client, Method, RequestBuilder};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use waypost_kernel::Catalog;
use waypost_server::{App, Options};
use waypost_store::Database;
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::sqlite::SqliteStore;
use waypost_testkit::Postgres;
use waypost_testkit::oracle::MemoryStore;
use waypost_worker::Stage;

pub struct Server {
    pub address: SocketAddr,
    pub store: Arc<dyn Database>,
    pub stage: watch::Sender<Stage>,
    pub serving: JoinHandle<()>,
    client: Client,
    _lives: Box<dyn Any + Send + Sync>,
}

pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
    pub text: String,
}

/// What the store stands on.
#[derive(Clone, Copy, Debug)]
pub enum On {
    Memory,
    Sqlite,
    Postgres,
}

pub async fn open(on: On) -> (Arc<dyn Database>, Box<dyn Any + Send + Sync>) {
    match on {
        On::Memory => (Arc::new(MemoryStore::new(Catalog::shipped().unwrap())), Box::new(())),
        On::Sqlite => {
            let folder = tempfile::tempdir().unwrap();
            (Arc::new(SqliteStore::open(&folder.path().join("waypost.db")).unwrap()), Box::new(folder))
        }
        On::Postgres => {
            let database = Postgres::with_schema(&migration_sql()).unwrap();
            (Arc::new(PostgresStore::open(&database.url()).await.unwrap()), Box::new(database))
        }
    }
}

/// One database, opened as by two processes.
pub async fn open_twice(on: On) -> ([Arc<dyn Database>; 2], Box<dyn Any + Send + Sync>) {
    match on {
        On::Memory => panic!("it is in one process alone"),
        On::Sqlite => {
            let folder = tempfile::tempdir().unwrap();
            let open = || Arc::new(SqliteStore::open(&folder.path().join("waypost.db")).unwrap());
            ([open(), open()], Box::new(folder))
        }
        On::Postgres => {
            let database = Postgres::with_schema(&migration_sql()).unwrap();
            let open = async || Arc::new(PostgresStore::open(&database.url()).await.unwrap());
            ([open().await, open().await], Box::new(database))
        }
    }
}

pub fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // One that is idle is kept and no second one: tests that count connections see their own as one.
    Client::builder().no_proxy().pool_max_idle_per_host(1).build().unwrap()
}

impl Server {
    pub async fn new() -> Server {
        Server::on(On::Sqlite).await
    }

    pub async fn on(on: On) -> Server {
        let (store, lives) = open(on).await;
        Server::with(store, lives, Options::default()).await
    }

    pub async fn with(
        store: Arc<dyn Database>,
        lives: Box<dyn Any + Send + Sync>,
        options: Options,
    ) -> Server {
        let (stage, shutdown) = watch::channel(Stage::Working);
        let app = App::new(store.clone(), options, shutdown);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(waypost_server::serve(app, listener));
        Server { address, store, stage, serving, client: client(), _lives: lives }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.client.request(Method::from_bytes(method.as_bytes()).unwrap(), self.url(path))
    }

    pub async fn get(&self, path: &str) -> Answer {
        send(self.request("GET", path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        send(with_body(self.request("POST", path), &body)).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Answer {
        send(with_body(self.request("PUT", path), &body)).await
    }

    /// A run of `deploy` with nothing special; gives its object.
    pub async fn start(&self) -> Value {
        self.start_with(json!({})).await
    }

    pub async fn start_with(&self, more: Value) -> Value {
        let mut body = json!({ "lifecycle": "deploy" });
        body.as_object_mut().unwrap().extend::<Map<String, Value>>(more.as_object().unwrap().clone());
        self.post("/v1/runs", body).await.expect(201)
    }

    /// Takes one run; gives its id and token.
    pub async fn claim(&self, worker: &str) -> (String, String) {
        let claims = self.post("/v1/claims", json!({ "worker": worker })).await.expect(200);
        let claim = &claims["claims"][0];
        let text = |value: &Value| value.as_str().expect("a claim").to_owned();
        (text(&claim["run"]["run_id"]), text(&claim["lease"]["token"]))
    }
}

pub fn with_body(request: RequestBuilder, body: &Value) -> RequestBuilder {
    request.header("content-type", "application/json").body(body.to_string())
}

pub async fn send(request: RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    // A stream does not end: its head is the answer.
    let is_stream = headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
    let text = if is_stream { String::new() } else { response.text().await.unwrap() };
    let body = serde_json::from_str(&text).unwrap_or_default();
    Answer { status, headers, body, text }
}

impl Answer {
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.body
    }

    /// A problem with this status and code, in the right media type and with the request's id.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Value {
        // As front ends of agents are told.
        if self.body["error"].is_object() {
            assert_eq!(
                (self.status, self.body["error"]["code"].as_str()),
                (status, Some(code)),
                "{}",
                self.text
            );
            assert_eq!(self.body["correlationId"], self.header("x-request-id"), "{}", self.text);
            return self.body;
        }
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{}", self.text);
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert_eq!(self.body["request_id"], self.header("x-request-id"), "{}", self.text);
        self.body
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

//! Object stores for tests: a folder, an S3 server of our own, and one that dies at a given write.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use hyper::Method;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use object_store::aws::AmazonS3Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use waypost_store::StoreError;
use waypost_worker::projection::objects::{Answer, Bucket, Content, Folder, Objects, Stored};

const BUCKET: &str = "runs-of-agents";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Folder,
    S3,
}

/// A place to write to; what is in it goes with it.
pub struct Place {
    pub objects: Arc<dyn Objects>,
    pub folder: TempDir,
    server: Option<JoinHandle<()>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}

impl Place {
    pub async fn at(place: Where) -> Place {
        let folder = TempDir::new().unwrap();
        match place {
            Where::Folder => {
                Place { objects: Arc::new(Folder::new(&folder.path().join("objects"))), folder, server: None }
            }
            Where::S3 => {
                let (url, server) = serve(folder.path()).await;
                let builder = AmazonS3Builder::new()
                    .with_endpoint(url)
                    .with_region("us-east-1")
                    .with_access_key_id("key")
                    .with_secret_access_key("secret");
                let bucket = Bucket::build(builder, BUCKET, "a prefix/of ours").unwrap();
                Place { objects: Arc::new(bucket), folder, server: Some(server) }
            }
        }
    }
}

/// The S3 protocol over files. Its own check of `If-Match` and its write are two: nobody else writes in between.
async fn serve(folder: &Path) -> (String, JoinHandle<()>) {
    std::fs::create_dir(folder.join(BUCKET)).unwrap();
    let mut builder = S3ServiceBuilder::new(s3s_fs::FileSystem::new(folder).unwrap());
    builder.set_auth(SimpleAuth::from_single("key", "secret"));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let one_at_a_time = Arc::new(Mutex::new(()));
    let server = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let (service, turn) = (service.clone(), one_at_a_time.clone());
            let answer = service_fn(move |request| {
                let (service, turn) = (service.clone(), turn.clone());
                async move {
                    // Readers are not kept waiting: they see what a rename leaves.
                    let is_write = *hyper::Request::method(&request) == Method::PUT;
                    let _turn = if is_write { Some(turn.lock().await) } else { None };
                    Service::call(&service, request).await
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(socket), answer));
        }
    });
    (url, server)
}

/// Passes on to another store until it has died or is away.
#[derive(Debug)]
pub struct Mortal {
    inner: Arc<dyn Objects>,
    /// Writes until its writer is dead.
    fuse: AtomicI64,
    carries_out_the_last: bool,
    pub is_away: AtomicBool,
    pub written: AtomicUsize,
}

impl Mortal {
    /// The `number`-th write is its last, and carried out or not.
    pub fn new(inner: &Arc<dyn Objects>, number: i64, carries_out_the_last: bool) -> Arc<Mortal> {
        Arc::new(Mortal {
            inner: inner.clone(),
            fuse: AtomicI64::new(number),
            carries_out_the_last,
            is_away: AtomicBool::new(false),
            written: AtomicUsize::new(0),
        })
    }

    pub fn immortal(inner: &Arc<dyn Objects>) -> Arc<Mortal> {
        Mortal::new(inner, i64::MAX, true)
    }

    pub fn is_dead(&self) -> bool {
        self.fuse.load(Ordering::SeqCst) <= 0
    }
}

fn gone<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("the test took it away".into()))
}

impl Objects for Mortal {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn read<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Stored>> {
        if self.is_dead() || self.is_away.load(Ordering::SeqCst) {
            return Box::pin(async { gone() });
        }
        self.inner.read(key)
    }

    fn write<'a>(&'a self, key: &'a str, new: &'a Content, was: Option<&'a Stored>) -> Answer<'a, bool> {
        if self.is_away.load(Ordering::SeqCst) {
            return Box::pin(async { gone() });
        }
        let left = self.fuse.fetch_sub(1, Ordering::SeqCst) - 1;
        Box::pin(async move {
            if left < 0 || left == 0 && !self.carries_out_the_last {
                return gone();
            }
            let written = self.inner.write(key, new, was).await?;
            self.written.fetch_add(usize::from(written), Ordering::SeqCst);
            if left == 0 { gone() } else { Ok(written) }
        })
    }
}

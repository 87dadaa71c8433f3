//! Object stores for tests: a folder, an S3 server of our own, and one that dies at a given write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use object_store::aws::AmazonS3Builder;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use waypost_store::StoreError;
use waypost_testkit::s3;
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
                let (url, server) = s3::serve(folder.path(), BUCKET).await;
                let builder = AmazonS3Builder::new()
                    .with_endpoint(url)
                    .with_region("us-east-1")
                    .with_access_key_id(s3::KEY)
                    .with_secret_access_key(s3::SECRET);
                let bucket = Bucket::build(builder, BUCKET, "a prefix/of ours").unwrap();
                Place { objects: Arc::new(bucket), folder, server: Some(server) }
            }
        }
    }
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

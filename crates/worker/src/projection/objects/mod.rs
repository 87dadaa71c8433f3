//! Where documents are kept, and when one may take another's place: only a newer one does, and none after the last.

mod bucket;
mod folder;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use waypost_store::{Result, StoreError};

pub use bucket::Bucket;
pub use folder::Folder;

/// Boxed, so that callers hold one `Arc<dyn Objects>` whatever is behind it.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A document as it is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// The run's seq: a document is replaced by one of a higher version alone.
    pub version: u64,
    /// Nothing replaces it.
    pub is_last: bool,
}

/// A document as it stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub bytes: Vec<u8>,
    pub version: u64,
    pub is_last: bool,
    /// By which the store knows it again.
    pub tag: String,
}

/// An object store, as far as it is needed: a read, and a write that compares and sets. Whole documents only: no reader sees half
/// of one.
pub trait Objects: Send + Sync + std::fmt::Debug {
    /// Where it is. Tells it from all others.
    fn name(&self) -> &str;

    fn read<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Stored>>;

    /// Writes if what stands there is still `was`; gives whether it did.
    fn write<'a>(&'a self, key: &'a str, new: &'a Content, was: Option<&'a Stored>) -> Answer<'a, bool>;
}

/// What came of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    Written,
    /// It is there already, or a newer one is.
    Kept,
}

/// Others that write the same document at the same time: each round one of them gets through.
const ROUNDS: usize = 20;

/// Puts a document, unless a newer one or the last one stands there.
pub async fn put(objects: &dyn Objects, key: &str, new: &Content) -> Result<Put> {
    for _ in 0..ROUNDS {
        let was = objects.read(key).await?;
        if was.as_ref().is_some_and(|was| is_kept(was, new)) {
            return Ok(Put::Kept);
        }
        if objects.write(key, new, was.as_ref()).await? {
            return Ok(Put::Written);
        }
    }
    Err(StoreError::Unavailable(format!("{key}: others write it all the time")))
}

fn is_kept(was: &Stored, new: &Content) -> bool {
    was.is_last || was.version >= new.version || was.bytes == new.bytes && !new.is_last
}

/// `file:///folder` or `s3://bucket/prefix`. The error says what is allowed.
pub fn open(url: &str) -> std::result::Result<Arc<dyn Objects>, String> {
    if let Some(path) = url.strip_prefix("file://").filter(|path| path.starts_with('/') && path.len() > 1) {
        return Ok(Arc::new(Folder::new(Path::new(path))));
    }
    if let Some(rest) = url.strip_prefix("s3://") {
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if !bucket.is_empty() {
            return Bucket::from_environment(bucket, prefix)
                .map(|bucket| Arc::new(bucket) as Arc<dyn Objects>);
        }
    }
    // A URL may hold what nobody should read in a log: only its scheme is repeated.
    let scheme = url.split(':').next().unwrap_or_default();
    Err(format!("{scheme:?} is no object store; allowed: file:///path/to/folder, s3://bucket/prefix"))
}

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
    pub damage: Option<Damage>,
}

/// What somebody else, or a broken disk, did to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is not what was written. It counts as that.
    Edited,
    /// Nobody knows its version any more.
    VersionLost,
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Put {
    Written,
    /// It is there already, or a newer one is.
    Kept,
    /// Which of the two is newer cannot be said.
    Unknown(Stored),
}

/// Others that write the same document at the same time: each round one of them gets through.
const ROUNDS: usize = 20;

/// Puts a document, unless a newer one or the last one stands there.
pub async fn put(objects: &dyn Objects, key: &str, new: &Content) -> Result<Put> {
    put_or_mend(objects, key, new, false).await
}

/// The same; if it `mends`, one that was edited is replaced by what it was.
pub(super) async fn put_or_mend(objects: &dyn Objects, key: &str, new: &Content, mends: bool) -> Result<Put> {
    for _ in 0..ROUNDS {
        let was = objects.read(key).await?;
        match &was {
            Some(was) if was.damage == Some(Damage::VersionLost) => return Ok(Put::Unknown(was.clone())),
            Some(was) if mends && was.damage == Some(Damage::Edited) && was.version <= new.version => {}
            Some(was) if is_kept(was, new) => return Ok(Put::Kept),
            _ => {}
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

/// Where an object store is, and how it is reached where the environment does not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// `file:///folder` or `s3://bucket/prefix`.
    pub url: String,
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Whether the bucket stands in the path of addresses.
    pub path_style: Option<bool>,
}

impl From<&str> for Settings {
    fn from(url: &str) -> Settings {
        Settings { url: url.to_owned(), ..Settings::default() }
    }
}

enum Named<'u> {
    Folder(&'u Path),
    Bucket(&'u str, &'u str),
}

fn named(url: &str) -> std::result::Result<Named<'_>, String> {
    if let Some(path) = url.strip_prefix("file://").filter(|path| path.starts_with('/') && path.len() > 1) {
        return Ok(Named::Folder(Path::new(path)));
    }
    let bucket = url.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")));
    if let Some((bucket, prefix)) = bucket.filter(|(bucket, _)| !bucket.is_empty()) {
        return Ok(Named::Bucket(bucket, prefix));
    }
    // A URL may hold what nobody should read in a log: only its scheme is repeated.
    let scheme = url.split(':').next().unwrap_or_default();
    Err(format!("{scheme:?} is no object store; allowed: file:///path/to/folder, s3://bucket/prefix"))
}

/// Whether such a place can be; the error says what is allowed.
pub fn check(url: &str) -> std::result::Result<(), String> {
    named(url).map(drop)
}

/// The store that is named. The error says what is allowed.
pub fn open(settings: &Settings) -> std::result::Result<Arc<dyn Objects>, String> {
    match named(&settings.url)? {
        Named::Folder(path) => Ok(Arc::new(Folder::new(path))),
        Named::Bucket(bucket, prefix) => Ok(Arc::new(Bucket::open(settings, bucket, prefix)?)),
    }
}

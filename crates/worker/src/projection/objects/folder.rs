//! A local folder. Documents are replaced by renaming, so that each is whole at any time; versions stand beside them, under
//! `.versions`, so that readers of the folder see documents alone.
//!
//! A document and its version are two files, and a process may end between the two writes. So the version is written first, and
//! keeps the one before: which of the two the document is, its digest tells. Writers of a run lock a file of their own.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::Builder;
use waypost_store::{Result, StoreError};

use super::{Answer, Content, Damage, Objects, Stored};

const VERSIONS: &str = ".versions";
const LOCK: &str = "lock";

/// How often a document is read again that was replaced while its version was read.
const LOOKS: usize = 100;

#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
    name: String,
}

impl Folder {
    /// Made with the first write.
    pub fn new(root: &Path) -> Folder {
        let absolute = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        Folder { name: format!("file://{}", absolute.display()), root: absolute }
    }

    fn document(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    fn versions(&self, key: &str) -> PathBuf {
        self.root.join(VERSIONS).join(key)
    }

    /// The document before its version: what was replaced in between is known as the one before.
    fn look(&self, key: &str) -> std::io::Result<Option<Stored>> {
        let mut found = None;
        for _ in 0..LOOKS {
            let Some(bytes) = read_if_there(&self.document(key))? else { return Ok(None) };
            let Some(versions) = read_if_there(&self.versions(key))? else {
                let tag = digest(&bytes);
                return Ok(Some(Stored { bytes, version: 0, is_last: false, tag, damage: None }));
            };
            let tag = digest(&bytes);
            let Some(versions) = read_versions(&versions) else {
                let damage = Some(Damage::VersionLost);
                return Ok(Some(Stored { bytes, version: 0, is_last: false, tag, damage }));
            };
            let known = ["now", "before"].into_iter().find(|at| versions[at]["sha256"] == *tag);
            let of = &versions[known.unwrap_or("now")];
            let stored = Stored {
                bytes,
                version: of["version"].as_u64().unwrap_or(0),
                is_last: of["last"] == true,
                tag,
                damage: known.is_none().then_some(Damage::Edited),
            };
            if known.is_some() {
                return Ok(Some(stored));
            }
            found = Some(stored);
        }
        // Somebody edited it: it counts as what it was.
        Ok(found)
    }

    fn replace(&self, key: &str, new: &Content, was: Option<&Stored>) -> std::io::Result<bool> {
        let (document, versions) = (self.document(key), self.versions(key));
        let run = versions.parent().map_or(self.root.as_path(), run_of);
        fs::create_dir_all(run)?;
        let lock = File::options().create(true).truncate(false).write(true).open(run.join(LOCK))?;
        lock.lock()?;
        let stands = self.look(key)?;
        if stands.as_ref() != was {
            return Ok(false);
        }
        let entry = |version: u64, is_last: bool, sha256: &str| json!({ "version": version, "last": is_last, "sha256": sha256 });
        let told = json!({
            "now": entry(new.version, new.is_last, &digest(&new.bytes)),
            "before": stands.as_ref().map(|it| entry(it.version, it.is_last, &it.tag)),
        });
        put_whole(&versions, told.to_string().as_bytes(), run)?;
        put_whole(&document, &new.bytes, run)?;
        Ok(true)
    }
}

impl Objects for Folder {
    fn name(&self) -> &str {
        &self.name
    }

    fn read<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Stored>> {
        let (folder, key) = (self.clone(), key.to_owned());
        Box::pin(aside(move || folder.look(&key).map_err(|error| folder.away(&error))))
    }

    fn write<'a>(&'a self, key: &'a str, new: &'a Content, was: Option<&'a Stored>) -> Answer<'a, bool> {
        let (folder, key, new, was) = (self.clone(), key.to_owned(), new.clone(), was.cloned());
        Box::pin(aside(move || folder.replace(&key, &new, was.as_ref()).map_err(|error| folder.away(&error))))
    }
}

impl Folder {
    fn away(&self, error: &std::io::Error) -> StoreError {
        StoreError::Unavailable(format!("the object store {}: {error}", self.name))
    }
}

/// Files are waited for by a thread of their own.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let ended = tokio::task::spawn_blocking(work).await;
    ended.unwrap_or_else(|error| Err(StoreError::Unavailable(format!("a write was given up: {error}"))))
}

/// They are renamed into their place, so that nobody reads half of them: what is none is damaged.
fn read_versions(bytes: &[u8]) -> Option<Value> {
    let versions: Value = serde_json::from_slice(bytes).ok()?;
    versions["now"]["version"].is_u64().then_some(versions)
}

/// `runs/<id>` of the folder in which a version stands.
fn run_of(folder: &Path) -> &Path {
    match folder.file_name() {
        Some(name) if name == "steps" => folder.parent().unwrap_or(folder),
        _ => folder,
    }
}

fn read_if_there(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Whole, or not at all: also after a loss of power. `aside` is where it is written, out of the readers' way.
fn put_whole(path: &Path, bytes: &[u8], aside: &Path) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    // As files are made otherwise: whom the folder is for, its owner says.
    let mut file =
        Builder::new().prefix("new-").permissions(Permissions::from_mode(0o666)).tempfile_in(aside)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    File::open(folder)?.sync_all()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

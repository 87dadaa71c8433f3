//! Copies of a file: made while others work, and put back where nobody does.
//!
//! A copy is written beside its place and renamed when it is whole and on the disk, so that whatever stops it leaves no half of one.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};
use waypost_kernel::Time;

use super::link::fault::{Fault, Result};
use super::link::open::{self, APPLICATION_ID, VERSION};
use crate::seam::error::StoreError;

const LOOK: Duration = Duration::from_millis(100);

/// What a copy holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    pub runs: u64,
    pub bytes: u64,
}

/// Told how many bytes of how many are written.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// Copies a file as it is at one instant to a place where there is none. Others go on writing.
pub fn backup(from: &Path, to: &Path, progress: Progress<'_>) -> std::result::Result<Copied, StoreError> {
    let copied = || -> Result<Copied> {
        let source = checked(from)?;
        if to.exists() {
            return Err(StoreError::invalid("FILE", format!("{} is there already", to.display())).into());
        }
        let folder = folder_of(to);
        if !folder.is_dir() {
            return Err(
                StoreError::invalid("FILE", format!("there is no folder {}", folder.display())).into()
            );
        }
        let copied = copy(&source, to, progress)?;
        second_name(&part_of(to), to)?;
        fs::remove_file(part_of(to)).map_err(|error| no_file(to, &error))?;
        sync_folder(to)?;
        Ok(copied)
    };
    copied().map_err(|fault| finished(to, fault))
}

/// Puts a copy in the place of a file that no process has open. What was there stays beside it, under the name that is returned.
pub fn restore(
    from: &Path,
    to: &Path,
    replace: bool,
    progress: Progress<'_>,
) -> std::result::Result<(Copied, Option<PathBuf>), StoreError> {
    let place = fs::canonicalize(to).unwrap_or_else(|_| to.to_owned());
    let to = &*place;
    let restored = || -> Result<(Copied, Option<PathBuf>)> {
        let source = checked(from)?;
        let is_there = to.exists();
        if is_there && !replace {
            let message =
                format!("{} is there already; --replace keeps it beside the restored one", to.display());
            return Err(StoreError::invalid("replace", message).into());
        }
        open::make_folder(to).map_err(|error| no_file(to, &error))?;
        let kept = is_there.then(|| aside(to));
        let nobody = if is_there { closed_to_others(to)? } else { None };
        let copied = copy(&source, to, progress)?;
        let part = part_of(to);
        if let Some(kept) = &kept {
            like(to, &part)?;
            second_name(to, kept)?;
            // Of a file that cannot be opened any more they are still there, and would be taken for the copy's.
            let left = logs_of(to).zip(logs_of(kept)).filter(|(log, _)| nobody.is_none() && log.exists());
            for (log, name) in left {
                fs::rename(&log, name).map_err(|error| no_file(&log, &error))?;
            }
            fs::rename(&part, to).map_err(|error| no_file(to, &error))?;
        } else {
            no_logs(to)?;
            // Never over a file that came meanwhile.
            second_name(&part, to)?;
            fs::remove_file(&part).map_err(|error| no_file(&part, &error))?;
        }
        sync_folder(to)?;
        Ok((copied, kept))
    };
    restored().map_err(|fault| finished(to, fault))
}

/// What SQLite keeps beside a file while it is open, or after a crash.
fn logs_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    ["-wal", "-shm", "-journal"].into_iter().map(|ending| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    })
}

/// Without its file a log belongs to a database that was moved away, or is still open somewhere: it would be taken for the copy's.
fn no_logs(path: &Path) -> Result<()> {
    let Some(log) = logs_of(path).find(|log| log.exists()) else { return Ok(()) };
    let message = format!(
        "{} is there without its database: stop whoever has that open, and move it to where the database went",
        log.display()
    );
    Err(StoreError::Unavailable(message).into())
}

/// With the owner and the rights of the file that it replaces.
fn like(old: &Path, new: &Path) -> Result<()> {
    let was = fs::metadata(old).map_err(|error| no_file(old, &error))?;
    // Who may not give files away has one of his own.
    let _ = chown(new, Some(was.uid()), Some(was.gid()));
    fs::set_permissions(new, was.permissions()).map_err(|error| no_file(new, &error))
}

fn finished(to: &Path, fault: Fault) -> StoreError {
    let part = part_of(to);
    for left in std::iter::once(part.clone()).chain(logs_of(&part)) {
        let _ = fs::remove_file(left);
    }
    fault.into()
}

/// A file that can be copied: a sound database of ours that this binary reads.
fn checked(path: &Path) -> Result<Connection> {
    let open = || -> Result<Connection> {
        // Not read-only: a copy that was made with its log beside it needs the log taken in to be read.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(10))?;
        let number = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
        let (application, version) = (number("application_id")?, number("user_version")?);
        if application != APPLICATION_ID {
            return Err(StoreError::Unusable("it is no database of waypost".into()).into());
        }
        if version > VERSION {
            let message = format!(
                "it was written by a newer waypost (schema {version}, this one knows {VERSION}): upgrade this binary"
            );
            return Err(StoreError::Unusable(message).into());
        }
        let said: String = conn.pragma_query_value(None, "quick_check", |row| row.get(0))?;
        if said != "ok" {
            return Err(StoreError::Unusable(format!("it is damaged: {said}")).into());
        }
        Ok(conn)
    };
    open().map_err(|fault| fault.at(path))
}

/// Into the place's `.part`, flushed.
fn copy(source: &Connection, to: &Path, progress: Progress<'_>) -> Result<Copied> {
    let part = part_of(to);
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part);
    let file = made.map_err(|error| no_file(&part, &error))?;
    let pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    let total: u64 = source.query_row(pages, [], |row| row.get(0))?;
    let name = part.to_str().ok_or_else(|| no_file(&part, &ErrorKind::InvalidFilename.into()))?;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let written = fs::metadata(&part).map_or(0, |data| data.len());
                progress(written.min(total), total);
                thread::park_timeout(LOOK);
            }
        });
        let done = source.execute("VACUUM INTO ?1", [name]);
        is_done.store(true, Ordering::Relaxed);
        done
    })?;
    let copy = checked(&part)?;
    // Whatever was taken from the file that it is made of.
    open::put_guards_back(&copy)?;
    file.sync_all().map_err(|error| no_file(&part, &error))?;
    let runs = copy.query_row("SELECT count(*) FROM run_now", [], |row| row.get(0))?;
    let bytes = file.metadata().map_err(|error| no_file(&part, &error))?.len();
    progress(bytes, bytes);
    Ok(Copied { runs, bytes })
}

/// Takes the log into a file and keeps everybody else out of it for as long as this lives. None if it is no database any more.
fn closed_to_others(path: &Path) -> Result<Option<Connection>> {
    let close = || -> rusqlite::Result<Connection> {
        let conn = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.execute_batch("PRAGMA locking_mode = exclusive; PRAGMA journal_mode = delete; BEGIN EXCLUSIVE")?;
        Ok(conn)
    };
    close().map(Some).or_else(|error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase | rusqlite::ErrorCode::DatabaseCorrupt) => Ok(None),
        Some(rusqlite::ErrorCode::DatabaseBusy | rusqlite::ErrorCode::DatabaseLocked) => {
            let message =
                format!("{}: a process has it open: stop servers and workers first", path.display());
            Err(StoreError::Unavailable(message).into())
        }
        _ => Err(Fault::from(error).at(path)),
    })
}

/// The same file under another name, never over one that is there; a copy where a file has one name only.
fn second_name(file: &Path, name: &Path) -> Result<()> {
    let named = fs::hard_link(file, name).or_else(|error| match error.kind() {
        ErrorKind::AlreadyExists => Err(error),
        _ => fs::copy(file, name).map(drop),
    });
    named.map_err(|error| no_file(name, &error))
}

/// Of this process alone: two that copy to one place do not meet.
fn part_of(path: &Path) -> PathBuf {
    beside(path, &format!("part-{}", std::process::id()))
}

/// The name under which a file stays that another one replaces.
fn aside(path: &Path) -> PathBuf {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = Time::from_ms(i64::try_from(since.as_millis()).unwrap_or_default());
    beside(path, &format!("before-{}", now.to_string().replace(':', "")))
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    name.into()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn sync_folder(path: &Path) -> Result<()> {
    File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(|error| no_file(path, &error))
}

fn no_file(path: &Path, error: &std::io::Error) -> Fault {
    StoreError::Unavailable(format!("{}: {error}", path.display())).into()
}

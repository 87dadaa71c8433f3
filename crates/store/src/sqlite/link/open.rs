//! Opening a database file: pragmas, version, migrations.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use waypost_kernel::lifecycle::{Catalog, Kind, SHIPPED};
use waypost_kernel::render::sql;

use super::costs;
use super::fault::{Fault, Result};
use crate::columns::with_labels;
use crate::seam::error::StoreError;

/// "WAYP": tells a Waypost database from any other SQLite file.
pub const APPLICATION_ID: i32 = 0x5741_5950;
pub const VERSION: i32 = 1;
/// Before 3.51.3 a checkpoint racing a reset of the log could lose commits.
const OLDEST_SQLITE: i32 = 3_051_003;
pub const BUSY: Duration = Duration::from_secs(10);

/// The writing connection; makes the file, or brings it up to date.
pub fn writer(path: &Path) -> Result<Connection> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(StoreError::Unusable(format!("SQLite {} is too old", rusqlite::version())).into());
    }
    let failed = |error| StoreError::Unavailable(format!("{}: {error}", path.display()));
    make_folder(path).map_err(failed)?;
    let is_new = !path.exists();
    let open = || -> Result<Connection> {
        let mut conn = Connection::open(path)?;
        // Inputs, leases and digests are for nobody but the owner. The files beside it get the same rights, so before they are made.
        if is_new {
            fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed)?;
        }
        pragmas(&conn)?;
        migrate(&mut conn)?;
        be_the_engine(&conn)?;
        Ok(conn)
    };
    open().map_err(|fault| fault.at(path))
}

/// A folder that is made for a file is the owner's too and tells Git to leave it out; one that is there already stays as it is.
pub fn make_folder(path: &Path) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        fs::write(folder.join(".gitignore"), "*\n")?;
    }
    Ok(())
}

/// A connection that only reads.
pub fn reader(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(|error| Fault::from(error).at(path))?;
    costs::counted(&mut conn)?;
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(64);
    keep_plans(&conn)?;
    Ok(conn)
}

fn pragmas(conn: &Connection) -> Result<()> {
    conn.busy_timeout(BUSY)?;
    conn.set_prepared_statement_cache_capacity(128);
    keep_plans(conn)?;
    in_turn(|| conn.execute_batch("PRAGMA journal_mode = wal"))?;
    // FULL: an answer means that the commit is on the disk. With group commit it is one flush for many.
    conn.execute_batch(
        "PRAGMA synchronous = full; PRAGMA cache_size = -65536; \
         PRAGMA journal_size_limit = 67108864; PRAGMA wal_autocheckpoint = 4000; PRAGMA temp_store = memory;",
    )?;
    Ok(())
}

/// Two that turn a new file over to its log at once would wait for each other: SQLite refuses one of them without waiting at all.
fn in_turn(turn: impl Fn() -> rusqlite::Result<()>) -> rusqlite::Result<()> {
    let began = Instant::now();
    loop {
        match turn() {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && began.elapsed() < BUSY =>
            {
                thread::sleep(Duration::from_millis(10));
            }
            ended => return ended,
        }
    }
}

/// Of the file's triggers the engine obeys those that are not for hands alone, as copies in its own connection: SQLite turns off
/// all of a file's triggers for a connection, or none. So every write of the engine is still judged by what the file says, and does not
/// pay for telling it from a hand. Nor for undoing a statement halfway (ABORT): the engine undoes all that it did when one fails.
fn be_the_engine(conn: &Connection) -> Result<()> {
    let sql = "SELECT replace(replace(sql, 'CREATE TRIGGER', 'CREATE TEMP TRIGGER'), 'RAISE(ABORT', 'RAISE(FAIL') \
               FROM main.sqlite_master WHERE type = 'trigger' AND name NOT GLOB 'by_hand_*' ORDER BY rowid";
    let mut statement = conn.prepare(sql)?;
    let triggers: Vec<String> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    conn.execute_batch(&triggers.join(";\n"))?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    Ok(())
}

/// Query plans do not depend on bound values. Otherwise every claim would compile its queries anew, because a value might fit the
/// condition of a partial index.
fn keep_plans(conn: &Connection) -> Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn migrate(conn: &mut Connection) -> Result<()> {
    let pragma = |conn: &Connection, name: &str| -> Result<i32> {
        Ok(conn.pragma_query_value(None, name, |row| row.get(0))?)
    };
    if pragma(conn, "user_version")? == VERSION && pragma(conn, "application_id")? == APPLICATION_ID {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Looked at again under the lock: two processes may open a new file at once.
    let (version, application) = (pragma(&tx, "user_version")?, pragma(&tx, "application_id")?);
    let tables: i64 = tx.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    match (application, version) {
        (0, 0) if tables == 0 => install(&tx)?,
        (APPLICATION_ID, VERSION) => {}
        (APPLICATION_ID, newer) if newer > VERSION => {
            let message = format!(
                "it was written by a newer waypost (schema {newer}, this one knows {VERSION}): upgrade this binary"
            );
            return Err(StoreError::Unusable(message).into());
        }
        _ => {
            let message = "it is a database of another program: name another file";
            return Err(StoreError::Unusable(message.into()).into());
        }
    }
    tx.commit()?;
    Ok(())
}

/// Triggers of a file that are not as this binary makes them: without them hands can do what they must not. What else somebody added is theirs.
pub fn guards_amiss(conn: &Connection) -> Result<Vec<String>> {
    Ok(triggers_amiss(conn)?.into_iter().map(|(name, words, _)| format!("{name} {words}")).collect())
}

/// Makes them anew.
pub fn put_guards_back(conn: &Connection) -> Result<()> {
    for (name, _, sql) in triggers_amiss(conn)? {
        conn.execute_batch(&format!("DROP TRIGGER IF EXISTS {name}; {sql};"))?;
    }
    Ok(())
}

/// By name, with what is wrong and the statement that makes it.
fn triggers_amiss(conn: &Connection) -> Result<Vec<(String, &'static str, String)>> {
    let fresh = Connection::open_in_memory()?;
    install(&fresh)?;
    let triggers = |of: &Connection| -> Result<BTreeMap<String, String>> {
        let mut statement =
            of.prepare("SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' ORDER BY rowid")?;
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(found.collect::<rusqlite::Result<_>>()?)
    };
    let stored = triggers(conn)?;
    let amiss = triggers(&fresh)?.into_iter().filter_map(|(name, sql)| match stored.get(&name) {
        Some(known) if *known == sql => None,
        Some(_) => Some((name, "is another", sql)),
        None => Some((name, "is missing", sql)),
    });
    Ok(amiss.collect())
}

fn install(conn: &Connection) -> Result<()> {
    let catalog = Catalog::shipped().map_err(|problems| StoreError::Unusable(problems.to_string()))?;
    for script in [include_str!("../schema/schema.sql"), include_str!("../schema/hand_edits.sql")] {
        conn.execute_batch(&with_labels(script))?;
    }
    conn.execute_batch(&sql::guard())?;
    for (name, source) in SHIPPED {
        if let Some(lifecycle) = catalog.latest(name) {
            add_lifecycle(conn, lifecycle, source)?;
        }
    }
    conn.execute_batch(include_str!("../schema/lifecycle_guards.sql"))?;
    conn.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {VERSION};"
    ))?;
    Ok(())
}

pub fn add_lifecycle(conn: &Connection, lifecycle: &waypost_kernel::Lifecycle, source: &str) -> Result<()> {
    conn.execute_batch(&sql::definition(lifecycle))?;
    conn.execute(
        "UPDATE lifecycles SET source = ?3 WHERE name = ?1 AND version = ?2",
        (&*lifecycle.name, lifecycle.version, source),
    )?;
    if lifecycle.kind == Kind::Run {
        for sql in [CODES, STARTS, STEPS, STAYS] {
            conn.execute(sql, (&*lifecycle.name, lifecycle.version))?;
        }
    }
    Ok(())
}

const CODES: &str = "INSERT OR IGNORE INTO state_codes(code, lifecycle, version, state, phase, initial) \
  SELECT ((SELECT coalesce(max(code >> 3), 0) FROM state_codes) + row_number() OVER (ORDER BY state)) << 3 \
      | CASE phase WHEN 'draft' THEN 0 WHEN 'ready' THEN 1 WHEN 'held' THEN 2 WHEN 'parked' THEN 3 ELSE 4 END, \
    lifecycle, version, state, phase, initial FROM lifecycle_states WHERE lifecycle = ?1 AND version = ?2";
const STARTS: &str = "INSERT OR IGNORE INTO starts(code) \
  SELECT code FROM state_codes WHERE initial = 1 AND lifecycle = ?1 AND version = ?2";
const STEPS: &str = "INSERT OR IGNORE INTO steps(step) SELECT (s.code * 1048576 + d.code) * 4 + r.rise FROM lifecycle_moves m \
    JOIN (SELECT 1 AS rise UNION ALL SELECT 2 UNION ALL SELECT 3) r ON r.rise >= m.events \
    JOIN state_codes s ON s.lifecycle = m.lifecycle AND s.version = m.version AND s.state = m.src \
    JOIN state_codes d ON d.lifecycle = m.lifecycle AND d.version = m.version AND d.state = m.dst \
  WHERE m.guards = 0 AND m.lifecycle = ?1 AND m.version = ?2";
const STAYS: &str = "INSERT OR IGNORE INTO steps(step) SELECT (s.code * 1048576 + s.code) * 4 + r.rise FROM state_codes s \
    JOIN (SELECT 0 AS rise UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3) r \
  WHERE s.phase <> 'settled' AND s.lifecycle = ?1 AND s.version = ?2";

/// What this database knows, in the order in which items come before the runs that have them.
pub fn catalog(conn: &Connection) -> Result<Catalog> {
    let mut catalog = Catalog::default();
    let mut statement = conn.prepare(
        "SELECT source FROM lifecycles WHERE source IS NOT NULL ORDER BY kind <> 'item', name, version",
    )?;
    let sources = statement.query_map([], |row| row.get::<_, String>(0))?;
    for source in sources {
        let source = source?;
        // A version that this binary cannot read is left alone: its runs stay where they are.
        let _ = catalog.add_stored(&source);
    }
    Ok(catalog)
}

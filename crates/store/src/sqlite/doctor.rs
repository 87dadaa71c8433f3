//! A look at a database file, which changes nothing, and what puts its guards back.

use std::path::Path;

use crate::seam::doctor::Finding;
use crate::seam::error::Result;
use crate::sqlite::link::fault;
use crate::sqlite::link::open;

/// More means that something keeps the log from being written back.
const LARGE_LOG: u64 = 1 << 30;

pub fn doctor(path: &Path) -> Result<Vec<Finding>> {
    Ok(findings(path)?)
}

fn findings(path: &Path) -> fault::Result<Vec<Finding>> {
    let mut found = vec![Finding::ok("version", format!("SQLite {}", rusqlite::version()))];
    if !path.exists() {
        let text = format!("{} is not there yet", path.display());
        found.push(Finding::warning("file", text, "it is made by the first command that needs it"));
        return Ok(found);
    }
    let conn = open::reader(path)?;
    let size = std::fs::metadata(path).map(|metadata| metadata.len()).unwrap_or_default();
    found.push(Finding::ok("file", format!("{}, {}", path.display(), mebibytes(size))));
    let pragma = |name: &str| conn.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    found.push(match (pragma("application_id")?, pragma("user_version")?) {
        (open::APPLICATION_ID, version) if version <= open::VERSION => {
            Finding::ok("schema", format!("version {version}"))
        }
        (open::APPLICATION_ID, version) => Finding::error(
            "schema",
            format!("version {version}, newer than this binary's"),
            "upgrade this binary",
        ),
        _ => Finding::error("schema", "a database of another program", "name another file"),
    });
    if pragma("application_id")? == open::APPLICATION_ID && pragma("user_version")? == open::VERSION {
        let amiss = open::guards_amiss(&conn)?;
        found.push(if amiss.is_empty() {
            Finding::ok("guards", "in force")
        } else {
            let advice = "`waypost migrate` puts them back; then run waypost verify";
            Finding::error("guards", amiss.join(", "), advice)
        });
    }
    let mode: String = conn.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    found.push(if mode == "wal" {
        Finding::ok("journal", mode)
    } else {
        Finding::warning(
            "journal",
            mode,
            "the next command that writes turns write-ahead logging on; is it on a network disk?",
        )
    });
    let log = std::fs::metadata(format!("{}-wal", path.display()))
        .map(|metadata| metadata.len())
        .unwrap_or_default();
    if log > LARGE_LOG {
        found.push(Finding::warning("log", mebibytes(log), "a reader has been open for long: end it"));
    }
    let check: String = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    found.push(if check == "ok" {
        Finding::ok("integrity", "no damage found")
    } else {
        Finding::error("integrity", check, "restore a copy, or try sqlite3's .recover")
    });
    Ok(found)
}

/// Makes the triggers anew that somebody took away or changed.
pub fn put_guards_back(path: &Path) -> Result<()> {
    let put = || -> fault::Result<()> {
        let mut conn = rusqlite::Connection::open(path)?;
        conn.busy_timeout(open::BUSY)?;
        let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        open::put_guards_back(&tx)?;
        Ok(tx.commit()?)
    };
    Ok(put().map_err(|fault| fault.at(path))?)
}

/// With one decimal: most files are small.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

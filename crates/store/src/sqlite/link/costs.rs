//! What reads cost, for proofs that it does not grow: steps of SQLite's machine.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rusqlite::Connection;

/// They are counted in portions of so many.
const PORTION: u8 = 10;
static ARE_COUNTED: AtomicBool = AtomicBool::new(false);
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Steps are counted of all that is opened to read from now on.
pub fn count_steps() {
    ARE_COUNTED.store(true, Ordering::Relaxed);
}

/// How many steps reads took since then.
pub fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}

pub fn counted(conn: &mut Connection) -> rusqlite::Result<()> {
    if !ARE_COUNTED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let count = || {
        STEPS.fetch_add(u64::from(PORTION), Ordering::Relaxed);
        false
    };
    conn.progress_handler(i32::from(PORTION), Some(count))
}

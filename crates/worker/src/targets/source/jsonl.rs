//! One JSON object per line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::{MAX_ROW_BYTES, Row, Sender, Trouble, row, shown, unreadable};
use crate::outcome::without_bom;

/// Reads to the end, or until nobody listens.
pub fn read(path: &Path, to: &Sender) {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return drop(to.blocking_send(Err(unreadable(path, &error)))),
    };
    let (mut file, name, mut number) = (BufReader::new(file), shown(path), 0_u64);
    loop {
        let mut line = Vec::new();
        // One byte more than a row may have.
        let mut limited = file.by_ref().take(MAX_ROW_BYTES as u64 + 1);
        match limited.read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) => number += 1,
            Err(error) => return drop(to.blocking_send(Err(unreadable(path, &error)))),
        }
        let line = if number == 1 { without_bom(&line) } else { &line };
        let Some(read) = parsed(&name, number, line) else { continue };
        let ends = matches!(read, Err(Trouble::Source(_)));
        if to.blocking_send(read).is_err() || ends {
            return;
        }
    }
}

/// None: an empty line.
pub(super) fn parsed(name: &str, number: u64, line: &[u8]) -> Option<Result<Row, Trouble>> {
    let at = format!("{name}:{number}");
    if line.len() > MAX_ROW_BYTES {
        let message = format!("{at}: the line is longer than {MAX_ROW_BYTES} bytes");
        return Some(Err(Trouble::Source(message)));
    }
    if line.trim_ascii().is_empty() {
        return None;
    }
    Some(match serde_json::from_slice(line) {
        Ok(value) => row(at, value),
        Err(error) => Err(Trouble::Row(format!("{at}: this is not JSON: {error}"))),
    })
}

//! The file that a command may write its Outcome to.

use std::io::Read;
use std::path::Path;

use super::Mask;
use crate::outcome::{Outcome, without_bom};

pub const MAX_OUTCOME_BYTES: u64 = 1024 * 1024;

/// The outcome that a command wrote, if it did, without the secrets that it was given; the error says what is wrong with it. Reads a little more than
/// an outcome may have and no further, however much there is.
pub fn read_outcome(path: &Path, mask: &Mask) -> Option<Result<Outcome, String>> {
    // A pipe put there would be waited for.
    let meta = std::fs::symlink_metadata(path).ok()?;
    if !meta.is_file() {
        return Some(Err("WAYPOST_OUTPUT is not a plain file any more".to_owned()));
    }
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MAX_OUTCOME_BYTES + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        return Some(Err(format!("WAYPOST_OUTPUT cannot be read: {error}")));
    }
    if bytes.len() as u64 > MAX_OUTCOME_BYTES {
        return Some(Err(format!("WAYPOST_OUTPUT is larger than {MAX_OUTCOME_BYTES} bytes")));
    }
    (!without_bom(&bytes).trim_ascii().is_empty()).then(|| Outcome::parse_masked(&bytes, mask))
}

//! Where secrets are read: on the worker, just before they are needed.

use std::io::Read;

use crate::playbook::Reference;

const MAX_BYTES: u64 = 64 * 1024;

/// Shorter ones cannot be hidden: every other word has them in it.
const MIN_CHARS: usize = 4;

/// The secret itself. Neither it nor any part of it is in the error.
pub fn find(reference: &Reference) -> Result<String, String> {
    let found = match reference {
        Reference::Env(name) => match std::env::var(name) {
            Ok(value) => value,
            Err(std::env::VarError::NotPresent) => return Err("the worker has no such variable".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => return Err("the variable is not UTF-8".to_owned()),
        },
        Reference::File(path) => {
            let mut bytes = Vec::new();
            std::fs::File::open(path)
                .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
                .map_err(|error| format!("the file cannot be read: {error}"))?;
            if bytes.len() as u64 > MAX_BYTES {
                return Err(format!("the file is larger than {MAX_BYTES} bytes"));
            }
            String::from_utf8(bytes).map_err(|_| "the file is not UTF-8".to_owned())?
        }
    };
    let value = found.trim_end_matches(['\r', '\n']).to_owned();
    if value.chars().count() < MIN_CHARS {
        return Err(format!("a secret has at least {MIN_CHARS} characters: shorter ones cannot be hidden"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_and_errors_tell_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("token"), "s3cret-token\n").expect("written");
        std::fs::write(at("short"), "abc\n").expect("written");
        std::fs::write(at("binary"), b"\xff\xfe\xff\xfe").expect("written");
        std::fs::write(at("huge"), vec![b'x'; 70_000]).expect("written");
        assert_eq!(find(&Reference::File(at("token"))), Ok("s3cret-token".to_owned()));
        for (name, words) in
            [("short", "at least 4"), ("binary", "UTF-8"), ("huge", "larger"), ("missing", "cannot be read")]
        {
            let error = find(&Reference::File(at(name))).expect_err(name);
            assert!(error.contains(words) && !error.contains("abc"), "{name}: {error}");
        }
        let missing = find(&Reference::Env("WAYPOST_NO_SUCH_VARIABLE".into()));
        assert_eq!(missing, Err("the worker has no such variable".to_owned()));
    }
}

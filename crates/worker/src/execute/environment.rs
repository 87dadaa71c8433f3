//! What commands see of the worker's own environment. A worker is started with what opens the database, the server and
//! other playbooks' secrets; a command needs none of it, and what it prints is kept and shown.

use std::ffi::{OsStr, OsString};

/// What programs need to find each other, to write and to tell the time.
const BASICS: [&str; 15] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "TERM",
    "NO_COLOR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Which variables of its own environment a process hands on to commands, beside those that a step, a run and the contract
/// give them. Those that open Waypost itself (`WAYPOST_*`, `PGPASSWORD`) are handed on only if they are named whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedEnv(Vec<String>);

impl PassedEnv {
    /// For processes that work for others: the basics, and nothing else.
    pub fn basics() -> PassedEnv {
        PassedEnv(BASICS.map(str::to_owned).into())
    }

    /// For a process that a person started to do this very thing: as a shell would.
    pub fn of_person() -> PassedEnv {
        PassedEnv(vec!["*".to_owned()])
    }

    /// Those too. A name may end with `*`.
    pub fn and(mut self, names: impl IntoIterator<Item = String>) -> PassedEnv {
        self.0.extend(names);
        self
    }

    /// A name, or the beginning of names with a `*` behind it.
    pub fn check(text: &str) -> Result<String, String> {
        let name = text.strip_suffix('*').unwrap_or(text);
        let fits = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') && !text.is_empty();
        if fits && !name.starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(text.to_owned());
        }
        Err("write the name of a variable, or how names begin: AWS_PROFILE, AWS_*".to_owned())
    }

    fn has(&self, name: &OsStr) -> bool {
        let Some(name) = name.to_str() else { return self.0.iter().any(|pattern| pattern == "*") };
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning) && !opens_waypost(name),
            None => name == pattern,
        })
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        std::env::vars_os().filter(|(name, _)| self.has(name))
    }
}

fn opens_waypost(name: &str) -> bool {
    name.starts_with("WAYPOST_") || name == "PGPASSWORD"
}

/// The values of `WAYPOST_SECRET_*`, hidden in what any command prints: who has found one elsewhere does not show it either.
pub(crate) fn own_secrets() -> Vec<String> {
    let is_secret = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("WAYPOST_SECRET_"));
    let secrets = std::env::vars_os().filter(|(name, _)| is_secret(name));
    secrets.filter_map(|(_, value)| value.into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U13
    #[test]
    fn what_opens_waypost_is_handed_on_only_by_its_whole_name() {
        let basics = PassedEnv::basics();
        let person = PassedEnv::of_person();
        let more =
            PassedEnv::basics().and(["AWS_*".to_owned(), "WAYPOST_TOKEN".to_owned(), "WAYPOST_*".to_owned()]);
        for (name, by_basics, by_person, by_more) in [
            ("PATH", true, true, true),
            ("LC_ALL", true, true, true),
            ("PATHS", false, true, false),
            ("AWS_SECRET_ACCESS_KEY", false, true, true),
            ("PGPASSWORD", false, false, false),
            ("PGHOST", false, true, false),
            ("WAYPOST_TOKEN", false, false, true),
            ("WAYPOST_TOKEN_FILE", false, false, false),
            ("WAYPOST_DATABASE_URL", false, false, false),
            ("WAYPOST_SECRET_SLACK", false, false, false),
        ] {
            let found = [&basics, &person, &more].map(|passed| passed.has(OsStr::new(name)));
            assert_eq!(found, [by_basics, by_person, by_more], "{name}");
        }
    }

    #[test]
    fn patterns_are_names_or_beginnings() {
        for good in ["A", "a_1", "AWS_*", "*"] {
            assert_eq!(PassedEnv::check(good), Ok(good.to_owned()));
        }
        for bad in ["", "A=b", "1A", "A*B", "**", "A B", "Ä"] {
            assert!(PassedEnv::check(bad).is_err(), "{bad}");
        }
    }
}

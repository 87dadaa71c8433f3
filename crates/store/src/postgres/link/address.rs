//! A server's address in libpq's words. Those about TLS are read here; the driver knows the others.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::tls::{Check, Tls};
use crate::seam::error::StoreError;

pub const CONNECT: Duration = Duration::from_secs(10);
const MODES: &str = "disable, prefer, require, verify-ca, verify-full";

#[derive(Clone, Debug)]
pub struct Address {
    pub config: Config,
    pub tls: Tls,
}

impl Address {
    /// `postgres://…` or `host=… user=…`, with what every connection of ours has.
    pub fn read(text: &str) -> Result<Address, StoreError> {
        let words = Words::of(text);
        let mut config: Config = words.rest.parse().map_err(|error: tokio_postgres::Error| {
            let cause =
                std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            StoreError::Unusable(format!("not the address of a PostgreSQL database: {cause}"))
        })?;
        if config.get_application_name().is_none() {
            config.application_name("waypost");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        // A server that is gone without a word is noticed within a minute.
        config.keepalives_idle(Duration::from_secs(20)).keepalives_interval(Duration::from_secs(10));
        config.keepalives_retries(3).tcp_user_timeout(Duration::from_secs(45));
        if config.get_hosts().is_empty() {
            // The driver offers TLS only to a server with a name.
            let numbers: Vec<String> = config.get_hostaddrs().iter().map(ToString::to_string).collect();
            for number in numbers {
                config.host(number);
            }
        }
        let tls = secured(&mut config, &words)?;
        Ok(Address { config, tls })
    }

    /// Whether nothing that is said leaves this machine.
    pub fn is_local(&self) -> bool {
        let is_local = |host: &Host| match host {
            Host::Tcp(name) => {
                name == "localhost" || name.parse().is_ok_and(|number: IpAddr| number.is_loopback())
            }
            Host::Unix(_) => true,
        };
        self.config.get_hosts().iter().all(is_local)
            && self.config.get_hostaddrs().iter().all(IpAddr::is_loopback)
    }
}

/// What libpq makes of these words: `require` takes any certificate unless there is a list of issuers, and nothing is
/// encrypted on a socket of this machine.
fn secured(config: &mut Config, words: &Words) -> Result<Tls, StoreError> {
    let is_socket = |host: &Host| matches!(host, Host::Unix(_));
    let issuers = words.issuers.as_deref();
    let mode = match words.mode.as_deref() {
        None if issuers == Some("system") => "verify-full",
        None => "prefer",
        Some(mode) => mode,
    };
    let check = match mode {
        "disable" | "prefer" => Check::Nothing,
        "require" if issuers.is_none() && !default_issuers().is_some_and(|file| file.exists()) => {
            Check::Nothing
        }
        "require" | "verify-ca" => Check::Issuer,
        "verify-full" => Check::Name,
        other => {
            let message = format!("there is no {other:?}; allowed: {MODES}");
            return Err(StoreError::invalid("sslmode", message));
        }
    };
    if issuers.is_some() && mode == "prefer" {
        let message =
            "is of no use with sslmode=prefer, which takes any certificate, or none; add sslmode=verify-full";
        return Err(StoreError::invalid("sslrootcert", message));
    }
    if issuers == Some("system") && !matches!(mode, "verify-full" | "disable") {
        let message = "system takes sslmode=verify-full: anybody can have a certificate from one of them";
        return Err(StoreError::invalid("sslrootcert", message));
    }
    let sockets = !config.get_hosts().is_empty() && config.get_hosts().iter().all(is_socket);
    config.ssl_mode(match mode {
        _ if sockets => SslMode::Disable,
        "disable" => SslMode::Disable,
        "prefer" => SslMode::Prefer,
        _ => SslMode::Require,
    });
    match check {
        Check::Nothing => Tls::unchecked(),
        _ if sockets => Tls::unchecked(),
        check if issuers == Some("system") => Tls::of_system(check),
        check => {
            let file = issuers.map(PathBuf::from).or_else(default_issuers).unwrap_or_default();
            Tls::of_file(check, &file)
        }
    }
}

fn default_issuers() -> Option<PathBuf> {
    Some(Path::new(&std::env::var_os("HOME")?).join(".postgresql/root.crt"))
}

/// An address without its words about TLS, and these.
#[derive(Debug, Default, PartialEq)]
struct Words {
    rest: String,
    mode: Option<String>,
    issuers: Option<String>,
}

impl Words {
    fn of(text: &str) -> Words {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            Words::of_url(text)
        } else {
            Words::of_pairs(text)
        }
    }

    fn of_url(text: &str) -> Words {
        let Some((place, options)) = text.split_once('?') else {
            return Words { rest: text.to_owned(), ..Words::default() };
        };
        let mut words = Words { rest: place.to_owned(), ..Words::default() };
        let mut mark = '?';
        for option in options.split('&') {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            if !words.take(key, || percent_decode_str(value).decode_utf8_lossy().into_owned()) {
                words.rest.push(mark);
                words.rest.push_str(option);
                mark = '&';
            }
        }
        words
    }

    /// `key = value`, `key='a value with \' in it'`.
    fn of_pairs(text: &str) -> Words {
        let mut words = Words::default();
        let mut left = text;
        while let Some((key, after)) = left.split_once('=') {
            let after_blank = after.trim_start();
            let length = value_length(after_blank);
            let (value, rest) = after_blank.split_at(length);
            if !words.take(key.trim(), || unquoted(value)) {
                words.rest.push_str(key);
                words.rest.push('=');
                words.rest.push_str(value);
            }
            left = rest;
        }
        words.rest.push_str(left);
        words
    }

    fn take(&mut self, key: &str, value: impl FnOnce() -> String) -> bool {
        match key {
            "sslmode" => self.mode = Some(value()),
            "sslrootcert" => self.issuers = Some(value()),
            _ => return false,
        }
        true
    }
}

/// Up to the end of a quoted value, or to the next blank.
fn value_length(text: &str) -> usize {
    let quoted = text.starts_with('\'');
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '\'' if quoted && at > 0 => return at + 1,
            blank if !quoted && blank.is_whitespace() => return at,
            _ => {}
        }
    }
    text.len()
}

fn unquoted(value: &str) -> String {
    let inner = value.strip_prefix('\'').map_or(value, |rest| rest.strip_suffix('\'').unwrap_or(rest));
    let mut out = String::new();
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        out.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Address, Words};

    #[test]
    fn words_about_tls_are_taken_out_of_any_sort_of_address() {
        for (text, rest, mode, issuers) in [
            ("postgres://u@h/d", "postgres://u@h/d", None, None),
            ("postgres://u@h/d?sslmode=require", "postgres://u@h/d", Some("require"), None),
            (
                "postgresql://u:a=b@h/d?application_name=x&sslrootcert=%2Fa%20b&sslmode=verify-ca&options=-cx%3Dy",
                "postgresql://u:a=b@h/d?application_name=x&options=-cx%3Dy",
                Some("verify-ca"),
                Some("/a b"),
            ),
            ("host=h  user=u", "host=h  user=u", None, None),
            ("host = h sslmode = prefer user=u", "host =h user=u", Some("prefer"), None),
            (
                r"password='it\'s sslmode=x' sslrootcert='/a \\b' sslmode='verify-full' dbname=d",
                r"password='it\'s sslmode=x'   dbname=d",
                Some("verify-full"),
                Some(r"/a \b"),
            ),
        ] {
            let words = Words::of(text);
            let expected =
                Words { rest: rest.into(), mode: mode.map(Into::into), issuers: issuers.map(Into::into) };
            let flat = |words: &Words| words.rest.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(flat(&words), flat(&expected), "{text}");
            assert_eq!((words.mode, words.issuers), (expected.mode, expected.issuers), "{text}");
        }
    }

    #[test]
    fn a_wrong_word_is_refused_with_what_is_allowed() {
        for (text, said) in [
            ("postgres://h/d?sslmode=on", "sslmode: there is no \"on\"; allowed: disable, prefer, require"),
            ("host=h sslmode=verify-full sslrootcert=/nowhere", "sslrootcert: cannot read /nowhere"),
            ("host=h sslrootcert=/nowhere", "sslrootcert: is of no use with sslmode=prefer"),
            ("host=h sslrootcert=system sslmode=require", "sslrootcert: system takes sslmode=verify-full"),
        ] {
            let refused = Address::read(text).expect_err(text);
            assert!(refused.to_string().contains(said), "{refused}");
        }
    }

    #[test]
    fn an_address_on_this_machine_is_known() {
        for (text, is_local) in [
            ("host=/run/postgresql", true),
            ("postgres://localhost/d", true),
            ("postgres://127.0.0.1,[::1]/d", true),
            ("postgres://db.example/d", false),
            ("host=localhost,db.example", false),
            ("host=localhost hostaddr=10.0.0.1", false),
        ] {
            assert_eq!(Address::read(text).expect(text).is_local(), is_local, "{text}");
        }
    }
}

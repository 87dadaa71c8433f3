//! A throwaway PostgreSQL: one server per test process, one database per [`Postgres`].

use std::fs::File;
use std::io::{Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server to use instead of a throwaway one; its user must be allowed to create databases.
const GIVEN: &str = "WAYPOST_TEST_DATABASE_URL";
const USER: &str = "postgres";

/// A database of its own, dropped with this value. Its session is a superuser's, unless a server is given.
#[derive(Debug)]
pub struct Postgres {
    server: &'static Server,
    name: String,
}

impl Postgres {
    /// Starts the server with the first call of a process.
    pub fn start() -> Result<Postgres, String> {
        static SERVER: OnceLock<Result<Server, String>> = OnceLock::new();
        static MADE: AtomicU32 = AtomicU32::new(0);
        let server = SERVER.get_or_init(Server::find).as_ref().map_err(Clone::clone)?;
        let name = format!("waypost_test_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        server.psql(&server.url, &format!("DROP DATABASE IF EXISTS {name}; CREATE DATABASE {name};"))?;
        Ok(Postgres { server, name })
    }

    /// For a client: an address in libpq's words.
    pub fn url(&self) -> String {
        with_database(&self.server.url, &self.name)
    }

    /// Runs a script in a session of its own and gives what it printed: rows by line, columns parted by `|`.
    /// The first error ends it.
    pub fn psql(&self, sql: &str) -> Result<String, String> {
        self.server.psql(&self.url(), sql)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let dropped =
            self.server.psql(&self.server.url, &format!("DROP DATABASE {} WITH (FORCE);", self.name));
        if let Err(error) = dropped {
            eprintln!("{} was left behind: {error}", self.name);
        }
    }
}

#[derive(Debug)]
struct Server {
    psql: PathBuf,
    url: String,
    /// Waits for this process to end, however it does (a static is never dropped), then stops and removes the server.
    _guardian: Option<Child>,
}

impl Server {
    fn find() -> Result<Server, String> {
        match std::env::var(GIVEN) {
            Ok(url) if !url.is_empty() => Ok(Server { psql: program("psql")?, url, _guardian: None }),
            _ => Server::start(),
        }
    }

    fn start() -> Result<Server, String> {
        let (initdb, pg_ctl, psql) = (program("initdb")?, program("pg_ctl")?, program("psql")?);
        let made = tempfile::Builder::new().prefix("waypost-pg-").tempdir_in(std::env::temp_dir());
        let made = made.map_err(|error| format!("no folder for PostgreSQL: {error}"))?;
        let folder = made.path();
        // The server refuses to be root's.
        let is_root = folder.metadata().is_ok_and(|metadata| metadata.uid() == 0);
        if is_root {
            done(Command::new("chown").arg(format!("{USER}:")).arg(folder))?;
        }
        let data = folder.join("data");
        let mut init = command(&initdb, folder, is_root);
        done(init.args(["-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "-N", "-D"]).arg(&data))?;
        // A socket in the folder, which is its owner's alone, and no port: there is nothing to collide with.
        let options = format!(
            "-k '{}' -h '' -c fsync=off -c synchronous_commit=off -c full_page_writes=off",
            folder.display()
        );
        let guardian = guardian(&pg_ctl, &data, folder, is_root)?;
        let folder = made.keep();
        let mut start = command(&pg_ctl, &folder, is_root);
        start.args(["start", "-w", "-s", "-o", &options, "-l"]).arg(folder.join("log")).arg("-D").arg(&data);
        done(start.stdout(Stdio::null()).stderr(Stdio::null())).map_err(|error| {
            format!("{error}\n{}", std::fs::read_to_string(folder.join("log")).unwrap_or_default())
        })?;
        let url = format!("host='{}' user={USER} dbname=postgres", folder.display());
        Ok(Server { psql, url, _guardian: Some(guardian) })
    }

    /// The script goes in as a file: a pipe could fill up while the answers fill another.
    fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
        let script = || -> std::io::Result<File> {
            let mut file = tempfile::tempfile()?;
            file.write_all(sql.as_bytes())?;
            file.rewind()?;
            Ok(file)
        };
        let script = script().map_err(|error| format!("no file for the script: {error}"))?;
        let mut psql = Command::new(&self.psql);
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url]).stdin(script);
        psql.env("PGOPTIONS", "-c client_min_messages=warning");
        let output = done(&mut psql)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }
}

/// A shell that reads until its input ends, which this process holds open; in a group of its own, so that what
/// ends the test's group does not end it.
fn guardian(pg_ctl: &Path, data: &Path, folder: &Path, is_root: bool) -> Result<Child, String> {
    let script = "cat; \"$1\" stop -s -w -m immediate -D \"$2\"; rm -rf \"$3\"";
    let mut shell = command(Path::new("sh"), folder, is_root);
    shell.args(["-c", script, "sh"]).args([pg_ctl, data, folder]);
    shell.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().map_err(|error| format!("{shell:?}: {error}"))
}

fn command(program: &Path, folder: &Path, as_postgres: bool) -> Command {
    let mut command = if as_postgres { Command::new("runuser") } else { Command::new(program) };
    if as_postgres {
        command.args(["-u", USER, "--"]).arg(program);
    }
    command.current_dir(folder).stdin(Stdio::null());
    command
}

fn done(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{}: {}: {said}", command.get_program().display(), output.status))
}

/// Of the newest version that Debian keeps aside, else from the PATH.
fn program(name: &str) -> Result<PathBuf, String> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let kept = versions.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        let path = entry.path().join("bin").join(name);
        path.is_file().then_some((version, path))
    });
    if let Some((_, path)) = kept.max() {
        return Ok(path);
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&folders).map(|folder| folder.join(name));
    found.find(|path| path.is_file()).ok_or_else(|| {
        format!("PostgreSQL's {name} is needed for this test: apt-get install postgresql (or set {GIVEN})")
    })
}

/// The same server, another database: of `postgres://user@host/name?options`, or of `host=… dbname=…`, where the
/// last word counts.
fn with_database(url: &str, name: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return format!("{url} dbname={name}") };
    let (place, options) =
        rest.split_once('?').map_or((rest, None), |(place, options)| (place, Some(options)));
    let authority = place.split('/').next().unwrap_or_default();
    let options = options.map(|options| format!("?{options}")).unwrap_or_default();
    format!("{scheme}://{authority}/{name}{options}")
}

#[cfg(test)]
mod tests {
    use super::{Postgres, with_database};

    #[test]
    fn each_has_a_database_of_its_own_and_errors_are_told() {
        let (one, other) = (Postgres::start().expect("one"), Postgres::start().expect("another"));
        one.psql("CREATE TABLE a(b int); INSERT INTO a VALUES (1), (2);").expect("a table");
        assert_eq!(one.psql("SELECT b, b * 2 FROM a ORDER BY b").as_deref(), Ok("1|2\n2|4"));
        let error = other.psql("SELECT b FROM a; SELECT 1;").expect_err("no such table");
        assert!(error.contains("\"a\" does not exist"), "{error}");
    }

    #[test]
    fn a_database_is_named_in_any_sort_of_address() {
        for (url, expected) in [
            ("postgres://u:p@h:5/old?sslmode=off", "postgres://u:p@h:5/new?sslmode=off"),
            ("postgresql://h", "postgresql://h/new"),
            ("host=h dbname=old", "host=h dbname=old dbname=new"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}

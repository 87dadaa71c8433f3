//! PgBouncer in front of the throwaway server, giving sessions out transaction by transaction.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Postgres;
use crate::server::{USER, command, done};

const PROGRAM: &str = "/usr/sbin/pgbouncer";
const START: Duration = Duration::from_secs(30);

/// Ended and removed with this value.
#[derive(Debug)]
pub struct Pooler {
    folder: TempDir,
    process: Child,
}

impl Pooler {
    /// With so many sessions of the server for each database.
    pub fn start(server: &Postgres, sessions: usize) -> Result<Pooler, String> {
        if !Path::new(PROGRAM).exists() {
            return Err(format!("{PROGRAM} is needed for this test: apt-get install pgbouncer"));
        }
        let made = tempfile::Builder::new().prefix("waypost-pooler-").tempdir();
        let folder = made.map_err(|error| format!("no folder for PgBouncer: {error}"))?;
        let file = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = {}\n\n[pgbouncer]\nlisten_port = 6432\nunix_socket_dir = {}\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {sessions}\nmax_client_conn = 500\nlogfile = {}\npidfile = {}\n",
            server.place(),
            folder.path().display(),
            folder.path().join("log").display(),
            folder.path().join("pid").display(),
        );
        std::fs::write(&file, text).map_err(|error| error.to_string())?;
        let is_root = crate::server::is_root(folder.path());
        if is_root {
            done(Command::new("chown").arg("-R").arg(format!("{USER}:")).arg(folder.path()))?;
        }
        let mut pgbouncer = command(Path::new(PROGRAM), folder.path(), is_root);
        pgbouncer.arg("-q").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let process = pgbouncer.spawn().map_err(|error| format!("{pgbouncer:?}: {error}"))?;
        let pooler = Pooler { folder, process };
        pooler.answers()?;
        Ok(pooler)
    }

    fn answers(&self) -> Result<(), String> {
        let (began, socket) = (Instant::now(), self.folder.path().join(".s.PGSQL.6432"));
        while let Err(error) = UnixStream::connect(&socket) {
            if began.elapsed() > START {
                let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(format!("{}: {error}\n{log}", socket.display()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The address of a database of the server, through this.
    pub fn url(&self, database: &Postgres) -> String {
        format!("host='{}' port=6432 user={USER} dbname={}", self.folder.path().display(), database.name())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // `runuser` may stand between: the one to end is the pooler itself.
        let told = std::fs::read_to_string(self.folder.path().join("pid")).unwrap_or_default();
        match done(Command::new("kill").arg("-9").arg(told.trim())) {
            Ok(_) => drop(self.process.wait()),
            Err(error) => eprintln!("a pooler was left behind: {error}"),
        }
    }
}

//! A server that a test stops and starts itself, as it is in earnest: what is committed is on the disk.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::server::{USER, command, done, init, program};

/// Stopped and removed with this value.
#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    as_postgres: bool,
}

impl Cluster {
    pub fn start() -> Result<Cluster, String> {
        let made = tempfile::Builder::new().prefix("waypost-own-").tempdir();
        let folder = made.map_err(|error| format!("no folder for PostgreSQL: {error}"))?;
        let as_postgres = init(folder.path())?;
        let cluster = Cluster { folder, as_postgres };
        cluster.start_again()?;
        Ok(cluster)
    }

    /// For a client: an address in libpq's words.
    pub fn url(&self) -> String {
        format!("host='{}' user={USER} dbname=postgres", self.folder.path().display())
    }

    pub fn start_again(&self) -> Result<(), String> {
        let options = format!("-k '{}' -h '' -c max_connections=200", self.folder.path().display());
        let log = self.folder.path().join("log");
        done(self.pg_ctl("start")?.args(["-o", &options, "-l"]).arg(log)).map(drop)
    }

    /// As a crash: nothing is written before it is gone.
    pub fn stop_immediately(&self) -> Result<(), String> {
        done(self.pg_ctl("stop")?.args(["-m", "immediate"])).map(drop)
    }

    fn pg_ctl(&self, what: &str) -> Result<Command, String> {
        let mut pg_ctl = command(&program("pg_ctl")?, self.folder.path(), self.as_postgres);
        pg_ctl.args([what, "-w", "-s", "-D"]).arg(self.folder.path().join("data"));
        pg_ctl.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(pg_ctl)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.stop_immediately() {
            eprintln!("a server was left behind: {error}");
        }
    }
}

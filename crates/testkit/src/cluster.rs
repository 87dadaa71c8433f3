//! A server that a test stops and starts itself, as it is in earnest: what is committed is on the disk.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::certificates::Certificate;
use crate::server::{USER, command, done, init, program, psql};

/// Stopped and removed with this value.
#[derive(Debug)]
pub struct Cluster {
    folder: TempDir,
    as_postgres: bool,
    port: Option<u16>,
}

/// Somebody may take a port between its being found free and the server's start.
const TRIES: usize = 5;

impl Cluster {
    /// With a socket in its folder, and no port.
    pub fn start() -> Result<Cluster, String> {
        let cluster = Cluster::make()?;
        cluster.start_again()?;
        Ok(cluster)
    }

    /// On a port of 127.0.0.1 as well: TLS is only spoken there.
    pub fn on_port() -> Result<Cluster, String> {
        let mut cluster = Cluster::make()?;
        let mut tried = 1;
        loop {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
            cluster.port = Some(free.map_err(|error| format!("no port: {error}"))?.port());
            match cluster.start_again() {
                Err(_) if tried < TRIES => tried += 1,
                Err(error) => return Err(error),
                Ok(()) => return Ok(cluster),
            }
        }
    }

    /// One that can speak these languages (`de_DE`), by locales in its folder: they need not be installed. PostgreSQL's package has the words.
    pub fn with_languages(languages: &[&str]) -> Result<Cluster, String> {
        let cluster = Cluster::make()?;
        let folder = cluster.locale_folder();
        std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for language in languages {
            let made = folder.join(format!("{language}.UTF-8"));
            let mut localedef = Command::new("localedef");
            done(localedef.args(["--no-archive", "-i", language, "-f", "UTF-8"]).arg(made))
                .map_err(|error| format!("{error} (apt-get install locales)"))?;
        }
        cluster.start_again()?;
        Ok(cluster)
    }

    /// Goes on in one of its languages, in sessions that are open too.
    pub fn speak(&self, language: &str) -> Result<(), String> {
        self.set("lc_messages", &format!("{language}.UTF-8"))?;
        self.psql("SELECT pg_reload_conf()").map(drop)
    }

    fn locale_folder(&self) -> std::path::PathBuf {
        self.folder.path().join("locales")
    }

    fn make() -> Result<Cluster, String> {
        let made = tempfile::Builder::new().prefix("waypost-own-").tempdir();
        let folder = made.map_err(|error| format!("no folder for PostgreSQL: {error}"))?;
        let as_postgres = init(folder.path())?;
        Ok(Cluster { folder, as_postgres, port: None })
    }

    /// For a client: an address in libpq's words.
    pub fn url(&self) -> String {
        let port = self.port.map(|port| format!(" port={port}")).unwrap_or_default();
        format!("host='{}'{port} user={USER} dbname=postgres", self.folder.path().display())
    }

    /// The address by its port, as if it had this name.
    pub fn named(&self, name: &str) -> String {
        let port = self.port.unwrap_or_default();
        format!("host={name} hostaddr=127.0.0.1 port={port} user={USER} dbname=postgres")
    }

    pub fn psql(&self, sql: &str) -> Result<String, String> {
        psql(&self.url(), sql)
    }

    /// A setting, from the next start on.
    pub fn set(&self, setting: &str, value: &str) -> Result<(), String> {
        self.psql(&format!("ALTER SYSTEM SET {setting} = '{value}'")).map(drop)
    }

    /// Speaks TLS with this certificate, from the next start on.
    pub fn encrypt(&self, certificate: &Certificate) -> Result<(), String> {
        for (file, name) in [(&certificate.file, "server.crt"), (&certificate.key, "server.key")] {
            let mut install = Command::new("install");
            install.args(["-m", "600"]);
            if self.as_postgres {
                install.args(["-o", USER]);
            }
            done(install.arg(file).arg(self.data().join(name)))?;
        }
        self.set("ssl", "on")
    }

    /// A line of pg_hba.conf that comes before the others.
    pub fn admit(&self, line: &str) -> Result<(), String> {
        let file = self.data().join("pg_hba.conf");
        let lines = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
        std::fs::write(&file, format!("{line}\n{lines}")).map_err(|error| error.to_string())
    }

    pub fn start_again(&self) -> Result<(), String> {
        let listen = self.port.map_or_else(|| "-h ''".to_owned(), |port| format!("-h 127.0.0.1 -p {port}"));
        let options = format!("-k '{}' {listen} -c max_connections=200", self.folder.path().display());
        let log = self.folder.path().join("log");
        let mut start = self.pg_ctl("start")?;
        if self.locale_folder().exists() {
            start.env("LOCPATH", self.locale_folder());
        }
        done(start.args(["-o", &options, "-l"]).arg(log)).map(drop)
    }

    /// As a crash: nothing is written before it is gone.
    pub fn stop_immediately(&self) -> Result<(), String> {
        done(self.pg_ctl("stop")?.args(["-m", "immediate"])).map(drop)
    }

    pub fn restart(&self) -> Result<(), String> {
        self.stop_immediately()?;
        self.start_again()
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn pg_ctl(&self, what: &str) -> Result<Command, String> {
        let mut pg_ctl = command(&program("pg_ctl")?, self.folder.path(), self.as_postgres);
        pg_ctl.args([what, "-w", "-s", "-D"]).arg(self.data());
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

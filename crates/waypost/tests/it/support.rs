//! A folder to run the command in, and ways to see what became of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;
use waypost_store::Database;
use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_testkit::Postgres;

/// As long as something may take on a machine that is busy.
pub const SOON: Duration = Duration::from_secs(60);

pub const WAYPOST: &str = env!("CARGO_BIN_EXE_waypost");

pub struct Shop {
    folder: TempDir,
    /// Of a shop on PostgreSQL: where its runs are, and what lives as long as it.
    server: Option<(String, Option<Postgres>)>,
    /// What its commands find in their environment.
    env: Vec<(&'static str, &'static str)>,
}

/// A command that ended.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

/// A process that is killed if the test ends before it does.
pub struct Running(pub Child);

impl Shop {
    pub fn new() -> Shop {
        let folder = tempfile::Builder::new().prefix("waypost-cli-").tempdir().unwrap();
        Shop { folder, server: None, env: Vec::new() }
    }

    /// On a database of its own, with the schema in it.
    pub fn on_postgres() -> Shop {
        let database = Postgres::with_schema(&waypost_store::postgres::migration_sql()).unwrap();
        Shop { server: Some((database.url(), Some(database))), ..Shop::new() }
    }

    /// On a server that the test stops and starts itself.
    pub fn at(url: &str) -> Shop {
        Shop { server: Some((url.to_owned(), None)), ..Shop::new() }
    }

    #[must_use]
    pub fn with_env(mut self, name: &'static str, value: &'static str) -> Shop {
        self.env.push((name, value));
        self
    }

    pub fn database_url(&self) -> String {
        self.server.as_ref().expect("a shop on PostgreSQL").0.clone()
    }

    /// Of a shop on PostgreSQL.
    pub fn url(&self) -> Option<&str> {
        self.server.as_ref().map(|(url, _)| url.as_str())
    }

    pub fn psql(&self, sql: &str) -> String {
        let database = self.server.as_ref().and_then(|(_, database)| database.as_ref());
        database.expect("a shop on PostgreSQL").psql(sql).unwrap()
    }

    /// The same database as the commands', from within the test.
    pub async fn store(&self) -> Arc<dyn Database> {
        match &self.server {
            Some((url, _)) => Arc::new(PostgresStore::open(url).await.unwrap()),
            None => Arc::new(SqliteStore::open(&self.database()).unwrap()),
        }
    }

    /// With a file in its folder.
    pub fn with(self, name: &str, text: &str) -> Shop {
        fs::write(self.path(name), text).unwrap();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn database(&self) -> PathBuf {
        self.path(".waypost/waypost.db")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(WAYPOST);
        surround(&mut command, self.folder());
        if let Some((url, _)) = &self.server {
            command.env("WAYPOST_DATABASE_URL", url);
        }
        command.envs(self.env.iter().copied()).args(args);
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::from(self.command(args).output().unwrap())
    }

    /// Runs it and expects that it goes well; gives what it printed.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{args:?}: {}{}", ran.out, ran.err);
        ran.out
    }

    /// As [`Shop::ok`], with `-o json` added.
    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        let text = self.ok(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error}: {text}"))
    }

    /// The same as a person elsewhere who asks a server.
    pub fn asks(&self, url: &str, args: &[&str]) -> Ran {
        Ran::from(self.command(args).env("WAYPOST_URL", url).output().unwrap())
    }

    /// Runs it with `-o json` added and expects that it ends so; gives the run that it printed.
    #[track_caller]
    pub fn ends(&self, code: i32, args: &[&str]) -> Value {
        let ran = self.run(&[args, &["-o", "json"]].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {}{}", ran.out, ran.err);
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{args:?}: {error}: {}", ran.out))
    }

    /// Starts a run of a shell script that nobody works yet; gives its id.
    #[track_caller]
    pub fn queue(&self, flags: &[&str], script: &str) -> String {
        let args = [&["run", "start"], flags, &["--", "sh", "-c", script]].concat();
        self.ok(&args).trim().to_owned()
    }

    #[track_caller]
    pub fn show(&self, run_id: &str) -> Value {
        self.json(&["run", "show", run_id])
    }

    pub fn runs(&self) -> Vec<Value> {
        self.json(&["run", "list", "--limit", "1000000"]).as_array().unwrap().clone()
    }

    pub fn spawn(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// A server of this shop on a port of its own, and its address.
    pub fn serve(&self, args: &[&str]) -> (Running, String) {
        self.serve_at(&[args, &["--listen", "127.0.0.1:0"]].concat())
    }

    /// The same on a port that the arguments name.
    pub fn serve_at(&self, args: &[&str]) -> (Running, String) {
        let (server, url, _) = self.heard(args, "listening on ");
        (server, url)
    }

    /// A process that stays, what follows the words on the line by which it says that it is there, and its further lines.
    pub fn heard(&self, args: &[&str], ready: &str) -> (Running, String, Receiver<String>) {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut lines = BufReader::new(server.stderr.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| Some(line.strip_prefix(ready)?.to_owned()));
        let (said, heard) = channel();
        // Read on, whether or not somebody listens: the server's log would fill the pipe.
        thread::spawn(move || lines.for_each(|line| drop(said.send(line))));
        (Running(server), address.expect("the server listens"), heard)
    }

    /// What a server answers, asked as people would.
    #[track_caller]
    pub fn curl(&self, url: &str, path: &str) -> Value {
        let page = self.page(url, path);
        serde_json::from_str(&page).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    pub fn page(&self, url: &str, path: &str) -> String {
        let asked =
            Command::new("curl").args(["-s", "--noproxy", "*", &format!("{url}{path}")]).output().unwrap();
        String::from_utf8(asked.stdout).unwrap()
    }

    #[track_caller]
    pub fn verifies(&self) {
        let verified = self.json(&["verify"]);
        assert_eq!(verified["differences"], serde_json::json!([]));
    }
}

pub fn surround(command: &mut Command, folder: &Path) {
    for name in [
        "WAYPOST_DATABASE_URL",
        "WAYPOST_URL",
        "WAYPOST_TOKEN",
        "WAYPOST_OBJECT_STORE",
        "WAYPOST_TENANT",
        "WAYPOST_LOG",
        "LOGNAME",
    ] {
        command.env_remove(name);
    }
    command.env("USER", "tester").current_dir(folder).stdin(Stdio::null());
}

impl From<Output> for Ran {
    fn from(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

impl Ran {
    #[track_caller]
    pub fn expect(&self, code: i32, words: &[&str]) {
        assert_eq!(self.code, Some(code), "stdout: {}stderr: {}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in {}", self.err);
        }
    }
}

impl Running {
    pub fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// SIGKILL, and gone.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn end(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

/// The text of a playbook: its steps by their names, each with what else its table says.
pub fn playbook(name: &str, lifecycle: &str, steps: &[(&str, &str)]) -> String {
    let step = |(name, more): &(&str, &str)| format!("\n[[step]]\nname = \"{name}\"\n{more}\n");
    let steps: String = steps.iter().map(step).collect();
    format!("name = \"{name}\"\nlifecycle = \"{lifecycle}\"\n{steps}")
}

/// The id of a run that a command printed.
pub fn id_of(run: &Value) -> &str {
    run["run_id"].as_str().expect("a run has an id")
}

/// Of a process, in KiB: what it has, and the most that it had.
pub fn memory_of(process: &Running) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{}/status", process.0.id())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    (field("VmRSS:"), field("VmHWM:"))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks until it is so. The pause only keeps the question cheap: nothing is taken for done because time passed.
#[track_caller]
pub fn eventually(what: &str, at_most: Duration, mut is_so: impl FnMut() -> bool) {
    let ends_at = Instant::now() + at_most;
    while !is_so() {
        assert!(Instant::now() < ends_at, "not within {at_most:?}: {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

/// Number and start of a process: the number alone comes back for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub started: u64,
}

impl Process {
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|(_, started)| started == self.started)
    }
}

/// Of a number that is somebody's now.
#[track_caller]
pub fn process(pid: u32) -> Process {
    let (_, started) = stat(pid).expect("it is there");
    Process { pid, started }
}

pub fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|(parent, _)| parent)
}

/// Parent and start, from /proc. A zombie is dead: only its parent's look is missing.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    (*fields.first()? != "Z").then_some(())?;
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

//! The throwaway server: one per run of cargo-nextest, which has a process for each test; else one per process.
//!
//! Whoever uses it holds a shared lock on a file beside it. A guardian tries the exclusive one every second; when it
//! could for some seconds, nobody uses the server any more, and it is stopped and removed.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A server to use instead of a throwaway one; its user must be allowed to create databases.
const GIVEN: &str = "WAYPOST_TEST_DATABASE_URL";
/// Set by cargo-nextest, the same for all processes of a run.
const RUN: &str = "NEXTEST_RUN_ID";
pub const USER: &str = "postgres";

/// Other tests of the run may keep both processors for a while before the next one wants the server.
const IDLE_SECONDS: &str = "60";

const OPTIONS: &str = "-h '' -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c max_connections=200 \
  -c shared_buffers=128MB -c max_wal_size=2GB -c wal_level=minimal -c max_wal_senders=0";

#[derive(Debug)]
pub struct Server {
    psql: PathBuf,
    pub url: String,
    folder: PathBuf,
    /// Locked for as long as this process lives.
    used: Option<File>,
}

impl Server {
    pub fn find() -> Result<Server, String> {
        match std::env::var(GIVEN) {
            Ok(url) if !url.is_empty() => {
                let (psql, folder) = (program("psql")?, std::env::temp_dir());
                Ok(Server { psql, url, folder, used: None })
            }
            _ => Server::of_this_run(),
        }
    }

    fn of_this_run() -> Result<Server, String> {
        let (pg_ctl, psql) = (program("pg_ctl")?, program("psql")?);
        let run = std::env::var(RUN).unwrap_or_else(|_| std::process::id().to_string());
        // A socket's path has room for about a hundred characters.
        let short: String = run.chars().filter(char::is_ascii_alphanumeric).take(16).collect();
        let folder = std::env::temp_dir().join(format!("waypost-pg-{short}"));
        let alone = lock(&folder.with_extension("lock"))?;
        let used_path = folder.join("used");
        if !used_path.exists() {
            start(&pg_ctl, &folder)?;
        }
        let used = open(&used_path)?;
        used.lock_shared().map_err(|error| format!("{}: {error}", used_path.display()))?;
        drop(alone);
        let url = format!("host='{}' user={USER} dbname=postgres", folder.display());
        Ok(Server { psql, url, folder, used: Some(used) })
    }

    pub fn is_given(&self) -> bool {
        self.used.is_none()
    }

    /// Nobody else of this server has the name while the file lives.
    pub fn lock(&self, name: &str) -> Result<File, String> {
        lock(&self.folder.join(format!("{name}.lock")))
    }

    pub fn psql(&self, url: &str, sql: &str) -> Result<String, String> {
        psql_by(&self.psql, url, sql)
    }
}

pub fn psql(url: &str, sql: &str) -> Result<String, String> {
    psql_by(&program("psql")?, url, sql)
}

/// The script goes in as a file: a pipe could fill up while the answers fill another.
fn psql_by(program: &Path, url: &str, sql: &str) -> Result<String, String> {
    let script = || -> std::io::Result<File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(sql.as_bytes())?;
        file.rewind()?;
        Ok(file)
    };
    let script = script().map_err(|error| format!("no file for the script: {error}"))?;
    let mut psql = Command::new(program);
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url]).stdin(script);
    psql.env("PGOPTIONS", "-c client_min_messages=warning");
    let output = done(&mut psql)?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

/// Makes the folder, the cluster and the guardian. The file `used` comes last: it says that all is there.
fn start(pg_ctl: &Path, folder: &Path) -> Result<(), String> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir(folder).map_err(|error| format!("no folder for PostgreSQL: {error}"))?;
    let is_root = init(folder)?;
    let data = folder.join("data");
    // A socket in the folder, which is its owner's alone, and no port: there is nothing to collide with.
    let options = format!("-k '{}' {OPTIONS}", folder.display());
    let mut start = command(pg_ctl, folder, is_root);
    start.args(["start", "-w", "-s", "-o", &options, "-l"]).arg(folder.join("log")).arg("-D").arg(&data);
    done(start.stdout(Stdio::null()).stderr(Stdio::null())).map_err(|error| {
        format!("{error}\n{}", std::fs::read_to_string(folder.join("log")).unwrap_or_default())
    })?;
    let used = folder.join("used");
    open(&used)?;
    guardian(pg_ctl, &data, folder, is_root)
}

/// Makes a cluster in `data` of a folder. Says whether it is another user's, because the server refuses to be root's.
pub fn init(folder: &Path) -> Result<bool, String> {
    let is_root = is_root(folder);
    if is_root {
        done(Command::new("chown").arg(format!("{USER}:")).arg(folder))?;
    }
    done(Command::new("chmod").arg("700").arg(folder))?;
    let mut init = command(&program("initdb")?, folder, is_root);
    let data = folder.join("data");
    done(init.args(["-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale", "-N", "-D"]).arg(data))?;
    Ok(is_root)
}

/// Whether what this process makes is root's.
pub fn is_root(folder: &Path) -> bool {
    folder.metadata().is_ok_and(|metadata| metadata.uid() == 0)
}

/// A shell in a group of its own, so that what ends the test's group does not end it. Looks a last time under the lock
/// that those take who come. A thousand databases take minutes to remove, for which those do not wait.
fn guardian(pg_ctl: &Path, data: &Path, folder: &Path, is_root: bool) -> Result<(), String> {
    let script = "
folder=$1 idle_seconds=$2; shift 2
while :; do
  idle=0
  while [ $idle -lt $idle_seconds ]; do
    sleep 1
    if flock -n -x \"$folder/used\" true; then idle=$((idle + 1)); else idle=0; fi
  done
  exec 9> \"$folder.lock\"
  flock -x 9
  if flock -n -x \"$folder/used\" true; then break; fi
  exec 9>&-
done
\"$@\"
mv \"$folder\" \"$folder.$$\"
rm \"$folder.lock\"
exec 9>&-
rm -rf \"$folder.$$\"";
    let mut stop = command(pg_ctl, folder, is_root);
    stop.args(["stop", "-s", "-w", "-m", "immediate", "-D"]).arg(data);
    let mut shell = Command::new("sh");
    shell
        .args(["-c", script, "sh"])
        .arg(folder)
        .arg(IDLE_SECONDS)
        .arg(stop.get_program())
        .args(stop.get_args());
    shell.process_group(0).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.spawn().map(drop).map_err(|error| format!("{shell:?}: {error}"))
}

/// Takes a lock file's exclusive lock. One that its last owner removed meanwhile is not the file of that name any more.
fn lock(path: &Path) -> Result<File, String> {
    loop {
        let file = open(path)?;
        let locked = || -> std::io::Result<bool> {
            file.lock()?;
            Ok(path
                .metadata()
                .is_ok_and(|named| Some(named.ino()) == file.metadata().ok().map(|it| it.ino())))
        };
        if locked().map_err(|error| format!("{}: {error}", path.display()))? {
            return Ok(file);
        }
    }
}

fn open(path: &Path) -> Result<File, String> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map_err(|error| format!("{}: {error}", path.display()))
}

pub fn command(program: &Path, folder: &Path, as_postgres: bool) -> Command {
    let mut command = if as_postgres { Command::new("runuser") } else { Command::new(program) };
    if as_postgres {
        command.args(["-u", USER, "--"]).arg(program);
    }
    command.current_dir(folder).stdin(Stdio::null());
    command
}

pub fn done(command: &mut Command) -> Result<Output, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(format!("{}: {}: {said}", command.get_program().display(), output.status))
}

/// Of the newest version that Debian keeps aside, else from the PATH.
pub fn program(name: &str) -> Result<PathBuf, String> {
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

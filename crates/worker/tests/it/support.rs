//! A store, a worker on it, and ways to see what became of runs and processes.

use std::any::Any;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};
use waypost_kernel::backoff::Backoff;
use waypost_kernel::{Phase, Span};
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::{CommandWrite, Database, EventRow, NewRun, RunRow};
use waypost_testkit::Postgres;
use waypost_worker::{Options, Stage, Summary, Worker};

use crate::faulty::Faulty;

pub const PROBE: &str = env!("CARGO_BIN_EXE_waypost-worker-probe");

/// The one line that says which store the tests run on, where they do not say it themselves.
pub fn store(folder: &Path) -> Arc<dyn Database> {
    Arc::new(waypost_store::sqlite::SqliteStore::open(&folder.join("waypost.db")).unwrap())
}

/// What the store stands on.
#[derive(Clone, Copy, Debug)]
pub enum On {
    Sqlite,
    Postgres,
}

/// For tests that must hold on both; the second part keeps it alive.
pub async fn open(on: On) -> (Arc<dyn Database>, Box<dyn Any>) {
    match on {
        On::Sqlite => {
            let folder = folder();
            (store(folder.path()), Box::new(folder))
        }
        On::Postgres => {
            let database = Postgres::with_schema(&migration_sql()).unwrap();
            (Arc::new(PostgresStore::open(&database.url()).await.unwrap()), Box::new(database))
        }
    }
}

pub struct Shop {
    folder: TempDir,
    pub store: Arc<dyn Database>,
    pub faulty: Arc<Faulty>,
    pub options: Options,
}

/// A worker that runs until it is told to stop.
pub struct Running {
    pub shutdown: watch::Sender<Stage>,
    task: JoinHandle<waypost_worker::Result<Summary>>,
}

impl Shop {
    /// Commands are allowed and guarded; graces and waits are short.
    pub fn new() -> Shop {
        let folder = folder();
        let store = store(folder.path());
        Shop::with(folder, store)
    }

    /// On a store that others use too.
    pub fn on(store: Arc<dyn Database>) -> Shop {
        Shop::with(folder(), store)
    }

    fn with(folder: TempDir, store: Arc<dyn Database>) -> Shop {
        let ms = Duration::from_millis;
        let options = Options {
            name: "w1".to_owned(),
            allow_commands: true,
            grace: ms(300),
            poll_at_least: ms(20),
            poll_at_most: ms(40),
            guardian: Some(guardian()),
            backoff: Backoff::List(vec![Span::from_ms(5), Span::from_ms(10)]),
            ..Options::default()
        };
        Shop { folder, faulty: Faulty::new(store.clone()), store, options }
    }

    /// The same with commands as plain children.
    pub fn unguarded() -> Shop {
        let mut shop = Shop::new();
        shop.options.guardian = None;
        shop
    }

    /// Both ways to start a command, for what must hold in either.
    pub fn both() -> [Shop; 2] {
        [Shop::new(), Shop::unguarded()]
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn database(&self) -> PathBuf {
        self.path("waypost.db")
    }

    pub async fn enqueue(&self, new: NewRun) -> String {
        let mut answers = self.store.enqueue(vec![new]).await.unwrap();
        answers.remove(0).unwrap().run.id().to_owned()
    }

    /// A deploy run of a shell script, in the shop's folder.
    pub async fn script(&self, script: &str) -> String {
        self.enqueue(self.carrying(&["sh", "-c", script], 0)).await
    }

    pub fn carrying(&self, command: &[&str], retries: u32) -> NewRun {
        let carried = json!({"command": command, "directory": self.folder.path(), "retries": retries});
        NewRun { lifecycle: "deploy".into(), carried: Some(carried), ..NewRun::default() }
    }

    pub fn worker(&self) -> Worker {
        Worker::new(self.faulty.clone(), self.options.clone())
    }

    /// Claims once and works that to the end.
    pub async fn work(&self) -> Summary {
        self.worker().run_once().await.unwrap()
    }

    pub fn start(&self) -> Running {
        let (shutdown, told) = watch::channel(Stage::Working);
        Running { shutdown, task: tokio::spawn(self.worker().run(told)) }
    }

    pub async fn run(&self, id: &str) -> RunRow {
        self.store.run("default".into(), id.to_owned()).await.unwrap()
    }

    pub async fn events(&self, id: &str) -> Vec<EventRow> {
        let mut found: Vec<EventRow> = Vec::new();
        loop {
            let after = found.last().map_or(0, |event| event.seq);
            let page = self.store.events(id.to_owned(), after, 100_000).await.unwrap();
            if page.is_empty() {
                return found;
            }
            found.extend(page);
        }
    }

    pub async fn messages(&self, id: &str) -> Vec<String> {
        self.events(id).await.into_iter().map(|event| event.message).collect()
    }

    /// The output as (stream, text).
    pub async fn lines(&self, id: &str) -> Vec<(String, String)> {
        let events = self.events(id).await;
        let lines = events.iter().filter(|event| event.message == "output").flat_map(|event| {
            let lines = event.payload["lines"].as_array().unwrap();
            lines.iter().map(|line| (text(&line[0]), text(&line[1])))
        });
        lines.collect()
    }

    pub fn cancelling(id: &str) -> CommandWrite {
        CommandWrite {
            tenant: "default".into(),
            run_id: id.to_owned(),
            name: "cancel".into(),
            by: "ann".into(),
            ..CommandWrite::default()
        }
    }

    pub async fn command(&self, command: CommandWrite) {
        self.store.command(command).await.unwrap();
    }

    pub async fn cancel(&self, id: &str) {
        self.command(Shop::cancelling(id)).await;
    }

    pub async fn until_printed(&self, id: &str, wanted: &str) {
        eventually(&format!("{id} prints {wanted:?}"), async || {
            self.lines(id).await.iter().any(|(_, line)| line == wanted).then_some(())
        })
        .await;
    }

    /// What is wanted of the run has been heard: the second beat is sent after the first one's answer.
    pub async fn two_beats(&self, id: &str) {
        for _ in 0..2 {
            let before = self.run(id).await.run.lease.unwrap().until;
            eventually("the holder's next beat", async || {
                self.run(id).await.run.lease.filter(|lease| lease.until > before).map(drop)
            })
            .await;
        }
    }

    pub async fn until_settled(&self, id: &str) -> RunRow {
        eventually(&format!("{id} is settled"), async || {
            Some(self.run(id).await).filter(|row| row.phase() == Phase::Settled)
        })
        .await
    }

    /// The process numbers that a script wrote into a file, one per line.
    pub async fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let path = self.path(name);
        eventually(&format!("{count} numbers in {name}"), async || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let numbers = text.lines().filter_map(|line| line.trim().parse().ok()).filter_map(Pid::from_raw);
            Some(numbers.collect::<Vec<Pid>>()).filter(|found| found.len() == count)
        })
        .await
    }

    /// The log and the rows agree, whatever happened.
    pub async fn verify(&self) {
        let verified = self.store.verify(Arc::new(|_, _| {})).await.unwrap();
        assert_eq!(verified.differences, Vec::<String>::new());
    }
}

impl Running {
    /// As a kill would, but for its processes: those end with it here.
    pub async fn die(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub async fn ended(self) -> Summary {
        tokio::time::timeout(PATIENCE, self.task).await.expect("the worker ends").unwrap().unwrap()
    }

    pub async fn stop(self) -> Summary {
        self.shutdown.send_replace(Stage::Draining);
        self.ended().await
    }
}

/// In memory where there is such a place: a flush that waits for a busy disk would outlast these short leases.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}

pub fn guardian() -> Vec<OsString> {
    vec![PROBE.into(), "guardian".into(), "--".into()]
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// A hang, not a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until there is something to see.
pub async fn eventually<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut again = interval(Duration::from_millis(5));
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        again.tick().await;
    }
}

pub async fn until_gone(pids: &[Pid]) {
    for pid in pids {
        eventually(&format!("{pid:?} is gone"), async || (!is_alive(*pid)).then_some(())).await;
    }
}

/// A zombie has ended; that nobody took its status yet is its parent's matter.
pub fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next().map(str::to_owned));
    state.is_some_and(|state| !matches!(state.as_str(), "Z" | "X"))
}

pub fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
}

pub fn code(row: &RunRow) -> Option<&str> {
    row.run.failure.as_ref().map(|failure| &*failure.code)
}

pub fn message(row: &RunRow) -> Option<&str> {
    row.run.failure.as_ref().map(|failure| &*failure.message)
}

//! What the acts are played on: a database, workers in processes of their own, and a way to wait.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::process::{Child, Command};
use tokio::time::Instant;
use waypost_kernel::Phase;
use waypost_kernel::tenant::DEFAULT;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{CommandWrite, Database, ExecutionFilter, NewRun, RunRow};

use crate::output::{ERROR, Failed, Result};
use crate::run::{output_lines, user};

pub const LIFECYCLE: &str = "demo";

/// A hang, not a busy machine: what is waited for takes some seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

pub struct Stage {
    pub store: Arc<dyn Database>,
    file: PathBuf,
    workers: Vec<Child>,
    /// Somebody looks at the console when all is played: something is left for them to decide.
    pub stays: bool,
}

/// How a worker is started.
pub struct Cast<'a> {
    pub queue: &'a str,
    pub slots: &'a str,
    pub lease: &'a str,
}

impl Stage {
    pub async fn open(folder: &Path, stays: bool) -> Result<Stage> {
        let file = folder.join("demo.db");
        let store: Arc<dyn Database> = Arc::new(SqliteStore::open(&file)?);
        store.add_lifecycle(include_str!("demo.toml").to_owned(), "demo".into()).await?;
        Ok(Stage { store, file, workers: Vec::new(), stays })
    }

    /// Starts a `waypost worker` and gives its place among the workers.
    pub fn hire(&mut self, cast: &Cast<'_>) -> Result<usize> {
        self.hire_with(cast, Vec::new())
    }

    /// The same, with a folder of playbooks.
    pub fn hire_for(&mut self, cast: &Cast<'_>, playbooks: &Path) -> Result<usize> {
        self.start(cast, Vec::new(), Some(playbooks))
    }

    /// The same, with further variables of its environment.
    pub fn hire_with(&mut self, cast: &Cast<'_>, environment: Vec<(String, String)>) -> Result<usize> {
        self.start(cast, environment, None)
    }

    fn start(
        &mut self,
        cast: &Cast<'_>,
        environment: Vec<(String, String)>,
        playbooks: Option<&Path>,
    ) -> Result<usize> {
        let program = std::env::current_exe()
            .map_err(|error| Failed::new(ERROR, format!("cannot find this program's file: {error}")))?;
        let child = Command::new(program)
            .env_remove("WAYPOST_URL")
            .envs(environment)
            .arg(format!("--database-url=sqlite://{}", self.file.display()))
            .args(["worker", "--allow-commands", "--grace", "1s"])
            .args(["--queue", cast.queue, "--slots", cast.slots, "--lease", cast.lease])
            .args(playbooks.map(|folder| format!("--playbooks={}", folder.display())))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Failed::new(ERROR, format!("cannot start a worker: {error}")))?;
        self.workers.push(child);
        Ok(self.workers.len() - 1)
    }

    /// SIGKILL: it can neither end its run nor say goodbye.
    pub async fn kill(&mut self, worker: usize) -> Result {
        let killed = self.workers[worker].kill().await;
        killed.map_err(|error| Failed::new(ERROR, format!("cannot kill a worker: {error}")))
    }

    /// Their runs are over: there is nothing that they could leave undone.
    pub async fn dismiss_workers(&mut self) {
        for worker in &mut self.workers {
            let _ = worker.kill().await;
        }
    }

    /// A run of a shell script, found and told by its name; `change` sets what is particular to it.
    pub async fn queue(
        &self,
        name: &str,
        queue: &str,
        script: &str,
        change: impl FnOnce(&mut NewRun),
    ) -> Result<String> {
        let mut new = NewRun {
            lifecycle: LIFECYCLE.into(),
            queue: queue.into(),
            carried: Some(json!({ "command": ["sh", "-c", script] })),
            correlation_id: Some(name.into()),
            title: Some(name.into()),
            by: user(),
            ..NewRun::default()
        };
        change(&mut new);
        let started = self.store.enqueue(vec![new]).await?.remove(0)?;
        Ok(started.run.id().to_owned())
    }

    pub async fn cancel(&self, run_id: &str, reason: &str) -> Result {
        let cancel = CommandWrite {
            tenant: DEFAULT.into(),
            run_id: run_id.to_owned(),
            name: "cancel".into(),
            by: user(),
            reason: Some(reason.into()),
            ..CommandWrite::default()
        };
        self.store.command(cancel).await?;
        Ok(())
    }

    pub async fn run(&self, run_id: &str) -> Result<RunRow> {
        Ok(self.store.run(DEFAULT.into(), run_id.to_owned()).await?)
    }

    pub async fn settled(&self, run_id: &str) -> Result<RunRow> {
        let ends_at = Instant::now() + PATIENCE;
        loop {
            let run = self.run(run_id).await?;
            if run.run.finished_at.is_some() {
                return Ok(run);
            }
            self.wait(ends_at, run_id, "has not ended").await?;
        }
    }

    pub async fn in_state(&self, run_id: &str, status: &str) -> Result {
        let ends_at = Instant::now() + PATIENCE;
        while self.run(run_id).await?.status() != status {
            self.wait(ends_at, run_id, &format!("is not {status}")).await?;
        }
        Ok(())
    }

    /// The first that a run proposes, once it is there.
    pub async fn proposal_of(&self, run_id: &str) -> Result<String> {
        let ends_at = Instant::now() + PATIENCE;
        loop {
            let page = waypost_worker::proposals::of_status(&*self.store, DEFAULT, None, 10, None).await?;
            let is_its = |row: &&RunRow| row.parent_run_id.as_deref() == Some(run_id);
            if let Some(row) = page.runs.iter().find(is_its) {
                return Ok(row.id().to_owned());
            }
            self.wait(ends_at, run_id, "proposes nothing").await?;
        }
    }

    /// The latest execution that fits, once it has begun.
    pub async fn execution_of(&self, filter: &ExecutionFilter) -> Result<String> {
        let ends_at = Instant::now() + PATIENCE;
        loop {
            let page = self.store.executions(filter.clone()).await?;
            if let Some(run) = page.executions.into_iter().find_map(|it| it.run) {
                return Ok(run.id().to_owned());
            }
            self.wait(ends_at, "a plan", "has not begun").await?;
        }
    }

    /// Until it waits for a person, or has ended.
    pub async fn rests(&self, run_id: &str) -> Result<RunRow> {
        let ends_at = Instant::now() + PATIENCE;
        loop {
            let run = self.run(run_id).await?;
            if matches!(run.phase(), Phase::Parked | Phase::Settled) {
                return Ok(run);
            }
            self.wait(ends_at, run_id, "neither waits nor has ended").await?;
        }
    }

    /// The process that the run's command says it is: its scripts begin with `echo pid $$`.
    pub async fn process_of(&self, run_id: &str) -> Result<u32> {
        let ends_at = Instant::now() + PATIENCE;
        loop {
            for event in self.store.events(run_id.to_owned(), 0, 500).await? {
                let mut lines = output_lines(&event.payload);
                if let Some(pid) = lines.find_map(|(_, line)| line.strip_prefix("pid ")?.parse().ok()) {
                    return Ok(pid);
                }
            }
            self.wait(ends_at, run_id, "has not said which process it is").await?;
        }
    }

    async fn wait(&self, ends_at: Instant, run_id: &str, problem: &str) -> Result {
        if Instant::now() >= ends_at {
            let message = format!("{run_id} {problem} after {} s", PATIENCE.as_secs());
            return Err(Failed::new(ERROR, message));
        }
        self.store.changed(LOOK).await;
        Ok(())
    }
}

//! The parts of a step whose progress is shown. A command tells by lines such as `::task 40 Apply firmware`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::time::sleep;
use waypost_kernel::Failure;
use waypost_kernel::text::{MAX_NAME_BYTES, clean_line};
use waypost_store::{ItemWrite, ItemsWrite, RunRow, Store, StoreError};

use super::state_names::{StateNames, StepState};
use super::step_log::Halt;
use crate::lease::Lease;
use crate::pace;

const MARK: &str = "::task ";
/// Instead of how far it is.
const FAILED: &str = "failed";
/// Of one step. More is a log, not progress.
const MAX_TASKS: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Percent(u8),
    Failed,
}

/// What a line says about a task, if it is one that does.
pub(crate) fn task_progress(line: &str) -> Option<(String, Progress)> {
    let (how_far, name) = line.strip_prefix(MARK)?.trim().split_once(' ')?;
    let progress = match how_far {
        FAILED => Progress::Failed,
        number => Progress::Percent(number.trim_end_matches('%').parse().ok().filter(|it| *it <= 100)?),
    };
    let name = clean_line(name.trim().as_bytes(), MAX_NAME_BYTES).text;
    (!name.is_empty()).then_some((name, progress))
}

/// The tasks of one step that is under way.
pub(crate) struct TaskBoard {
    store: Arc<dyn Store>,
    lease: Arc<Lease>,
    by: String,
    names: StateNames,
    step: String,
    about: Map<String, Value>,
    tasks: Mutex<BTreeMap<String, Task>>,
}

/// What an earlier holder of the run wrote, by step and name.
pub(crate) type Known = BTreeMap<String, BTreeMap<String, Task>>;

pub(crate) async fn known(store: &Arc<dyn Store>, lease: &Arc<Lease>, row: &RunRow) -> Result<Known, Halt> {
    let mut known = Known::new();
    // The first holder is alone.
    let Some(names) = StateNames::of_tasks(&row.lifecycle).filter(|_| row.run.fence > 1) else {
        return Ok(known);
    };
    let mut retry = 0;
    // Whoever did not know them would add them once more, and be refused.
    let rows = loop {
        match store.items(row.id().to_owned(), Some(names.kind.clone())).await {
            Ok(rows) => break rows,
            Err(error @ StoreError::Unavailable(_)) => {
                crate::outage::met(&format!("tasks of {} were not read", row.id()), &error);
                retry += 1;
                tokio::select! {
                    () = lease.lost() => return Err(Halt::Lost),
                    () = sleep(pace::store_away(retry)) => {}
                }
            }
            Err(error) => return Err(Halt::refused(&error)),
        }
    };
    for row in rows {
        let Some(step) = row.details.get("step").and_then(Value::as_str) else { continue };
        let task = Task { state: names.state(&row.status), percent: row.progress, is_written: true };
        known.entry(step.to_owned()).or_default().insert(row.name, task);
    }
    Ok(known)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    state: StepState,
    percent: u8,
    is_written: bool,
}

impl TaskBoard {
    /// Nothing: the lifecycle has no tasks.
    pub fn new(
        store: &Arc<dyn Store>,
        lease: &Arc<Lease>,
        by: &str,
        row: &RunRow,
        step: &str,
        item: Option<&Value>,
        known: &Known,
    ) -> Option<Arc<TaskBoard>> {
        let mut about = Map::from_iter([("step".to_owned(), json!(step))]);
        about.extend(item.map(|item| ("item".to_owned(), item.clone())));
        Some(Arc::new(TaskBoard {
            store: store.clone(),
            lease: lease.clone(),
            by: by.to_owned(),
            names: StateNames::of_tasks(&row.lifecycle)?,
            step: step.to_owned(),
            about,
            tasks: Mutex::new(known.get(step).cloned().unwrap_or_default()),
        }))
    }

    /// Those that the playbook names are shown before they begin.
    pub async fn announce(&self, names: Vec<String>) {
        let is_new = |name: &String| !self.tasks().contains_key(name);
        let all: Vec<String> = names.into_iter().filter(is_new).collect();
        self.set(all.into_iter().map(|name| (name, StepState::Open, 0)).collect());
        self.flush().await;
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<String, Task>> {
        // Every change is one insertion: a panic elsewhere leaves nothing half done.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn report(&self, name: String, progress: Progress) {
        let (state, percent) = match progress {
            Progress::Percent(100) => (StepState::Done, 100),
            Progress::Percent(percent) => (StepState::Held, percent),
            Progress::Failed => (StepState::Failed, 0),
        };
        self.set(vec![(name, state, percent)]);
    }

    fn set(&self, told: Vec<(String, StepState, u8)>) {
        let mut tasks = self.tasks();
        for (name, state, percent) in told {
            let is_full = tasks.len() >= MAX_TASKS;
            match tasks.get_mut(&name) {
                Some(task) if task.state.is_settled() => {}
                Some(task) => *task = Task { state, percent, is_written: false },
                None if is_full => {}
                None => {
                    tasks.insert(name, Task { state, percent, is_written: false });
                }
            }
        }
    }

    /// What is left of them ends with the step.
    pub async fn close(&self, failure: Option<&Failure>) {
        let (state, percent) =
            if failure.is_some() { (StepState::Failed, 0) } else { (StepState::Done, 100) };
        let open = {
            let tasks = self.tasks();
            let open = tasks.iter().filter(|(_, task)| !task.state.is_settled());
            open.map(|(name, _)| (name.clone(), state, percent)).collect()
        };
        self.set(open);
        self.write(failure).await;
    }

    /// One write for all that was told since the last.
    pub async fn flush(&self) {
        self.write(None).await;
    }

    async fn write(&self, failure: Option<&Failure>) {
        let changed: Vec<(String, Task)> = {
            let mut tasks = self.tasks();
            let changed = tasks.iter_mut().filter(|(_, task)| !task.is_written);
            changed
                .map(|(name, task)| {
                    task.is_written = true;
                    (name.clone(), *task)
                })
                .collect()
        };
        if changed.is_empty() {
            return;
        }
        let items = changed.into_iter().map(|(name, task)| self.item(name, task, failure)).collect();
        let write = ItemsWrite { held: self.lease.held.clone(), by: self.by.clone(), items };
        // Progress is for people: the step goes on without it.
        if let Err(error) = self.store.put_items(write).await {
            tracing::warn!(run_id = self.lease.held.run_id, %error, "progress was not accepted");
        }
    }

    fn item(&self, name: String, task: Task, failure: Option<&Failure>) -> ItemWrite {
        let is_failed = task.state == StepState::Failed;
        let own = || Failure::new("TASK_FAILED", "its step said so");
        let key = clean_line(format!("{}: {name}", self.step).as_bytes(), MAX_NAME_BYTES).text;
        ItemWrite {
            kind: self.names.kind.clone(),
            key,
            name: Some(name),
            status: self.names.status(task.state).to_owned(),
            progress: Some(task.percent),
            failure: is_failed.then(|| failure.cloned().unwrap_or_else(own)),
            details: self.about.clone(),
            ..ItemWrite::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_tell_how_far_a_task_is() {
        for (line, expected) in [
            ("::task 40 Apply firmware", Some(("Apply firmware", Progress::Percent(40)))),
            ("::task 100% reboot", Some(("reboot", Progress::Percent(100)))),
            ("::task failed Enter maintenance mode", Some(("Enter maintenance mode", Progress::Failed))),
            ("::task 101 x", None),
            ("::task x 40", None),
            ("::task 40", None),
            (" ::task 40 x", None),
            ("task 40 x", None),
        ] {
            let expected = expected.map(|(name, progress)| (name.to_owned(), progress));
            assert_eq!(task_progress(line), expected, "{line}");
        }
    }
}

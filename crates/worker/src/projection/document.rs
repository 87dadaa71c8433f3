//! What stands in the documents of a run: of its row, its steps and the ids of what they propose alone, so that whoever writes them writes the same.

use serde::Serialize;
use serde_json::Value;
use waypost_kernel::item::Role;
use waypost_kernel::{Failure, Phase, Time};
use waypost_store::{AGENT_SLUG, ItemRow, RunRow, iso};

use super::errors;
use crate::agents::TRIGGERS;
use crate::steps::{StateNames, StepState};

/// `status.json`, as seed 001 has it.
#[derive(Debug, Serialize)]
struct Status<'r> {
    run_id: &'r str,
    agent_slug: &'r str,
    status: &'r str,
    trigger: &'r str,
    started_at: Option<String>,
    finished_at: Option<String>,
    current_step: Option<&'r str>,
    steps_total: Option<usize>,
    steps_completed: usize,
    proposals_created: &'r [String],
    error: Option<String>,
}

/// `steps/<n>.json`.
#[derive(Debug, Serialize)]
struct StepFile<'r> {
    run_id: &'r str,
    #[serde(flatten)]
    step: Step<'r>,
    output: &'r Value,
    error: Option<String>,
}

#[derive(Debug, Serialize)]
struct Step<'r> {
    n: usize,
    name: &'r str,
    status: &'r str,
    started_at: Option<String>,
    finished_at: Option<String>,
    attempts: u32,
}

#[derive(Debug, Serialize)]
struct Manifest<'r> {
    run_id: &'r str,
    agent_slug: &'r str,
    started_at: Option<String>,
    finished_at: Option<String>,
    steps: Vec<Step<'r>>,
    proposals: &'r [String],
    artifacts: Vec<&'r Value>,
}

pub(super) fn status(row: &RunRow, items: &[ItemRow], proposals: &[String]) -> Vec<u8> {
    let steps = Steps::of(row, items);
    let is_settled = row.phase() == Phase::Settled;
    written(&Status {
        run_id: row.id(),
        agent_slug: agent(row),
        status: row.status(),
        trigger: trigger(row),
        started_at: row.run.started_at.map(seconds),
        finished_at: row.run.finished_at.map(seconds),
        current_step: steps.current(row),
        steps_total: Some(steps.rows.len()).filter(|total| *total > 0),
        steps_completed: steps.in_state(StepState::Done).count(),
        proposals_created: proposals,
        error: row.run.failure.as_ref().filter(|_| is_settled).map(code_and_message),
    })
}

/// Those that have ended, each with its number.
pub(super) fn ended_steps(row: &RunRow, items: &[ItemRow]) -> Vec<(usize, Vec<u8>)> {
    let steps = Steps::of(row, items);
    let mut files = Vec::new();
    for (at, item) in steps.rows.iter().enumerate().filter(|(_, item)| steps.state(item).is_settled()) {
        let file = StepFile {
            run_id: row.id(),
            step: step(at + 1, item),
            output: &item.output,
            error: item.failure.as_ref().map(code_and_message),
        };
        files.push((at + 1, written(&file)));
    }
    files
}

/// `finished_at` is null as long as the run has not ended.
pub(super) fn manifest(row: &RunRow, items: &[ItemRow], proposals: &[String]) -> Vec<u8> {
    let steps = Steps::of(row, items);
    let artifacts = steps.rows.iter().filter_map(|item| item.details.get("artifacts")?.as_array());
    written(&Manifest {
        run_id: row.id(),
        agent_slug: agent(row),
        started_at: row.run.started_at.map(seconds),
        finished_at: row.run.finished_at.map(seconds),
        steps: steps.rows.iter().enumerate().map(|(at, item)| step(at + 1, item)).collect(),
        proposals,
        artifacts: artifacts.flatten().collect(),
    })
}

/// A run's steps in the order in which they were added, which gives them their numbers. Cleanups are none.
struct Steps<'r> {
    names: Option<StateNames>,
    rows: Vec<&'r ItemRow>,
}

impl<'r> Steps<'r> {
    fn of(row: &RunRow, items: &'r [ItemRow]) -> Steps<'r> {
        Steps {
            names: StateNames::of_steps(&row.lifecycle),
            rows: items.iter().filter(|item| item.role != Role::Cleanup).collect(),
        }
    }

    fn state(&self, item: &ItemRow) -> StepState {
        self.names.as_ref().map_or(StepState::Open, |names| names.state(&item.status))
    }

    fn in_state(&self, state: StepState) -> impl DoubleEndedIterator<Item = &'r ItemRow> {
        self.rows.iter().copied().filter(move |item| self.state(item) == state)
    }

    /// The one that is under way; of a run that failed the one that it failed by; of one that ended well the last. Between two
    /// steps it is the next.
    fn current(&self, row: &RunRow) -> Option<&'r str> {
        row.run.started_at?;
        let began = |item: &&&ItemRow| item.started_at.is_some();
        let last = || self.rows.iter().rfind(began).copied();
        let found = match row.phase() {
            Phase::Settled => self.in_state(StepState::Failed).next_back().or_else(last),
            _ => self.in_state(StepState::Held).next().or_else(|| self.in_state(StepState::Open).next()),
        };
        found.or_else(last).map(|item| item.name.as_str())
    }
}

fn step(n: usize, item: &ItemRow) -> Step<'_> {
    Step {
        n,
        name: &item.name,
        status: &item.status,
        started_at: item.started_at.map(seconds),
        finished_at: item.finished_at.map(seconds),
        // The first try and the retries; `try_no` is already that of the next one once an answer came.
        attempts: item.started_at.map_or(0, |_| item.attempts + 1),
    }
}

/// Whose run it is: what starts runs of agents says so in the metadata, and any other run is called by what executes it.
fn agent(row: &RunRow) -> &str {
    let named = row.metadata.get(AGENT_SLUG).and_then(Value::as_str);
    let playbook = || row.playbook.as_deref().map(|pin| pin.split('@').next().unwrap_or(pin));
    named.or_else(playbook).or(row.title.as_deref()).unwrap_or(&row.lifecycle.name)
}

fn trigger(row: &RunRow) -> &'static str {
    let named = row.metadata.get("trigger").and_then(Value::as_str);
    let known = named.and_then(|named| TRIGGERS.into_iter().find(|known| *known == named));
    known.unwrap_or(TRIGGERS[0])
}

fn code_and_message(failure: &Failure) -> String {
    let (code, words, _) = errors::told(failure);
    format!("{code}: {words}")
}

/// The seed's times have no fractions.
fn seconds(time: Time) -> String {
    let text = iso(time);
    text.split_once('.').map_or(text.clone(), |(seconds, _)| format!("{seconds}Z"))
}

/// For people too. Nothing in a document fails to be written.
fn written(document: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(document).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

//! Steps that were under way when their worker was lost, in a state where that would have lost the run: the run was taken over because some step
//! has tries left, which says nothing of those that were under way.

use serde_json::Value;
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::OnStale;
use waypost_store::{EventRow, ItemRow};

use super::PlaybookEnd;
use super::playbook_run::PlaybookRun;
use super::state_names::StepState;
use super::step_log::Halt;
use crate::playbook::Step;

/// On a step: how many workers were lost while it was under way. Each of them used one of its tries.
pub(super) const LOST_TRIES: &str = "lost_tries";

impl PlaybookRun<'_> {
    /// What was lost is noted for the steps that may begin again; the first that may not ends the run, as if it had not been taken over.
    pub(super) async fn count_lost_tries(&mut self) -> Result<Option<PlaybookEnd>, Halt> {
        let run = &self.row.run;
        let loses = self.row.lifecycle.state(run.state).on_stale == Some(OnStale::Lose);
        if !loses || run.take_overs == 0 || !self.has_lost_a_worker().await? {
            return Ok(None);
        }
        let playbook = self.playbook;
        let mut over = None;
        for step in &playbook.steps {
            let rows = self.step_log.row(&step.key).into_iter().chain(self.step_log.parts_of(&step.key));
            let was_under_way = |row: &&ItemRow| {
                let is_open = self.step_log.names.state(&row.status) == StepState::Open;
                // One that waits for its next try has a time.
                is_open && row.role != Role::Cleanup && row.started_at.is_some() && row.not_before.is_none()
            };
            let lost: Vec<(String, u32)> =
                rows.filter(was_under_way).map(|row| (row.key.clone(), lost_tries(row) + 1)).collect();
            for (key, count) in lost {
                let made = self.step_log.row(&key).map_or(0, |row| row.attempts).saturating_add(count);
                if made > step.retries && over.is_none() {
                    over = Some(self.lost_with(step, &key));
                }
                self.lost_tries.insert(key, count);
            }
        }
        Ok(over)
    }

    /// Whether a worker was lost since steps were written for the last time in this attempt. A worker that gave the run back was not.
    async fn has_lost_a_worker(&self) -> Result<bool, Halt> {
        let is_move = |event: &EventRow| event.from.as_deref() != Some(&event.to);
        let last = self.step_log.last_event(self.row.run.seq, |it| it.command == "items" || is_move(it));
        let Some(last) = last.await?.filter(|event| event.command == "items") else { return Ok(false) };
        let (mut after, mut is_vacant) = (last.seq, false);
        loop {
            let page = self.step_log.events_after(after).await?;
            let Some(end) = page.last().map(|event| event.seq) else { return Ok(false) };
            for event in &page {
                match event.command.as_str() {
                    "release" => is_vacant = true,
                    "take-over" if !is_vacant => return Ok(true),
                    "take-over" => is_vacant = false,
                    _ => {}
                }
            }
            after = end;
        }
    }

    fn lost_with(&self, step: &Step, key: &str) -> PlaybookEnd {
        let code = self.row.lifecycle.code_of(OnStale::Lose.command()).unwrap_or("WORKER_LOST");
        let why = match step.retries {
            0 => "has no retries",
            _ => "has none of its retries left",
        };
        PlaybookEnd::Failed(Failure::new(
            code,
            &format!("the worker's lease ran out during {key}, which {why}"),
        ))
    }
}

/// By what is stored.
pub(super) fn lost_tries(row: &ItemRow) -> u32 {
    let lost = row.details.get(LOST_TRIES).and_then(Value::as_u64).unwrap_or_default();
    u32::try_from(lost).unwrap_or(u32::MAX / 2)
}

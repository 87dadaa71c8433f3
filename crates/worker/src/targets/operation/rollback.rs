//! A rollback: each applied target is undone outside first, then it is rolled back in the store. A crash between the two leaves
//! it applied, and the next holder sends the same key again.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use waypost_kernel::Failure;
use waypost_kernel::request::Level;
use waypost_store::{ItemRow, RollBackTargets, RunRow, StoreError};

use super::applied::{Applied, Of};
use super::doubt::{Doubts, Found};
use super::report::{Mismatch, REPORT, counted, failure_object, in_details, list, listed};
use super::round::{Act, Asked, Met, Round};
use super::{Operation, failed, unfit};
use crate::interpret::{Ending, Goal, Parting};
use crate::outage;
use crate::pace;
use crate::report::journal::is_lost;
use crate::steps::WORTH_GIVING_BACK;

pub(super) const ROLLBACK: &str = "rollback";
/// Targets of one write.
const BATCH: usize = 250;
/// What was undone is written at the latest so long after.
const LATEST: Duration = Duration::from_millis(200);
/// The code of a target that was no longer applied when it was to be rolled back.
const CHANGED: &str = "CHANGED";
/// The code of a failed target of which nobody can say whether it was changed.
const IN_DOUBT: &str = "IN_DOUBT";
const NOT_READABLE: &str = "it failed without an answer and cannot be read: it may have been changed";
/// Of a rollback for which the playbook has no way.
const NO_ROLLBACK: &str = "NO_ROLLBACK";
/// Of a rollback that left targets applied.
const NOT_UNDONE: &str = "NOT_ROLLED_BACK";

pub(super) async fn perform(operation: &Operation<'_>) -> Parting {
    if !operation.is_begun_by_parent() {
        let parent = operation.parent.id();
        return unfit(&format!("{parent} was not asked for this rollback: use its command"));
    }
    if !operation.rule.can_undo() {
        let message = "[apply] names no target.after, so that it would only be made again: add a [rollback] to the playbook and start the run anew, \
             or undo the targets by hand";
        return failed(NO_ROLLBACK, message);
    }
    let round = match Round::new(operation, WORTH_GIVING_BACK) {
        Ok(round) => round,
        Err(problem) => return failed("BAD_INPUT", &problem),
    };
    let known = operation.row.details.get(REPORT);
    let rollback = Rollback {
        operation,
        round,
        applied: Applied::new(&operation.parent, operation.row.input.get("targets"), None),
        undone: Vec::new(),
        oldest: None,
        failures: Vec::new(),
        failed: 0,
        held: Vec::new(),
        named: ["drift", "doubts"]
            .iter()
            .flat_map(|name| listed(known, name))
            .filter_map(|it| it["targetId"].as_str().map(str::to_owned))
            .collect(),
        drift: listed(known, "drift"),
        drifted: counted(known, "drifted"),
        doubts: Doubts::known(known),
        left: None,
    };
    rollback.run().await
}

struct Rollback<'a> {
    operation: &'a Operation<'a>,
    round: Round<'a>,
    applied: Applied,
    /// Undone outside, and not written yet.
    undone: Vec<String>,
    oldest: Option<Instant>,
    failures: Vec<Value>,
    failed: u64,
    /// Targets that were something else than what was applied. They are rolled back too.
    drift: Vec<Value>,
    drifted: u64,
    /// Failed targets that may have been changed. Those that were are undone too, and stay failed.
    doubts: Doubts,
    /// The keys of those that are listed: an earlier holder may have named them.
    named: HashSet<String>,
    /// They had drifted, or were in doubt, and are undone once that is stored: nobody could find it any more.
    held: Vec<(Of, ItemRow)>,
    /// How many targets of the parent are applied, as it was written last.
    left: Option<u64>,
}

impl Rollback<'_> {
    async fn run(mut self) -> Parting {
        loop {
            if let Err(parting) = self.load().await {
                return parting;
            }
            let at = self.oldest.map(|oldest| oldest + LATEST);
            let met = self.round.next(at).await;
            let is_over = matches!(met, Met::Idle) && self.applied.is_done() && self.held.is_empty();
            let is_due = matches!(met, Met::Idle | Met::Time | Met::Waits(_)) || self.undone.len() >= BATCH;
            match met {
                Met::Stopped => return self.stop().await,
                Met::Critical(failure) => return self.give_up(failure).await,
                Met::Waits(wait) if self.held.is_empty() && self.undone.is_empty() => {
                    return self.round.pause(wait).await;
                }
                met => self.take(met),
            }
            if is_due && let Err(parting) = self.write().await {
                return parting;
            }
            if is_over {
                self.round.end().await;
                return self.end(Ending::new(Goal::Succeed));
            }
        }
    }

    /// The next page, when there is room for it.
    async fn load(&mut self) -> Result<(), Parting> {
        while !self.applied.is_done() && self.round.has_room() {
            let page = match self.applied.next(&*self.operation.shared.store).await {
                Ok(page) => page,
                Err(StoreError::Unavailable(_)) => return Err(Parting::GiveBack(None)),
                Err(error) => return Err(unfit(&error.to_string())),
            };
            let can_read = self.operation.rule.fetch.is_some();
            for item in page.items {
                match (page.of, can_read) {
                    (of, true) => self.round.ask(Asked::new(item, of, Act::Fetch, 0)),
                    (Of::Applied, false) => self.round.ask(Asked::new(item, Of::Applied, Act::Undo, 0)),
                    (Of::Doubt, false) => self.fail(&item.key, &Failure::new(IN_DOUBT, NOT_READABLE)),
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, met: Met) {
        match met {
            Met::Done(asked, answer) if asked.act == Act::Fetch && asked.of == Of::Doubt => {
                self.doubt(*asked, answer.as_ref());
            }
            Met::Done(asked, answer) if asked.act == Act::Fetch => {
                if self.is_as_before(&asked, answer.as_ref()) {
                    self.undone.push(asked.item.key);
                    self.oldest.get_or_insert_with(Instant::now);
                } else if self.has_drifted(&asked, answer.as_ref()) {
                    self.held.push((Of::Applied, asked.item));
                    self.oldest.get_or_insert_with(Instant::now);
                } else {
                    self.round.ask(Asked::new(asked.item, Of::Applied, Act::Undo, 0));
                }
            }
            // What cannot be read is rolled back all the same: only whether it had drifted stays unknown.
            Met::Failed(asked, _) if asked.act == Act::Fetch && asked.of == Of::Applied => {
                self.round.ask(Asked::new(asked.item, Of::Applied, Act::Undo, 0));
            }
            // It stays failed: there is nothing to be written of it.
            Met::Done(asked, _) if asked.of == Of::Doubt => {}
            Met::Done(asked, _) => {
                self.undone.push(asked.item.key);
                self.oldest.get_or_insert_with(Instant::now);
            }
            Met::Failed(asked, failure) => self.fail(&asked.item.key, &failure),
            Met::Critical(_) | Met::Idle | Met::Stopped | Met::Time | Met::Waits(_) => {}
        }
    }

    fn fail(&mut self, key: &str, failure: &Failure) {
        self.failed += 1;
        list(&mut self.failures, failure_object(key, failure));
    }

    /// Of a failed target only what was made is undone: what is as it was, or what others made it, is none of ours.
    fn doubt(&mut self, asked: Asked, answer: Option<&Value>) {
        let Some(actual) = self.actual(answer) else {
            return self.fail(&asked.item.key, &Failure::new(IN_DOUBT, NOT_READABLE));
        };
        let found = Found::of(&asked.item, actual, None);
        let object = found.object(&asked.item, actual);
        if self.named.insert(asked.item.key.clone()) {
            self.doubts.add(found, object);
        }
        if found == Found::Made {
            self.held.push((Of::Doubt, asked.item));
            self.oldest.get_or_insert_with(Instant::now);
        }
    }

    fn actual<'v>(&self, answer: Option<&'v Value>) -> Option<&'v Value> {
        let fetch = self.operation.rule.fetch.as_ref()?;
        answer?.pointer(&fetch.value)
    }

    /// Whether nothing is left to undo: an earlier holder did, and died before it wrote so. It may have sent a later key than the one that
    /// would be sent now, so that the change would be made twice. A `[rollback]` of its own may do more than set the value.
    fn is_as_before(&self, asked: &Asked, answer: Option<&Value>) -> bool {
        let before = asked.item.details.get("before").filter(|before| !before.is_null());
        let Some((before, actual)) = before.zip(self.actual(answer)) else { return false };
        let is_before = Mismatch::of(&asked.item.key, before, actual, None).is_none();
        is_before && self.operation.rule.rollback.is_none()
    }

    /// Whether a target is neither what it was made, nor what it was before, as an earlier holder left it.
    fn has_drifted(&mut self, asked: &Asked, answer: Option<&Value>) -> bool {
        let Some(actual) = self.actual(answer) else { return false };
        let detail = |name: &str| asked.item.details.get(name).cloned().unwrap_or_default();
        let differs = |from: &Value| Mismatch::of(&asked.item.key, from, actual, None);
        let mismatch = differs(&detail("after")).filter(|_| differs(&detail("before")).is_some());
        let Some(mismatch) = mismatch else { return false };
        if self.named.insert(asked.item.key.clone()) {
            self.drifted += 1;
            list(&mut self.drift, mismatch.object());
        }
        true
    }

    /// Writes what was undone, and what had drifted before that is undone too.
    async fn write(&mut self) -> Result<(), Parting> {
        if !self.held.is_empty() {
            let report = self.report();
            let words = format!(
                "{} targets had been changed by others since, {} that had failed were changed all the same",
                self.drifted, report["made"]
            );
            let payload = json!({ "drifted": self.drifted, "made": report["made"] });
            let details = in_details(report);
            if !self.round.caller().journal.tell(Level::Warn, &words, payload, details).await {
                return Err(Parting::GiveBack(None));
            }
            let held = std::mem::take(&mut self.held);
            held.into_iter().for_each(|(of, item)| self.round.ask(Asked::new(item, of, Act::Undo, 0)));
        }
        while !self.undone.is_empty() {
            let count = self.undone.len().min(BATCH);
            let keys: Vec<String> = self.undone.drain(..count).collect();
            self.roll_back(keys).await?;
        }
        self.oldest = None;
        Ok(())
    }

    async fn roll_back(&mut self, keys: Vec<String>) -> Result<(), Parting> {
        match self.ask_store(keys.clone()).await {
            Ok(parent) => self.left = Some(applied_of(&parent)),
            Err(error) if is_lost(&error) => {
                self.operation.lease.lose();
                return Err(Parting::GiveBack(None));
            }
            Err(_) if keys.len() > 1 => {
                for key in keys {
                    Box::pin(self.roll_back(vec![key])).await?;
                }
            }
            Err(error) => self.fail(&keys[0], &Failure::new(CHANGED, &error.to_string())),
        }
        Ok(())
    }

    async fn ask_store(&self, keys: Vec<String>) -> waypost_store::Result<RunRow> {
        let write = RollBackTargets {
            held: self.operation.lease.held.clone(),
            by: self.operation.shared.options.name.clone(),
            keys,
        };
        for retry in 1.. {
            match self.operation.shared.store.roll_back_targets(write.clone()).await {
                Err(error @ StoreError::Unavailable(_)) => {
                    if self.operation.lease.is_lost() {
                        return Err(error);
                    }
                    outage::met(
                        &format!("targets of {} were not rolled back", self.operation.parent.id()),
                        &error,
                    );
                    sleep(pace::store_away(retry)).await;
                }
                answer => return answer,
            }
        }
        Err(StoreError::Unavailable("it did not answer".to_owned()))
    }

    /// Counted from what was applied when it began: no other hand rolls back meanwhile.
    fn rolled_back(&self) -> u64 {
        let left = self.left.unwrap_or_else(|| applied_of(&self.operation.parent));
        let begun = self.operation.row.input.get("count").and_then(Value::as_u64).unwrap_or(left);
        begun.saturating_sub(left)
    }

    fn report(&self) -> Value {
        let mut report = json!({
            "run_id": self.operation.parent.id(),
            "rolledBack": self.rolled_back(),
            "errors": self.failed,
            "drifted": self.drifted,
            "failures": self.failures,
            "drift": self.drift,
        });
        self.doubts.tell(&mut report);
        report
    }

    fn end(self, ending: Ending) -> Parting {
        let why = Failure::new(NOT_UNDONE, &format!("{} targets could not be rolled back", self.failed));
        let ending = match (ending.goal, self.failed, self.rolled_back()) {
            (Goal::Succeed, 1.., 0) => Ending::failed(why),
            (Goal::Succeed, 1.., _) => Ending { failure: Some(why), ..Ending::new(Goal::Partial) },
            _ => ending,
        };
        Parting::End(Ending { details: in_details(self.report()), ..ending })
    }

    /// A critical error: what was undone is written, and the rest stays applied.
    async fn give_up(mut self, failure: Failure) -> Parting {
        if let Err(parting) = self.wind_up().await {
            return parting;
        }
        self.end(Ending::failed(failure))
    }

    async fn stop(mut self) -> Parting {
        if let Err(parting) = self.wind_up().await {
            return parting;
        }
        let details = in_details(self.report());
        self.operation.stopped(|ending| Ending { details, ..ending })
    }

    async fn wind_up(&mut self) -> Result<(), Parting> {
        let met = self.round.wind_up().await;
        met.into_iter().for_each(|met| self.take(met));
        if self.operation.lease.is_lost() {
            return Err(Parting::GiveBack(None));
        }
        self.write().await
    }
}

fn applied_of(parent: &RunRow) -> u64 {
    let counted = parent.lifecycle.items.first().zip(parent.run.tallies.first());
    counted.map_or(0, |(kind, tally)| tally.counts(kind).ok.into())
}

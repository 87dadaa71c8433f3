//! Writing how a run ended, in its lifecycle's own words, until the store has it.

pub(crate) mod batch;
pub(crate) mod journal;
pub(crate) mod reporter;

use std::sync::Arc;

use serde_json::{Map, json};
use tokio::time::sleep;
use waypost_kernel::lifecycle::{Actor, Lifecycle, Outcome, Phase, StateId, Transition};
use waypost_kernel::request::Level;
use waypost_kernel::run::Want;
use waypost_kernel::{Code, Failure};
use waypost_store::{
    FinishWrite, Held, ItemsWrite, NoteWrite, ReleaseWrite, Repeat, RunRow, Store, StoreError, Wait,
};

use crate::interpret::{Ending, Goal};
use crate::outage;
use crate::pace;
use crate::report::journal::is_lost;
use crate::report::reporter::Reporter;
use crate::summary::End;

/// Sends the finish until it is accepted or refused; the token makes one that arrived after all a repeat. What
/// is refused because somebody else was first is finished as they wanted it, and what cannot be had is tried by the next
/// best way: a run that is given back is executed again, so that is no way out.
pub(crate) async fn finish(reporter: &Reporter, row: &RunRow, held: &Held, by: &str, ending: Ending) -> End {
    let mut attempt = Attempt::new(row, ending);
    let mut retry = 0;
    while let Some(status) = attempt.status() {
        match reporter.finish(write(held, by, status, &attempt.ending)).await {
            Ok(row) => return end_of(&row, attempt.ending.goal),
            Err(error) if is_lost(&error) => {
                tracing::warn!(run_id = held.run_id, "the lease is lost: the result is not written");
                return End::Lost;
            }
            Err(error @ StoreError::Unavailable(_)) => {
                outage::met(&format!("the result of {} was not accepted", held.run_id), &error);
                retry += 1;
                sleep(pace::store_away(retry)).await;
            }
            Err(error) if !attempt.ending.items.is_empty() => {
                // One of them may be what is refused: what happened is written alone.
                tracing::warn!(run_id = held.run_id, %error, "result not accepted with its steps");
                let items = attempt.ending.items.clone();
                let write = ItemsWrite { held: held.clone(), by: by.to_owned(), items };
                match reporter.store.put_items(write).await {
                    // Both again.
                    Err(StoreError::Unavailable(_)) => continue,
                    Err(error) => attempt.refused(error),
                    Ok(_) => {}
                }
                attempt.ending.items.clear();
            }
            Err(error) => attempt.refused(error),
        }
    }
    abandon(reporter, held, by, &attempt).await
}

/// No end is accepted: the lease is left to run out. What the lifecycle says of stale leases waits for that and counts
/// how often, so the run is neither executed again at once nor for ever.
async fn abandon(reporter: &Reporter, held: &Held, by: &str, attempt: &Attempt<'_>) -> End {
    let message = format!("No end of this run is accepted: {}", attempt.why());
    tracing::error!(run_id = held.run_id, "{message}");
    let note = NoteWrite {
        held: held.clone(),
        by: by.to_owned(),
        level: Level::Error,
        message,
        payload: json!({ "wanted": format!("{:?}", attempt.ending.goal).to_lowercase() }),
        repeat: Repeat::Never,
        metadata: Map::new(),
        details: Map::new(),
    };
    if let Err(error) = reporter.note(note).await {
        tracing::warn!(run_id = held.run_id, %error, "nor is the reason");
    }
    End::Lost
}

/// How a run is tried to be ended.
struct Attempt<'r> {
    row: &'r RunRow,
    ending: Ending,
    /// The states that the goal may be met in, best first, and how many of them were refused.
    statuses: Vec<String>,
    refused: usize,
    last: Option<StoreError>,
    /// Goals that were tried, so that two refusals do not send it back and forth.
    goals: Vec<Goal>,
}

impl<'r> Attempt<'r> {
    fn new(row: &'r RunRow, ending: Ending) -> Attempt<'r> {
        let mut attempt =
            Attempt { row, ending, statuses: Vec::new(), refused: 0, last: None, goals: Vec::new() };
        attempt.aim();
        attempt
    }

    /// Makes the list for the goal; where the lifecycle has no such end, for the next best one.
    fn aim(&mut self) {
        loop {
            self.goals.push(self.ending.goal);
            self.statuses = statuses_for(&self.row.lifecycle, self.row.run.state, self.ending.goal);
            self.refused = 0;
            match without_status(&self.ending).filter(|_| self.statuses.is_empty()) {
                Some(other) if !self.goals.contains(&other.goal) => self.ending = other,
                _ => return,
            }
        }
    }

    fn status(&self) -> Option<&str> {
        self.statuses.get(self.refused).map(String::as_str)
    }

    fn refused(&mut self, error: StoreError) {
        let other = instead(&self.ending, &error);
        self.last = Some(error);
        match other {
            Some(other) if other.goal == self.ending.goal => self.ending = other,
            Some(other) if self.refused + 1 >= self.statuses.len() || other.goal != Goal::Fail => {
                if self.goals.contains(&other.goal) {
                    self.refused = self.statuses.len();
                } else {
                    self.ending = other;
                    self.aim();
                }
            }
            _ => self.refused += 1,
        }
    }

    fn why(&self) -> String {
        match &self.last {
            Some(error) => error.to_string(),
            None => format!("a {} run has no such end for a worker", self.row.lifecycle.name),
        }
    }
}

/// Gives the run back unharmed, to whoever comes, or not before it has waited.
pub(crate) async fn release(store: &Arc<dyn Store>, held: &Held, wait: Option<Wait>) -> End {
    for retry in 1.. {
        let answers = store.release(vec![ReleaseWrite { held: held.clone(), wait: wait.clone() }]).await;
        match answers.and_then(|mut all| all.pop().unwrap_or_else(|| Err(StoreError::no_run(&held.run_id)))) {
            // What somebody wanted of it is carried out by the release.
            Ok(row) if row.phase() != Phase::Held => return end_of(&row, Goal::Cancel),
            Ok(_) if wait.is_some() => return End::Waits,
            Ok(_) => return End::Released,
            Err(error @ StoreError::Unavailable(_)) => {
                outage::met(&format!("the lease of {} was not given back", held.run_id), &error);
                sleep(pace::store_away(retry)).await;
            }
            Err(_) => break,
        }
    }
    End::Lost
}

fn write(held: &Held, by: &str, status: &str, ending: &Ending) -> FinishWrite {
    FinishWrite {
        run_id: held.run_id.clone(),
        token: Some(held.token),
        by: by.to_owned(),
        status: status.to_owned(),
        failure: ending.failure.clone(),
        reason: ending.reason.clone(),
        retry_in: ending.retry_in.filter(|_| ending.goal == Goal::Fail),
        goes_on_at: ending.goes_on_at,
        metadata: ending.metadata.clone(),
        details: ending.details.clone(),
        items: ending.items.clone(),
    }
}

pub(crate) fn end_of(row: &RunRow, goal: Goal) -> End {
    match (row.phase(), row.outcome()) {
        (Phase::Parked, _) => End::Parked,
        (_, Some(Outcome::Cancelled)) => End::Cancelled,
        (_, Some(Outcome::Failed)) if goal == Goal::Cancel => End::Cancelled,
        (_, Some(Outcome::Failed | Outcome::Partial)) => End::Failed,
        _ => End::Succeeded,
    }
}

/// The lifecycle has no such end.
fn without_status(ending: &Ending) -> Option<Ending> {
    match ending.goal {
        Goal::Skip => Some(Ending { goal: Goal::Succeed, ..ending.clone() }),
        Goal::Partial => Some(Ending { goal: Goal::Fail, ..ending.clone() }),
        Goal::Park => {
            let reason = ending.reason.as_deref().unwrap_or("no reason given");
            let message =
                format!("the handler asked for a pause ({reason}), which this lifecycle does not have");
            Some(Ending {
                goal: Goal::Fail,
                failure: Some(Failure::new("CANNOT_PAUSE", &message)),
                ..ending.clone()
            })
        }
        Goal::Cancel => Some(Ending { goal: Goal::Fail, ..ending.clone() }),
        Goal::Succeed => {
            let message = "all is done, but the lifecycle has no end for that which a worker may choose";
            Some(Ending {
                goal: Goal::Fail,
                failure: Some(Failure::new("NO_SUCCESS", message)),
                ..ending.clone()
            })
        }
        Goal::Fail => None,
    }
}

/// What to ask for after a refusal; nothing when there is nothing left to try.
fn instead(ending: &Ending, error: &StoreError) -> Option<Ending> {
    match error {
        StoreError::Refused(refusal) => match refusal.code {
            Code::CancelRequested if ending.goal != Goal::Cancel => {
                Some(Ending { goal: Goal::Cancel, failure: None, reason: None, ..ending.clone() })
            }
            Code::FailureRecorded if ending.goal != Goal::Fail => {
                Some(Ending { goal: Goal::Fail, failure: None, reason: None, ..ending.clone() })
            }
            Code::InvalidTransition | Code::InvalidInput if ending.goal != Goal::Fail => {
                let failure = Failure::new(refusal.code.name(), &refusal.message);
                Some(Ending { goal: Goal::Fail, failure: Some(failure), ..ending.clone() })
            }
            _ => None,
        },
        // A finish is never lost because of what it carries.
        StoreError::Invalid { .. } if !(ending.metadata.is_empty() && ending.details.is_empty()) => {
            tracing::warn!(%error, "the result is written without what came with it");
            Some(Ending {
                failure: ending.failure.clone(),
                reason: ending.reason.clone(),
                ..Ending::new(ending.goal)
            })
        }
        _ => None,
    }
}

/// The states to finish in, best first: where a worker's edges lead from here, or from where the first event moves
/// the run.
fn statuses_for(lifecycle: &Lifecycle, from: StateId, goal: Goal) -> Vec<String> {
    let begun = lifecycle.start_edge(from).map(|edge| edge.to);
    let edges =
        |from: StateId| lifecycle.transitions_from(from).filter(|edge| edge.by.contains(Actor::Worker));
    let all: Vec<&Transition> = begun.into_iter().chain([from]).flat_map(edges).collect();
    let with = |outcomes: &[Outcome]| -> Vec<&Transition> {
        let leads_to = |outcome: &Outcome| {
            let outcome = *outcome;
            all.iter().copied().filter(move |edge| lifecycle.state(edge.to).outcome == Some(outcome))
        };
        outcomes.iter().flat_map(leads_to).collect()
    };
    let cancels = |edge: &&Transition| &*edge.command == Want::Cancel.command();
    let edges: Vec<&Transition> = match goal {
        Goal::Succeed => with(&[Outcome::Succeeded]),
        Goal::Skip => with(&[Outcome::Skipped]),
        Goal::Partial => with(&[Outcome::Partial]),
        Goal::Fail => with(&Outcome::OF_A_FAILURE).into_iter().filter(|edge| !cancels(edge)).collect(),
        Goal::Park => all.iter().copied().filter(|edge| lifecycle.phase(edge.to) == Phase::Parked).collect(),
        // By its command first, since some lifecycles have no state of its own for it.
        Goal::Cancel => {
            let settles = |edge: &&Transition| lifecycle.phase(edge.to) == Phase::Settled;
            let named = all.iter().copied().filter(cancels).filter(settles);
            named.chain(with(&[Outcome::Cancelled])).collect()
        }
    };
    let mut names: Vec<String> = Vec::new();
    for edge in edges {
        let name = lifecycle.state(edge.to).name.to_string();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The best of them.
pub(crate) fn status_for(lifecycle: &Lifecycle, from: StateId, goal: Goal) -> Option<String> {
    statuses_for(lifecycle, from, goal).into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use waypost_kernel::Catalog;

    #[test]
    fn every_lifecycle_names_its_own_ends() {
        let catalog = Catalog::shipped().expect("shipped lifecycles load");
        for (lifecycle, from, goal, expected) in [
            ("deploy", "claimed", Goal::Succeed, Some("success")),
            ("deploy", "running", Goal::Succeed, Some("success")),
            ("deploy", "claimed", Goal::Fail, Some("failed")),
            ("deploy", "claimed", Goal::Cancel, Some("cancelled")),
            ("deploy", "running", Goal::Park, None),
            ("deploy", "running", Goal::Skip, None),
            ("agent", "running", Goal::Succeed, Some("completed")),
            ("agent", "running", Goal::Cancel, Some("failed")),
            ("job", "running", Goal::Park, Some("paused")),
            ("job", "running", Goal::Cancel, Some("cancelled")),
            ("cron", "RUNNING", Goal::Succeed, Some("SUCCESS")),
            ("cron", "RUNNING", Goal::Fail, Some("FAILED")),
            ("operation", "running", Goal::Succeed, Some("completed")),
            ("operation", "running", Goal::Partial, Some("partial")),
            ("deploy", "running", Goal::Partial, None),
        ] {
            let lifecycle = catalog.latest(lifecycle).expect(lifecycle);
            let from = lifecycle.state_named(from).expect(from);
            assert_eq!(status_for(lifecycle, from, goal).as_deref(), expected, "{} {goal:?}", lifecycle.name);
        }
    }
}

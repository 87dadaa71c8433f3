//! Writing how a run ended, in its lifecycle's own words, until the store has it.

use std::sync::Arc;

use tokio::time::sleep;
use waypost_kernel::lifecycle::{Actor, Lifecycle, Outcome, Phase, StateId, Transition};
use waypost_kernel::run::Want;
use waypost_kernel::{Code, Failure};
use waypost_store::{FinishWrite, Held, RunRow, Store, StoreError};

use crate::interpret::{Ending, Goal};
use crate::journal::is_lost;
use crate::pace;
use crate::summary::End;

/// Sends the finish until it is accepted or refused; the token makes one that arrived after all a repeat. What
/// is refused because somebody else was first is finished as they wanted it.
pub(crate) async fn finish(
    store: &Arc<dyn Store>,
    row: &RunRow,
    held: &Held,
    by: &str,
    ending: Ending,
) -> End {
    let mut ending = ending;
    let mut refusals = 0;
    for retry in 1.. {
        let Some(status) = status_for(&row.lifecycle, row.run.state, ending.goal) else {
            match without_status(&ending) {
                Some(other) => ending = other,
                None => break,
            }
            continue;
        };
        let answers = store.finish(vec![write(held, by, &status, &ending)]).await;
        let answer =
            answers.and_then(|mut all| all.pop().unwrap_or_else(|| Err(StoreError::no_run(&held.run_id))));
        match answer {
            Ok(row) => return end_of(&row, ending.goal),
            Err(error) if is_lost(&error) => {
                tracing::warn!(run_id = held.run_id, "the lease is lost: the result is not written");
                return End::Lost;
            }
            Err(error @ StoreError::Unavailable(_)) => {
                tracing::warn!(run_id = held.run_id, %error, "result not accepted; trying again");
                sleep(pace::store_away(retry)).await;
            }
            Err(error) => {
                refusals += 1;
                match instead(&ending, &error).filter(|_| refusals < 4) {
                    Some(other) => ending = other,
                    None => {
                        tracing::error!(run_id = held.run_id, %error, "no result is accepted: giving the run back");
                        break;
                    }
                }
            }
        }
    }
    release(store, held).await
}

/// Gives the run back unharmed.
pub(crate) async fn release(store: &Arc<dyn Store>, held: &Held) -> End {
    for retry in 1.. {
        let answers = store.release(vec![held.clone()]).await;
        match answers.and_then(|mut all| all.pop().unwrap_or_else(|| Err(StoreError::no_run(&held.run_id)))) {
            // What somebody wanted of it is carried out by the release.
            Ok(row) if row.phase() != Phase::Held => return end_of(&row, Goal::Cancel),
            Ok(_) => return End::Released,
            Err(error @ StoreError::Unavailable(_)) => {
                tracing::warn!(run_id = held.run_id, %error, "lease not given back; trying again");
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
        retry_in: None,
        metadata: ending.metadata.clone(),
        details: ending.details.clone(),
        items: Vec::new(),
    }
}

fn end_of(row: &RunRow, goal: Goal) -> End {
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
        Goal::Succeed | Goal::Fail => None,
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
            Code::InvalidTransition if ending.goal != Goal::Fail => {
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

/// The state to finish in: the first in the table that a worker's edge leads to from here, or from where the
/// first event moves the run.
pub(crate) fn status_for(lifecycle: &Lifecycle, from: StateId, goal: Goal) -> Option<String> {
    let begun = lifecycle.start_edge(from).map(|edge| edge.to);
    let edges =
        |from: StateId| lifecycle.transitions_from(from).filter(|edge| edge.by.contains(Actor::Worker));
    let all: Vec<&Transition> = begun.into_iter().chain([from]).flat_map(edges).collect();
    let leads_to =
        |outcome: Outcome| all.iter().find(|edge| lifecycle.state(edge.to).outcome == Some(outcome));
    let edge = match goal {
        Goal::Succeed => leads_to(Outcome::Succeeded),
        Goal::Skip => leads_to(Outcome::Skipped),
        Goal::Fail => leads_to(Outcome::Failed),
        Goal::Park => all.iter().find(|edge| lifecycle.phase(edge.to) == Phase::Parked),
        // By its command, since some lifecycles have no state of its own for it.
        Goal::Cancel => {
            let cancels = all.iter().find(|edge| {
                &*edge.command == Want::Cancel.command() && lifecycle.phase(edge.to) == Phase::Settled
            });
            cancels.or_else(|| leads_to(Outcome::Cancelled))
        }
    };
    edge.map(|edge| lifecycle.state(edge.to).name.to_string())
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
        ] {
            let lifecycle = catalog.latest(lifecycle).expect(lifecycle);
            let from = lifecycle.state_named(from).expect(from);
            assert_eq!(status_for(lifecycle, from, goal).as_deref(), expected, "{} {goal:?}", lifecycle.name);
        }
    }
}

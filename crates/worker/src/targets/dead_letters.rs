//! Targets that have failed and wait for a person: what to do about each class, and doing it for many at once.

use serde_json::{Value, json};
use waypost_kernel::lifecycle::{CANCELLED, Lifecycle, State};
use waypost_kernel::{Outcome, Phase};
use waypost_store::{
    CommandWrite, DeadLetterClass, DeadLetterFilter, DiscardTargets, Filter, ItemFilter, RunRow, Store, iso,
};

use super::alone::has_targets;
use super::check_command;
use super::verdict::Class;
use crate::playbook::Violation;

const PAGE: usize = 500;
const RETRY: &str = "retry";
const RUNS: usize = 200;
/// How runs have ended whose failed targets are retried, and discarded: what is left of one that was rolled back can only be discarded.
const RETRIED: [Outcome; 2] = [Outcome::Failed, Outcome::Partial];
const DISCARDED: [Outcome; 3] = [Outcome::Failed, Outcome::Partial, Outcome::Reverted];

/// Which of them. What a cancel of its run ended was meant: only who names the run retries that.
#[derive(Clone, Debug, Default)]
pub struct Chosen {
    pub tenant: String,
    /// None: of all runs. A retry leaves out what was cancelled then.
    pub run_id: Option<String>,
    /// Only those that failed with this code.
    pub code: Option<String>,
    /// Only these targets of the run.
    pub keys: Option<Vec<String>>,
}

/// What became of one run's share.
#[derive(Clone, Debug, PartialEq)]
pub struct Acted {
    pub run_id: String,
    pub targets: u64,
    /// Why nothing was done about it.
    pub refused: Option<String>,
}

impl Acted {
    pub fn object(&self) -> Value {
        json!({ "run_id": self.run_id, "targets": self.targets, "refused": self.refused })
    }
}

/// What a person does about failures of a class.
pub fn advice(code: &str) -> &'static str {
    match Class::of_code(code) {
        _ if code == CANCELLED => {
            "their run was cancelled: `run retry` of that run takes them up again, a retry of all runs does not"
        }
        _ if code == Violation::CODE => {
            "a guardrail stopped them: correct the values or the guardrail, and start a new run"
        }
        Some(Class::RateLimit) => {
            "the destination was too busy: lower [limit] rate, and retry when it is quiet"
        }
        Some(Class::Timeout) => "the answers came too late: raise [apply] timeout, or retry when it is quiet",
        Some(Class::NotFound) => {
            "there is no such thing at the destination: discard them, or correct the source"
        }
        Some(Class::Authorization) => {
            "the destination refused us: renew the secret or its rights, then retry"
        }
        Some(Class::Network) => "the destination was not reached: retry when it is there",
        Some(Class::Validation) => {
            "the destination refuses the value: correct it in a new run, and discard these"
        }
        Some(Class::ServerError) => "the destination failed by itself: retry later",
        Some(Class::Unknown) | None => "look at the sample's words, then retry or discard",
    }
}

/// The same, for those that there are: a run that was rolled back is not taken up again.
fn advice_for(class: &DeadLetterClass) -> String {
    let advice = advice(&class.code);
    match class.rolled_back {
        0 => advice.to_owned(),
        all if all == class.count => {
            "their run was rolled back and cannot be retried: discard them, or start a new run".to_owned()
        }
        some => {
            format!("{advice}; {some} of them are of runs that were rolled back and can only be discarded")
        }
    }
}

/// Failed targets by class: how many, the oldest as a sample, and what to do.
pub async fn report(store: &dyn Store, filter: DeadLetterFilter) -> waypost_store::Result<Value> {
    let mut classes = store.dead_letters(filter).await?;
    classes.sort_by(|one, other| one.oldest_at.cmp(&other.oldest_at).then_with(|| one.code.cmp(&other.code)));
    let total: u64 = classes.iter().map(|class| class.count).sum();
    let cancelled = classes.iter().find(|class| class.code == CANCELLED).map_or(0, |class| class.count);
    let classes: Vec<Value> = classes.iter().map(class_object).collect();
    Ok(json!({ "total": total, "of_cancelled_runs": cancelled, "classes": classes }))
}

fn class_object(class: &DeadLetterClass) -> Value {
    json!({
        "error_code": class.code,
        "count": class.count,
        "of_rolled_back_runs": class.rolled_back,
        "oldest_at": class.oldest_at.map(iso),
        "run_id": class.sample.run_id,
        "key": class.sample.key,
        "error_msg": class.sample.message,
        "advice": advice_for(class),
    })
}

/// Retries them in their runs: each run is taken up again as by its command `retry`.
pub async fn retry(
    store: &dyn Store,
    chosen: &Chosen,
    by: &str,
    reason: Option<&str>,
) -> waypost_store::Result<Vec<Acted>> {
    let mut all = Vec::new();
    for run in runs_of(store, chosen, &RETRIED).await? {
        let (count, keys) = match whole(store, &run, chosen).await? {
            Some(count) => (count, None),
            None => {
                let keys = keys_of(store, &run, chosen).await?;
                (keys.len() as u64, Some(keys))
            }
        };
        if count == 0 {
            continue;
        }
        let write = CommandWrite {
            tenant: run.tenant.clone(),
            run_id: run.id().to_owned(),
            name: RETRY.to_owned(),
            by: by.to_owned(),
            reason: reason.map(str::to_owned),
            items: keys,
            ..CommandWrite::default()
        };
        let answer = match check_command(store, &run, RETRY, false).await {
            Ok(()) => store.command(write).await.map(|_| count),
            Err(error) => Err(error),
        };
        all.push(acted(&run, count, answer)?);
    }
    Ok(all)
}

/// Gives them up: they stay failed, and no retry takes them along.
pub async fn discard(
    store: &dyn Store,
    chosen: &Chosen,
    by: &str,
    reason: &str,
) -> waypost_store::Result<Vec<Acted>> {
    let mut all = Vec::new();
    for run in runs_of(store, chosen, &DISCARDED).await? {
        let write = DiscardTargets {
            tenant: run.tenant.clone(),
            run_id: run.id().to_owned(),
            by: by.to_owned(),
            reason: reason.to_owned(),
            keys: chosen.keys.clone(),
            code: chosen.code.clone(),
        };
        let answer = acted(&run, 0, store.discard_targets(write).await)?;
        all.extend(Some(answer).filter(|acted| acted.targets > 0 || acted.refused.is_some()));
    }
    Ok(all)
}

/// A run that refuses does not keep the others from being asked.
fn acted(run: &RunRow, targets: u64, answer: waypost_store::Result<u64>) -> waypost_store::Result<Acted> {
    let run_id = run.id().to_owned();
    match answer {
        Ok(targets) => Ok(Acted { run_id, targets, refused: None }),
        Err(error @ waypost_store::StoreError::Refused(_)) => {
            Ok(Acted { run_id, targets, refused: Some(error.to_string()) })
        }
        Err(error) => Err(error),
    }
}

/// Settled runs that may have failed targets, the oldest last.
async fn runs_of(
    store: &dyn Store,
    chosen: &Chosen,
    outcomes: &[Outcome],
) -> waypost_store::Result<Vec<RunRow>> {
    if let Some(id) = &chosen.run_id {
        return Ok(vec![store.run(chosen.tenant.clone(), id.clone()).await?]);
    }
    let mut found = Vec::new();
    let catalog = store.lifecycles().await?.of_tenant(&chosen.tenant);
    for lifecycle in catalog.iter() {
        let fails = |state: &&State| state.outcome.is_some_and(|outcome| outcomes.contains(&outcome));
        for state in lifecycle.states.iter().filter(|state| state.phase == Phase::Settled).filter(fails) {
            if failed_state(lifecycle).is_none() {
                continue;
            }
            let mut filter = Filter {
                tenant: chosen.tenant.clone(),
                lifecycle: Some(lifecycle.name.to_string()),
                status: Some(state.name.to_string()),
                limit: RUNS,
                ..Filter::default()
            };
            loop {
                let page = store.runs(filter.clone()).await?;
                found.extend(page.runs.into_iter().filter(has_targets));
                match page.next {
                    Some(next) => filter.cursor = Some(next),
                    None => break,
                }
            }
        }
    }
    Ok(found)
}

/// The state of failed targets.
fn failed_state(lifecycle: &Lifecycle) -> Option<(&Lifecycle, &State)> {
    let kind = lifecycle.items.first().filter(|kind| !kind.stops_run)?;
    kind.states.iter().find(|state| state.outcome == Some(Outcome::Failed)).map(|state| (&**kind, state))
}

/// How many there are, if all of a run's dead letters are meant: its retry takes them without being told which. A list of all their keys would be read,
/// stored in the event and compared.
async fn whole(store: &dyn Store, run: &RunRow, chosen: &Chosen) -> waypost_store::Result<Option<u64>> {
    if chosen.keys.is_some() || run.phase() != Phase::Settled {
        return Ok(None);
    }
    let filter =
        DeadLetterFilter { tenant: run.tenant.clone(), run_id: Some(run.id().to_owned()), code: None };
    let classes = store.dead_letters(filter).await?;
    let is_meant = |class: &DeadLetterClass| {
        chosen.code.as_ref().is_none_or(|code| *code == class.code)
            && (chosen.run_id.is_some() || class.code != CANCELLED)
    };
    let count = classes.iter().map(|class| class.count).sum();
    Ok(Some(count).filter(|count| *count > 0 && classes.iter().all(is_meant)))
}

/// The keys of a run's dead letters that are meant.
async fn keys_of(store: &dyn Store, run: &RunRow, chosen: &Chosen) -> waypost_store::Result<Vec<String>> {
    if let (Some(keys), None) = (&chosen.keys, &chosen.code) {
        return Ok(keys.clone());
    }
    let Some((kind, failed)) = failed_state(&run.lifecycle) else { return Ok(Vec::new()) };
    let mut filter = ItemFilter {
        run_id: run.id().to_owned(),
        kind: Some(kind.name.to_string()),
        status: Some(failed.name.to_string()),
        code: chosen.code.clone(),
        limit: PAGE,
        ..ItemFilter::default()
    };
    let mut keys = Vec::new();
    loop {
        let page = store.item_page(filter.clone()).await?;
        for item in page.items.into_iter().filter(|item| !item.discarded) {
            let code = item.failure.as_ref().map(|failure| &*failure.code);
            let is_meant = chosen.run_id.is_some() || code != Some(CANCELLED);
            if is_meant && chosen.keys.as_ref().is_none_or(|keys| keys.contains(&item.key)) {
                keys.push(item.key);
            }
        }
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => return Ok(keys),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves R8
    #[test]
    fn every_class_has_its_advice() {
        let other = advice("SOMETHING_ELSE");
        for class in Class::ALL.into_iter().filter(|class| *class != Class::Unknown) {
            assert_ne!(advice(class.name()), other, "{}", class.name());
        }
        assert_eq!(advice("UNKNOWN"), other);
    }
}

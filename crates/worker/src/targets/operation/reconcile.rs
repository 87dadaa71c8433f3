//! A reconciliation: what applied targets are outside is compared with what they were made, and failed ones that are in doubt with
//! what they were and what they were to become. It changes nothing outside; what it found is stored page by page, so that whoever takes it over goes on there.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::{Value, json};
use waypost_kernel::request::Level;
use waypost_kernel::{Failure, Phase};
use waypost_store::{AddTargets, CommandWrite, ItemRow, NewRun, NewTarget, RunRow, StoreError};

use super::applied::{Applied, Of};
use super::doubt::{Doubts, Found as Outside};
use super::later::Turn;
use super::newer::{Others, corrects, retry_key};
use super::report::{Mismatch, REPORT, counted, failure_object, in_details, list, listed};
use super::round::{Act, Asked, Met, Round};
use super::{LIFECYCLE, Operation, failed, unfit};
use crate::interpret::{Ending, Goal, Parting};
use crate::targets::{correlation_of, origin_by};

pub(super) const RECONCILE: &str = "reconcile";
const MISMATCH: &str = "automation.reconciliation.mismatch";
/// Where a fetch's answer lacks the value.
const NO_VALUE: &str = "VALIDATION";
/// Of a reconciliation that could not read every target.
const NOT_ALL_READ: &str = "NOT_ALL_READ";
/// Without a mismatch, how far it is is stored after so many targets.
const STORED_EVERY: u64 = 5_000;
/// Pages that are under way when it is given back are read again: that is not done for a short while.
const WORTH_READING_AGAIN: Duration = Duration::from_secs(300);
/// Pages under way at once.
const PAGES: usize = 8;

/// Whether a run compares another one with what is outside.
pub fn is_reconciliation(run: &RunRow) -> bool {
    super::name_of(run) == Some(RECONCILE)
}

/// What a reconciliation found, as users read it; none of what is none, or has not begun.
pub fn reconciled(run: &RunRow) -> Option<Value> {
    run.details.get(REPORT).filter(|_| is_reconciliation(run)).cloned()
}

pub(super) async fn perform(operation: &Operation<'_>) -> Parting {
    if operation.rule.fetch.is_none() {
        return failed("NO_FETCH", "the playbook has no [fetch]: nothing says how a target's value is read");
    }
    if let Some(number) = operation.row.input.get("number").and_then(Value::as_u64) {
        match operation.turn(usize::try_from(number).unwrap_or(usize::MAX)).await {
            Ok(Turn::Now) => {}
            Ok(Turn::Waits(wait)) => return Parting::GiveBack(Some(wait)),
            Ok(Turn::Over(words)) => {
                return Parting::End(Ending { reason: Some(words), ..Ending::new(Goal::Succeed) });
            }
            Err(StoreError::Unavailable(_)) => return Parting::GiveBack(None),
            Err(error) => return unfit(&error.to_string()),
        }
    } else if !operation.is_begun_by_parent() {
        let parent = operation.parent.id();
        return unfit(&format!("{parent} was not asked for this reconciliation: use its command"));
    }
    let round = match Round::new(operation, WORTH_READING_AGAIN) {
        Ok(round) => round,
        Err(problem) => return failed("BAD_INPUT", &problem),
    };
    let known = operation.row.details.get(REPORT);
    Reconciliation {
        operation,
        round,
        applied: Applied::new(
            &operation.parent,
            operation.row.input.get("targets"),
            operation.row.details.get("cursor"),
        ),
        next: operation.row.details.get("cursor").cloned().unwrap_or_default(),
        first_page: 0,
        pages: VecDeque::new(),
        total: Found {
            checked: counted(known, "totalChecked"),
            mismatches: counted(known, "mismatches"),
            superseded: counted(known, "superseded"),
            superseded_by: listed(known, "supersededBy"),
            errors: counted(known, "fetchErrors"),
            details: listed(known, "details"),
            failures: listed(known, "failures"),
            doubts: Doubts::known(known),
        },
        since_stored: 0,
        retry_id: known.and_then(|report| report["retriedBy"].as_str()).map(str::to_owned),
    }
    .run()
    .await
}

/// What is known so far.
#[derive(Debug, Default)]
struct Found {
    checked: u64,
    mismatches: u64,
    /// Those that a later run of the rule changed since, and which runs those are.
    superseded: u64,
    superseded_by: Vec<Value>,
    errors: u64,
    details: Vec<Value>,
    failures: Vec<Value>,
    doubts: Doubts,
}

/// A page of targets whose answers come in any order.
struct Page {
    left: usize,
    next: Value,
    checked: u64,
    found: Vec<(Mismatch, ItemRow)>,
    failures: Vec<Value>,
    doubts: Vec<(Outside, Value)>,
}

struct Reconciliation<'a> {
    operation: &'a Operation<'a>,
    round: Round<'a>,
    applied: Applied,
    /// Where the first of `pages` begins, and its number.
    next: Value,
    first_page: u64,
    pages: VecDeque<Page>,
    total: Found,
    since_stored: u64,
    /// The new run that changes mismatches again.
    retry_id: Option<String>,
}

impl Reconciliation<'_> {
    async fn run(mut self) -> Parting {
        loop {
            if let Err(parting) = self.load().await {
                return parting;
            }
            let is_idle = match self.round.next(None).await {
                Met::Stopped => {
                    self.round.wind_up().await;
                    if self.operation.lease.is_lost() {
                        return Parting::GiveBack(None);
                    }
                    let details = in_details(self.report());
                    return self.operation.stopped(|ending| Ending { details, ..ending });
                }
                Met::Critical(failure) => {
                    self.round.wind_up().await;
                    let details = in_details(self.report());
                    return Parting::End(Ending { details, ..Ending::failed(failure) });
                }
                Met::Done(asked, answer) => {
                    self.compare(*asked, answer.as_ref());
                    false
                }
                Met::Failed(asked, failure) => {
                    self.unread(&asked, &failure);
                    false
                }
                Met::Waits(wait) => {
                    let next = self.next.clone();
                    if let Err(parting) = self.store(next, Vec::new()).await {
                        return parting;
                    }
                    return self.round.pause(wait).await;
                }
                Met::Idle => true,
                Met::Time => false,
            };
            if let Err(parting) = self.store_pages().await {
                return parting;
            }
            if is_idle && self.applied.is_done() && self.pages.is_empty() {
                self.round.end().await;
                return self.end().await;
            }
        }
    }

    async fn load(&mut self) -> Result<(), Parting> {
        while !self.applied.is_done() && self.pages.len() < PAGES && self.round.has_room() {
            let page = match self.applied.next(&*self.operation.shared.store).await {
                Ok(page) => page,
                Err(StoreError::Unavailable(_)) => return Err(Parting::GiveBack(None)),
                Err(error) => return Err(unfit(&error.to_string())),
            };
            let number = self.first_page + self.pages.len() as u64;
            self.pages.push_back(Page {
                left: page.items.len(),
                next: page.next,
                checked: 0,
                found: Vec::new(),
                failures: Vec::new(),
                doubts: Vec::new(),
            });
            let asked = |item: ItemRow| Asked::new(item, page.of, Act::Fetch, number);
            page.items.into_iter().for_each(|item| self.round.ask(asked(item)));
        }
        Ok(())
    }

    fn page(&mut self, number: u64) -> Option<&mut Page> {
        let at = usize::try_from(number.checked_sub(self.first_page)?).ok()?;
        self.pages.get_mut(at)
    }

    fn compare(&mut self, asked: Asked, answer: Option<&Value>) {
        let rule = self.operation.rule;
        let pointer = rule.fetch.as_ref().map(|fetch| fetch.value.clone()).unwrap_or_default();
        let actual = answer.and_then(|answer| answer.pointer(&pointer)).cloned();
        let Some(actual) = actual else {
            let words = format!("the answer has nothing at {pointer:?}");
            return self.unread(&asked, &Failure::new(NO_VALUE, &words));
        };
        if asked.of == Of::Doubt {
            let found = Outside::of(&asked.item, &actual, rule.reconcile.as_ref());
            let Some(page) = self.page(asked.page) else { return };
            page.left -= 1;
            page.doubts.push((found, found.object(&asked.item, &actual)));
            return;
        }
        let after = asked.item.details.get("after").cloned().unwrap_or_default();
        let mismatch = Mismatch::of(&asked.item.key, &after, &actual, rule.reconcile.as_ref());
        let Some(page) = self.page(asked.page) else { return };
        page.left -= 1;
        page.checked += 1;
        page.found.extend(mismatch.map(|mismatch| (mismatch, asked.item)));
    }

    fn unread(&mut self, asked: &Asked, failure: &Failure) {
        let object = failure_object(&asked.item.key, failure);
        let Some(page) = self.page(asked.page) else { return };
        page.left -= 1;
        page.failures.push(object);
    }

    /// Stores what was found in pages that are done, in their order.
    async fn store_pages(&mut self) -> Result<(), Parting> {
        while self.pages.front().is_some_and(|page| page.left == 0) {
            let Some(page) = self.pages.pop_front() else { break };
            self.first_page += 1;
            let Page { next, checked, found, failures, doubts, .. } = page;
            self.next.clone_from(&next);
            if !found.is_empty() || !doubts.is_empty() {
                self.check_unmoved().await?;
            }
            let (found, may_retry) = self.without_newer(found).await?;
            let objects: Vec<Value> = found.iter().map(|(mismatch, _)| mismatch.object()).collect();
            if !found.is_empty() && may_retry {
                self.change_again(found).await?;
            }
            let total = &mut self.total;
            total.checked += checked;
            total.mismatches += objects.len() as u64;
            total.errors += failures.len() as u64;
            objects.iter().for_each(|object| list(&mut total.details, object.clone()));
            failures.into_iter().for_each(|failure| list(&mut total.failures, failure));
            let is_made = doubts.iter().any(|(found, _)| *found == Outside::Made);
            doubts.into_iter().for_each(|(found, object)| total.doubts.add(found, object));
            self.since_stored += checked;
            if is_made || !objects.is_empty() || self.since_stored >= STORED_EVERY {
                self.since_stored = 0;
                self.store(next, objects).await?;
            }
        }
        Ok(())
    }

    /// Those that no later run of the rule changed since, and whether they are changed again: by one run at a time.
    async fn without_newer(
        &mut self,
        found: Vec<(Mismatch, ItemRow)>,
    ) -> Result<(Vec<(Mismatch, ItemRow)>, bool), Parting> {
        if found.is_empty() {
            return Ok((found, false));
        }
        let Operation { parent, row, shared, rule, .. } = self.operation;
        let unread = |error: StoreError| match error {
            StoreError::Unavailable(_) => Parting::GiveBack(None),
            error => unfit(&error.to_string()),
        };
        let others = Others::of(&*shared.store, parent, row).await.map_err(unread)?;
        let mut own = Vec::with_capacity(found.len());
        for (mismatch, item) in found {
            let Some(by) = others.changed(&*shared.store, &item).await.map_err(unread)? else {
                own.push((mismatch, item));
                continue;
            };
            self.total.superseded += 1;
            if !self.total.superseded_by.iter().any(|known| known == by.id()) {
                list(&mut self.total.superseded_by, json!(by.id()));
            }
        }
        // All mismatches of this comparison, or none.
        let may_begin = self.total.mismatches == 0 && others.open.is_none();
        let retries = rule.reconcile.as_ref().is_some_and(|it| it.retries);
        Ok((own, retries && (may_begin || self.retry_id.is_some())))
    }

    /// One that came by itself does not hold its parent back: what a retry or a rollback changed meanwhile is no mismatch.
    async fn check_unmoved(&self) -> Result<(), Parting> {
        let parent = &self.operation.parent;
        match self.operation.shared.store.run(parent.tenant.clone(), parent.id().to_owned()).await {
            Ok(now) if now.run.seq == parent.run.seq => Ok(()),
            Ok(_) => Err(Parting::GiveBack(Some(self.operation.soon()))),
            Err(StoreError::Unavailable(_)) => Err(Parting::GiveBack(None)),
            Err(error) => Err(unfit(&error.to_string())),
        }
    }

    async fn store(&mut self, cursor: Value, found: Vec<Value>) -> Result<(), Parting> {
        let mut details = in_details(self.report());
        details.insert("cursor".to_owned(), cursor);
        let (level, words, payload) = if found.is_empty() {
            let words = format!("{} targets are compared", self.total.checked);
            (Level::Info, words, json!({ "checked": self.total.checked }))
        } else {
            let payload = json!({
                "eventType": MISMATCH, "run_id": self.operation.parent.id(), "mismatches": found,
            });
            (Level::Warn, MISMATCH.to_owned(), payload)
        };
        match self.round.caller().journal.tell(level, &words, payload, details).await {
            true => Ok(()),
            false => Err(Parting::GiveBack(None)),
        }
    }

    fn report(&self) -> Value {
        let mut report = json!({
            "run_id": self.operation.parent.id(),
            "totalChecked": self.total.checked,
            "mismatches": self.total.mismatches,
            "superseded": self.total.superseded,
            "supersededBy": self.total.superseded_by,
            "fetchErrors": self.total.errors,
            "details": self.total.details,
            "failures": self.total.failures,
            "retriedBy": self.retry_id,
        });
        self.total.doubts.tell(&mut report);
        report
    }

    async fn end(self) -> Parting {
        if let Some(id) = &self.retry_id
            && let Err(parting) = self.let_loose(id).await
        {
            return parting;
        }
        let errors = self.total.errors;
        let mut ending = Ending::new(if errors == 0 { Goal::Succeed } else { Goal::Partial });
        ending.failure =
            (errors > 0).then(|| Failure::new(NOT_ALL_READ, &format!("{errors} targets could not be read")));
        ending.details = in_details(self.report());
        ending.details.insert("cursor".to_owned(), Value::Null);
        Parting::End(ending)
    }

    /// Mismatches become targets of a new run, which has no series of its own: what is applied stays applied.
    async fn change_again(&mut self, found: Vec<(Mismatch, ItemRow)>) -> Result<(), Parting> {
        let (parent, row, store) = (&self.operation.parent, self.operation.row, &self.operation.shared.store);
        let by = &self.operation.shared.options.name;
        let new = NewRun {
            tenant: parent.tenant.clone(),
            lifecycle: parent.lifecycle.name.to_string(),
            queue: parent.queue.clone(),
            priority: parent.priority,
            input: (*parent.input).clone(),
            concurrency_key: parent.concurrency_key.clone(),
            metadata: origin_by(parent, "reconciliation").into_iter().chain(corrects(parent)).collect(),
            correlation_id: Some(correlation_of(parent)),
            retry_of: Some(parent.id().to_owned()),
            title: parent.title.as_ref().map(|title| format!("{title}, once more")),
            playbook: parent.playbook.clone(),
            carried: parent.carried.clone(),
            idempotency_key: Some(retry_key(row)),
            by: by.clone(),
            ..NewRun::default()
        };
        let refused = |error: StoreError| match error {
            StoreError::Unavailable(_) => Parting::GiveBack(None),
            error => failed("NOT_RETRIED", &error.to_string()),
        };
        let run = store.enqueue(vec![new]).await.and_then(|mut made| match made.pop() {
            Some(made) => made,
            None => Err(StoreError::Unavailable("the new run was not answered".to_owned())),
        });
        let run = run.map_err(refused)?.run;
        self.retry_id = Some(run.id().to_owned());
        let targets = found.iter().map(|(mismatch, item)| NewTarget {
            key: item.key.clone(),
            name: None,
            before: mismatch.actual.clone(),
            after: item.details.get("after").cloned().unwrap_or_default(),
            destination: None,
            violation: None,
            max_retries: Some(item.max_retries),
            details: item
                .details
                .iter()
                .filter(|(name, _)| *name == crate::targets::gather::ROW)
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        });
        let add = AddTargets {
            tenant: parent.tenant.clone(),
            run_id: run.id().to_owned(),
            by: by.clone(),
            at: self.total.mismatches,
            rows: found.len() as u64,
            targets: targets.collect(),
            ..AddTargets::default()
        };
        store.add_targets(add).await.map(drop).map_err(refused)
    }

    /// All of them are there: the new run is queued.
    async fn let_loose(&self, id: &str) -> Result<(), Parting> {
        let (parent, store) = (&self.operation.parent, &self.operation.shared.store);
        let by = &self.operation.shared.options.name;
        let refused = |error: StoreError| match error {
            StoreError::Unavailable(_) => Parting::GiveBack(None),
            error => failed("NOT_RETRIED", &error.to_string()),
        };
        let run = store.run(parent.tenant.clone(), id.to_owned()).await.map_err(refused)?;
        if run.phase() != Phase::Draft {
            return Ok(());
        }
        let last = AddTargets {
            tenant: parent.tenant.clone(),
            run_id: id.to_owned(),
            by: by.clone(),
            at: self.total.mismatches,
            last: true,
            ..AddTargets::default()
        };
        store.add_targets(last).await.map_err(refused)?;
        let queue = CommandWrite {
            tenant: parent.tenant.clone(),
            run_id: id.to_owned(),
            name: "queue".to_owned(),
            by: by.clone(),
            reason: Some(format!("{LIFECYCLE} {} found mismatches", self.operation.row.id())),
            // It waits for others of its rule, as one that a schedule starts.
            force: true,
            ..CommandWrite::default()
        };
        store.command(queue).await.map(drop).map_err(refused)
    }
}

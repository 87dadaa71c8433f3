//! Results, the next targets and the end of a run: one write.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;
use waypost_kernel::event::Change;
use waypost_kernel::item::{Item, Take, Tried, Tries, decide_tries};
use waypost_kernel::lifecycle::{Actor, Lifecycle};
use waypost_kernel::request::Finish;
use waypost_kernel::{Ask, Failure, Outcome, Phase, Request, Time, counted_end};

use super::{item_changes, kind_of};
use crate::engine::batch::{Decided, Entry, each};
use crate::engine::edit::{Edit, Extra, ItemChange, Stored, StoredItem};
use crate::engine::tx::{Targets, TargetsOf, Tx};
use crate::rules::intake::{check_name, cleaned_failure, cleaned_name, cleaned_output, whole_ms};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::ItemRow;
use crate::seam::targets::{End, NewTarget, TargetResult, WorkTargets, Worked, check_count};
use crate::seam::verbs::Renewed;
use crate::tokens::who;

/// The code of a run some of whose items failed, if nothing else ended it.
const ITEMS_FAILED: &str = "ITEMS_FAILED";

struct Work<'a> {
    write: &'a WorkTargets,
    by: String,
}

impl Entry for Work<'_> {
    type Answer = Worked;
    type Seen = HashMap<usize, Targets>;

    fn run_id(&self) -> &str {
        &self.write.held.run_id
    }

    fn check(&self) -> Result<()> {
        check_count("results", self.write.results.len())?;
        check_count("take", self.write.take)?;
        let mut keys = HashSet::new();
        for result in &self.write.results {
            check_name("results.key", &result.key)?;
            if !keys.insert(&result.key) {
                return Err(StoreError::invalid("results", format!("{:?} is there twice", result.key)));
            }
        }
        Ok(())
    }

    async fn look_up<T: Tx>(tx: &mut T, entries: &[(usize, &Self, &Stored)]) -> Result<Self::Seen> {
        let mut seen = HashMap::new();
        for (place, work, stored) in entries {
            let Ok(kind) = kind_of(stored) else { continue };
            let ends = !matches!(work.write.end, End::Later | End::WhenDone);
            let ask = TargetsOf {
                stored,
                kind: &kind.name,
                keys: work.write.results.iter().map(|result| result.key.as_str()).collect(),
                ready: ready_state(kind).unwrap_or_default(),
                take: if ends { 0 } else { work.write.take },
            };
            seen.insert(*place, tx.targets(&ask).await?);
        }
        Ok(seen)
    }

    fn decide<T: Tx>(
        &self,
        tx: &T,
        place: usize,
        seen: &Self::Seen,
        edit: &mut Edit,
    ) -> Result<Decided<Worked>> {
        let lifecycle = edit.row().lifecycle.clone();
        kind_of(&edit.stored)?;
        let kind = &lifecycle.items[0];
        let mut worked = Worked::at(tx.now());
        if edit.row().phase() != Phase::Held && edit.run().ended_by == Some(self.write.held.token) {
            // The write that ended it came here before.
            worked.ignored = self.write.results.iter().map(|result| result.key.clone()).collect();
            worked.tell(kind, edit);
            return Ok(Decided::Now(worked));
        }
        let none = Targets::default();
        let found = seen.get(&place).unwrap_or(&none);
        let change;
        (change, worked.ignored) = self.tries(tx, found, edit)?;
        worked.next_due = found.next_due(tx.now());
        self.add(tx, kind, found, change, edit, &mut worked);
        let counts = edit.run().tallies[0].counts(kind);
        let stops = match &self.write.end {
            End::Stop(failure) => Some(cleaned_failure(failure)),
            End::WhenDone if counts.open == 0 => {
                let message = format!("{} of {} {}s failed", counts.failed, counts.total, kind.name);
                Some(Failure::new(ITEMS_FAILED, &message))
            }
            End::Later | End::WhenDone => None,
        };
        if let Some(failure) = stops {
            self.end(tx, &failure, edit)?;
            worked.next_due = None;
        }
        worked.tell(kind, edit);
        Ok(Decided::Now(worked))
    }
}

impl Worked {
    fn at(now: Time) -> Worked {
        Worked {
            taken: Vec::new(),
            ignored: Vec::new(),
            next_due: None,
            counts: BTreeMap::new(),
            open: 0,
            ended: None,
            renewed: None,
            now,
        }
    }

    /// How the run stands afterwards.
    fn tell(&mut self, kind: &Lifecycle, edit: &Edit) {
        let tally = &edit.run().tallies[0];
        let states = kind.states.iter().zip(&tally.by_state).filter(|(_, count)| **count > 0);
        self.counts = states.map(|(state, count)| (state.name.to_string(), *count)).collect();
        self.open = tally.counts(kind).open;
        match edit.row().phase() {
            Phase::Held => self.renewed = Some(Renewed::of(edit.run(), self.now)),
            _ => self.ended = Some(edit.row().clone()),
        }
    }
}

/// From where a worker takes items of this kind.
pub(super) fn ready_state(kind: &Lifecycle) -> Option<&str> {
    let row = kind.transitions.iter().find(|row| {
        row.by.contains(Actor::Worker)
            && kind.phase(row.from) == Phase::Ready
            && kind.phase(row.to) == Phase::Held
    })?;
    Some(&kind.state(row.from).name)
}

impl Work<'_> {
    fn tries<T: Tx>(&self, tx: &T, found: &Targets, edit: &Edit) -> Result<(Change, Vec<String>)> {
        let named: HashMap<&str, &StoredItem> =
            found.named.iter().map(|it| (it.row.key.as_str(), it)).collect();
        let result = |result: &TargetResult| {
            let known = named.get(result.key.as_str()).ok_or_else(|| {
                StoreError::invalid("results", format!("there is no target {:?}", result.key))
            })?;
            Ok((known.item.clone(), result.try_no, cleaned(&result.tried)))
        };
        let results: Vec<(Item, u32, Tried)> =
            self.write.results.iter().map(result).collect::<Result<_>>()?;
        // A target that is due and reported on at once was given back before: it is taken the next time.
        let due = found.due.iter().filter(|it| !named.contains_key(it.row.key.as_str()));
        let take: Vec<Take> = due
            .map(|it| Take { item: it.item.clone(), violation: NewTarget::violation_of(&it.row.details) })
            .collect();
        let tries = Tries { results: &results, take: &take, give_up_after: self.write.give_up_after };
        let who = who(Actor::Worker, &self.by);
        let (change, late) =
            decide_tries(&edit.row().lifecycle, edit.run(), &who, self.write.held.token, tries, tx.now())?;
        Ok((change, late.iter().map(ToString::to_string).collect()))
    }

    /// Keeps what was decided to be written, and tells what is to be tried now.
    fn add<T: Tx>(
        &self,
        tx: &T,
        kind: &Lifecycle,
        found: &Targets,
        change: Change,
        edit: &mut Edit,
        worked: &mut Worked,
    ) {
        let mut outputs: HashMap<&str, &Value> = HashMap::new();
        for result in &self.write.results {
            outputs.extend(result.output.as_ref().map(|output| (result.key.as_str(), output)));
        }
        let known: HashMap<&str, &StoredItem> =
            found.named.iter().chain(&found.due).map(|it| (it.row.key.as_str(), it)).collect();
        let with_output = |key: &str, it: ItemChange| {
            let output = outputs.get(key).map(|output| {
                let mut output = cleaned_output((*output).clone());
                tx.as_stored(&mut output);
                output
            });
            ItemChange { output, ..it }
        };
        let changes = item_changes(&change, with_output);
        for it in &changes {
            let Some(was) = known.get(&*it.item.key) else { continue };
            let row = row_of(kind, was, it);
            match kind.phase(it.item.state) {
                Phase::Held => worked.taken.push(row.clone()),
                Phase::Ready => {
                    let due = it.item.not_before.unwrap_or(worked.now);
                    worked.next_due = Some(worked.next_due.map_or(due, |next| next.min(due)));
                }
                _ => {}
            }
            if tx.remembers_items() {
                edit.item_rows.push(StoredItem { rid: was.rid, item: it.item.clone(), row });
            }
        }
        edit.items.extend(changes);
        if !change.is_repeat(edit.run()) {
            edit.add(change, Extra::default());
        }
    }

    /// As what, the targets say.
    fn end<T: Tx>(&self, tx: &T, failure: &Failure, edit: &mut Edit) -> Result<()> {
        let lifecycle = edit.row().lifecycle.clone();
        let asks = who(Actor::Worker, &self.by);
        let to = counted_end(&lifecycle, edit.run(), &asks, tx.now());
        let to =
            to.ok_or_else(|| StoreError::invalid("end", "the run cannot end with its targets as they are"))?;
        let to = lifecycle.state(to);
        let failure = Some(failure).filter(|_| to.outcome != Some(Outcome::Succeeded));
        let finish =
            Finish { to: &to.name, failure, reason: None, retry_in: None, goes_on_at: None, brings: None };
        let request = Request { who: asks, ask: Ask::Finish { token: self.write.held.token, finish } };
        let end = waypost_kernel::decide(&lifecycle, edit.run(), &request, tx.now())?;
        edit.add(end, Extra::default());
        Ok(())
    }
}

/// What a worker brings is cut, never refused; waits are kept to the millisecond.
fn cleaned(tried: &Tried) -> Tried {
    let wait = |wait: &waypost_kernel::Span| whole_ms(Time::default() + *wait) - Time::default();
    match tried {
        Tried::Applied => Tried::Applied,
        Tried::Retry { failure, wait: span, answered } => {
            Tried::Retry { failure: cleaned_failure(failure), wait: wait(span), answered: *answered }
        }
        Tried::Throttled { failure, wait: span, answered } => {
            Tried::Throttled { failure: cleaned_failure(failure), wait: wait(span), answered: *answered }
        }
        Tried::Failed { failure } => Tried::Failed { failure: cleaned_failure(failure) },
        Tried::Refused { failure } => Tried::Refused { failure: cleaned_failure(failure) },
        Tried::Unsent { wait: span } => Tried::Unsent { wait: wait(span) },
    }
}

fn row_of(kind: &Lifecycle, was: &StoredItem, it: &ItemChange) -> ItemRow {
    let ItemChange { item, output, .. } = it;
    ItemRow {
        status: kind.state(item.state).name.to_string(),
        attempts: item.attempts,
        try_no: item.try_no,
        throttled: item.throttled,
        waited_ms: item.waited_ms,
        in_doubt: item.in_doubt,
        progress: item.progress,
        not_before: item.not_before,
        failure: item.failure.clone(),
        started_at: item.started_at,
        finished_at: item.finished_at,
        output: output.clone().unwrap_or_else(|| was.row.output.clone()),
        ..was.row.clone()
    }
}

pub(crate) async fn work_targets<T: Tx>(tx: &mut T, write: &WorkTargets) -> Result<Worked> {
    let work = Work { write, by: cleaned_name(&write.by) };
    let mut answers = each(tx, &[work]).await?;
    answers.pop().unwrap_or_else(|| Err(StoreError::no_run(&write.held.run_id)))
}

//! What a write of items asks for, the same for all stores: each entry looked up, checked and cleaned, and the whole
//! decided at once.

use waypost_kernel::event::Change;
use waypost_kernel::item::{Item, ItemAsk, add_items, decide_items};
use waypost_kernel::lifecycle::{Actor, Lifecycle, Outcome, Phase};
use waypost_kernel::{Failure, Time, Token, Who};

use crate::rules::intake::{check_name, cleaned_failure, cleaned_name};
use crate::rules::new_run::item_kind;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{FinishWrite, ItemWrite};

/// One entry of a write, looked up.
pub(crate) struct Wanted<'a> {
    pub write: &'a ItemWrite,
    pub kind: u8,
    /// As it is, or as it will be added.
    pub item: Item,
    /// Of a new one, the key if it has no other.
    pub name: String,
    pub is_new: bool,
    failure: Option<Failure>,
}

pub(crate) fn wanted<'a>(
    lifecycle: &Lifecycle,
    writes: &'a [ItemWrite],
    now: Time,
    mut find: impl FnMut(u8, &str) -> Result<Option<(Item, String)>>,
) -> Result<Vec<Wanted<'a>>> {
    let mut wanted: Vec<Wanted<'a>> = Vec::with_capacity(writes.len());
    for write in writes {
        check_name("key", &write.key)?;
        let (at, kind) = item_kind(&write.kind, lifecycle)?;
        if wanted.iter().any(|it| it.kind == at && it.write.key == write.key) {
            return Err(StoreError::invalid("items", format!("{:?} is there twice", write.key)));
        }
        if write.progress.is_some_and(|progress| progress > 100) {
            return Err(StoreError::invalid("progress", "allowed is 0 to 100"));
        }
        let known = find(at, &write.key)?;
        let is_new = known.is_none();
        let (item, name) = known.unwrap_or_else(|| {
            let given = write.name.as_deref().filter(|name| !name.is_empty());
            (new_item(at, kind, write, now), cleaned_name(given.unwrap_or(&write.key)))
        });
        let failure = write.failure.as_ref().map(cleaned_failure);
        wanted.push(Wanted { write, kind: at, item, name, is_new, failure });
    }
    Ok(wanted)
}

/// The states of a kind in which an item may have ended its run's course.
pub(crate) fn failed_states(kind: &Lifecycle) -> impl Iterator<Item = &str> {
    let failed = kind.states.iter().filter(|state| state.outcome == Some(Outcome::Failed));
    failed.map(|state| &*state.name)
}

/// New ones are added first and moved on from there, so that the log has both. `failed` has, of every kind of which one
/// would begin, an item that ended the run's course, if there is one.
pub(crate) fn decide(
    row: &RunRow,
    (token, by): (Token, &str),
    (wanted, failed): (&[Wanted<'_>], &[Item]),
    now: Time,
) -> Result<Change> {
    let lifecycle = &row.lifecycle;
    let by = cleaned_name(by);
    let who = Who { actor: Actor::Worker, by: &by, fresh: Token(0) };
    let token = Some(token);
    let new: Vec<Item> = wanted.iter().filter(|it| it.is_new).map(|it| it.item.clone()).collect();
    let asks: Vec<(Item, ItemAsk<'_>)> = wanted.iter().map(|it| (it.item.clone(), it.ask())).collect();
    let added = add_items(lifecycle, &row.run, &who, token, (&new, failed), now)?;
    Ok(added.then(|run| decide_items(lifecycle, run, &who, token, (&asks, failed), now))?)
}

/// The items that a finish still has to move: those of one that is sent again went with the first.
pub(crate) fn left_to_move<'w>(row: &RunRow, write: &'w FinishWrite) -> &'w [ItemWrite] {
    let repeats = row.phase() != Phase::Held && write.token.is_some() && row.run.ended_by == write.token;
    if repeats { &[] } else { &write.items }
}

impl Wanted<'_> {
    fn ask(&self) -> ItemAsk<'_> {
        ItemAsk {
            to: &self.write.status,
            command: self.write.command.as_deref(),
            progress: self.write.progress,
            failure: self.failure.as_ref(),
            retry_in: self.write.retry_in,
            answered: self.write.answered,
            again: false,
            unanswered: false,
            throttled: false,
            try_no: self.write.try_no,
            discard: false,
            name: Some(&self.name),
        }
    }
}

/// A new item starts where it is wanted if it may start there, and else where its kind does.
fn new_item(at: u8, kind: &Lifecycle, write: &ItemWrite, now: Time) -> Item {
    let asked = kind.state_named(&write.status).filter(|state| kind.initial.contains(state));
    let mut item = Item::new(at, &write.key, asked.unwrap_or(kind.initial[0]));
    item.max_retries = write.max_retries.unwrap_or(item.max_retries);
    item.reruns = write.reruns;
    item.role = write.role;
    if let Some(state) = asked {
        item.progress = write.progress.unwrap_or(0);
        item.not_before = write.retry_in.filter(|_| kind.phase(state) == Phase::Ready).map(|wait| now + wait);
    }
    item
}

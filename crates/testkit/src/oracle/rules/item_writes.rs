//! What a write of items asks for: each entry looked up, checked and cleaned, and the whole decided at once.

use waypost_kernel::event::Change;
use waypost_kernel::item::{Item, ItemAsk, add_items, decide_items};
use waypost_kernel::lifecycle::{Actor, Lifecycle, Phase};
use waypost_kernel::{Failure, Time, Token, Who};
use waypost_store::{FinishWrite, ItemWrite, Result, RunRow, StoreError};

use super::birth::item_kind;
use super::intake::{check_name, cleaned_failure, cleaned_name};

/// One entry of a write, looked up.
pub struct Wanted<'a> {
    pub write: &'a ItemWrite,
    pub kind: u8,
    /// As it is, or as it will be added.
    pub item: Item,
    pub name: String,
    pub is_new: bool,
    failure: Option<Failure>,
}

/// `find` gives an item that is there already, and its name.
pub fn wanted<'a>(
    lifecycle: &Lifecycle,
    writes: &'a [ItemWrite],
    now: Time,
    find: impl Fn(u8, &str) -> Option<(Item, String)>,
) -> Result<Vec<Wanted<'a>>> {
    let mut wanted: Vec<Wanted<'a>> = Vec::new();
    for write in writes {
        check_name("key", &write.key)?;
        let (at, kind) = item_kind(&write.kind, lifecycle)?;
        if wanted.iter().any(|it| it.kind == at && it.write.key == write.key) {
            return Err(StoreError::invalid("items", format!("{:?} is there twice", write.key)));
        }
        if write.progress.is_some_and(|progress| progress > 100) {
            return Err(StoreError::invalid("progress", "allowed is 0 to 100"));
        }
        let known = find(at, &write.key);
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

/// New ones are added first and moved on from there, so that the log has both. `failed` are the items that ended the
/// run's course.
pub fn decide(
    row: &RunRow,
    (token, by): (Token, &str),
    (wanted, failed): (&[Wanted<'_>], &[Item]),
    now: Time,
) -> Result<Change> {
    let by = cleaned_name(by);
    let who = Who { actor: Actor::Worker, by: &by, fresh: Token(0) };
    let token = Some(token);
    let new: Vec<Item> = wanted.iter().filter(|it| it.is_new).map(|it| it.item.clone()).collect();
    let asks: Vec<(Item, ItemAsk<'_>)> = wanted.iter().map(|it| (it.item.clone(), it.ask())).collect();
    let added = add_items(&row.lifecycle, &row.run, &who, token, (&new, failed), now)?;
    Ok(added.then(|run| decide_items(&row.lifecycle, run, &who, token, (&asks, failed), now))?)
}

/// The items that a finish still has to move: those of one that is sent again went with the first.
pub fn left_to_move<'w>(row: &RunRow, write: &'w FinishWrite) -> &'w [ItemWrite] {
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

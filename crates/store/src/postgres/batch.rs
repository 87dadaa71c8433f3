//! Lists of writes to runs that are there: read together, decided one by one, written together. What lost a race is read
//! and decided again; a refusal of one entry never fails its neighbours.

use std::collections::HashMap;

use super::fault::{Fault, Patience, Result};
use super::row::{self, Stored};
use super::save::{self, Pending, Saved};
use super::session::{Line, Session, Tx};
use crate::error::StoreError;
use crate::verbs::Each;

/// A run that is written this often by others meanwhile is left to whoever asks again.
const ROUNDS: usize = 24;

/// One kind of write.
pub trait Entry: Sync {
    type Answer: Send;
    /// What is looked up for all entries before any is decided on.
    type Seen: Send + Sync;

    fn run_id(&self) -> &str;

    /// Refused before anything is read.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// By the entries' places.
    fn see(tx: &Tx, entries: &[(usize, &Self, &Stored)]) -> impl Future<Output = Result<Self::Seen>> + Send
    where
        Self: Sized;

    /// Decides on the run as it is after earlier entries of the same list.
    fn decide(
        &self,
        tx: &Tx,
        place: usize,
        seen: &Self::Seen,
        pending: &mut Pending,
    ) -> Result<Decided<Self::Answer>, StoreError>
    where
        Self: Sized;
}

/// What an entry is answered once it is written.
pub enum Decided<T> {
    Now(T),
    /// From the position of the event with this seq.
    At(u64, fn(i64, u64) -> T),
}

pub async fn each<E: Entry>(session: &Session, line: Line, entries: &[E]) -> Result<Each<E::Answer>> {
    let mut answers: Vec<Option<Result<E::Answer, StoreError>>> =
        entries.iter().map(|entry| entry.check().err().map(Err)).collect();
    let mut patience = Patience::default();
    for turn in 0..ROUNDS {
        let open: Vec<usize> = (0..entries.len()).filter(|at| answers[*at].is_none()).collect();
        if open.is_empty() {
            break;
        }
        match round(session, line, entries, &open, turn > 0).await {
            Ok(found) => found.into_iter().for_each(|(at, answer)| answers[at] = Some(answer)),
            Err(fault) => {
                if let Err(error) = patience.with(fault).await {
                    if answers.iter().all(Option::is_none) {
                        return Err(Fault::Told(error));
                    }
                    open.into_iter().for_each(|at| answers[at] = Some(Err(error.clone())));
                }
            }
        }
    }
    let late = || Err(StoreError::Unavailable("the run changed each time; try again".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect())
}

type Answers<T> = Vec<(usize, Result<T, StoreError>)>;

async fn round<E: Entry>(
    session: &Session,
    line: Line,
    entries: &[E],
    open: &[usize],
    alone: bool,
) -> Result<Answers<E::Answer>> {
    let mut tx = session.begin_on(line).await?;
    let answers = in_round(&mut tx, entries, open, alone).await;
    tx.end(answers).await
}

async fn in_round<E: Entry>(
    tx: &mut Tx,
    entries: &[E],
    open: &[usize],
    alone: bool,
) -> Result<Answers<E::Answer>> {
    let mut ids: Vec<&str> = open.iter().map(|at| entries[*at].run_id()).collect();
    ids.sort_unstable();
    ids.dedup();
    let found = if alone { row::by_ids_alone(tx, &ids).await? } else { row::by_ids(tx, &ids).await? };
    let by_id: HashMap<&str, &Stored> = found.iter().map(|stored| (stored.row.id(), stored)).collect();
    let known = open.iter().filter_map(|at| Some((*at, &entries[*at], *by_id.get(entries[*at].run_id())?)));
    let seen = E::see(tx, &known.collect::<Vec<_>>()).await?;
    let mut pending: Vec<Pending> = found.into_iter().map(Pending::new).collect();
    let places: HashMap<String, usize> =
        pending.iter().enumerate().map(|(at, it)| (it.row.id().to_owned(), at)).collect();
    let mut answers = Answers::new();
    let mut decided: Vec<(usize, i64, Decided<E::Answer>)> = Vec::new();
    for at in open {
        let entry = &entries[*at];
        let Some(pending) = places.get(entry.run_id()).map(|at| &mut pending[*at]) else {
            answers.push((*at, Err(StoreError::no_run(entry.run_id()))));
            continue;
        };
        match entry.decide(tx, *at, &seen, pending) {
            Ok(answer) => decided.push((*at, pending.before.rid, answer)),
            Err(error) => answers.push((*at, Err(error))),
        }
    }
    // In the order of the list, so that the log has it.
    let mut first: HashMap<i64, usize> = HashMap::new();
    for (at, rid, _) in &decided {
        first.entry(*rid).or_insert(*at);
    }
    pending.sort_by_key(|it| first.get(&it.before.rid).copied());
    let saved = save::save(tx, &pending).await?;
    let changed: HashMap<i64, bool> = pending.iter().map(|it| (it.before.rid, it.is_changed())).collect();
    for (at, rid, answer) in decided {
        if saved.has(rid) || changed.get(&rid) == Some(&false) {
            answers.push((at, Ok(answered(&saved, rid, answer))));
        }
    }
    Ok(answers)
}

fn answered<T>(saved: &Saved, rid: i64, decided: Decided<T>) -> T {
    match decided {
        Decided::Now(answer) => answer,
        Decided::At(seq, make) => make(saved.position(rid, seq), seq),
    }
}

//! Lists of writes to runs that are there: read together, decided one by one, written together. What lost a race is read
//! and decided again; a refusal of one entry never fails its neighbours.

use std::collections::HashMap;

use waypost_kernel::run::Text;

use super::edit::{Edit, Stored};
use super::operations;
use super::tx::{Saved, Tx};
use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::Each;

/// Rounds after which an entry fails whose run others changed each time; the caller may ask again.
const ROUNDS: usize = 64;

/// One kind of write.
#[allow(async_fn_in_trait, reason = "see `Tx`")]
pub(crate) trait Entry {
    type Answer;
    /// What is looked up for all entries before any is decided on.
    type Seen;

    fn run_id(&self) -> &str;

    /// Refused before anything is read.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    async fn look_up<T: Tx>(tx: &mut T, entries: &[(usize, &Self, &Stored)]) -> Result<Self::Seen>
    where
        Self: Sized;

    /// Decides on the run as it is after earlier entries of the same list.
    fn decide<T: Tx>(
        &self,
        tx: &T,
        place: usize,
        seen: &Self::Seen,
        edit: &mut Edit,
    ) -> Result<Decided<Self::Answer>>;
}

/// What an entry is answered once it is written.
pub(crate) enum Decided<A> {
    Now(A),
    /// From the position of the event with this seq.
    At(u64, fn(i64, u64) -> A),
}

pub(crate) async fn each<T: Tx, E: Entry>(tx: &mut T, entries: &[E]) -> Result<Each<E::Answer>> {
    let mut answers: Vec<Option<Result<E::Answer>>> =
        entries.iter().map(|entry| entry.check().err().map(Err)).collect();
    for turn in 0..ROUNDS {
        let open: Vec<usize> = (0..entries.len()).filter(|at| answers[*at].is_none()).collect();
        if open.is_empty() {
            break;
        }
        tx.before_round(turn).await;
        match round(tx, entries, &open, &mut answers).await {
            Ok(()) => {}
            // Earlier rounds are written: their entries are answered although this round failed.
            Err(error) if !T::IS_ONE_WRITE && open.len() < entries.len() => {
                open.into_iter()
                    .filter(|at| answers[*at].is_none())
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|at| answers[at] = Some(Err(error.clone())));
            }
            Err(error) => return Err(error),
        }
    }
    let late = || Err(StoreError::Unavailable("the run changed each time; try again".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect())
}

async fn round<T: Tx, E: Entry>(
    tx: &mut T,
    entries: &[E],
    open: &[usize],
    answers: &mut [Option<Result<E::Answer>>],
) -> Result<()> {
    let mut ids: Vec<&str> = open.iter().map(|at| entries[*at].run_id()).collect();
    ids.sort_unstable();
    ids.dedup();
    let found = tx.runs(&ids).await?;
    let place: HashMap<Text, usize> =
        found.iter().enumerate().map(|(at, stored)| (stored.row.run.id.clone(), at)).collect();
    let known = open.iter().filter_map(|at| {
        let entry = &entries[*at];
        Some((*at, entry, &found[*place.get(entry.run_id())?]))
    });
    let seen = E::look_up(tx, &known.collect::<Vec<_>>()).await?;
    let mut edits: Vec<Edit> = found.into_iter().map(Edit::new).collect();
    // In the order of the list, so that the log has the same order.
    let mut order: Vec<usize> = Vec::with_capacity(edits.len());
    let mut is_changed = vec![false; edits.len()];
    let mut decided: Vec<(usize, usize, Decided<E::Answer>)> = Vec::with_capacity(open.len());
    for at in open {
        let entry = &entries[*at];
        let Some(run) = place.get(entry.run_id()).copied() else {
            answers[*at] = Some(Err(StoreError::no_run(entry.run_id())));
            continue;
        };
        match entry.decide(tx, *at, &seen, &mut edits[run]) {
            Ok(answer) => {
                if edits[run].is_changed() && !std::mem::replace(&mut is_changed[run], true) {
                    order.push(run);
                }
                decided.push((*at, run, answer));
            }
            Err(_) if edits[run].stored.recalled => {}
            Err(error) => answers[*at] = Some(Err(error)),
        }
    }
    let seqs: Vec<u64> = edits.iter().map(|edit| edit.before().seq).collect();
    let recalled: Vec<bool> = edits.iter().map(|edit| edit.stored.recalled).collect();
    let mut slots: Vec<Option<Edit>> = edits.into_iter().map(Some).collect();
    let changed: Vec<Edit> = order.iter().filter_map(|run| slots[*run].take()).collect();
    let saved = operations::save(tx, changed).await?;
    let saved: HashMap<usize, Saved> = order.into_iter().zip(saved).collect();
    for (at, run, answer) in decided {
        let first = match saved.get(&run) {
            Some(Saved::Lost) => continue,
            Some(Saved::Won(first)) => *first,
            None if recalled[run] => continue,
            None => 0,
        };
        answers[at] = Some(Ok(match answer {
            Decided::Now(answer) => answer,
            Decided::At(seq, make) => make(first + (seq - seqs[run]) as i64 - 1, seq),
        }));
    }
    Ok(())
}

//! Ends that are alike, in one statement.

use std::collections::{HashMap, HashSet};

use waypost_kernel::event::{Change, Effect};
use waypost_kernel::request::Finish;
use waypost_kernel::run::Text;
use waypost_kernel::{Actor, Ask, Failure, Phase, Request, Time};

use super::super::fault::Result;
use super::super::known::Known;
use super::super::session::Session;
use super::super::sql::{Columns, args, time};
use super::{MOST, has_no_items};
use crate::error::StoreError;
use crate::run::RunRow;
use crate::tokens::fresh;
use crate::verbs::FinishWrite;
use crate::{codec, intake};

/// Ends that are alike but for the run.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SameEnd {
    src: i16,
    via: Option<i16>,
    dst: i16,
    start: Option<Text>,
    command: Text,
    by: Text,
    failure: Option<Failure>,
    effect: Option<String>,
}

struct Ending {
    place: usize,
    rid: i64,
    seq: i32,
    row: Box<RunRow>,
}

pub async fn finish(
    session: &Session,
    writes: &[FinishWrite],
    answers: &mut [Option<Result<RunRow, StoreError>>],
) -> Result<()> {
    let plain = &session.0.plain;
    let Some(now) = plain.now() else { return Ok(()) };
    let known = session.known();
    let mut groups: HashMap<SameEnd, Vec<Ending>> = HashMap::new();
    for (place, (write, held)) in writes.iter().zip(plain.recall(writes)).enumerate() {
        let Some((rid, row)) = held else { continue };
        let seq = row.run.seq as i32;
        if let Some((end, row)) = ended(write, row, &known, now) {
            groups.entry(end).or_default().push(Ending { place, rid, seq, row });
        }
    }
    for (end, group) in groups {
        write_ends(session, &end, group, answers).await?;
    }
    Ok(())
}

/// What the kernel makes of a finish, if it is plain: a settled run that brings along no more than its failure.
fn ended(
    write: &FinishWrite,
    mut row: Box<RunRow>,
    known: &Known,
    now: Time,
) -> Option<(SameEnd, Box<RunRow>)> {
    let special = write.retry_in.is_some()
        || write.reason.is_some()
        || !write.metadata.is_empty()
        || !write.details.is_empty()
        || !write.items.is_empty()
        || row.concurrency_key.is_some()
        || row.parent_run_id.is_some()
        || !has_no_items(&row.run);
    if special {
        return None;
    }
    let failure = write.failure.as_ref().map(intake::cleaned_failure);
    let finish = Finish { to: &write.status, failure: failure.as_ref(), reason: None, retry_in: None };
    let by = intake::cleaned_name(&write.by);
    let ask = Ask::Finish { token: write.token?, finish };
    let request = Request { who: waypost_kernel::Who { actor: Actor::Worker, by: &by, fresh: fresh() }, ask };
    let lifecycle = row.lifecycle.clone();
    let change = waypost_kernel::decide(&lifecycle, &row.run, &request, now).ok()?;
    let code = |state| known.code(&lifecycle, state).ok();
    let (start, last) = match &change.events[..] {
        [last] => (None, last),
        [start, last] if start.effect == Effect::default() && start.note.is_none() => (Some(start), last),
        _ => return None,
    };
    let only_fails = Effect { failure: last.effect.failure.clone(), ..Effect::default() } == last.effect;
    if !only_fails || lifecycle.phase(change.after.state) != Phase::Settled {
        return None;
    }
    let end = SameEnd {
        src: code(row.run.state)?,
        via: match start {
            Some(start) => Some(code(start.to)?),
            None => None,
        },
        dst: code(last.to)?,
        start: start.map(|start| start.command.clone()),
        command: last.command.clone(),
        by: last.by.clone(),
        failure: change.after.failure.clone(),
        effect: codec::effect_json(last, &lifecycle).map(|effect| effect.to_string()),
    };
    let Change { after, .. } = change;
    row.run = after;
    Some((end, row))
}

async fn write_ends(
    session: &Session,
    end: &SameEnd,
    group: Vec<Ending>,
    answers: &mut [Option<Result<RunRow, StoreError>>],
) -> Result<()> {
    let mut group = group;
    while !group.is_empty() {
        let rest = group.split_off(group.len().min(MOST));
        let written = session
            .statement(
                "SELECT at, rids FROM waypost.settle_alike($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::json)",
                args![
                    group.iter().map(|it| it.rid).collect::<Vec<_>>(),
                    group.iter().map(|it| it.seq).collect::<Vec<_>>(),
                    end.src,
                    end.via,
                    end.dst,
                    end.start.as_deref(),
                    &*end.command,
                    &*end.by,
                    end.failure.as_ref().map(|failure| &*failure.code),
                    end.failure.as_ref().map(|failure| &*failure.message),
                    end.effect.as_deref(),
                ],
            )
            .await;
        match written {
            Ok((rows, client)) => {
                session.0.bell.ring(false, &client).await;
                let Some(row) = rows.first() else { return Ok(()) };
                let (at, rids): (Time, Vec<i64>) = (time(Columns(row).get(0)?), Columns(row).get(1)?);
                let done: HashSet<i64> = rids.into_iter().collect();
                for mut ending in group.into_iter().filter(|it| done.contains(&it.rid)) {
                    ending.row.run.finished_at = Some(at);
                    answers[ending.place] = Some(Ok(*ending.row));
                }
            }
            Err(fault) => {
                let error = fault.told();
                group.into_iter().for_each(|it| answers[it.place] = Some(Err(error.clone())));
            }
        }
        group = rest;
    }
    Ok(())
}

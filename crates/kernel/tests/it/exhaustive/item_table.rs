//! What the tables say of one item's move.

use std::cmp::Ordering;

use super::oracle_held::has_lease;
use super::scene::{FOREIGN, Scene, Wish};
use super::table::{Row, Table};
use waypost_kernel::item::{ItemAsk, Role};
use waypost_kernel::{Actor, Code, Outcome, Phase, Token};

#[derive(Clone, Copy, Debug)]
pub struct ItemScene<'t> {
    pub kind: &'t Table,
    pub state: &'static str,
    pub attempts: u32,
    pub discarded: bool,
    pub reruns: bool,
    pub role: Role,
    /// Another one of its kind failed that must not.
    pub after_failure: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemVerdict<'t> {
    /// One move of the table, or two: begun and done at once.
    Moves(Vec<&'t Row>),
    /// In its state, be it with new progress or discarded.
    Stays,
    /// About an earlier try: nothing happens.
    Late,
    Refused(Code),
}

pub const MAX_RETRIES: u32 = 3;
pub const TRY_NO: u32 = 4;
const NO: ItemVerdict<'static> = ItemVerdict::Refused(Code::InvalidTransition);

/// After a failure that ends the course, while the run is failing, and once somebody wants it to end or to wait, nothing begins but cleanups.
pub fn expect<'t>(
    item: &ItemScene<'t>,
    run: &Scene<'_>,
    actor: Actor,
    token: Option<Token>,
    ask: &ItemAsk<'_>,
) -> ItemVerdict<'t> {
    let verdict = of_its_table(item, run, actor, token, ask);
    let ItemVerdict::Moves(moves) = &verdict else { return verdict };
    let stops = !item.kind.ends_course.is_empty() && item.role != Role::Cleanup;
    let ended = item.after_failure || matches!(run.wish, Wish::Fail(_));
    let end = item.kind.state(moves[moves.len() - 1].to);
    let waited = !matches!(item.kind.phase(item.state), Phase::Held | Phase::Settled);
    let begins = end.phase == Phase::Held && item.kind.phase(item.state) != Phase::Held
        || waited && end.outcome == Some(Outcome::Succeeded);
    let wanted = match run.wish {
        Wish::Cancel | Wish::GracefulCancel => Some(Code::CancelRequested),
        Wish::Pause => Some(Code::PauseRequested),
        Wish::None | Wish::Fail(_) => None,
    };
    // X8: what people want came without the holder's knowing: what was done by then counts.
    let is_under_way = end.phase == Phase::Held;
    let failed = ended.then_some(Code::FailureRecorded);
    let code = failed.or(wanted.filter(|_| is_under_way)).filter(|_| stops && begins);
    code.map_or(verdict, ItemVerdict::Refused)
}

/// Where the run goes when the worker reports this: nothing if it does not fail by it, or was told of an end before.
pub fn fails_to(
    item: &ItemScene<'_>,
    run: &Scene<'_>,
    actor: Actor,
    verdict: &ItemVerdict<'_>,
) -> Option<&'static str> {
    let ItemVerdict::Moves(moves) = verdict else { return None };
    let ends = item.role == Role::Step && item.kind.ends_course.contains(&moves[moves.len() - 1].to);
    let open = matches!(run.wish, Wish::None | Wish::Pause);
    let begun = run.table.from(run.state).find(|row| run.table.state(run.state).fixed && row.how == "start");
    let from = [Some(run.state), begun.map(|row| row.to)];
    let fails = |row: &&Row| {
        row.who == Actor::Worker
            && row.how != "cancel"
            && run.table.state(row.to).outcome == Some(Outcome::Failed)
    };
    let to = from.into_iter().flatten().find_map(|from| Some(run.table.from(from).find(fails)?.to));
    to.filter(|_| ends && open && actor == Actor::Worker)
}

fn of_its_table<'t>(
    item: &ItemScene<'t>,
    run: &Scene<'_>,
    actor: Actor,
    token: Option<Token>,
    ask: &ItemAsk<'_>,
) -> ItemVerdict<'t> {
    let state = item.kind.state(item.state);
    if actor == Actor::Worker && !has_lease(run, token.unwrap_or(FOREIGN)) {
        return ItemVerdict::Refused(Code::LeaseLost);
    }
    if ask.progress.is_some_and(|progress| progress > 100) {
        return ItemVerdict::Refused(Code::InvalidInput);
    }
    let person = matches!(actor, Actor::Client | Actor::Operator);
    if ask.discard {
        // R8: discard is a person's, of a failed item.
        return if person && state.outcome == Some(Outcome::Failed) { ItemVerdict::Stays } else { NO };
    }
    if person {
        // R8: whatever else they want of it, they ask of its run.
        return ItemVerdict::Refused(Code::ActorNotAllowed);
    }
    // R9: an answer that comes twice does not count for the next try.
    match ask.try_no.map(|try_no| try_no.cmp(&TRY_NO)) {
        Some(Ordering::Less) => return ItemVerdict::Late,
        Some(Ordering::Greater) => return ItemVerdict::Refused(Code::InvalidInput),
        _ => {}
    }
    if !item.kind.has(ask.to) {
        return ItemVerdict::Refused(Code::InvalidInput);
    }
    if ask.to == item.state {
        let rewrites = ask.progress.is_some() && state.phase == Phase::Settled;
        return if rewrites { NO } else { ItemVerdict::Stays };
    }
    // R8: what is done is taken up again with its run, never under it.
    if run.phase() == Phase::Settled && item.kind.phase(ask.to) != Phase::Settled {
        return NO;
    }
    if let Some(row) = way(item.kind, item.state, actor, ask) {
        return if holds(item, row) { ItemVerdict::Moves(vec![row]) } else { NO };
    }
    let begin =
        item.kind.from(item.state).find(|row| row.is_for(actor) && item.kind.phase(row.to) == Phase::Held);
    match begin.and_then(|begin| Some((begin, way(item.kind, begin.to, actor, ask)?))) {
        Some((begin, row)) if holds(item, row) => ItemVerdict::Moves(vec![begin, row]),
        _ => NO,
    }
}

/// The first way there, or the one that is named.
fn way<'t>(kind: &'t Table, from: &'static str, actor: Actor, ask: &ItemAsk<'_>) -> Option<&'t Row> {
    kind.legal.iter().find(|row| {
        row.from == from
            && row.to == ask.to
            && row.is_for(actor)
            && ask.command.is_none_or(|command| row.how == command)
    })
}

fn holds(item: &ItemScene<'_>, row: &Row) -> bool {
    row.when.iter().all(|when| match *when {
        "retry left" => item.attempts < MAX_RETRIES,
        "not discarded" => !item.discarded,
        "named by a cleanup" => item.reruns,
        other => panic!("no condition {other}"),
    })
}

//! What the tables say of one item's move.

use super::oracle_held::has_lease;
use super::scene::{FOREIGN, Scene};
use super::table::{Row, Table};
use waypost_kernel::item::ItemAsk;
use waypost_kernel::{Actor, Code, Outcome, Phase, Token};

#[derive(Clone, Copy, Debug)]
pub struct ItemScene<'t> {
    pub kind: &'t Table,
    pub state: &'static str,
    pub attempts: u32,
    pub discarded: bool,
    pub reruns: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ItemVerdict<'t> {
    /// One move of the table, or two: begun and done at once.
    Moves(Vec<&'t Row>),
    /// In its state, be it with new progress or discarded.
    Stays,
    Refused(Code),
}

pub const MAX_RETRIES: u32 = 3;
const NO: ItemVerdict<'static> = ItemVerdict::Refused(Code::InvalidTransition);

pub fn expect<'t>(
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
    if ask.discard {
        // R8: discard is a person's, of a failed item.
        let person = matches!(actor, Actor::Client | Actor::Operator);
        return if person && state.outcome == Some(Outcome::Failed) { ItemVerdict::Stays } else { NO };
    }
    if !item.kind.has(ask.to) {
        return ItemVerdict::Refused(Code::InvalidInput);
    }
    if ask.to == item.state {
        let rewrites = ask.progress.is_some();
        return if rewrites && (state.phase == Phase::Settled || actor != Actor::Worker) {
            NO
        } else {
            ItemVerdict::Stays
        };
    }
    if run.phase() == Phase::Settled && item.kind.phase(ask.to) != Phase::Settled {
        // A settled run has nobody who works on its items: its own retry opens them.
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

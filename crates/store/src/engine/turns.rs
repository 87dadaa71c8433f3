//! Whose turn it is. A claim for all tenants goes round by tenant within a priority: down the list of their names, in which
//! `default` comes last, and on from whoever had the last turn. That is remembered for the claimers of this process who ask for
//! the same, and for each priority by itself: with one place for all, claimers of different queues would send each other back to
//! the same tenant again and again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::edit::Edit;
use crate::seam::verbs::{Claim, DEFAULT_TENANT};

/// Kinds of claims of which a process remembers whose turn was last. A server's clients may ask for any queues: when there are
/// more, all are forgotten, which costs each tenant a turn.
const MAX_KINDS: usize = 4_096;

/// A tenant as its place in the order of turns. The one of whoever names none has no name, and so takes no room where every
/// byte counts.
pub(crate) fn short(tenant: &str) -> &str {
    if tenant == DEFAULT_TENANT { "" } else { tenant }
}

pub(crate) fn named(short: &str) -> &str {
    if short.is_empty() { DEFAULT_TENANT } else { short }
}

#[derive(Debug, Default)]
pub(crate) struct Turns(HashMap<TurnKey, Last>);

/// What claims ask for: queues, and what they want and can execute. Two that hash alike share their turns, which harms nobody.
pub(crate) type TurnKey = u64;
/// By priority, the tenant that had the last turn, in short.
pub(crate) type Last = BTreeMap<i64, String>;

/// A claim for all tenants: whose turns were last when it began, and since.
#[derive(Debug)]
pub(crate) struct ClaimTurns {
    key: TurnKey,
    before: Last,
    now: Last,
}

impl Turns {
    /// None if the claim is for one tenant, which has all turns.
    pub fn begin(&self, claim: &Claim) -> Option<ClaimTurns> {
        if claim.tenant.is_some() {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        let can = claim.can.as_ref().map(|can| (&can.playbooks, can.carried));
        (&claim.queues, &claim.lifecycles, can).hash(&mut hasher);
        let key = hasher.finish();
        Some(ClaimTurns { key, before: self.0.get(&key).cloned().unwrap_or_default(), now: Last::new() })
    }

    pub fn keep(&mut self, turns: ClaimTurns) {
        let ClaimTurns { key, now, .. } = turns;
        if now.is_empty() {
            return;
        }
        if self.0.len() >= MAX_KINDS && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.entry(key).or_default().extend(now);
    }
}

impl ClaimTurns {
    pub fn last(&self, priority: i64) -> Option<&str> {
        self.before.get(&priority).map(String::as_str)
    }

    /// What was taken, in the order of turns: who was given something that could not be taken got another one later.
    pub fn arrange(&mut self, mut taken: Vec<Edit>) -> Vec<Edit> {
        let priority = |edit: &Edit| i64::from(edit.row().priority);
        let is_same = |pair: &[Edit]| pair[0].row().tenant == pair[1].row().tenant;
        if !taken.windows(2).all(is_same) {
            let mut rounds: BTreeMap<(i64, String), usize> = BTreeMap::new();
            let mut place = |edit: Edit| {
                let (priority, tenant) = (priority(&edit), short(&edit.row().tenant).to_owned());
                let round = rounds.entry((priority, tenant.clone())).or_default();
                *round += 1;
                let is_behind = place_after(self.last(priority), &tenant).0;
                ((Reverse(priority), *round, is_behind, Reverse(tenant)), edit)
            };
            let mut placed: Vec<_> = taken.into_iter().map(&mut place).collect();
            placed.sort_by(|(one, _), (other, _)| one.cmp(other));
            taken = placed.into_iter().map(|(_, edit)| edit).collect();
        }
        for edit in &taken {
            self.now.insert(priority(edit), short(&edit.row().tenant).to_owned());
        }
        taken
    }
}

/// Where a tenant stands if the turn before was this one's; the least comes first.
pub(crate) fn place_after<'t>(last: Option<&str>, tenant: &'t str) -> (bool, Reverse<&'t str>) {
    (last.is_some_and(|last| tenant >= last), Reverse(tenant))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_down_the_list_and_begin_again() {
        let after = |last: Option<&str>| {
            let mut tenants = ["", "a", "b", "c"];
            tenants.sort_by_key(|tenant| place_after(last, tenant));
            tenants.concat()
        };
        assert_eq!(
            [after(None), after(Some("b")), after(Some("")), after(Some("c"))],
            ["cba", "acb", "cba", "bac"]
        );
        let mut tenants = ["", "a", "b"];
        tenants.sort_by_key(|tenant| place_after(Some("b"), tenant));
        assert_eq!(tenants, ["a", "", "b"]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut turns = Turns::default();
        let turn = |key: usize, priority: i64| ClaimTurns {
            key: key as TurnKey,
            before: Last::new(),
            now: Last::from([(priority, "a".to_owned())]),
        };
        for key in 0..=MAX_KINDS {
            turns.keep(turn(key, 0));
        }
        assert_eq!(turns.0.len(), 1);
        turns.keep(turn(MAX_KINDS, 5));
        assert_eq!(turns.0[&(MAX_KINDS as TurnKey)].len(), 2, "one priority does not take another's turn");
    }
}

//! Items: every kind × state × asked state × command × actor × lease of their run.

use std::collections::{BTreeMap, BTreeSet};

use super::cases::{FAILURE, RETRY_IN, load};
use super::item_table::{ItemScene, ItemVerdict, MAX_RETRIES, expect};
use super::scene::{FOREIGN, FRESH, LeaseIs, NOW, OURS, Scene};
use super::scenes::plain;
use super::table::Table;
use waypost_kernel::item::{Item, ItemAsk, decide_items};
use waypost_kernel::{Actor, Change, Code, Lifecycle, Outcome, Phase, Refusal, Span, Time, Who};

const STARTED: Time = Time::from_ms(1_700_000_000_000);

#[derive(Default)]
struct Seen {
    combinations: u64,
    moves: BTreeSet<(&'static str, &'static str, &'static str, &'static str)>,
    doubts: BTreeMap<&'static str, u64>,
}

fn asks(kind: &Table) -> Vec<ItemAsk<'static>> {
    let nothing = ItemAsk::default();
    let mut commands: Vec<Option<&'static str>> = vec![None, Some("nonsense")];
    for row in &kind.legal {
        if !commands.contains(&Some(row.how)) {
            commands.push(Some(row.how));
        }
    }
    let mut asks = vec![ItemAsk { discard: true, ..nothing }, ItemAsk { progress: Some(101), ..nothing }];
    for to in kind.states.iter().map(|state| state.name).chain(["nonsense"]) {
        for command in commands.iter().copied() {
            let bare = ItemAsk { to, command, ..nothing };
            let failure = Some(&*FAILURE);
            let told =
                ItemAsk { progress: Some(70), failure, retry_in: Some(RETRY_IN), answered: true, ..bare };
            asks.extend([bare, told]);
        }
    }
    asks
}

fn items(kind: &Table) -> Vec<ItemScene<'_>> {
    let mut scenes = Vec::new();
    for state in kind.states.iter().map(|state| state.name) {
        for attempts in [0, 2, MAX_RETRIES] {
            for (discarded, reruns) in [(false, false), (true, false), (false, true)] {
                scenes.push(ItemScene { kind, state, attempts, discarded, reruns });
            }
        }
    }
    scenes
}

fn runs(table: &Table) -> Vec<Scene<'_>> {
    let leases = [LeaseIs::Valid, LeaseIs::AtEnd, LeaseIs::Expired, LeaseIs::Vacant, LeaseIs::Abandoned];
    let mut scenes = Vec::new();
    for state in &table.states {
        let held = state.phase == Phase::Held;
        for lease in if held { &leases[..] } else { &[LeaseIs::None] } {
            scenes.push(Scene { lease: *lease, ..plain(table, state.name) });
        }
    }
    scenes
}

/// The item, which its run counts.
fn item(scene: &ItemScene<'_>, at: usize, kind: &Lifecycle) -> Item {
    let settled = scene.kind.phase(scene.state) == Phase::Settled;
    Item {
        attempts: scene.attempts,
        try_no: 4,
        discarded: scene.discarded,
        reruns: scene.reruns,
        progress: 30,
        not_before: Some(STARTED),
        started_at: settled.then_some(STARTED),
        finished_at: settled.then_some(STARTED),
        ..Item::new(at as u8, "a", kind.state_named(scene.state).unwrap())
    }
}

fn exhaust(run_name: &str, at: usize) -> Seen {
    let (table, lifecycle) = load(run_name);
    let (kind, kind_lifecycle) = (&table.items[at], &lifecycle.items[at]);
    let mut seen = Seen::default();
    for run in runs(&table) {
        for scene in items(kind) {
            let before = item(&scene, at, kind_lifecycle);
            let mut row = run.row(&lifecycle);
            row.tallies[at].add(before.state, 1);
            row.tallies[at].staying[usize::from(before.state.0)] = u32::from(before.stays(kind_lifecycle));
            for ask in asks(kind) {
                for actor in Actor::ALL {
                    for token in [Some(OURS), Some(FOREIGN), None] {
                        let who = Who { actor, by: "w1", fresh: FRESH };
                        let asked = [(before.clone(), ask)];
                        let decided = decide_items(&lifecycle, &row, &who, token, &asked, NOW);
                        let expected = expect(&scene, &run, actor, token, &ask);
                        let case = format_args!("{run_name} {} {scene:?}\n{ask:?} {actor:?}", run.state);
                        seen.combinations += 1;
                        if let Some(doubt) = doubt(&run, actor, &ask, &expected, &decided) {
                            *seen.doubts.entry(doubt).or_default() += 1;
                            continue;
                        }
                        compare(&before, &ask, kind_lifecycle, &expected, &decided, case);
                        let Ok(change) = decided else { continue };
                        check_event(&run, actor, &row, &change, case);
                        let ItemVerdict::Moves(moves) = expected else { continue };
                        let who = |row: &super::table::Row| row.who.name();
                        seen.moves.extend(moves.iter().map(|row| (row.from, row.to, who(row), row.how)));
                    }
                }
            }
        }
    }
    seen
}

/// As in `doubts`: known differences, each about a line of SPEC.
fn doubt(
    run: &Scene<'_>,
    actor: Actor,
    ask: &ItemAsk<'_>,
    expected: &ItemVerdict<'_>,
    decided: &Result<Change, Refusal>,
) -> Option<&'static str> {
    let refused = *expected == ItemVerdict::Refused(Code::InvalidTransition);
    if !refused || decided.is_err() || actor == Actor::Worker {
        return None;
    }
    if item_moves(decided) && run.phase() == Phase::Settled {
        return Some("R8: people and the engine may reopen items of a settled run");
    }
    ask.progress.map(|_| "X5: anybody may set the progress of an item, without a lease")
}

fn item_moves(decided: &Result<Change, Refusal>) -> bool {
    let moved = decided.iter().flat_map(|change| &change.events).flat_map(|event| &event.effect.moved);
    moved.into_iter().any(|moved| moved.from != Some(moved.item.state))
}

fn compare(
    before: &Item,
    ask: &ItemAsk<'_>,
    kind: &Lifecycle,
    expected: &ItemVerdict<'_>,
    decided: &Result<Change, Refusal>,
    case: std::fmt::Arguments<'_>,
) {
    let change = match (expected, decided) {
        (ItemVerdict::Refused(code), Err(refusal)) => return assert_eq!(refusal.code, *code, "{case}"),
        (ItemVerdict::Moves(_) | ItemVerdict::Stays, Ok(change)) => change,
        _ => panic!("{case}\nexpected {expected:?}, but was {decided:?}"),
    };
    let moved = change.events.last().and_then(|event| event.effect.moved.first());
    let after = moved.map_or(before, |moved| &moved.item);
    let mut should = before.clone();
    match expected {
        ItemVerdict::Moves(moves) => {
            for row in moves {
                follow(
                    &mut should,
                    row,
                    kind,
                    if moves.last() == Some(row) { *ask } else { ItemAsk::default() },
                );
            }
        }
        _ if ask.discard => should.discarded = true,
        _ => should.progress = ask.progress.unwrap_or(before.progress),
    }
    assert_eq!(*after, should, "{case}");
}

/// R4, R5, R9, J5: what one move does to the item's numbers.
fn follow(item: &mut Item, row: &super::table::Row, kind: &Lifecycle, ask: ItemAsk<'_>) {
    let to = kind.state_named(row.to).unwrap();
    let (from, state) = (kind.phase(item.state), kind.state(to));
    item.progress = ask.progress.unwrap_or(item.progress);
    match from {
        Phase::Held => {
            item.attempts += u32::from(row.how == "retry");
            item.try_no += u32::from(ask.answered);
        }
        Phase::Settled => {
            (item.attempts, item.progress) = (0, 0);
            (item.failure, item.finished_at) = (None, None);
        }
        _ => {}
    }
    item.state = to;
    item.not_before = ask.retry_in.filter(|_| state.phase == Phase::Ready).map(|wait| NOW + wait);
    if state.phase == Phase::Held {
        item.started_at = item.started_at.or(Some(NOW));
    }
    if state.phase == Phase::Settled {
        item.finished_at = Some(NOW);
    }
    item.failure = ask.failure.cloned().or(item.failure.take());
    if state.outcome == Some(Outcome::Succeeded) {
        (item.failure, item.progress) = (None, 100);
    }
}

/// D4, X4: one event for the batch, after the start if that is what the worker's first write is.
fn check_event(
    run: &Scene<'_>,
    actor: Actor,
    before: &waypost_kernel::Run,
    change: &Change,
    case: std::fmt::Arguments<'_>,
) {
    let commands: Vec<&str> = change.events.iter().map(|event| &*event.command).collect();
    let starts = run.table.state(run.state).fixed && actor == Actor::Worker;
    let expected: &[&str] = match (commands.is_empty(), starts) {
        (true, _) => &[],
        (false, true) => &["start", "items"],
        (false, false) => &["items"],
    };
    assert_eq!(commands, expected, "{case}");
    assert_eq!(change.after.seq, before.seq + commands.len() as u64, "{case}");
    let totals = |run: &waypost_kernel::Run| -> u32 { run.tallies.iter().flat_map(|t| &t.by_state).sum() };
    assert_eq!(totals(&change.after), totals(before), "{case}");
    let wrote = actor == Actor::Worker && !commands.is_empty();
    let until = change.after.lease.as_ref().map(|lease| lease.until);
    let extended = until == Some(NOW + Span::from_seconds(60));
    assert!(extended || !wrote, "{case}: {until:?}");
}

fn prove(kind: &str, runs: &[(&str, usize)], floor: u64) {
    let table = Table::named(kind);
    let mut moves = BTreeSet::new();
    let mut combinations = 0;
    for (run, at) in runs {
        let seen = exhaust(run, *at);
        println!("{kind} of {run}: {} combinations, doubts {:?}", seen.combinations, seen.doubts);
        combinations += seen.combinations;
        moves.extend(seen.moves);
    }
    assert!(combinations > floor, "{kind}: only {combinations} combinations");
    for row in &table.legal {
        let key = (row.from, row.to, row.who.name(), row.how);
        assert!(moves.contains(&key), "{kind}: no request makes {row:?}");
    }
    for (from, to, ..) in moves {
        assert!(!table.is_forbidden(from, to), "{kind}: {from} → {to} is forbidden");
    }
}

// proves X5, J1, J5
#[test]
fn every_request_in_every_step_state_is_decided_as_the_tables_say() {
    prove("step", &[("deploy", 0), ("agent", 0), ("job", 0)], 2_700_000);
}

// proves X5, J1
#[test]
fn every_request_in_every_task_state_is_decided_as_the_tables_say() {
    prove("task", &[("job", 1)], 220_000);
}

// proves X5, R2, R4, R5, R8, R9
#[test]
fn every_request_in_every_target_state_is_decided_as_the_tables_say() {
    prove("target", &[("rule", 0)], 1_000_000);
}

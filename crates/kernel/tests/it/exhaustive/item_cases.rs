//! Items: every kind × state × asked state × command × actor × lease of their run.

use std::collections::BTreeSet;

use super::cases::{FAILURE, RETRY_IN, load};
use super::item_table::{ItemScene, ItemVerdict, MAX_RETRIES, TRY_NO, expect, fails_to};
use super::scene::{FOREIGN, FRESH, LeaseIs, NOW, OURS, Scene, Wish};
use super::scenes::plain;
use super::table::Table;
use waypost_kernel::item::{Item, ItemAsk, Role, decide_items};
use waypost_kernel::run::Want;
use waypost_kernel::{Actor, Change, Lifecycle, Outcome, Phase, Refusal, Span, StateId, Time, Who};

const STARTED: Time = Time::from_ms(1_700_000_000_000);

#[derive(Default)]
struct Seen {
    combinations: u64,
    moves: BTreeSet<(&'static str, &'static str, &'static str, &'static str)>,
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
            asks.extend([bare, ItemAsk { try_no: Some(TRY_NO), ..told }]);
            if command.is_none() {
                asks.extend([TRY_NO - 1, TRY_NO + 1].map(|try_no| ItemAsk { try_no: Some(try_no), ..told }));
            }
        }
    }
    asks
}

fn items(kind: &Table) -> Vec<ItemScene<'_>> {
    let mut scenes = Vec::new();
    for state in kind.states.iter().map(|state| state.name) {
        for attempts in [0, 2, MAX_RETRIES] {
            for (discarded, reruns) in [(false, false), (true, false), (false, true)] {
                let (role, after_failure) = (Role::Step, false);
                scenes.push(ItemScene { kind, state, attempts, discarded, reruns, role, after_failure });
            }
        }
        for (role, after_failure) in Role::ALL.into_iter().flat_map(|role| [(role, false), (role, true)]) {
            let (attempts, discarded, reruns) = (1, false, false);
            scenes.push(ItemScene { kind, state, attempts, discarded, reruns, role, after_failure });
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
        let failed = table.states.iter().find(|state| state.outcome == Some(Outcome::Failed));
        let failing = failed.map(|state| Wish::Fail(state.name));
        for wish in
            [Wish::Pause, Wish::Cancel, Wish::GracefulCancel].into_iter().chain(failing).filter(|_| held)
        {
            scenes.push(Scene { wish, ..plain(table, state.name) });
        }
    }
    scenes
}

/// The item, which its run counts.
fn item(scene: &ItemScene<'_>, at: usize, kind: &Lifecycle) -> Item {
    let settled = scene.kind.phase(scene.state) == Phase::Settled;
    Item {
        attempts: scene.attempts,
        try_no: TRY_NO,
        discarded: scene.discarded,
        reruns: scene.reruns,
        role: scene.role,
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
            let other = failed(&scene, at, kind_lifecycle);
            let mut row = run.row(&lifecycle);
            row.tallies[at].add(before.state, 1);
            row.tallies[at].staying[usize::from(before.state.0)] = u32::from(before.stays(kind_lifecycle));
            for ask in asks(kind) {
                for actor in Actor::ALL {
                    for token in [Some(OURS), Some(FOREIGN), None] {
                        let who = Who { actor, by: "w1", fresh: FRESH };
                        let asked = [(before.clone(), ask)];
                        let decided = decide_items(&lifecycle, &row, &who, token, (&asked, &other), NOW);
                        let expected = expect(&scene, &run, actor, token, &ask);
                        let case = format_args!("{run_name} {} {scene:?}\n{ask:?} {actor:?}", run.state);
                        seen.combinations += 1;
                        compare(&before, &ask, kind_lifecycle, &expected, &decided, case);
                        let Ok(change) = decided else { continue };
                        check_event(&run, actor, &row, &change, case);
                        let to = fails_to(&scene, &run, actor, &expected);
                        check_intent(&lifecycle, &row, &before, to, &change, case);
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

/// What a store would find of the others.
fn failed(scene: &ItemScene<'_>, at: usize, kind: &Lifecycle) -> Vec<Item> {
    let state = scene.kind.ends_course.first().and_then(|name| kind.state_named(name));
    let state = state.or_else(|| {
        let failed = |id: &StateId| kind.state(*id).outcome == Some(Outcome::Failed);
        kind.state_ids().find(failed)
    });
    let other = state.filter(|_| scene.after_failure).map(|state| Item::new(at as u8, "other", state));
    other.into_iter().collect()
}

/// A step that fails makes its run one that fails, in the same change; what was wanted before stands.
fn check_intent(
    lifecycle: &Lifecycle,
    before: &waypost_kernel::Run,
    item: &Item,
    to: Option<&str>,
    change: &Change,
    case: std::fmt::Arguments<'_>,
) {
    let Some(to) = to else { return assert_eq!(change.after.intent, before.intent, "{case}") };
    let intent = change.after.intent.as_ref().unwrap_or_else(|| panic!("{case}: nothing is wanted"));
    assert_eq!((intent.want, intent.to), (Want::Fail, lifecycle.state_named(to)), "{case}");
    let told = change.events.last().and_then(|event| event.effect.moved.first()?.item.failure.clone());
    let code = told.as_ref().map_or("STEP_FAILED", |failure| &*failure.code);
    let recorded = intent.failure.as_ref().unwrap();
    assert_eq!(&*recorded.code, code, "{case}");
    assert!(recorded.message.starts_with(&format!("{}: ", item.key)), "{case}: {recorded:?}");
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
        (ItemVerdict::Moves(_) | ItemVerdict::Stays | ItemVerdict::Late, Ok(change)) => change,
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
        ItemVerdict::Late => {}
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
        Phase::Settled if state.phase != Phase::Settled => {
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
        println!("{kind} of {run}: {} combinations", seen.combinations);
        combinations += seen.combinations;
        moves.extend(seen.moves);
    }
    assert!(combinations > floor, "{kind}: only {combinations} combinations");
    // What the table lets people do, they do through the run: its items follow.
    for row in table.legal.iter().filter(|row| !row.who.is_person()) {
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

//! A store in a few lines: an action becomes a request, the judge rules, and what it ruled is written at once.

use std::sync::LazyLock;

use serde_json::Value;
use waypost_kernel::decide::NewRun;
use waypost_kernel::event::{Effect, Shift};
use waypost_kernel::item::{Item, ItemAsk, Role};
use waypost_kernel::request::{Finish, Level, Note, With};
use waypost_kernel::{
    Actor, Ask, Change, Failure, Lease, Lifecycle, Outcome, Phase, Request, Run, Span, StateId, Token, Who,
    create,
};

use super::action::{Action, Answer, Owing, Report};
use super::judge::{Case, ItemCase, Judge, Ruling};
use super::setup::{Command, Ending, Setup};
use super::world::{Grant, WORKERS, World};

static NOTE: LazyLock<Note> =
    LazyLock::new(|| Note { level: Level::Info, message: "at work".into(), payload: Value::Null, key: None });
static FAILURE: LazyLock<Failure> = LazyLock::new(|| Failure::new("BROKE", "cleanup, then failed"));
const RETRY_IN: Span = Span::from_seconds(60);

/// The run as its client leaves it behind; nothing yet where the first claim makes it.
pub fn born(setup: &Setup) -> World {
    let mut world = World::empty();
    let Some(state) = setup.born else { return world };
    let kind = setup.lifecycle.items.first();
    let first = kind.and_then(|kind| kind.state_named(state)).filter(|_| setup.targets > 0);
    let items: Vec<Item> =
        first.iter().flat_map(|first| (0..setup.targets).map(|n| target(setup, n, *first))).collect();
    let new =
        NewRun { id: "run-1", state: Some(state), max_attempts: setup.max_attempts, ..NewRun::default() };
    let new = NewRun { items: &items, ..new };
    let change = create(&setup.lifecycle, &new, &who(Actor::Client, "ann", Token(0)), world.now).unwrap();
    change.events.iter().for_each(|event| world.log.push(event.clone()));
    world.run = Some(change.after);
    World { items, ..world }
}

fn target(setup: &Setup, n: u8, state: StateId) -> Item {
    let role = setup.roles.get(usize::from(n)).copied().unwrap_or_default();
    Item { max_retries: setup.max_retries, role, ..Item::new(0, &format!("t{n}"), state) }
}

fn who<'a>(actor: Actor, by: &'a str, fresh: Token) -> Who<'a> {
    Who { actor, by, fresh }
}

/// A token that nobody knows.
fn nobodys(world: &World) -> Token {
    Token(u128::MAX - u128::from(world.run.as_ref().map_or(0, |run| run.fence)))
}

/// What the judge says to a request; nothing if the action is none.
pub fn rule(setup: &Setup, judge: Judge, world: &World, action: Action) -> Option<Ruling> {
    match action {
        Action::Claim(worker) => Some(claim(setup, judge, world, worker, server_token(world))),
        Action::ClaimArrives(at) => {
            let (worker, token) = world.claims[at];
            Some(claim(setup, judge, world, worker, token))
        }
        Action::Held(grant, Report::Target(target, answer)) => {
            Some(report(setup, judge, world, grant, target, answer))
        }
        Action::Held(grant, report) => Some(held(setup, judge, world, grant, report)),
        Action::Client(Command::RequeueTarget) => Some(items(
            setup,
            judge,
            world,
            who(Actor::Client, "ann", nobodys(world)),
            None,
            (1, ItemAsk { to: setup.words.open, ..ItemAsk::default() }),
        )),
        Action::Client(command) => Some(client(setup, judge, world, command)),
        Action::Sweep => Some(engine(setup, judge, world, Ask::Sweep)),
        Action::OperationEnds => Some(engine(setup, judge, world, Ask::OperationEnded)),
        Action::RollBack(target) => Some(items(
            setup,
            judge,
            world,
            who(Actor::Engine, "operation", nobodys(world)),
            None,
            (target, ItemAsk { to: "ROLLED_BACK", ..ItemAsk::default() }),
        )),
        _ => None,
    }
}

/// The move of a run that shares its last target's transaction.
pub fn follow_up(setup: &Setup, judge: Judge, world: &World, action: Action) -> Option<Ruling> {
    let kind = setup.lifecycle.items.first()?;
    let is_left = |item: &Item| kind.state(item.state).outcome == Some(Outcome::Succeeded);
    let last = matches!(action, Action::RollBack(_)) && !world.items.iter().any(is_left);
    last.then(|| engine(setup, judge, world, Ask::Command { name: "rollback", with: With::default() }))
}

fn server_token(world: &World) -> Token {
    Token(world.grants.len() as u128 + 1)
}

fn row(world: &World) -> &Run {
    world.run.as_ref().expect("only a first claim finds no row")
}

fn judged(setup: &Setup, judge: Judge, world: &World, who: Who<'_>, ask: Ask<'_>) -> Ruling {
    let request = Request { who, ask };
    let case =
        Case { lifecycle: &setup.lifecycle, run: row(world), request, now: world.now, read: world.read };
    (judge.decide)(&case)
}

fn claim(setup: &Setup, judge: Judge, world: &World, worker: usize, token: Token) -> Ruling {
    let who = who(Actor::Worker, WORKERS[worker], token);
    if world.run.is_some() {
        return judged(setup, judge, world, who, Ask::Claim { lease: None, start: setup.starts });
    }
    let new = NewRun {
        id: "run-1",
        max_attempts: setup.max_attempts,
        reentrant: setup.reentrant,
        ..NewRun::default()
    };
    create(&setup.lifecycle, &new, &who, world.now)
}

fn held(setup: &Setup, judge: Judge, world: &World, grant: usize, report: Report) -> Ruling {
    let Grant { worker, token, .. } = world.grants[grant];
    let ask = match report {
        Report::Renew => Ask::Renew { token },
        Report::Note => Ask::Note { token, note: &NOTE },
        Report::Finish(ending) => Ask::Finish { token, finish: finish(&setup.endings[ending]) },
        Report::Release => Ask::Release { token, wait: None },
        Report::RequireCleanup(owing) => require_cleanup(setup, token, owing),
        Report::Target(..) => unreachable!("targets go by decide_items"),
    };
    judged(setup, judge, world, who(Actor::Worker, WORKERS[worker], nobodys(world)), ask)
}

fn finish(ending: &Ending) -> Finish<'_> {
    Finish {
        to: ending.to,
        failure: ending.failure.as_ref(),
        reason: Some("as told"),
        retry_in: ending.retry.then_some(RETRY_IN),
        goes_on_at: None,
        brings: None,
    }
}

fn require_cleanup(setup: &Setup, token: Token, owing: Owing) -> Ask<'_> {
    let failed = setup.endings.iter().find(|ending| ending.failure.is_some());
    let failing = failed.filter(|_| owing == Owing::CleanupThenFailure).map(|ending| (ending.to, &*FAILURE));
    Ask::RequireCleanup { token, required: owing != Owing::Nothing, failing }
}

fn client(setup: &Setup, judge: Judge, world: &World, command: Command) -> Ruling {
    let chosen = &world.items[..world.items.len().min(1)];
    let (name, chosen) = match command {
        Command::Queue => ("queue", None),
        Command::Cancel => ("cancel", None),
        Command::Pause => ("pause", None),
        Command::Resume => ("resume", None),
        Command::Retry => ("retry", None),
        Command::RetryFirst => ("retry", Some(chosen)),
        Command::Rollback => ("rollback", None),
        Command::RequeueTarget => unreachable!("a target goes by decide_items"),
    };
    let with = With { chosen, reason: Some("so be it"), force: true, ..With::default() };
    judged(setup, judge, world, who(Actor::Operator, "ann", nobodys(world)), Ask::Command { name, with })
}

fn engine(setup: &Setup, judge: Judge, world: &World, ask: Ask<'_>) -> Ruling {
    judged(setup, judge, world, who(Actor::Engine, "engine", nobodys(world)), ask)
}

fn report(setup: &Setup, judge: Judge, world: &World, grant: usize, target: usize, answer: Answer) -> Ruling {
    let Grant { worker, token, .. } = world.grants[grant];
    let answered = ItemAsk { answered: true, ..ItemAsk::default() };
    let words = setup.words;
    let ask = match answer {
        Answer::Begin => ItemAsk { to: words.begun, ..ItemAsk::default() },
        Answer::Applied => ItemAsk { to: words.done, ..answered },
        Answer::Failed => ItemAsk { to: words.failed, failure: Some(&FAILURE), ..answered },
        Answer::Again => ItemAsk { to: words.open, command: Some("retry"), ..answered },
        // The same message as before: it names the try that it was about.
        Answer::AgainLate => {
            let try_no = Some(world.items[target].try_no - 1);
            ItemAsk { to: words.open, command: Some("retry"), try_no, ..answered }
        }
    };
    let who = who(Actor::Worker, WORKERS[worker], nobodys(world));
    items(setup, judge, world, who, Some(token), (target, ask))
}

fn items(
    setup: &Setup,
    judge: Judge,
    world: &World,
    who: Who<'_>,
    token: Option<Token>,
    (at, ask): (usize, ItemAsk<'_>),
) -> Ruling {
    let asks = vec![(world.items[at].clone(), ask)];
    let failed = ended_by(setup, world).cloned().collect();
    (judge.decide_items)(&ItemCase {
        lifecycle: &setup.lifecycle,
        run: row(world),
        who,
        token,
        asks,
        failed,
        now: world.now,
    })
}

/// Items whose failure ends the run's course.
pub fn ended_by<'w>(setup: &'w Setup, world: &'w World) -> impl Iterator<Item = &'w Item> {
    let kind = setup.lifecycle.items.first();
    world.items.iter().filter(move |item| {
        let failed =
            |kind: &std::sync::Arc<Lifecycle>| kind.state(item.state).outcome == Some(Outcome::Failed);
        setup.stops && item.role == Role::Step && kind.is_some_and(failed)
    })
}

/// The world after a change was committed, ghosts included.
pub fn write(setup: &Setup, world: &World, action: Action, change: &Change) -> World {
    let mut next = world.clone();
    for event in &change.events {
        move_items(&setup.lifecycle, &mut next.items, &event.effect);
        next.log.push(event.clone());
    }
    next.run = Some(change.after.clone());
    remember_lease(setup, world, &mut next, action, change);
    remember_ends(setup, world, &mut next, action);
    next
}

fn move_items(lifecycle: &Lifecycle, items: &mut [Item], effect: &Effect) {
    for moved in &effect.moved {
        let item = items.iter_mut().find(|item| item.kind == moved.item.kind && item.key == moved.item.key);
        item.into_iter().for_each(|item| *item = moved.item.clone());
    }
    for shift in &effect.shifts {
        shift_items(&lifecycle.items[usize::from(shift.kind)], items, shift);
    }
}

fn shift_items(kind: &Lifecycle, items: &mut [Item], shift: &Shift) {
    let chosen = |item: &Item| shift.chosen.as_ref().is_none_or(|chosen| chosen.contains(&item.key));
    for item in items.iter_mut().filter(|item| item.kind == shift.kind && item.state == shift.from) {
        if chosen(item) && !item.stays(kind) {
            let again = kind.phase(shift.from) == Phase::Settled;
            item.attempts = if again { 0 } else { item.attempts };
            item.state = shift.to;
        }
    }
}

/// The worker that a claim is for.
pub fn claimer(world: &World, action: Action) -> Option<usize> {
    match action {
        Action::Claim(worker) => Some(worker),
        Action::ClaimArrives(at) => Some(world.claims[at].0),
        _ => None,
    }
}

fn remember_lease(setup: &Setup, world: &World, next: &mut World, action: Action, change: &Change) {
    let was = world.run.as_ref();
    let was_vacant = was.and_then(|run| run.lease.as_ref()).is_some_and(Lease::is_vacant);
    let granted = claimer(world, action).filter(|_| !change.events.is_empty());
    if let Some((worker, lease)) = granted.zip(change.after.lease.as_ref()) {
        let fence = change.after.fence;
        next.grants.push(Grant { worker, token: lease.token, fence, known: false, ended: None });
        let held = was.is_some_and(|run| setup.lifecycle.phase(run.state) == Phase::Held);
        next.expired_in_a_row += u32::from(held && !was_vacant);
    }
    let begins = was.is_none_or(|run| run.attempt != change.after.attempt);
    let swept = action == Action::Sweep && !change.events.is_empty();
    if begins || swept && change.after.lease.is_some() {
        // A new attempt has a budget of its own, and so has the cleanup of a run that was given up.
        next.expired_in_a_row = 0;
    }
    next.abandoned |= was_vacant && swept;
}

fn remember_ends(setup: &Setup, world: &World, next: &mut World, action: Action) {
    let phase = |run: &Run| setup.lifecycle.phase(run.state);
    let Some(after) = next.run.clone() else { return };
    let was_settled = world.run.as_ref().is_some_and(|run| phase(run) == Phase::Settled);
    let was_held = world.run.as_ref().is_some_and(|run| phase(run) == Phase::Held);
    let settled = phase(&after) == Phase::Settled;
    let left = !was_held && world.run.as_ref().is_some_and(|run| run.state != after.state);
    let state = after.state;
    if action == Action::Client(Command::Cancel) && !was_settled {
        next.cancelled = true;
    }
    if left {
        next.grants.iter_mut().for_each(|grant| grant.ended = None);
    }
    // A person's new start and a rollback end what was cancelled; a worker's retry does not.
    if left && was_settled && claimer(world, action).is_none() {
        next.cancelled = false;
    }
    if settled && (!was_settled || left) {
        next.successes += u32::from(setup.lifecycle.state(state).outcome == Some(Outcome::Succeeded));
    }
    if let Action::Held(grant, Report::Finish(_)) = action
        && was_held
        && phase(&after) != Phase::Held
    {
        next.grants[grant].ended = Some(state);
    }
}

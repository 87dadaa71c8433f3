//! What the seeds and SPEC say must come of a request. Shares no code with `decide`: it looks into the
//! hand-written tables only.

use super::oracle_held::{carry_out, hold};
use super::scene::{Instant, LeaseIs, MAX_ATTEMPTS, OURS, Scene, Wish};
use super::table::Row;
use super::verdict::{Stay, Verdict};
use waypost_kernel::request::With;
use waypost_kernel::{Actor, Ask, Code, Outcome, Phase, Token};

/// What the asker sends along.
#[derive(Clone, Copy, Debug, Default)]
pub struct Supplied {
    pub reason: bool,
    pub resolved: bool,
    pub forced: bool,
}

/// SPEC X5: at most five expired leases are taken over.
pub const MAX_TAKE_OVERS: u32 = 5;

pub fn expect(scene: &Scene<'_>, ask: &Ask<'_>, actor: Actor, fresh: Token) -> Verdict<'static> {
    let asker = match ask {
        Ask::Command { .. } => actor != Actor::Worker,
        Ask::Sweep | Ask::QueuePaused | Ask::OperationEnded => actor == Actor::Engine,
        _ => actor == Actor::Worker,
    };
    if !asker {
        return Verdict::Refused(Code::ActorNotAllowed);
    }
    match ask {
        Ask::Claim { start: false, .. } => claim(scene, fresh),
        Ask::Claim { start: true, .. } => begun(scene, claim(scene, fresh)),
        Ask::Command { name, with } => command(scene, actor, name, with),
        Ask::Sweep => sweep(scene),
        // X9: nobody can take it, so that no time passes.
        Ask::QueuePaused if matches!(scene.lease, LeaseIs::Vacant | LeaseIs::Abandoned) => {
            Verdict::Stays(Stay::Heartbeat)
        }
        Ask::QueuePaused => Verdict::Stays(Stay::Nothing),
        Ask::OperationEnded if scene.operating => Verdict::Stays(Stay::OperationOver),
        Ask::OperationEnded => Verdict::Stays(Stay::Nothing),
        _ => hold(scene, ask),
    }
}

fn claim(scene: &Scene<'_>, fresh: Token) -> Verdict<'static> {
    match scene.phase() {
        Phase::Held => take(scene, fresh),
        Phase::Ready | Phase::Settled => {
            let how = if scene.phase() == Phase::Ready { "claim" } else { "retry" };
            let row = scene.table.from(scene.state).find(|row| row.how == how && row.who == Actor::Worker);
            match row {
                None => Verdict::Refused(Code::InvalidTransition),
                Some(_) if how == "retry" && scene.available == Instant::Never => {
                    Verdict::Refused(Code::InvalidTransition)
                }
                Some(_) if !scene.available.is_here() || outlived(scene) => Verdict::Refused(Code::NotDue),
                Some(row) => make(scene, row, Supplied::default()),
            }
        }
        Phase::Draft | Phase::Parked => Verdict::Refused(Code::InvalidTransition),
    }
}

/// D4: a worker that claims to work has begun, wherever it finds a run that nobody has begun.
fn begun(scene: &Scene<'_>, taken: Verdict<'static>) -> Verdict<'static> {
    let (mut moves, state) = match &taken {
        Verdict::Moves(moves) => (moves.clone(), moves.last().unwrap().1),
        Verdict::Stays(Stay::TakenOver) => (Vec::new(), scene.state),
        _ => return taken,
    };
    let start = scene.table.from(state).find(|row| scene.table.state(state).fixed && row.how == "start");
    let Some(row) = start else { return taken };
    moves.push((row.how, row.to));
    Verdict::Moves(moves)
}

/// Its time to live is over, and the sweeper has yet to come by.
fn outlived(scene: &Scene<'_>) -> bool {
    scene.expires.is_here() && scene.table.from(scene.state).any(|row| row.how == "expire")
}

/// A held run: a repeat, a take-over, a steal, or not yours.
fn take(scene: &Scene<'_>, fresh: Token) -> Verdict<'static> {
    if scene.has_holder() && fresh == OURS {
        return Verdict::Stays(Stay::Nothing);
    }
    match scene.lease {
        LeaseIs::Vacant => Verdict::Stays(Stay::TakenOver),
        // U6: not before its time.
        LeaseIs::Waiting => Verdict::Refused(Code::NotDue),
        LeaseIs::Expired => next_holder(scene).unwrap_or(Verdict::Refused(Code::LeaseHeld)),
        _ => Verdict::Refused(Code::LeaseHeld),
    }
}

/// What the next worker may make of an expired lease; nothing: it is the engine's.
fn next_holder(scene: &Scene<'_>) -> Option<Verdict<'static>> {
    let state = scene.table.state(scene.state);
    let budget = scene.take_overs < MAX_TAKE_OVERS;
    let taken_over = Some(Verdict::Stays(Stay::TakenOver));
    match (scene.wish, scene.required) {
        (Wish::None, _) if state.stale == "take-over" && budget => taken_over,
        // U12: a lost worker costs an attempt, while there are some left.
        (Wish::None, _) if state.stale == "lose" => {
            let left = if scene.attempt_left { MAX_ATTEMPTS - 1 } else { 0 };
            (scene.take_overs < left).then_some(Verdict::Stays(Stay::TakenOver))
        }
        (Wish::None, _) if state.stale == "steal" => {
            let row = scene.table.from(scene.state).find(|row| row.how == "steal").unwrap();
            holds(scene, row, Supplied::default()).then(|| Verdict::moves(row))
        }
        // X8: another worker takes over for the cleanup alone.
        (Wish::None, _) | (_, false) => None,
        (_, true) if budget => taken_over,
        (_, true) => None,
    }
}

fn sweep(scene: &Scene<'_>) -> Verdict<'static> {
    let nothing = Verdict::Stays(Stay::Nothing);
    match scene.phase() {
        Phase::Draft | Phase::Ready => {
            let row = scene.table.from(scene.state).find(|row| row.how == "expire");
            match row {
                Some(row) if scene.expires.is_here() => Verdict::moves(row),
                _ => nothing,
            }
        }
        Phase::Held => match scene.lease {
            LeaseIs::Expired | LeaseIs::Abandoned => lease_over(scene),
            _ => nothing,
        },
        // U4: nobody has answered in time, so the run goes on as if somebody insisted.
        Phase::Parked if scene.expires.is_here() => {
            let given = Supplied { forced: true, ..Supplied::default() };
            let onward = |row: &&Row| scene.table.phase(row.to) == Phase::Ready && holds(scene, row, given);
            scene.table.from(scene.state).find(onward).map_or(nothing, Verdict::moves)
        }
        Phase::Parked | Phase::Settled => nothing,
    }
}

fn lease_over(scene: &Scene<'_>) -> Verdict<'static> {
    if scene.lease == LeaseIs::Expired && next_holder(scene).is_some() {
        return Verdict::Stays(Stay::Nothing);
    }
    match (scene.wish, scene.required) {
        (Wish::None | Wish::Pause, true) => Verdict::Stays(Stay::CleanupFirst),
        (Wish::None, false) => {
            let how = if scene.table.state(scene.state).stale == "expire" { "expire" } else { "lose" };
            first_that_holds(scene, |row| row.how == how).unwrap()
        }
        // X8: a dead holder and a cancel end as cancelled, never as WORKER_LOST.
        (wish, _) => carry_out(scene, wish).unwrap(),
    }
}

fn command(scene: &Scene<'_>, actor: Actor, name: &str, with: &With<'_>) -> Verdict<'static> {
    let person = actor != Actor::Engine;
    if let Some((_, states)) = scene.table.operations.iter().find(|(how, _)| person && *how == name) {
        let offered = states.contains(&scene.state) && !scene.operating;
        return if offered {
            Verdict::Stays(Stay::OperationBegun)
        } else {
            Verdict::Refused(Code::InvalidTransition)
        };
    }
    let mut rows = scene.table.from(scene.state).filter(|row| row.how == name).peekable();
    if rows.peek().is_none() {
        let repeats = led_here(scene, actor, name);
        return if repeats {
            Verdict::Stays(Stay::Nothing)
        } else {
            Verdict::Refused(Code::InvalidTransition)
        };
    }
    let row = rows.find(|row| row.is_for(actor));
    match (row, scene.is_held()) {
        (_, true) if !person => Verdict::Refused(Code::LeaseHeld),
        (None, _) => Verdict::Refused(Code::ActorNotAllowed),
        (Some(_), true) => ask_holder(scene, name, with),
        (Some(row), false) => {
            let given = Supplied { reason: has_reason(with), resolved: with.resolved, forced: with.force };
            let about = Scene { none_chosen: with.chosen.is_some(), ..*scene };
            let moved = make(&about, row, given);
            let early = name == "expire" && !scene.expires.is_here();
            if early { Verdict::Refused(Code::NotDue) } else { moved }
        }
    }
}

/// X3: a repeat of what led here is answered as the first time, to those who may ask it.
fn led_here(scene: &Scene<'_>, actor: Actor, name: &str) -> bool {
    let led = |row: &Row| row.how == name && row.to == scene.state && row.is_for(actor);
    scene.last == name && scene.table.legal.iter().any(led)
}

/// X8: a stored intent, honoured at once where nobody holds the run or nothing was begun.
fn ask_holder(scene: &Scene<'_>, name: &str, with: &With<'_>) -> Verdict<'static> {
    let cancel = name == "cancel";
    match scene.wish {
        Wish::Cancel if cancel => return Verdict::Stays(Stay::Nothing),
        Wish::GracefulCancel if cancel && with.graceful => return Verdict::Stays(Stay::Nothing),
        Wish::Pause if !cancel => return Verdict::Stays(Stay::Nothing),
        Wish::Cancel | Wish::GracefulCancel if !cancel => return Verdict::Refused(Code::CancelRequested),
        Wish::Fail(_) if !cancel => return Verdict::Refused(Code::FailureRecorded),
        _ => {}
    }
    if !cancel && !has_reason(with) {
        return Verdict::Refused(Code::InvalidTransition);
    }
    let nobody = !matches!(scene.lease, LeaseIs::Valid | LeaseIs::AtEnd);
    let not_begun = scene.table.state(scene.state).fixed;
    if (nobody || not_begun) && !scene.required {
        return carry_out(scene, if cancel { Wish::Cancel } else { Wish::Pause }).unwrap();
    }
    Verdict::Stays(Stay::Wanted)
}

pub fn has_reason(with: &With<'_>) -> bool {
    with.reason.is_some_and(|reason| !reason.trim().is_empty())
}

pub fn make(scene: &Scene<'_>, row: &Row, given: Supplied) -> Verdict<'static> {
    if holds(scene, row, given) { Verdict::moves(row) } else { Verdict::Refused(Code::InvalidTransition) }
}

pub fn first_that_holds(scene: &Scene<'_>, fits: impl Fn(&Row) -> bool) -> Option<Verdict<'static>> {
    let given = Supplied { reason: true, ..Supplied::default() };
    let row = scene.table.from(scene.state).find(|row| fits(row) && holds(scene, row, given));
    row.map(Verdict::moves)
}

/// What an item's run does, in the words of the item tables.
pub fn what_happens(scene: &Scene<'_>, row: &Row) -> &'static str {
    match row.how {
        "steal" => "is lost",
        "pause" => "pauses",
        "resume" => "resumes",
        "queue" => "is queued",
        "retry" => "is retried",
        _ if scene.table.phase(row.to) == Phase::Settled && scene.phase() != Phase::Settled => "ends",
        _ => "",
    }
}

pub fn holds(scene: &Scene<'_>, row: &Row, given: Supplied) -> bool {
    row.when.iter().all(|when| {
        let counts = || Counted::of(scene, what_happens(scene, row));
        match *when {
            "a reason" => given.reason,
            "resolved or forced" => given.resolved || given.forced || scene.resolved,
            "attempt left" => scene.attempt_left,
            "may re-enter" => scene.reentrant,
            "no operation" => !scene.operating,
            "has items" => counts().total > 0,
            "something to retry" => counts().open > 0,
            "all ok" => counts().ok > 0 && counts().ok + counts().reverted == counts().total,
            "some failed" => counts().open == 0 && counts().ok > 0 && counts().failed > 0,
            "none ok" => counts().open == 0 && counts().ok == 0,
            other => panic!("no condition {other}"),
        }
    })
}

/// R3 counts all targets of the run.
#[derive(Default)]
struct Counted {
    total: u32,
    open: u32,
    ok: u32,
    failed: u32,
    reverted: u32,
}

impl Counted {
    fn of(scene: &Scene<'_>, when: &str) -> Counted {
        let mut counted = Counted::default();
        let (Some(kind), Some(counts)) =
            (scene.table.items.first(), scene.items_after(when).into_iter().next())
        else {
            return counted;
        };
        for (state, count) in counts {
            let state = kind.state(state);
            counted.total += count;
            match (state.phase, state.outcome) {
                (Phase::Ready | Phase::Held | Phase::Parked, _) => counted.open += count,
                (_, Some(Outcome::Succeeded)) => counted.ok += count,
                (_, Some(Outcome::Failed)) => counted.failed += count,
                (_, Some(Outcome::Reverted)) => counted.reverted += count,
                _ => {}
            }
        }
        counted
    }
}

/// X3: the commands of clients and operators that would be taken now.
pub fn allowed(scene: &Scene<'_>) -> Vec<&'static str> {
    let mut allowed: Vec<&str> = Vec::new();
    let given = Supplied { reason: true, resolved: true, forced: false };
    for row in scene.table.from(scene.state).filter(|row| row.is_for(Actor::Operator)) {
        let open = match (scene.is_held(), scene.wish) {
            (false, _) => holds(scene, row, given),
            (true, Wish::None) => true,
            (true, Wish::Pause | Wish::Fail(_)) => row.how == "cancel",
            (true, Wish::Cancel | Wish::GracefulCancel) => false,
        };
        if open && !allowed.contains(&row.how) {
            allowed.push(row.how);
        }
    }
    let operations = scene.table.operations.iter();
    let offered = operations.filter(|(_, states)| states.contains(&scene.state) && !scene.operating);
    allowed.extend(offered.map(|(how, _)| *how));
    allowed
}

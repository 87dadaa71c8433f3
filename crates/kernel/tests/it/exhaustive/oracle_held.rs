//! What the holder of a run may do with it, by SPEC X3, X5, X8, D4 and D8.

use super::oracle::{Supplied, first_that_holds, holds, make};
use super::scene::{OURS, Scene, Wish};
use super::table::Row;
use super::verdict::{Stay, Verdict};
use waypost_kernel::request::Finish;
use waypost_kernel::{Actor, Ask, Code, Outcome, Phase, Token};

pub fn hold(scene: &Scene<'_>, ask: &Ask<'_>) -> Verdict<'static> {
    let lost = Verdict::Refused(Code::LeaseLost);
    match ask {
        Ask::Finish { token, finish } => self::finish(scene, *token, finish),
        Ask::Renew { token }
        | Ask::Note { token, .. }
        | Ask::Release { token, .. }
        | Ask::RequireCleanup { token, .. }
            if !has_lease(scene, *token) =>
        {
            lost
        }
        Ask::Renew { .. } => Verdict::Stays(heartbeat(scene)),
        // D4: the worker's first own event starts the run.
        Ask::Note { .. } => start(scene).map_or(Verdict::Stays(Stay::Noted), Verdict::moves),
        // U6: the cleanups of a run that has failed are the next worker's.
        Ask::Release { .. } if matches!(scene.wish, Wish::Fail(_)) && scene.has_open_steps() => {
            Verdict::Stays(Stay::Released)
        }
        Ask::Release { .. } if scene.wish != Wish::None && !scene.required => {
            carry_out(scene, scene.wish).unwrap()
        }
        Ask::Release { .. } => Verdict::Stays(Stay::Released),
        Ask::RequireCleanup { failing: Some((to, _)), .. } if !scene.table.has(to) => {
            Verdict::Refused(Code::InvalidInput)
        }
        Ask::RequireCleanup { failing: Some((to, _)), .. } if !may_fail_to(scene, to) => {
            Verdict::Refused(Code::InvalidTransition)
        }
        // X3: what it requires and where it will end are as they were, so nothing happened but a sign of life.
        Ask::RequireCleanup { required, failing, .. } => {
            let settled = matches!(scene.wish, Wish::Cancel | Wish::GracefulCancel | Wish::Fail(_));
            let new = *required != scene.required || failing.is_some() && !settled;
            Verdict::Stays(if new { Stay::Owes } else { heartbeat(scene) })
        }
        Ask::Claim { .. } | Ask::Command { .. } | Ask::Sweep | Ask::QueuePaused | Ask::OperationEnded => {
            unreachable!()
        }
    }
}

/// D7: heartbeats do not extend the five minutes.
fn heartbeat(scene: &Scene<'_>) -> Stay {
    if scene.table.state(scene.state).fixed { Stay::Nothing } else { Stay::Heartbeat }
}

/// A lease that ran out counts until somebody else has it.
pub fn has_lease(scene: &Scene<'_>, token: Token) -> bool {
    scene.has_holder() && token == OURS
}

fn start<'t>(scene: &Scene<'t>) -> Option<&'t Row> {
    let state = scene.state;
    scene.table.from(state).find(|row| row.how == "start")
}

/// A failure leads to a settled state, and not to success.
fn may_fail_to(scene: &Scene<'_>, to: &str) -> bool {
    let state = scene.table.state(to);
    state.phase == Phase::Settled
        && state.outcome != Some(Outcome::Succeeded)
        && scene.table.from(scene.state).any(|row| row.to == to && row.who == Actor::Worker)
}

fn finish(scene: &Scene<'_>, token: Token, finish: &Finish<'_>) -> Verdict<'static> {
    let table = scene.table;
    if !table.has(finish.to) {
        return Verdict::Refused(Code::InvalidInput);
    }
    if !scene.is_held() && token == OURS {
        // X3: the same finish again answers as the first did, a different one is refused.
        let same = finish.to == scene.state;
        return if same { Verdict::Stays(Stay::Nothing) } else { Verdict::Refused(Code::InvalidTransition) };
    }
    if !has_lease(scene, token) {
        return Verdict::Refused(Code::LeaseLost);
    }
    let leaves = table.phase(finish.to) != Phase::Held;
    if leaves && scene.required {
        return Verdict::Refused(Code::CleanupOwed);
    }
    if leaves && let Some(code) = comes_too_late(scene, finish.to) {
        return Verdict::Refused(code);
    }
    let reason = finish.reason.is_some() || scene.wish == Wish::Pause;
    let given = Supplied { reason, ..Supplied::default() };
    if let Some(row) = way(scene, scene.state, finish.to) {
        return make(scene, row, given);
    }
    // D8: finishing from `claimed` is start + finish.
    match start(scene).and_then(|start| Some((start, way(scene, start.to, finish.to)?))) {
        Some((start, row)) => Verdict::Moves(vec![(start.how, start.to), (row.how, row.to)]),
        None => Verdict::Refused(Code::InvalidTransition),
    }
}

/// X8: a finish that loses the race to a cancel is refused; so is one against a recorded failure.
fn comes_too_late(scene: &Scene<'_>, to: &str) -> Option<Code> {
    let start_to = start(scene).map(|row| row.to);
    let cancels = |row: &&Row| row.how == "cancel" && row.to == to && row.who == Actor::Worker;
    let may_cancel = scene.table.from(scene.state).any(|row| cancels(&row))
        || start_to.is_some_and(|from| scene.table.from(from).any(|row| cancels(&row)));
    match scene.wish {
        Wish::Cancel | Wish::GracefulCancel if !may_cancel => Some(Code::CancelRequested),
        Wish::Fail(recorded) if recorded != to && is_still_so(scene, recorded) => Some(Code::FailureRecorded),
        _ => None,
    }
}

/// R1: after a critical error the rest of the targets fail, and the counts say what a rule's run was: be it
/// something else than what was recorded.
fn is_still_so(scene: &Scene<'_>, recorded: &str) -> bool {
    let leads = |row: &Row| row.to == recorded && row.who == Actor::Worker;
    scene.table.from(scene.state).any(|row| leads(row) && holds(scene, row, Supplied::default()))
}

/// The worker's way to a state: by cancel if a cancel was asked for.
fn way<'t>(scene: &Scene<'t>, from: &'static str, to: &str) -> Option<&'t Row> {
    let cancelled =
        matches!(scene.wish, Wish::Cancel | Wish::GracefulCancel) && scene.table.phase(to) != Phase::Held;
    let mut rows = scene.table.from(from).filter(|row| row.to == to && row.who == Actor::Worker);
    // A steal is a claim of somebody else's run, never a holder's move.
    rows.find(|row| row.how != "steal" && (!cancelled || row.how == "cancel"))
}

/// The move that a stored intent stands for.
pub fn carry_out(scene: &Scene<'_>, wish: Wish) -> Option<Verdict<'static>> {
    match wish {
        Wish::None => None,
        Wish::Cancel | Wish::GracefulCancel => first_that_holds(scene, |row| row.how == "cancel"),
        Wish::Pause => first_that_holds(scene, |row| row.how == "pause"),
        Wish::Fail(to) => {
            let recorded = first_that_holds(scene, |row| row.to == to);
            let settles = |row: &Row| scene.table.phase(row.to) == Phase::Settled;
            recorded.or_else(|| first_that_holds(scene, |row| row.who == Actor::Worker && settles(row)))
        }
    }
}

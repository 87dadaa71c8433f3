//! X5: leases fence. Who holds a run, what it costs to take one, and whose writes count.

use waypost_kernel::event::Hold;
use waypost_kernel::lifecycle::{OnStale, Phase};
use waypost_kernel::*;

use super::ask::{Asked, note};
use super::world::{Taken, World};
use super::{ensure, holds_always};

/// Of leases that ran out, before the engine ends the run or its cleanup is given up.
const MAX_CLEANUP_TAKE_OVERS: u32 = 5;

pub fn check(world: &World, taken: &Taken) -> Result<(), String> {
    if taken.is_birth {
        return Ok(());
    }
    fence(world, taken)?;
    counts(world, taken)?;
    tokens(world, taken)?;
    beginning(world, taken)?;
    lengths(world, taken)
}

/// A claim that begins is a claim and then the claimer's first own event at the same instant, but for that event's words.
fn beginning(world: &World, taken: &Taken) -> Result<(), String> {
    let Asked::Run(Request { who, ask: Ask::Claim { lease, start: true } }) = &taken.asked else {
        return Ok(());
    };
    let at = |run: &Run, ask| decide(world.lifecycle, run, &Request { who: *who, ask }, world.now);
    let mut apart = at(&taken.before, Ask::Claim { lease: *lease, start: false });
    if let Some(change) = apart.as_mut().ok().filter(|change| !change.events.is_empty()) {
        let noted = at(&change.after, Ask::Note { token: who.fresh, note: note() });
        let noted = noted.map_err(|refusal| format!("no event after its claim: {refusal}"))?;
        if noted.events.iter().any(|event| event.from != Some(event.to)) {
            change.events.extend(noted.events.into_iter().map(|event| Event { note: None, ..event }));
            change.after = noted.after;
        }
    }
    ensure!(taken.answer == apart, "apart it is\n{apart:?}\ntogether\n{:?}", taken.answer);
    Ok(())
}

/// Rises by one with each new holder and never otherwise.
fn fence(world: &World, taken: &Taken) -> Result<(), String> {
    let (before, after) = (&taken.before, &world.run);
    let grants = taken.events().iter().filter(|event| event.effect.hold == Hold::Grant).count();
    ensure!(after.fence == before.fence + grants as u64, "fence {} -> {}", before.fence, after.fence);
    let holder = |run: &Run| run.lease.as_ref().filter(|lease| !lease.is_vacant()).map(|lease| lease.token);
    if let Some(token) = holder(after) {
        let is_new = holder(before) != Some(token);
        ensure!(is_new == (grants == 1), "a new holder is a new fence: {before:?}\n{after:?}");
        let claims = matches!(&taken.asked, Asked::Run(Request { ask: Ask::Claim { .. }, .. }));
        ensure!(!is_new || claims, "only a claim makes a holder: {:?}", taken.asked);
    }
    // The one who gave it back knows the token of before, and nobody that of the vacancy.
    let vacant = after.lease.as_ref().filter(|lease| lease.is_vacant());
    let known = vacant.is_some_and(|lease| world.tokens.iter().flatten().any(|token| *token == lease.token));
    ensure!(!known, "a vacant lease whose token somebody knows: {after:?}");
    Ok(())
}

/// Attempts count claims, retries and steals; take-overs count leases that ran out.
fn counts(world: &World, taken: &Taken) -> Result<(), String> {
    let lifecycle = world.lifecycle;
    let (before, after) = (&taken.before, &world.run);
    let begins = |event: &&Event| {
        let from = event.from.map(|from| lifecycle.phase(from));
        let into = lifecycle.phase(event.to) == Phase::Held && from != Some(Phase::Held);
        into || &*event.command == "steal"
    };
    let begun = taken.events().iter().filter(begins).count() as u32;
    ensure!(after.attempt == before.attempt + begun, "attempt {} -> {}", before.attempt, after.attempt);
    let expired = taken.events().iter().filter(|event| event.effect.expired).count() as u32;
    let expected = if begun > 0 { 0 } else { before.take_overs + expired };
    let anew = after.take_overs == 0 && after.intent.is_some();
    ensure!(after.take_overs == expected || anew, "take-overs {} -> {}", before.take_overs, after.take_overs);
    let state = lifecycle.state(after.state);
    let loses = state.on_stale == Some(OnStale::Lose);
    let attempts_left = if loses { after.max_attempts.saturating_sub(after.attempt) } else { 0 };
    let of_cleanup = if after.requires_cleanup { MAX_CLEANUP_TAKE_OVERS } else { 0 };
    let limit = state.max_take_overs.max(of_cleanup).max(attempts_left);
    ensure!(state.phase != Phase::Held || after.take_overs <= limit.max(before.take_overs), "{after:?}");
    Ok(())
}

/// No write of a worker's without the run's token, and none refused as lost with it.
fn tokens(world: &World, taken: &Taken) -> Result<(), String> {
    let Some(token) = taken.asked.token() else { return Ok(()) };
    let before = &taken.before;
    let held = before.lease.as_ref().is_some_and(|lease| !lease.is_vacant() && lease.token == token);
    match &taken.answer {
        Ok(change) if !held => {
            ensure!(change.is_repeat(before), "a write without the lease: {:?}", taken.asked);
        }
        Ok(_) => {}
        Err(refusal) => {
            ensure!(!held || refusal.code != Code::LeaseLost, "not lost: {:?}", taken.asked);
            let finishes = matches!(&taken.asked, Asked::Run(Request { ask: Ask::Finish { .. }, .. }));
            let lost = refusal.code == Code::LeaseLost;
            ensure!(held || finishes || lost, "{} without the lease", refusal.code.name());
        }
    }
    let renewed = world.tokens.iter().flatten().filter(|token| renews(world, **token)).count();
    ensure!(renewed <= 1, "{renewed} workers hold the run");
    Ok(())
}

fn renews(world: &World, token: Token) -> bool {
    let who = world.who(Actor::Worker, 0);
    decide(world.lifecycle, &world.run, &Request { who, ask: Ask::Renew { token } }, world.now).is_ok()
}

/// A heartbeat never shortens a lease and never moves a deadline; a lease that counts is not taken away.
fn lengths(world: &World, taken: &Taken) -> Result<(), String> {
    let (before, after) = (&taken.before, &world.run);
    let Some((was, is)) = before.lease.as_ref().zip(after.lease.as_ref()) else { return Ok(()) };
    if was.token == is.token && before.state == after.state {
        // What waits in nobody's hands waits no longer when it is to be cleaned up.
        let waits_no_longer = was.is_vacant() && is.is_vacant() && is.until == world.now;
        ensure!(is.until >= was.until || waits_no_longer, "shortened: {was:?} {is:?}");
        let fixed = world.lifecycle.state(after.state).deadline.is_some();
        ensure!(!fixed || is.until == was.until || waits_no_longer, "a deadline was moved: {was:?} {is:?}");
    }
    let counts = if was.is_vacant() { world.now < was.until } else { world.now <= was.until };
    let taken_away = was.token != is.token && !is.is_vacant();
    ensure!(!(counts && taken_away), "taken from {was:?} by {is:?}");
    Ok(())
}

// proves X5
#[test]
fn leases_fence() {
    holds_always(48, check);
}

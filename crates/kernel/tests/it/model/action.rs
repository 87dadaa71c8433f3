//! What may happen next.

use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::{Phase, Span, Time};

use super::setup::{Command, Setup, Tokens};
use super::world::World;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// The clock moves to where something changes.
    Clock(Tick),
    /// A worker's claim arrives.
    Claim(usize),
    /// A worker sends a claim with a token of its own.
    SendClaim(usize),
    /// A claim that was sent arrives, perhaps again.
    ClaimArrives(usize),
    /// The reply that brings a lease arrives.
    Learn(usize),
    /// A worker forgets its lease: it crashed and was started again, or was told that it lost.
    Crash(usize),
    /// A request under a lease's token arrives.
    Held(usize, Report),
    Client(Command),
    SweeperReads,
    Sweep,
    /// The operation on this run rolls a target back; with the last one the run follows.
    RollBack(usize),
    OperationEnds,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tick {
    HalfLease,
    LeaseEnd,
    VacantForADay,
    RetryDue,
    TimeToLiveEnd,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Report {
    Renew,
    Note,
    /// One of the setup's endings.
    Finish(usize),
    Release,
    RequireCleanup(Owing),
    Target(usize, Answer),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Owing {
    Cleanup,
    Nothing,
    CleanupThenFailure,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Answer {
    Begin,
    Applied,
    Failed,
    Again,
    /// The answer to a try that was counted already arrives once more.
    AgainLate,
}

const TICKS: [Tick; 5] =
    [Tick::HalfLease, Tick::LeaseEnd, Tick::VacantForADay, Tick::RetryDue, Tick::TimeToLiveEnd];
const JUST_AFTER: Span = Span::from_micros(1);

/// Everything that may happen now. Faulty states end there: the counterexample is complete.
pub fn possible(setup: &Setup, world: &World, actions: &mut Vec<Action>) {
    if !world.faults.is_empty() {
        return;
    }
    claims(setup, world, actions);
    for grant in 0..world.grants.len() {
        if world.grants[grant].known {
            actions.extend(reports(setup, world).into_iter().map(|report| Action::Held(grant, report)));
        }
        if !world.grants[grant].known && world.beliefs[world.grants[grant].worker].is_none() {
            actions.push(Action::Learn(grant));
        }
    }
    for worker in 0..world.beliefs.len() {
        if world.beliefs[worker].is_some() {
            actions.push(Action::Crash(worker));
        }
    }
    actions.extend(TICKS.into_iter().filter(|tick| after(world, *tick).is_some()).map(Action::Clock));
    actions.extend(setup.commands.iter().map(|command| Action::Client(*command)));
    if setup.sweeper_reads {
        actions.push(Action::SweeperReads);
    }
    actions.push(Action::Sweep);
    if world.run.as_ref().is_some_and(|run| run.operating) {
        actions.extend((0..world.items.len()).map(Action::RollBack));
        actions.push(Action::OperationEnds);
    }
}

/// Workers are alike, so the first claim is worker 0's. One that believes in a lease does not claim; a claim
/// that is repeated by the network is one whose reply nobody learns.
fn claims(setup: &Setup, world: &World, actions: &mut Vec<Action>) {
    let free = (0..world.beliefs.len()).filter(|worker| world.beliefs[*worker].is_none());
    match setup.tokens {
        Tokens::ByServer if world.grants.len() < setup.max_grants => {
            actions.extend(free.filter(|w| *w == 0 || !world.grants.is_empty()).map(Action::Claim));
        }
        Tokens::ByServer => {}
        Tokens::InRequest => {
            if world.claims.len() < setup.max_grants {
                actions.extend(free.filter(|w| *w == 0 || !world.claims.is_empty()).map(Action::SendClaim));
            }
            if world.grants.len() < setup.max_grants {
                actions.extend((0..world.claims.len()).map(Action::ClaimArrives));
            }
        }
    }
}

fn reports(setup: &Setup, world: &World) -> Vec<Report> {
    let mut reports = vec![Report::Renew];
    reports.extend((0..setup.endings.len()).map(Report::Finish));
    if setup.holder.notes {
        reports.push(Report::Note);
    }
    if setup.holder.releases {
        reports.push(Report::Release);
    }
    if setup.holder.required {
        reports
            .extend([Owing::Cleanup, Owing::Nothing, Owing::CleanupThenFailure].map(Report::RequireCleanup));
    }
    for target in 0..usize::from(setup.targets) {
        reports.extend([Answer::Begin, Answer::Applied].map(|answer| Report::Target(target, answer)));
    }
    if setup.targets > 1 {
        reports.push(Report::Target(1, Answer::Failed));
    }
    if setup.holder.tries_again {
        reports.push(Report::Target(1, Answer::Again));
    }
    if setup.holder.repeats_answers && world.items[1].attempts > 0 {
        reports.push(Report::Target(1, Answer::AgainLate));
    }
    reports
}

/// The instant that a tick leads to, if it lies ahead.
pub fn after(world: &World, tick: Tick) -> Option<Time> {
    let run = world.run.as_ref()?;
    let held = run.lease.as_ref().filter(|lease| !lease.is_vacant());
    let at = match tick {
        Tick::HalfLease => {
            let half = Span::from_micros(held?.length.micros() / 2);
            (held?.until - world.now == held?.length).then_some(world.now + half)?
        }
        Tick::LeaseEnd => held?.until + JUST_AFTER,
        Tick::VacantForADay => {
            let vacant = run.lease.as_ref().filter(|lease| lease.is_vacant())?;
            vacant.until + VACANT_FOR_LOST + JUST_AFTER
        }
        Tick::RetryDue => run.available_at?,
        Tick::TimeToLiveEnd => run.expires_at?,
    };
    (at > world.now).then_some(at)
}

/// The next instant at which something becomes possible that is not possible now.
pub fn next_instant(world: &World) -> Option<Time> {
    TICKS.into_iter().filter_map(|tick| after(world, tick)).min()
}

/// Whether the run is settled.
pub fn is_settled(setup: &Setup, world: &World) -> bool {
    world.run.as_ref().is_some_and(|run| setup.lifecycle.phase(run.state) == Phase::Settled)
}

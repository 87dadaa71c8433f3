//! The setups: deploy, cron, rule and job, each within bounds that close.

use std::sync::Arc;

use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::SHIPPED;
use waypost_kernel::run::Want;
use waypost_kernel::{Catalog, Failure, Lifecycle};

use super::setup::{Command, Ending, Holder, Setup, Sight, Tokens, Words};
use super::store;

/// `queued` to an end, with releases that leave the lease vacant.
pub fn deploy() -> Setup {
    Setup {
        born: Some("queued"),
        max_grants: 4,
        endings: vec![good("success"), bad("failed", "EXIT_1", false), good("cancelled")],
        holder: Holder { notes: true, releases: true, ..Holder::default() },
        sights: vec![
            Sight("a success", |at| at.is_in("success")),
            Sight("a cancelled end", |at| at.world.cancelled && at.is_in("cancelled")),
            Sight("a lost worker", |at| at.failed_as("WORKER_LOST")),
            Sight("a claim that was never begun", |at| at.failed_as("EXPIRED")),
            Sight("a vacant lease taken", |at| at.run.fence > 1 && at.run.attempt == 1),
            Sight("a vacant lease abandoned", |at| at.world.abandoned),
        ],
        ..Setup::new("deploy", shipped("deploy"))
    }
}

/// The same with a cleanup that is owed: the next holder carries it out, then the intent.
pub fn cleanup() -> Setup {
    let holder = Holder { required: true, ..deploy().holder };
    Setup {
        max_grants: 3,
        sights: vec![
            Sight("cleanup owed by another worker", |at| {
                at.run.fence > 1 && at.run.intent.is_some() && at.run.requires_cleanup
            }),
            Sight("a failure after its cleanup", |at| at.failed_as("BROKE") && !at.run.cleanup_failed),
            Sight("a cancel after its cleanup", |at| at.run.fence > 1 && at.is_in("cancelled")),
            Sight("a lost worker, cleaned up after", |at| at.failed_as("WORKER_LOST") && at.run.fence > 1),
            Sight("a cleanup that nobody did", |at| at.run.cleanup_failed),
        ],
        holder,
        name: "deploy with cleanup",
        ..deploy()
    }
}

/// Claims begin the work: no run that was taken looks as if it had not begun.
pub fn begun_by_claims() -> Setup {
    let never_begun = |sight: &Sight| sight.0 != "a claim that was never begun";
    let deploy = deploy();
    Setup {
        starts: true,
        sights: deploy.sights.iter().copied().filter(never_begun).collect(),
        name: "deploy begun by its claims",
        ..deploy
    }
}

/// The sweeper's look and its deed are two steps, with anything in between.
pub fn slow_sweeper() -> Setup {
    Setup { sweeper_reads: true, max_grants: 2, name: "deploy with a slow sweeper", ..deploy() }
}

/// Three attempts: the insert, steals and retries.
pub fn cron() -> Setup {
    Setup {
        max_attempts: 3,
        reentrant: true,
        max_grants: 4,
        endings: vec![good("SUCCESS"), bad("FAILED", "handler_error", true), good("FAILED")],
        holder: Holder { releases: true, ..Holder::default() },
        sights: vec![
            Sight("a success", |at| at.is_in("SUCCESS")),
            Sight("a steal", |at| &*at.run.last_command == "steal"),
            Sight("a retry that succeeds", |at| at.run.attempt > 1 && at.is_in("SUCCESS")),
            Sight("a failure to retry", |at| at.run.finished_at.is_some() && at.run.available_at.is_some()),
            Sight("stale with no attempt left", |at| at.failed_as("stale_timeout") && at.run.attempt == 3),
            Sight("a cancelled end", |at| at.failed_as("canceled")),
            Sight("a vacant lease taken", |at| at.run.fence > u64::from(at.run.attempt)),
        ],
        ..Setup::new("cron", shipped("cron"))
    }
}

/// A job that must not be taken up again: a stale execution ends.
pub fn cron_once() -> Setup {
    Setup {
        reentrant: false,
        max_attempts: 2,
        sights: vec![
            Sight("a success", |at| at.is_in("SUCCESS")),
            Sight("stale, not retried", |at| {
                at.failed_as("stale_timeout") && at.run.attempt == 1 && at.run.available_at.is_none()
            }),
        ],
        name: "cron without re-entry",
        ..cron()
    }
}

/// Two targets, the second of which may fail; retried by the client, cancelled, rolled back.
pub fn rule() -> Setup {
    Setup {
        born: Some("PREVIEW"),
        targets: 2,
        max_grants: 3,
        attempt_bound: 2,
        endings: vec![good("APPLIED"), bad("PARTIAL", "PARTLY", false), bad("FAILED", "STOPPED", false)],
        holder: Holder { releases: true, ..Holder::default() },
        commands: vec![Command::Queue, Command::Cancel, Command::Retry],
        sights: vec![
            Sight("all applied", |at| at.is_in("APPLIED")),
            Sight("partly applied", |at| at.is_in("PARTIAL")),
            Sight("a take-over", |at| at.run.take_overs > 0),
            Sight("a lost worker", |at| at.failed_as("WORKER_LOST")),
            Sight("a cancelled end", |at| at.world.cancelled && at.is_in("PARTIAL")),
            Sight("retried until applied", |at| at.run.attempt == 2 && at.is_in("APPLIED")),
            Sight("a preview that expired", |at| at.failed_as("EXPIRED")),
        ],
        ..Setup::new("rule", short("rule"))
    }
}

/// A settled run is rolled back target by target, by an operation of its own.
pub fn rollback() -> Setup {
    Setup {
        born: Some("QUEUED"),
        max_grants: 2,
        commands: vec![Command::Cancel, Command::Retry, Command::Rollback],
        sights: vec![
            Sight("all rolled back", |at| at.is_in("ROLLED_BACK")),
            Sight("retried, then rolled back", |at| at.run.attempt == 2 && at.is_in("ROLLED_BACK")),
        ],
        name: "rule with rollback",
        ..rule()
    }
}

/// A target that is tried again, within its budget.
pub fn retries() -> Setup {
    Setup {
        born: Some("QUEUED"),
        max_grants: 2,
        attempt_bound: 1,
        holder: Holder { tries_again: true, ..rule().holder },
        commands: vec![Command::Cancel],
        sights: vec![Sight("applied at the second try", |at| {
            at.is_in("APPLIED") && at.world.items.iter().any(|item| item.attempts > 0)
        })],
        name: "rule with retries of a target",
        ..rule()
    }
}

/// A maintenance job of one step, which an operator pauses and resumes.
pub fn job() -> Setup {
    Setup {
        born: Some("pending"),
        targets: 1,
        stops: true,
        words: Words { begun: "running", done: "completed", failed: "failed", open: "pending" },
        max_grants: 3,
        attempt_bound: 2,
        endings: vec![good("completed"), good("paused"), good("cancelled")],
        holder: Holder { releases: true, ..Holder::default() },
        commands: vec![Command::Cancel, Command::Pause, Command::Resume],
        sights: vec![
            Sight("completed after a pause", |at| at.run.attempt == 2 && at.is_in("completed")),
            Sight("paused", |at| at.is_in("paused")),
            Sight("a cancelled end", |at| at.is_in("cancelled")),
            Sight("a lost worker", |at| at.failed_as("WORKER_LOST")),
        ],
        ..Setup::new("job", short("job"))
    }
}

/// The same with a cleanup that is owed: it comes before the pause, the cancel and the failure.
pub fn job_cleanup() -> Setup {
    Setup {
        max_grants: 2,
        endings: vec![good("completed"), good("paused"), good("cancelled"), bad("failed", "BROKE", false)],
        holder: Holder { required: true, ..job().holder },
        sights: vec![
            Sight("paused after a cleanup", |at| {
                at.is_in("paused") && at.run.fence == 2 && at.run.attempt == 1
            }),
            Sight("failed after a cleanup", |at| at.failed_as("BROKE")),
        ],
        name: "job with cleanup",
        ..job()
    }
}

/// Two steps and a cleanup: a step that fails ends the run's course, whoever holds the run afterwards.
pub fn course() -> Setup {
    Setup {
        targets: 3,
        roles: &[Role::Step, Role::Step, Role::Cleanup],
        max_grants: 2,
        attempt_bound: 1,
        endings: vec![good("completed"), good("failed")],
        holder: Holder { required: true, ..Holder::default() },
        commands: vec![Command::Cancel],
        sights: vec![
            Sight("a step that failed, and the run as that", |at| at.failed_as("BROKE")),
            Sight("a cleanup after a failed step", |at| {
                store::ended_by(at.setup, at.world).next().is_some() && at.world.items[2].started_at.is_some()
            }),
            Sight("a failing run in another's hands", |at| {
                at.run.fence == 2
                    && at.run.requires_cleanup
                    && store::ended_by(at.setup, at.world).next().is_some()
            }),
            Sight("a cancel that came first", |at| {
                let wants = |intent: &waypost_kernel::Intent| intent.want == Want::Cancel;
                at.run.intent.as_ref().is_some_and(wants)
                    && store::ended_by(at.setup, at.world).next().is_some()
            }),
            Sight("all done", |at| at.is_in("completed")),
        ],
        name: "job whose steps fail",
        ..job()
    }
}

/// The worker draws its own token, so that a claim that arrives twice brings the same one twice.
pub fn tokens_of_workers() -> Setup {
    Setup { tokens: Tokens::InRequest, max_grants: 2, name: "deploy with the workers' tokens", ..deploy() }
}

/// The client retries target 0, whatever became of it.
pub fn chosen_retry() -> Setup {
    let commands = vec![Command::Queue, Command::RetryFirst];
    Setup { commands, max_grants: 1, name: "rule with a chosen retry", ..rule() }
}

/// The client puts a failed target back without its run.
pub fn requeued_target() -> Setup {
    let commands = vec![Command::Queue, Command::RequeueTarget];
    Setup { commands, max_grants: 1, name: "rule with a requeued target", ..rule() }
}

/// A target's answer arrives again after it was counted.
pub fn late_answers() -> Setup {
    let holder = Holder { repeats_answers: true, ..retries().holder };
    Setup { holder, max_grants: 1, max_retries: 2, name: "rule with late answers", ..retries() }
}

fn good(to: &'static str) -> Ending {
    Ending { to, failure: None, retry: false }
}

fn bad(to: &'static str, code: &str, retry: bool) -> Ending {
    Ending { to, failure: Some(Failure::new(code, "it did not work")), retry }
}

fn shipped(name: &str) -> Arc<Lifecycle> {
    Catalog::shipped().unwrap().latest(name).unwrap().clone()
}

/// The shipped file with one take-over where it says five, so that their bound lies within the model's.
fn short(name: &str) -> Arc<Lifecycle> {
    let mut catalog = Catalog::default();
    for (_, text) in SHIPPED {
        catalog.add(&text.replace("max_take_overs = 5", "max_take_overs = 1")).unwrap();
    }
    let lifecycle = catalog.latest(name).unwrap().clone();
    assert!(lifecycle.states.iter().any(|state| state.max_take_overs == 1));
    lifecycle
}

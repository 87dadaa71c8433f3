//! What a scope that is due makes of a schedule: a planning, and what its plans begin with. Pure.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;
use waypost_kernel::schedule::Overlap;
use waypost_kernel::tenant::{exactly, local_name};
use waypost_kernel::text::{ENGINE_KEYS, MAX_KEY_BYTES};
use waypost_kernel::{Actor, Time};
use waypost_store::codec::hex;
use waypost_store::{Birth, Counts, DueScope, Firing, HOUSEKEEPING, NewRun};

use super::by_hand::BACKFILL;
use super::schedule::{Schedule, What};

/// Executions are no queue's: whoever fires them holds them from their birth.
const QUEUE: &str = "cron";

/// One plan of one scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub kind: String,
    pub id: String,
    pub plan: Time,
    pub manual: Option<String>,
}

pub fn firing(schedule: &Schedule, due: &DueScope, now: Time, by: &str) -> Firing {
    let policy = &schedule.policy;
    // What a pause left out is counted; a new timing starts afresh.
    let paused = match (due.through, due.since) {
        (Some(through), Some(since)) if since > through => policy.timing.count(through, since),
        _ => 0,
    };
    let through = due.through.max(due.since);
    let plans = policy.plan(&due.id, through, now, due.running);
    let slot = |plan: &Time| Slot { kind: due.kind.clone(), id: due.id.clone(), plan: *plan, manual: None };
    Firing {
        schedule: schedule.name.clone(),
        kind: due.kind.clone(),
        id: due.id.clone(),
        expected: due.through,
        through: plans.through,
        wake_at: plans.wake_at,
        skipped: Counts { paused, ..Counts::from(plans.skipped) },
        plans: plans.fire.iter().map(|plan| (*plan, birth(schedule, &slot(plan), by))).collect(),
        alone: policy.overlap != Overlap::Allow && !plans.fire.is_empty(),
    }
}

/// What a plan begins with: an execution that is held from its birth, or a run for a queue.
pub fn birth(schedule: &Schedule, slot: &Slot, by: &str) -> Birth {
    let Slot { kind, id, plan, manual } = slot;
    let mut about = Map::new();
    about.insert("job_name".into(), json!(schedule.name));
    about.insert("scope_kind".into(), json!(kind));
    about.insert("scope_id".into(), json!(id));
    about.insert("plan_time".into(), json!(plan.to_string()));
    about.extend(manual.as_ref().map(|how| ("manual".to_owned(), json!(how))));
    // A plan that was asked for by hand may be one that was executed before, by a run that has that key.
    let idempotency_key = Some(if manual.is_some() { fresh_key() } else { key(&schedule.name, slot) });
    if let What::Run(queued) = &schedule.what {
        let mut metadata = Map::from_iter([("schedule".to_owned(), Value::Object(about))]);
        // Nobody is there to be asked, unless somebody asked for it.
        if manual.is_none() {
            metadata.insert("unattended".into(), true.into());
        }
        let plain = NewRun::default();
        // Those of a backfill may be thousands: what the schedule itself queues meanwhile goes before them.
        let backs_off = i16::from(manual.as_deref() == Some(BACKFILL));
        let priority = queued.priority.unwrap_or(plain.priority).saturating_sub(backs_off);
        let run = NewRun {
            lifecycle: queued.lifecycle.clone(),
            queue: queued.queue.clone().unwrap_or(plain.queue),
            priority,
            input: queued.input.clone(),
            playbook: queued.playbook.clone(),
            carried: queued.carried.clone(),
            concurrency_key: queued.concurrency_key.clone(),
            max_attempts: queued.max_attempts,
            items: queued.items.clone(),
            metadata,
            idempotency_key,
            title: Some(local_name(&schedule.name).to_owned()),
            by: by.to_owned(),
            ..NewRun::default()
        };
        return Birth { run, lease: None };
    }
    let run = NewRun {
        // The installation's, though the tenant may have one of that name.
        lifecycle: exactly(super::LIFECYCLE),
        queue: if schedule.name == super::pruning::NAME { HOUSEKEEPING } else { QUEUE }.to_owned(),
        input: Value::Object(about),
        idempotency_key,
        title: Some(local_name(&schedule.name).to_owned()),
        max_attempts: schedule.max_attempts,
        reentrant: schedule.reentry,
        by: by.to_owned(),
        actor: Actor::Worker,
        ..NewRun::default()
    };
    Birth { run, lease: Some(schedule.stale_timeout) }
}

/// A key that nobody else can have, for a plan whose own one another run has: clients cannot take it, SQL by hand can. That a plan begins once does not hang on it:
/// its execution is unique.
pub fn rekey(birth: &mut Birth) {
    birth.run.idempotency_key = Some(fresh_key());
}

fn fresh_key() -> String {
    format!("{ENGINE_KEYS}schedule:{}", Uuid::new_v4())
}

/// Unique per job, scope and plan time.
fn key(schedule: &str, slot: &Slot) -> String {
    let key = format!("{ENGINE_KEYS}schedule:{schedule}:{}:{}:{}", slot.kind, slot.id, slot.plan);
    if key.len() <= MAX_KEY_BYTES {
        return key;
    }
    format!("{ENGINE_KEYS}schedule:{}", hex(&Sha256::digest(key.as_bytes())))
}

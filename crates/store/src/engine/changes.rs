//! What people change beside runs, each with its entry in the audit log.

use std::sync::Arc;

use waypost_kernel::Lifecycle;
use waypost_kernel::text::{MAX_REASON_CHARS, clean_chars};

use super::access::{audit, issue_token, revoke_token};
use super::schedules::{add_plans, pause_schedule, put_schedule, remove_schedule};
use super::tx::AdminTx;
use crate::rules::intake::{check_given_name, check_name};
use crate::seam::access::{TokenChange, TokenRow, Who};
use crate::seam::error::Result;
use crate::seam::schedules::*;
use crate::seam::verbs::{Pause, Setting};
use crate::statement::{query, values};

impl Who {
    fn pause(&self) -> Pause {
        Pause { by: self.by.clone(), reason: self.reason.clone().unwrap_or_default(), at: None }
    }
}

pub(crate) async fn configure<T: AdminTx>(tx: &mut T, setting: &Setting, who: &Who) -> Result<()> {
    let (action, name) = match setting {
        Setting::PauseQueue(queue) => ("queue.pause", queue),
        Setting::ResumeQueue(queue) => ("queue.resume", queue),
        Setting::QueueLimit(queue, _) => ("queue.limit", queue),
        Setting::KeyLimit(key, _) => ("key.limit", key),
    };
    check_name(if action.starts_with("queue") { "queue" } else { "name" }, name)?;
    who.check_tenant()?;
    who.check(action, name)?;
    // Nothing is changed, and nobody did anything.
    if is_so(tx, setting, who).await? {
        return Ok(());
    }
    let tenant = &who.tenant;
    match setting {
        Setting::PauseQueue(queue) => tx.pause_queue(tenant, queue, Some(&who.pause())).await?,
        Setting::ResumeQueue(queue) => tx.pause_queue(tenant, queue, None).await?,
        Setting::QueueLimit(queue, at_most) => tx.limit_queue(tenant, queue, *at_most).await?,
        Setting::KeyLimit(key, at_most) => tx.limit_key(tenant, key, *at_most).await?,
    }
    audit(tx, &told(setting, who), action, name).await
}

/// With the limit that was set: the entry says what was done without what came after it.
fn told(setting: &Setting, who: &Who) -> Who {
    let (Setting::QueueLimit(_, at_most) | Setting::KeyLimit(_, at_most)) = setting else {
        return who.clone();
    };
    let limit = at_most.map_or_else(|| "no limit".to_owned(), |at_most| format!("limit {at_most}"));
    let given = who.reason.as_deref().filter(|reason| !reason.is_empty());
    let reason = given.map_or_else(|| limit.clone(), |reason| format!("{limit}: {reason}"));
    Who { reason: Some(clean_chars(&reason, MAX_REASON_CHARS).text), ..who.clone() }
}

/// Whether all is as somebody asks for it to be.
async fn is_so<T: AdminTx>(tx: &mut T, setting: &Setting, who: &Who) -> Result<bool> {
    let sql = match setting {
        Setting::KeyLimit(..) => {
            "SELECT at_most, NULL, NULL FROM waypost.key_limits WHERE tenant = $1 AND name = $2"
        }
        _ => "SELECT at_most, paused_by, pause_reason FROM waypost.queues WHERE tenant = $1 AND name = $2",
    };
    let (Setting::PauseQueue(name)
    | Setting::ResumeQueue(name)
    | Setting::QueueLimit(name, _)
    | Setting::KeyLimit(name, _)) = setting;
    let rows = query(tx, sql, values![&who.tenant, name]).await?;
    let known = match rows.first() {
        Some(row) => (row.get(0)?, row.get(1)?, row.get(2)?),
        None => (None, None, None),
    };
    let (at_most, by, reason): (Option<u64>, Option<String>, Option<String>) = known;
    Ok(match setting {
        Setting::PauseQueue(_) => {
            by.as_deref() == Some(&*who.by) && reason.unwrap_or_default() == who.pause().reason
        }
        Setting::ResumeQueue(_) => by.is_none(),
        Setting::QueueLimit(_, asked) | Setting::KeyLimit(_, asked) => at_most == asked.map(u64::from),
    })
}

pub(crate) async fn change_schedule<T: AdminTx>(
    tx: &mut T,
    change: &ScheduleChange,
    who: &Who,
) -> Result<ScheduleChanged> {
    check_whose(change.name(), who)?;
    let (action, name, changed) = match change {
        ScheduleChange::Put(write) => {
            check_own(&write.name)?;
            ("schedule.apply", &write.name, put_schedule(tx, write).await?)
        }
        ScheduleChange::Remove(name) => {
            remove_schedule(tx, name, who).await?;
            ("schedule.remove", name, ScheduleChanged::Removed)
        }
        ScheduleChange::Pause(name) => {
            pause_schedule(tx, name, Some(&who.pause())).await?;
            ("schedule.pause", name, ScheduleChanged::Changed)
        }
        ScheduleChange::Resume(name) => {
            pause_schedule(tx, name, None).await?;
            ("schedule.resume", name, ScheduleChanged::Changed)
        }
        ScheduleChange::Plan(plans) => {
            let action = if plans.plans.is_none() { "schedule.trigger" } else { "schedule.backfill" };
            (action, &plans.schedule, ScheduleChanged::Planned(add_plans(tx, plans).await?))
        }
    };
    if changed != ScheduleChanged::Same {
        audit(tx, who, action, name).await?;
    }
    Ok(changed)
}

pub(crate) async fn change_token<T: AdminTx>(
    tx: &mut T,
    change: &TokenChange,
    who: &Who,
) -> Result<TokenRow> {
    match change {
        TokenChange::Issue(new) => issue_token(tx, new, who).await,
        TokenChange::Revoke(id) => revoke_token(tx, id, who).await,
    }
}

pub(crate) async fn add_lifecycle<T: AdminTx>(tx: &mut T, text: &str, who: &Who) -> Result<Arc<Lifecycle>> {
    check_given_name("tenant", &who.tenant)?;
    let added = tx.add_lifecycle(&who.tenant, text).await?;
    audit(tx, who, "lifecycle.add", &format!("{}@{}", added.name, added.version)).await?;
    Ok(added)
}

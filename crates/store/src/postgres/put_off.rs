//! What failed is looked at later, by everybody. What somebody else has locked he is dealing with: it is left to him.

use super::fault::Result;
use super::schedules::{Keys, keys};
use super::session::{Session, Tx};
use super::sql::{args, stamp};
use crate::schedules::*;

pub async fn put_off(session: &Session, failed: &[Failed]) -> Result<()> {
    let tx = session.begin().await?;
    let put = put_off_in(&tx, failed).await;
    tx.end(put).await
}

async fn put_off_in(tx: &Tx, failed: &[Failed]) -> Result<()> {
    listings(tx, failed).await?;
    scopes(tx, failed).await?;
    executions(tx, failed).await
}

/// The wait after the first failure, after the second and so on; the last is that of all further ones.
fn waits_ms() -> Vec<i64> {
    waits_after_failure().into_iter().map(waypost_kernel::Span::ms).collect()
}

async fn listings(tx: &Tx, failed: &[Failed]) -> Result<()> {
    let failed: Vec<&Failed> = failed.iter().filter(|it| it.what == Failing::Listing).collect();
    if failed.is_empty() {
        return Ok(());
    }
    tx.run(
        "WITH found AS (SELECT s.name FROM waypost.schedules s JOIN unnest($1, $2) AS u(name, told) ON s.name = u.name AND s.scopes_at = u.told \
           ORDER BY s.name FOR UPDATE OF s SKIP LOCKED) \
         UPDATE waypost.schedules s SET scopes_failures = s.scopes_failures + 1, \
           scopes_at = $3 + $4[least(s.scopes_failures + 1, cardinality($4))] * interval '1 millisecond' \
         FROM found WHERE s.name = found.name",
        args![
            failed.iter().map(|it| it.schedule.as_str()).collect::<Vec<_>>(),
            failed.iter().map(|it| stamp(it.wake_at)).collect::<Vec<_>>(),
            stamp(tx.now),
            waits_ms(),
        ],
    )
    .await
    .map(drop)
}

async fn scopes(tx: &Tx, failed: &[Failed]) -> Result<()> {
    let is_one = |it: &&Failed| matches!(it.what, Failing::Scope { .. });
    let failed: Vec<&Failed> = failed.iter().filter(is_one).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let (schedules, kinds, ids) = keys_of(&failed);
    tx.run(
        "WITH found AS (SELECT c.schedule, c.kind, c.id FROM waypost.schedule_scopes c \
           JOIN unnest($1, $2, $3, $4) AS u(schedule, kind, id, told) ON c.schedule = u.schedule AND c.kind = u.kind AND c.id = u.id \
           AND c.wake_at = u.told FOR UPDATE OF c SKIP LOCKED) \
         UPDATE waypost.schedule_scopes c SET failures = c.failures + 1, \
           wake_at = $5 + $6[least(c.failures + 1, cardinality($6))] * interval '1 millisecond' \
         FROM found f WHERE c.schedule = f.schedule AND c.kind = f.kind AND c.id = f.id",
        args![
            schedules,
            kinds,
            ids,
            failed.iter().map(|it| stamp(it.wake_at)).collect::<Vec<_>>(),
            stamp(tx.now),
            waits_ms(),
        ],
    )
    .await
    .map(drop)
}

async fn executions(tx: &Tx, failed: &[Failed]) -> Result<()> {
    let plan = |it: &Failed| match it.what {
        Failing::Execution { plan, .. } => Some(stamp(plan)),
        _ => None,
    };
    let failed: Vec<&Failed> = failed.iter().filter(|it| plan(it).is_some()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let (schedules, kinds, ids) = keys_of(&failed);
    tx.run(
        "WITH found AS (SELECT e.schedule, e.kind, e.id, e.plan_time FROM waypost.executions e \
           JOIN unnest($1, $2, $3, $4, $5) AS u(schedule, kind, id, plan_time, told) ON e.schedule = u.schedule AND e.kind = u.kind \
           AND e.id = u.id AND e.plan_time = u.plan_time AND e.wake_at = u.told FOR UPDATE OF e SKIP LOCKED) \
         UPDATE waypost.executions e SET failures = e.failures + 1, \
           wake_at = $6 + $7[least(e.failures + 1, cardinality($7))] * interval '1 millisecond' \
         FROM found f WHERE e.schedule = f.schedule AND e.kind = f.kind AND e.id = f.id AND e.plan_time = f.plan_time",
        args![
            schedules,
            kinds,
            ids,
            failed.iter().filter_map(|it| plan(it)).collect::<Vec<_>>(),
            failed.iter().map(|it| stamp(it.wake_at)).collect::<Vec<_>>(),
            stamp(tx.now),
            waits_ms(),
        ],
    )
    .await
    .map(drop)
}

fn keys_of<'f>(failed: &[&'f Failed]) -> Keys<'f> {
    keys(failed.iter().filter_map(|it| match &it.what {
        Failing::Listing => None,
        Failing::Scope { kind, id } | Failing::Execution { kind, id, .. } => {
            Some((it.schedule.as_str(), kind.as_str(), id.as_str()))
        }
    }))
}

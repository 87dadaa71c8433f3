//! Plannings that are written together with what they fire: many in one transaction, since each costs as many round trips
//! as all of them. What somebody else has locked he is about to write: it is not waited for.

use std::collections::HashSet;

use waypost_kernel::Time;

use super::fault::{Fault, Result};
use super::firing::{Key, wake_all};
use super::schedules::{ScopeKey, keys, lock_scopes, save_scopes};
use super::session::{Session, Tx};
use super::sql::{Columns, args, stamp};
use super::tables::PgTx;
use crate::engine::{self, CheckedRun};
use crate::error::StoreError;
use crate::schedules::*;
use crate::verbs::Each;

type Fired = Option<Vec<Begun>>;

/// If one of them cannot be, each is tried by itself: it must not take the others with it.
pub async fn fire(session: &Session, firings: &[Firing]) -> Result<Each<Fired>> {
    match fire_all(session, firings).await {
        Err(Fault::Told(error)) if firings.len() == 1 => Ok(vec![Err(error)]),
        Err(Fault::Told(_)) => {
            let mut each = Vec::new();
            for firing in firings {
                each.push(match fire_all(session, std::slice::from_ref(firing)).await {
                    Ok(mut fired) => Ok(fired.pop().flatten()),
                    Err(Fault::Told(error)) => Err(error),
                    // What was begun before is ours: whoever fires this again has to come back for it.
                    Err(_) => Ok(None),
                });
            }
            Ok(each)
        }
        fired => Ok(fired?.into_iter().map(Ok).collect()),
    }
}

async fn fire_all(session: &Session, firings: &[Firing]) -> Result<Vec<Fired>> {
    let mut pg = PgTx::begin(session).await?;
    let fired = fire_in(&mut pg, firings).await;
    pg.close(fired).await
}

async fn fire_in(pg: &mut PgTx, firings: &[Firing]) -> Result<Vec<Fired>> {
    let tx = pg.tx()?;
    let open = open_schedules(tx, firings).await?;
    let asked = keys(firings.iter().map(scope_of));
    let mut locked = lock_scopes(tx, &asked).await?;
    let busy = busy_scopes(tx, firings).await?;
    let mut granted: Vec<(usize, ScopeRow)> = Vec::new();
    for (at, firing) in firings.iter().enumerate() {
        let key = key_of(firing);
        let is_free = open.contains(&firing.schedule) && !(firing.alone && busy.contains(&key));
        // Of two for the same scope the second comes too late.
        let scope = locked.remove(&key).filter(|_| is_free);
        let fits = |scope: &ScopeRow| scope.through == firing.expected && scope.wake_at.is_some();
        granted.extend(scope.filter(fits).map(|scope| (at, scope)));
    }
    let begun = begin_all(pg, firings, granted.iter().map(|(at, _)| *at)).await?;
    let mut fired: Vec<Fired> = firings.iter().map(|_| None).collect();
    for (at, _) in &granted {
        fired[*at] = Some(Vec::new());
    }
    for (at, one) in begun {
        fired[at].get_or_insert_default().push(one);
    }
    for (at, scope) in &mut granted {
        let firing = &firings[*at];
        (scope.through, scope.wake_at, scope.since) = (firing.through, firing.wake_at, None);
        scope.failures = 0;
        scope.counts.add(&firing.skipped);
        let won = fired[*at].as_ref().map_or(0, |begun| begun.len() as u64);
        scope.counts.add(&Counts { won, ..Counts::default() });
    }
    let saved: Vec<(&str, &ScopeRow)> =
        granted.iter().map(|(at, scope)| (firings[*at].schedule.as_str(), scope)).collect();
    save_scopes(pg.tx()?, &saved).await?;
    Ok(fired)
}

fn scope_of(firing: &Firing) -> (&str, &str, &str) {
    (&firing.schedule, &firing.kind, &firing.id)
}

fn key_of(firing: &Firing) -> ScopeKey {
    (firing.schedule.clone(), firing.kind.clone(), firing.id.clone())
}

/// Those that are neither paused nor gone, and stay so until the end of the transaction.
async fn open_schedules(tx: &Tx, firings: &[Firing]) -> Result<HashSet<String>> {
    let names: Vec<&str> = firings.iter().map(|firing| firing.schedule.as_str()).collect();
    let sql = "SELECT name FROM waypost.schedules WHERE name = ANY ($1) AND paused_at IS NULL ORDER BY name FOR SHARE";
    tx.query(sql, args![names]).await?.iter().map(|row| Columns(row).get(0)).collect()
}

/// Of the scopes whose plans must be alone, those where something is under way.
async fn busy_scopes(tx: &Tx, firings: &[Firing]) -> Result<HashSet<ScopeKey>> {
    let (schedules, kinds, ids) = keys(firings.iter().filter(|firing| firing.alone).map(scope_of));
    if schedules.is_empty() {
        return Ok(HashSet::new());
    }
    let sql = "SELECT u.schedule, u.kind, u.id FROM unnest($1, $2, $3) AS u(schedule, kind, id) WHERE waypost.is_running(u.schedule, u.kind, u.id, NULL)";
    let rows = tx.query(sql, args![schedules, kinds, ids]).await?;
    rows.iter().map(|row| Ok((Columns(row).get(0)?, Columns(row).get(1)?, Columns(row).get(2)?))).collect()
}

/// A plan, and the firing that it is of.
type Planned<'f> = (usize, Key<'f>, &'f Birth);

async fn begin_all(
    pg: &mut PgTx,
    firings: &[Firing],
    granted: impl Iterator<Item = usize>,
) -> Result<Vec<(usize, Begun)>> {
    let plans = granted.flat_map(|at| {
        let firing = &firings[at];
        let (schedule, kind, id) = scope_of(firing);
        firing.plans.iter().map(move |(plan, birth)| (at, (schedule, kind, id, *plan), birth))
    });
    let plans: Vec<Planned<'_>> = new_executions(pg.tx()?, plans.collect()).await?;
    let (held, queued): (Vec<_>, Vec<_>) = plans.into_iter().partition(|(.., birth)| birth.lease.is_some());
    let mut begun = begin_held(pg, held).await?;
    begun.extend(begin_queued(pg, queued).await?);
    Ok(begun)
}

/// Those that nobody has an execution of.
async fn new_executions<'f>(tx: &Tx, plans: Vec<Planned<'f>>) -> Result<Vec<Planned<'f>>> {
    if plans.is_empty() {
        return Ok(plans);
    }
    let (schedules, kinds, ids) =
        keys(plans.iter().map(|(_, (schedule, kind, id, _), _)| (*schedule, *kind, *id)));
    let times: Vec<_> = plans.iter().map(|(_, (.., plan), _)| stamp(*plan)).collect();
    let sql = "INSERT INTO waypost.executions(schedule, kind, id, plan_time, wake_at) SELECT u.schedule, u.kind, u.id, u.plan_time, $5 \
               FROM unnest($1, $2, $3, $4) AS u(schedule, kind, id, plan_time) ORDER BY 1, 2, 3, 4 ON CONFLICT DO NOTHING \
               RETURNING schedule, kind, id, plan_time";
    let rows = tx.query(sql, args![schedules, kinds, ids, times, stamp(tx.now)]).await?;
    let mut new: HashSet<(ScopeKey, Time)> = HashSet::new();
    for row in &rows {
        let columns = Columns(row);
        let key = (columns.get(0)?, columns.get(1)?, columns.get(2)?);
        new.insert((key, columns.time(3)?.unwrap_or_default()));
    }
    let is_new = |(_, (schedule, kind, id, plan), _): &Planned<'_>| {
        new.contains(&(((*schedule).to_owned(), (*kind).to_owned(), (*id).to_owned()), *plan))
    };
    Ok(plans.into_iter().filter(is_new).collect())
}

async fn begin_held(pg: &mut PgTx, plans: Vec<Planned<'_>>) -> Result<Vec<(usize, Begun)>> {
    let mut births = Vec::with_capacity(plans.len());
    for (.., birth) in &plans {
        births.push((CheckedRun::of(birth.run.clone())?, birth.lease));
    }
    let held = engine::new_held(pg, births).await;
    let held = pg.outcome(held)?;
    let tx = pg.tx()?;
    let executions: Vec<Key<'_>> = plans.iter().map(|(_, key, _)| *key).collect();
    let looks = held.iter().map(|taken| Some(first_look(taken.run(), tx.now))).collect();
    let run_ids: Vec<Option<&str>> = held.iter().map(|taken| Some(taken.run().id())).collect();
    wake_all(tx, &executions, &run_ids, looks).await?;
    let mut begun = Vec::new();
    for ((at, key, _), taken) in plans.iter().zip(held) {
        begun.push((*at, Begun::Held(key.3, Box::new(taken.claimed()?))));
    }
    Ok(begun)
}

async fn begin_queued(pg: &mut PgTx, plans: Vec<Planned<'_>>) -> Result<Vec<(usize, Begun)>> {
    if plans.is_empty() {
        return Ok(Vec::new());
    }
    let runs: Result<Vec<CheckedRun>, StoreError> =
        plans.iter().map(|(.., birth)| CheckedRun::of(birth.run.clone())).collect();
    let rows = engine::new_queued(pg, runs?).await;
    let rows = pg.outcome(rows)?;
    let tx = pg.tx()?;
    let executions: Vec<Key<'_>> = plans.iter().map(|(_, key, _)| *key).collect();
    let looks = rows.iter().map(|row| Some(first_look(row, tx.now))).collect();
    let run_ids: Vec<Option<&str>> = rows.iter().map(|row| Some(row.id())).collect();
    wake_all(tx, &executions, &run_ids, looks).await?;
    let begun = plans.iter().zip(&rows);
    Ok(begun.map(|((at, key, _), row)| (*at, Begun::Queued(key.3, row.id().to_owned()))).collect())
}

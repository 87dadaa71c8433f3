//! Workers' signs of life: one statement each, and one that forgets those who are silent for long.

use waypost_kernel::Time;

use super::tx::Tx;
use crate::rules::intake::{check_given_name, check_name, check_text};
use crate::seam::access::EVERY_TENANT;
use crate::seam::error::{Result, StoreError};
use crate::seam::verbs::Can;
use crate::seam::workers::{KEPT, LIVE, WorkerBeat, WorkerRow};
use crate::statement::{Cells, Sql, query, values};
use waypost_kernel::text::{MAX_KEY_BYTES, MAX_NAME_BYTES};

const COLUMNS: &str = "name, tenant, queues, lifecycles, playbooks, carried, only_run, slots, version, by_claims, started_at, seen_at";

/// Of each list that a worker gives.
const MOST_NAMES: usize = 20_000;
/// What the workers of one tenant may list together, in characters: whoever asks why a run waits reads all of it.
const MOST_LISTED: usize = 1024 * 1024;

impl WorkerBeat {
    fn check(&self) -> Result<()> {
        check_name("worker", &self.name)?;
        if let Some(tenant) = &self.tenant {
            check_given_name("tenant", tenant)?;
        }
        check_text("version", &self.version, MAX_NAME_BYTES)?;
        // One that is known by its claims has none beside those that it asked for last.
        if self.slots == 0 && !self.by_claims {
            return Err(StoreError::invalid(
                "slots",
                "is 0: a worker without a slot takes no run; allowed: 1 or more",
            ));
        }
        if let Some(run_id) = &self.only {
            check_text("only", run_id, MAX_NAME_BYTES)?;
        }
        let playbooks = self.can.as_ref().map_or(&[][..], |can| &can.playbooks);
        let lists =
            [("queues", &self.queues[..]), ("lifecycles", &self.lifecycles), ("playbooks", playbooks)];
        for (field, names) in lists {
            if names.len() > MOST_NAMES {
                let message = format!("has {} entries; allowed: up to {MOST_NAMES}", names.len());
                return Err(StoreError::invalid(field, message));
            }
            names.iter().try_for_each(|name| check_text(field, name, MAX_KEY_BYTES))?;
        }
        Ok(())
    }
}

/// Whose runs are taken, as it is stored.
fn whose(tenant: Option<&str>) -> &str {
    tenant.unwrap_or(EVERY_TENANT)
}

fn list(names: &[String]) -> String {
    serde_json::json!(names).to_string()
}

pub(crate) async fn beat<T: Tx + Sql>(tx: &mut T, worker: &WorkerBeat) -> Result<()> {
    worker.check()?;
    let now = tx.now();
    let listed = [list(&worker.queues), list(&worker.lifecycles)];
    let playbooks = worker.can.as_ref().map(|can| list(&can.playbooks));
    let own: usize = listed.iter().chain(&playbooks).map(|text| text.chars().count()).sum();
    let sql = "SELECT coalesce(sum(length(queues) + length(lifecycles) + coalesce(length(playbooks), 0)), 0) FROM waypost.workers \
               WHERE tenant = $1 AND name <> $2";
    let others = query(tx, sql, values![whose(worker.tenant.as_deref()), &worker.name]).await?;
    let others: u64 = others.first().map(|row| row.get(0)).transpose()?.unwrap_or_default();
    if others + own as u64 > MOST_LISTED as u64 {
        let message = format!(
            "the queues and playbooks that the workers of this tenant list have {} characters; allowed: up to {MOST_LISTED}",
            others + own as u64
        );
        return Err(StoreError::invalid("playbooks", message));
    }
    // What a worker said of itself lately stands against what its claims tell.
    let sql = "INSERT INTO waypost.workers AS w(name, tenant, queues, lifecycles, playbooks, carried, only_run, slots, version, by_claims, started_at, seen_at) \
      VALUES ($1, $2, $3, $4, $5, $6 = 'true', $7, $8, $9, $10, $11, $11) ON CONFLICT (name, tenant) DO UPDATE SET queues = excluded.queues, \
        lifecycles = excluded.lifecycles, playbooks = excluded.playbooks, carried = excluded.carried, only_run = excluded.only_run, \
        slots = excluded.slots, version = excluded.version, by_claims = excluded.by_claims, seen_at = excluded.seen_at \
      WHERE w.by_claims OR NOT excluded.by_claims OR w.seen_at < $12";
    let WorkerBeat { name, can, only, slots, version, by_claims, .. } = worker;
    let [queues, lifecycles] = listed;
    let carried = can.as_ref().map(|can| if can.carried { "true" } else { "false" });
    let values = values![
        name,
        whose(worker.tenant.as_deref()),
        queues,
        lifecycles,
        &playbooks,
        carried,
        only,
        *slots,
        version,
        *by_claims,
        now,
        now - LIVE
    ];
    query(tx, sql, values).await?;
    query(tx, "DELETE FROM waypost.workers WHERE seen_at < $1", values![now - KEPT]).await.map(drop)
}

pub(crate) async fn remove_worker<T: Sql>(tx: &mut T, name: &str, tenant: &Option<String>) -> Result<()> {
    let sql = "DELETE FROM waypost.workers WHERE name = $1 AND tenant = $2";
    // What cannot be stored was not.
    if name.contains('\0') || tenant.as_ref().is_some_and(|tenant| tenant.contains('\0')) {
        return Ok(());
    }
    query(tx, sql, values![name, whose(tenant.as_deref())]).await.map(drop)
}

/// Those of a tenant, without those that work everybody's; or all.
pub(crate) async fn registered<T: Tx + Sql>(tx: &mut T, tenant: &Option<String>) -> Result<Vec<WorkerRow>> {
    if tenant.as_ref().is_some_and(|tenant| tenant.contains('\0')) {
        return Ok(Vec::new());
    }
    let kept = tx.now() - KEPT;
    let condition = "seen_at >= $1 AND ($2 IS NULL OR tenant = $2)";
    found(tx, condition, values![kept, tenant]).await
}

/// Those that take a tenant's runs and gave a sign of life lately.
pub(super) async fn live<T: Tx + Sql>(tx: &mut T, tenants: &[String]) -> Result<Vec<WorkerRow>> {
    let since = tx.now() - LIVE;
    found(tx, "seen_at >= $1 AND (tenant = '*' OR tenant = ANY ($2))", values![since, tenants]).await
}

async fn found<T: Sql>(
    tx: &mut T,
    condition: &str,
    values: Vec<crate::statement::Arg>,
) -> Result<Vec<WorkerRow>> {
    let sql = format!("SELECT {COLUMNS} FROM waypost.workers WHERE {condition}");
    // One that a hand broke is no worker; `verify` names it.
    Ok(query(tx, &sql, values).await?.iter().filter_map(|cells| row(cells).ok()).collect())
}

/// A line for each that cannot be read.
pub(super) async fn unsound<T: Sql>(tx: &mut T) -> Result<Vec<String>> {
    let sql = format!("SELECT {COLUMNS} FROM waypost.workers ORDER BY name, tenant");
    let told = |cells: &Cells| {
        let error = row(cells).err()?;
        Some(format!("worker {}: its row cannot be used: {error}", cells.name(0)))
    };
    Ok(query(tx, &sql, values![]).await?.iter().filter_map(told).collect())
}

fn row(cells: &Cells) -> Result<WorkerRow> {
    let names = |at: usize| -> Result<Vec<String>> {
        let text: String = cells.get(at)?;
        serde_json::from_str(&text).map_err(|error| StoreError::Unusable(format!("a list of names: {error}")))
    };
    let can = match cells.get::<Option<String>>(4)? {
        Some(_) => Some(Can { playbooks: names(4)?, carried: cells.get::<Option<bool>>(5)? == Some(true) }),
        None => None,
    };
    Ok(WorkerRow {
        name: cells.get(0)?,
        tenant: cells.get(1)?,
        queues: names(2)?,
        lifecycles: names(3)?,
        can,
        only: cells.get(6)?,
        slots: Some(cells.get(7)?),
        version: Some(cells.get(8)?),
        by_claims: cells.get(9)?,
        started_at: Some(cells.get::<Time>(10)?),
        seen_at: Some(cells.get::<Time>(11)?),
        ..WorkerRow::default()
    })
}

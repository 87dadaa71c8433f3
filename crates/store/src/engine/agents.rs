//! Agents. Whether one works is the limit of its runs' concurrency key: nobody claims those of one that does not.

use waypost_kernel::run::Want;

use super::access::audit;
use super::proposals::stored;
use super::tx::{AdminTx, Tx};
use crate::rules::intake::{check_given_name, check_name, check_reason};
use crate::seam::access::Who;
use crate::seam::agents::{AGENT_SLUG, AGENTS_QUEUE, AgentChange, AgentEnd, AgentRow, AgentWrite, no_agent};
use crate::seam::error::Result;
use crate::seam::run::RunRow;
use crate::seam::verbs::Pause;
use crate::statement::{Cells, Sql, query, values};

const AGENT: &str = "SELECT tenant, slug, playbook, concurrency, enabled, paused_by, pause_reason, paused_at, archived_at, \
     reset_at, ends, updated_at FROM waypost.agents";

fn agent(row: &Cells) -> Result<AgentRow> {
    let paused_at = row.get(7)?;
    let pause = |by: Option<String>, reason: Option<String>| Pause {
        by: by.unwrap_or_default(),
        reason: reason.unwrap_or_default(),
        at: paused_at,
    };
    let (by, reason) = (row.get(5)?, row.get(6)?);
    Ok(AgentRow {
        tenant: row.get(0)?,
        definition: AgentWrite {
            slug: row.get(1)?,
            playbook: row.get(2)?,
            concurrency: u32::try_from(row.get::<u64>(3)?).unwrap_or(u32::MAX),
            enabled: row.get(4)?,
        },
        paused: paused_at.map(|_| pause(by, reason)),
        archived_at: row.get(8)?,
        reset_at: row.get(9)?,
        ends: AgentRow::read_ends(&row.get::<String>(10)?),
        updated_at: row.get(11)?,
    })
}

/// By slug, then by tenant.
pub(crate) async fn agents<T: Sql>(tx: &mut T, tenant: &Option<String>) -> Result<Vec<AgentRow>> {
    let sql = format!("{AGENT} WHERE $1 IS NULL OR tenant = $1 ORDER BY slug, tenant");
    query(tx, &sql, values![tenant]).await?.iter().map(agent).collect()
}

/// Nobody else changes it until the transaction ends.
async fn locked<T: Sql>(tx: &mut T, tenant: &str, slug: &str) -> Result<Option<AgentRow>> {
    let sql = format!("{AGENT} WHERE tenant = $1 AND slug = $2 @lock(FOR UPDATE)");
    query(tx, &sql, values![tenant, slug]).await?.first().map(agent).transpose()
}

/// Writes it, and lets as many of its runs be held as it says.
async fn write<T: AdminTx>(tx: &mut T, row: &AgentRow) -> Result<()> {
    let AgentWrite { slug, playbook, concurrency, enabled } = &row.definition;
    let pause = row.paused.as_ref();
    let (by, reason) = (pause.map(|it| it.by.as_str()), pause.map(|it| it.reason.as_str()));
    let sql = "INSERT INTO waypost.agents(tenant, slug, playbook, concurrency, enabled, paused_by, pause_reason, paused_at, \
               archived_at, reset_at, ends, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
               ON CONFLICT (tenant, slug) DO UPDATE SET playbook = excluded.playbook, concurrency = excluded.concurrency, enabled = excluded.enabled, paused_by = excluded.paused_by, \
               pause_reason = excluded.pause_reason, paused_at = excluded.paused_at, archived_at = excluded.archived_at, \
               reset_at = excluded.reset_at, ends = excluded.ends, updated_at = excluded.updated_at";
    let values = values![
        &row.tenant,
        slug,
        playbook,
        *concurrency,
        *enabled,
        by,
        reason,
        pause.and_then(|it| it.at),
        row.archived_at,
        row.reset_at,
        row.ends_text(),
        row.updated_at
    ];
    query(tx, sql, values).await?;
    tx.limit_key(&row.tenant, &row.key(), Some(row.limit())).await
}

/// What stands in a process's own file. Nobody asked for it, so that the audit log has no entry of it; what people paused or
/// archived stays so.
pub(crate) async fn put_agents<T: AdminTx>(
    tx: &mut T,
    tenant: &str,
    agents: &[AgentWrite],
    limit: &Option<u32>,
) -> Result<()> {
    check_given_name("tenant", tenant)?;
    agents.iter().try_for_each(AgentWrite::check)?;
    for definition in agents {
        let known = locked(tx, tenant, &definition.slug).await?;
        if known.as_ref().is_some_and(|known| known.definition == *definition) {
            continue;
        }
        let row = AgentRow { tenant: tenant.to_owned(), ..known.unwrap_or_default() };
        let row = AgentRow { definition: definition.clone(), updated_at: tx.now(), ..row };
        write(tx, &row).await?;
    }
    match limit {
        Some(_) => tx.limit_queue(tenant, AGENTS_QUEUE, *limit).await,
        None => Ok(()),
    }
}

pub(crate) async fn change_agent<T: AdminTx>(
    tx: &mut T,
    change: &AgentChange,
    who: &Who,
) -> Result<AgentRow> {
    check_given_name("tenant", &who.tenant)?;
    check_name("by", &who.by)?;
    check_reason(who.reason.as_deref())?;
    change.check()?;
    let now = tx.now();
    let known = locked(tx, &who.tenant, change.slug()).await?;
    let was = known.clone();
    let mut row = match (known, change) {
        (Some(row), _) => row,
        (None, AgentChange::Put(_)) => AgentRow { tenant: who.tenant.clone(), ..AgentRow::default() },
        (None, _) => return Err(no_agent(change.slug())),
    };
    match change {
        AgentChange::Put(definition) => {
            definition.check()?;
            row.definition = definition.clone();
            row.archived_at = None;
        }
        AgentChange::Pause(_) if row.paused.is_some() => {}
        AgentChange::Pause(_) => {
            let reason = who.reason.clone().unwrap_or_default();
            row.paused = Some(Pause { by: who.by.clone(), reason, at: Some(now) });
        }
        AgentChange::Resume(_) => row.paused = None,
        AgentChange::Reset(_) if row.ends.is_empty() => {}
        AgentChange::Reset(_) => {
            row.ends.clear();
            row.reset_at = Some(now);
        }
        AgentChange::Archive(_) => row.archived_at = row.archived_at.or(Some(now)),
    }
    if was.as_ref() != Some(&row) {
        row.updated_at = now;
        write(tx, &row).await?;
        audit(tx, who, change.action(), row.slug()).await?;
    }
    Ok(row)
}

/// A run has ended: its agent's failures are counted. Any number of times, in any order.
pub(crate) async fn agent_ended<T: AdminTx>(tx: &mut T, run_id: &str) -> Result<()> {
    let Some((tenant, slug, end)) = end_of(tx, run_id).await? else { return Ok(()) };
    let Some(mut row) = locked(tx, &tenant, &slug).await? else { return Ok(()) };
    let was = row.clone();
    row.count(end);
    if row != was {
        write(tx, &row).await?;
    }
    Ok(())
}

async fn end_of<T: Tx>(tx: &mut T, run_id: &str) -> Result<Option<(String, String, AgentEnd)>> {
    // As it was remembered it may not have ended yet.
    Ok(stored(tx, run_id).await?.and_then(|row| end(&row)))
}

/// A cancel is somebody's wish, and no failure of the agent's.
fn end(row: &RunRow) -> Option<(String, String, AgentEnd)> {
    let slug = row.metadata.get(AGENT_SLUG)?.as_str()?.to_owned();
    let (at, outcome) = (row.run.finished_at?, row.outcome()?);
    let is_counted = row.lifecycle.projected && &*row.run.last_command != Want::Cancel.command();
    let end =
        AgentEnd { run_id: row.id().to_owned(), at, failed: outcome != waypost_kernel::Outcome::Succeeded };
    is_counted.then(|| (row.tenant.clone(), slug, end))
}

//! Agents: whether one works says how many of its runs may be held.

use waypost_kernel::Outcome;
use waypost_store::{
    AgentChange, AgentEnd, AgentRow, AgentState, AgentWrite, Pause, Reply, Result, StoreError, Who,
};

use super::MemoryStore;
use super::access::check_audit;
use super::rules::intake::{check_name, check_reason, check_tenant};
use super::state::State;

impl MemoryStore {
    pub(crate) fn agents(&self, tenant: Option<String>) -> Reply<'_, Vec<AgentRow>> {
        self.verb(move |state| {
            let mut rows: Vec<AgentRow> = state.agents.values().cloned().collect();
            rows.retain(|row| tenant.as_ref().is_none_or(|tenant| *tenant == row.tenant));
            rows.sort_by_key(|row| (row.definition.slug.clone(), row.tenant.clone()));
            Ok(rows)
        })
    }

    pub(crate) fn put_agents(
        &self,
        tenant: String,
        agents: Vec<AgentWrite>,
        limit: Option<u32>,
    ) -> Reply<'_, ()> {
        self.verb(move |state| {
            check_tenant(&tenant)?;
            agents.iter().try_for_each(check)?;
            for definition in agents {
                let mut row = state.agent(&tenant, &definition.slug).unwrap_or_default();
                if !row.tenant.is_empty() && row.definition == definition {
                    continue;
                }
                (row.tenant, row.definition, row.updated_at) = (tenant.clone(), definition, state.now);
                state.keep_agent(row);
            }
            if limit.is_some() {
                state.queues.entry((tenant, "agents".into())).or_default().at_most = limit;
            }
            Ok(())
        })
    }

    pub(crate) fn change_agent(&self, change: AgentChange, who: Who) -> Reply<'_, AgentRow> {
        self.verb(move |state| state.change_agent(&change, who))
    }

    pub(crate) fn agent_ended(&self, run_id: String) -> Reply<'_, ()> {
        self.verb(move |state| {
            state.agent_ended(&run_id);
            Ok(())
        })
    }
}

fn check(agent: &AgentWrite) -> Result<()> {
    check_slug(&agent.slug)?;
    if let Some(name) = &agent.playbook {
        check_name("playbook", name)?;
    }
    if agent.concurrency == 0 || agent.concurrency > 1_000 {
        return Err(StoreError::invalid(
            "concurrency",
            format!("{} is none of 1 to 1000", agent.concurrency),
        ));
    }
    Ok(())
}

fn check_slug(slug: &str) -> Result<()> {
    check_name("slug", slug)?;
    let begins_well = slug.chars().next().is_some_and(|first| first.is_ascii_alphanumeric());
    let is_plain = slug.chars().all(|it| it.is_ascii_alphanumeric() || "-_.".contains(it));
    if begins_well && is_plain && slug.len() <= 100 {
        return Ok(());
    }
    let allowed = "at most 100 letters, digits, `-`, `_` and `.`, a letter or digit first";
    Err(StoreError::invalid("slug", format!("is no slug; allowed: {allowed}")))
}

impl State {
    fn agent(&self, tenant: &str, slug: &str) -> Option<AgentRow> {
        self.agents.get(&(tenant.to_owned(), slug.to_owned())).cloned()
    }

    fn keep_agent(&mut self, row: AgentRow) {
        let works = row.state() == AgentState::Active;
        let most = if works { row.definition.concurrency } else { 0 };
        let slug = row.definition.slug.clone();
        self.key_limits.insert((row.tenant.clone(), format!("agent/{slug}")), most);
        self.agents.insert((row.tenant.clone(), slug), row);
        self.writes += 1;
    }

    fn change_agent(&mut self, change: &AgentChange, who: Who) -> Result<AgentRow> {
        let slug = change.slug();
        check_tenant(&who.tenant)?;
        check_name("by", &who.by)?;
        check_reason(who.reason.as_deref())?;
        check_slug(slug)?;
        let was = self.agent(&who.tenant, slug);
        let mut row = match (&was, change) {
            (None, AgentChange::Put(_)) => AgentRow { tenant: who.tenant.clone(), ..AgentRow::default() },
            (None, _) => return Err(StoreError::NotFound { what: "agent", id: slug.to_owned() }),
            (Some(row), _) => row.clone(),
        };
        match change {
            AgentChange::Put(definition) => {
                check(definition)?;
                (row.definition, row.archived_at) = (definition.clone(), None);
            }
            AgentChange::Pause(_) => {
                let reason = who.reason.clone().unwrap_or_default();
                row.paused.get_or_insert(Pause { by: who.by.clone(), reason, at: Some(self.now) });
            }
            AgentChange::Resume(_) => row.paused = None,
            AgentChange::Reset(_) => {
                if !row.ends.is_empty() {
                    row.reset_at = Some(self.now);
                }
                row.ends = Vec::new();
            }
            AgentChange::Archive(_) => _ = row.archived_at.get_or_insert(self.now),
        }
        if was.as_ref() == Some(&row) {
            return Ok(row);
        }
        row.updated_at = self.now;
        check_audit(&who, change.action(), slug)?;
        self.keep_agent(row.clone());
        self.audit(who, change.action(), slug);
        Ok(row)
    }

    fn agent_ended(&mut self, run_id: &str) {
        let Some(run) = self.number_of(run_id).and_then(|number| self.row(number)).ok() else { return };
        let Some(slug) = run.metadata.get("agent_slug").and_then(|slug| slug.as_str()) else { return };
        let (Some(at), Some(outcome)) = (run.run.finished_at, run.outcome()) else { return };
        if !run.lifecycle.projected || &*run.run.last_command == "cancel" {
            return;
        }
        let Some(mut agent) = self.agent(&run.tenant, slug) else { return };
        let is_old = agent.reset_at.is_some_and(|reset_at| at <= reset_at);
        if is_old || agent.ends.iter().any(|end| end.run_id == run_id) {
            return;
        }
        let end = AgentEnd { run_id: run_id.to_owned(), at, failed: outcome != Outcome::Succeeded };
        agent.ends.push(end);
        agent.ends.sort_by_key(|end| (end.at, end.run_id.clone()));
        while agent.ends.len() > 20 {
            agent.ends.remove(0);
        }
        self.keep_agent(agent);
    }
}

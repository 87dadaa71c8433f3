//! Agents.

use serde_json::json;
use waypost_store::{AgentChange, AgentRow, Result, Who, agent_from};

use super::RemoteStore;
use super::ask::{Ask, part};

impl RemoteStore {
    pub(crate) async fn agents(&self, tenant: Option<String>) -> Result<Vec<AgentRow>> {
        let answer = Ask::get("/v1/agents").only_of(tenant).send(self).await?;
        let rows: Option<Vec<AgentRow>> =
            answer["agents"].as_array().into_iter().flatten().map(agent_from).collect();
        rows.ok_or_else(|| self.unread("an agent"))
    }

    pub(crate) async fn change_agent(&self, change: AgentChange, who: Who) -> Result<AgentRow> {
        change.check()?;
        let path = format!("/v1/agents/{}", part(change.slug()));
        let (by, reason) = (&who.by, &who.reason);
        let told = json!({ "by": by, "reason": reason });
        let ask = match &change {
            AgentChange::Put(it) => {
                let body = json!({
                    "playbook": it.playbook,
                    "concurrency": it.concurrency,
                    "enabled": it.enabled,
                    "by": by,
                    "reason": reason,
                });
                Ask::put(path, body)
            }
            AgentChange::Pause(_) => Ask::post(format!("{path}/pause"), told),
            AgentChange::Resume(_) => Ask::post(format!("{path}/resume"), told),
            AgentChange::Reset(_) => Ask::post(format!("{path}/reset"), told),
            AgentChange::Archive(_) => Ask::post(format!("{path}/archive"), told),
        };
        let answer = ask.of(&who.tenant).send(self).await?;
        agent_from(&answer).ok_or_else(|| self.unread("an agent"))
    }
}

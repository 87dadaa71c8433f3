//! Schedules of the server. Planning and firing are its own: it does them beside its database.

use serde_json::{Value, json};
use waypost_store::wire::{execution_from, scope_from, summary_from};
use waypost_store::*;

use super::RemoteStore;
use super::ask::{Ask, part};

fn of(schedule: &str, verb: &str) -> String {
    format!("/v1/schedules/{}{verb}", part(schedule))
}

impl RemoteStore {
    async fn summaries(
        &self,
        path: String,
        tenant: Option<String>,
    ) -> Result<(Vec<ScheduleSummary>, Option<String>)> {
        let answer = Ask::get(path).only_of(tenant).send(self).await?;
        let summaries = answer["schedules"].as_array().into_iter().flatten().map(summary_from);
        let summaries = summaries.collect::<Option<_>>().ok_or_else(|| self.unread("a schedule"))?;
        Ok((summaries, answer["next_cursor"].as_str().map(str::to_owned)))
    }

    async fn summary(&self, name: &str) -> Result<Option<ScheduleSummary>> {
        match Ask::get(of(name, "")).send(self).await {
            Ok(object) => summary_from(&object).map(Some).ok_or_else(|| self.unread("a schedule")),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn execution(&self, object: &Value) -> Result<ExecutionRow> {
        let run = match &object["run"] {
            Value::Null => None,
            run => Some(self.row(run).await?),
        };
        execution_from(object, run).ok_or_else(|| self.unread("an execution"))
    }
}

impl RemoteStore {
    pub(crate) async fn change_schedule(&self, change: ScheduleChange, who: Who) -> Result<ScheduleChanged> {
        let mut body = json!({ "by": who.by, "reason": who.reason });
        match change {
            ScheduleChange::Put(write) => {
                body["definition"] = write.definition;
                // A store takes it as it is.
                body["unknown_playbook"] = true.into();
                body["folder"] = json!(write.folder);
                let answer = Ask::put(of(&write.name, ""), body).only_of(Some(who.tenant)).send(self).await?;
                let put = ScheduleChanged::PUT
                    .into_iter()
                    .find(|put| Some(put.name()) == answer["result"].as_str());
                put.ok_or_else(|| self.unread("an answer"))
            }
            ScheduleChange::Remove(name) => {
                let mut query = format!("?by={}", part(&who.by));
                if let Some(reason) = &who.reason {
                    query.push_str(&format!("&reason={}", part(reason)));
                }
                Ask::delete(of(&name, &query)).only_of(Some(who.tenant)).send(self).await?;
                Ok(ScheduleChanged::Removed)
            }
            ScheduleChange::Pause(name) => {
                Ask::post(of(&name, "/pause"), body).only_of(Some(who.tenant)).send(self).await?;
                Ok(ScheduleChanged::Changed)
            }
            ScheduleChange::Resume(name) => {
                Ask::post(of(&name, "/resume"), body).only_of(Some(who.tenant)).send(self).await?;
                Ok(ScheduleChanged::Changed)
            }
            ScheduleChange::Plan(plans) => {
                body["scopes"] = json!(plans.ids);
                let verb = match &plans.plans {
                    None => "/trigger",
                    Some(times) => {
                        body["plan_times"] = times.iter().map(|time| iso(*time)).collect();
                        body["again"] = json!(plans.again);
                        "/backfill"
                    }
                };
                let answer =
                    Ask::post(of(&plans.schedule, verb), body).only_of(Some(who.tenant)).send(self).await?;
                let added = answer["added"].as_u64().ok_or_else(|| self.unread("a count"))?;
                Ok(ScheduleChanged::Planned(added))
            }
        }
    }

    pub(crate) async fn scopes(&self, schedule: String) -> Result<Vec<ScopeRow>> {
        let answer = Ask::get(of(&schedule, "/scopes")).send(self).await?;
        let scopes = answer["scopes"].as_array().into_iter().flatten().map(scope_from);
        scopes.collect::<Option<_>>().ok_or_else(|| self.unread("a scope"))
    }

    pub(crate) async fn executions(&self, filter: ExecutionFilter) -> Result<ExecutionPage> {
        if let Some(run_id) = &filter.run_id {
            let ask = Ask::get(format!("/v1/executions/{}", part(run_id))).only_of(filter.tenant);
            let answer = ask.send(self).await;
            return match answer {
                Ok(object) => {
                    Ok(ExecutionPage { executions: vec![self.execution(&object).await?], next: None })
                }
                Err(StoreError::NotFound { .. }) => Ok(ExecutionPage::default()),
                Err(error) => Err(error),
            };
        }
        let mut path = format!("/v1/executions?limit={}", filter.limit.clamp(1, 500));
        for (name, value) in [
            ("schedule", &filter.schedule),
            ("scope_kind", &filter.kind),
            ("scope_id", &filter.id),
            ("status", &filter.status),
            ("cursor", &filter.cursor),
        ] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", part(value)));
            }
        }
        let answer = Ask::get(path).only_of(filter.tenant).send(self).await?;
        let mut executions = Vec::new();
        for object in answer["executions"].as_array().into_iter().flatten() {
            executions.push(self.execution(object).await?);
        }
        Ok(ExecutionPage { executions, next: answer["next_cursor"].as_str().map(str::to_owned) })
    }

    pub(crate) async fn schedules(&self, filter: ScheduleFilter) -> Result<Vec<ScheduleSummary>> {
        if let Some(name) = &filter.name {
            return Ok(self.summary(name).await?.into_iter().collect());
        }
        let after = filter.after.map(|name| format!("&cursor={}", part(&name))).unwrap_or_default();
        let path = format!("/v1/schedules?limit={}{after}", filter.limit.clamp(1, 500));
        Ok(self.summaries(path, filter.tenant).await?.0)
    }
}

//! Schedules of the server. Planning and firing are its own: it does them beside its database.

use serde_json::{Value, json};
use waypost_store::wire::{execution_from, look_from, scope_from};
use waypost_store::*;

use super::RemoteStore;
use super::ask::{Ask, part};

macro_rules! at_the_server {
    ($($verb:ident($($kind:ty),*) -> $answer:ty;)*) => {
        $(fn $verb(&self, $(_: $kind),*) -> Reply<'_, $answer> {
            Box::pin(async { self.beside_the_database("firing schedules") })
        })*
    };
}

fn of(schedule: &str, verb: &str) -> String {
    format!("/v1/schedules/{}{verb}", part(schedule))
}

impl RemoteStore {
    async fn looks(&self, path: String) -> Result<(Vec<ScheduleLook>, Option<String>)> {
        let answer = Ask::get(path).send(self).await?;
        let looks = answer["schedules"].as_array().into_iter().flatten().map(look_from);
        let looks = looks.collect::<Option<_>>().ok_or_else(|| self.unread("a schedule"))?;
        Ok((looks, answer["next_cursor"].as_str().map(str::to_owned)))
    }

    async fn look(&self, name: &str) -> Result<Option<ScheduleLook>> {
        match Ask::get(of(name, "")).send(self).await {
            Ok(object) => look_from(&object).map(Some).ok_or_else(|| self.unread("a schedule")),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn all_looks(&self) -> Result<Vec<ScheduleLook>> {
        let mut found = Vec::new();
        let mut cursor = None;
        loop {
            let after = cursor.map(|name: String| format!("&cursor={}", part(&name))).unwrap_or_default();
            let (looks, next) = self.looks(format!("/v1/schedules?limit=500{after}")).await?;
            found.extend(looks);
            cursor = next;
            if cursor.is_none() {
                return Ok(found);
            }
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

impl Schedules for RemoteStore {
    fn put_schedule(&self, write: ScheduleWrite) -> Reply<'_, Put> {
        Box::pin(async move {
            let body = json!({ "definition": write.definition, "folder": write.folder });
            let answer = Ask::put(of(&write.name, ""), body).send(self).await?;
            let put = Put::ALL.into_iter().find(|put| Some(put.name()) == answer["result"].as_str());
            put.ok_or_else(|| self.unread("an answer"))
        })
    }

    fn remove_schedule(&self, name: String) -> Reply<'_, bool> {
        Box::pin(async move {
            match Ask::delete(of(&name, "")).send(self).await {
                Ok(_) => Ok(true),
                Err(StoreError::NotFound { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    fn schedules(&self, name: Option<String>) -> Reply<'_, Vec<ScheduleRow>> {
        Box::pin(async move {
            let looks = match name {
                Some(name) => self.look(&name).await?.into_iter().collect(),
                None => self.all_looks().await?,
            };
            Ok(looks.into_iter().map(|look| look.row).collect())
        })
    }

    fn pause_schedule(&self, name: String, pause: Option<Pause>) -> Reply<'_, ScheduleRow> {
        Box::pin(async move {
            let (verb, body) = match pause {
                Some(pause) => ("/pause", json!({ "reason": pause.reason, "by": pause.by })),
                None => ("/resume", json!({})),
            };
            let answer = Ask::post(of(&name, verb), body).send(self).await?;
            look_from(&answer).map(|look| look.row).ok_or_else(|| self.unread("a schedule"))
        })
    }

    fn scopes(&self, schedule: String) -> Reply<'_, Vec<ScopeRow>> {
        Box::pin(async move {
            let answer = Ask::get(of(&schedule, "/scopes")).send(self).await?;
            let scopes = answer["scopes"].as_array().into_iter().flatten().map(scope_from);
            scopes.collect::<Option<_>>().ok_or_else(|| self.unread("a scope"))
        })
    }

    fn add_plans(&self, plans: ManualPlans) -> Reply<'_, u64> {
        Box::pin(async move {
            let mut body = json!({ "scopes": plans.ids, "by": plans.by });
            let verb = match &plans.plans {
                None => "/trigger",
                Some(times) => {
                    body["plan_times"] = times.iter().map(|time| iso(*time)).collect();
                    "/backfill"
                }
            };
            let answer = Ask::post(of(&plans.schedule, verb), body).send(self).await?;
            answer["added"].as_u64().ok_or_else(|| self.unread("a count"))
        })
    }

    fn executions(&self, filter: ExecutionFilter) -> Reply<'_, ExecutionPage> {
        Box::pin(async move {
            if let Some(run_id) = &filter.run_id {
                let answer = Ask::get(format!("/v1/executions/{}", part(run_id))).send(self).await;
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
            let answer = Ask::get(path).send(self).await?;
            let mut executions = Vec::new();
            for object in answer["executions"].as_array().into_iter().flatten() {
                executions.push(self.execution(object).await?);
            }
            Ok(ExecutionPage { executions, next: answer["next_cursor"].as_str().map(str::to_owned) })
        })
    }

    fn look_at_schedules(&self, filter: ScheduleFilter) -> Reply<'_, Vec<ScheduleLook>> {
        Box::pin(async move {
            if let Some(name) = &filter.name {
                return Ok(self.look(name).await?.into_iter().collect());
            }
            let after = filter.after.map(|name| format!("&cursor={}", part(&name))).unwrap_or_default();
            let path = format!("/v1/schedules?limit={}{after}", filter.limit.clamp(1, 500));
            Ok(self.looks(path).await?.0)
        })
    }

    at_the_server! {
        put_scopes(String, String, Vec<String>) -> ();
        ask_scopes(String) -> Vec<String>;
        due(Mine, usize) -> Due;
        fire(Vec<Firing>) -> Each<Option<Vec<Begun>>>;
        begin(Begin) -> Option<Begun>;
        put_off(Vec<Failed>) -> ();
        look_again(Vec<String>) -> ();
    }
}

//! Commands, looking things up, events, and care.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::text::MAX_PAGE;
use waypost_kernel::{Actor, Code, Lifecycle, Refusal, Span, Time};
use waypost_store::wire::{event_from, key_from, queue_from};
use waypost_store::{
    CommandWrite, CommandedClaim, EventRow, Feed, Filter, KeyFilter, KeyRow, Page, Parts, QueueRow, Result,
    RunRow, Setting, StoreError, Take, Who, parse_time,
};

use super::RemoteStore;
use super::ask::{Ask, of_run, part};

impl RemoteStore {
    pub(crate) async fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Result<Vec<EventRow>> {
        let limit = limit.clamp(1, 500);
        let path = of_run(&run_id, &format!("/events?after={after_seq}&limit={limit}"))?;
        self.events_of(&Ask::get(path).send(self).await?)
    }

    pub(crate) async fn feed(&self, after: Option<u64>, limit: usize) -> Result<Feed> {
        let Some(after) = after else {
            let answer = Ask::get("/v1/events/last").send(self).await?;
            let last = answer["last_position"].as_u64().ok_or_else(|| self.unread("a position"))?;
            return Ok(Feed::after(last, Vec::new()));
        };
        if limit == 0 {
            return Ok(Feed::after(after, Vec::new()));
        }
        let path = format!("/v1/events?after={after}&limit={}", limit.clamp(1, 500));
        Ok(Feed::after(after, self.events_of(&Ask::get(path).send(self).await?)?))
    }

    fn events_of(&self, answer: &Value) -> Result<Vec<EventRow>> {
        let events: Option<Vec<EventRow>> =
            answer["events"].as_array().into_iter().flatten().map(event_from).collect();
        events.ok_or_else(|| self.unread("an event"))
    }

    pub(crate) fn unread(&self, what: &str) -> StoreError {
        StoreError::Unusable(format!("{} sent {what} without its parts", self.base))
    }

    /// Servers take commands of people only: workers and the engine have verbs of their own.
    async fn not_for(&self, actor: Actor, command: CommandWrite) -> Result<Refusal> {
        let row = self.run(command.tenant, command.run_id).await?;
        Ok(Refusal {
            code: Code::ActorNotAllowed,
            message: format!("`{}` is nothing that a {} may ask of a server", command.name, actor.name()),
            current: row.status().into(),
            requested: command.name,
            allowed: waypost_kernel::allowed(&row.lifecycle, &row.run),
            guard: None,
            field: None,
        })
    }

    pub(crate) async fn command(&self, command: CommandWrite) -> Result<RunRow> {
        let body = self.command_body(&command).await?;
        let path = of_run(&command.run_id, &format!("/{}", part(&command.name)))?;
        let ask = Ask::post(path, body).of(&command.tenant).if_seq(command.if_seq);
        self.row(&ask.send(self).await?).await
    }

    pub(crate) async fn command_claimed(&self, command: CommandWrite, take: Take) -> Result<CommandedClaim> {
        let body = json!({
            "command": self.command_body(&command).await?,
            "worker": take.worker,
            "lease_ms": take.lease.map(Span::ms),
            "start": take.start,
        });
        let path = of_run(&command.run_id, &format!("/{}/claimed", part(&command.name)))?;
        let ask = Ask::post(path, body).of(&command.tenant).if_seq(command.if_seq);
        let answer = ask.send(self).await?;
        let claimed = if answer["lease"].is_object() { Some(self.claimed(&answer).await?) } else { None };
        let run = match &claimed {
            Some(claimed) => claimed.run.clone(),
            None => self.row(&answer["run"]).await?,
        };
        Ok(CommandedClaim { run, claimed })
    }

    async fn command_body(&self, command: &CommandWrite) -> Result<Value> {
        let actor = command.actor.unwrap_or(Actor::Operator);
        if !matches!(actor, Actor::Client | Actor::Operator) {
            return Err(self.not_for(actor, command.clone()).await?.into());
        }
        Ok(json!({
            "as": actor.name(),
            "reason": command.reason,
            "force": command.force,
            "graceful": command.graceful,
            "targets": command.items,
            "resolutions": command.resolutions,
            "by": command.by,
        }))
    }

    pub(crate) async fn run(&self, tenant: String, id: String) -> Result<RunRow> {
        let ask = Ask::get(of_run(&id, "")?).of(&tenant);
        self.row(&ask.send(self).await?).await
    }

    /// The server says it with each run that is asked for; only those that came another way are asked for again.
    pub(crate) async fn explain(&self, runs: Vec<RunRow>) -> Result<Vec<RunRow>> {
        let mut explained = Vec::with_capacity(runs.len());
        for row in runs {
            explained.push(match row.waits {
                Some(_) => row,
                None => self.run(row.tenant.clone(), row.id().to_owned()).await?,
            });
        }
        Ok(explained)
    }

    pub(crate) async fn runs(&self, filter: Filter) -> Result<Page> {
        let mut path = format!("/v1/runs?limit={}", filter.limit.clamp(1, 500));
        let asked =
            filter.object().into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
        for (name, value) in asked.chain(filter.cursor.clone().map(|cursor| ("cursor".to_owned(), cursor))) {
            path.push_str(&format!("&{name}={}", part(&value)));
        }
        if filter.include != Parts::NONE {
            path.push_str(&format!("&include={}", filter.include.names()));
        }
        let answer = Ask::get(path).of(&filter.tenant).send(self).await?;
        let mut runs = Vec::new();
        for object in answer["runs"].as_array().into_iter().flatten() {
            runs.push(self.row(object).await?);
        }
        Ok(Page { runs, next: answer["next_cursor"].as_str().map(str::to_owned) })
    }

    pub(crate) async fn queues(&self, tenant: Option<String>) -> Result<Vec<QueueRow>> {
        let answer = Ask::get("/v1/queues").of_only(tenant.as_deref()).send(self).await?;
        let queues: Option<Vec<QueueRow>> =
            answer["queues"].as_array().into_iter().flatten().map(queue_from).collect();
        queues.ok_or_else(|| self.unread("a queue"))
    }

    pub(crate) async fn keys(&self, filter: KeyFilter) -> Result<Vec<KeyRow>> {
        let mut path = format!("/v1/keys?limit={}", filter.limit.clamp(1, MAX_PAGE));
        if let Some((key, tenant)) = &filter.after {
            path.push_str(&format!("&cursor={}", part(&format!("{key}/{tenant}"))));
        }
        let answer = Ask::get(path).of_only(filter.tenant.as_deref()).send(self).await?;
        let keys: Option<Vec<KeyRow>> =
            answer["keys"].as_array().into_iter().flatten().map(key_from).collect();
        keys.ok_or_else(|| self.unread("a key"))
    }

    pub(crate) async fn configure(&self, setting: Setting, who: Who) -> Result<()> {
        let mut body = json!({ "by": who.by, "reason": who.reason });
        let ask = match setting {
            Setting::PauseQueue(queue) => Ask::post(format!("/v1/queues/{}/pause", part(&queue)), body),
            Setting::ResumeQueue(queue) => Ask::post(format!("/v1/queues/{}/resume", part(&queue)), body),
            Setting::QueueLimit(queue, at_most) => {
                body["at_most"] = json!(at_most);
                Ask::put(format!("/v1/queues/{}/limit", part(&queue)), body)
            }
            Setting::KeyLimit(key, at_most) => {
                body["at_most"] = json!(at_most);
                Ask::put(format!("/v1/keys/{}/limit", part(&key)), body)
            }
        };
        ask.of(&who.tenant).send(self).await.map(drop)
    }

    pub(crate) async fn add_lifecycle(&self, text: String, who: Who) -> Result<Arc<Lifecycle>> {
        let ask = Ask::post("/v1/lifecycles", json!({ "source": text })).only_of(Some(who.tenant));
        let answer = ask.send(self).await?;
        let catalog = self.lifecycles().await?;
        let version = answer["version"].as_u64().and_then(|version| version.try_into().ok());
        let added =
            answer["name"].as_str().zip(version).and_then(|(name, version)| catalog.get(name, version));
        added.cloned().ok_or_else(|| self.unread("a lifecycle"))
    }

    pub(crate) async fn now(&self) -> Result<Time> {
        let answer = Ask::get("/v1/clock").send(self).await?;
        answer["now"].as_str().and_then(parse_time).ok_or_else(|| self.unread("its clock"))
    }
}

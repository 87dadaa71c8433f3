//! Commands, looking things up, events, and care.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::{Actor, Catalog, Code, Lifecycle, Refusal, Span, Time};
use waypost_store::wire::{event_from, queue_from};
use waypost_store::{
    Admin, CommandWrite, EventRow, Filter, LimitOf, Log, Page, Pause, Pruned, QueueRow, Reply, Result,
    RunRow, StoreError, Verified, parse_time,
};

use super::RemoteStore;
use super::ask::{Ask, of_run, part};

impl Log for RemoteStore {
    fn events(&self, run_id: String, after_seq: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        Box::pin(async move {
            let limit = limit.clamp(1, 500);
            let path = of_run(&run_id, &format!("/events?after={after_seq}&limit={limit}"))?;
            self.events_of(&Ask::get(path).send(self).await?)
        })
    }

    fn feed(&self, after_position: u64, limit: usize) -> Reply<'_, Vec<EventRow>> {
        Box::pin(async move {
            if limit == 0 {
                return Ok(Vec::new());
            }
            let path = format!("/v1/events?after={after_position}&limit={}", limit.clamp(1, 500));
            self.events_of(&Ask::get(path).send(self).await?)
        })
    }

    fn last_position(&self) -> Reply<'_, u64> {
        Box::pin(async move {
            let answer = Ask::get("/v1/events/last").send(self).await?;
            answer["last_position"].as_u64().ok_or_else(|| self.unread("a position"))
        })
    }
}

impl RemoteStore {
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

    pub(super) fn beside_the_database<T>(&self, what: &str) -> Result<T> {
        let message = format!(
            "{what} needs the database itself: unset WAYPOST_URL and give --database-url where {} runs",
            self.base
        );
        Err(StoreError::Unusable(message))
    }
}

impl Admin for RemoteStore {
    fn command(&self, command: CommandWrite) -> Reply<'_, RunRow> {
        Box::pin(async move {
            let actor = command.actor.unwrap_or(Actor::Operator);
            if !matches!(actor, Actor::Client | Actor::Operator) {
                return Err(self.not_for(actor, command).await?.into());
            }
            let body = json!({
                "as": actor.name(),
                "reason": command.reason,
                "force": command.force,
                "resolved": command.resolved,
                "graceful": command.graceful,
                "targets": command.items,
                "resolutions": command.resolutions,
                "by": command.by,
            });
            let path = of_run(&command.run_id, &format!("/{}", part(&command.name)))?;
            let ask = Ask::post(path, body).of(&command.tenant).if_seq(command.if_seq);
            self.row(&ask.send(self).await?).await
        })
    }

    fn run(&self, tenant: String, id: String) -> Reply<'_, RunRow> {
        Box::pin(async move {
            let ask = Ask::get(of_run(&id, "")?).of(&tenant);
            self.row(&ask.send(self).await?).await
        })
    }

    fn runs(&self, filter: Filter) -> Reply<'_, Page> {
        Box::pin(async move {
            let mut path = format!("/v1/runs?limit={}", filter.limit.clamp(1, 500));
            for (name, value) in [
                ("lifecycle", &filter.lifecycle),
                ("status", &filter.status),
                ("queue", &filter.queue),
                ("q", &filter.text),
                ("cursor", &filter.cursor),
            ] {
                if let Some(value) = value {
                    path.push_str(&format!("&{name}={}", part(value)));
                }
            }
            let answer = Ask::get(path).of(&filter.tenant).send(self).await?;
            let mut runs = Vec::new();
            for object in answer["runs"].as_array().into_iter().flatten() {
                runs.push(self.row(object).await?);
            }
            Ok(Page { runs, next: answer["next_cursor"].as_str().map(str::to_owned) })
        })
    }

    fn queues(&self) -> Reply<'_, Vec<QueueRow>> {
        Box::pin(async move {
            let answer = Ask::get("/v1/queues").send(self).await?;
            let queues: Option<Vec<QueueRow>> =
                answer["queues"].as_array().into_iter().flatten().map(queue_from).collect();
            queues.ok_or_else(|| self.unread("a queue"))
        })
    }

    fn pause_queue(&self, queue: String, pause: Option<Pause>) -> Reply<'_, QueueRow> {
        Box::pin(async move {
            let (verb, body) = match pause {
                Some(pause) => ("pause", json!({ "reason": pause.reason, "by": pause.by })),
                None => ("resume", json!({})),
            };
            let answer = Ask::post(format!("/v1/queues/{}/{verb}", part(&queue)), body).send(self).await?;
            queue_from(&answer).ok_or_else(|| self.unread("a queue"))
        })
    }

    fn limit(&self, what: LimitOf, name: String, at_most: Option<u32>) -> Reply<'_, ()> {
        Box::pin(async move {
            let kind = if what == LimitOf::Queue { "queues" } else { "keys" };
            let path = format!("/v1/{kind}/{}/limit", part(&name));
            Ask::put(path, json!({ "at_most": at_most })).send(self).await.map(drop)
        })
    }

    /// Servers prune by themselves.
    fn prune(&self, _: usize) -> Reply<'_, Pruned> {
        Box::pin(async { Ok(Pruned::default()) })
    }

    fn verify(&self, _: Arc<dyn Fn(u64, u64) + Send + Sync>) -> Reply<'_, Verified> {
        Box::pin(async { self.beside_the_database("verify") })
    }

    fn lifecycles(&self) -> Reply<'_, Catalog> {
        Box::pin(self.learn())
    }

    fn add_lifecycle(&self, text: String) -> Reply<'_, Arc<Lifecycle>> {
        Box::pin(async move {
            let answer = Ask::post("/v1/lifecycles", json!({ "source": text })).send(self).await?;
            let catalog = self.learn().await?;
            let version = answer["version"].as_u64().and_then(|version| version.try_into().ok());
            let added =
                answer["name"].as_str().zip(version).and_then(|(name, version)| catalog.get(name, version));
            added.cloned().ok_or_else(|| self.unread("a lifecycle"))
        })
    }

    fn now(&self) -> Reply<'_, Time> {
        Box::pin(async move {
            let answer = Ask::get("/v1/clock").send(self).await?;
            answer["now"].as_str().and_then(parse_time).ok_or_else(|| self.unread("its clock"))
        })
    }

    fn advance_clock(&self, _: Span) -> Reply<'_, ()> {
        Box::pin(async { self.beside_the_database("moving the clock") })
    }
}

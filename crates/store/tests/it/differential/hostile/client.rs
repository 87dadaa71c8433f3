//! What clients and people send.

use serde_json::{Map, Value, json};
use waypost_kernel::lifecycle::SHIPPED;
use waypost_store::{CommandWrite, Filter, NewItem, NewRun, Pause, Who};
use waypost_testkit::Shorthand;

use super::{Asks, table};
use crate::conformance::kit::{deploy, ending, held_run, item, job, map, new, saying, write_note};
use crate::differential::normal::{normal, queue};
use crate::differential::side::Side;

/// An object with the text as a value and as a name.
pub fn both(text: &str) -> Map<String, Value> {
    map(json!({ "value": text, text: 1 }))
}

fn with_item(item: NewItem) -> NewRun {
    NewRun { items: vec![item], ..new("job") }
}

fn command(run_id: String) -> CommandWrite {
    CommandWrite {
        tenant: "default".into(),
        run_id,
        name: "cancel".into(),
        by: "ann".into(),
        ..CommandWrite::default()
    }
}

fn asked_for() -> Filter {
    Filter { tenant: "default".into(), limit: 3, include: waypost_store::Parts::ALL, ..Filter::default() }
}

impl Side {
    /// Enqueued, and then looked at.
    async fn put(&mut self, new: NewRun) -> Value {
        let tenant = new.tenant.clone();
        let answer = self.store.enqueue(vec![new]).await.unwrap().remove(0);
        let Ok(enqueued) = answer else { return self.answer(answer, |_, _| Value::Null) };
        let id = enqueued.run.id().to_owned();
        self.see(&enqueued.run);
        let found = self.store.run(tenant, id.clone()).await;
        let items = self.store.items(id, None).await.unwrap();
        json!([self.row(found), self.see_items(&items), enqueued.replayed])
    }

    /// A command on a run of its own.
    async fn ordered(&mut self, order: impl FnOnce(CommandWrite) -> CommandWrite) -> Value {
        let enqueued = self.store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap();
        self.see(&enqueued.run);
        let answer = self.store.command(order(command(enqueued.run.id().into()))).await;
        self.row(answer)
    }

    /// What is decided about a run that waits for it.
    async fn resolved(&mut self, resolutions: Map<String, Value>, reason: Option<String>) -> Value {
        let held = held_run(&*self.store, job(&["a"])).await;
        self.see(&held.run);
        let details = map(json!({ "current_blockers": { "h1": {} } }));
        write_note(&*self.store, waypost_store::NoteWrite { details, ..saying(&held, "blocked") })
            .await
            .unwrap();
        let end = waypost_store::FinishWrite { reason: Some("blocked".into()), ..ending(&held, "paused") };
        self.store.finish(vec![end]).await.unwrap().remove(0).unwrap();
        let write = command(held.run.id().into());
        let answer =
            self.store.command(CommandWrite { name: "resume".into(), resolutions, reason, ..write }).await;
        self.row(answer)
    }

    async fn listed(&mut self, filter: Filter) -> Value {
        let page = self.store.runs(filter).await;
        self.answer(page, |side, page| page.runs.iter().map(|row| side.see(row)).collect())
    }

    async fn closed(&mut self, name: String, by: String, reason: String) -> Value {
        let answer = self.store.pause_queue(name.clone(), Some(Pause { by, reason, at: None })).await;
        let _ = self.store.pause_queue(name, None).await;
        self.answer(answer, |_, row| queue(&row))
    }
}

pub fn asks() -> Asks {
    [of_new_runs(), of_commands(), of_lookups()].concat()
}

fn of_new_runs() -> Asks {
    table! {
        "enqueue tenant": |side, text| side.put(NewRun { tenant: text, ..deploy() }).await;
        "enqueue lifecycle": |side, text| side.put(NewRun { lifecycle: text, ..deploy() }).await;
        "enqueue status": |side, text| side.put(NewRun { status: Some(text), ..deploy() }).await;
        "enqueue queue": |side, text| side.put(NewRun { queue: text, ..deploy() }).await;
        "enqueue by": |side, text| side.put(NewRun { by: text, ..deploy() }).await;
        "enqueue concurrency_key": |side, text| side.put(NewRun { concurrency_key: Some(text), ..deploy() }).await;
        "enqueue correlation_id": |side, text| side.put(NewRun { correlation_id: Some(text), ..deploy() }).await;
        "enqueue idempotency_key": |side, text| side.put(NewRun { idempotency_key: Some(text), ..deploy() }).await;
        "enqueue the key again": |side, text| side.put(NewRun { idempotency_key: Some(text), ..deploy() }).await;
        "enqueue title": |side, text| side.put(NewRun { title: Some(text), ..deploy() }).await;
        "enqueue playbook": |side, text| side.put(NewRun { playbook: Some(text), ..deploy() }).await;
        "enqueue parent": |side, text| side.put(NewRun { parent_run_id: Some(text), ..deploy() }).await;
        "enqueue retry_of": |side, text| side.put(NewRun { retry_of: Some(text), ..deploy() }).await;
        "enqueue input": |side, text| side.put(NewRun { input: Value::Object(both(&text)), ..deploy() }).await;
        "enqueue metadata": |side, text| side.put(NewRun { metadata: both(&text), ..deploy() }).await;
        "enqueue details": |side, text| side.put(NewRun { details: both(&text), ..deploy() }).await;
        "enqueue details of the engine's": |side, text| {
            side.put(NewRun { details: map(json!({ "pause_reason": text, "worked": null })), ..deploy() }).await
        };
        "enqueue carried": |side, text| side.put(NewRun { carried: Some(json!([text])), ..deploy() }).await;
        "enqueue item kind": |side, text| side.put(with_item(NewItem { kind: text, ..item("step", "a") })).await;
        "enqueue item key": |side, text| side.put(with_item(item("step", &text))).await;
        "enqueue item name": |side, text| side.put(with_item(NewItem { name: text, ..item("step", "a") })).await;
        "enqueue item status": |side, text| {
            side.put(with_item(NewItem { status: Some(text), ..item("step", "a") })).await
        };
        "enqueue item details": |side, text| {
            side.put(with_item(NewItem { details: both(&text), ..item("step", "a") })).await
        };
    }
}

fn of_commands() -> Asks {
    table! {
        "command tenant": |side, text| side.ordered(|it| CommandWrite { tenant: text, ..it }).await;
        "command run": |side, text| side.ordered(|it| CommandWrite { run_id: text, ..it }).await;
        "command name": |side, text| side.ordered(|it| CommandWrite { name: text, ..it }).await;
        "command by": |side, text| side.ordered(|it| CommandWrite { by: text, ..it }).await;
        "command reason": |side, text| side.ordered(|it| CommandWrite { reason: Some(text), ..it }).await;
        "command reason, no run": |side, text| {
            side.ordered(|it| CommandWrite { reason: Some(text), run_id: "none".into(), ..it }).await
        };
        "command by, another seq": |side, text| {
            side.ordered(|it| CommandWrite { by: text, if_seq: Some(7), ..it }).await
        };
        "command items": |side, text| side.ordered(|it| CommandWrite { items: Some(vec![text]), ..it }).await;
        "command resolutions": |side, text| side.ordered(|it| CommandWrite { resolutions: both(&text), ..it }).await;
        "resume host": |side, text| side.resolved(map(json!({ text: "skip" })), None).await;
        "resume decision": |side, text| side.resolved(map(json!({ "h1": text })), None).await;
        "resume decision within": |side, text| {
            side.resolved(map(json!({ "h1": { "decision": "go", "why": text } })), None).await
        };
        "resume reason": |side, text| side.resolved(map(json!({ "h1": "go" })), Some(text)).await;
    }
}

fn of_lookups() -> Asks {
    table! {
        "run tenant": |side, text| {
            let found = side.store.run(text, "run".into()).await;
            side.row(found)
        };
        "run id": |side, text| {
            let found = side.store.run("default".into(), text).await;
            // Whether several begin so is a matter of which were made.
            side.answer(found, |_, _| Value::Null)
        };
        "runs tenant": |side, text| side.listed(Filter { tenant: text, ..asked_for() }).await;
        "runs lifecycle": |side, text| side.listed(Filter { lifecycle: Some(text), ..asked_for() }).await;
        "runs status": |side, text| side.listed(Filter { status: Some(text), ..asked_for() }).await;
        "runs queue": |side, text| side.listed(Filter { queue: Some(text), ..asked_for() }).await;
        "runs cursor": |side, text| side.listed(Filter { cursor: Some(text), ..asked_for() }).await;
        "items run": |side, text| {
            let found = side.store.items(text, None).await;
            side.answer(found, |side, rows| side.see_items(&rows))
        };
        "events run": |side, text| {
            let found = side.store.events(text, 0, 5).await;
            side.answer(found, |_, events| json!(events.len()))
        };
        "pause queue": |side, text| side.closed(text, "ann".into(), "why".into()).await;
        "pause by": |side, text| side.closed("q".into(), text, "why".into()).await;
        "pause reason": |side, text| side.closed("q".into(), "ann".into(), text).await;
        "limit of a queue": |side, text| {
            let set = side.store.limit_queue(&text, None).await;
            side.answer(set, |_, ()| Value::Null)
        };
        "limit of a key": |side, text| {
            let set = side.store.limit_key(&text, Some(3)).await;
            side.answer(set, |_, ()| Value::Null)
        };
        "lifecycle": |side, text| {
            let added = side.store.add_lifecycle(text, "tests".into()).await;
            side.answer(added, |side, it| normal(json!(&*it.name), &side.ids()))
        };
        "lifecycle tenant": |side, text| {
            let (_, deploy) = SHIPPED.into_iter().find(|(name, _)| *name == "deploy").unwrap();
            let source = deploy.replacen("\"deploy\"", "\"mine\"", 1);
            let added = side.store.add_lifecycle(source, Who::new(&text, "ann", None)).await;
            let added = side.answer(added, |side, it| normal(json!(&*it.name), &side.ids()));
            json!([added, side.put(NewRun { tenant: text, ..new("mine") }).await])
        };
        "a tenant's own name": |side, text| side.put(NewRun { tenant: "t".into(), ..new(&format!("t/{text}")) }).await;
    }
}

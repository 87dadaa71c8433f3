//! What workers and handlers send.

use serde_json::{Value, json};
use waypost_kernel::{Actor, Failure, Span};
use waypost_store::{
    Can, Claim, Claimed, CleanupWrite, FinishWrite, Held, ItemWrite, ItemsWrite, NewRun, NoteWrite, Repeat,
};
use waypost_testkit::Shorthand;

use super::client::both;
use super::{Asks, table};
use crate::conformance::kit::{begun_run, claim_plan, deploy, ending, held, held_run, job, map, new, saying};
use crate::differential::side::Side;

fn claim() -> Claim {
    Claim { worker: "w1".into(), queues: vec!["none".into()], limit: 1, ..Claim::default() }
}

fn step() -> ItemWrite {
    ItemWrite { kind: "step".into(), key: "new".into(), status: "running".into(), ..ItemWrite::default() }
}

impl Side {
    async fn begun(&mut self, new: NewRun) -> Claimed {
        let claimed = begun_run(&*self.store, new).await;
        self.see(&claimed.run);
        claimed
    }

    async fn took_any(&mut self, claim: Claim) -> Value {
        let claims = self.store.claim(claim).await;
        self.answer(claims, |side, claims| claims.iter().map(|it| side.see(&it.run)).collect())
    }

    /// A run by its name and worker.
    async fn took_one(&mut self, worker: String, run_id: Option<String>) -> Value {
        let run = self.store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap().run;
        self.see(&run);
        let claimed =
            self.store.claim_run(run_id.unwrap_or_else(|| run.id().into()), worker.as_str().into()).await;
        self.answer(claimed, |side, it| side.see(&it.run))
    }

    async fn planned(&mut self, by: String, key: String) -> Value {
        let idempotency_key = Some(key);
        let plan = NewRun { by, idempotency_key, actor: Actor::Worker, ..new("cron") };
        let claimed = claim_plan(&*self.store, "hostile", plan, Span::from_seconds(300)).await;
        self.store.remove_schedule("hostile".into()).await.unwrap();
        self.answer(claimed, |side, it| it.map(|it| side.see(&it.run)).into())
    }

    /// Twice: the second may be a repeat.
    async fn said(&mut self, say: impl Fn(NoteWrite) -> NoteWrite) -> Value {
        let claimed = self.begun(deploy()).await;
        let mut answers = Vec::new();
        for _ in 0..2 {
            let noted = self.store.note(vec![say(saying(&claimed, "words"))]).await.unwrap().remove(0);
            answers.push(self.answer(noted, |_, noted| json!([noted.seq, noted.repeated])));
        }
        json!(answers)
    }

    async fn ended(&mut self, status: &str, end: impl FnOnce(FinishWrite) -> FinishWrite) -> Value {
        let claimed = self.begun(job(&["a"])).await;
        let answer = self.store.finish(vec![end(ending(&claimed, status))]).await.unwrap().remove(0);
        self.row(answer)
    }

    async fn owed(&mut self, require_cleanup: impl FnOnce(CleanupWrite) -> CleanupWrite) -> Value {
        let claimed = self.begun(job(&["a"])).await;
        let failing = Some(("failed".to_owned(), Failure::new("CODE", "words")));
        let write = CleanupWrite { held: held(&claimed), by: "w1".into(), required: true, failing };
        let answer = self.store.require_cleanup(require_cleanup(write)).await;
        let answer = self.row(answer);
        // What was recorded is what the run ends with.
        let freed = CleanupWrite { held: held(&claimed), by: "w1".into(), required: false, failing: None };
        let freed = self.store.require_cleanup(freed).await;
        let freed = self.row(freed);
        let end = self.store.finish(vec![ending(&claimed, "failed")]).await.unwrap().remove(0);
        json!([answer, freed, self.row(end)])
    }

    /// Added, and then written again.
    async fn made(&mut self, by: &str, item: ItemWrite) -> Value {
        let claimed = self.begun(job(&["a"])).await;
        let mut answers = Vec::new();
        for _ in 0..2 {
            let items = vec![item.clone()];
            let rows = self.store.put_items(ItemsWrite { held: held(&claimed), by: by.into(), items }).await;
            answers.push(self.answer(rows, |side, rows| side.see_items(&rows)));
        }
        json!(answers)
    }

    async fn held_by_name(&mut self, run_id: String) -> Held {
        let claimed = held_run(&*self.store, deploy()).await;
        self.see(&claimed.run);
        Held { run_id, token: claimed.token }
    }
}

pub fn asks() -> Asks {
    [of_claims(), of_ends(), of_items()].concat()
}

fn of_claims() -> Asks {
    table! {
        "claim worker": |side, text| side.took_any(Claim { worker: text, ..claim() }).await;
        "claim queue": |side, text| side.took_any(Claim { queues: vec![text], ..claim() }).await;
        "claim lifecycle": |side, text| side.took_any(Claim { lifecycles: vec![text], ..claim() }).await;
        "claim tenant": |side, text| side.took_any(Claim { tenant: Some(text), ..claim() }).await;
        "claim playbook": |side, text| {
            let can = Some(Can { playbooks: vec![text], carried: false });
            side.took_any(Claim { can, ..claim() }).await
        };
        "claim one, worker": |side, text| side.took_one(text, None).await;
        "claim one, run": |side, text| side.took_one("w1".into(), Some(text)).await;
        "claim plan by": |side, text| side.planned(text.clone(), format!("by {}", text.len())).await;
        "claim plan key": |side, text| side.planned("w1".into(), text).await;
        "note by": |side, text| side.said(|it| NoteWrite { by: text.clone(), ..it }).await;
        "note message": |side, text| side.said(|it| NoteWrite { message: text.clone(), ..it }).await;
        "note message in a window": |side, text| {
            side.said(|it| NoteWrite { message: text.clone(), repeat: Repeat::Window, ..it }).await
        };
        "note payload": |side, text| {
            side.said(|it| NoteWrite { payload: Value::Object(both(&text)), repeat: Repeat::Window, ..it }).await
        };
        "note key": |side, text| side.said(|it| NoteWrite { repeat: Repeat::Key(text.clone()), ..it }).await;
        "note key, no run": |side, text| {
            let held = side.held_by_name("none".into()).await;
            side.said(|it| NoteWrite { held: held.clone(), repeat: Repeat::Key(text.clone()), ..it }).await
        };
        "note metadata": |side, text| side.said(|it| NoteWrite { metadata: both(&text), ..it }).await;
        "note details": |side, text| side.said(|it| NoteWrite { details: both(&text), ..it }).await;
        "note details of the engine's": |side, text| {
            let details = map(json!({ "pause_reason": text, "console_log": [text], "worked": text }));
            side.said(|it| NoteWrite { details: details.clone(), ..it }).await
        };
        "note run": |side, text| {
            let held = side.held_by_name(text).await;
            side.said(|it| NoteWrite { held: held.clone(), ..it }).await
        };
    }
}

fn of_ends() -> Asks {
    table! {
        "finish run": |side, text| side.ended("completed", |it| FinishWrite { run_id: text, ..it }).await;
        "finish by": |side, text| side.ended("completed", |it| FinishWrite { by: text, ..it }).await;
        "finish status": |side, text| side.ended("completed", |it| FinishWrite { status: text, ..it }).await;
        "finish code": |side, text| {
            side.ended("failed", |it| FinishWrite { failure: Some(Failure::new(&text, "words")), ..it }).await
        };
        "finish message": |side, text| {
            side.ended("failed", |it| FinishWrite { failure: Some(Failure::new("CODE", &text)), ..it }).await
        };
        "finish reason": |side, text| side.ended("paused", |it| FinishWrite { reason: Some(text), ..it }).await;
        "finish metadata": |side, text| {
            side.ended("completed", |it| FinishWrite { metadata: both(&text), ..it }).await
        };
        "finish details": |side, text| {
            side.ended("completed", |it| FinishWrite { details: both(&text), ..it }).await
        };
        "finish decisions": |side, text| {
            let details = map(json!({ "maintenance_blocker_resolutions": { "h1": text } }));
            side.ended("completed", |it| FinishWrite { details, ..it }).await
        };
        "require-cleanup by": |side, text| side.owed(|it| CleanupWrite { by: text, ..it }).await;
        "require-cleanup run": |side, text| {
            side.owed(|it| CleanupWrite { held: Held { run_id: text, ..it.held.clone() }, ..it }).await
        };
        "require-cleanup status": |side, text| {
            side.owed(|it| CleanupWrite { failing: Some((text, Failure::new("CODE", "words"))), ..it }).await
        };
        "require-cleanup code": |side, text| {
            side.owed(|it| CleanupWrite { failing: Some(("failed".into(), Failure::new(&text, "words"))), ..it }).await
        };
        "require-cleanup message": |side, text| {
            side.owed(|it| CleanupWrite { failing: Some(("failed".into(), Failure::new("CODE", &text))), ..it }).await
        };
        "release run": |side, text| {
            let held = side.held_by_name(text).await;
            let answer = side.store.release(vec![held.into()]).await.unwrap().remove(0);
            side.row(answer)
        };
        "release of a worker": |side, text| {
            let Ok(claimed) = side.store.claim_run("none".into(), text.as_str().into()).await else { return Value::Null };
            let answer = side.store.release(vec![held(&claimed).into()]).await.unwrap().remove(0);
            side.row(answer)
        };
        "renew run": |side, text| {
            let held = side.held_by_name(text).await;
            let answer = side.store.renew(vec![held]).await.unwrap().remove(0);
            side.answer(answer, |_, renewed| json!(renewed.intent))
        };
        "sweep by": |side, text| {
            let swept = side.store.sweep(text, 0).await;
            side.answer(swept, |_, swept| json!(swept.moved.len()))
        };
    }
}

fn of_items() -> Asks {
    table! {
        "items by": |side, text| side.made(&text, step()).await;
        "items kind": |side, text| side.made("w1", ItemWrite { kind: text, ..step() }).await;
        "items key": |side, text| side.made("w1", ItemWrite { key: text, ..step() }).await;
        "items name": |side, text| side.made("w1", ItemWrite { name: Some(text), ..step() }).await;
        "items status": |side, text| side.made("w1", ItemWrite { status: text, ..step() }).await;
        "items command": |side, text| side.made("w1", ItemWrite { command: Some(text), ..step() }).await;
        "items code": |side, text| {
            let failure = Some(Failure::new(&text, "words"));
            side.made("w1", ItemWrite { failure, status: "failed".into(), ..step() }).await
        };
        "items message": |side, text| {
            let failure = Some(Failure::new("CODE", &text));
            side.made("w1", ItemWrite { failure, status: "failed".into(), ..step() }).await
        };
        "items output": |side, text| side.made("w1", ItemWrite { output: Some(Value::Object(both(&text))), ..step() }).await;
        "items details": |side, text| side.made("w1", ItemWrite { details: both(&text), ..step() }).await;
        "finish item key": |side, text| {
            side.ended("completed", |it| FinishWrite { items: vec![ItemWrite { key: text, ..step() }], ..it }).await
        };
        "finish item message": |side, text| {
            let failure = Some(Failure::new("CODE", &text));
            let item = ItemWrite { failure, status: "failed".into(), ..step() };
            side.ended("failed", |it| FinishWrite { items: vec![item], ..it }).await
        };
        "finish item output": |side, text| {
            let item = ItemWrite { output: Some(json!(text)), status: "completed".into(), ..step() };
            side.ended("completed", |it| FinishWrite { items: vec![item], ..it }).await
        };
    }
}

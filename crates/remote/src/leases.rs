//! What the holder of a run does with it, and the run's parts.

use futures_util::future::join_all;
use serde_json::{Value, json};
use waypost_kernel::{Failure, Span, Token};
use waypost_store::codec::token_text;
use waypost_store::wire::item_from;
use waypost_store::{
    Each, FinishWrite, Held, ItemRow, ItemWrite, Items, ItemsWrite, Leases, NoteWrite, Noted, OweWrite,
    Renewed, Repeat, Reply, Result, RunRow, StoreError, Swept, parse_time,
};

use super::RemoteStore;
use super::ask::{Ask, of_run, part};

/// Stands for a token that was left out: no lease has it.
const NOBODYS: Token = Token(0);

fn code(failure: Option<&Failure>) -> Option<&str> {
    failure.map(|failure| &*failure.code)
}

fn words(failure: Option<&Failure>) -> Option<&str> {
    failure.map(|failure| &*failure.message)
}

impl Leases for RemoteStore {
    fn renew(&self, leases: Vec<Held>) -> Reply<'_, Each<Renewed>> {
        Box::pin(async move {
            let answers = join_all(leases.iter().map(|held| self.renew_one(held))).await;
            whole(answers)
        })
    }

    /// One after the other: their order is the log's.
    fn note(&self, notes: Vec<NoteWrite>) -> Reply<'_, Each<Noted>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for note in notes {
                answers.push(self.note_one(note).await);
            }
            whole(answers)
        })
    }

    fn finish(&self, finishes: Vec<FinishWrite>) -> Reply<'_, Each<RunRow>> {
        Box::pin(async move {
            let answers = join_all(finishes.into_iter().map(|finish| self.finish_one(finish))).await;
            whole(answers)
        })
    }

    fn release(&self, leases: Vec<Held>) -> Reply<'_, Each<RunRow>> {
        Box::pin(async move {
            let one = |held: Held| async move {
                let body = json!({ "lease_token": token_text(held.token) });
                let answer = Ask::post(of_run(&held.run_id, "/release")?, body).send(self).await?;
                self.row(&answer).await
            };
            whole(join_all(leases.into_iter().map(one)).await)
        })
    }

    fn owe(&self, owe: OweWrite) -> Reply<'_, RunRow> {
        Box::pin(async move {
            let (status, failure) = owe.failing.unzip();
            let body = json!({
                "lease_token": token_text(owe.held.token),
                "owes": owe.owes,
                "failing_status": status,
                "error_code": code(failure.as_ref()),
                "error_msg": words(failure.as_ref()),
                "by": owe.by,
            });
            self.row(&Ask::post(of_run(&owe.held.run_id, "/owe")?, body).send(self).await?).await
        })
    }

    /// Servers sweep by themselves.
    fn sweep(&self, _: String, _: usize) -> Reply<'_, Swept> {
        Box::pin(async { Ok(Swept::default()) })
    }
}

/// A server that is away is away for all of them.
fn whole<T>(answers: Vec<Result<T>>) -> Result<Each<T>> {
    let away = |answer: &Result<T>| matches!(answer, Err(StoreError::Unavailable(_)));
    if !answers.is_empty() && answers.iter().all(away) {
        let first = answers.into_iter().find_map(Result::err);
        return Err(first.unwrap_or_else(|| StoreError::Unavailable(String::new())));
    }
    Ok(answers)
}

impl RemoteStore {
    async fn renew_one(&self, held: &Held) -> Result<Renewed> {
        let body = json!({ "lease_token": token_text(held.token) });
        let answer = Ask::post(of_run(&held.run_id, "/heartbeat")?, body).send(self).await?;
        let time = |name: &str| answer[name].as_str().and_then(parse_time);
        let (Some(expires_at), Some(now)) = (time("expires_at"), time("now")) else {
            return Err(StoreError::Unusable(format!("{} sent a heartbeat without its times", self.base)));
        };
        let intent = ["cancel", "pause", "fail"].into_iter().find(|known| answer["intent"] == **known);
        Ok(Renewed { expires_at, now, intent, graceful: answer["graceful"] == true })
    }

    async fn note_one(&self, note: NoteWrite) -> Result<Noted> {
        let (key, once) = match note.repeat {
            Repeat::Key(key) => (Some(key), None),
            Repeat::Never => (None, Some("never")),
            Repeat::Window => (None, Some("window")),
        };
        let body = json!({
            "lease_token": token_text(note.held.token),
            "level": note.level.name(),
            "message": note.message,
            "payload": note.payload,
            "key": key,
            "once": once,
            "metadata": note.metadata,
            "details": note.details,
            "by": note.by,
        });
        let answer = Ask::post(of_run(&note.held.run_id, "/events")?, body).send(self).await?;
        Ok(Noted {
            event_id: answer["event_id"].as_str().unwrap_or_default().to_owned(),
            seq: answer["seq"].as_u64().unwrap_or_default(),
            repeated: answer["repeated"] == true,
        })
    }

    async fn finish_one(&self, finish: FinishWrite) -> Result<RunRow> {
        let body = json!({
            "lease_token": token_text(finish.token.unwrap_or(NOBODYS)),
            "status": finish.status,
            "error_code": code(finish.failure.as_ref()),
            "error_msg": words(finish.failure.as_ref()),
            "reason": finish.reason,
            "retry_in_ms": finish.retry_in.map(Span::ms),
            "metadata": finish.metadata,
            "details": finish.details,
            "items": finish.items.iter().map(item).collect::<Vec<_>>(),
            "by": finish.by,
        });
        self.row(&Ask::post(of_run(&finish.run_id, "/finish")?, body).send(self).await?).await
    }

    fn items_of(&self, answer: &Value) -> Result<Vec<ItemRow>> {
        let objects = answer["items"].as_array().into_iter().flatten();
        let items: Option<Vec<ItemRow>> = objects.map(item_from).collect();
        items.ok_or_else(|| StoreError::Unusable(format!("{} sent an item without its parts", self.base)))
    }
}

impl Items for RemoteStore {
    fn put_items(&self, write: ItemsWrite) -> Reply<'_, Vec<ItemRow>> {
        Box::pin(async move {
            let body = json!({
                "lease_token": token_text(write.held.token),
                "items": write.items.iter().map(item).collect::<Vec<_>>(),
                "by": write.by,
            });
            self.items_of(&Ask::post(of_run(&write.held.run_id, "/items")?, body).send(self).await?)
        })
    }

    fn items(&self, run_id: String, kind: Option<String>) -> Reply<'_, Vec<ItemRow>> {
        Box::pin(async move {
            let query = kind.map(|kind| format!("?kind={}", part(&kind))).unwrap_or_default();
            self.items_of(&Ask::get(format!("{}{query}", of_run(&run_id, "/items")?)).send(self).await?)
        })
    }
}

fn item(item: &ItemWrite) -> Value {
    let mut object = json!({
        "kind": item.kind,
        "key": item.key,
        "name": item.name,
        "max_retries": item.max_retries,
        "reruns": item.reruns,
        "role": item.role.name(),
        "status": item.status,
        "command": item.command,
        "progress": item.progress,
        "error_code": code(item.failure.as_ref()),
        "error_msg": words(item.failure.as_ref()),
        "retry_in_ms": item.retry_in.map(Span::ms),
        "answered": item.answered,
        "try_no": item.try_no,
        "details": item.details,
    });
    if let Some(output) = &item.output {
        object["output"] = output.clone();
    }
    object
}

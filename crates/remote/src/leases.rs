//! What the holder of a run does with it, and the run's parts.

use futures_util::future::join_all;
use serde_json::{Value, json};
use waypost_kernel::text::{MAX_ERROR_CHARS, MAX_NAME_BYTES, MAX_PAGE, clean_chars, clean_line};
use waypost_kernel::{Failure, Span, Token};
use waypost_store::codec::token_text;
use waypost_store::wire::{error_from, item_from};
use waypost_store::{
    CleanupWrite, Each, FinishWrite, Held, ItemFilter, ItemPage, ItemRow, ItemWrite, ItemsWrite, NoteWrite,
    Noted, ReleaseWrite, Renewed, Repeat, Result, RunRow, StoreError, iso, parse_time,
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

impl RemoteStore {
    pub(crate) async fn renew(&self, leases: Vec<Held>) -> Result<Each<Renewed>> {
        let entries = leases.iter().map(|held| entry(held, json!({}))).collect();
        let mut answers = Vec::new();
        for answer in self.in_batches("/v1/heartbeats", "leases", "leases", entries).await? {
            answers.push(answer.and_then(|answer| self.renewed(&answer)));
        }
        Ok(answers)
    }

    pub(crate) async fn note(&self, notes: Vec<NoteWrite>) -> Result<Each<Noted>> {
        let entries = notes.into_iter().map(note).collect();
        let answers = self.in_batches("/v1/events", "events", "events", entries).await?;
        Ok(answers.into_iter().map(|answer| answer.map(|answer| noted(&answer))).collect())
    }

    pub(crate) async fn finish(&self, finishes: Vec<FinishWrite>) -> Result<Each<RunRow>> {
        let entries = finishes.into_iter().map(finish).collect();
        let mut answers = Vec::new();
        for answer in self.in_batches("/v1/finishes", "finishes", "runs", entries).await? {
            answers.push(match answer {
                Ok(answer) => self.row(&answer["run"]).await,
                Err(error) => Err(error),
            });
        }
        Ok(answers)
    }

    pub(crate) async fn release(&self, leases: Vec<ReleaseWrite>) -> Result<Each<RunRow>> {
        let one = |write: ReleaseWrite| async move {
            let ReleaseWrite { held, wait } = write;
            let mut body = json!({ "lease_token": token_text(held.token) });
            if let Some(wait) = wait {
                body["until"] = json!(iso(wait.until));
                body["reason"] = json!(wait.reason);
            }
            let answer = Ask::post(of_run(&held.run_id, "/release")?, body).send(self).await?;
            self.row(&answer).await
        };
        whole(join_all(leases.into_iter().map(one)).await)
    }

    pub(crate) async fn require_cleanup(&self, write: CleanupWrite) -> Result<RunRow> {
        let (status, failure) = write.failing.unzip();
        // The route takes a few words: what the store would cut is not sent.
        let failure = failure.map(|failure| {
            let code = clean_line(failure.code.as_bytes(), MAX_NAME_BYTES).text;
            Failure::new(&code, &clean_chars(&failure.message, MAX_ERROR_CHARS).text)
        });
        let body = json!({
            "lease_token": token_text(write.held.token),
            "required": write.required,
            "failing_status": status,
            "error_code": code(failure.as_ref()),
            "error_msg": words(failure.as_ref()),
            "by": clean_line(write.by.as_bytes(), MAX_NAME_BYTES).text,
        });
        self.row(&Ask::post(of_run(&write.held.run_id, "/require-cleanup")?, body).send(self).await?).await
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
    /// Asks for all of them in as few requests as the server takes, in their order. An answer each: a problem is that entry's
    /// own. What the server does not take as a whole is asked for one by one.
    async fn in_batches(
        &self,
        path: &str,
        asked: &str,
        answered: &str,
        mut entries: Vec<Result<Value>>,
    ) -> Result<Each<Value>> {
        let mut answers = Vec::with_capacity(entries.len());
        while !entries.is_empty() {
            let rest = entries.split_off(fitting(&entries));
            answers.extend(self.batch(path, asked, answered, std::mem::replace(&mut entries, rest)).await?);
        }
        Ok(answers)
    }

    async fn batch(
        &self,
        path: &str,
        asked: &str,
        answered: &str,
        entries: Vec<Result<Value>>,
    ) -> Result<Each<Value>> {
        let bodies: Vec<&Value> = entries.iter().filter_map(|entry| entry.as_ref().ok()).collect();
        let count = bodies.len();
        let sent = match count {
            0 => Ok(Value::Null),
            _ => Ask::post(path, json!({ asked: bodies })).send(self).await,
        };
        match sent {
            Ok(mut answer) => {
                let mut given =
                    answer[answered].as_array_mut().map(std::mem::take).unwrap_or_default().into_iter();
                let missing = || StoreError::Unusable(format!("{} left out an answer", self.base));
                let own =
                    |entry: Result<Value>| entry.and_then(|_| problem_of(given.next().ok_or_else(missing)?));
                Ok(entries.into_iter().map(own).collect())
            }
            Err(error @ StoreError::Invalid { .. }) if count == 1 => {
                Ok(entries.into_iter().map(|entry| entry.and(Err(error.clone()))).collect())
            }
            Err(StoreError::Invalid { .. }) => {
                let mut answers = Vec::with_capacity(entries.len());
                for entry in entries {
                    answers.extend(Box::pin(self.batch(path, asked, answered, vec![entry])).await?);
                }
                Ok(answers)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn renewed(&self, answer: &Value) -> Result<Renewed> {
        let time = |name: &str| answer[name].as_str().and_then(parse_time);
        let (Some(expires_at), Some(now)) = (time("expires_at"), time("now")) else {
            return Err(StoreError::Unusable(format!("{} sent a heartbeat without its times", self.base)));
        };
        let intent = ["cancel", "pause", "fail"].into_iter().find(|known| answer["intent"] == **known);
        Ok(Renewed { expires_at, now, intent, graceful: answer["graceful"] == true })
    }

    pub(crate) fn items_of(&self, answer: &Value) -> Result<Vec<ItemRow>> {
        let objects = answer["items"].as_array().into_iter().flatten();
        let items: Option<Vec<ItemRow>> = objects.map(item_from).collect();
        items.ok_or_else(|| StoreError::Unusable(format!("{} sent an item without its parts", self.base)))
    }
}

impl RemoteStore {
    pub(crate) async fn put_items(&self, write: ItemsWrite) -> Result<Vec<ItemRow>> {
        let body = json!({
            "lease_token": token_text(write.held.token),
            "items": write.items.iter().map(item).collect::<Vec<_>>(),
            "by": write.by,
        });
        self.items_of(&Ask::post(of_run(&write.held.run_id, "/items")?, body).send(self).await?)
    }

    pub(crate) async fn items(&self, run_id: String, kind: Option<String>) -> Result<Vec<ItemRow>> {
        let mut filter = ItemFilter { run_id, kind, limit: MAX_PAGE, ..ItemFilter::default() };
        let mut items = Vec::new();
        loop {
            let page = self.item_page(filter.clone()).await?;
            items.extend(page.items);
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                return Ok(items);
            }
        }
    }

    pub(crate) async fn item_page(&self, filter: ItemFilter) -> Result<ItemPage> {
        let mut path = of_run(&filter.run_id, &format!("/items?limit={}", filter.limit.clamp(1, MAX_PAGE)))?;
        for (name, value) in [
            ("kind", &filter.kind),
            ("key", &filter.key),
            ("status", &filter.status),
            ("error_code", &filter.code),
            ("cursor", &filter.cursor),
        ] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", part(value)));
            }
        }
        let answer = Ask::get(path).send(self).await?;
        Ok(ItemPage {
            items: self.items_of(&answer)?,
            next: answer["next_cursor"].as_str().map(str::to_owned),
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

/// How many of them one request has room for: the server takes 1,000 entries and 16 MiB, and a single entry however large.
fn fitting(entries: &[Result<Value>]) -> usize {
    const MOST: usize = 500;
    const MOST_BYTES: usize = 8 * 1024 * 1024;
    let mut bytes = 0;
    let fits = |entry: &&Result<Value>| {
        bytes += entry.as_ref().map_or(0, |entry| entry.to_string().len());
        bytes <= MOST_BYTES
    };
    entries.iter().take(MOST).take_while(fits).count().max(1)
}

/// What is said of one run among others. An id that nobody could have made is not sent.
fn entry(held: &Held, mut said: Value) -> Result<Value> {
    if waypost_kernel::id::check_id(&held.run_id).is_err() {
        return Err(StoreError::no_run(&held.run_id));
    }
    said["run_id"] = json!(held.run_id);
    said["lease_token"] = json!(token_text(held.token));
    Ok(said)
}

fn problem_of(answer: Value) -> Result<Value> {
    let Some(problem) = answer.get("error") else { return Ok(answer) };
    let unread = || StoreError::Unavailable(problem["detail"].as_str().unwrap_or_default().to_owned());
    Err(error_from(problem).unwrap_or_else(unread))
}

fn note(note: NoteWrite) -> Result<Value> {
    let (key, once) = match note.repeat {
        Repeat::Key(key) => (Some(key), None),
        Repeat::Never => (None, Some("never")),
        Repeat::Window => (None, Some("window")),
    };
    let said = json!({
        "level": note.level.name(),
        "message": note.message,
        "payload": note.payload,
        "key": key,
        "once": once,
        "metadata": note.metadata,
        "details": note.details,
        "by": note.by,
    });
    entry(&note.held, said)
}

fn noted(answer: &Value) -> Noted {
    Noted {
        event_id: answer["event_id"].as_str().unwrap_or_default().to_owned(),
        seq: answer["seq"].as_u64().unwrap_or_default(),
        repeated: answer["repeated"] == true,
    }
}

fn finish(finish: FinishWrite) -> Result<Value> {
    let said = json!({
        "status": finish.status,
        "error_code": code(finish.failure.as_ref()),
        "error_msg": words(finish.failure.as_ref()),
        "reason": finish.reason,
        "retry_in_ms": finish.retry_in.map(Span::ms),
        "goes_on_at": finish.goes_on_at.map(iso),
        "metadata": finish.metadata,
        "details": finish.details,
        "items": finish.items.iter().map(item).collect::<Vec<_>>(),
        "by": finish.by,
    });
    entry(&Held { run_id: finish.run_id, token: finish.token.unwrap_or(NOBODYS) }, said)
}

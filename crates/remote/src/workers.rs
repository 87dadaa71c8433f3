//! Who works.

use serde_json::{Value, json};
use waypost_store::{Can, Result, WorkerBeat, WorkerRow, parse_time};

use super::RemoteStore;
use super::ask::{Ask, part};

impl RemoteStore {
    /// What a worker's claims tell, the server sees by itself.
    pub(crate) async fn beat(&self, worker: WorkerBeat) -> Result<()> {
        if worker.by_claims {
            return Ok(());
        }
        let body = json!({
            "name": worker.name,
            "queues": worker.queues,
            "lifecycles": worker.lifecycles,
            "playbooks": worker.can.as_ref().map(|can| &can.playbooks),
            "embedded": worker.can.as_ref().map(|can| can.carried),
            "only": worker.only,
            "slots": worker.slots,
            "version": worker.version,
        });
        Ask::post("/v1/workers", body).only_of(worker.tenant).send(self).await.map(drop)
    }

    pub(crate) async fn remove_worker(&self, name: String, tenant: Option<String>) -> Result<()> {
        Ask::delete(format!("/v1/workers/{}", part(&name))).only_of(tenant).send(self).await.map(drop)
    }

    pub(crate) async fn workers(&self, tenant: Option<String>) -> Result<Vec<WorkerRow>> {
        self.worker_objects(tenant, "")
            .await?
            .iter()
            .map(|it| worker_from(it).ok_or_else(|| self.unread("a worker")))
            .collect()
    }

    /// All pages. `more` is what else is asked for.
    pub(crate) async fn worker_objects(&self, tenant: Option<String>, more: &str) -> Result<Vec<Value>> {
        let mut objects = Vec::new();
        let mut path = format!("/v1/workers?limit=500{more}");
        loop {
            let mut answer = Ask::get(path).of_only(tenant.as_deref()).send(self).await?;
            if let Value::Array(page) = answer["workers"].take() {
                objects.extend(page);
            }
            let Some(next) = answer["next_cursor"].as_str() else { return Ok(objects) };
            path = format!("/v1/workers?limit=500{more}&cursor={}", part(next));
        }
    }
}

fn worker_from(object: &Value) -> Option<WorkerRow> {
    let text = |name: &str| object[name].as_str().map(str::to_owned);
    let time = |name: &str| parse_time(object[name].as_str()?);
    let names = |name: &str| -> Vec<String> {
        let list = object[name].as_array().into_iter().flatten();
        list.filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    let says = !object["playbooks"].is_null() || !object["embedded"].is_null();
    let can = || Can { playbooks: names("playbooks"), carried: object["embedded"] == true };
    Some(WorkerRow {
        name: text("name")?,
        tenant: text("tenant")?,
        queues: names("queues"),
        lifecycles: names("lifecycles"),
        can: says.then(can),
        only: text("only"),
        slots: object["slots"].as_u64(),
        busy: object["busy"].as_u64().unwrap_or_default(),
        stale_after: time("stale_after"),
        version: text("version"),
        started_at: time("started_at"),
        seen_at: time("seen_at"),
        by_claims: false,
    })
}

//! Playbooks that the server and its workers have.

use serde_json::{Value, json};
use waypost_store::{OfferedPlaybook, PlaybookFilter, PlaybookRow, Result, parse_time};

use super::RemoteStore;
use super::ask::{Ask, part};

impl RemoteStore {
    /// Whose they are is said by the token, or by the tenant that was named.
    pub(crate) async fn offer_playbooks(&self, playbooks: Vec<OfferedPlaybook>) -> Result<()> {
        let Some(by) = playbooks.first().map(|first| first.by.clone()) else { return Ok(()) };
        let object = |it: &OfferedPlaybook| json!({ "name": it.name, "file": it.file, "text": it.text });
        let objects: Vec<Value> = playbooks.iter().map(object).collect();
        Ask::post("/v1/playbooks", json!({ "playbooks": objects, "by": by })).send(self).await.map(drop)
    }

    pub(crate) async fn playbooks(&self, filter: PlaybookFilter) -> Result<Vec<PlaybookRow>> {
        let mut path = format!("/v1/playbooks?text={}&versions={}", !filter.names_only, filter.all_versions);
        for (name, value) in [("name", &filter.name), ("hash", &filter.hash)] {
            path.extend(value.as_ref().map(|value| format!("&{name}={}", part(value))));
        }
        let ask = Ask::get(path);
        let ask = match &filter.tenant {
            Some(tenant) => ask.of(tenant),
            None => ask,
        };
        let answer = ask.send(self).await?;
        Ok(answer["playbooks"].as_array().into_iter().flatten().filter_map(row_from).collect())
    }
}

fn row_from(object: &Value) -> Option<PlaybookRow> {
    let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
    let offered = OfferedPlaybook {
        tenant: text("tenant"),
        name: text("name"),
        hash: text("hash"),
        file: text("file"),
        text: text("text"),
        by: text("by"),
    };
    Some(PlaybookRow { offered, offered_at: parse_time(object["offered_at"].as_str()?)? })
}

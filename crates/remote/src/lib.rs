//! A store behind a Waypost server: the verbs of `waypost_store`, asked over HTTP, so that workers and the command line work
//! the same with `WAYPOST_URL` as with a database.
//!
//! What only a server does by itself (sweeping, pruning) is nothing here; what needs the database itself (`verify`, the
//! clock of tests) is refused with words. Nothing is ever done in another place instead.

mod access;
mod admin;
mod ask;
mod deeds;
mod leases;
mod looks;
mod queue;
mod schedules;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::Client;
use serde_json::Value;
use waypost_kernel::Catalog;
use waypost_store::wire::row_from;
use waypost_store::{Result, RunRow, StoreError};

use ask::Ask;

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(40);

#[derive(Clone)]
pub struct RemoteStore {
    client: Client,
    /// Without a slash at its end.
    base: Arc<str>,
    token: Option<Arc<str>>,
    known: Arc<RwLock<Catalog>>,
}

impl std::fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteStore").field("base", &self.base).finish_non_exhaustive()
    }
}

impl RemoteStore {
    /// Asks the server what lifecycles it has: a server that is not there is told of at once.
    pub async fn open(url: &str, token: Option<&str>) -> Result<RemoteStore> {
        let base = url.trim_end_matches('/');
        let parsed = reqwest::Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if parsed.is_none() {
            let message =
                format!("{base:?} is no address of a server; write http://host:port or https://host");
            return Err(StoreError::invalid("url", message));
        }
        // Only the first one counts; another library may have been faster.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().connect_timeout(CONNECT).timeout(ANSWER).no_proxy();
        let client = client.redirect(reqwest::redirect::Policy::none()).build();
        let store = RemoteStore {
            client: client.map_err(|error| StoreError::Unavailable(error.to_string()))?,
            base: base.into(),
            token: token.map(Into::into),
            known: Arc::default(),
        };
        store.learn().await?;
        Ok(store)
    }

    fn known(&self) -> Catalog {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lifecycles as the server has them now.
    async fn learn(&self) -> Result<Catalog> {
        let answer = Ask::get("/v1/lifecycles?source=true").send(self).await?;
        let mut catalog = Catalog::default();
        let sources = answer["lifecycles"].as_array().into_iter().flatten();
        let (items, runs): (Vec<&Value>, Vec<&Value>) = sources.partition(|it| it["kind"] == "item");
        for source in items.into_iter().chain(runs).filter_map(|it| it["source"].as_str()) {
            // One that this binary cannot read is left alone: so are its runs.
            let _ = catalog.add(source);
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = catalog.clone();
        Ok(catalog)
    }

    async fn row(&self, object: &Value) -> Result<RunRow> {
        if let Some(row) = row_from(object, &self.known()) {
            return Ok(row);
        }
        let unread = || {
            let what = format!("a run of {} version {}", object["lifecycle"], object["version"]);
            StoreError::Unusable(format!("{} sent {what}, which this binary does not know", self.base))
        };
        row_from(object, &self.learn().await?).ok_or_else(unread)
    }
}

//! A store behind a Waypost server: the verbs of `waypost_store`, asked over HTTP, so that workers and the command line work
//! the same with `WAYPOST_URL` as with a database.
//!
//! What only a process with the database does (`Housekeeping`: sweeping, pruning, planning) has no verbs here.

mod access;
mod admin;
mod agents;
mod alerts;
mod ask;
mod leases;
mod playbooks;
mod queue;
mod schedules;
mod stats;
mod targets;
mod workers;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::Client;
use serde_json::Value;
use waypost_kernel::{Catalog, Lifecycle, Time};
use waypost_store::wire::row_from;
use waypost_store::*;

use ask::Ask;

const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(40);

#[derive(Clone)]
pub struct RemoteStore {
    client: Client,
    /// Without a slash at its end.
    base: Arc<str>,
    token: Option<Arc<str>>,
    /// Whose runs are asked for where a request does not say.
    tenant: Option<Arc<str>>,
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
            tenant: None,
            known: Arc::default(),
        };
        store.lifecycles().await?;
        Ok(store)
    }

    /// The same store for one tenant: for those whose token is of all tenants, or who need none.
    #[must_use]
    pub fn for_tenant(self, tenant: &str) -> RemoteStore {
        RemoteStore { tenant: Some(tenant.into()), ..self }
    }

    fn known(&self) -> Catalog {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The lifecycles as the server has them now.
    async fn lifecycles(&self) -> Result<Catalog> {
        let answer = Ask::get("/v1/lifecycles?source=true").send(self).await?;
        let mut catalog = Catalog::default();
        let sources = answer["lifecycles"].as_array().into_iter().flatten();
        let (items, runs): (Vec<&Value>, Vec<&Value>) = sources.partition(|it| it["kind"] == "item");
        for source in items.into_iter().chain(runs).filter_map(|it| it["source"].as_str()) {
            // One that this binary cannot read is left alone: so are its runs.
            let _ = catalog.add_stored(source);
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
        row_from(object, &self.lifecycles().await?).ok_or_else(unread)
    }
}

/// Each verb is asked for by the function of the same name.
macro_rules! asked {
    ($($(#[$_about:meta])* $verb:ident($($name:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $verb(&self, $($name: $type),*) -> Reply<'_, $answer> {
            Box::pin(RemoteStore::$verb(self, $($name),*))
        })*
    };
}

impl Store for RemoteStore {
    store_verbs!(asked);

    fn changed(&self, at_most: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(RemoteStore::changed(self, at_most))
    }

    fn event_after(
        &self,
        run_id: &str,
        seq: u64,
        at_most: Duration,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(RemoteStore::event_after(self, run_id.to_owned(), seq, at_most))
    }

    fn claim_wait(&self) -> Option<Duration> {
        Some(queue::CLAIM_WAIT)
    }
}

//! Playbooks that servers and workers have, by the names that people call them. Whoever has one offers its definition to the store when it
//! starts; whoever starts a run by name reads there what the playbook says, wherever its folder is.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};
use waypost_kernel::{Catalog, Time};
use waypost_schema::{nearest, quoted};
use waypost_store::{
    Database, EVERY_TENANT, NewItem, NewRun, OfferedPlaybook, PlaybookFilter, PlaybookRow, Store, StoreError,
    WorkerRow, asked_digest, iso,
};

use super::{CannotStart, Playbook, Playbooks, Step};
use crate::steps::{is_untold, planned_part, untold_part};

/// Names that a message lists.
const LISTED: usize = 20;

/// A playbook that somebody has.
#[derive(Clone, Debug)]
pub struct Known {
    pub offered: OfferedPlaybook,
    /// When it was offered first; none: by this process, just now.
    pub offered_at: Option<Time>,
    /// None: a handler that is compiled into a worker, of which only the name is known.
    pub playbook: Option<Arc<Playbook>>,
}

/// Why a name leads to no playbook.
#[derive(Clone, Debug)]
pub enum NotKnown {
    /// Nobody has it; with what there is instead.
    Unknown(String),
    /// It was offered, and cannot be read here.
    Unsound(String),
    Store(StoreError),
}

impl fmt::Display for NotKnown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotKnown::Unknown(words) | NotKnown::Unsound(words) => f.write_str(words),
            NotKnown::Store(error) => error.fmt(f),
        }
    }
}

impl From<StoreError> for NotKnown {
    fn from(error: StoreError) -> NotKnown {
        NotKnown::Store(error)
    }
}

/// Offers what a process has, for one tenant or for all. What is known already is not written again.
pub async fn offer(
    store: &dyn Store,
    playbooks: &Playbooks,
    handlers: impl Iterator<Item = String>,
    tenant: Option<&str>,
    by: &str,
) -> waypost_store::Result<()> {
    let tenant = tenant.unwrap_or(EVERY_TENANT);
    let mut offered: Vec<OfferedPlaybook> =
        playbooks.iter().map(|playbook| playbook.offered(tenant, by)).collect();
    let handler = |name| OfferedPlaybook {
        tenant: tenant.to_owned(),
        by: by.to_owned(),
        name,
        ..OfferedPlaybook::default()
    };
    offered.extend(handlers.map(handler));
    if offered.is_empty() { Ok(()) } else { store.offer_playbooks(offered).await }
}

/// Takes away what a process of this name offered before and has no more, so that nobody starts by name what nobody has. What a worker that
/// lives has stays: it may be another one of the same content. Only a process whose name stays the same knows what it offered before.
pub async fn withdraw(
    store: &dyn Database,
    playbooks: &Playbooks,
    tenant: Option<&str>,
    by: &str,
) -> waypost_store::Result<()> {
    let tenant = tenant.unwrap_or(EVERY_TENANT);
    let filter = PlaybookFilter { all_versions: true, names_only: true, ..PlaybookFilter::default() };
    let own: HashSet<&str> = playbooks.iter().map(|playbook| playbook.name.as_str()).collect();
    let offered = store.playbooks(filter).await?.into_iter().map(|row| row.offered);
    let is_gone =
        |it: &OfferedPlaybook| it.by == by && it.tenant == tenant && !own.contains(it.name.as_str());
    let mut gone: Vec<String> = offered.filter(is_gone).map(|it| it.name).collect();
    if gone.is_empty() {
        return Ok(());
    }
    let now = store.now().await?;
    let workers = store.workers(None).await?;
    let has = |worker: &WorkerRow, name: &String| {
        worker.is_live(now) && worker.can.as_ref().is_some_and(|can| can.playbooks.contains(name))
    };
    gone.retain(|name| !workers.iter().any(|worker| has(worker, name)));
    gone.dedup();
    store.withdraw_playbooks(tenant.to_owned(), by.to_owned(), gone).await
}

impl Playbook {
    pub fn offered(&self, tenant: &str, by: &str) -> OfferedPlaybook {
        OfferedPlaybook {
            tenant: tenant.to_owned(),
            name: self.name.clone(),
            hash: self.hash.to_string(),
            file: self.file.to_string_lossy().into_owned(),
            text: self.text.clone(),
            by: by.to_owned(),
        }
    }
}

impl Known {
    pub fn of_row(row: PlaybookRow, catalog: &Catalog) -> Result<Known, NotKnown> {
        let PlaybookRow { offered, offered_at } = row;
        let playbook = match offered.text.as_str() {
            "" => None,
            text => Some(Playbook::of_text(text, Path::new(&offered.file), catalog).map_err(|problems| {
                NotKnown::Unsound(format!("{} cannot be read here: {problems}", quoted(&offered.name)))
            })?),
        };
        Ok(Known { offered, offered_at: Some(offered_at), playbook: playbook.map(Arc::new) })
    }

    /// The same; one that cannot be read here is listed all the same, since whoever has it may be newer.
    pub fn listed(row: PlaybookRow, catalog: &Catalog) -> Known {
        let unread = Known { offered: row.offered.clone(), offered_at: Some(row.offered_at), playbook: None };
        Known::of_row(row, catalog).unwrap_or(unread)
    }

    /// As lists have it.
    pub fn object(&self) -> Value {
        let (offered, playbook) = (&self.offered, self.playbook.as_deref());
        json!({
            "name": offered.name,
            "lifecycle": playbook.map(|it| &it.lifecycle),
            "hash": offered.hash,
            "description": playbook.and_then(|it| it.description.as_ref()),
            "inputs": playbook.map_or_else(Vec::new, Playbook::described_inputs),
            "tenant": offered.tenant,
            "file": offered.file,
            "by": offered.by,
            "offered_at": self.offered_at.map(iso),
        })
    }

    /// The same with its text, its steps, and where its runs wait.
    pub fn whole_object(&self) -> Value {
        let playbook = self.playbook.as_deref();
        let mut object = self.object();
        object["text"] = self.offered.text.as_str().into();
        object["steps"] = json!(playbook.map(|it| it.preview(&Map::new())));
        object["queue"] = json!(playbook.map(|it| &it.queue));
        object["priority"] = json!(playbook.map(|it| it.priority));
        object
    }
}

/// The playbook that a tenant calls so: `NAME` is its latest version, `NAME@HASH` the one whose hash begins so. `own` are those that
/// this process has itself; they come first.
pub async fn find(
    store: &dyn Store,
    own: &Playbooks,
    catalog: &Catalog,
    tenant: &str,
    asked: &str,
) -> Result<Known, NotKnown> {
    if let Ok(known) = find_own(own, tenant, asked) {
        return Ok(known);
    }
    match offered_as(store, tenant, asked, false).await? {
        Some(row) => Known::of_row(row, catalog),
        None => Err(NotKnown::Unknown(unknown(store, own, tenant, asked).await?)),
    }
}

/// The same of those that were offered, as it is stored; with `names_only` without its definition.
pub async fn offered_as(
    store: &dyn Store,
    tenant: &str,
    asked: &str,
    names_only: bool,
) -> Result<Option<PlaybookRow>, NotKnown> {
    let (name, hash) = parts(asked);
    if name.is_empty() || hash.is_some_and(str::is_empty) {
        let words = "a version is asked for as NAME@HASH, with the beginning of its hash; the latest as NAME";
        return Err(NotKnown::Unsound(format!("{} is no playbook's name: {words}", quoted(asked))));
    }
    let filter = PlaybookFilter {
        tenant: Some(tenant.to_owned()),
        name: Some(name.to_owned()),
        hash: hash.map(str::to_owned),
        all_versions: false,
        names_only,
    };
    Ok(store.playbooks(filter).await?.into_iter().next())
}

/// The same of those alone that this process has.
fn find_own(own: &Playbooks, tenant: &str, asked: &str) -> Result<Known, NotKnown> {
    let (name, hash) = parts(asked);
    let fits = |it: &&Arc<Playbook>| {
        it.name == name && hash.is_none_or(|hash| !hash.is_empty() && it.hash.to_string().starts_with(hash))
    };
    let Some(playbook) = own.iter().find(fits) else {
        let names = own.iter().map(|playbook| playbook.name.as_str()).collect();
        return Err(NotKnown::Unknown(words(asked, names)));
    };
    Ok(Known { offered: playbook.offered(tenant, ""), offered_at: None, playbook: Some(playbook.clone()) })
}

/// Why a name that a handler has does not say in which lifecycle to start a run, and how to ask for a playbook that it hides.
pub async fn of_handler(
    store: &dyn Store,
    tenant: &str,
    handler: &OfferedPlaybook,
) -> waypost_store::Result<String> {
    let OfferedPlaybook { name, by, .. } = handler;
    let whose = |of: &str| match of {
        EVERY_TENANT => "everybody".to_owned(),
        tenant => format!("tenant {tenant}"),
    };
    let filter = PlaybookFilter {
        tenant: Some(tenant.to_owned()),
        name: Some(name.clone()),
        all_versions: true,
        ..PlaybookFilter::default()
    };
    let rows = store.playbooks(filter).await?;
    let hidden = rows.iter().map(|row| &row.offered).find(|it| !it.text.is_empty()).map(|it| {
        let hash = it.hash.get(..12).unwrap_or(&it.hash);
        format!("; the playbook of that name, for {}, is asked for as {name}@{hash}", whose(&it.tenant))
    });
    Ok(format!(
        "{} is a handler of worker {}, for {}, and has no lifecycle of its own: name one{}",
        quoted(name),
        quoted(by),
        whose(&handler.tenant),
        hidden.unwrap_or_default()
    ))
}

/// A name, and the beginning of a hash.
fn parts(asked: &str) -> (&str, Option<&str>) {
    asked.split_once('@').map_or((asked, None), |(name, hash)| (name, Some(hash)))
}

/// Words for a name that nobody has.
pub async fn unknown(
    store: &dyn Store,
    own: &Playbooks,
    tenant: &str,
    asked: &str,
) -> waypost_store::Result<String> {
    let filter =
        PlaybookFilter { tenant: Some(tenant.to_owned()), names_only: true, ..PlaybookFilter::default() };
    let rows = store.playbooks(filter).await?;
    let names = rows.iter().map(|row| row.offered.name.as_str());
    Ok(words(asked, names.chain(own.iter().map(|playbook| playbook.name.as_str())).collect()))
}

/// What there is instead.
fn words(asked: &str, mut names: Vec<&str>) -> String {
    let name = parts(asked).0;
    names.sort_unstable();
    names.dedup();
    let shown = quoted(asked);
    if names.is_empty() {
        return format!(
            "there is no playbook {shown}, nor any other: start `waypost serve --playbooks DIR` or `waypost worker --playbooks DIR`"
        );
    }
    if names.contains(&name) {
        return format!(
            "no version {shown} of that playbook is known; `waypost playbook show {name}` has those that are"
        );
    }
    let meant = nearest(name, names.iter().copied()).map(|meant| format!(": did you mean `{meant}`?"));
    let more = names.len().saturating_sub(LISTED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    names.truncate(LISTED);
    let meant = meant.unwrap_or_else(|| ";".to_owned());
    format!("there is no playbook {shown}{meant} there are: {}{more}", names.join(", "))
}

/// What a request left open.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeftOpen {
    pub queue: bool,
    pub priority: bool,
    /// Whether the lifecycle was named: then it must be the playbook's own.
    pub lifecycle: bool,
}

/// What a request says itself, before a playbook fills in what it left open: its key stands for that, whatever the playbook says by then.
pub fn asked(new: &NewRun, open: LeftOpen) -> String {
    format!("playbook {} {} {}", asked_digest(new), open.queue, open.priority)
}

/// A request that cannot be made any more, since what it was filled from has changed, and whose key has made a run. It names no lifecycle,
/// so that a store can answer it by that run alone. None if the key has made none.
pub async fn known_again(store: &dyn Store, refused: &NewRun) -> waypost_store::Result<Option<NewRun>> {
    let (Some(key), Some(asked)) = (&refused.idempotency_key, &refused.asked) else { return Ok(None) };
    let found = store.made_by(refused.tenant.clone(), key.clone(), asked.clone()).await?;
    Ok(found.map(|_| NewRun {
        tenant: refused.tenant.clone(),
        idempotency_key: refused.idempotency_key.clone(),
        asked: refused.asked.clone(),
        by: refused.by.clone(),
        ..NewRun::default()
    }))
}

/// Fills in what the playbook says and the request left open: its lifecycle, queue, priority, key, attempts, inputs and steps. It is named by its pin:
/// a worker with another content leaves the run alone.
pub fn fill(
    playbook: &Playbook,
    catalog: &Catalog,
    new: NewRun,
    open: LeftOpen,
) -> Result<NewRun, CannotStart> {
    let asked = new.asked.clone().or_else(|| new.idempotency_key.is_some().then(|| asked(&new, open)));
    let started = playbook.new_run(catalog, &new.input)?;
    if !open.lifecycle {
        let same = |name: &str| catalog.latest(name).map(|lifecycle| lifecycle.name.clone());
        if same(&new.lifecycle) != same(&started.lifecycle) {
            let own = playbook.lifecycle.clone();
            return Err(CannotStart::OtherLifecycle { asked: new.lifecycle, own });
        }
    }
    let items = match new.items.is_empty() {
        true => started.items,
        false => checked_steps(playbook, started.items, &new).map_err(CannotStart::Items)?,
    };
    Ok(NewRun {
        lifecycle: if open.lifecycle { started.lifecycle } else { new.lifecycle },
        queue: if open.queue { started.queue } else { new.queue },
        priority: if open.priority { started.priority } else { new.priority },
        concurrency_key: new.concurrency_key.or(started.concurrency_key),
        // A lost worker costs a try, and not the run.
        max_attempts: new.max_attempts.max(started.max_attempts),
        items,
        playbook: started.playbook,
        input: started.input,
        asked,
        ..new
    })
}

/// The steps of a request for a run of a playbook: they are the playbook's own, and what they say of themselves is what the playbook says.
/// All that a request adds is which of them are copies of those in the run that it repeats.
fn checked_steps(playbook: &Playbook, planned: Vec<NewItem>, new: &NewRun) -> Result<Vec<NewItem>, String> {
    let mut steps: Vec<NewItem> = Vec::new();
    for given in &new.items {
        let own = planned.iter().find(|it| it.key == given.key).cloned();
        let own = own.or_else(|| part_of_list(playbook, given).filter(|_| new.retry_of.is_some()));
        let name = quoted(&given.key);
        let Some(own) = own.filter(|own| own.kind == given.kind) else {
            return Err(format!("{name} is no step of the playbook: leave items out, it has its own"));
        };
        let is_same =
            (given.role, given.max_retries, given.reruns) == (own.role, own.max_retries, own.reruns);
        if !given.copied && !is_same {
            return Err(format!("{name} is not as the playbook has it: leave items out, it has its own"));
        }
        steps.push(NewItem { copied: given.copied, ..own });
    }
    let is_missing = |step: &NewItem| new.items.iter().all(|given| given.key != step.key);
    steps.extend(planned.into_iter().filter(is_missing));
    Ok(steps)
}

/// A part of a list that is known when the run comes to it: `ship[2]`. What it is for stands in the run that is repeated.
fn part_of_list(playbook: &Playbook, given: &NewItem) -> Option<NewItem> {
    let (of, number) = given.key.strip_suffix(']')?.rsplit_once('[')?;
    let number = number.parse::<u64>().ok().filter(|it| it.to_string() == number)?;
    let is_listed = |step: &&Step| step.for_each.is_some();
    let step = playbook.step(of).filter(is_listed)?;
    Some(untold_part(playbook, step, &given.kind, number))
}

/// The parts of lists that a request names get from the run that it repeats what they are for: nobody else says that.
pub async fn recall_parts(store: &dyn Store, new: &mut NewRun) -> Result<(), NotKnown> {
    let Some(old) = new.retry_of.clone().filter(|_| new.items.iter().any(is_untold)) else { return Ok(()) };
    let rows = store.items(old.clone(), None).await?;
    for item in new.items.iter_mut().filter(|item| is_untold(item)) {
        let Some(row) = rows.iter().find(|row| row.kind == item.kind && row.key == item.key) else {
            return Err(NotKnown::Unsound(format!("{} is no step of {old}", quoted(&item.key))));
        };
        (item.details, item.name) = (planned_part(row), row.name.clone());
    }
    Ok(())
}

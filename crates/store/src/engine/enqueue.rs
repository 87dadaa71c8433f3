//! New runs: those that are queued, and those of plans, which are held from their beginning.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};
use waypost_kernel::decide::{self, NewRun as KernelRun};
use waypost_kernel::event::Event;
use waypost_kernel::item::Item;
use waypost_kernel::lifecycle::Kind;
use waypost_kernel::tenant::meanings;
use waypost_kernel::{Actor, Lifecycle, Phase, Run, Span, Time};

use super::claim::{Taken, claim_if_may, own_lease};
use super::copies::{self, Originals};
use super::edit::{NewItemRow, Stored};
use super::tx::{Inserted, Tx};
use crate::columns::COLUMNS;
use crate::json::fingerprint::{asked_for, fingerprint};
use crate::rules::{details, intake, new_run, room};
use crate::seam::error::{Result, StoreError};
use crate::seam::run::{self, RunRow};
use crate::seam::verbs::{Each, Enqueued, EnqueuedClaim, NewItem, NewRun, Take};
use crate::tokens::who;

/// A key that others insert and take back at the same time is looked for again this often.
const ROUNDS: usize = 20;

/// A request for a run, checked and written out before its turn comes.
#[derive(Debug)]
pub(crate) struct CheckedRun {
    pub new: NewRun,
    texts: JsonTexts,
}

/// A run, and whether its key was known.
pub(crate) type Queued = (Arc<RunRow>, bool);

/// A new run's columns that are kept as JSON, written out.
#[derive(Clone, Debug)]
pub(crate) struct JsonTexts {
    pub input: String,
    pub metadata: Option<String>,
    pub details: Option<String>,
    pub carried: Option<String>,
    pub fingerprint: Option<String>,
}

/// A run before it is written.
#[derive(Debug)]
pub(crate) struct NewRow {
    pub row: RunRow,
    pub texts: JsonTexts,
    pub event: Event,
    pub items: Vec<NewItemRow>,
    requested: Requested,
}

/// The parts of the request that are not in the row, for deciding it again.
#[derive(Debug)]
struct Requested {
    lifecycle: String,
    version: Option<u32>,
    status: Option<String>,
    ttl: Option<Span>,
    lease: Option<Span>,
    items: Vec<NewItem>,
    originals: Originals,
    actor: Actor,
    by: String,
}

impl JsonTexts {
    fn of(new: &NewRun) -> JsonTexts {
        let full = |map: &Map<String, Value>| {
            Some(map).filter(|map| !map.is_empty()).and_then(|map| serde_json::to_string(map).ok())
        };
        JsonTexts {
            input: new.input.to_string(),
            metadata: full(&new.metadata),
            details: full(&new.details),
            carried: new.carried.as_ref().map(Value::to_string),
            fingerprint: new.idempotency_key.is_some().then(|| fingerprint(new)),
        }
    }

    /// What they take in memory as values.
    pub fn bytes(&self) -> usize {
        let rest = [&self.metadata, &self.details, &self.carried];
        let texts = rest.into_iter().flatten().chain([&self.input]);
        texts.map(|text| room::weight(text.as_bytes())).sum()
    }
}

impl CheckedRun {
    /// One that somebody else than the engine asks for.
    pub fn of_client(new: NewRun) -> Result<CheckedRun> {
        intake::check_client_key(new.idempotency_key.as_deref())?;
        CheckedRun::of(new)
    }

    pub fn of(mut new: NewRun) -> Result<CheckedRun> {
        intake::check_new(&new)?;
        // Finer than that a file does not keep it, and the log must say what the row says.
        new.schedule_at = new.schedule_at.map(|at| Time::from_ms(at.ms()));
        let texts = JsonTexts::of(&new);
        // After the fingerprint, which is of what was asked for.
        new.title = new.title.take().or_else(|| new_run::title_of(&new));
        Ok(CheckedRun { new, texts })
    }
}

impl NewRow {
    fn key(&self) -> Option<(&str, &str)> {
        Some((self.row.tenant.as_str(), self.row.idempotency_key.as_deref()?))
    }

    fn key_reused(&self, stored: &Stored) -> StoreError {
        let key = self.row.idempotency_key.clone().unwrap_or_default();
        StoreError::KeyReused { key, run_id: stored.row.id().to_owned() }
    }
}

/// Writes new runs. If a run has the idempotency key already, it is the answer, or the request is refused.
pub(crate) async fn enqueue<T: Tx>(tx: &mut T, runs: Vec<Result<CheckedRun>>) -> Result<Each<Queued>> {
    let mut answers: Vec<Option<Result<Queued>>> = Vec::with_capacity(runs.len());
    let mut left: Vec<(usize, NewRow)> = Vec::with_capacity(runs.len());
    let relatives = Relatives::of(tx, runs.iter().flatten()).await?;
    for (at, run) in runs.into_iter().enumerate() {
        let answer = match run {
            Err(error) => Err(error),
            Ok(run) => match new_row_of(tx, run, &relatives).await? {
                Ok(new_row) => {
                    left.push((at, new_row));
                    answers.push(None);
                    continue;
                }
                Err((error, run)) => refused(tx, error, &run).await,
            },
        };
        if let Err(error @ (StoreError::Unavailable(_) | StoreError::Unusable(_))) = answer {
            return Err(error);
        }
        answers.push(Some(answer));
    }
    for _ in 0..ROUNDS {
        if left.is_empty() {
            break;
        }
        let places: Vec<usize> = left.iter().map(|(at, _)| *at).collect();
        match round(tx, left, &mut answers).await {
            Ok(again) => left = again,
            // Earlier rounds are written: their runs are answered although this round failed.
            Err(error) if !T::IS_ONE_WRITE && answers.iter().any(|it| matches!(it, Some(Ok(_)))) => {
                places.into_iter().for_each(|at| _ = answers[at].get_or_insert_with(|| Err(error.clone())));
                left = Vec::new();
            }
            Err(error) => return Err(error),
        }
    }
    let late =
        || Err(StoreError::Unavailable("its key was taken and given back each time; try again".into()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect())
}

/// A new run, and the claim of it in the same transaction. One that cannot be claimed now is queued all the same.
pub(crate) async fn enqueue_claimed<T: Tx>(
    tx: &mut T,
    new: &NewRun,
    take: &Take,
) -> Result<(Queued, Option<Taken>)> {
    intake::check_name("worker", &take.worker)?;
    let unanswered = || Err(StoreError::Unavailable("the new run was not answered".into()));
    let run = CheckedRun::of_client(new.clone());
    let (row, replayed) = enqueue(tx, vec![run]).await?.pop().unwrap_or_else(unanswered)?;
    let taken = if replayed { own_lease(tx, &row, take) } else { claim_if_may(tx, &row, take).await? };
    Ok(((row, replayed), taken))
}

/// The same with rows of the caller's own.
pub(crate) fn own_claim(((row, replayed), taken): (Queued, Option<Taken>)) -> Result<EnqueuedClaim> {
    let claimed = taken.map(Taken::claimed).transpose()?;
    let run = claimed.as_ref().map_or_else(|| Arc::unwrap_or_clone(row), |claimed| claimed.run.clone());
    Ok(EnqueuedClaim { enqueued: Enqueued { run, replayed }, claimed })
}

/// What `enqueue` would answer: the id of the run that the key has made, or none for a new one.
pub(crate) async fn dry_run<T: Tx>(tx: &mut T, new: &NewRun) -> Result<Option<String>> {
    let run = CheckedRun::of_client(new.clone())?;
    let relatives = Relatives::of(tx, [&run]).await?;
    let new_row = match new_row_of(tx, run, &relatives).await? {
        Ok(new_row) => new_row,
        Err((error, run)) => {
            let (row, _) = refused(tx, error, &run).await?;
            return Ok(Some(row.id().to_owned()));
        }
    };
    let Some((tenant, key)) = new_row.key() else { return Ok(None) };
    let made = made(tx, tenant, key, new_row.texts.fingerprint.as_deref()).await?;
    Ok(made.map(|row| row.id().to_owned()))
}

/// Inserts new rows. Those whose key is taken are answered; those whose key was taken and is free again are given back.
async fn round<T: Tx>(
    tx: &mut T,
    new_rows: Vec<(usize, NewRow)>,
    answers: &mut [Option<Result<Queued>>],
) -> Result<Vec<(usize, NewRow)>> {
    let (places, new_rows): (Vec<usize>, Vec<NewRow>) = new_rows.into_iter().unzip();
    let mut taken = Vec::new();
    let mut again = Vec::new();
    for (at, made) in places.into_iter().zip(tx.insert(new_rows).await?) {
        match made {
            Inserted::Made(stored) => answers[at] = Some(Ok((stored.row, false))),
            Inserted::KeyTaken(new_row) => taken.push((at, *new_row)),
            Inserted::Stale(new_row) => again.push((at, decide_again(tx, *new_row).await?)),
        }
    }
    if taken.is_empty() {
        return Ok(again);
    }
    let keys: Vec<(&str, &str)> = taken.iter().filter_map(|(_, new_row)| new_row.key()).collect();
    let known = tx.runs_with_keys(&keys).await?;
    for (at, new_row) in taken {
        match known.iter().find(|(stored, _)| has_key(stored, new_row.key())) {
            Some((stored, print)) if *print == new_row.texts.fingerprint => {
                answers[at] = Some(Ok((stored.row.clone(), true)));
            }
            Some((stored, _)) => answers[at] = Some(Err(new_row.key_reused(stored))),
            None => again.push((at, new_row)),
        }
    }
    Ok(again)
}

fn has_key(stored: &Stored, key: Option<(&str, &str)>) -> bool {
    let own = stored.row.idempotency_key.as_deref().map(|own| (stored.row.tenant.as_str(), own));
    own.is_some() && own == key
}

/// The runs that new ones name as their parent or as what they repeat: which there are, and whose.
struct Relatives(HashMap<String, String>);

impl Relatives {
    /// Most new runs name none, and nothing is read.
    async fn of<'r, T: Tx>(tx: &mut T, runs: impl IntoIterator<Item = &'r CheckedRun>) -> Result<Relatives> {
        let mut ids: Vec<&str> = runs.into_iter().flat_map(|run| named(&run.new)).map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids.dedup();
        let found = if ids.is_empty() { Vec::new() } else { tx.runs(&ids).await? };
        let whose = |stored: Stored| (stored.row.id().to_owned(), stored.row.tenant.clone());
        Ok(Relatives(found.into_iter().map(whose).collect()))
    }

    /// What became of another tenant's run would be seen, and felt, here. One that is not there is refused in the same words: else
    /// they would tell which ids others have.
    fn check(&self, new: &NewRun) -> Result<()> {
        let is_missing = |(_, id): &(&str, &str)| self.0.get(*id) != Some(&new.tenant);
        match named(new).find(is_missing) {
            Some((field, id)) => Err(StoreError::invalid(field, format!("there is no run {id:?} here"))),
            None => Ok(()),
        }
    }
}

fn named(new: &NewRun) -> impl Iterator<Item = (&'static str, &str)> {
    let ids = [("parent_run_id", &new.parent_run_id), ("retry_of", &new.retry_of)];
    ids.into_iter().filter_map(|(field, id)| Some((field, id.as_deref()?)))
}

/// What the kernel makes of a request. A request that is refused, or whose lifecycle is unknown, comes back with the error.
async fn new_row_of<T: Tx>(
    tx: &mut T,
    run: CheckedRun,
    relatives: &Relatives,
) -> Result<std::result::Result<NewRow, (StoreError, Box<CheckedRun>)>> {
    let Some(lifecycle) = lifecycle(tx, &run.new).await? else {
        return Ok(Err((new_run::unknown_lifecycle(&run.new, &tx.catalog()), Box::new(run))));
    };
    if let Err(error) = relatives.check(&run.new) {
        return Ok(Err((error, Box::new(run))));
    }
    match copies::originals(tx, &run.new, &lifecycle).await {
        Ok(originals) => Ok(new_row(tx, run, &lifecycle, None, originals)),
        Err(error @ StoreError::Invalid { .. }) => Ok(Err((error, Box::new(run)))),
        Err(error) => Err(error),
    }
}

/// A request that is refused is still answered by the run that its key has made.
async fn refused<T: Tx>(tx: &mut T, error: StoreError, run: &CheckedRun) -> Result<Queued> {
    let Some(key) = &run.new.idempotency_key else { return Err(error) };
    let made = made(tx, &run.new.tenant, key, run.texts.fingerprint.as_deref()).await?;
    made.map(|row| (row, true)).ok_or(error)
}

/// The run that a key has made for the same request; none if it has made none.
async fn made<T: Tx>(
    tx: &mut T,
    tenant: &str,
    key: &str,
    print: Option<&str>,
) -> Result<Option<Arc<RunRow>>> {
    match tx.runs_with_keys(&[(tenant, key)]).await?.pop() {
        Some((stored, own)) if own.as_deref() == print => Ok(Some(stored.row)),
        Some((stored, _)) => {
            Err(StoreError::KeyReused { key: key.to_owned(), run_id: stored.row.id().to_owned() })
        }
        None => Ok(None),
    }
}

pub(crate) async fn made_by<T: Tx>(
    tx: &mut T,
    tenant: &str,
    key: &str,
    asked: &str,
) -> Result<Option<RunRow>> {
    intake::check_given_name("tenant", tenant)?;
    intake::check_key("idempotency_key", Some(key))?;
    let found = made(tx, tenant, key, Some(&asked_for(asked))).await?;
    Ok(found.map(Arc::unwrap_or_clone))
}

async fn lifecycle<T: Tx>(tx: &mut T, new: &NewRun) -> Result<Option<Arc<Lifecycle>>> {
    named_lifecycle(tx, &new.tenant, &new.lifecycle, new.version).await
}

/// What a tenant calls by this name: its own, or else the installation's.
async fn named_lifecycle<T: Tx>(
    tx: &mut T,
    tenant: &str,
    name: &str,
    version: Option<u32>,
) -> Result<Option<Arc<Lifecycle>>> {
    let found = tx.lifecycle(&meanings(tenant, name), version).await?;
    Ok(found.filter(|lifecycle| lifecycle.kind == Kind::Run))
}

/// If the kernel refuses, the request comes back: a run may have its key.
fn new_row<T: Tx>(
    tx: &T,
    run: CheckedRun,
    lifecycle: &Arc<Lifecycle>,
    lease: Option<Span>,
    originals: Originals,
) -> std::result::Result<NewRow, (StoreError, Box<CheckedRun>)> {
    let new = &run.new;
    let ask = Ask {
        originals: &originals,
        status: new.status.as_deref(),
        ttl: new.ttl,
        lease,
        items: &new.items,
        actor: new.actor,
        by: &new.by,
        schedule_at: new.schedule_at,
        max_attempts: new.max_attempts,
        reentrant: new.reentrant,
    };
    let fits = details::check(lifecycle, &new.details);
    match fits.and_then(|()| decided(tx, lifecycle, &ask)) {
        Err(error) => Err((error, Box::new(run))),
        Ok((after, event, items)) => {
            let CheckedRun { mut new, texts } = run;
            let requested = Requested {
                lifecycle: std::mem::take(&mut new.lifecycle),
                version: new.version,
                status: new.status.take(),
                ttl: new.ttl,
                lease,
                items: std::mem::take(&mut new.items),
                originals,
                actor: new.actor,
                by: std::mem::take(&mut new.by),
            };
            Ok(NewRow { row: row_of(new, after, lifecycle.clone()), texts, event, items, requested })
        }
    }
}

/// The same request, decided anew.
async fn decide_again<T: Tx>(tx: &mut T, new_row: NewRow) -> Result<NewRow> {
    let NewRow { mut row, texts, requested, .. } = new_row;
    let found = named_lifecycle(tx, &row.tenant, &requested.lifecycle, requested.version).await?;
    let lifecycle = found.unwrap_or_else(|| row.lifecycle.clone());
    let ask = Ask {
        status: requested.status.as_deref(),
        ttl: requested.ttl,
        lease: requested.lease,
        items: &requested.items,
        originals: &requested.originals,
        actor: requested.actor,
        by: &requested.by,
        schedule_at: row.schedule_at,
        max_attempts: row.run.max_attempts,
        reentrant: row.run.reentrant,
    };
    let (after, event, items) = decided(tx, &lifecycle, &ask)?;
    (row.run, row.lifecycle) = (after, lifecycle);
    Ok(NewRow { row, texts, event, items, requested })
}

/// A request as the kernel takes it.
struct Ask<'a> {
    status: Option<&'a str>,
    ttl: Option<Span>,
    lease: Option<Span>,
    items: &'a [NewItem],
    originals: &'a Originals,
    actor: Actor,
    by: &'a str,
    schedule_at: Option<Time>,
    max_attempts: u32,
    reentrant: bool,
}

fn decided<T: Tx>(tx: &T, lifecycle: &Lifecycle, ask: &Ask<'_>) -> Result<(Run, Event, Vec<NewItemRow>)> {
    let first = new_run::first_items(ask.items, lifecycle, |new| ask.originals.copy(new))?;
    let kernel_items: Vec<Item> = first.iter().map(|(_, item)| item.clone()).collect();
    let id = lifecycle.ids.as_ref().map(|ids| ids.make(tx.now(), tx.random_for_id())).unwrap_or_default();
    let new = KernelRun {
        id: &id,
        state: ask.status,
        available_at: ask.schedule_at,
        ttl: ask.ttl,
        lease: ask.lease,
        max_attempts: ask.max_attempts,
        reentrant: ask.reentrant,
        note: None,
        items: &kernel_items,
        repeats: ask.originals.run.is_some(),
    };
    let mut change = decide::create(lifecycle, &new, &who(ask.actor, ask.by), tx.now())?;
    // A run is born with one event, which says where its items start: they follow a run that starts further on.
    let event = change.events.swap_remove(0);
    let started = first.into_iter().zip(&event.effect.moved).enumerate();
    let items = started.map(|(place, ((new, _), moved))| {
        let copy_of = ask.originals.run.clone().filter(|_| new.copied);
        NewItemRow { place, new, item: moved.item.clone(), seq: 1, copy_of }
    });
    let items = items.collect();
    Ok((change.after, event, items))
}

fn row_of(mut new: NewRun, run: Run, lifecycle: Arc<Lifecycle>) -> RunRow {
    let mut row = RunRow::of(run, lifecycle);
    for given in COLUMNS.iter().filter_map(|column| column.given.as_ref()) {
        (given.take)(&mut row, &mut new);
    }
    row.input = new.input.into();
    row.metadata = run::shared(new.metadata);
    row.details = run::shared(new.details);
    row
}

async fn held_lifecycle<T: Tx>(tx: &mut T, new: &NewRun) -> Result<Arc<Lifecycle>> {
    intake::check_name("by", &new.by)?;
    if new.idempotency_key.is_none() {
        return Err(StoreError::invalid("idempotency_key", "a plan needs its unique key"));
    }
    let Some(lifecycle) = lifecycle(tx, new).await? else {
        return Err(new_run::unknown_lifecycle(new, &tx.catalog()));
    };
    if !lifecycle.initial.iter().any(|state| lifecycle.phase(*state) == Phase::Held) {
        return Err(StoreError::invalid("lifecycle", format!("a {} run is not born held", lifecycle.name)));
    }
    Ok(lifecycle)
}

/// Runs of plans, each held from its beginning. If a run has one of their keys already, the whole list is refused.
pub(crate) async fn new_held<T: Tx>(tx: &mut T, news: Vec<(CheckedRun, Option<Span>)>) -> Result<Vec<Taken>> {
    let mut new_rows = Vec::with_capacity(news.len());
    for (run, lease) in news {
        let lifecycle = held_lifecycle(tx, &run.new).await?;
        let none = Originals::default();
        new_rows.push(new_row(tx, run, &lifecycle, lease, none).map_err(|(error, _)| error)?);
    }
    let made = all_or_none(tx, new_rows).await?;
    Ok(made.into_iter().map(|stored| Taken::of(tx, stored)).collect())
}

/// Runs of plans, for any worker of their queue. Refused like `new_held`.
pub(crate) async fn new_queued<T: Tx>(tx: &mut T, runs: Vec<CheckedRun>) -> Result<Vec<Arc<RunRow>>> {
    let mut new_rows = Vec::with_capacity(runs.len());
    let relatives = Relatives::of(tx, &runs).await?;
    for run in runs {
        new_rows.push(new_row_of(tx, run, &relatives).await?.map_err(|(error, _)| error)?);
    }
    Ok(all_or_none(tx, new_rows).await?.into_iter().map(|stored| stored.row).collect())
}

/// A run of the engine's own, decided and not written yet.
pub(super) async fn prepare<T: Tx>(tx: &mut T, new: NewRun) -> Result<NewRow> {
    let run = CheckedRun::of(new)?;
    let relatives = Relatives::of(tx, [&run]).await?;
    new_row_of(tx, run, &relatives).await?.map_err(|(error, _)| error)
}

pub(super) async fn insert_prepared<T: Tx>(tx: &mut T, new_row: NewRow) -> Result<()> {
    all_or_none(tx, vec![new_row]).await.map(drop)
}

/// The caller's transaction is given up when one of them finds its key taken.
async fn all_or_none<T: Tx>(tx: &mut T, new_rows: Vec<NewRow>) -> Result<Vec<Stored>> {
    if new_rows.is_empty() {
        return Ok(Vec::new());
    }
    let mut all = Vec::with_capacity(new_rows.len());
    for made in tx.insert(new_rows).await? {
        match made {
            Inserted::Made(stored) => all.push(stored),
            Inserted::KeyTaken(new_row) | Inserted::Stale(new_row) => {
                let keys: Vec<(&str, &str)> = new_row.key().into_iter().collect();
                let has_it = tx.runs_with_keys(&keys).await?.pop();
                let again = || StoreError::Unavailable("a key was taken meanwhile; try again".into());
                return Err(has_it.map_or_else(again, |(stored, _)| new_row.key_reused(&stored)));
            }
        }
    }
    Ok(all)
}

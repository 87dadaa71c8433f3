//! Taking runs: those left behind first, then the best of what is due. Within a priority tenants take turns. What was left behind
//! has had its turn: it is taken in the order in which it was left, and there is never more of it than was held at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use waypost_kernel::lifecycle::OnStale;
use waypost_kernel::{Actor, Ask, Change, Lease, Phase, Refusal, Request, Time, Token, Who};

use super::edit::{Edit, Extra, Stored};
use super::tx::{BEGINNING, Counted, Overdue, Room, Saved, Scan, Slot, Tx};
use crate::rules::intake;
use crate::seam::error::{Result, StoreError};
use crate::seam::run::RunRow;
use crate::seam::verbs::{Claim, Claimed, Take};
use crate::tokens::fresh;

/// Runs that a claim sets aside at most because their key is full, before it leaves the rest to the next one.
const MAX_SET_ASIDE: usize = 20_000;
const PAGE: usize = 64;
/// A run that others write at the same time is looked at again this often.
const ROUNDS: usize = 24;

/// A run with its new lease; the caller makes its copy.
#[derive(Debug)]
pub(crate) struct Taken {
    row: Arc<RunRow>,
    now: Time,
}

impl Taken {
    pub fn of<T: Tx>(tx: &T, stored: Stored) -> Taken {
        Taken::new(tx, stored.row)
    }

    pub fn new<T: Tx>(tx: &T, row: Arc<RunRow>) -> Taken {
        Taken { row, now: tx.now() }
    }

    pub fn run(&self) -> &RunRow {
        &self.row
    }

    pub fn claimed(self) -> Result<Claimed> {
        let run = Arc::unwrap_or_clone(self.row);
        let lease = run.run.lease.as_ref();
        let (token, expires_at) = lease
            .map(|lease| (lease.token, lease.until))
            .ok_or_else(|| StoreError::Unavailable(format!("{} has no lease", run.id())))?;
        Ok(Claimed { token, fence: run.run.fence, expires_at, now: self.now, run })
    }
}

pub(crate) async fn claim<T: Tx>(tx: &mut T, claim: &Claim) -> Result<Vec<Taken>> {
    intake::check_name("worker", &claim.worker)?;
    if claim.limit == 0 || claim.queues.is_empty() {
        return Ok(Vec::new());
    }
    intake::check_key("idempotency_key", claim.idempotency_key.as_deref())?;
    let Scan { mut cursor, has_abandoned, is_repeat } = tx.scan(claim).await?;
    if let Some(key) = claim.kept_key().filter(|_| is_repeat) {
        let taken = taken_before(tx, claim, &key).await?;
        if !taken.is_empty() {
            return Ok(taken);
        }
    }
    let mut edits = Vec::new();
    let mut regained = Regained::new();
    if has_abandoned {
        abandoned(tx, claim, &mut edits, &mut regained).await?;
    }
    let left_behind = edits.len();
    ready(tx, claim, &mut cursor, &mut edits, &regained).await?;
    if let Some(turns) = tx.turns(&mut cursor) {
        let taken = turns.arrange(edits.split_off(left_behind));
        edits.extend(taken);
    }
    let rows: Vec<(i64, Arc<RunRow>)> =
        edits.iter().map(|edit| (edit.stored.rid, edit.stored.row.clone())).collect();
    let saved = if edits.is_empty() { Vec::new() } else { tx.save(edits).await? };
    tx.end_scan(cursor).await?;
    let won = rows.into_iter().zip(saved).filter(|(_, saved)| *saved != Saved::Lost).map(|(row, _)| row);
    let won: Vec<(i64, Arc<RunRow>)> = won.collect();
    if let Some(key) = claim.kept_key().filter(|_| !won.is_empty()) {
        let taken: Vec<(i64, u64)> = won.iter().map(|(rid, row)| (*rid, row.run.fence)).collect();
        let ends = won.iter().filter_map(|(_, row)| Some(row.run.lease.as_ref()?.until));
        tx.keep_claim(&claim.worker, &key, &taken, ends.max().unwrap_or_default()).await?;
    }
    let now = tx.now();
    Ok(won.into_iter().map(|(_, row)| Taken { row, now }).collect())
}

/// What an earlier claim with this key took and still holds.
async fn taken_before<T: Tx>(tx: &mut T, claim: &Claim, key: &str) -> Result<Vec<Taken>> {
    let now = tx.now();
    let found = tx.recall_claim(&claim.worker, key).await?;
    let is_same = |(stored, fence): &(Stored, u64)| {
        let lease = stored.row.run.lease.as_ref();
        stored.row.run.fence == *fence
            && lease.is_some_and(|lease| {
                lease.worker.as_deref() == Some(&*claim.worker) && !lease.is_expired(now)
            })
    };
    Ok(found.into_iter().filter(is_same).map(|(stored, _)| Taken { row: stored.row, now }).collect())
}

/// How many more of tenants' queues somebody has since the claim began.
type Regained = BTreeMap<(String, String), i64>;

/// Leases that are vacant or ran out, of queues that are not paused. The kernel says which of them a worker may take; the rest is
/// the sweeper's. What was given back has no place in its queue's limit, and needs one; of several with one key as many are worked
/// at once as its limit says, in the order in which they were left.
async fn abandoned<T: Tx>(
    tx: &mut T,
    claim: &Claim,
    edits: &mut Vec<Edit>,
    regained: &mut Regained,
) -> Result<()> {
    let mut rooms: BTreeMap<(String, String), Room> = BTreeMap::new();
    let mut slots: BTreeMap<Slot, Option<i64>> = BTreeMap::new();
    let mut after = BEGINNING;
    let mut bytes = 0;
    while edits.len() < claim.limit {
        let found = tx.overdue(Overdue::Leases(Some(claim)), after, PAGE).await?;
        let Some(last) = found.last() else { break };
        after = (last.row.run.lease.as_ref().map(|lease| lease.until).unwrap_or_default(), last.rid);
        let vacant = found.iter().map(|stored| &*stored.row).filter(|row| is_vacant(row) && claim.wants(row));
        count_slots(tx, vacant, Counted::Worked, &mut slots).await?;
        for stored in found {
            // What is stolen and not taken over (cron) is its plan's.
            let state = stored.row.lifecycle.state(stored.row.run.state);
            let vacant = is_vacant(&stored.row);
            let is_left = vacant || state.on_stale != Some(OnStale::Steal);
            if edits.len() >= claim.limit || !is_left || !claim.wants(&stored.row) {
                continue;
            }
            let queue = (stored.row.tenant.clone(), stored.row.queue.clone());
            let room = match rooms.get(&queue) {
                Some(room) => *room,
                None => tx.room(&queue.0, &queue.1).await?,
            };
            rooms.insert(queue.clone(), room);
            let before = regained.get(&queue).copied().unwrap_or_default();
            if room == Room::Paused || vacant && matches!(room, Room::Left(left) if left <= before) {
                continue;
            }
            let slot = slot(&stored.row).filter(|_| vacant);
            if slot.as_ref().is_some_and(|slot| matches!(slots.get(slot), Some(None | Some(..=0)))) {
                continue;
            }
            let Some(edit) = decide(tx, stored, &claim.take()) else { continue };
            bytes += edit.stored.weight();
            if !fits(claim, bytes) && !edits.is_empty() {
                return Ok(());
            }
            if vacant {
                regained.insert(queue, before + 1);
            }
            if let Some(Some(free)) = slot.and_then(|slot| slots.get_mut(&slot)) {
                *free -= 1;
            }
            edits.push(edit);
        }
    }
    Ok(())
}

fn is_vacant(row: &RunRow) -> bool {
    row.run.lease.as_ref().is_some_and(Lease::is_vacant)
}

/// The best of several queues, tenant by tenant.
async fn ready<T: Tx>(
    tx: &mut T,
    claim: &Claim,
    cursor: &mut T::Cursor,
    edits: &mut Vec<Edit>,
    regained: &Regained,
) -> Result<()> {
    let how = claim.take();
    let mut slots: BTreeMap<Slot, Option<i64>> = BTreeMap::new();
    let mut set_aside = 0;
    let mut bytes: usize = edits.iter().map(|edit| edit.stored.weight()).sum();
    let mut is_full = false;
    while edits.len() < claim.limit && set_aside < MAX_SET_ASIDE && !is_full {
        let page = tx.candidates(cursor, claim, claim.limit - edits.len()).await?;
        if page.is_empty() {
            break;
        }
        count_slots(tx, page.iter().map(|it| &*it.stored.row), Counted::Held, &mut slots).await?;
        let mut aside = Vec::new();
        for candidate in page {
            is_full |= !fits(claim, bytes + candidate.stored.weight()) && !edits.is_empty();
            if is_full {
                tx.leave(cursor, &candidate, false);
                continue;
            }
            let row = &candidate.stored.row;
            let room = *tx.room_of(cursor, candidate.lane);
            let before =
                || regained.get(&(row.tenant.clone(), row.queue.clone())).copied().unwrap_or_default();
            if room == Room::Paused || matches!(room, Room::Left(left) if left <= before()) {
                tx.leave(cursor, &candidate, true);
                tx.turn_goes_on(cursor, row);
                continue;
            }
            let slot = slot(row);
            match slot.as_ref().and_then(|slot| slots.get(slot)) {
                Some(None) => {
                    tx.leave(cursor, &candidate, false);
                    tx.turn_goes_on(cursor, row);
                    continue;
                }
                Some(Some(..=0)) => {
                    tx.turn_goes_on(cursor, row);
                    aside.push(candidate);
                    continue;
                }
                _ => {}
            }
            // What the kernel refuses stays refused until the run moves.
            let Ok(change) = asked(tx, &candidate.stored, &how, fresh()) else {
                tx.turn_goes_on(cursor, row);
                continue;
            };
            let mut edit = Edit::of(candidate.stored, change, Extra::default());
            edit.entry = Some(candidate.entry);
            if let Some(Some(free)) = slot.and_then(|slot| slots.get_mut(&slot)) {
                *free -= 1;
            }
            if let Room::Left(left) = tx.room_of(cursor, candidate.lane) {
                *left -= 1;
            }
            bytes += edit.stored.weight();
            edits.push(edit);
        }
        if !aside.is_empty() {
            set_aside += tx.set_aside(cursor, &aside).await?;
        }
    }
    Ok(())
}

/// Of the keys that are met for the first time. None: somebody else counts it at the moment.
async fn count_slots<T: Tx>(
    tx: &mut T,
    rows: impl Iterator<Item = &RunRow>,
    counted: Counted,
    slots: &mut BTreeMap<Slot, Option<i64>>,
) -> Result<()> {
    let mut keys: Vec<Slot> = rows.filter_map(slot).collect();
    keys.retain(|key| !slots.contains_key(key));
    keys.sort_unstable();
    keys.dedup();
    if !keys.is_empty() {
        let free = tx.free_slots(keys.clone(), counted).await?;
        slots.extend(keys.into_iter().map(|key| {
            let free = free.get(&key).copied();
            (key, free)
        }));
    }
    Ok(())
}

fn slot(row: &RunRow) -> Option<Slot> {
    row.concurrency_key.as_ref().map(|key| (row.tenant.clone(), key.clone()))
}

/// Whether runs that take so much memory may be taken by one claim.
fn fits(claim: &Claim, bytes: usize) -> bool {
    claim.bytes.is_none_or(|most| bytes <= most)
}

pub(crate) async fn claim_run<T: Tx>(tx: &mut T, run_id: &str, how: &Take) -> Result<Taken> {
    intake::check_name("worker", &how.worker)?;
    for _ in 0..ROUNDS {
        let Some(stored) = tx.runs(&[run_id]).await?.pop() else { return Err(StoreError::no_run(run_id)) };
        if let Some(reason) = wait_reason(tx, &stored.row).await? {
            return Err(StoreError::not_yet(&stored.row, "claim", reason));
        }
        if let Some(taken) = take(tx, stored, how, fresh()).await? {
            return Ok(taken);
        }
    }
    Err(StoreError::Unavailable(format!("{run_id} changed each time; try again")))
}

/// The same in the transaction that made the run ready. One that cannot be taken now waits like any other.
pub(super) async fn claim_if_may<T: Tx>(tx: &mut T, row: &Arc<RunRow>, how: &Take) -> Result<Option<Taken>> {
    match claim_run(tx, row.id(), how).await {
        Ok(taken) => Ok(Some(taken)),
        Err(StoreError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whoever asks again, because the answer did not come, still has the lease.
pub(super) fn own_lease<T: Tx>(tx: &T, row: &Arc<RunRow>, how: &Take) -> Option<Taken> {
    let lease = row.run.lease.as_ref().filter(|lease| !lease.is_expired(tx.now()));
    let is_own = lease.is_some_and(|lease| lease.worker.as_deref() == Some(&*how.worker));
    is_own.then(|| Taken::new(tx, row.clone()))
}

/// Why a run may not be taken now, though its lifecycle may let it. One that somebody holds keeps its slots; one that was given back
/// goes before those that are ready with its key, and not beside those that are worked.
async fn wait_reason<T: Tx>(tx: &mut T, row: &RunRow) -> Result<Option<&'static str>> {
    let is_ready = row.phase() == Phase::Ready;
    match tx.room(&row.tenant, &row.queue).await? {
        Room::Paused => return Ok(Some("its queue is paused")),
        Room::Left(..=0) if is_ready || is_vacant(row) => return Ok(Some("its queue is at its limit")),
        Room::Left(_) | Room::Any => {}
    }
    match is_ready || is_vacant(row) {
        true => key_reason(tx, row, if is_ready { Counted::Held } else { Counted::Worked }).await,
        false => Ok(None),
    }
}

/// Why no slot of its concurrency key is to be had now.
async fn key_reason<T: Tx>(tx: &mut T, row: &RunRow, counted: Counted) -> Result<Option<&'static str>> {
    let Some(slot) = slot(row) else { return Ok(None) };
    let free = tx.free_slots(vec![slot.clone()], counted).await?;
    Ok(match free.get(&slot) {
        Some(1..) => None,
        Some(_) => Some("its concurrency key is at its limit"),
        None => Some("its concurrency key is being counted by another claim: try again"),
    })
}

/// `None` if the kernel refuses.
fn decide<T: Tx>(tx: &T, stored: Stored, how: &Take) -> Option<Edit> {
    let change = asked(tx, &stored, how, fresh()).ok()?;
    Some(Edit::of(stored, change, Extra::default()))
}

fn asked<T: Tx>(tx: &T, stored: &Stored, how: &Take, token: Token) -> Result<Change, Refusal> {
    let who = Who { actor: Actor::Worker, by: &how.worker, fresh: token };
    let request = Request { who, ask: Ask::Claim { lease: how.lease, start: how.start } };
    waypost_kernel::decide(&stored.row.lifecycle, &stored.row.run, &request, tx.now())
}

/// Takes a run without regard to its queue's and its key's limits. `None` if others changed it meanwhile.
pub(crate) async fn take<T: Tx>(
    tx: &mut T,
    stored: Stored,
    how: &Take,
    token: Token,
) -> Result<Option<Taken>> {
    let change = asked(tx, &stored, how, token)?;
    let edit = Edit::of(stored, change, Extra::default());
    let row = edit.stored.row.clone();
    let saved = tx.save(vec![edit]).await?;
    Ok((saved.first() != Some(&Saved::Lost)).then(|| Taken { row, now: tx.now() }))
}

//! Reading events: a run's own, or all of them in the order of their positions.
//!
//! Positions are drawn before their commits, so a later one may be seen before an earlier one. A reader that sees a gap
//! stops before it and looks who is writing to the log at that moment: whoever drew what is missing is among them. When
//! all of those have ended and the gap is still there, nobody will fill it.
//!
//! A statement draws one number for all its events and counts them in the lower 16 bits: what has one number is
//! committed together, so a gap is one between numbers.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Value, json};
use waypost_kernel::Lifecycle;
use waypost_kernel::request::Level;
use waypost_kernel::text::MAX_PAGE;

use crate::columns::parse;
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result;
use crate::postgres::link::session::{Session, Tx};
use crate::postgres::sql::{Args, Columns, args, time};
use crate::rules::messages::{
    BRIEF_BYTES, first_payload, items_message, left_out, standard_message, standard_payload,
};
use crate::seam::error::StoreError;
use crate::seam::projection::{MovedRun, Projected, Step};
use crate::seam::run::EventRow;
use crate::seam::verbs::PAGE_BYTES;

/// Of events `w`, as [`READ`] gives them.
const COLUMNS: &str = "w.position, w.run_id, w.seq, w.at, w.command, w.src, w.dst, w.actor, w.who, w.level, w.message, \
  w.payload::text, CASE WHEN w.left_out IS NULL THEN w.effect::text END, w.via, w.via_command, w.tenant, w.count, w.left_out";

/// What is read of an event, with a guess at how long it is once unpacked: a compressed value may be 256 times as long as it is
/// stored. A payload has a limit of its own.
const READ: &str = "e.position, r.run_id, e.seq, e.at, e.command, e.src, e.dst, e.actor, e.who, e.level, e.message, \
  e.payload, e.effect, e.via, e.via_command, r.tenant, 1024 + coalesce(octet_length(e.message), 0) \
  + least(65536, coalesce(pg_column_size(e.payload), 0)::bigint * CASE WHEN pg_column_compression(e.payload) IS NULL THEN 2 ELSE 256 END) AS bytes, \
  CASE WHEN pg_column_compression(e.effect) IS NULL THEN coalesce(pg_column_size(e.effect), 0) ELSE least(2621440, pg_column_size(e.effect)::bigint * 256) END AS effect_bytes";

/// Which of the events' effects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    All,
    Small,
}

impl Effects {
    /// How large one is that is not read, as far as can be told without unpacking it: of items that are alike an eighth is stored, or less.
    fn left_out(self) -> String {
        match self {
            Effects::All => "NULL::bigint".to_owned(),
            Effects::Small => format!(
                "(SELECT s.bytes FROM (SELECT pg_column_size(e.effect)::bigint * CASE WHEN pg_column_compression(e.effect) IS NULL THEN 1 ELSE 8 END AS bytes) s \
                 WHERE e.seq > 1 AND s.bytes > {BRIEF_BYTES})"
            ),
        }
    }
}

/// What a page may have by such guesses.
const GUESSED_BYTES: i64 = 2 * PAGE_BYTES as i64;

/// Bits of a position that count a statement's events.
const COUNTED: u32 = 16;
/// Numbers that are looked at first.
const STRETCH: i64 = 64;

/// What this store knows of missing positions. All readers of a process share it.
#[derive(Debug, Default)]
pub struct Gaps {
    /// What is missing up to here stays so.
    settled: u64,
    watched: Option<Watch>,
    watches: u64,
}

/// A gap that may still be filled.
#[derive(Debug)]
struct Watch {
    /// Tells it from one that another reader began meanwhile.
    number: u64,
    /// The gap is before this position.
    before: u64,
    /// Those who could fill it.
    writers: HashSet<String>,
}

pub async fn events(
    tx: &Tx,
    run_id: &str,
    after_seq: u64,
    limit: usize,
    effects: Effects,
) -> Result<Vec<EventRow>> {
    let rid = crate::postgres::row::by_id(tx, run_id).await?.rid;
    let condition = "FROM waypost.events e JOIN waypost.runs r ON r.rid = e.rid WHERE e.rid = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3";
    let limit = limit.min(MAX_PAGE);
    let after = after_seq.min(i32::MAX as u64) as i32;
    let (mut found, _) = read(tx, effects, condition, args![rid, after, limit as i64]).await?;
    found.retain(|event| event.seq > after_seq);
    found.truncate(limit);
    Ok(found)
}

pub async fn feed(session: &Session, after: u64, limit: usize) -> Result<Vec<EventRow>> {
    sure_page(session, after, limit.min(MAX_PAGE)).await
}

/// What is read of the log in the order of its positions.
#[allow(async_fn_in_trait, reason = "see `engine::Tx`")]
trait Entry: Sized {
    fn position(&self) -> u64;

    /// Of a stretch of positions, as many as fit into a page; whether there are more.
    async fn read(tx: &Tx, from: i64, to: i64, limit: usize) -> Result<(Vec<Self>, bool)>;
}

impl Entry for EventRow {
    fn position(&self) -> u64 {
        self.position
    }

    async fn read(tx: &Tx, from: i64, to: i64, limit: usize) -> Result<(Vec<EventRow>, bool)> {
        let condition = "FROM waypost.events e JOIN waypost.runs r ON r.rid = e.rid WHERE e.position > $1 AND e.position <= $2 \
                         ORDER BY e.position LIMIT $3";
        read(tx, Effects::All, condition, args![from, to, limit as i64]).await
    }
}

impl Entry for Step<i16> {
    fn position(&self) -> u64 {
        self.position
    }

    async fn read(tx: &Tx, from: i64, to: i64, limit: usize) -> Result<(Vec<Step<i16>>, bool)> {
        let sql = "SELECT e.position, e.dst, e.rid, e.at FROM waypost.events e WHERE e.position > $1 AND e.position <= $2 \
                   ORDER BY e.position LIMIT $3";
        let mut steps = Vec::new();
        for row in tx.query(sql, args![from, to, limit as i64]).await? {
            let columns = Columns(&row);
            let position = columns.get::<i64>(0)?.unsigned_abs();
            let at = time(columns.get(3)?);
            steps.push(Step { position, state: columns.get(1)?, rid: columns.get(2)?, at });
        }
        Ok((steps, false))
    }
}

/// What of the log is about runs of projected lifecycles. Nothing is read of an event but whose it is.
pub async fn projected(session: &Session, after: u64, limit: usize) -> Result<Projected> {
    let found: Vec<Step<i16>> = sure_page(session, after, limit).await?;
    let tx = session.look().await?;
    let runs = moved_runs(&tx, &found).await;
    Ok(Projected {
        position: found.last().map_or(after, |last| last.position),
        more: found.len() >= limit,
        runs: tx.end(runs).await?,
    })
}

async fn moved_runs(tx: &Tx, found: &[Step<i16>]) -> Result<Vec<MovedRun>> {
    let known = tx.known_with(found.iter().map(|step| step.state)).await?;
    let is_projected = |step: &&Step<i16>| known.state(step.state).is_some_and(|(of, _)| of.projected);
    let mut seen = HashSet::new();
    let firsts: Vec<_> = found.iter().filter(is_projected).filter(|step| seen.insert(step.rid)).collect();
    if firsts.is_empty() {
        return Ok(Vec::new());
    }
    let rids: Vec<i64> = firsts.iter().map(|step| step.rid).collect();
    let sql = "SELECT r.rid, r.run_id, r.tenant FROM waypost.runs r WHERE r.rid = ANY ($1)";
    let mut names: HashMap<i64, (String, String)> = HashMap::new();
    for row in tx.query(sql, args![rids]).await? {
        let columns = Columns(&row);
        names.insert(columns.get(0)?, (columns.get(1)?, columns.get(2)?));
    }
    // One that was pruned meanwhile has no name any more, and nobody asks for it.
    let run = |step: &&Step<i16>| {
        let (run_id, tenant) = names.remove(&step.rid)?;
        Some(MovedRun { run_id, tenant, at: step.at })
    };
    Ok(firsts.iter().filter_map(run).collect())
}

/// A page that ends before the first gap that may still be filled.
async fn sure_page<E: Entry>(session: &Session, after: u64, limit: usize) -> Result<Vec<E>> {
    if limit == 0 {
        return Ok(Vec::new());
    }
    if let Some(number) = with_gaps(session, |gaps| gaps.watched.as_ref().map(|watch| watch.number)) {
        let writing = writing(session).await?;
        with_gaps(session, |gaps| gaps.settle(number, &writing));
    }
    // Read before the page: what is settled later may be in the log by then, and not in this page.
    let settled = with_gaps(session, |gaps| gaps.settled);
    let page = page(session, after, limit).await?;
    if sure(settled, after, &page) == page.len() {
        return Ok(page);
    }
    // A gap. Mostly nobody is about to fill it any more.
    let seen = page.last().map_or(after, Entry::position);
    let writing = writing(session).await?;
    if !writing.is_empty() {
        with_gaps(session, |gaps| gaps.watch(seen, writing));
        return Ok(cut(settled, after, page));
    }
    let settled = with_gaps(session, |gaps| {
        gaps.settled = gaps.settled.max(seen);
        gaps.settled
    });
    self::page(session, after, limit).await.map(|page| cut(settled, after, page))
}

/// Takes what was written lately into the index that the feed is read by; until then every reader looks through it.
pub async fn index(session: &Session) -> Result<()> {
    let tx = session.begin().await?;
    let done = tx.one("SELECT waypost.index_log()", &[]).await.map(drop);
    tx.end(done).await
}

/// How long is waited for those who are writing.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
const LOOKS: usize = 2_000;
/// After so many looks somebody is writing for long, and what is known is asked for instead.
const PATIENT_LOOKS: usize = 40;
/// Pages that are looked through for it.
const MOST_PAGES: usize = 20;

/// Whoever reads on after it misses nothing that is committed from now on. While nobody writes for long, that is the last event:
/// all that was drawn up to now is committed, or never will be. Else it is the last one before the first that may still come:
/// nobody waits for somebody else's open transaction.
pub async fn last_position(session: &Session) -> Result<u64> {
    let drawn = drawn(session).await?;
    let mut open = writing(session).await?;
    for look in 0..LOOKS {
        if open.is_empty() {
            // Whoever reads from before goes up to here without stopping at what is missing.
            with_gaps(session, |gaps| gaps.settled = gaps.settled.max(drawn));
            return last_event(session, drawn).await;
        }
        if look == PATIENT_LOOKS
            && let Some(position) = last_sure(session).await?
        {
            return Ok(position);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
        let now = writing(session).await?;
        open.retain(|one| now.contains(one));
    }
    Err(StoreError::Unavailable("somebody has been writing events for 10 s without an end".into()).into())
}

/// All positions that were drawn so far are at most this.
async fn drawn(session: &Session) -> Result<u64> {
    let tx = session.look().await?;
    let sql =
        "SELECT CASE WHEN is_called THEN ((last_value + 1) << 16) - 1 ELSE 0 END FROM waypost.positions";
    let drawn = tx.one(sql, &[]).await;
    Ok(Columns(&tx.end(drawn).await?).get::<i64>(0)?.unsigned_abs())
}

/// The position of the last event up to here: one that a client may name as the id that it saw last.
async fn last_event(session: &Session, until: u64) -> Result<u64> {
    let tx = session.begin().await?;
    let found = async {
        let sql = "SELECT max(e.position) FROM waypost.events e WHERE e.position > $1 AND e.position <= $2";
        let mut to = i64::try_from(until).unwrap_or(i64::MAX);
        let mut stretch = STRETCH << COUNTED;
        while to > 0 {
            let from = to.saturating_sub(stretch).max(0);
            let last: Option<i64> = Columns(&tx.one(sql, args![from, to]).await?).get(0)?;
            if let Some(last) = last {
                return Ok(last.unsigned_abs());
            }
            (to, stretch) = (from, stretch.saturating_mul(4));
        }
        Ok(0)
    };
    let found = found.await;
    tx.end(found).await
}

/// Up to where the log is sure to be whole, from what this process knows to be settled on. None: that is too far back.
async fn last_sure(session: &Session) -> Result<Option<u64>> {
    let tx = session.look().await?;
    let told = tx.one("SELECT coalesce(max(position), 0) FROM waypost.settled", &[]).await;
    let told = Columns(&tx.end(told).await?).get::<i64>(0)?.unsigned_abs();
    let mut position = with_gaps(session, |gaps| {
        gaps.settled = gaps.settled.max(told);
        gaps.settled
    });
    for _ in 0..MOST_PAGES {
        match feed(session, position, MAX_PAGE).await?.last() {
            Some(last) => position = last.position,
            None => return Ok(Some(position)),
        }
    }
    Ok(None)
}

/// Keeps up with what is settled, so that a reader who comes while somebody writes for long need not look far back; one of another
/// process either.
pub async fn keep_up(session: &Session) -> Result<()> {
    let known = with_gaps(session, |gaps| gaps.settled);
    let watched = with_gaps(session, |gaps| gaps.watched.as_ref().map(|watch| watch.number));
    let drawn = drawn(session).await?;
    let writing = writing(session).await?;
    with_gaps(session, |gaps| match watched {
        Some(number) => gaps.settle(number, &writing),
        None if writing.is_empty() => gaps.settled = gaps.settled.max(drawn),
        None => gaps.watch(drawn, writing),
    });
    let settled = with_gaps(session, |gaps| gaps.settled);
    if settled == known {
        return Ok(());
    }
    let tx = session.begin().await?;
    let sql = "INSERT INTO waypost.settled(position) VALUES ($1) ON CONFLICT (is_only) DO UPDATE SET position = excluded.position \
               WHERE settled.position < excluded.position";
    let kept = tx.run(sql, args![i64::try_from(settled).unwrap_or(i64::MAX)]).await.map(drop);
    tx.end(kept).await
}

impl Gaps {
    fn watch(&mut self, before: u64, writers: HashSet<String>) {
        if self.watched.is_none() {
            self.watches += 1;
            self.watched = Some(Watch { number: self.watches, before, writers });
        }
    }

    /// `writing` was asked for when the watch with this number was there: of a later one it knows nothing.
    fn settle(&mut self, number: u64, writing: &HashSet<String>) {
        let is_over = |watch: &mut Watch| watch.number == number && watch.writers.is_disjoint(writing);
        if let Some(watch) = self.watched.take_if(is_over) {
            self.settled = self.settled.max(watch.before);
        }
    }
}

fn with_gaps<T>(session: &Session, work: impl FnOnce(&mut Gaps) -> T) -> T {
    work(&mut session.0.gaps.lock().unwrap_or_else(PoisonError::into_inner))
}

/// How many of a page follow without a gap that could still be filled.
fn sure<E: Entry>(settled: u64, after: u64, page: &[E]) -> usize {
    let mut last = after;
    for (at, position) in page.iter().map(Entry::position).enumerate() {
        if number_of(position) > number_of(last) + 1 && position - 1 > settled {
            return at;
        }
        last = position;
    }
    page.len()
}

fn number_of(position: u64) -> u64 {
    position >> COUNTED
}

fn cut<E: Entry>(settled: u64, after: u64, mut page: Vec<E>) -> Vec<E> {
    page.truncate(sure(settled, after, &page));
    page
}

/// The transactions that have written to the log and not ended. A position is drawn by the insert, which has locked the
/// table before; the lock goes after the commit can be seen. Transaction numbers would do too, but they are the whole
/// server's: anybody's long transaction in another database would hold up the feed at what was pruned.
async fn writing(session: &Session) -> Result<HashSet<String>> {
    let tx = session.begin().await?;
    let sql = "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND relation = 'waypost.events'::regclass \
               AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND mode = 'RowExclusiveLock'";
    let rows = tx.query(sql, &[]).await;
    tx.end(rows).await?.iter().map(|row| Columns(row).get(0)).collect()
}

/// The index knows which blocks hold which positions, not their order: only a stretch is asked for at a time, a longer
/// one each time that too little was found.
async fn page<E: Entry>(session: &Session, after: u64, limit: usize) -> Result<Vec<E>> {
    let tx = session.begin().await?;
    let found = async {
        let last: i64 = Columns(&tx.one("SELECT last_value FROM waypost.positions", &[]).await?).get(0)?;
        let end = (last + 1) << COUNTED;
        let mut from = i64::try_from(after).unwrap_or(i64::MAX);
        let mut stretch = STRETCH << COUNTED;
        let mut page: Vec<E> = Vec::new();
        while from < end && page.len() < limit {
            let to = from.saturating_add(stretch);
            let (found, is_cut) = E::read(&tx, from, to, limit - page.len()).await?;
            page.extend(found.into_iter().filter(|entry| entry.position() > after));
            if is_cut {
                break;
            }
            (from, stretch) = (to, stretch.saturating_mul(4));
        }
        page.truncate(limit);
        Ok(page)
    };
    let found = found.await;
    tx.end(found).await
}

/// As many as fit into a page; whether there are more.
async fn read(
    tx: &Tx,
    effects: Effects,
    condition: &str,
    values: &Args<'_>,
) -> Result<(Vec<EventRow>, bool)> {
    let left_out = effects.left_out();
    let sql = format!(
        "SELECT {COLUMNS} FROM (SELECT g.*, count(*) OVER () AS count, sum(g.guess) OVER (ORDER BY g.position) - g.guess AS before \
         FROM (SELECT f.*, f.bytes + CASE WHEN f.left_out IS NULL THEN f.effect_bytes ELSE 0 END AS guess \
           FROM (SELECT {READ}, {left_out} AS left_out {condition}) f) g) w WHERE w.before < {GUESSED_BYTES} ORDER BY w.position"
    );
    let rows = tx.query(&sql, values).await?;
    let count: i64 = rows.first().map_or(Ok(0), |row| Columns(row).get(16))?;
    let is_cut = count > rows.len() as i64;
    let codes = rows.iter().map(|row| Columns(row).get::<i16>(6)).collect::<Result<Vec<_>>>()?;
    let known = tx.known_with(codes).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let columns = Columns(row);
        let (src, via): (Option<i16>, Option<i16>) = (columns.get(5)?, columns.get(13)?);
        let end = event(&known, &columns, (columns.get(4)?, via.or(src), columns.get(6)?), false)?;
        if let Some(via) = via {
            let begin = event(&known, &columns, (columns.get(14)?, src, via), true)?;
            found.push(EventRow { position: end.position - 1, seq: end.seq - 1, ..begin });
        }
        found.push(end);
    }
    Ok((found, is_cut))
}

/// `is_silent`: the first of two in one row, which says nothing by itself.
fn event(
    known: &LifecycleCodes,
    columns: &Columns<'_>,
    (command, src, dst): (String, Option<i16>, i16),
    is_silent: bool,
) -> Result<EventRow> {
    let (level, message): (Option<String>, Option<String>) =
        if is_silent { (None, None) } else { (columns.get(9)?, columns.get(10)?) };
    let by: String = columns.get(8)?;
    let state = |code: i16| known.state(code).map(|(lifecycle, id)| lifecycle.state(*id));
    let unknown = || StoreError::Unusable(format!("this binary does not know state {dst}"));
    let (lifecycle, to) = known.state(dst).ok_or_else(unknown)?;
    let to = lifecycle.state(*to);
    let from = src.and_then(state);
    let (standard_level, standard): (Level, String) = standard_message(&command, from, to, &by);
    let payload = match columns.get::<Option<&str>>(11)? {
        _ if is_silent => json!({}),
        Some(text) => parse(text),
        None => payload_of(lifecycle, columns, src.is_none())?,
    };
    Ok(EventRow {
        position: columns.get::<i64>(0)?.unsigned_abs(),
        run_id: columns.get(1)?,
        tenant: columns.get(15)?,
        lifecycle: lifecycle.name.to_string(),
        seq: u64::from(columns.get::<i32>(2)?.unsigned_abs()),
        at: time(columns.get(3)?),
        from: from.map(|from| from.name.to_string()),
        to: to.name.to_string(),
        actor: columns.get(7)?,
        level: level.unwrap_or_else(|| standard_level.name().to_owned()),
        message: message.or_else(|| items_message(&payload)).unwrap_or(standard),
        payload,
        command,
        by,
    })
}

/// What a run was born with is kept once, in the event's effect; so is what later ones did.
fn payload_of(lifecycle: &Lifecycle, columns: &Columns<'_>, is_birth: bool) -> Result<Value> {
    if let Some(bytes) = columns.get::<Option<i64>>(17)? {
        return Ok(left_out(bytes.unsigned_abs()));
    }
    let mut effect = columns.get::<Option<&str>>(12)?.map(parse);
    if !is_birth {
        let is_note = columns.get::<Option<&str>>(10)?.is_some();
        let did = effect.as_ref().filter(|_| !is_note);
        return Ok(standard_payload(lifecycle, columns.get(1)?, did));
    }
    let metadata = effect.as_mut().map(|effect| effect["metadata"].take()).filter(|it| !it.is_null());
    Ok(first_payload(effect.as_ref(), metadata))
}

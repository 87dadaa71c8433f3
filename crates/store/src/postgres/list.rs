//! Runs that fit a filter: as a list, and as a sample.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::SystemTime;

use tokio_postgres::types::{ToSql, Type};
use waypost_kernel::Time;
use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::waiting::waits_for_people;

use crate::engine::Stored;
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Result;
use crate::postgres::link::session::Tx;
use crate::postgres::sql::{Columns, args, stamp, time};
use crate::postgres::{row, worked};
use crate::seam::sample::{GROUP, SLACK, Sample, SampledRun, Spread};
use crate::seam::verbs::{Filter, Needs, Page, Parts};
use crate::seam::worked::{Begun, Look};

/// What can be judged by a run's own columns, of the values of [`Asked`].
const FITS: &str = "r.tenant = $2 AND ($4 IS NULL OR r.queue = $4) AND ($7 IS NULL OR r.queue <> $7) \
     AND ($10 IS NULL OR r.playbook = $10 OR starts_with(r.playbook, $11)) AND ($12 IS NULL OR r.queued_at >= $12) AND ($13 IS NULL OR r.queued_at < $13) \
     AND ($15 IS NULL OR r.parent_run_id = $15) \
     AND ($5 IS NULL OR strpos(r.run_id, $5) > 0 OR strpos(coalesce(r.correlation_id, ''), $5) > 0 OR strpos(r.metadata::text, $5) > 0)";

/// And where it is: between two numbers, in a state that is asked for.
const IN_PLACE: &str = "r.rid < $1 AND r.rid >= $14 AND ($3::smallint[] IS NULL OR r.state = ANY ($3)) \
     AND ($8 IS NULL OR r.state / 1000 = 3 AND r.stale_after < CASE WHEN r.claimed_by IS NULL THEN $9 ELSE $8 END)";

/// The run of each that was found, one by one. Left to itself the planner reads all runs for a join with some: of those that a list finds it knows
/// only that they are at most a page for each state, and 24,000 runs were read for a page without any.
const ITS_RUN: &str = "CROSS JOIN LATERAL (SELECT * FROM waypost.runs r WHERE r.rid = e.rid OFFSET 0) r";

/// Bits of a run's number that count those which came in by the same statement.
const NUMBERED: u32 = 16;

/// Runs that stand for all: of each number in the groups `$17` every so manieth, at most `$18`, from a place that differs from number to number. A
/// statement draws one number for all its runs, so that a number has one or thousands.
const SPREAD: &str = "(SELECT o.first + p.place AS rid, o.every AS stands_for \
     FROM (SELECT g.number + d.place AS number FROM unnest($17) AS g(number) CROSS JOIN generate_series(0, 7) AS d(place)) s \
     CROSS JOIN LATERAL (SELECT x.rid FROM waypost.runs x WHERE x.rid >= s.number << 16 AND x.rid < (s.number + 1) << 16 ORDER BY x.rid DESC LIMIT 1) l \
     CROSS JOIN LATERAL (SELECT l.rid - greatest((l.rid & 65535) - 1, 0) AS first, greatest(l.rid & 65535, 1) AS count, \
       (greatest(l.rid & 65535, 1) + $18 - 1) / $18 AS every) o \
     CROSS JOIN LATERAL generate_series(s.number * 7919 % o.every, o.count - 1, o.every) AS p(place)) g \
   CROSS JOIN LATERAL (SELECT * FROM waypost.runs r WHERE r.rid = g.rid OFFSET 0) r";

/// The values of a condition.
struct Asked<'a> {
    filter: &'a Filter,
    before: i64,
    from: i64,
    states: Option<Vec<i16>>,
    /// In which runs of its lifecycle begin.
    births: Vec<i16>,
    /// Groups of a spread, and how many runs at most stand for those of a number.
    groups: Vec<i64>,
    each: i64,
    limit: i64,
    hidden: Option<&'static str>,
    stale_at: Option<SystemTime>,
    lost_at: SystemTime,
    pinned: Option<String>,
    since: Option<SystemTime>,
    until: Option<SystemTime>,
}

impl<'a> Asked<'a> {
    fn new(
        tx: &Tx,
        filter: &'a Filter,
        states: Option<Vec<i16>>,
        (before, from): (i64, i64),
        limit: usize,
    ) -> Asked<'a> {
        Asked {
            filter,
            before,
            from,
            states,
            births: Vec::new(),
            groups: Vec::new(),
            each: 1,
            limit: limit as i64,
            hidden: filter.hidden(),
            stale_at: (filter.needs == Some(Needs::Worker)).then(|| stamp(tx.now)),
            lost_at: stamp(tx.now - VACANT_FOR_LOST),
            pinned: filter.pinned(),
            since: filter.since.map(stamp),
            until: filter.until.map(stamp),
        }
    }

    fn args(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        let Filter { tenant, queue, text, playbook, parent, .. } = self.filter;
        args![
            self.before,
            *tenant,
            self.states,
            *queue,
            *text,
            self.limit,
            self.hidden,
            self.stale_at,
            self.lost_at,
            *playbook,
            self.pinned,
            self.since,
            self.until,
            self.from,
            *parent,
            self.births,
            self.groups,
            self.each
        ]
        .to_vec()
    }
}

/// Newest first.
pub async fn runs(tx: &Tx, filter: &Filter) -> Result<Page> {
    if holds_nul(filter) {
        return Ok(filter.page(Vec::new(), false));
    }
    let mut found = find(tx, filter).await?;
    let is_cut = match filter.include {
        Parts::NONE => false,
        parts => row::fill_in(tx, parts, &mut found).await?,
    };
    Ok(filter.page(found, is_cut))
}

/// What the database cannot hold is in no run.
fn holds_nul(filter: &Filter) -> bool {
    let asks =
        [&filter.lifecycle, &filter.status, &filter.queue, &filter.parent, &filter.playbook, &filter.text];
    asks.into_iter().flatten().any(|asked| asked.contains('\0')) || filter.tenant.contains('\0')
}

/// The codes of the states that a filter asks for; none if it asks for any.
async fn states(tx: &Tx, filter: &Filter) -> Result<(Arc<LifecycleCodes>, Option<Vec<i16>>)> {
    let is = |asked: &Option<String>, name: &str| asked.as_ref().is_none_or(|asked| asked == name);
    let named = filter.lifecycles();
    let known = tx.known_now().await?;
    let of_people = filter.needs == Some(Needs::Person);
    let states = (filter.lifecycle.is_some() || filter.status.is_some() || of_people).then(|| {
        known.codes(|lifecycle, state| {
            (!of_people || waits_for_people(lifecycle, state))
                && named.as_ref().is_none_or(|names| names.iter().any(|name| *name == *lifecycle.name))
                && is(&filter.status, &lifecycle.state(state).name)
        })
    });
    Ok((known, states))
}

async fn find(tx: &Tx, filter: &Filter) -> Result<Vec<Stored>> {
    let between = between(tx, filter).await?;
    let (known, states) = states(tx, filter).await?;
    let named = filter.lifecycles();
    let births = known.codes(|lifecycle, state| {
        lifecycle.initial.contains(&state)
            && named.as_ref().is_some_and(|names| names.iter().any(|name| *name == *lifecycle.name))
    });
    // The newest of each state in which runs of the lifecycle begin: one that is hardly used would else be looked for among all.
    let of_births = format!(
        "FROM (SELECT e.rid FROM unnest($16) AS s(state) CROSS JOIN LATERAL (SELECT e.rid FROM waypost.events e \
           {ITS_RUN} WHERE e.dst = s.state AND e.seq = 1 AND e.rid < $1 AND e.rid >= $14 \
           AND {IN_PLACE} AND {FITS} ORDER BY e.rid DESC LIMIT $6) e) e {ITS_RUN}"
    );
    // Drafts, parked ones and what did not end well are few, and the log has an index of them.
    let unusual = |code: &i16| *code < 2_000 || (4_000..5_000).contains(code) || *code >= 6_000;
    let of_log = format!(
        "FROM (SELECT DISTINCT e.rid FROM unnest($3) AS s(state) CROSS JOIN LATERAL (SELECT DISTINCT e.rid FROM waypost.events e \
           {ITS_RUN} WHERE r.state = e.dst AND e.dst = s.state AND e.rid < $1 AND e.rid >= $14 \
           AND (e.dst < 2000 OR e.dst BETWEEN 4000 AND 4999 OR e.dst >= 6000) AND {FITS} \
           ORDER BY e.rid DESC LIMIT $6) e) e {ITS_RUN}"
    );
    let of_held = format!(
        "FROM (SELECT DISTINCT u.rid FROM waypost.watch w CROSS JOIN unnest(w.rids) AS u(rid)) e {ITS_RUN}"
    );
    let from = match &states {
        // A run's children are few, and have an index.
        _ if filter.parent.is_some() => "FROM waypost.runs r",
        Some(states) if !states.is_empty() && states.iter().all(unusual) => &of_log,
        // Those that are held stand in a list of their own, which is short.
        _ if filter.needs == Some(Needs::Worker) => &of_held,
        _ if !births.is_empty() => &of_births,
        _ => "FROM waypost.runs r",
    };
    let children = if filter.parent.is_some() { "r.parent_run_id = $15 AND" } else { "" };
    let condition = format!("{from} WHERE {children} {IN_PLACE} AND {FITS} ORDER BY r.rid DESC LIMIT $6");
    let limit = filter.page_size() + 1;
    let asked = Asked { births, ..Asked::new(tx, filter, states, between, limit) };
    row::select_lean(tx, &condition, &asked.args()).await
}

pub async fn sample(tx: &Tx, filter: &Filter, look_at: &usize, reach: &Option<Time>) -> Result<Sample> {
    if holds_nul(filter) {
        return Ok(Sample::default());
    }
    let (before, from) = between(tx, filter).await?;
    let (known, states) = states(tx, filter).await?;
    let newest = async |from: i64| {
        let from_runs = format!("waypost.runs r WHERE {IN_PLACE} AND {FITS} ORDER BY r.rid DESC LIMIT $6");
        let asked = Asked::new(tx, filter, states.clone(), (before, from), *look_at);
        sampled(tx, &known, ("1::bigint", &from_runs), &asked.args()).await
    };
    let sql = "SELECT r.rid, r.queued_at FROM waypost.runs r WHERE r.rid = \
        (SELECT x.rid FROM waypost.runs x WHERE x.rid < $1 AND x.rid >= $2 ORDER BY x.rid DESC OFFSET $3 LIMIT 1)";
    let cut = tx.query(sql, args![before, from, *look_at as i64]).await?;
    let Some(columns) = cut.first().map(Columns) else {
        return Ok(Sample { runs: newest(from).await?, ..Sample::default() });
    };
    let (rid, at) = (columns.get::<i64>(0)?, time(columns.get::<SystemTime>(1)?));
    if reach.is_some_and(|reach| at < reach) {
        return Ok(Sample { runs: newest(rid + 1).await?, cut_at: Some(at), one_in: 1 });
    }
    let from = match reach {
        Some(reach) => from.max(first_since(tx, *reach - SLACK).await?),
        None => from,
    };
    let ends = "SELECT min(x.rid), max(x.rid) FROM waypost.runs x WHERE x.rid < $1 AND x.rid >= $2";
    let ends = tx.one(ends, args![before, from]).await?;
    let (first, last): (i64, i64) = (Columns(&ends).get(0)?, Columns(&ends).get(1)?);
    // The other half is for finding out how many runs each number has.
    let half = *look_at / 2;
    let (first, last) = (first >> NUMBERED, last >> NUMBERED);
    let spread = Spread::over(first, last, half);
    let numbers = ((last - first + 1) / spread.one_in as i64).clamp(1, GROUP * spread.groups.len() as i64);
    let each = (half as i64 / numbers).max(1);
    let asked =
        Asked { groups: spread.groups, each, ..Asked::new(tx, filter, states, (before, from), *look_at) };
    let from_groups = format!("{SPREAD} WHERE {IN_PLACE} AND {FITS} LIMIT $6");
    let mut runs = sampled(tx, &known, ("g.stands_for", &from_groups), &asked.args()).await?;
    runs.iter_mut().for_each(|run| run.stands_for *= spread.one_in);
    runs.sort_by_key(|run| Reverse(run.created_at));
    let one_in = runs.iter().map(|run| run.stands_for).sum::<u64>().checked_div(runs.len() as u64);
    Ok(Sample { one_in: one_in.unwrap_or(spread.one_in).max(2), runs, cut_at: *reach })
}

/// What figures are made of, of runs `r`.
pub async fn sampled(
    tx: &Tx,
    known: &LifecycleCodes,
    (stands_for, from): (&str, &str),
    values: &[(&(dyn ToSql + Sync), Type)],
) -> Result<Vec<SampledRun>> {
    let sql = format!(
        "SELECT r.state, r.queued_at, r.finished_at, r.rid, r.seq, r.started_at, r.fence, r.last_command, {stands_for} FROM {from}"
    );
    let rows = tx.query(&sql, values).await?;
    let (mut runs, mut looks) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for columns in rows.iter().map(Columns) {
        let Some((lifecycle, state)) = known.state(columns.get(0)?) else { continue };
        let finished_at = columns.time(2)?;
        let begun = Begun {
            lifecycle,
            state: *state,
            last_command: columns.get(7)?,
            fence: u64::from(columns.get::<i32>(6)?.unsigned_abs()),
            started_at: columns.time(5)?,
            finished_at,
        };
        looks.push(Look::new(
            columns.get(3)?,
            u64::from(columns.get::<i32>(4)?.unsigned_abs()),
            &begun,
            tx.now,
        ));
        let created_at = time(columns.get(1)?);
        runs.push(SampledRun {
            lifecycle: lifecycle.clone(),
            state: *state,
            created_at,
            finished_at,
            stands_for: columns.get::<i64>(8)?.unsigned_abs(),
            took: None,
        });
    }
    let took = worked::of_looks(tx, &looks).await?;
    runs.iter_mut().zip(took).for_each(|(run, took)| run.took = took);
    Ok(runs)
}

/// The numbers between which runs can fit: below the first, from the second on. What came in at other times is not read.
async fn between(tx: &Tx, filter: &Filter) -> Result<(i64, i64)> {
    let before = filter.before()?;
    let before = match filter.until {
        Some(until) => before.min(first_since(tx, until + SLACK).await?),
        None => before,
    };
    let from = match filter.since {
        Some(since) => first_since(tx, since - SLACK).await?,
        None => i64::MIN,
    };
    Ok((before, from))
}

/// The number of the first run of a time or later, found by halves: times have no index, and need none.
async fn first_since(tx: &Tx, since: Time) -> Result<i64> {
    let sql = "WITH RECURSIVE ends AS (SELECT (SELECT min(rid) FROM waypost.runs) AS low, (SELECT max(rid) FROM waypost.runs) + 1 AS high), \
          halves(low, high) AS (SELECT low, high FROM ends WHERE low IS NOT NULL \
            UNION ALL SELECT CASE WHEN m.is_early THEN m.rid + 1 ELSE h.low END, CASE WHEN m.is_early THEN h.high ELSE h.low + (h.high - h.low) / 2 END \
            FROM halves h CROSS JOIN LATERAL (SELECT r.rid, r.queued_at < $1 AS is_early FROM waypost.runs r WHERE r.rid >= h.low + (h.high - h.low) / 2 ORDER BY r.rid LIMIT 1) m \
            WHERE h.low < h.high) \
        SELECT h.low FROM halves h CROSS JOIN ends e WHERE h.low >= h.high AND h.low < e.high";
    let rows = tx.query(sql, args![stamp(since)]).await?;
    rows.first().map_or(Ok(i64::MAX), |row| Columns(row).get(0))
}

//! Runs that fit a filter: as a list, and as a sample.

use std::cmp::Reverse;

use rusqlite::types::Value;
use rusqlite::{Params, Row, params, params_from_iter};
use waypost_kernel::Time;
use waypost_kernel::decide::VACANT_FOR_LOST;
use waypost_kernel::waiting::waits_for_people;

use crate::seam::sample::{GROUP, SLACK, Sample, SampledRun, Spread};
use crate::seam::verbs::{Filter, Needs, Page};
use crate::seam::worked::{Begun, Look};
use crate::sqlite::link::fault::Result;
use crate::sqlite::link::session::Tx;
use crate::sqlite::{row, worked};

/// Where to look for what a filter asks for. A run's children are few, and so is what waits for people or is held: each has an index.
fn places(filter: &Filter) -> &'static str {
    match (&filter.parent, filter.needs) {
        (Some(_), _) => "run_born b CROSS JOIN run_now n ON n.rid = b.rid AND b.parent_run_id = ?18",
        (None, Some(Needs::Person)) => {
            "run_now n INDEXED BY run_people CROSS JOIN run_born b ON b.rid = n.rid AND ?18 IS NULL AND n.state & 7 IN (0, 3)"
        }
        (None, Some(Needs::Worker)) => {
            "run_now n INDEXED BY run_held CROSS JOIN run_born b ON b.rid = n.rid AND ?18 IS NULL AND n.state & 7 = 2"
        }
        (None, None) => "run_now n CROSS JOIN run_born b ON b.rid = n.rid AND ?18 IS NULL",
    }
}

/// What a filter asks for, of the values of [`asked`].
const FITS: &str = "CROSS JOIN state_codes s ON s.code = n.state \
     WHERE b.tenant = ?2 AND (?3 IS NULL OR s.lifecycle IN (?3, ?9)) AND (?4 IS NULL OR s.state = ?4) \
     AND (?5 IS NULL OR n.queue = ?5) AND (?10 IS NULL OR n.state & 7 = 2 AND n.due_at < iif(n.claimed_by IS NULL, ?12, ?10)) \
     AND (?11 IS NULL OR n.state IN (SELECT value FROM json_each(?11))) AND (?8 IS NULL OR n.queue <> ?8) \
     AND (?14 IS NULL OR b.playbook = ?14 OR substr(b.playbook, 1, length(?15)) = ?15) \
     AND (?16 IS NULL OR b.at >= ?16) AND (?17 IS NULL OR b.at < ?17) \
     AND (?6 IS NULL OR instr(b.run_id, ?6) OR instr(coalesce(b.correlation_id, ''), ?6) \
     OR instr(coalesce(n.metadata, b.metadata, '{}'), ?6))";

/// And between which numbers.
const BETWEEN: &str = "n.rid < ?1 AND n.rid >= ?13";

fn fitting(filter: &Filter) -> String {
    format!("{} {FITS} AND {BETWEEN} ORDER BY n.rid DESC LIMIT ?7", places(filter))
}

/// The same of one lifecycle: the newest of each state that its runs are born in, and of those the newest. A lifecycle that is hardly used
/// would else be looked for among all runs.
fn born_in(births: &[i64]) -> String {
    let newest = |code: &i64| {
        format!(
            "SELECT rid FROM (SELECT b.rid FROM run_born b INDEXED BY run_births CROSS JOIN run_now n ON n.rid = b.rid AND ?18 IS NULL \
             {FITS} AND {BETWEEN} AND b.state = {code} AND b.rid < ?1 AND b.rid >= ?13 ORDER BY b.rid DESC LIMIT ?7)"
        )
    };
    let all: Vec<String> = births.iter().map(newest).collect();
    format!(
        "({}) u CROSS JOIN run_now n ON n.rid = u.rid CROSS JOIN run_born b ON b.rid = n.rid CROSS JOIN state_codes s ON s.code = n.state \
         ORDER BY n.rid DESC LIMIT ?7",
        all.join(" UNION ALL ")
    )
}

/// More states than this make the statement longer than the search would be.
const MOST_BIRTHS: usize = 100;

/// The codes of states in which runs of the filter's lifecycle begin. None: something else finds them sooner, or there is none.
fn births(tx: &Tx<'_>, filter: &Filter) -> Result<Option<Vec<i64>>> {
    let (None, None, Some(names)) = (&filter.parent, filter.needs, filter.lifecycles()) else {
        return Ok(None);
    };
    let sql = "SELECT code, lifecycle FROM state_codes WHERE initial = 1";
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
    let known = tx.list(sql, [], read)?.into_iter();
    let codes = known.filter(|(_, of)| names.iter().any(|name| name == of)).map(|(code, _)| code);
    Ok(Some(codes.collect()).filter(|codes: &Vec<i64>| (1..=MOST_BIRTHS).contains(&codes.len())))
}

/// Newest first.
pub fn runs(tx: &Tx<'_>, filter: &Filter) -> Result<Page> {
    let (before, from) = between(tx, filter)?;
    let values = asked(tx, filter, (before, from), filter.page_size() + 1)?;
    let from = births(tx, filter)?.map_or_else(|| fitting(filter), |births| born_in(&births));
    let (found, is_cut) = row::select_page(tx, filter.include, &from, params_from_iter(values))?;
    Ok(filter.page(found, is_cut))
}

pub fn sample(tx: &Tx<'_>, filter: &Filter, look_at: &usize, reach: &Option<Time>) -> Result<Sample> {
    let (before, from) = between(tx, filter)?;
    let newest = |from: i64| {
        let values = asked(tx, filter, (before, from), *look_at)?;
        sampled(tx, &fitting(filter), params_from_iter(values))
    };
    let sql = "SELECT b.rid, b.at FROM run_born b WHERE b.rid = \
        (SELECT rid FROM run_now WHERE rid < ?1 AND rid >= ?2 ORDER BY rid DESC LIMIT 1 OFFSET ?3)";
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, Time::from_ms(row.get(1)?)));
    let Some((rid, at)) = tx.find(sql, params![before, from, *look_at as i64], read)? else {
        return Ok(Sample { runs: newest(from)?, ..Sample::default() });
    };
    if reach.is_some_and(|reach| at < reach) {
        return Ok(Sample { runs: newest(rid + 1)?, cut_at: Some(at), one_in: 1 });
    }
    let from = from.max(reach.map_or(Ok(from), |reach| first_since(tx, reach - SLACK))?);
    let ends = "SELECT (SELECT rid FROM run_now WHERE rid < ?1 AND rid >= ?2 ORDER BY rid LIMIT 1), \
        (SELECT rid FROM run_now WHERE rid < ?1 AND rid >= ?2 ORDER BY rid DESC LIMIT 1)";
    let (first, last) =
        tx.prepare(ends)?.query_row(params![before, from], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let spread = Spread::over(first, last, *look_at);
    let mut values = asked(tx, filter, (before, from), *look_at)?;
    values.push(Value::Text(serde_json::json!(spread.groups).to_string()));
    // Of two bounds SQLite begins at the one that it meets first: the group's is the near one.
    let groups = format!(
        "json_each(?19) g CROSS JOIN run_now n ON n.rid >= g.value AND n.rid < g.value + {GROUP} \
         CROSS JOIN run_born b ON b.rid = n.rid AND (?18 IS NULL OR b.parent_run_id = ?18) {FITS} AND +n.rid < ?1 AND +n.rid >= ?13 LIMIT ?7"
    );
    let mut runs = sampled(tx, &groups, params_from_iter(values))?;
    runs.iter_mut().for_each(|run| run.stands_for = spread.one_in);
    runs.sort_by_key(|run| Reverse(run.created_at));
    Ok(Sample { runs, cut_at: *reach, one_in: spread.one_in })
}

/// What figures are made of, of runs `n` that were born as `b`.
pub fn sampled(tx: &Tx<'_>, from: &str, values: impl Params) -> Result<Vec<SampledRun>> {
    let sql = format!(
        "SELECT n.state, b.at, n.finished_at, n.rid, n.seq, n.started_at, n.fence, n.last_command FROM {from}"
    );
    let mut statement = tx.prepare(&sql)?;
    let mut rows = statement.query(values)?;
    let (mut runs, mut looks) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let Some((lifecycle, state)) = tx.named(row.get(0)?)?.of else { continue };
        let time = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(Time::from_ms));
        let (created_at, finished_at) = (Time::from_ms(row.get(1)?), time(2)?);
        let command = row.get_ref(7)?.as_str().unwrap_or_default();
        let (started_at, fence) = (time(5)?, row.get(6)?);
        let begun =
            Begun { lifecycle: &lifecycle, state, last_command: command, fence, started_at, finished_at };
        looks.push(Look::new(row.get(3)?, row.get(4)?, &begun, tx.now));
        runs.push(SampledRun { lifecycle, state, created_at, finished_at, stands_for: 1, took: None });
    }
    let took = worked::of_looks(tx, &looks)?;
    runs.iter_mut().zip(took).for_each(|(run, took)| run.took = took);
    Ok(runs)
}

/// Values of [`FITS`].
fn asked(tx: &Tx<'_>, filter: &Filter, (before, from): (i64, i64), limit: usize) -> Result<Vec<Value>> {
    // Of one that names nothing there are no runs, and the second of two names is the first if there is one alone.
    let named = filter.lifecycles();
    let lifecycle = named.as_ref().map(|names| names.first().map_or("", |name| name).to_owned());
    let or_lifecycle = named.as_ref().map(|names| names.last().map_or("", |name| name).to_owned());
    let stale_at = (filter.needs == Some(Needs::Worker)).then(|| tx.now.ms());
    let people = match filter.needs {
        Some(Needs::Person) => Some(states_of_people(tx)?),
        _ => None,
    };
    let text = |text: Option<String>| text.map_or(Value::Null, Value::Text);
    let number = |number: Option<i64>| number.map_or(Value::Null, Value::Integer);
    Ok(vec![
        Value::Integer(before),
        Value::Text(filter.tenant.clone()),
        text(lifecycle),
        text(filter.status.clone()),
        text(filter.queue.clone()),
        text(filter.text.clone()),
        Value::Integer(limit as i64),
        text(filter.hidden().map(str::to_owned)),
        text(or_lifecycle),
        number(stale_at),
        text(people),
        Value::Integer((tx.now - VACANT_FOR_LOST).ms()),
        Value::Integer(from),
        text(filter.playbook.clone()),
        text(filter.pinned()),
        number(filter.since.map(Time::ms)),
        number(filter.until.map(Time::ms)),
        text(filter.parent.clone()),
    ])
}

/// The numbers between which runs can fit: below the first, from the second on. What came in at other times is not read.
fn between(tx: &Tx<'_>, filter: &Filter) -> Result<(i64, i64)> {
    let before = filter.before()?;
    let before = match filter.until {
        Some(until) => before.min(first_since(tx, until + SLACK)?),
        None => before,
    };
    let from = filter.since.map_or(Ok(i64::MIN), |since| first_since(tx, since - SLACK))?;
    Ok((before, from))
}

/// The number of the first run of a time or later, found by halves: times have no index, and need none.
fn first_since(tx: &Tx<'_>, since: Time) -> Result<i64> {
    let ends = "SELECT (SELECT min(rid) FROM run_born), (SELECT max(rid) FROM run_born)";
    let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?));
    let Some((Some(mut low), Some(last))) = tx.find(ends, [], read)? else { return Ok(i64::MAX) };
    let mut high = last + 1;
    while low < high {
        let middle = low + (high - low) / 2;
        let sql = "SELECT rid, at FROM run_born WHERE rid >= ?1 ORDER BY rid LIMIT 1";
        let read = |row: &Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
        match tx.find(sql, [middle], read)? {
            Some((rid, at)) if at < since.ms() => low = rid + 1,
            _ => high = middle,
        }
    }
    Ok(if low > last { i64::MAX } else { low })
}

/// The codes of states in which a run waits for people, as a text of JSON.
fn states_of_people(tx: &Tx<'_>) -> Result<String> {
    let codes = tx.list("SELECT code FROM state_codes", [], |row| row.get::<_, i64>(0))?;
    let mut waiting = Vec::new();
    for code in codes {
        if let Some((lifecycle, state)) = tx.named(code)?.of
            && waits_for_people(&lifecycle, state)
        {
            waiting.push(code);
        }
    }
    Ok(serde_json::json!(waiting).to_string())
}

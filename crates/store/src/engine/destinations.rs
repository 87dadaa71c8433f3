//! Destinations: a row each, which whoever calls one locks for a moment. No run's transaction waits for it.

use waypost_kernel::breaker::{Alert, Breaker, Settings, State};
use waypost_kernel::bucket::Bucket;
use waypost_kernel::destination::{Destination, Limit};
use waypost_kernel::{Span, Time};

use super::tx::Tx;
use crate::rules::intake::{check_given_name, check_name};
use crate::seam::destinations::{Admit, Admitted, Answered, DestinationRow};
use crate::seam::error::{Result, StoreError};
use crate::seam::targets::check_count;
use crate::statement::{Arg, Cells, Sql, query, values};

/// What one unit of an amount that is stored may be at most: all of them fit into 63 bits.
const MOST: u64 = 1 << 53;

const COLUMNS: &str = "capacity_milli, rate_milli_per_s, pace_percent, available_milli, at_us, breaker_after, pause_ms, probe_ms, \
                       consecutive, since_us, until_us, calls, throttled, opened, changed_us";

/// Permits for as many calls as there are now.
pub(crate) async fn admit<T: Tx + Sql>(tx: &mut T, ask: &Admit) -> Result<Admitted> {
    check(&ask.tenant, &ask.destination)?;
    check_limit(&ask.limit)?;
    let now = tx.now();
    let row = match find(tx, &ask.tenant, &ask.destination).await? {
        Some(row) => row,
        None => {
            insert(tx, &row_of(ask, now)).await?;
            // Somebody else may have been first.
            let row = find(tx, &ask.tenant, &ask.destination).await?;
            row.ok_or_else(|| StoreError::Unavailable("the destination is not there; try again".into()))?
        }
    };
    let Limit { capacity_milli, rate_milli_per_s, breaker } = ask.limit;
    let limit = row.state;
    // What a destination told of its own limit stands until its caller asks with another one.
    let is_same = limit.settings == breaker && row.asked == (capacity_milli, rate_milli_per_s);
    let state = if is_same { row.state } else { row.state.limited(&ask.limit, now) };
    let (state, grant) = state.admit(ask.calls, ask.cost_milli.min(MOST), now);
    if state != row.state || !is_same {
        let asked = (capacity_milli, rate_milli_per_s);
        save(tx, &Kept { state, asked, changed_at: now, ..row }).await?;
    }
    Ok(Admitted {
        granted: grant.calls,
        is_probe: grant.is_probe,
        until: grant.wait.map(|wait| now + wait),
        now,
    })
}

/// What calls were answered.
pub(crate) async fn answered<T: Tx + Sql>(tx: &mut T, report: &Answered) -> Result<DestinationRow> {
    check_count("answers", report.answers.len())?;
    let now = tx.now();
    let row = known(tx, &report.tenant, &report.destination).await?;
    let (state, alert) = row.state.answered(&report.answers, report.unused_milli.min(MOST), now);
    let throttled = report.answers.iter().filter(|answer| answer.throttled).count() as u64;
    let calls = row.calls + report.answers.len() as u64;
    let opened = row.opened + openings(&row.state, report, now);
    let row = Kept { state, calls, throttled: row.throttled + throttled, opened, changed_at: now, ..row };
    save(tx, &row).await?;
    Ok(DestinationRow { alert, ..row.told() })
}

/// How often the breaker opens with these answers, whatever the last of them does to it.
fn openings(state: &Destination, report: &Answered, now: Time) -> u64 {
    let mut breaker = state.breaker;
    let opens = report.answers.iter().filter(|answer| {
        let alert;
        (breaker, alert) = breaker.report(&state.settings, answer.throttled, now);
        alert == Some(Alert::Opened)
    });
    opens.count() as u64
}

/// One evaluation of whether throttled answers come in a burst: slower, or faster again.
pub(crate) async fn pace_destination<T: Tx + Sql>(
    tx: &mut T,
    tenant: &str,
    name: &str,
    burst: &bool,
) -> Result<DestinationRow> {
    let now = tx.now();
    let row = known(tx, tenant, name).await?;
    let paced = Kept { state: row.state.paced(*burst, now), changed_at: now, ..row };
    save(tx, &paced).await?;
    Ok(paced.told())
}

/// By tenant and name; of one tenant, or of all.
pub(crate) async fn destinations<T: Sql>(tx: &mut T, tenant: &Option<String>) -> Result<Vec<DestinationRow>> {
    let sql = format!(
        "SELECT tenant, name, asked_capacity_milli, asked_rate_milli_per_s, {COLUMNS} FROM waypost.destinations \
         WHERE $1 IS NULL OR tenant = $1 ORDER BY tenant, name"
    );
    query(tx, &sql, values![tenant]).await?.iter().map(|row| Ok(read(row)?.told())).collect()
}

/// A row as it is stored.
struct Kept {
    tenant: String,
    name: String,
    state: Destination,
    /// Capacity and rate that were asked with; what the destination told of itself may be another.
    asked: (u64, u64),
    calls: u64,
    throttled: u64,
    /// How often the breaker has opened.
    opened: u64,
    changed_at: Time,
}

impl Kept {
    fn told(self) -> DestinationRow {
        let Kept { tenant, name, state, calls, throttled, opened, changed_at, .. } = self;
        DestinationRow { tenant, name, state, calls, throttled, opened, changed_at, alert: None }
    }
}

fn row_of(ask: &Admit, now: Time) -> Kept {
    Kept {
        tenant: ask.tenant.clone(),
        name: ask.destination.clone(),
        state: Destination::new(&ask.limit, now),
        asked: (ask.limit.capacity_milli, ask.limit.rate_milli_per_s),
        calls: 0,
        throttled: 0,
        opened: 0,
        changed_at: now,
    }
}

fn check(tenant: &str, name: &str) -> Result<()> {
    check_given_name("tenant", tenant)?;
    check_name("destination", name)
}

fn check_limit(limit: &Limit) -> Result<()> {
    let most = |field: &str, value: u64| match value {
        1..=MOST => Ok(()),
        _ => Err(StoreError::invalid(field, format!("is {value}; allowed: 1 to {MOST}"))),
    };
    most("capacity_milli", limit.capacity_milli)?;
    most("rate_milli_per_s", limit.rate_milli_per_s)?;
    for (field, span) in
        [("pause_ms", limit.breaker.pause), ("probe_timeout_ms", limit.breaker.probe_timeout)]
    {
        if !(0..=86_400_000).contains(&span.ms()) {
            let message = format!("is {} ms; allowed: 0 to 86400000", span.ms());
            return Err(StoreError::invalid(field, message));
        }
    }
    Ok(())
}

async fn known<T: Sql>(tx: &mut T, tenant: &str, name: &str) -> Result<Kept> {
    check(tenant, name)?;
    let missing = || StoreError::invalid("destination", format!("nobody has asked for {name:?} yet"));
    find(tx, tenant, name).await?.ok_or_else(missing)
}

/// Locks it.
async fn find<T: Sql>(tx: &mut T, tenant: &str, name: &str) -> Result<Option<Kept>> {
    let sql = format!(
        "SELECT tenant, name, asked_capacity_milli, asked_rate_milli_per_s, {COLUMNS} FROM waypost.destinations \
         WHERE tenant = $1 AND name = $2 @lock(FOR UPDATE)"
    );
    query(tx, &sql, values![tenant, name]).await?.first().map(read).transpose()
}

fn read(row: &Cells) -> Result<Kept> {
    let number = |at: usize| row.get::<u64>(at);
    let time = |at: usize| Ok::<_, StoreError>(Time::from_micros(number(at)? as i64));
    let span = |at: usize| Ok::<_, StoreError>(Span::from_ms(number(at)? as i64));
    let maybe = |at: usize| row.get::<Option<u64>>(at);
    let breaker = match (maybe(13)?, maybe(14)?) {
        (_, None) => State::Closed,
        (None, Some(until)) => State::Open { until: Time::from_micros(until as i64) },
        (Some(since), Some(until)) => {
            State::Probing { since: Time::from_micros(since as i64), until: Time::from_micros(until as i64) }
        }
    };
    Ok(Kept {
        tenant: row.get(0)?,
        name: row.get(1)?,
        asked: (number(2)?, number(3)?),
        state: Destination {
            bucket: Bucket {
                capacity_milli: number(4)?,
                rate_milli_per_s: number(5)?,
                pace_percent: number(6)?.min(100) as u8,
                available_milli: number(7)?,
                at: time(8)?,
            },
            settings: Settings { after: number(9)? as u32, pause: span(10)?, probe_timeout: span(11)? },
            breaker: Breaker { consecutive: number(12)? as u32, state: breaker },
        },
        calls: number(15)?,
        throttled: number(16)?,
        opened: number(17)?,
        changed_at: time(18)?,
    })
}

fn stored(row: &Kept) -> Vec<Arg> {
    let Destination { bucket, breaker, settings } = row.state;
    let micros = |time: Time| Arg::Int(Some(time.micros()));
    let (since, until) = match breaker.state {
        State::Closed => (Arg::Int(None), Arg::Int(None)),
        State::Open { until } => (Arg::Int(None), micros(until)),
        State::Probing { since, until } => (micros(since), micros(until)),
    };
    let mut values = values![&row.tenant, &row.name, row.asked.0, row.asked.1];
    values.extend(values![
        bucket.capacity_milli.min(MOST),
        bucket.rate_milli_per_s.min(MOST),
        u32::from(bucket.pace_percent),
        bucket.available_milli.min(MOST),
    ]);
    values.push(micros(bucket.at));
    values.extend(values![settings.after]);
    values.push(Arg::Int(Some(settings.pause.ms())));
    values.push(Arg::Int(Some(settings.probe_timeout.ms())));
    values.extend(values![breaker.consecutive]);
    values.extend([since, until]);
    values.extend(values![row.calls, row.throttled, row.opened]);
    values.push(micros(row.changed_at));
    values
}

async fn insert<T: Sql>(tx: &mut T, row: &Kept) -> Result<()> {
    let sql = format!(
        "INSERT INTO waypost.destinations(tenant, name, asked_capacity_milli, asked_rate_milli_per_s, {COLUMNS}) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) ON CONFLICT (tenant, name) DO NOTHING"
    );
    query(tx, &sql, stored(row)).await.map(drop)
}

async fn save<T: Sql>(tx: &mut T, row: &Kept) -> Result<()> {
    let sql = "UPDATE waypost.destinations SET asked_capacity_milli = $3, asked_rate_milli_per_s = $4, capacity_milli = $5, rate_milli_per_s = $6, \
               pace_percent = $7, available_milli = $8, at_us = $9, breaker_after = $10, pause_ms = $11, probe_ms = $12, consecutive = $13, since_us = $14, \
               until_us = $15, calls = $16, throttled = $17, opened = $18, changed_us = $19 WHERE tenant = $1 AND name = $2";
    query(tx, sql, stored(row)).await.map(drop)
}

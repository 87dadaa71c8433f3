//! Alerts: a row each, which whoever evaluates or sends writes if nobody else has meanwhile.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use waypost_kernel::Time;
use waypost_kernel::alert::{Condition, Delivery, Status};

use super::access::audit;
use super::tx::Tx;
use crate::rules::intake::{check_given_name, check_name, check_reason, cleaned_message, whole_ms};
use crate::seam::access::Who;
use crate::seam::alerts::{AlertRow, Silence, SilenceAlert};
use crate::seam::error::{Result, StoreError};
use crate::statement::{Arg, Cells, Sql, query, values};

const COLUMNS: &str = "tenant, name, subject, status, value_milli, episode, since, well_since, fired_at, resolved_at, evaluated_at, \
                       summary, samples, deliveries, silenced_until, silenced_by, silence_reason, updated_at";

/// By tenant, name and subject; of one tenant, or of all.
pub(crate) async fn alerts<T: Sql>(tx: &mut T, tenant: &Option<String>) -> Result<Vec<AlertRow>> {
    let sql = format!(
        "SELECT {COLUMNS}, revision FROM waypost.alerts WHERE $1 IS NULL OR tenant = $1 ORDER BY tenant, name, subject"
    );
    query(tx, &sql, values![tenant]).await?.iter().map(read).collect()
}

/// Writes it if nobody has written it since it was read; gives whether it did.
pub(crate) async fn put_alert<T: Tx + Sql>(tx: &mut T, row: &AlertRow) -> Result<bool> {
    check_given_name("tenant", &row.tenant)?;
    row.check()?;
    let row = AlertRow { updated_at: tx.now(), ..row.clone() };
    let mut values = stored(&row);
    let sql = match row.revision {
        0 => format!(
            "INSERT INTO waypost.alerts({COLUMNS}, revision) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
             $17, $18, 1) ON CONFLICT (tenant, name, subject) DO NOTHING RETURNING revision"
        ),
        revision => {
            values.push(Arg::from(revision));
            "UPDATE waypost.alerts SET status = $4, value_milli = $5, episode = $6, since = $7, well_since = $8, fired_at = $9, resolved_at = $10, \
             evaluated_at = $11, summary = $12, samples = $13, deliveries = $14, silenced_until = $15, silenced_by = $16, silence_reason = $17, \
             updated_at = $18, revision = revision + 1 WHERE tenant = $1 AND name = $2 AND subject = $3 AND revision = $19 RETURNING revision"
                .to_owned()
        }
    };
    Ok(!query(tx, &sql, values).await?.is_empty())
}

/// One that was never evaluated can be silenced too, before what is known to come.
pub(crate) async fn silence_alert<T: Tx + Sql>(
    tx: &mut T,
    ask: &SilenceAlert,
    who: &Who,
) -> Result<AlertRow> {
    check_given_name("tenant", &who.tenant)?;
    check_name("by", &who.by)?;
    check_reason(who.reason.as_deref())?;
    ask.check()?;
    let sql = format!(
        "SELECT {COLUMNS}, revision FROM waypost.alerts WHERE tenant = $1 AND name = $2 AND subject = $3 @lock(FOR UPDATE)"
    );
    let found = query(tx, &sql, values![&who.tenant, &ask.name, &ask.subject]).await?;
    let now = tx.now();
    let row = match found.first() {
        Some(found) => read(found)?,
        None => AlertRow {
            tenant: who.tenant.clone(),
            name: ask.name.clone(),
            subject: ask.subject.clone(),
            condition: Condition { since: now, evaluated_at: now, ..Condition::default() },
            ..AlertRow::default()
        },
    };
    // Nothing is silenced: a row for it would be one for an alert that never was bad.
    if found.is_empty() && ask.lasts.is_none() {
        return Ok(row);
    }
    let silence = ask.lasts.map(|lasts| Silence {
        until: now + lasts,
        by: who.by.clone(),
        reason: who.reason.clone().unwrap_or_default(),
    });
    if !put_alert(tx, &AlertRow { silence, ..row }).await? {
        return Err(StoreError::Unavailable("somebody else wrote the alert; try again".into()));
    }
    audit(tx, who, ask.action(), &ask.about()).await?;
    let written = query(tx, &sql, values![&who.tenant, &ask.name, &ask.subject]).await?;
    written.first().map(read).unwrap_or_else(|| Err(StoreError::Unavailable("the alert is gone".into())))
}

fn read(row: &Cells) -> Result<AlertRow> {
    let unusable = || StoreError::Unusable(format!("alert {}: its row cannot be used", row.name(1)));
    let json = |at: usize| serde_json::from_str::<Value>(&row.get::<String>(at)?).map_err(|_| unusable());
    let status: String = row.get(3)?;
    let silence = |until: Time| -> Result<Silence> {
        let text = |at: usize| Ok::<_, StoreError>(row.get::<Option<String>>(at)?.unwrap_or_default());
        Ok(Silence { until, by: text(15)?, reason: text(16)? })
    };
    Ok(AlertRow {
        tenant: row.get(0)?,
        name: row.get(1)?,
        subject: row.get(2)?,
        condition: Condition {
            status: Status::parse(&status).ok_or_else(unusable)?,
            value_milli: row.get(4)?,
            episode: u32::try_from(row.get::<u64>(5)?).unwrap_or(u32::MAX),
            since: row.get(6)?,
            well_since: row.get(7)?,
            fired_at: row.get(8)?,
            resolved_at: row.get(9)?,
            evaluated_at: row.get(10)?,
        },
        summary: row.get(11)?,
        samples: read_samples(&json(12)?).ok_or_else(unusable)?,
        deliveries: read_deliveries(&json(13)?).ok_or_else(unusable)?,
        silence: row.get::<Option<Time>>(14)?.map(silence).transpose()?,
        updated_at: row.get(17)?,
        revision: row.get(18)?,
    })
}

fn stored(row: &AlertRow) -> Vec<Arg> {
    let it = row.condition;
    let silence = row.silence.as_ref();
    let maybe = |time: Option<Time>| time.map(whole_ms);
    let mut values = values![&row.tenant, &row.name, &row.subject, it.status.name()];
    values.push(Arg::Int(it.value_milli));
    values.extend(values![
        it.episode,
        whole_ms(it.since),
        maybe(it.well_since),
        maybe(it.fired_at),
        maybe(it.resolved_at),
        whole_ms(it.evaluated_at),
        cleaned_message(&row.summary),
        samples_text(&row.samples),
        deliveries_text(&row.deliveries),
        maybe(silence.map(|it| it.until)),
        silence.map(|it| it.by.as_str()),
        silence.map(|it| it.reason.as_str()),
        whole_ms(row.updated_at),
    ]);
    values
}

fn samples_text(samples: &[(Time, u64)]) -> String {
    json!(samples.iter().map(|(at, count)| (whole_ms(*at).ms(), count)).collect::<Vec<_>>()).to_string()
}

fn read_samples(value: &Value) -> Option<Vec<(Time, u64)>> {
    let sample = |it: &Value| Some((Time::from_ms(it[0].as_i64()?), it[1].as_u64()?));
    value.as_array()?.iter().map(sample).collect()
}

fn deliveries_text(deliveries: &BTreeMap<String, Delivery>) -> String {
    let object = deliveries.iter().map(|(sink, it)| {
        let told = json!({
            "episode": it.episode,
            "is_firing": it.is_firing,
            "sent_at": it.sent_at.map(|at| whole_ms(at).ms()),
            "next_at": whole_ms(it.next_at).ms(),
            "tries": it.tries,
            "error": it.error.as_deref().map(cleaned_message),
        });
        (sink.clone(), told)
    });
    Value::Object(object.collect()).to_string()
}

fn read_deliveries(value: &Value) -> Option<BTreeMap<String, Delivery>> {
    let delivery = |(sink, it): (&String, &Value)| {
        let told = Delivery {
            episode: it["episode"].as_u64()?.try_into().ok()?,
            is_firing: it["is_firing"].as_bool()?,
            sent_at: it["sent_at"].as_i64().map(Time::from_ms),
            next_at: Time::from_ms(it["next_at"].as_i64()?),
            tries: it["tries"].as_u64()?.try_into().ok()?,
            error: it["error"].as_str().map(str::to_owned),
        };
        Some((sink.clone(), told))
    };
    value.as_object()?.iter().map(delivery).collect()
}

//! Writing new runs, in one statement.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tokio_postgres::types::Type;
use waypost_kernel::Phase;

use super::PgTx;
use super::arrays::Parameters;
use super::functions::born;
use super::save::born_object;
use crate::columns::{Cell, Kind};
use crate::engine::{Birth, Inserted, Stored};
use crate::json::codec;
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Fault;
use crate::postgres::sql::{Columns, stamp};
use crate::seam::error::Result;

/// One statement's share: its rows are counted with 16 bits.
const MOST: usize = 16_000;

pub async fn insert(tx: &mut PgTx, births: Vec<Birth>) -> Result<Vec<Inserted>> {
    let mut all = Vec::with_capacity(births.len());
    let mut rest = births;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(MOST));
        all.extend(insert_some(tx, rest).await?);
        rest = later;
    }
    Ok(all)
}

async fn insert_some(tx: &mut PgTx, births: Vec<Birth>) -> Result<Vec<Inserted>> {
    let known = tx.known();
    let mut order: Vec<usize> = (0..births.len()).collect();
    if births.iter().any(|birth| birth.row.idempotency_key.is_some()) {
        let key = |at: usize| (&births[at].row.tenant, &births[at].row.idempotency_key);
        order.sort_by(|one, other| key(*one).cmp(&key(*other)));
    }
    let (at, known_now, made, before) = {
        let parameters = parameters(tx, &known, &births, &order)?;
        let sql = format!("SELECT * FROM waypost.insert({})", parameters.placeholders());
        let row = tx.write(&sql, &parameters.args(), 4).await?;
        let columns = Columns(&row);
        let read = (|| {
            Ok((
                columns.time(0)?.unwrap_or_default(),
                columns.get::<i64>(1)?,
                columns.get::<Option<Vec<i32>>>(2)?,
                columns.get::<Option<i64>>(3)?,
            ))
        })();
        tx.read(read)?
    };
    tx.session.0.memory.see_clock(at);
    let (Some(made), Some(before)) = (made, before) else {
        tx.now = at;
        if known_now != known.revision {
            tx.learn().await?;
        }
        return Ok(births.into_iter().map(|birth| Inserted::Stale(Box::new(birth))).collect());
    };
    let made: HashSet<i32> = made.into_iter().collect();
    let answer = |(at, birth): (usize, Birth)| {
        let place = at as i32 + 1;
        if !made.contains(&place) {
            return Inserted::KeyTaken(Box::new(birth));
        }
        let bytes = birth.texts.bytes();
        Inserted::Made(Stored {
            rid: before + i64::from(place),
            row: Arc::new(birth.row),
            last: None,
            bytes,
            recalled: false,
        })
    };
    Ok(births.into_iter().enumerate().map(answer).collect())
}

fn parameters<'a>(
    tx: &PgTx,
    known: &LifecycleCodes,
    births: &'a [Birth],
    order: &[usize],
) -> Result<Parameters<'a>> {
    let ordered = || order.iter().map(|at| &births[*at]);
    let mut all = Parameters::default();
    all.add(stamp(tx.now), Type::TIMESTAMPTZ);
    all.add(tx.is_open(), Type::BOOL);
    all.add(known.revision, Type::INT8);
    let mut parents: Vec<&'a str> =
        ordered().filter_map(|birth| birth.row.parent_run_id.as_deref()).collect();
    parents.sort_unstable();
    parents.dedup();
    all.add(parents, Type::TEXT_ARRAY);
    let held =
        ordered().filter(|birth| birth.row.phase() == Phase::Held).map(|birth| birth.row.queue.as_str());
    let mut gates: Vec<&'a str> = held.collect();
    gates.sort_unstable();
    gates.dedup();
    all.add(gates, Type::TEXT_ARRAY);
    all.lanes(tx.now, ordered().map(|birth| &birth.row).filter(|row| row.phase() == Phase::Ready));
    all.add(order.iter().map(|at| *at as i32 + 1).collect::<Vec<i32>>(), Type::INT4_ARRAY);
    let code = |birth: &Birth| known.code(&birth.row.lifecycle, birth.row.run.state).map_err(Fault::told);
    all.folded(ordered().map(code).collect::<Result<Vec<i16>>>()?, Type::INT2_ARRAY);
    all.column(Kind::Int4, ordered().map(|birth| Cell::Number(birth.row.item_count() as i64)));
    all.texts(ordered().map(|birth| birth.texts.fingerprint.as_deref().map(Cow::Borrowed)));
    all.texts(ordered().map(|birth| Some(Cow::Borrowed(&*birth.event.command))));
    all.texts(ordered().map(|birth| Some(Cow::Borrowed(birth.event.actor.name()))));
    all.texts(ordered().map(|birth| Some(Cow::Borrowed(&*birth.event.by))));
    all.texts(ordered().map(|birth| effect(birth).map(Cow::Owned)));
    for column in born() {
        let text = |text: &'a Option<String>, none: &'static str| {
            Cell::Text(Cow::Borrowed(text.as_deref().unwrap_or(none)))
        };
        // These were written out when they came in.
        all.column(
            column.kind,
            ordered().map(|birth| match column.name {
                "input" => Cell::Text(Cow::Borrowed(birth.texts.input.as_str())),
                "metadata" => text(&birth.texts.metadata, "{}"),
                "details" => text(&birth.texts.details, "{}"),
                _ => (column.get)(&birth.row),
            }),
        );
    }
    let items: Vec<Value> = order
        .iter()
        .flat_map(|at| {
            births[*at]
                .items
                .iter()
                .map(|item| born_object("run", *at as i64 + 1, &births[*at].row.lifecycle, item))
        })
        .collect();
    all.add((!items.is_empty()).then(|| Value::Array(items).to_string()), Type::TEXT);
    Ok(all)
}

/// What the birth's event keeps. Mostly that is the metadata, whose text need not be made again.
fn effect(birth: &Birth) -> Option<String> {
    let Birth { row, texts, event, .. } = birth;
    match (codec::effect_json(event, &row.lifecycle), &texts.metadata, &texts.details) {
        (None, None, None) => None,
        (None, Some(metadata), None) => Some(format!("{{\"metadata\":{metadata}}}")),
        (mut effect, _, _) => {
            codec::add_patch(&mut effect, "metadata", &row.metadata);
            codec::add_patch(&mut effect, "details", &row.details);
            effect.map(|effect| effect.to_string())
        }
    }
}

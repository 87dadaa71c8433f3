//! Writing new runs, in one statement.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tokio_postgres::types::Type;
use waypost_kernel::Phase;

use super::PgTx;
use super::arrays::Parameters;
use super::functions::new_run_columns;
use super::queue::gate;
use super::save::new_item_object;
use crate::columns::{Cell, Kind};
use crate::engine::{Inserted, NewRow, Stored};
use crate::json::codec;
use crate::postgres::lifecycle_codes::LifecycleCodes;
use crate::postgres::link::fault::Fault;
use crate::postgres::sql::{Columns, stamp};
use crate::seam::error::Result;

/// One statement's share: its rows are counted with 16 bits.
const MOST: usize = 16_000;

pub async fn insert(tx: &mut PgTx, new_rows: Vec<NewRow>) -> Result<Vec<Inserted>> {
    let mut all = Vec::with_capacity(new_rows.len());
    let mut rest = new_rows;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(MOST));
        all.extend(insert_some(tx, rest).await?);
        rest = later;
    }
    Ok(all)
}

async fn insert_some(tx: &mut PgTx, new_rows: Vec<NewRow>) -> Result<Vec<Inserted>> {
    let known = tx.known();
    let mut order: Vec<usize> = (0..new_rows.len()).collect();
    if new_rows.iter().any(|new_row| new_row.row.idempotency_key.is_some()) {
        let key = |at: usize| (&new_rows[at].row.tenant, &new_rows[at].row.idempotency_key);
        order.sort_by(|one, other| key(*one).cmp(&key(*other)));
    }
    let (at, known_now, made, before) = {
        let parameters = parameters(tx, &known, &new_rows, &order)?;
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
        return Ok(new_rows.into_iter().map(|new_row| Inserted::Stale(Box::new(new_row))).collect());
    };
    let made: HashSet<i32> = made.into_iter().collect();
    let answer = |(at, new_row): (usize, NewRow)| {
        let place = at as i32 + 1;
        if !made.contains(&place) {
            return Inserted::KeyTaken(Box::new(new_row));
        }
        let bytes = new_row.texts.bytes();
        Inserted::Made(Stored {
            rid: before + i64::from(place),
            row: Arc::new(new_row.row),
            last: None,
            bytes,
            recalled: false,
        })
    };
    Ok(new_rows.into_iter().enumerate().map(answer).collect())
}

fn parameters<'a>(
    tx: &PgTx,
    known: &LifecycleCodes,
    new_rows: &'a [NewRow],
    order: &[usize],
) -> Result<Parameters<'a>> {
    let ordered = || order.iter().map(|at| &new_rows[*at]);
    let mut all = Parameters::default();
    all.add(stamp(tx.now), Type::TIMESTAMPTZ);
    all.add(tx.is_open(), Type::BOOL);
    all.add(known.revision, Type::INT8);
    let mut parents: Vec<&'a str> =
        ordered().filter_map(|new_row| new_row.row.parent_run_id.as_deref()).collect();
    parents.sort_unstable();
    parents.dedup();
    all.add(parents, Type::TEXT_ARRAY);
    let held = ordered().filter(|new_row| new_row.row.phase() == Phase::Held);
    let mut gates: Vec<String> = held.map(|new_row| gate(&new_row.row.tenant, &new_row.row.queue)).collect();
    gates.sort_unstable();
    gates.dedup();
    all.add(gates, Type::TEXT_ARRAY);
    all.lanes(tx.now, ordered().map(|new_row| &new_row.row).filter(|row| row.phase() == Phase::Ready));
    all.add(order.iter().map(|at| *at as i32 + 1).collect::<Vec<i32>>(), Type::INT4_ARRAY);
    let code = |new_row: &NewRow| {
        known.code(&new_row.row.lifecycle, new_row.row.run.state).map_err(Fault::into_error)
    };
    all.folded(ordered().map(code).collect::<Result<Vec<i16>>>()?, Type::INT2_ARRAY);
    all.column(Kind::Int4, ordered().map(|new_row| Cell::Number(new_row.row.item_count() as i64)));
    all.texts(ordered().map(|new_row| new_row.texts.fingerprint.as_deref().map(Cow::Borrowed)));
    all.texts(ordered().map(|new_row| Some(Cow::Borrowed(&*new_row.event.command))));
    all.texts(ordered().map(|new_row| Some(Cow::Borrowed(new_row.event.actor.name()))));
    all.texts(ordered().map(|new_row| Some(Cow::Borrowed(&*new_row.event.by))));
    all.texts(ordered().map(|new_row| effect(new_row).map(Cow::Owned)));
    for column in new_run_columns() {
        let text = |text: &'a Option<String>, none: &'static str| {
            Cell::Text(Cow::Borrowed(text.as_deref().unwrap_or(none)))
        };
        // These were written out when they came in.
        all.column(
            column.kind,
            ordered().map(|new_row| match column.name {
                "input" => Cell::Text(Cow::Borrowed(new_row.texts.input.as_str())),
                "metadata" => text(&new_row.texts.metadata, "{}"),
                "details" => text(&new_row.texts.details, "{}"),
                _ => (column.get)(&new_row.row),
            }),
        );
    }
    let items: Vec<Value> = order
        .iter()
        .flat_map(|at| {
            new_rows[*at]
                .items
                .iter()
                .map(|item| new_item_object("run", *at as i64 + 1, &new_rows[*at].row.lifecycle, item))
        })
        .collect();
    all.add((!items.is_empty()).then(|| Value::Array(items).to_string()), Type::TEXT);
    Ok(all)
}

/// What the birth's event keeps. Mostly that is the metadata, whose text need not be made again.
fn effect(new_row: &NewRow) -> Option<String> {
    let NewRow { row, texts, event, .. } = new_row;
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

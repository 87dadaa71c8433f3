//! Ids that people can type. Those of a minute begin alike, since they begin with the time: so the end of an id is its short
//! form, and `@1` is the newest run. Decision 19 has the reasons.

use std::collections::HashMap;

use waypost_store::{Filter, Parts, RunRow, Store};

use crate::output::{BAD_INPUT, Failed, NOT_FOUND, Result};
use crate::place::tenant;

/// As many random digits as tell 100,000 runs from one another, but for one in 40,000 of their ids.
const SHORT: usize = 8;
/// An id whose last part is shorter than this has no short form.
const LEAST: usize = 6;
/// As far back as `@N` goes.
const MOST: usize = 500;

/// The end of an id, as far as its last separator.
pub fn short(id: &str) -> &str {
    let last = id.rsplit(['-', '_']).next().unwrap_or(id);
    match last.len() {
        ..LEAST => id,
        LEAST..=SHORT => last,
        longer => last.get(longer - SHORT..).unwrap_or(last),
    }
}

/// The short forms of ids that are shown together; whole where two of them have the same.
pub fn shorts<'i>(ids: &[&'i str]) -> Vec<&'i str> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    for id in ids {
        *counts.entry(short(id)).or_default() += 1;
    }
    ids.iter().map(|id| if counts[short(id)] > 1 { id } else { short(id) }).collect()
}

/// By its id, a part of it that no other has, or `@1` for the newest run.
pub async fn find(store: &dyn Store, id: &str) -> Result<RunRow> {
    match id.strip_prefix('@') {
        Some(number) => newest(store, id, number).await,
        None => Ok(store.run(tenant().into(), id.to_owned()).await?),
    }
}

/// The same, with why it waits.
pub async fn explained(store: &dyn Store, id: &str) -> Result<RunRow> {
    let run = find(store, id).await?;
    Ok(store.explain(vec![run]).await?.remove(0))
}

async fn newest(store: &dyn Store, asked: &str, number: &str) -> Result<RunRow> {
    let number = number.parse().ok().filter(|number| (1..=MOST).contains(number)).ok_or_else(|| {
        let message =
            format!("{asked:?} is no run; allowed: @1 for the newest run, @2 … @{MOST} for those before it");
        Failed::new(BAD_INPUT, message)
    })?;
    let filter = Filter { tenant: tenant().into(), limit: number, include: Parts::NONE, ..Filter::default() };
    let runs = store.runs(filter).await?.runs;
    let count = runs.len();
    let there = match count {
        0 => "there is none".to_owned(),
        1 => "there is 1".to_owned(),
        count => format!("there are {count}"),
    };
    let missing = || Failed::new(NOT_FOUND, format!("there is no run {asked}: {there}"));
    let run = runs.into_iter().nth(number - 1).ok_or_else(missing)?;
    // A list does not read whole runs.
    Ok(store.run(tenant().into(), run.id().to_owned()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves U9
    #[test]
    fn the_end_of_an_id_is_its_short_form() {
        for (id, expected) in [
            ("run-01a1e056-9ee7-7625-a3cf-1c6bf9aac1c9", "f9aac1c9"),
            ("01a1e056-9ee7-7625-a3cf-1c6bf9aac1c9", "f9aac1c9"),
            ("run_20260214_080000_k3x9zq", "k3x9zq"),
            ("rel-rtp27e", "rtp27e"),
            ("job-1", "job-1"),
            ("plain", "plain"),
        ] {
            assert_eq!(short(id), expected);
        }
        assert_eq!(
            shorts(&["a-11111111", "b-11111111", "c-22222222"]),
            ["a-11111111", "b-11111111", "22222222"]
        );
    }
}

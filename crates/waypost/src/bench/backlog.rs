//! Claiming must not feel what it does not take: runs that wait, that are for later at a better priority, that are
//! settled, or that wait for a key at its limit. Compared with a small database in the same run.

use std::time::Instant;

use serde_json::json;
use waypost_kernel::{Span, Time};
use waypost_store::{Claim, NewRun, Store};

use super::lifecycle::finish;
use super::{Bench, PAIRS, Row, median, new_runs, row};
use crate::output::Result;

const SMALL: usize = 10_000;
const BATCH: usize = 1_000;
/// Claimed per measurement, ten at a time, as workers do.
const CLAIMED: usize = 1_000;
const AT_ONCE: usize = 10;

pub async fn measure(bench: &Bench, size: usize, settled: usize) -> Result<Row> {
    let small = bench.store("small").await?;
    let large = bench.store("large").await?;
    let keyed = bench.store("keyed").await?;
    let key_waits = size.min(100_000);
    bench.begin("filling", SMALL + 2 * size + settled + SMALL + key_waits);
    fill(bench, &*small, SMALL, |run| run).await?;
    let later = large.now().await? + Span::from_seconds(86_400);
    let mut left = settled;
    while left > 0 {
        // In portions, so that filling does not measure a backlog of its own.
        fill(bench, &*large, left.min(BATCH * 100), |run| run).await?;
        while finish(&*large, BATCH).await? > 0 {}
        left -= left.min(BATCH * 100);
    }
    fill(bench, &*large, size, |run| in_time(run, later)).await?;
    fill(bench, &*large, size, |run| run).await?;
    fill(bench, &*keyed, key_waits, |run| NewRun { concurrency_key: Some("one".into()), priority: 5, ..run })
        .await?;
    fill(bench, &*keyed, SMALL, |run| run).await?;
    // The first claims meet the key at its limit and set what waits for it aside, once.
    claims(&*keyed, CLAIMED).await?;
    bench.begin("claiming", PAIRS);
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..PAIRS {
        for (store, rates) in [&small, &large, &keyed].into_iter().zip(&mut rates) {
            rates.push(claims(&**store, CLAIMED).await?);
        }
        bench.bar.inc(1);
    }
    let ratio = |of: usize| {
        let ratios = rates[of].iter().zip(&rates[0]).map(|(of, small)| of / small).collect();
        (median(ratios) * 100.0).round() / 100.0
    };
    Ok(row(
        "backlog",
        json!({
            "runs_per_s": median(rates[1].clone()).round(),
            "small_runs_per_s": median(rates[0].clone()).round(),
            "to_small": ratio(1),
            "to_small_with_a_full_key": ratio(2),
            "queued": size,
            "scheduled": size,
            "settled": settled,
            "waiting_for_the_key": key_waits,
        }),
    ))
}

fn in_time(run: NewRun, at: Time) -> NewRun {
    NewRun { schedule_at: Some(at), priority: 10, ..run }
}

async fn fill(
    bench: &Bench,
    store: &dyn Store,
    count: usize,
    change: impl Fn(NewRun) -> NewRun,
) -> Result<()> {
    let mut left = count;
    while left > 0 {
        let batch = left.min(BATCH);
        let runs = new_runs(batch).into_iter().map(&change).collect();
        for answer in store.enqueue(runs).await? {
            answer?;
        }
        left -= batch;
        bench.bar.inc(batch as u64);
    }
    Ok(())
}

async fn claims(store: &dyn Store, count: usize) -> Result<f64> {
    let start = Instant::now();
    let mut taken = 0;
    while taken < count {
        let claim = Claim {
            worker: "bench".into(),
            queues: vec!["default".into()],
            limit: AT_ONCE,
            ..Claim::default()
        };
        taken += store.claim(claim).await?.len();
    }
    Ok(taken as f64 / start.elapsed().as_secs_f64())
}

//! Claiming must not feel what it does not take: runs that wait, that are for later at a better priority, that are
//! settled, or that wait for a key at its limit. Compared with a small database in the same run.

use std::time::Instant;

use serde_json::json;
use waypost_kernel::{Span, Time};
use waypost_store::{Claim, NewRun, Store};

use super::lifecycle::finish;
use super::runs::new_runs;
use super::{Bench, Row, median, row};
use crate::output::Result;

const SMALL: usize = 10_000;
const BATCH: usize = 1_000;
/// Claimed per round, ten at a time, as workers do. The small ones last for all rounds.
const CLAIMED: usize = 1_000;
const ROUNDS: usize = 8;
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
    for store in [&small, &large, &keyed] {
        claim(&**store, CLAIMED).await?;
    }
    bench.begin("claiming", ROUNDS);
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let found = in_turn(&[&*small, &*large, &*keyed]).await?;
        rates.iter_mut().zip(found).for_each(|(rates, rate)| rates.push(rate));
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

/// Claims from each by turns, so that whatever else the machine does meanwhile slows all of them alike.
async fn in_turn(stores: &[&dyn Store; 3]) -> Result<[f64; 3]> {
    let (mut taken, mut took) = ([0; 3], [0.0; 3]);
    while taken.iter().any(|count| *count < CLAIMED) {
        for (at, store) in stores.iter().enumerate() {
            let start = Instant::now();
            taken[at] += claim(*store, AT_ONCE).await?;
            took[at] += start.elapsed().as_secs_f64();
        }
    }
    Ok([0, 1, 2].map(|at| taken[at] as f64 / took[at]))
}

async fn claim(store: &dyn Store, limit: usize) -> Result<usize> {
    let queues = vec!["default".into()];
    let claim = Claim { worker: "bench".into(), queues, limit, ..Claim::default() };
    Ok(store.claim(claim).await?.len())
}

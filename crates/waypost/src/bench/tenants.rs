//! Turns between tenants: how soon the runs of one that has few begin beside one that has many, and what that costs claims,
//! compared with the same runs of one tenant in the same run.

use std::time::Instant;

use serde_json::json;
use waypost_store::{Claim, NewRun, Store};

use super::runs::new_runs;
use super::{Bench, Row, median, row};
use crate::output::Result;

const MANY: usize = 10_000;
const FEW: usize = 10;
const BATCH: usize = 1_000;
/// Claimed per round, ten at a time, as workers do.
const CLAIMED: usize = 1_000;
const ROUNDS: usize = 8;
const AT_ONCE: usize = 10;

pub async fn measure(bench: &Bench) -> Result<Row> {
    let one = bench.store("one").await?;
    let two = bench.store("two").await?;
    bench.begin("filling", 2 * MANY);
    for (store, tenant) in [(&one, "a"), (&two, "a")] {
        for _ in 0..MANY / BATCH {
            fill(&**store, tenant, BATCH).await?;
            bench.bar.inc(BATCH as u64);
        }
    }
    fill(&*two, "b", FEW).await?;
    let until_few_begun = [claims_until_begun(&*two, 1).await?, {
        fill(&*two, "b", FEW).await?;
        claims_until_begun(&*two, AT_ONCE).await?
    }];
    bench.begin("claiming", ROUNDS);
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        fill(&*one, "a", FEW).await?;
        fill(&*two, "b", FEW).await?;
        let found = in_turn(&[&*one, &*two]).await?;
        rates.iter_mut().zip(found).for_each(|(rates, rate)| rates.push(rate));
        bench.bar.inc(1);
    }
    let ratios = rates[1].iter().zip(&rates[0]).map(|(two, one)| two / one).collect();
    Ok(row(
        "tenants",
        json!({
            "runs_per_s": median(rates[1].clone()).round(),
            "one_tenant_runs_per_s": median(rates[0].clone()).round(),
            "to_one_tenant": (median(ratios) * 100.0).round() / 100.0,
            "claims_of_one_until_few_begun": until_few_begun[0],
            "runs_until_few_begun": until_few_begun[1],
            "many": MANY,
            "few": FEW,
        }),
    ))
}

async fn fill(store: &dyn Store, tenant: &str, count: usize) -> Result<()> {
    let runs = new_runs(count).into_iter().map(|run| NewRun { tenant: tenant.into(), ..run }).collect();
    for answer in store.enqueue(runs).await? {
        answer?;
    }
    Ok(())
}

/// How many runs were taken, so many at a time, when the last of those few was.
async fn claims_until_begun(store: &dyn Store, limit: usize) -> Result<usize> {
    let (mut taken, mut begun, mut last) = (0, 0, 0);
    while begun < FEW {
        for tenant in claim(store, limit).await? {
            taken += 1;
            if tenant == "b" {
                begun += 1;
                last = taken;
            }
        }
    }
    Ok(last)
}

/// Claims from each by turns, so that whatever else the machine does meanwhile slows both alike.
async fn in_turn(stores: &[&dyn Store; 2]) -> Result<[f64; 2]> {
    let (mut taken, mut took) = ([0; 2], [0.0; 2]);
    while taken.iter().any(|count| *count < CLAIMED) {
        for (at, store) in stores.iter().enumerate() {
            let start = Instant::now();
            taken[at] += claim(*store, AT_ONCE).await?.len();
            took[at] += start.elapsed().as_secs_f64();
        }
    }
    Ok([0, 1].map(|at| taken[at] as f64 / took[at]))
}

/// Whose runs were taken.
async fn claim(store: &dyn Store, limit: usize) -> Result<Vec<String>> {
    let queues = vec!["default".into()];
    let claim = Claim { worker: "bench".into(), queues, limit, ..Claim::default() };
    Ok(store.claim(claim).await?.into_iter().map(|claimed| claimed.run.tenant).collect())
}

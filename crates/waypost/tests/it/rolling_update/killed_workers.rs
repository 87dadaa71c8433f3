//! Workers that are killed at every step boundary and after every change: each run ends as if nobody had been.

use super::whole::{Point, Whole, site, ways};
use crate::support::{Running, Shop};

/// So many leases of one claim may run out before the run counts as lost; `./scripts/soak` kills once in each run.
fn kills_per_claim() -> usize {
    std::env::var("WAYPOST_KILLS_PER_CLAIM").map_or(5, |text| text.parse().unwrap())
}

/// Sets the run going, kills the worker at each of these places, in their order, and starts another.
async fn kill_at(whole: &Whole, mut worker: Running, points: &[Point], go: impl FnOnce()) -> Running {
    let Some(first) = points.first() else {
        go();
        return worker;
    };
    let mut armed = whole.arm(&first.fault);
    go();
    for (at, point) in points.iter().enumerate() {
        whole.until_hanging(&point.fault, armed);
        whole.kill(&mut worker).await;
        whole.release();
        armed = points.get(at + 1).map_or(0, |next| whole.arm(&next.fault));
        worker = whole.worker();
    }
    worker
}

/// Every n-th, beginning with one.
fn every(points: &[Point], n: usize, first: usize) -> Vec<Point> {
    points.iter().skip(first).step_by(n).cloned().collect()
}

/// Every second round, since all of them take long.
async fn kill_everywhere(shop: impl Fn() -> Shop, first_round: usize) {
    let ways = ways(shop()).await;
    let (first, second) = (&ways.to_the_pause, &ways.to_the_end);
    assert!(first.len() >= 9 && second.len() >= 25, "{first:?} {second:?}");
    let rounds = first.len().max(second.len()).div_ceil(kills_per_claim());
    let mut killed = 0;
    for round in (first_round..rounds).step_by(2) {
        let whole = Whole::of(shop(), &site());
        let mut run_id = String::new();
        let points = every(first, rounds, round);
        let worker = kill_at(&whole, whole.worker(), &points, || run_id = whole.start()).await;
        whole.until(&run_id, "paused").await;
        whole.is_updated(&[]);
        let points = every(second, rounds, round);
        let worker = kill_at(&whole, worker, &points, || whole.resume(&run_id)).await;
        whole.until(&run_id, "completed").await;
        whole.is_updated(&["esx2", "esx1"]);
        assert_eq!(whole.steps(&run_id).await, ways.steps, "{points:?}");
        drop(worker);
        killed += every(first, rounds, round).len() + points.len();
    }
    println!("killed at {killed} places; each run ended the same: no host updated twice, HA as it was");
}

// proves X5, J5
#[tokio::test]
async fn a_worker_may_be_killed_at_every_odd_place_of_a_run() {
    kill_everywhere(Shop::new, 0).await;
}

#[tokio::test]
async fn a_worker_may_be_killed_at_every_even_place_of_a_run() {
    kill_everywhere(Shop::new, 1).await;
}

#[tokio::test]
async fn a_worker_on_postgres_may_be_killed_at_every_odd_place_of_a_run() {
    kill_everywhere(Shop::on_postgres, 0).await;
}

#[tokio::test]
async fn a_worker_on_postgres_may_be_killed_at_every_even_place_of_a_run() {
    kill_everywhere(Shop::on_postgres, 1).await;
}

//! Three days of minutes on the model, by two schedulers whose handlers fail, panic and vanish: every due plan ends
//! in one success, or is counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use waypost_kernel::{Span, Time};
use waypost_worker::{Context, Handlers, Outcome};

use super::stage::Stage;

const DAYS: i64 = 3;

/// Fails every fifth first attempt, panics every hundredth.
fn unsteady(tries: &Arc<AtomicU64>) -> Handlers {
    let tries = tries.clone();
    Handlers::default().with("job", move |context: Context| {
        let number = tries.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(context.attempt > 1 || !number.is_multiple_of(101), "meant to panic");
            if context.attempt == 1 && number.is_multiple_of(5) {
                return Outcome::fail("UNLUCKY", "meant to fail");
            }
            Outcome::done()
        }
    })
}

// proves C5 and C11
#[tokio::test]
async fn three_days_of_minutes_end_in_one_success_each() {
    let mut stage = Stage::model();
    let tries = Arc::new(AtomicU64::new(0));
    stage.handlers = unsteady(&tries);
    let policy = "catch_up = \"every_plan\"\noverlap = \"allow\"\nbackoff = [\"1m\"]\nmax_attempts = 5";
    stage.apply(&format!("cadence = \"1m\"\n{policy}\nhandler = \"job\"")).await;
    let (mut one, mut other) = (stage.scheduler("s1").await, stage.scheduler("s2").await);
    let first = stage.now().await;
    for minute in 0..DAYS * 24 * 60 {
        // Both see the same; who comes first changes, and now and then one is away.
        let both = if minute % 2 == 0 { [&mut one, &mut other] } else { [&mut other, &mut one] };
        for (at, scheduler) in both.into_iter().enumerate() {
            if at == 0 || minute % 3 != 0 {
                scheduler.run_once().await.unwrap();
                scheduler.settle().await;
            }
        }
        stage.advance(60).await;
    }
    for _ in 0..10 {
        stage.tick(&mut one).await;
        stage.advance(30).await;
    }
    // Minute by minute, without the planner.
    let mut owed: BTreeMap<Time, u32> = BTreeMap::new();
    let mut plan = first;
    while plan < first + Span::from_seconds(DAYS * 86_400) {
        owed.insert(plan, 0);
        plan = plan + Span::from_seconds(60);
    }
    for execution in stage.executions().await {
        let run = execution.run.unwrap();
        if let Some(successes) = owed.get_mut(&execution.plan) {
            assert_eq!(run.status(), "SUCCESS", "{run:?}");
            *successes += 1;
        }
    }
    let wrong: Vec<_> = owed.iter().filter(|(_, successes)| **successes != 1).collect();
    assert!(wrong.is_empty(), "{} of {}: {:?}", wrong.len(), owed.len(), wrong.first());
    assert_eq!(stage.scope().await.counts.skipped(), 0);
    assert!(stage.scope().await.counts.retried > 500);
}

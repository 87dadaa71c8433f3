//! Plans that somebody asks for.

use waypost_kernel::Span;
use waypost_store::MAX_MANUAL;
use waypost_worker::schedules::{Asked, add_plans};

use super::stage::Stage;

// proves C8
#[tokio::test]
async fn a_range_with_too_many_plans_is_refused_whatever_the_timing_is() {
    for timing in ["cadence = \"1m\"", "cron = \"* * * * *\""] {
        let stage = Stage::new();
        stage.apply(&format!("{timing}\nexec = [\"true\"]")).await;
        let now = stage.now().await;
        let last = now - Span::from_micros(now.micros().rem_euclid(60_000_000));
        let ask = |minutes: usize| {
            let from = last - Span::from_seconds(60 * minutes as i64);
            add_plans(&*stage.store, "job", Asked::Range(from, last), Vec::new(), "olena".into())
        };
        let refused = ask(MAX_MANUAL).await.unwrap_err().to_string();
        assert!(refused.contains("at most 10000 plans at once"), "{timing}: {refused}");
        assert_eq!(stage.executions().await.len(), 0, "{timing}: all or none");
        assert_eq!(ask(MAX_MANUAL - 1).await.unwrap(), MAX_MANUAL as u64, "{timing}");
    }
}

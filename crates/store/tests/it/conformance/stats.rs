//! Figures.

use waypost_kernel::{Outcome, Span};
use waypost_store::{CommandWrite, Database, Filter, NewRun, Stats};

use super::kit::*;

fn count(stats: &Stats, status: &str) -> (u64, u64) {
    let found = stats.ended.iter().find(|it| it.status == status);
    found.map_or((0, 0), |it| (it.in_24h, it.in_7d))
}

// proves D12
pub async fn what_ended_lately_is_counted(store: &dyn Database) {
    assert_eq!(store.stats(None).await.unwrap(), Stats::default());
    for status in ["success", "success", "failed"] {
        let claimed = begun_run(store, deploy()).await;
        finish(store, &claimed, status).await.unwrap();
    }
    let stats = store.stats(None).await.unwrap();
    assert_eq!((count(&stats, "success"), count(&stats, "failed")), ((2, 2), (1, 1)));
    assert_eq!(stats.success_ratio_24h(), Some(2.0 / 3.0));
    let outcomes: Vec<Option<Outcome>> = stats.ended.iter().map(|it| it.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Failed), Some(Outcome::Succeeded)], "by name");
    advance(store, 2 * DAY).await;
    let stats = store.stats(None).await.unwrap();
    assert_eq!((count(&stats, "success"), stats.success_ratio_24h()), ((0, 2), None));
    advance(store, 6 * DAY).await;
    assert_eq!(store.stats(None).await.unwrap(), Stats::default());
}

// proves D12
pub async fn durations_are_from_start_to_end(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    advance(store, 30).await;
    finish(store, &claimed, "success").await.unwrap();
    let stats = store.stats(None).await.unwrap();
    let mean = stats.ended[0].mean_seconds().unwrap();
    assert!((30.0..90.0).contains(&mean), "{mean}");
}

/// What it waited between its attempts is left out, and no attempt is: not by a retry, which sets `started_at` anew, and not by a pause.
pub async fn durations_are_of_all_attempts_and_of_work_alone(store: &dyn Database) {
    let claimed = held_run(store, rule(&["a", "b"])).await;
    advance(store, 9).await;
    move_items(store, &claimed, "target", &[("a", "APPLIED"), ("b", "FAILED")]).await.unwrap();
    let partial = finish(store, &claimed, "PARTIAL").await.unwrap();
    advance(store, 10_000).await;
    command(store, partial.id(), "retry").await.unwrap();
    let again = store.claim_run(partial.id().into(), "w2".into()).await.unwrap();
    move_items(store, &again, "target", &[("b", "APPLIED")]).await.unwrap();
    let rule = finish(store, &again, "APPLIED").await.unwrap();
    assert!(rule.run.finished_at.unwrap() - rule.run.started_at.unwrap() < Span::from_seconds(9));

    let claimed = begun_run(store, job(&["a"])).await;
    advance(store, 20).await;
    let because = CommandWrite { reason: Some("lunch".into()), ..asking(claimed.run.id(), "pause") };
    store.command(because).await.unwrap();
    finish(store, &claimed, "paused").await.unwrap();
    advance(store, 10_000).await;
    let job = command(store, claimed.run.id(), "cancel").await.unwrap();
    let waiting = put(store, deploy()).await;

    let took = store.took(vec![rule, job, waiting]).await.unwrap();
    assert!(about(took[0].unwrap(), 9) && about(took[1].unwrap(), 20) && took[2].is_none(), "{took:?}");
    let all = Filter { tenant: TENANT.into(), ..Filter::default() };
    let sampled: Vec<_> = store.sample(all, 10, None).await.unwrap().runs.iter().rev().map(|run| run.took).collect();
    assert_eq!(sampled, took);
    let stats = store.stats(None).await.unwrap();
    let means = ["APPLIED", "cancelled"].map(|status| {
        let ended = stats.ended.iter().find(|it| it.status == status).unwrap();
        Span::from_ms((ended.mean_seconds().unwrap() * 1_000.0).round() as i64)
    });
    for (mean, took) in means.into_iter().zip(took.into_iter().flatten()) {
        assert!((mean.ms() - took.ms()).abs() <= 1, "a mean is rounded: {mean:?}, {took:?}");
    }
}

pub async fn figures_are_of_one_tenant_or_of_all(store: &dyn Database) {
    let other = || NewRun { tenant: "other".into(), ..deploy() };
    let claimed = begun_run(store, other()).await;
    finish(store, &claimed, "success").await.unwrap();
    begun_run(store, other()).await;
    assert_eq!(store.stats(Some(TENANT.into())).await.unwrap(), Stats::default());
    assert_eq!(count(&store.stats(Some("other".into())).await.unwrap(), "success"), (1, 1));
    assert_eq!(store.holders(Some(TENANT.into())).await.unwrap(), []);
    assert_eq!(store.holders(Some("other".into())).await.unwrap().len(), 1);
}

pub async fn holders_are_counted_by_name(store: &dyn Database) {
    assert_eq!(store.holders(None).await.unwrap(), []);
    for _ in 0..3 {
        put(store, deploy()).await;
    }
    let first = store.claim(wants("b", 2)).await.unwrap();
    claim(store, "a").await.unwrap();
    let holders = store.holders(None).await.unwrap();
    let held: Vec<(&str, u64)> = holders.iter().map(|it| (it.worker.as_str(), it.held)).collect();
    assert_eq!(held, [("a", 1), ("b", 2)]);
    finish(store, &first[0], "success").await.unwrap();
    assert_eq!(store.holders(None).await.unwrap()[1].held, 1);
}

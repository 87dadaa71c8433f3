//! What a batch of targets costs must not grow with the targets that wait behind it.

use serde_json::json;
use waypost_store::postgres::client;
use waypost_store::{AddTargets, CommandWrite, NewRun, NewTarget, Store};

use super::open;

const TARGETS: usize = 2_000;
const TAKEN: i64 = 20;

// proves R15
#[tokio::test]
async fn a_batch_reads_as_many_targets_as_it_takes() {
    let (store, database) = open().await;
    let new = NewRun { lifecycle: "rule".into(), ..NewRun::default() };
    let run = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run;
    for at in (0..TARGETS).step_by(1_000) {
        let target = |number: usize| NewTarget {
            key: format!("t{number}"),
            before: json!(1),
            after: json!(2),
            ..NewTarget::default()
        };
        let write = AddTargets {
            tenant: "default".into(),
            run_id: run.id().into(),
            by: "ann".into(),
            at: at as u64,
            rows: 1_000,
            targets: (at..at + 1_000).map(target).collect(),
            last: at + 1_000 == TARGETS,
            ..AddTargets::default()
        };
        store.add_targets(write).await.unwrap();
    }
    let queue = CommandWrite {
        tenant: "default".into(),
        run_id: run.id().into(),
        name: "queue".into(),
        by: "ann".into(),
        ..CommandWrite::default()
    };
    store.command(queue).await.unwrap();
    let client = client(&database.url()).await.unwrap();
    // With statistics and without: the planner takes another way each time if the order does not say which.
    for analyzed in [false, true] {
        if analyzed {
            client.batch_execute("VACUUM (ANALYZE) waypost.items").await.unwrap();
        }
        client.batch_execute("BEGIN").await.unwrap();
        let taken = client
            .query_one("SELECT count(*) FROM waypost.targets((SELECT rid FROM waypost.runs), 'target', '{}', 'QUEUED', now(), $1::bigint::int) WHERE what = 1", &[&TAKEN])
            .await
            .unwrap();
        let read = client
            .query_one("SELECT coalesce(idx_tup_fetch, 0) + coalesce(seq_tup_read, 0) FROM pg_stat_xact_user_tables WHERE relname = 'items'", &[])
            .await
            .unwrap();
        client.batch_execute("ROLLBACK").await.unwrap();
        let (taken, read): (i64, i64) = (taken.get(0), read.get(0));
        assert_eq!(taken, TAKEN);
        assert!(read <= 4 * TAKEN, "{read} targets were read for {taken}, analyzed: {analyzed}");
    }
}

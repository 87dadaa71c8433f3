//! Whoever begins or ends a run by hand, through a view or the table itself, keeps to what claims and finishes keep to.
// proves D7, D8, X5, X9

use waypost_kernel::Span;
use waypost_store::postgres::PostgresStore;
use waypost_store::{Claim, Claimed, CommandWrite, Housekeeping, NewItem, NewRun, Pause, Store};
use waypost_testkit::Shorthand;

use super::kit::{Ops, open};

async fn both() -> (Ops, PostgresStore) {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    (ops, store)
}

fn run(lifecycle: &str) -> NewRun {
    let step = NewItem::new("step", "a");
    let items = if lifecycle == "job" { vec![step] } else { Vec::new() };
    NewRun { lifecycle: lifecycle.into(), queue: "q".into(), items, ..NewRun::default() }
}

async fn queued(store: &PostgresStore, new: NewRun) -> String {
    store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned()
}

async fn claim(store: &PostgresStore) -> Option<Claimed> {
    let claim = Claim { worker: "engine".into(), queues: vec!["q".into()], limit: 1, ..Claim::default() };
    store.claim(claim).await.unwrap().pop()
}

/// All ways to begin a run by hand, each with the lifecycle that it is for.
const WAYS: [(&str, &str); 4] = [
    ("job", "UPDATE ops.jobs SET status = 'running', claimed_by = 'sql' WHERE run_id = '{id}'"),
    ("deploy", "UPDATE ops.runs SET status = 'claimed', claimed_by = 'sql' WHERE run_id = '{id}'"),
    ("deploy", "UPDATE waypost.board SET status = 'claimed', claimed_by = 'sql' WHERE run_id = '{id}'"),
    (
        "deploy",
        "UPDATE waypost.runs SET state = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND state = 'claimed'), \
         claimed_by = 'sql', lease_token = gen_random_uuid(), stale_after = now() + interval '1 hour', lease_ms = 60000 WHERE run_id = '{id}'",
    ),
];

#[tokio::test]
async fn a_begin_by_hand_takes_a_slot_of_its_key_and_its_queue() {
    for (lifecycle, begin) in WAYS {
        let (ops, store) = both().await;
        let keyed = NewRun { concurrency_key: Some("k".into()), ..run(lifecycle) };
        let (first, second) = (queued(&store, keyed.clone()).await, queued(&store, keyed).await);
        ops.psql(&begin.replace("{id}", &first));
        let words = "NO_SLOT: concurrency key 'k' is at its limit";
        ops.refused(&begin.replace("{id}", &second)).is("WP409", words);
        assert_eq!(ops.psql("SELECT count(*) FROM waypost.holders WHERE name = 'k'"), "1");
        assert!(claim(&store).await.is_none(), "{begin}: its slot is taken");

        store.limit_queue("q", Some(1)).await.unwrap();
        let other = queued(&store, run(lifecycle)).await;
        ops.refused(&begin.replace("{id}", &other)).is("WP409", "NO_SLOT: queue 'q' is at its limit of 1");
        store.limit_queue("q", Some(2)).await.unwrap();
        ops.psql(&begin.replace("{id}", &other));
        assert_eq!(ops.psql("SELECT count(*) FROM waypost.holders WHERE of_queue"), "2");
        assert_eq!(ops.verify(), 3);
    }
}

#[tokio::test]
async fn a_begin_by_hand_waits_for_its_time_and_its_queue() {
    for (lifecycle, begin) in WAYS {
        let (ops, store) = both().await;
        let later = store.now().await.unwrap() + Span::from_seconds(600);
        let deferred = queued(&store, NewRun { schedule_at: Some(later), ..run(lifecycle) }).await;
        ops.refused(&begin.replace("{id}", &deferred)).is("WP409", "NOT_DUE");

        let now = queued(&store, run(lifecycle)).await;
        let pause = Pause { by: "ann".into(), reason: "a release".into(), at: None };
        store.pause_queue("q".into(), Some(pause)).await.unwrap();
        ops.refused(&begin.replace("{id}", &now)).is("WP409", "PAUSED: queue 'q' is paused");
        store.pause_queue("q".into(), None).await.unwrap();
        ops.psql(&begin.replace("{id}", &now));
        assert_eq!(ops.verify(), 2);
    }
}

#[tokio::test]
async fn what_has_outlived_its_time_is_not_begun_by_hand() {
    let (ops, store) = both().await;
    for (lifecycle, begin) in WAYS.into_iter().filter(|(lifecycle, _)| *lifecycle == "deploy") {
        let short = NewRun { ttl: Some(Span::from_seconds(60)), ..run(lifecycle) };
        let run_id = queued(&store, short).await;
        store.advance_clock(Span::from_seconds(61)).await.unwrap();
        ops.refused(&begin.replace("{id}", &run_id)).is("WP409", "NOT_DUE");
    }
}

#[tokio::test]
async fn an_end_by_hand_does_not_pass_over_a_cancel_that_was_answered() {
    let ends = [
        "UPDATE ops.runs SET status = 'success' WHERE run_id = '{id}'",
        "UPDATE waypost.board SET status = 'success' WHERE run_id = '{id}'",
        "UPDATE waypost.runs SET state = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND state = 'success'), \
         lease_token = NULL, stale_after = NULL, finished_at = now() WHERE run_id = '{id}'",
    ];
    for end in ends {
        let ops = open();
        let run_id = ops.running();
        assert_eq!(ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'cancelled')")), "running");
        ops.refused(&end.replace("{id}", &run_id)).is("WP412", "CANCEL_REQUESTED");
        ops.psql(&format!("UPDATE ops.runs SET status = 'cancelled' WHERE run_id = '{run_id}'"));
        assert_eq!(ops.status(&run_id), "cancelled");
        assert_eq!(ops.verify(), 1);
    }
}

/// The row is locked when its trigger looks for a slot, so it does not wait for whoever has that.
#[tokio::test]
async fn a_begin_by_hand_is_told_when_others_are_at_its_slots() {
    for (lifecycle, begin) in WAYS {
        let (ops, store) = both().await;
        let keyed = NewRun { concurrency_key: Some("k".into()), ..run(lifecycle) };
        let run_id = queued(&store, keyed).await;
        let other = waypost_store::postgres::client(&ops.server.url()).await.unwrap();
        other.batch_execute("BEGIN; SELECT waypost.lock_keys('{default}', '{k}')").await.unwrap();
        ops.refused(&begin.replace("{id}", &run_id)).is("WP423", "BUSY");
        other.batch_execute("ROLLBACK; BEGIN; SELECT waypost.shut_gate('default', 'q')").await.unwrap();
        ops.refused(&begin.replace("{id}", &run_id)).is("WP423", "BUSY");
        other.batch_execute("ROLLBACK").await.unwrap();
        ops.psql(&begin.replace("{id}", &run_id));
        assert_eq!(ops.verify(), 1);
    }
}

/// A pause waits for claims that have not seen it, and is told if they do not end.
#[tokio::test]
async fn a_pause_by_sql_comes_after_claims_that_are_under_way() {
    let (ops, store) = both().await;
    queued(&store, NewRun { queue: "ops".into(), ..run("deploy") }).await;
    let other = waypost_store::postgres::client(&ops.server.url()).await.unwrap();
    other.batch_execute("BEGIN; SELECT * FROM ops.claim_next_run('w')").await.unwrap();
    ops.refused("SELECT waypost.pause_queue('ops', 'why')").is("WP423", "BUSY");
    other.batch_execute("COMMIT").await.unwrap();
    ops.psql("SELECT waypost.pause_queue('ops', 'why')");
    queued(&store, NewRun { queue: "ops".into(), ..run("deploy") }).await;
    assert_eq!(ops.psql("SELECT run_id FROM ops.claim_next_run('w')"), "");
    ops.psql("SELECT waypost.resume_queue('ops')");
    assert_ne!(ops.psql("SELECT run_id FROM ops.claim_next_run('w')"), "");
}

/// However it is ended as cancelled, its children hear of it.
#[tokio::test]
async fn a_cancel_by_whatever_way_in_sql_reaches_children() {
    let ends = [
        "SELECT ops.finish_run('{id}', 'cancelled', p_worker_id := 'w')",
        "UPDATE ops.runs SET status = 'cancelled' WHERE run_id = '{id}'",
        "UPDATE waypost.board SET status = 'cancelled' WHERE run_id = '{id}'",
    ];
    let (ops, store) = both().await;
    for end in ends {
        let parent = ops.queue();
        assert_eq!(ops.psql("SELECT run_id FROM ops.claim_next_run('w')"), parent);
        let child = queued(&store, NewRun { parent_run_id: Some(parent.clone()), ..run("deploy") }).await;
        ops.psql(&end.replace("{id}", &parent));
        store.sweep("engine".into(), 10).await.unwrap();
        assert_eq!(ops.status(&child), "cancelled", "{end}");
    }
}

/// A time that PostgreSQL has and nobody else is refused by its name.
#[test]
fn times_beyond_the_calendar_are_refused() {
    let ops = open();
    for time in ["infinity", "-infinity", "294276-01-01", "10000-01-01", "0044-03-15 BC"] {
        let refused =
            ops.refused(&format!("INSERT INTO ops.jobs(job_type, schedule_at) VALUES ('t', '{time}')"));
        refused.is("WP422", "schedule_at");
        assert_eq!(refused.field, "schedule_at");
    }
    ops.psql("INSERT INTO ops.jobs(job_type, schedule_at) VALUES ('t', '9999-12-31')");
    assert_eq!(ops.psql("SELECT count(*) FROM ops.jobs"), "1");
}

/// The command that the run's own worker gave is what its end is called.
#[tokio::test]
async fn a_cancel_asked_of_the_engine_is_kept_by_sql() {
    let (ops, store) = both().await;
    let run_id = ops.running();
    let tenant = "default".into();
    let cancel = CommandWrite {
        tenant,
        run_id: run_id.clone(),
        name: "cancel".into(),
        by: "ann".into(),
        ..CommandWrite::default()
    };
    store.command(cancel).await.unwrap();
    ops.refused(&format!("SELECT ops.finish_run('{run_id}', 'success', p_worker_id := 'worker-001')"))
        .is("WP412", "CANCEL_REQUESTED");
    ops.refused(&format!("UPDATE ops.runs SET status = 'failed' WHERE run_id = '{run_id}'"))
        .is("WP412", "CANCEL_REQUESTED");
    ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'cancelled', p_worker_id := 'worker-001')"));
    assert_eq!(ops.one(&run_id, "error_code"), "CANCELLED");
    assert_eq!(ops.verify(), 1);
}

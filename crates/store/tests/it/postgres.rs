//! What is PostgreSQL's own: connections that break, callers that go away, keys that meet.

mod children;
mod faults;
mod keys;
mod limits;
mod pooler;
mod target_reads;
mod tls;
mod waits;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_postgres::NoTls;
use waypost_kernel::lifecycle::SHIPPED;
use waypost_store::postgres::{ListenState, PostgresStore, Versions, migrate, migration_sql, status};
use waypost_store::{
    Claim, FinishWrite, Held, Housekeeping, ItemWrite, ItemsWrite, NewRun, Store, StoreError, Who,
};
use waypost_testkit::Postgres;

async fn open() -> (PostgresStore, Postgres) {
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    (PostgresStore::open(&database.url()).await.unwrap(), database)
}

fn deploy() -> NewRun {
    NewRun { lifecycle: "deploy".into(), ..NewRun::default() }
}

fn wants(worker: &str, limit: usize) -> Claim {
    Claim { worker: worker.into(), queues: vec!["default".into()], limit, ..Claim::default() }
}

async fn assert_clean(store: &PostgresStore) {
    let verified = store.verify(Arc::new(|_, _| {})).await.unwrap();
    assert_eq!(verified.differences, Vec::<String>::new());
}

#[tokio::test]
async fn a_database_is_installed_once_and_other_versions_are_refused() {
    let database = Postgres::start().unwrap();
    assert_eq!(status(&database.url()).await, Ok(Versions { found: 0, known: 1, is_missing: true }));
    // Several processes come to a new database at once.
    let opened = futures_util::future::join_all(
        (0..4).map(|_| async { PostgresStore::open(&database.url()).await.map(drop) }),
    );
    assert!(opened.await.iter().all(Result::is_ok));
    assert_eq!(migrate(&database.url()).await, Ok(Vec::new()));
    for (sql, words) in [
        ("INSERT INTO waypost.migrations VALUES (2, 'later')", "upgrade this binary"),
        ("DELETE FROM waypost.migrations", "waypost migrate"),
    ] {
        database.psql(sql).unwrap();
        let refused = PostgresStore::open(&database.url()).await;
        assert!(matches!(&refused, Err(StoreError::Unusable(said)) if said.contains(words)), "{refused:?}");
    }
}

/// The trigger's condition holds the moves that call no function: `migrate` adds those of lifecycles that came since.
#[tokio::test]
async fn a_lifecycle_of_ones_own_gets_into_the_list_of_moves() {
    const OWN: &str = r#"
name    = "own"
version = 1
ids     = "own-{uuid7}"
initial = ["waits"]

[states]
waits = { phase = "ready" }
works = { phase = "held", lease = "2m", on_stale = "lose" }
done  = { phase = "settled", outcome = "succeeded" }
lost  = { phase = "settled", outcome = "failed" }

transitions = [
  ["waits", "claim",   "works", "worker", ""],
  ["waits", "cancel",  "lost",  "client", ""],
  ["works", "deliver", "done",  "worker", ""],
  ["works", "fail",    "lost",  "worker", ""],
  ["works", "lose",    "lost",  "engine", ""],
]
"#;
    let (store, database) = open().await;
    store.add_lifecycle(OWN.into(), "tests".into()).await.unwrap();
    let missing = "SELECT count(*) FROM waypost.lifecycle_moves m JOIN pg_trigger t ON t.tgname = 'runs_move' WHERE m.lifecycle = 'own' \
                   AND position((m.events * 100000000::bigint + m.src_code * 10000 + m.dst_code)::text IN pg_get_triggerdef(t.oid)) = 0";
    assert_eq!(database.psql(missing).unwrap(), "4");
    assert_eq!(migrate(&database.url()).await, Ok(Vec::new()));
    assert_eq!(database.psql(missing).unwrap(), "0");
    let own = NewRun { lifecycle: "own".into(), ..NewRun::default() };
    store.enqueue(vec![own]).await.unwrap().remove(0).unwrap();
    assert_eq!(store.claim(wants("w", 1)).await.unwrap().len(), 1);
    assert_clean(&store).await;
}

/// Tenants share the numbers of states: who finds none left is told so, and nobody's are taken for another phase's.
#[tokio::test]
async fn a_lifecycle_that_finds_no_numbers_is_refused() {
    let (store, database) = open().await;
    let full = "SET session_replication_role = replica; INSERT INTO waypost.lifecycle_states(lifecycle, version, state, phase, initial, code) \
                SELECT 'full', 1, 's' || n, 'held', false, n FROM generate_series((SELECT max(code) + 1 FROM waypost.lifecycle_states \
                WHERE code BETWEEN 3000 AND 3999), 3999) n";
    database.psql(full).unwrap();
    let (_, deploy) = SHIPPED.into_iter().find(|(name, _)| *name == "deploy").unwrap();
    let added = store.add_lifecycle(deploy.into(), Who::new("shop", "ann", None)).await;
    assert!(matches!(&added, Err(StoreError::Invalid { field, .. }) if field == "lifecycle"), "{added:?}");
    assert!(store.lifecycles().await.unwrap().latest("shop/deploy").is_none());
}

#[tokio::test]
async fn what_cannot_be_reached_is_told() {
    let database = Postgres::start().unwrap();
    for (url, words) in [
        ("host=/nowhere user=nobody", "check its address"),
        (&*format!("{} dbname=nowhere", database.url()), "there is no such database"),
    ] {
        let refused = PostgresStore::open(url).await;
        assert!(
            matches!(&refused, Err(StoreError::Unavailable(said)) if said.contains(words)),
            "{refused:?}"
        );
    }
    let refused = PostgresStore::open("postgres://u@h/d?nonsense=1").await;
    assert!(matches!(&refused, Err(StoreError::Unusable(_))), "{refused:?}");
}

/// Whoever asks goes away at every point of a verb; nobody finds a connection in the middle of a transaction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_goes_away_leaves_nothing_behind() {
    let (store, database) = open().await;
    store.enqueue(vec![deploy(); 200]).await.unwrap();
    for at in 0..200_u64 {
        let patience = Duration::from_micros(at * 40);
        let _ = tokio::time::timeout(patience, store.claim(wants("w1", 1))).await;
        let _ = tokio::time::timeout(patience, store.enqueue(vec![deploy()])).await;
    }
    let mut rest = store.claim(wants("w2", 1_000)).await.unwrap();
    while let Some(claimed) = rest.pop() {
        let held = Held { run_id: claimed.run.id().into(), token: claimed.token };
        store.release(vec![held.into()]).await.unwrap().remove(0).unwrap();
    }
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    assert_eq!(database.psql(open).unwrap(), "0");
    assert_clean(&store).await;
}

const KILLS: usize = 40;

/// Every connection is ended again and again under load: a verb fails with words, or succeeds; none hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_ended_are_replaced() {
    let (store, database) = open().await;
    let (killer, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let work = |at: usize| {
        let store = store.clone();
        async move {
            let (mut done, mut failed) = (0, 0);
            while done < 20 {
                let step = async {
                    store.enqueue(vec![deploy()]).await?.remove(0)?;
                    for claimed in store.claim(wants(&format!("w{at}"), 2)).await? {
                        let held = Held { run_id: claimed.run.id().into(), token: claimed.token };
                        store.renew(vec![held]).await?.remove(0)?;
                        let finish = FinishWrite {
                            run_id: claimed.run.id().into(),
                            token: Some(claimed.token),
                            by: "w".into(),
                            status: "success".into(),
                            ..FinishWrite::default()
                        };
                        store.finish(vec![finish]).await?.remove(0)?;
                    }
                    store.feed(Some(0), 10).await?;
                    Ok::<(), StoreError>(())
                };
                match tokio::time::timeout(Duration::from_secs(30), step).await.expect("none hangs") {
                    Ok(()) => done += 1,
                    Err(StoreError::Unavailable(_)) => failed += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            (done, failed)
        }
    };
    let workers: Vec<_> = (0..6).map(|at| tokio::spawn(work(at))).collect();
    for _ in 0..KILLS {
        let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                   AND pid <> pg_backend_pid() AND application_name = 'waypost'";
        killer.simple_query(all).await.unwrap();
        store.changed(Duration::from_millis(40)).await;
    }
    let mut sum = (0, 0);
    for worker in workers {
        let (done, failed) = worker.await.unwrap();
        sum = (sum.0 + done, sum.1 + failed);
    }
    assert!(sum.1 > 0, "nobody noticed: {sum:?}");
    store.enqueue(vec![deploy()]).await.unwrap().remove(0).unwrap();
    assert_clean(&store).await;
}

/// After a failover the old address may lead to a server that only reads.
#[tokio::test]
async fn a_server_that_only_reads_is_left() {
    let (store, database) = open().await;
    let turn = |state: &str| {
        let switch = format!(
            "ALTER DATABASE {} SET default_transaction_read_only = {state}; SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE datname = current_database() AND application_name = 'waypost'",
            database.psql("SELECT current_database()").unwrap()
        );
        database.psql(&format!("SET default_transaction_read_only = off; {switch}")).unwrap();
    };
    let keyed = || NewRun { concurrency_key: Some("k".into()), ..deploy() };
    turn("on");
    for run in [deploy(), keyed(), deploy(), keyed()] {
        let refused = store.enqueue(vec![run]).await;
        assert!(matches!(&refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    }
    let refused = store.enqueue(vec![keyed()]).await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable(said)) if said.contains("only reads")),
        "{refused:?}"
    );
    // The connections stay open: it is the server's role that changed back.
    let back = "SET default_transaction_read_only = off; ALTER DATABASE";
    database
        .psql(&format!(
            "{back} {} RESET default_transaction_read_only",
            database.psql("SELECT current_database()").unwrap()
        ))
        .unwrap();
    for run in [keyed(), deploy()] {
        store.enqueue(vec![run]).await.unwrap().remove(0).unwrap();
    }
    assert_clean(&store).await;
}

/// Sixty-four at once for each of many keys, in lists of different order: one run each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_run_per_key_whoever_asks() {
    const KEYS: usize = 20;
    let (store, _database) = open().await;
    let ask = |at: usize| {
        let store = store.clone();
        async move {
            let keyed = |key: usize| NewRun {
                idempotency_key: Some(format!("key {}", (key * 7 + at) % KEYS)),
                ..deploy()
            };
            let answers = store.enqueue((0..KEYS).map(keyed).collect()).await.unwrap();
            let mut made: Vec<(String, String, bool)> = Vec::new();
            for answer in answers {
                let it = answer.unwrap();
                made.push((it.run.idempotency_key.clone().unwrap(), it.run.id().to_owned(), it.replayed));
            }
            made.sort();
            made
        }
    };
    let asked: Vec<_> = (0..64).map(|at| tokio::spawn(ask(at))).collect();
    let mut answers = Vec::new();
    for task in asked {
        answers.push(task.await.unwrap());
    }
    let ids = |made: &[(String, String, bool)]| made.iter().map(|it| it.1.clone()).collect::<Vec<_>>();
    assert!(answers.iter().all(|made| ids(made) == ids(&answers[0])), "all have the same runs");
    assert_eq!(answers.iter().flatten().filter(|it| !it.2).count(), KEYS, "each was made once");
    assert_clean(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_process_is_heard() {
    let (store, database) = open().await;
    let other = PostgresStore::open(&database.url()).await.unwrap();
    assert_eq!(store.listen_state(), ListenState::Untried);
    while store.listen_state() != ListenState::Listening {
        store.changed(Duration::from_secs(1)).await;
    }
    let waiting = tokio::spawn({
        let store = store.clone();
        async move {
            // Woken, and not by the clock: a look comes after 0.8 s at the earliest.
            for _ in 0..100 {
                let began = std::time::Instant::now();
                store.changed(Duration::from_secs(60)).await;
                if began.elapsed() < Duration::from_millis(700) {
                    return true;
                }
            }
            false
        }
    });
    while !waiting.is_finished() {
        other.enqueue(vec![deploy()]).await.unwrap();
        other.changed(Duration::from_millis(30)).await;
    }
    assert!(waiting.await.unwrap());
}

/// Start and end that come at once are one row; whoever reads finds two events, from whichever of them on.
#[tokio::test]
async fn events_that_share_a_row_are_read_one_by_one() {
    let (store, database) = open().await;
    let mut last = String::new();
    // The first claim learns what the next one needs to be plain.
    for _ in 0..2 {
        store.enqueue(vec![deploy(); 3]).await.unwrap();
        let held = store.claim(wants("w", 3)).await.unwrap();
        let ends = held.iter().map(|claimed| FinishWrite {
            run_id: claimed.run.id().to_owned(),
            token: Some(claimed.token),
            by: "w".into(),
            status: "success".into(),
            ..FinishWrite::default()
        });
        store.finish(ends.collect()).await.unwrap();
        last = held[2].run.id().to_owned();
    }
    let shared: u64 = database
        .psql("SELECT count(*) FROM waypost.events WHERE via IS NOT NULL")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    assert!(shared >= 3, "{shared}");

    let all = store.events(last.clone(), 0, 100).await.unwrap();
    let seqs: Vec<u64> = all.iter().map(|event| event.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4]);
    assert_eq!((&*all[2].to, &*all[3].to), ("running", "success"));
    assert_eq!(all[3].from.as_deref(), Some("running"));
    for (after, event) in all.iter().enumerate() {
        assert_eq!(store.events(last.clone(), after as u64, 1).await.unwrap(), std::slice::from_ref(event));
    }

    let feed = store.feed(Some(0), 100).await.unwrap().events;
    assert_eq!(feed.len(), 6 * 4);
    let mut after = 0;
    for event in &feed {
        assert!(event.position > after);
        assert_eq!(store.feed(Some(after), 1).await.unwrap().events, std::slice::from_ref(event));
        let seen = format!(
            "SELECT run_id, seq FROM ops.run_events WHERE position > {after} ORDER BY position LIMIT 1"
        );
        assert_eq!(database.psql(&seen).unwrap().trim(), format!("{}|{}", event.run_id, event.seq));
        after = event.position;
    }
    assert_clean(&store).await;
}

/// Each of two servers remembers what it wrote last; what the other one wrote meanwhile must not be lost.
#[tokio::test]
async fn items_written_through_two_servers_in_turn_are_those_of_one() {
    let (one, database) = open().await;
    let other = PostgresStore::open(&database.url()).await.unwrap();
    let job = NewRun { lifecycle: "job".into(), ..NewRun::default() };
    one.enqueue(vec![job]).await.unwrap().remove(0).unwrap();
    let held = one.claim(wants("w", 1)).await.unwrap().remove(0);
    let write = |items: Vec<ItemWrite>| ItemsWrite {
        held: Held { run_id: held.run.id().to_owned(), token: held.token },
        by: "w".into(),
        items,
    };
    let step = |key: &str, status: &str, details: Value| ItemWrite {
        kind: "step".into(),
        key: key.into(),
        status: status.into(),
        details: details.as_object().cloned().unwrap_or_default(),
        ..ItemWrite::default()
    };
    for number in 0..12 {
        let (store, later) = if number % 3 == 0 { (&other, &one) } else { (&one, &other) };
        let key = format!("s{number}");
        let begun = vec![step(&key, "running", json!({ "a": number }))];
        store.put_items(write(begun)).await.unwrap();
        // Beside its state: no event is behind it, and the other one does not know of it.
        later.put_items(write(vec![step(&key, "running", json!({ "b": number }))])).await.unwrap();
        let ended = vec![
            step(&key, "completed", json!({ "c": number })),
            step(&format!("t{number}"), "running", json!({})),
        ];
        store.put_items(write(ended)).await.unwrap();
    }
    let items = one.items(held.run.id().to_owned(), Some("step".into())).await.unwrap();
    for number in 0..12 {
        let ended = items.iter().find(|it| it.key == format!("s{number}")).unwrap();
        assert_eq!(
            (&*ended.status, json!(ended.details)),
            ("completed", json!({ "a": number, "b": number, "c": number }))
        );
    }
    assert_clean(&one).await;
}

/// Whatever the index does not know of is read by every reader of the feed.
#[tokio::test]
async fn the_sweep_takes_the_logs_new_blocks_into_its_index() {
    let (store, database) = open().await;
    for _ in 0..5 {
        store.enqueue(vec![deploy(); 1_000]).await.unwrap();
    }
    store.sweep("w".into(), 100).await.unwrap();
    let left = "SELECT brin_summarize_new_values('waypost.events_position') + brin_summarize_new_values('waypost.events_begun')";
    assert_eq!(database.psql(left).unwrap(), "0");
    // A vacuum under way does the same at its end: nobody waits for it.
    store.enqueue(vec![deploy(); 1_000]).await.unwrap();
    let (vacuum, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    vacuum.batch_execute("BEGIN; LOCK TABLE waypost.events IN SHARE UPDATE EXCLUSIVE MODE").await.unwrap();
    store.sweep("w".into(), 100).await.unwrap();
}

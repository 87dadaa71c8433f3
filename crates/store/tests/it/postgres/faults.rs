//! What a server may refuse: connections, rights, room. Words say what to do, and nothing is half-written.
// proves X10

use futures_util::future::join_all;
use waypost_kernel::Token;
use waypost_store::postgres::{PostgresStore, client};
use waypost_store::{
    CommandWrite, Each, Filter, FinishWrite, Housekeeping, NewRun, Pause, RunRow, Store, StoreError,
};
use waypost_testkit::Postgres;
use waypost_testkit::Shorthand;

use super::{assert_clean, deploy, open, wants};

fn end(run_id: &str, token: Token) -> FinishWrite {
    FinishWrite {
        run_id: run_id.to_owned(),
        token: Some(token),
        by: "w".into(),
        status: "success".into(),
        ..FinishWrite::default()
    }
}

#[track_caller]
fn assert_told<T: std::fmt::Debug>(answer: Result<T, StoreError>, words: &str, what: &str) {
    let said = answer.expect_err(what);
    assert!(matches!(&said, StoreError::Unavailable(it) if it.contains(words)), "{what}: {said}");
}

/// One that was refused is enough.
fn all<T>(answer: Result<Each<T>, StoreError>) -> Result<Vec<T>, StoreError> {
    answer?.into_iter().collect()
}

/// A role that may do all in a database of its own, and is this test's alone.
fn owned(database: &Postgres, options: &str) -> (String, String) {
    let role = format!("owner_of_{}", database.name());
    database
        .psql(&format!(
            "CREATE ROLE {role} LOGIN {options}; ALTER DATABASE {} OWNER TO {role}",
            database.name()
        ))
        .unwrap();
    let address = format!("{} user={role}", database.url());
    (role, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_few_connections_all_take_turns_and_without_any_it_is_told() {
    const LIMIT: usize = 2;
    let database = Postgres::start().unwrap();
    let (_, address) = owned(&database, &format!("CONNECTION LIMIT {LIMIT}"));
    let store = PostgresStore::open(&address).await.unwrap();
    // Far more at once than there are connections.
    let work = (0..40).map(|at| {
        let store = store.clone();
        tokio::spawn(async move {
            let keyed = NewRun { concurrency_key: Some(format!("k{at}")), ..deploy() };
            store.enqueue(vec![keyed, deploy()]).await.unwrap();
            store.feed(Some(0), 10).await.unwrap();
        })
    });
    join_all(work).await.into_iter().for_each(Result::unwrap);
    assert_clean(&store).await;
    drop(store);

    // Once the store's are closed, others take them all.
    let mut others = Vec::new();
    while others.len() < LIMIT {
        match client(&address).await {
            Ok(other) => others.push(other),
            Err(error) => assert!(error.to_string().contains("CONNECTION LIMIT"), "{error}"),
        }
    }
    assert_told(PostgresStore::open(&address).await, "gives out no more connections", "no connection");
    others.clear();
    let store = loop {
        if let Ok(store) = PostgresStore::open(&address).await {
            break store;
        }
    };
    let filter = Filter { tenant: "default".into(), limit: 1_000, ..Filter::default() };
    assert_eq!(store.runs(filter).await.unwrap().runs.len(), 80);
}

/// Callers of schema `ops` are no processes of ours, and whoever may only look can do just that.
#[tokio::test]
async fn who_lacks_a_right_is_told_and_writes_nothing() {
    let (owner, database) = open().await;
    let words = "permission denied; connect as the owner";
    for role in ["waypost_client", "waypost_worker", "waypost_admin"] {
        let user = format!("user_{role}_{}", database.name());
        database.psql(&format!("CREATE ROLE {user} LOGIN IN ROLE {role}")).unwrap();
        let refused = PostgresStore::open(&format!("{} user={user}", database.url())).await;
        assert_told(refused, words, role);
    }

    let reader = format!("reader_{}", database.name());
    database
        .psql(&format!(
            "CREATE ROLE {reader} LOGIN; GRANT USAGE ON SCHEMA waypost TO {reader}; GRANT SELECT ON ALL TABLES IN SCHEMA waypost TO {reader}; \
             GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA waypost TO {reader}; GRANT SELECT, USAGE ON ALL SEQUENCES IN SCHEMA waypost TO {reader}"
        ))
        .unwrap();
    owner.enqueue(vec![deploy(); 3]).await.unwrap();
    let held = owner.claim(wants("w", 1)).await.unwrap().remove(0);
    let looks = PostgresStore::open(&format!("{} user={reader}", database.url())).await.unwrap();
    let filter = || Filter {
        tenant: "default".into(),
        limit: 10,
        include: waypost_store::Parts::ALL,
        ..Filter::default()
    };
    let all =
        async || looks.runs(filter()).await.unwrap().runs.iter().map(RunRow::object).collect::<Vec<_>>();
    let before = all().await;
    let events = looks.feed(None, 0).await.unwrap().position;
    let keyed = NewRun { concurrency_key: Some("k".into()), ..deploy() };
    assert_told(looks.enqueue(vec![deploy()]).await, words, "enqueue");
    assert_told(looks.enqueue(vec![keyed]).await, words, "enqueue with a key");
    assert_told(looks.claim(wants("w", 1)).await, words, "claim");
    assert_told(looks.finish(vec![end(held.run.id(), held.token)]).await, words, "finish");
    let cancel = CommandWrite {
        run_id: held.run.id().into(),
        tenant: "default".into(),
        name: "cancel".into(),
        by: "me".into(),
        ..CommandWrite::default()
    };
    assert_told(looks.command(cancel).await, words, "cancel");
    let pause = Pause { by: "me".into(), reason: "why".into(), at: None };
    assert_told(looks.pause_queue("default".into(), Some(pause)).await, words, "pause");
    assert_told(looks.prune(10).await, words, "prune");
    assert_eq!(all().await, before);
    assert_eq!(looks.feed(None, 0).await.unwrap().position, events);
    owner.finish(vec![end(held.run.id(), held.token)]).await.unwrap().remove(0).unwrap();
    assert_clean(&owner).await;
}

/// The server's own word for a full disk, at the last of a verb's writes. (`./scripts/soak full-disk-postgres` fills a
/// real one.)
#[tokio::test]
async fn a_full_disk_takes_whole_verbs_back() {
    let (store, database) = open().await;
    store.enqueue(vec![deploy(); 20]).await.unwrap();
    let held = store.claim(wants("w", 2)).await.unwrap();
    let full = "CREATE FUNCTION waypost.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$; \
        CREATE TRIGGER full_disk BEFORE INSERT ON waypost.events FOR EACH STATEMENT EXECUTE FUNCTION waypost.full();";
    database.psql(full).unwrap();
    let keyed = NewRun { concurrency_key: Some("k".into()), ..deploy() };
    for runs in [vec![deploy(); 3], vec![keyed]] {
        assert_told(all(store.enqueue(runs).await), "disk is full; free some space", "enqueue");
    }
    assert_told(store.claim(wants("w", 5)).await, "disk is full", "claim");
    let finish = vec![end(held[0].run.id(), held[0].token)];
    assert_told(all(store.finish(finish).await), "disk is full", "finish");
    assert_clean(&store).await;
    database.psql("DROP FUNCTION waypost.full() CASCADE").unwrap();
    for claimed in &held {
        store.finish(vec![end(claimed.run.id(), claimed.token)]).await.unwrap().remove(0).unwrap();
    }
    assert_eq!(store.claim(wants("w", 100)).await.unwrap().len(), 18, "none was taken, none was lost");
    assert_clean(&store).await;
}

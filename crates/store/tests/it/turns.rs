//! Turns between tenants when several processes claim: each goes round by itself.

use std::sync::Arc;

use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Database, NewRun, StoreError};
use waypost_testkit::Postgres;

use crate::conformance::kit::{check, command, deploy, wants};

const MANY: usize = 10_000;
const FEW: usize = 10;

async fn put(store: &dyn Database, tenant: &str, count: usize) {
    for answer in store.enqueue(vec![NewRun { tenant: tenant.into(), ..deploy() }; count]).await.unwrap() {
        answer.unwrap();
    }
}

/// Takes so many at a time, by turns, until the few have begun. Gives how many were taken by then.
async fn taken_until_few_began(processes: &[Arc<dyn Database>], limit: usize) -> usize {
    let (mut taken, mut begun) = (0, 0);
    for process in processes.iter().cycle() {
        for claimed in process.claim(wants("w1", limit)).await.unwrap() {
            taken += 1;
            begun += usize::from(claimed.run.tenant == "few");
            if begun == FEW {
                break;
            }
        }
        if begun == FEW {
            break;
        }
    }
    taken
}

async fn few_begin_within_forty(processes: &[Arc<dyn Database>]) {
    put(&*processes[0], "alot", MANY).await;
    for limit in [1, 7, 40] {
        put(&*processes[0], "few", FEW).await;
        let taken = taken_until_few_began(processes, limit).await;
        assert!(taken <= 40, "{taken} were taken, {limit} at a time, until the last of {FEW} began");
    }
}

// proves X9 and U14
#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite_few_begin_beside_many_whoever_claims() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        || -> Arc<dyn Database> { Arc::new(SqliteStore::open(&folder.path().join("waypost.db")).unwrap()) };
    few_begin_within_forty(&[open(), open(), open()]).await;
}

// proves X9 and U14
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_few_begin_beside_many_whoever_claims() {
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    let mut processes: Vec<Arc<dyn Database>> = Vec::new();
    for _ in 0..3 {
        processes.push(Arc::new(PostgresStore::open(&database.url()).await.unwrap()));
    }
    few_begin_within_forty(&processes).await;
}

/// Whoever names another tenant's run as a parent is told that there is none.
async fn a_foreign_child_is_refused(store: &dyn Database) {
    let new = |tenant: &str, parent: Option<String>| NewRun {
        tenant: tenant.into(),
        parent_run_id: parent,
        ..deploy()
    };
    let parent = store.enqueue(vec![new("default", None)]).await.unwrap().remove(0).unwrap().run;
    let of = Some(parent.id().to_owned());
    let mut children = store.enqueue(vec![new("default", of.clone()), new("b", of)]).await.unwrap();
    let refused = children.pop().unwrap().unwrap_err();
    assert!(matches!(&refused, StoreError::Invalid { field, .. } if field == "parent_run_id"), "{refused}");
    let child = children.pop().unwrap().unwrap().run;
    command(store, parent.id(), "cancel").await.unwrap();
    let row = store.run(child.tenant.clone(), child.id().to_owned()).await.unwrap();
    assert_eq!(row.status(), "cancelled");
    check(store).await;
}

// proves U14
#[tokio::test]
async fn a_run_of_another_tenant_is_no_child() {
    let folder = tempfile::tempdir().unwrap();
    a_foreign_child_is_refused(&SqliteStore::open(&folder.path().join("waypost.db")).unwrap()).await;
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    a_foreign_child_is_refused(&PostgresStore::open(&database.url()).await.unwrap()).await;
}

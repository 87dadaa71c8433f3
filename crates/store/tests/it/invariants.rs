//! The six invariants of seed 003, and its rules for details, broken by hand on both databases: each is refused, whether it
//! comes through a view or to the tables behind it.
// proves J2, J7, X2

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Claim, Database, FinishWrite, NewItem, NewRun};

use crate::by_hand::sqlite3;
use crate::ops::kit;

const CODE: &str = "(SELECT code FROM STATES WHERE lifecycle = 'job' AND state = ";

/// What is broken, the state that the job is in, and how, on each database. `JOB` is its id.
struct Case {
    why: &'static str,
    of: &'static str,
    sqlite: &'static [&'static str],
    postgres: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case {
        why: "1: running without an executor's lease",
        of: "pending",
        sqlite: &[
            "UPDATE runs SET status = 'running'",
            "UPDATE runs SET status = 'running', lease_token = 'x'",
            "UPDATE run_now SET state = STATE('running'), seq = seq + 1, started_at = 1",
        ],
        postgres: &[
            "UPDATE waypost.runs SET state = STATE('running')",
            "UPDATE waypost.runs SET state = STATE('running'), lease_token = gen_random_uuid()",
            "UPDATE waypost.runs SET state = STATE('running'), seq = seq + 1",
            "UPDATE ops.jobs SET status = 'running'",
        ],
    },
    Case {
        why: "1: a second executor, or none",
        of: "running",
        sqlite: &[
            "UPDATE runs SET claimed_by = 'other'",
            "UPDATE runs SET lease_token = '00112233445566778899aabbccddeeff'",
            "UPDATE runs SET lease_token = NULL",
            "UPDATE run_now SET token = NULL",
            "UPDATE run_now SET due_at = NULL",
            "UPDATE run_now SET claimed_by = 'other'",
            "UPDATE run_now SET claimed_by = NULL",
            "UPDATE run_now SET token = '00112233445566778899aabbccddeeff'",
            "UPDATE run_now SET token = 'x', claimed_by = 'other', fence = fence + 1",
            "UPDATE run_now SET started_at = 1",
        ],
        postgres: &[
            "UPDATE waypost.runs SET claimed_by = 'other'",
            "UPDATE waypost.runs SET lease_token = gen_random_uuid()",
            "UPDATE waypost.runs SET lease_token = gen_random_uuid(), claimed_by = 'other', fence = fence + 1",
            "UPDATE waypost.runs SET lease_token = NULL, stale_after = NULL",
            "UPDATE ops.jobs SET claimed_by = 'other'",
        ],
    },
    Case {
        why: "2: paused without a reason",
        of: "running",
        sqlite: &[
            "UPDATE runs SET status = 'paused'",
            "UPDATE runs SET status = 'paused', reason = ' '",
            "UPDATE run_now SET state = STATE('paused'), seq = seq + 1, token = NULL",
        ],
        postgres: &[
            "UPDATE waypost.runs SET state = STATE('paused'), lease_token = NULL, stale_after = NULL",
            "UPDATE waypost.runs SET state = STATE('paused'), lease_token = NULL, stale_after = NULL, reason = ' '",
            "UPDATE waypost.runs SET state = STATE('paused'), lease_token = NULL, stale_after = NULL, seq = seq + 1",
            "UPDATE waypost.board SET status = 'paused'",
            "UPDATE ops.jobs SET status = 'paused'",
        ],
    },
    Case {
        why: "2: the reason of a paused job taken away",
        of: "paused",
        sqlite: &[
            "UPDATE runs SET reason = NULL",
            "UPDATE runs SET reason = ''",
            "UPDATE run_now SET reason = NULL",
            "UPDATE run_now SET reason = ' '",
        ],
        postgres: &[
            "UPDATE waypost.runs SET reason = NULL",
            "UPDATE waypost.runs SET reason = ''",
            "UPDATE waypost.runs SET reason = ' ', seq = seq + 1",
        ],
    },
    Case {
        why: "3: resumed without decisions and not forced",
        of: "paused",
        sqlite: &[
            "UPDATE runs SET status = 'pending'",
            "UPDATE runs SET status = 'pending', resolved = 1",
            "UPDATE runs SET status = 'pending', resolved = 1, details = json_set(details, '$.maintenance_blocker_resolutions', json('{\"esx-1\": \"skip\"}'))",
            "UPDATE run_now SET state = STATE('pending'), seq = seq + 1, due_at = 1",
        ],
        postgres: &[
            "UPDATE waypost.runs SET state = STATE('pending')",
            "UPDATE waypost.runs SET state = STATE('pending'), seq = seq + 1",
            "UPDATE waypost.runs SET state = STATE('pending'), resolved = true",
            "UPDATE waypost.board SET status = 'pending', resolved = true, details = details || '{\"maintenance_blocker_resolutions\": {\"esx-1\": \"skip\"}}'",
            "UPDATE ops.jobs SET status = 'pending'",
            "UPDATE ops.jobs SET status = 'pending', details = '{\"maintenance_blocker_resolutions\": {}}'",
            "UPDATE ops.jobs SET status = 'pending', details = '{\"force_resumed\": false}'",
        ],
    },
    Case {
        why: "4: steps taken away before it runs",
        of: "pending",
        sqlite: &["DELETE FROM items", "UPDATE items SET run_id = 'other'"],
        postgres: &[
            "DELETE FROM waypost.items",
            "TRUNCATE waypost.items",
            "UPDATE waypost.items SET rid = 1",
            "DELETE FROM ops.workflow_executions",
        ],
    },
    Case {
        why: "5: finished without completed_at",
        of: "running",
        sqlite: &[
            "UPDATE runs SET status = 'completed'",
            "UPDATE runs SET status = 'failed'",
            "UPDATE runs SET status = 'cancelled'",
            "UPDATE run_now SET state = STATE('completed'), seq = seq + 1",
        ],
        postgres: &[
            "UPDATE waypost.runs SET state = STATE('completed'), lease_token = NULL, stale_after = NULL",
            "UPDATE waypost.runs SET state = STATE('failed'), lease_token = NULL, stale_after = NULL",
            "UPDATE waypost.runs SET state = STATE('cancelled'), lease_token = NULL, stale_after = NULL",
            "UPDATE waypost.runs SET state = STATE('completed'), lease_token = NULL, stale_after = NULL, seq = seq + 1",
        ],
    },
    Case {
        why: "5: completed_at taken away, or there too early",
        of: "completed",
        sqlite: &[
            "UPDATE runs SET finished_at = NULL",
            "UPDATE run_now SET finished_at = NULL",
            "UPDATE run_now SET finished_at = NULL, seq = seq + 1",
        ],
        postgres: &[
            "UPDATE waypost.runs SET finished_at = NULL",
            "UPDATE waypost.runs SET finished_at = NULL, seq = seq + 1",
            "UPDATE ops.jobs SET completed_at = NULL",
        ],
    },
    Case {
        why: "6: running without started_at",
        of: "running",
        sqlite: &[
            "UPDATE runs SET started_at = NULL",
            "UPDATE run_now SET started_at = NULL",
            "UPDATE run_now SET started_at = NULL, seq = seq + 1",
        ],
        postgres: &[
            "UPDATE waypost.runs SET started_at = NULL",
            "UPDATE waypost.runs SET started_at = NULL, seq = seq + 1",
            "UPDATE ops.jobs SET started_at = NULL",
        ],
    },
    Case {
        why: "J7: details replaced without an event",
        of: "running",
        sqlite: &["UPDATE run_now SET details = '{}'", "UPDATE runs SET details = '[]'"],
        postgres: &[
            "UPDATE waypost.runs SET details = '{\"x\": 1}'",
            "UPDATE waypost.board SET details = '{}'",
            "UPDATE ops.jobs SET details = '[]'",
        ],
    },
    Case {
        why: "J7: details of a finished job",
        of: "completed",
        sqlite: &[
            "UPDATE runs SET details = '{\"late\":1}'",
            "UPDATE run_now SET details = '{\"late\":1}'",
            "UPDATE run_now SET details = '{}', seq = seq + 1",
        ],
        postgres: &[
            "UPDATE waypost.runs SET details = '{\"late\":1}'",
            "UPDATE waypost.runs SET details = '{}', seq = seq + 1",
            "UPDATE ops.jobs SET details = '{\"late\":1}'",
        ],
    },
];

/// By the engine, into the state.
async fn job_in(store: &dyn Database, state: &str) -> String {
    let step = NewItem {
        kind: "step".into(),
        key: "scan".into(),
        name: "scan".into(),
        status: None,
        max_retries: 3,
        reruns: false,
        role: waypost_kernel::item::Role::Step,
        details: serde_json::Map::new(),
        copied: false,
    };
    let new = NewRun { lifecycle: "job".into(), items: vec![step], ..NewRun::default() };
    let id = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned();
    if state == "pending" {
        return id;
    }
    let claim = Claim { worker: "w1".into(), queues: vec!["default".into()], limit: 1, ..Claim::default() };
    let claimed = store.claim(claim).await.unwrap().remove(0);
    if state != "running" {
        let details =
            json!({"awaiting_blocker_resolution": true, "current_blockers": {"esx-1": {}, "esx-2": {}}});
        let finish = FinishWrite {
            run_id: id.clone(),
            token: Some(claimed.token),
            by: "w1".into(),
            status: state.into(),
            reason: Some("2 hosts".into()),
            details: details.as_object().cloned().unwrap(),
            ..FinishWrite::default()
        };
        store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
    }
    id
}

async fn object(store: &dyn Database, id: &str) -> Value {
    store.run("default".into(), id.into()).await.unwrap().object()
}

async fn verified(store: &dyn Database) {
    assert_eq!(store.verify(Arc::new(|_, _| {})).await.unwrap().differences, Vec::<String>::new());
}

/// Nothing of a refused statement is left.
async fn judge(
    store: &dyn Database,
    case: &Case,
    statements: &[String],
    run: &dyn Fn(&str) -> Result<String, String>,
) {
    let id = job_in(store, case.of).await;
    let before = object(store, &id).await;
    for sql in statements {
        let Err(error) = run(sql) else { panic!("{}: was accepted: {sql}", case.why) };
        assert!(
            [
                "INVALID_TRANSITION",
                "SHAPE",
                "IMMUTABLE",
                "SETTLED",
                "APPEND_ONLY",
                "INVALID_INPUT",
                "LEASE_LOST",
                "violates",
                "NOT NULL"
            ]
            .iter()
            .any(|word| error.contains(word)),
            "{}: {sql}: refused for another reason: {error}",
            case.why
        );
        assert_eq!(object(store, &id).await, before, "{}: {sql}", case.why);
    }
    verified(store).await;
}

fn spelt(statements: &[&str], states: &str) -> Vec<String> {
    let code = CODE.replace("STATES", states);
    statements.iter().map(|sql| sql.replace("STATE(", &code)).collect()
}

#[tokio::test]
async fn each_invariant_of_jobs_holds_in_sqlite() {
    for case in CASES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("waypost.db");
        let store = SqliteStore::open(&path).unwrap();
        judge(&store, case, &spelt(case.sqlite, "state_codes"), &|sql| sqlite3(&path, sql)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_invariant_of_jobs_holds_in_postgres() {
    for case in CASES {
        let ops = kit::open();
        let store = waypost_store::postgres::PostgresStore::open(&ops.server.url()).await.unwrap();
        let run = |sql: &str| ops.server.psql(sql);
        judge(&store, case, &spelt(case.postgres, "waypost.lifecycle_states"), &run).await;
    }
}

/// Invariant 4 for a job that came into the tables past the engine, without any step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_without_steps_never_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let code = "(SELECT code FROM state_codes WHERE lifecycle = 'job' AND state = 'pending')";
    sqlite3(
        &path,
        &format!(
            "DROP TRIGGER by_hand_birth; DROP TRIGGER by_hand_birth_now;
             INSERT INTO run_born(rid, position, run_id, tenant, state, at, command, actor, who) VALUES (1, 1, 'bare', 'default', {code}, 1, 'create', 'client', 'x');
             INSERT INTO run_now(state, seq, queue, due_at, last_command) VALUES ({code}, 1, 'default', 1, 'create')"
        ),
    )
    .unwrap();
    let error = sqlite3(
        &path,
        "UPDATE runs SET status = 'running', lease_token = 'x', stale_after = '2099-01-01T00:00:00.000Z'",
    )
    .unwrap_err();
    assert!(error.contains("INVALID_TRANSITION"), "{error}");
    assert!(waypost_store::Store::claim_run(&store, "bare".into(), "w1".into()).await.is_err());

    let ops = kit::open();
    let store = waypost_store::postgres::PostgresStore::open(&ops.server.url()).await.unwrap();
    let id = "0190c5d2-7b5e-7000-8000-000000000009";
    ops.psql(&format!(
        "SET session_replication_role = replica;
         INSERT INTO waypost.runs(run_id, state, tenant, queue, queued_at, available_at, seq, last_command)
           SELECT '{id}', code, 'default', 'default', now(), now(), 1, 'create' FROM waypost.lifecycle_states WHERE lifecycle = 'job' AND state = 'pending'"
    ));
    ops.refused(&format!("UPDATE ops.jobs SET status = 'running', claimed_by = 'e' WHERE id = '{id}'"))
        .is("WP409", "INVALID_TRANSITION");
    ops.refused("UPDATE waypost.board SET status = 'running', claimed_by = 'e'")
        .is("WP409", "INVALID_TRANSITION");
    assert!(waypost_store::Store::claim_run(&store, id.into(), "w1".into()).await.is_err());
}

/// What is legal by hand: merged details with their event, a resume with decisions, steps that follow a cancel.
#[tokio::test]
async fn legal_writes_to_a_job_in_sqlite_are_moves() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let id = job_in(&store, "paused").await;
    sqlite3(&path, r#"UPDATE runs SET details = '{"note": "it''s", "n": 1.5, "yes": true, "no": null, "list": [1, {"a": "b"}]}'"#).unwrap();
    let row = object(&store, &id).await;
    assert_eq!(row["details"]["list"], json!([1, {"a": "b"}]));
    assert_eq!(
        (&row["details"]["note"], &row["details"]["yes"], &row["details"]["no"]),
        (&json!("it's"), &json!(true), &json!(null))
    );
    assert_eq!(row["details"]["awaiting_blocker_resolution"], true, "merged, not replaced");
    verified(&store).await;
    sqlite3(
        &path,
        r#"UPDATE runs SET status = 'pending', resolved = 1, details = json_set(details, '$.maintenance_blocker_resolutions', json('{"esx-1": "skip", "esx-2": "skip"}'))"#,
    )
    .unwrap();
    sqlite3(&path, "UPDATE runs SET status = 'running', claimed_by = 'me', lease_token = '00112233445566778899aabbccddeeff', stale_after = '2099-01-01T00:00:00.000Z'").unwrap();
    sqlite3(&path, "UPDATE items SET status = 'running'").unwrap();
    sqlite3(&path, "UPDATE runs SET status = 'cancelled', finished_at = datetime('now'), error_code = 'CANCELLED', error_msg = 'enough'").unwrap();
    let items = waypost_store::Store::items(&store, id.clone(), None).await.unwrap();
    let failure = items[0].failure.as_ref().map(|failure| (&*failure.code, &*failure.message));
    assert_eq!((items[0].status.as_str(), failure), ("failed", Some(("CANCELLED", "enough"))));
    verified(&store).await;

    let parent = job_in(&store, "pending").await;
    let child =
        NewRun { lifecycle: "deploy".into(), parent_run_id: Some(parent.clone()), ..NewRun::default() };
    waypost_store::Store::enqueue(&store, vec![child]).await.unwrap().remove(0).unwrap();
    sqlite3(
        &path,
        &format!(
            "UPDATE runs SET status = 'cancelled', finished_at = datetime('now') WHERE run_id = '{parent}'"
        ),
    )
    .unwrap();
    let swept = waypost_store::Housekeeping::sweep(&store, "sweeper".into(), 10).await.unwrap();
    assert_eq!((swept.moved.len(), swept.moved[0].1.as_str()), (1, "cancel"));
    verified(&store).await;
}

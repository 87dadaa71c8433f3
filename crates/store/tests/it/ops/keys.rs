//! Idempotency keys: one run per key, however many ask at once, and from wherever.
// proves D5, X7

use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::Barrier;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{NewRun, Store};

use super::claims::connect;
use super::kit::open;

const CALLERS: usize = 64;
const KEYS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_at_once_make_one_run_per_key() {
    let ops = open();
    let barrier = Arc::new(Barrier::new(CALLERS));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..CALLERS {
        let (url, barrier) = (ops.server.url(), barrier.clone());
        callers.spawn(async move {
            let client = connect(&url).await;
            let mut answers = Vec::new();
            for key in 0..KEYS {
                barrier.wait().await;
                let sql = "SELECT * FROM ops.queue_run('p', 'e', 'sha', 'main', '{\"a\": 1}', $1)";
                let row = client.query_one(sql, &[&format!("key-{key}")]).await.unwrap();
                answers.push((key, row.get::<_, String>("run_id"), row.get::<_, String>("status")));
            }
            answers
        });
    }
    let mut answers = callers.join_all().await.concat();
    answers.sort();
    assert_eq!(answers.len(), CALLERS * KEYS);
    answers.dedup();
    assert_eq!(answers.len(), KEYS, "all were given the same run");
    assert_eq!(
        ops.psql("SELECT count(*), count(DISTINCT idempotency_key) FROM ops.runs"),
        format!("{KEYS}|{KEYS}")
    );
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.ready"), KEYS.to_string());
    assert_eq!(ops.verify(), KEYS as u64);
}

#[test]
fn the_same_key_gives_the_run_as_it_is_now_and_another_body_is_refused() {
    let ops = open();
    let queue = |sha: &str, metadata: &str| {
        format!("SELECT run_id, status FROM ops.queue_run('p', 'e', '{sha}', 'main', '{metadata}', 'k1')")
    };
    let first = ops.psql(&queue("a", r#"{"x": 1, "y": [2]}"#));
    let run_id = first.strip_suffix("|queued").unwrap();
    ops.psql("SELECT * FROM ops.claim_next_run('w')");
    assert_eq!(ops.psql(&queue("a", r#"{"y": [2], "x": 1}"#)), format!("{run_id}|claimed"));
    for sql in [queue("b", r#"{"x": 1, "y": [2]}"#), queue("a", "{}")] {
        let refused = ops.refused(&sql);
        refused.is("WP422", "IDEMPOTENCY_KEY_REUSED");
        assert!(refused.message.contains(run_id), "{refused:?}");
    }
    assert_eq!(ops.psql("SELECT count(*) FROM ops.runs"), "1");
}

/// One key, two interfaces: what came by SQL and what came through the engine have the same digest.
#[tokio::test]
async fn the_fingerprint_is_the_engines_own() {
    let ops = open();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("waypost.db");
    let store = SqliteStore::open(&file).unwrap();
    let metadata =
        json!({"b": {"ü\"\\\n": [1, 2.5, -3, true, null, {}]}, "aa": "", "a": [], "Z": "\u{1f}\u{7f}"});
    let input = json!({"project_id": "p", "env": "e", "git_sha": "s", "git_ref": "r/'x'"});
    let run = NewRun {
        lifecycle: "deploy".into(),
        queue: "ops".into(),
        input: input.clone(),
        metadata: metadata.as_object().unwrap().clone(),
        idempotency_key: Some("k".into()),
        ..NewRun::default()
    };
    store.enqueue(vec![run]).await.unwrap().remove(0).unwrap();
    let engine = Command::new("sqlite3").arg(&file).arg("SELECT fingerprint FROM runs").output();
    let engine = engine.expect("sqlite3 is needed for this test: apt-get install sqlite3");
    let quoted = |value: &serde_json::Value| value.to_string().replace('\'', "''");
    ops.psql(&format!("SELECT ops.queue_run('p', 'e', 's', 'r/''x''', '{}', 'k')", quoted(&metadata)));
    let sql = ops.psql("SELECT fingerprint FROM waypost.runs");
    assert_eq!(sql, String::from_utf8_lossy(&engine.stdout).trim());
    assert_eq!(sql.len(), 64);
}

// proves D5
#[test]
fn registered_projects_and_environments_are_the_only_ones() {
    let ops = open();
    let queue = |project: &str, env: &str| format!("SELECT ops.queue_run('{project}', '{env}', 's', 'r')");
    ops.psql(&queue("anything", "anywhere"));
    assert_eq!(ops.psql("SELECT env_id FROM ops.runs"), "anywhere");
    ops.psql("INSERT INTO ops.projects(project_id, name) VALUES ('proj-1', 'One'), ('proj-2', 'Two')");
    ops.psql("INSERT INTO ops.environments(env_id, project_id, env) VALUES ('env-1', 'proj-1', 'staging')");
    ops.psql("SELECT ops.queue_run('proj-1', 'staging', 's', 'r', p_idempotency_key := 'k')");
    assert_eq!(ops.psql("SELECT env_id, env FROM ops.runs WHERE project_id = 'proj-1'"), "env-1|staging");
    let unknown = ops.refused(&queue("proj-9", "staging"));
    unknown.is("WP422", "p_project_id: there is no project 'proj-9'");
    assert!(unknown.hint.contains("proj-1, proj-2"), "{unknown:?}");
    let unknown = ops.refused(&queue("proj-1", "prod"));
    unknown.is("WP422", "p_env: project proj-1 has no environment 'prod'");
    assert!(unknown.hint.contains("staging"), "{unknown:?}");
    ops.psql(&queue("proj-2", "of no account"));
    ops.psql("DELETE FROM ops.environments; DELETE FROM ops.projects WHERE project_id = 'proj-1'");
    ops.psql("SELECT ops.queue_run('proj-1', 'staging', 's', 'r', p_idempotency_key := 'k')");
    assert_eq!(
        ops.psql("SELECT env_id FROM ops.runs WHERE project_id = 'proj-1'"),
        "env-1",
        "a run keeps its environment"
    );
    assert_eq!(ops.verify(), 3);
}

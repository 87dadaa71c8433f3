//! The log, births, executions and what the log tells of a run, attacked with `sqlite3` and `psql`: by a superuser, from within functions and
//! triggers, whatever is set. Each statement is refused by itself, and nothing of it is left.
// proves X2 and X11

use std::sync::Arc;

use waypost_store::postgres::PostgresStore;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Claim, Database, FinishWrite, Housekeeping, NewRun, Store};
use waypost_testkit::Cluster;

use crate::by_hand::sqlite3;
use crate::conformance::kit::{DAY, advance, claim_plan, ending, write_finish};
use crate::ops::kit::{self, Ops};

/// A run that waits, one that is held and one that has ended.
async fn three(store: &dyn Database) {
    let new = || NewRun { lifecycle: "deploy".into(), ..NewRun::default() };
    store.enqueue(vec![new(), new()]).await.unwrap();
    let claim = || Claim { worker: "w".into(), queues: vec!["default".into()], limit: 1, ..Claim::default() };
    store.claim(claim()).await.unwrap();
    let claimed = store.claim(claim()).await.unwrap().remove(0);
    let finish = FinishWrite {
        run_id: claimed.run.id().to_owned(),
        token: Some(claimed.token),
        by: "w".into(),
        status: "success".into(),
        ..FinishWrite::default()
    };
    store.finish(vec![finish]).await.unwrap().remove(0).unwrap();
    store.enqueue(vec![new()]).await.unwrap();
}

async fn verified(store: &dyn Database) {
    assert_eq!(store.verify(Arc::new(|_, _| {})).await.unwrap().differences, Vec::<String>::new());
}

/// Refused with words of ours, or, if it names what is not there, by the database.
async fn refuse(store: &dyn Database, statements: &[&str], run: &dyn Fn(&str) -> Result<String, String>) {
    let before = store.feed(Some(0), 500).await.unwrap().events;
    for sql in statements {
        let Err(said) = run(sql) else { panic!("was accepted: {sql}") };
        let words = ["APPEND_ONLY", "IMMUTABLE", "INVALID_TRANSITION", "SETTLED", "SHAPE", "NOT_FOUND"];
        assert!(words.iter().any(|word| said.contains(word)), "{sql}: {said}");
    }
    assert_eq!(store.feed(Some(0), 500).await.unwrap().events, before);
    verified(store).await;
}

const SQLITE: &[&str] = &[
    // The log: the next event, a gap, one twice, one of no run, one in the place of a beginning that is kept with its end.
    "INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who) SELECT 1000, rid, seq + 1, last, 1, 'cancel', state, state, 'operator', 'x' FROM run_now",
    "INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who) SELECT 1000, rid, seq + 9, last, 1, 'note', state, state, 'operator', 'x' FROM run_now",
    "INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who) SELECT 1000, rid, seq, last, 1, 'note', state, state, 'operator', 'x' FROM run_now",
    "INSERT INTO run_events(position, rid, seq, at, command, src, dst, actor, who) VALUES (1000, 77, 2, 1, 'note', 1, 1, 'operator', 'x')",
    "INSERT OR REPLACE INTO run_events SELECT position, rid, seq, prev, at, 'forged', src, dst, actor, who, via, via_command, level, message, payload, effect, key FROM run_events",
    "INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who) SELECT position - 1, rid, seq - 1, prev, at, 'note', src, dst, actor, who FROM run_events WHERE via IS NOT NULL",
    "UPDATE run_events SET who = 'nobody'",
    "DELETE FROM run_events",
    // Births.
    "INSERT INTO run_now(state, seq, queue, due_at, last_command) SELECT state, 1, 'default', 1, 'create' FROM run_now WHERE state & 7 = 1 LIMIT 1",
    "INSERT INTO run_born(rid, position, run_id, tenant, state, at, command, actor, who) SELECT 99, 999, 'bare', tenant, state, 1, command, actor, who FROM run_born LIMIT 1",
    "INSERT OR REPLACE INTO run_born SELECT * FROM run_born",
    "DELETE FROM run_born",
    "DELETE FROM run_now",
    "DELETE FROM run_now WHERE state & 7 = 4",
    // What the log says of a run.
    "UPDATE run_now SET seq = seq + 1",
    "UPDATE run_now SET seq = seq + 1 WHERE state & 7 = 4",
    "UPDATE run_now SET seq = seq + 1, last = last + 1",
    "UPDATE run_now SET state = (SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = 'cancelled'), seq = seq + 1, finished_at = 1 WHERE state & 7 = 1",
    "UPDATE run_now SET attempt = 99",
    "UPDATE run_now SET fence = fence + 1",
    "UPDATE run_now SET take_overs = 3",
    "UPDATE run_now SET queue = 'other'",
    "UPDATE run_now SET priority = 9",
    "UPDATE run_now SET concurrency_key = 'k'",
    "UPDATE run_now SET flags = 31",
    "UPDATE run_now SET items = 3",
    "UPDATE run_now SET blocked = 1",
    "UPDATE run_now SET intent = '{}'",
    "UPDATE runs SET seq = seq + 1",
    "UPDATE runs SET status = 'cancelled', finished_at = datetime('now'), seq = seq + 1",
    "UPDATE runs SET attempt = 99",
    "UPDATE runs SET status = 'cancelled', finished_at = datetime('now'), attempt = 99",
    "UPDATE runs SET fence = fence + 1",
    "UPDATE runs SET take_overs = 3",
    "UPDATE runs SET queue = 'other'",
    "UPDATE runs SET priority = 9",
    "UPDATE runs SET concurrency_key = 'k'",
    "UPDATE runs SET requires_cleanup = 1",
    "UPDATE runs SET operating = 1",
    "UPDATE runs SET resolved = 1",
    "UPDATE runs SET intent = '{}'",
    "UPDATE runs SET available_at = '2099-01-01T00:00:00Z'",
    "UPDATE runs SET expires_at = '2099-01-01T00:00:00Z'",
    "UPDATE runs SET last_command = 'x'",
    "UPDATE runs SET error_code = 'X'",
    // What nobody could read, or keep.
    "UPDATE runs SET metadata = x'7b7d'",
    "UPDATE runs SET details = '{\"a\": \"\\ud800\"}'",
    "UPDATE runs SET metadata = '{\"a\": 1e400}'",
    "UPDATE runs SET details = '{\"a\": ' || replace(hex(zeroblob(100)), '00', '[') || replace(hex(zeroblob(100)), '00', ']') || '}'",
    "UPDATE runs SET metadata = json_object('a', hex(zeroblob(600000)))",
    "UPDATE runs SET status = 'cancelled', finished_at = datetime('now'), error_code = hex(zeroblob(200))",
    "UPDATE runs SET status = 'claimed', lease_token = 'x', stale_after = '2099-01-01T00:00:00.000Z', claimed_by = x'ff' WHERE status = 'queued'",
    // Another's lease, by the move that its holder may make.
    "UPDATE runs SET status = 'running', claimed_by = 'thief' WHERE status = 'claimed'",
    "UPDATE runs SET status = 'running', claimed_by = NULL WHERE status = 'claimed'",
    "UPDATE runs SET status = 'running', lease_token = '00000000000040008000000000000002' WHERE status = 'claimed'",
    // An event, and another queue, beside an edit that is legal.
    "CREATE TEMP TRIGGER beside BEFORE DELETE ON hand_edits BEGIN INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who, effect) \
       SELECT 1000, rid, seq + 1, last, 1, 'note', state, state, 'worker', 'w', '{\"by_hand\": 1}' FROM run_now WHERE rid = OLD.rid; END; \
     UPDATE runs SET metadata = '{\"a\": 1}' WHERE status = 'queued'",
    "CREATE TEMP TRIGGER beside BEFORE DELETE ON hand_edits BEGIN UPDATE run_now SET queue = 'other' WHERE rid = OLD.rid; END; \
     UPDATE runs SET metadata = '{\"a\": 1}' WHERE status = 'queued'",
    // What a hand asks for is judged where it is asked for.
    "INSERT INTO run_permits SELECT rid, state, (SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = 'cancelled'), seq + 1, 1, NULL, 0, 0 FROM run_now WHERE state & 7 = 1",
    "INSERT INTO hand_edits(rid, seq, status, resolved, forced, metadata, details) SELECT rid, seq, 'success', 0, 0, '{}', '{}' FROM run_now",
    "INSERT INTO hand_edits(rid, seq, status, resolved, forced, metadata, details) SELECT rid, seq + 1, 'cancelled', 0, 0, '{}', '{}' FROM run_now",
    "INSERT INTO hand_edits(rid, seq, status, resolved, forced, metadata, details) VALUES (77, 1, 'cancelled', 0, 0, '{}', '{}')",
    "INSERT INTO item_edits(run_id, kind, key, status, progress) VALUES ('x', 'step', 'x', 'running', 0)",
    "INSERT INTO items(run_id, kind, key, version, place, seq, name, status) SELECT run_id, 'step', 'x', 1, 0, 1, 'x', 'pending' FROM run_born",
];

#[tokio::test]
async fn nobody_forges_or_deletes_the_log_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    three(&store).await;
    refuse(&store, SQLITE, &|sql| sqlite3(&path, sql)).await;
    let left = "SELECT count(*) FROM hand_edits UNION ALL SELECT count(*) FROM item_edits";
    assert_eq!(sqlite3(&path, left).unwrap(), "0\n0");
}

/// SQLite keeps any bytes as text. Whoever writes some that are none hurts that word alone.
#[tokio::test]
async fn words_that_are_no_text_make_nothing_else_unreadable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    three(&store).await;
    for sql in [
        "UPDATE runs SET metadata = '{\"k\": \"' || CAST(x'ff' AS TEXT) || '\"}' WHERE status = 'queued'",
        "UPDATE runs SET status = 'cancelled', finished_at = datetime('now'), error_code = CAST(x'ff' AS TEXT), resolved = 1 WHERE status = 'claimed'",
    ] {
        sqlite3(&path, sql).unwrap();
        verified(&store).await;
    }
    let claim = Claim { worker: "w".into(), queues: vec!["default".into()], limit: 9, ..Claim::default() };
    let claimed = Store::claim(&store, claim).await.unwrap();
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].run.object()["metadata"]["k"], "\u{fffd}");
    verified(&store).await;
}

const POSTGRES: &[&str] = &[
    "INSERT INTO waypost.events(rid, at, seq, src, dst, command, actor, who) SELECT rid, now(), seq + 1, state, state, 'note', 'operator', 'x' FROM waypost.runs",
    "INSERT INTO waypost.events(rid, at, seq, src, dst, command, actor, who) SELECT rid, now(), seq + 9, state, state, 'note', 'operator', 'x' FROM waypost.runs",
    "INSERT INTO waypost.events(rid, at, seq, src, dst, command, actor, who) SELECT e.rid, now(), seq - 1, src, via, 'note', 'operator', 'x' FROM waypost.events e WHERE via IS NOT NULL",
    "INSERT INTO waypost.events(rid, at, seq, src, dst, command, actor, who) VALUES (77, now(), 1, NULL, 2000, 'create', 'client', 'x')",
    "WITH told AS (INSERT INTO waypost.events(rid, at, seq, src, dst, command, actor, who) SELECT rid, now(), seq + 1, state, state, 'note', 'operator', 'x' \
     FROM waypost.runs RETURNING rid) UPDATE waypost.runs r SET seq = seq + 1 FROM told WHERE told.rid = r.rid",
    "INSERT INTO waypost.events SELECT * FROM waypost.events ON CONFLICT (rid, seq) DO UPDATE SET who = 'forged'",
    "UPDATE waypost.events SET who = 'nobody'",
    "DELETE FROM waypost.events",
    "TRUNCATE waypost.events",
    "TRUNCATE waypost.runs",
    "SET waypost.pruning = 'on'; DELETE FROM waypost.events",
    "SET waypost.pruning = 'on'; DELETE FROM waypost.runs",
    "DELETE FROM waypost.runs",
    "DELETE FROM waypost.runs WHERE finished_at IS NOT NULL",
    "WITH gone AS (DELETE FROM waypost.runs WHERE finished_at IS NOT NULL RETURNING rid) DELETE FROM waypost.events e USING gone WHERE e.rid = gone.rid",
    "BEGIN; DELETE FROM waypost.events WHERE rid IN (SELECT rid FROM waypost.runs WHERE finished_at IS NOT NULL); COMMIT",
    "INSERT INTO waypost.runs(run_id, state, tenant, queue, queued_at, available_at, seq, last_command) SELECT 'bare', state, tenant, queue, queued_at, now(), 1, 'create' \
     FROM waypost.runs WHERE state / 1000 = 2",
    "UPDATE waypost.runs SET seq = seq + 1",
    "UPDATE waypost.runs SET seq = seq",
    "UPDATE waypost.runs SET seq = seq + 1 WHERE finished_at IS NOT NULL",
    "UPDATE waypost.runs SET state = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND state = 'cancelled'), seq = seq + 1, \
     finished_at = now() WHERE state / 1000 = 2",
    "UPDATE waypost.runs SET attempt = 99",
    "UPDATE waypost.runs SET fence = fence + 1",
    "UPDATE waypost.runs SET take_overs = 3",
    "UPDATE waypost.runs SET queue = 'other'",
    "UPDATE waypost.runs SET priority = 9",
    "UPDATE waypost.runs SET concurrency_key = 'k'",
    "UPDATE waypost.runs SET item_count = 3",
    "UPDATE waypost.runs SET operating = true",
    "UPDATE waypost.runs SET requires_cleanup = true",
    "UPDATE waypost.runs SET intent = '{}'",
    "UPDATE waypost.runs SET available_at = now()",
    "UPDATE waypost.runs SET expires_at = now()",
    "UPDATE waypost.runs SET resolved = true",
    "UPDATE waypost.runs SET error_code = 'X' WHERE state / 1000 = 3",
    "UPDATE waypost.runs SET ended_by = gen_random_uuid()",
    "UPDATE waypost.board SET queue = 'other'",
    "UPDATE waypost.board SET priority = 9, status = 'cancelled' WHERE status = 'queued'",
    // From within a function, with the engine's words around it.
    "DO $$ BEGIN UPDATE waypost.runs SET seq = seq + 1; END $$",
    "DO $$ BEGIN UPDATE waypost.runs SET seq = seq + 1 /* PL/pgSQL function waypost.save(timestamp with time zone) line 40 at SQL statement */; END $$",
    "DO $$ DECLARE own text := (SELECT replace((regexp_match(prosrc, '-- own write\n(.*?) INTO v_'))[1], '%', '%%') FROM pg_proc WHERE proname = 'save'); BEGIN \
     EXECUTE 'UPDATE waypost.runs SET seq=9/*' || own || '*/'; END $$",
    "CREATE TEMP TABLE t(a int); CREATE FUNCTION pg_temp.forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE waypost.runs SET seq = seq + 1; RETURN NULL; END $$; \
     CREATE TRIGGER forge AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION pg_temp.forge(); INSERT INTO t VALUES (1)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_forges_or_deletes_the_log_of_a_database() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    three(&store).await;
    refuse(&store, POSTGRES, &|sql| ops.server.psql(sql)).await;
}

/// What the server tells of the statement at work has words of its language around it: whichever that is, the engine's own are known, and no
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_language_knows_the_engine_from_a_hand() {
    let languages = [
        ("de_DE", "SQL-Anweisung »"),
        ("fr_FR", "instruction SQL « "),
        ("ja_JP", "SQL文 \""),
        ("ru_RU", "SQL-оператор: \""),
        ("zh_CN", "SQL 语句 \""),
    ];
    let cluster = Cluster::with_languages(&languages.map(|(language, _)| language)).unwrap();
    let store = PostgresStore::open(&cluster.url()).await.unwrap();
    // Those from within functions, where the words are; all of them once.
    let within = &POSTGRES[POSTGRES.len() - 4..];
    for (at, (language, words)) in languages.into_iter().enumerate() {
        cluster.speak(language).unwrap();
        let raised = cluster.psql("DO $$ BEGIN EXECUTE 'SELECT 1 / 0'; END $$").unwrap_err();
        assert!(
            raised.contains(&format!("{words}SELECT 1 / 0")),
            "the server does not speak {language}: {raised}"
        );
        three(&store).await;
        refuse(&store, if at == 0 { POSTGRES } else { within }, &|sql| cluster.psql(sql)).await;
        cluster.psql("UPDATE waypost.board SET status = 'cancelled' WHERE status = 'queued'").unwrap();
        verified(&store).await;
    }
}

/// A run that is settled and due leaves with all that is its own, whoever deletes it, and is counted; one that is not stays, with its log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_deletes_a_run_that_is_due_has_pruned_it() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    three(&store).await;
    ops.clock("31 days");
    ops.refused("DELETE FROM waypost.runs").is("WP405", "APPEND_ONLY");
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.runs"), "3");
    ops.psql("DELETE FROM waypost.runs WHERE finished_at IS NOT NULL");
    assert_eq!(ops.psql("SELECT runs, events FROM waypost.pruned"), "1|4");
    assert_eq!(ops.psql("SELECT count(DISTINCT rid) FROM waypost.events"), "2");
    verified(&store).await;
}

/// The end of a lease is in no event: a hand may set it, and is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_ended_by_hand_is_swept() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    three(&store).await;
    ops.psql("UPDATE waypost.runs SET stale_after = now() - interval '1 second' WHERE state / 1000 = 3");
    verified(&store).await;
    store.sweep("w".into(), 100).await.unwrap();
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.runs WHERE state / 1000 = 3"), "0");
    verified(&store).await;
}

fn execution(ops: &Ops) -> String {
    let claim = "SELECT id FROM ops.claim_cron_execution('backup', '2026-01-01T00:00:00Z', 'victim')";
    ops.psql(claim)
}

const EXECUTIONS: &[&str] = &[
    "INSERT INTO ops.sys_cron_executions(job_name, plan_time, status, runner_id) VALUES ('backup', '2026-01-01T00:00:00Z', 'RUNNING', 'thief') \
     ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO UPDATE SET status = 'SUCCESS', runner_id = 'thief'",
    "INSERT INTO ops.sys_cron_executions(job_name, plan_time, status) VALUES ('backup', '2026-01-01T00:00:00Z', 'RUNNING') \
     ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO UPDATE SET job_name = 'other', plan_time = now()",
    "INSERT INTO ops.sys_cron_executions(job_name, plan_time, status) VALUES ('backup', '2026-01-01T00:00:00Z', 'RUNNING') \
     ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO UPDATE SET id = gen_random_uuid()",
    "UPDATE waypost.executions SET status = 'SUCCESS'",
    "UPDATE waypost.executions SET schedule = 'other'",
    "UPDATE waypost.executions SET plan_time = now()",
    "UPDATE waypost.executions SET execution_id = gen_random_uuid()",
    "UPDATE waypost.executions SET result = '{\"a\": 1}'",
    "UPDATE waypost.executions SET run_id = NULL",
    "UPDATE waypost.executions SET run_id = 'other'",
    "INSERT INTO waypost.executions(schedule, kind, id, plan_time, status, wake_at) VALUES ('forged', 'global', 'global', now(), 'SUCCESS', now())",
    "INSERT INTO waypost.executions(schedule, kind, id, plan_time, run_id, wake_at) VALUES ('forged', 'global', 'global', now(), 'x', now())",
    "DELETE FROM waypost.executions",
    "TRUNCATE waypost.executions",
];

/// Nor is the guard passed from within somebody's own trigger, as the role that works executions.
// proves C1 and C4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_are_forged_by_nobody() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let id = execution(&ops);
    let shown = || ops.psql("SELECT * FROM waypost.executions");
    let before = shown();
    refuse(&store, EXECUTIONS, &|sql| ops.server.psql(sql)).await;
    for sql in &EXECUTIONS[..3] {
        let within = format!(
            "GRANT TEMP ON DATABASE {} TO waypost_worker; SET ROLE waypost_worker; CREATE TEMP TABLE t(a int); \
             CREATE FUNCTION pg_temp.forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {sql}; RETURN NULL; END $$; \
             CREATE TRIGGER forge AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION pg_temp.forge(); INSERT INTO t VALUES (1)",
            ops.psql("SELECT quote_ident(current_database())")
        );
        ops.refused(&within).is("WP409", "INVALID_TRANSITION");
    }
    assert_eq!(shown(), before);
    let end = format!(
        "UPDATE ops.sys_cron_executions SET status = 'SUCCESS' WHERE id = '{id}' AND status = 'RUNNING' RETURNING runner_id"
    );
    assert_eq!(ops.psql(&end), "victim");
    verified(&store).await;
}

const FILE_EXECUTIONS: &[&str] = &[
    "INSERT INTO executions(schedule, kind, id, plan_time, wake_at) VALUES ('forged', 'global', 'global', 0, 0)",
    "INSERT INTO executions(schedule, kind, id, plan_time, run_id) SELECT schedule, kind, id, 0, run_id FROM executions",
    "INSERT OR REPLACE INTO executions SELECT * FROM executions",
    "INSERT INTO executions SELECT * FROM executions WHERE true ON CONFLICT DO UPDATE SET run_id = NULL",
    "UPDATE executions SET run_id = NULL",
    "UPDATE executions SET run_id = 'other'",
    "UPDATE executions SET schedule = 'other'",
    "UPDATE executions SET plan_time = 0",
    "UPDATE executions SET wake_at = NULL",
    "UPDATE executions SET tried = 0, allowed = 99",
    "DELETE FROM executions",
];

// proves C1 and C4
#[tokio::test]
async fn executions_of_a_file_are_forged_by_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let run = NewRun {
        lifecycle: "cron".into(),
        idempotency_key: Some("waypost:schedule:backup:global:a:2026-02-14T02:00:00Z".into()),
        by: "victim".into(),
        actor: waypost_kernel::Actor::Worker,
        ..NewRun::default()
    };
    let lease = waypost_kernel::Span::from_seconds(600);
    let claimed = claim_plan(&store, "backup", run, lease).await.unwrap().unwrap();
    let shown = || sqlite3(&path, "SELECT * FROM executions").unwrap();
    let before = shown();
    assert!(before.contains("backup") && before.contains(claimed.run.id()), "{before}");
    refuse(&store, FILE_EXECUTIONS, &|sql| sqlite3(&path, sql)).await;
    assert_eq!(shown(), before);
    // What the engine does goes on.
    write_finish(&store, ending(&claimed, "SUCCESS")).await.unwrap();
    advance(&store, 31 * DAY).await;
    // The newest event of a file stays: another run has it.
    store.enqueue(vec![NewRun { lifecycle: "deploy".into(), ..NewRun::default() }]).await.unwrap();
    store.prune(10).await.unwrap();
    assert_eq!(shown(), "");
}

/// Each is made past the guards, and found by `waypost verify`, which names what it is about.
const DAMAGE: &[(&str, &str)] = &[
    ("UPDATE waypost.runs SET seq = seq + 1 WHERE state / 1000 = 2", "seq is 2, the log says 1"),
    (
        "UPDATE waypost.runs SET attempt = 9 WHERE state / 1000 = 3 AND queue = 'default'",
        "attempt is 9, the log says 1",
    ),
    (
        "UPDATE waypost.runs SET error_code = 'X', error_msg = '' WHERE finished_at IS NOT NULL",
        "error_code is \"X\", the log says nothing",
    ),
    (
        "UPDATE waypost.runs SET metadata = '{\"a\": 1}' WHERE state / 1000 = 2",
        "metadata.a is 1, the log says not there",
    ),
    (
        "UPDATE waypost.runs SET queue = 'elsewhere' WHERE state / 1000 = 2",
        "it is ready and stands in no queue",
    ),
    (
        "DELETE FROM waypost.events WHERE seq = 1 AND rid IN (SELECT rid FROM waypost.runs WHERE state / 1000 = 3 AND queue = 'default')",
        "event 1 is not in the log",
    ),
    (
        "DELETE FROM waypost.events WHERE seq = 2 AND rid = (SELECT rid FROM waypost.runs WHERE finished_at IS NOT NULL)",
        "event 2 is not in the log",
    ),
    (
        "INSERT INTO waypost.events(rid, at, seq, src, dst, command, actor, who) SELECT rid, now(), seq + 1, state, state, 'note', 'operator', 'x' FROM waypost.runs \
      WHERE state / 1000 = 3 AND queue = 'default'",
        "seq is 2, the log says 3",
    ),
    (
        "INSERT INTO waypost.events(rid, at, seq, src, dst, command, actor, who) SELECT rid, now(), seq - 1, src, via, 'start', 'worker', 'w' FROM waypost.events \
      WHERE via IS NOT NULL",
        "event 3 is in the log twice",
    ),
    (
        "DELETE FROM waypost.runs WHERE finished_at IS NOT NULL",
        "is not there, and 3 events of it are: 1 to 4",
    ),
    (
        "UPDATE waypost.executions SET status = 'SUCCESS', runner_id = 'thief'",
        "has status SUCCESS, the run says RUNNING",
    ),
    ("UPDATE waypost.executions SET run_id = 'other'", "has run other, which is not there"),
    (
        "UPDATE waypost.runs SET intent = '{\"want\": \"cancel\"}' WHERE state / 1000 = 3",
        "intent is {\"want\": \"cancel\"}, which cannot be read",
    ),
    ("UPDATE waypost.runs SET metadata = '[1]'", "metadata is [1], which cannot be read"),
    ("UPDATE waypost.runs SET details = '{\"x\": 1e400}'", "details is {\"x\": 1000"),
    (
        "UPDATE waypost.events SET effect = '{\"intent\": {\"want\": \"cancel\"}}' WHERE seq = 1",
        "what event 1 did cannot be read",
    ),
    ("UPDATE waypost.events SET effect = '[1e400]' WHERE seq = 1", "what event 1 did cannot be read"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verify_names_what_was_forged_past_the_guards_of_a_database() {
    let ops = kit::open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    three(&store).await;
    execution(&ops);
    verified(&store).await;
    let tables = ["runs", "events", "executions"];
    for table in tables {
        ops.psql(&format!("CREATE TABLE public.{table} AS SELECT * FROM waypost.{table}"));
    }
    for (sql, words) in DAMAGE {
        ops.psql(&format!("SET session_replication_role = replica; {sql}"));
        let found = store.verify(Arc::new(|_, _| {})).await.unwrap().differences;
        assert!(found.iter().any(|line| line.contains(words)), "{sql}: {found:?}");
        assert!(!found.iter().any(|line| line.contains("Some(") || line.contains("None")), "{found:?}");
        let restore = |table| {
            format!("DELETE FROM waypost.{table}; INSERT INTO waypost.{table} SELECT * FROM public.{table};")
        };
        ops.psql(&format!("SET session_replication_role = replica; {}", tables.map(restore).concat()));
        verified(&store).await;
    }
}

const FILE_DAMAGE: &[(&str, &str)] = &[
    ("UPDATE run_now SET seq = seq + 1 WHERE state & 7 = 1", "seq is 2, the log says 1"),
    ("UPDATE run_now SET attempt = 9 WHERE state & 7 = 2", "attempt is 9, the log says 1"),
    (
        "UPDATE run_now SET metadata = '{\"a\": 1}' WHERE state & 7 = 1",
        "metadata.a is 1, the log says not there",
    ),
    (
        "DELETE FROM run_events WHERE via IS NOT NULL",
        "1 events after the first are in the log, its row counts 3",
    ),
    (
        "INSERT INTO run_events(position, rid, seq, prev, at, command, src, dst, actor, who) SELECT 1000, rid, seq + 1, last, 1, 'note', state, state, 'operator', 'x' \
         FROM run_now WHERE state & 7 = 2",
        "2 events after the first are in the log, its row counts 1",
    ),
    (
        "INSERT INTO run_events(position, rid, seq, at, command, src, dst, actor, who) VALUES (1000, 77, 2, 1, 'note', 1, 1, 'operator', 'x')",
        "run number 77 is not there: 1 events after the first are in the log",
    ),
    ("UPDATE run_now SET metadata = '[1]'", "metadata is [1], which cannot be read"),
    ("UPDATE run_now SET details = 'x'", "details is x, which cannot be read"),
    (
        "UPDATE run_now SET intent = '{\"want\": \"cancel\"}'",
        "intent is {\"want\": \"cancel\"}, which cannot be read",
    ),
    ("DELETE FROM run_now WHERE state & 7 = 1", "its first event is in the log, and its row is not there"),
    (
        "INSERT INTO items(run_id, kind, key, version, place, seq, name, status) VALUES ('gone', 'step', 'x', 1, 0, 1, 'x', 'pending')",
        "gone: the run is not there, and its step x is",
    ),
    (
        "INSERT INTO executions(schedule, kind, id, plan_time, run_id) VALUES ('s', 'global', 'global', 0, 'gone')",
        "execution 1970-01-01T00:00:00Z of s has run gone, which is not there",
    ),
];

#[tokio::test]
async fn verify_names_what_was_forged_past_the_guards_of_a_file() {
    for (sql, words) in FILE_DAMAGE {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("waypost.db");
        let store = SqliteStore::open(&path).unwrap();
        three(&store).await;
        verified(&store).await;
        let triggers = sqlite3(
            &path,
            "SELECT group_concat('DROP TRIGGER ' || name, '; ') FROM sqlite_master WHERE type = 'trigger'",
        )
        .unwrap();
        sqlite3(&path, &triggers).unwrap();
        sqlite3(&path, sql).unwrap();
        let found = store.verify(Arc::new(|_, _| {})).await.unwrap().differences;
        assert!(found.iter().any(|line| line.contains(words)), "{sql}: {found:?}");
    }
}

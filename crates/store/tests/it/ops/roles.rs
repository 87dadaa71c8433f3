//! Each role can do its own and nothing else.
// proves X2

use waypost_store::postgres::migration_sql;
use waypost_testkit::Postgres;

use super::kit::{Ops, open};

const CLIENT: &str = "waypost_client";
const WORKER: &str = "waypost_worker";
const ADMIN: &str = "waypost_admin";

/// What is done, and who may. `QUEUED`, `CLAIMED` and `RUNNING` are runs in that state.
const CASES: &[(&str, &[&str])] = &[
    ("SELECT * FROM ops.queue_run('p', 'e', 's', 'r')", &[CLIENT, ADMIN]),
    ("SELECT ops.finish_run('QUEUED', 'cancelled')", &[CLIENT, WORKER, ADMIN]),
    ("SELECT ops.finish_run('RUNNING', 'cancelled')", &[CLIENT, WORKER, ADMIN]),
    ("SELECT status, claimed_by, updated_at FROM ops.runs", &[CLIENT, WORKER, ADMIN]),
    ("SELECT event_id, level, message, payload FROM ops.run_events", &[CLIENT, WORKER, ADMIN]),
    ("SELECT * FROM ops.environments JOIN ops.projects USING (project_id)", &[CLIENT, WORKER, ADMIN]),
    ("SELECT * FROM ops.claim_next_run('w')", &[WORKER, ADMIN]),
    ("SELECT ops.append_event('CLAIMED', 'info', 'm')", &[WORKER, ADMIN]),
    ("SELECT * FROM ops.heartbeat('CLAIMED')", &[WORKER, ADMIN]),
    ("SELECT ops.finish_run('CLAIMED', 'success')", &[WORKER, ADMIN]),
    ("SELECT ops.finish_run('RUNNING', 'failed')", &[WORKER, ADMIN]),
    ("SELECT ops.finish_run('RUNNING', 'cancelled', '{}', 'worker-001')", &[WORKER, ADMIN]),
    ("SELECT waypost.ops_finish('RUNNING', 'success', '{}', NULL, NULL)", &[WORKER, ADMIN]),
    ("UPDATE ops.runs SET status = 'cancelled' WHERE run_id = 'CLAIMED'", &[ADMIN]),
    ("SELECT run_id FROM ops.runs WHERE run_id = 'QUEUED' FOR UPDATE", &[ADMIN]),
    ("SELECT * FROM waypost.pause_queue('ops', 'why')", &[ADMIN]),
    ("SELECT * FROM waypost.resume_queue('ops')", &[ADMIN]),
    ("SELECT * FROM waypost.prune()", &[ADMIN]),
    ("SELECT waypost.put_pause('default', 'ops', 'somebody else', 'why')", &[]),
    ("SELECT * FROM waypost.prune_runs(10)", &[]),
    ("UPDATE waypost.queues SET paused_at = NULL", &[]),
    ("DELETE FROM waypost.audit", &[]),
    ("SET waypost.pruning = 'on'; DELETE FROM waypost.runs", &[]),
    ("INSERT INTO ops.projects VALUES ('p9')", &[ADMIN]),
    ("DELETE FROM ops.environments", &[ADMIN]),
    ("UPDATE ops.run_events SET message = 'x'", &[]),
    ("DELETE FROM ops.runs", &[]),
    ("SELECT id, status, details FROM ops.jobs", &[CLIENT, WORKER, ADMIN]),
    ("SELECT * FROM ops.workflow_executions JOIN ops.job_tasks USING (job_id)", &[CLIENT, WORKER, ADMIN]),
    ("INSERT INTO ops.jobs(job_type) VALUES ('scan')", &[CLIENT, ADMIN]),
    ("UPDATE ops.jobs SET status = 'cancelled'", &[ADMIN]),
    ("UPDATE ops.jobs SET details = '{\"a\": 1}'", &[ADMIN]),
    ("INSERT INTO ops.workflow_executions(job_id, step_name) SELECT id, 'x' FROM ops.jobs", &[ADMIN]),
    ("UPDATE ops.workflow_executions SET step_status = 'running'", &[ADMIN]),
    ("INSERT INTO ops.job_tasks(job_id, task_name) SELECT id, 'x' FROM ops.jobs", &[ADMIN]),
    ("DELETE FROM ops.jobs", &[]),
    ("DELETE FROM ops.job_tasks", &[]),
    ("SELECT waypost.job_told(NULL, '{}')", &[]),
    ("SELECT * FROM waypost.meta", &[]),
    ("SELECT lease_token FROM waypost.runs", &[]),
    (
        "INSERT INTO waypost.events(rid, at, seq, dst, command, actor, who) VALUES (1, now(), 9, 2000, 'x', 'client', 'me')",
        &[],
    ),
    ("UPDATE waypost.events SET command = 'x'", &[]),
    ("DELETE FROM waypost.events", &[]),
    ("UPDATE waypost.runs SET metadata = '{}'", &[]),
    ("DELETE FROM waypost.runs", &[]),
    ("DELETE FROM waypost.ready", &[]),
    ("SELECT waypost.open_token(1, 1)", &[]),
    ("SELECT waypost.cancel_one('QUEUED', 'me')", &[]),
    ("SELECT waypost.finish_one('RUNNING', NULL, NULL, 'success')", &[]),
    ("SELECT setval('waypost.positions', 1)", &[]),
    ("CREATE TABLE ops.mine(a int)", &[]),
];

fn try_as(ops: &Ops, role: &str, sql: &str) -> Result<String, String> {
    let (queued, claimed, running) = (
        ops.psql("SELECT run_id FROM ops.runs WHERE status = 'queued'"),
        ops.psql("SELECT run_id FROM ops.runs WHERE status = 'claimed'"),
        ops.psql("SELECT run_id FROM ops.runs WHERE status = 'running'"),
    );
    let sql = sql.replace("QUEUED", &queued).replace("CLAIMED", &claimed).replace("RUNNING", &running);
    // Taken back, so that the next one finds the same runs.
    ops.server.psql(&format!("\\set VERBOSITY verbose\nBEGIN; SET ROLE {role}; {sql}; ROLLBACK;"))
}

#[test]
fn each_role_can_do_its_own_and_nothing_else() {
    let ops = open();
    ops.running();
    ops.claimed();
    ops.queue();
    ops.job();
    ops.psql(
        "INSERT INTO ops.projects VALUES ('p'); INSERT INTO ops.environments VALUES ('env-1', 'p', 'e')",
    );
    for (sql, allowed) in CASES {
        for role in [CLIENT, WORKER, ADMIN] {
            match try_as(&ops, role, sql) {
                Ok(_) => assert!(allowed.contains(&role), "{role} was let do: {sql}"),
                Err(error) if allowed.contains(&role) => panic!("{role} may: {sql}: {error}"),
                Err(error) => assert!(error.contains("42501"), "{role}: {sql}: {error}"),
            }
        }
    }
}

#[test]
fn whoever_has_no_role_can_do_nothing() {
    let ops = open();
    let nobody = format!("waypost_test_nobody_{}", std::process::id());
    ops.psql(&format!("CREATE ROLE {nobody}"));
    ops.running();
    for (sql, _) in CASES {
        let error = try_as(&ops, &nobody, sql).unwrap_err();
        assert!(error.contains("42501"), "{sql}: {error}");
    }
    ops.psql(&format!("DROP ROLE {nobody}"));
}

/// A function of somebody else's with a name of ours, or a temporary table, changes nothing for the interface.
#[test]
fn a_callers_own_search_path_does_not_matter() {
    let ops = open();
    ops.psql(
        "CREATE SCHEMA mine; CREATE FUNCTION mine.now() RETURNS timestamptz LANGUAGE sql RETURN 'infinity'::timestamptz;
         CREATE FUNCTION mine.octet_length(text) RETURNS int LANGUAGE sql RETURN -1;
         CREATE TABLE mine.runs(run_id text); CREATE TEMP TABLE projects(project_id text);
         SET search_path = mine, pg_catalog;
         SELECT ops.queue_run('p', 'e', 's', 'r'); SELECT ops.claim_next_run('w');",
    );
    assert_eq!(ops.psql("SELECT status, queued_at <= now() FROM ops.runs"), "claimed|t");
}

/// As a database's owner who is nothing more: roles that are not there are left out, with a notice.
#[test]
fn whoever_may_not_create_roles_gets_the_schema_without_them() {
    let ops = open();
    let owner = format!("waypost_test_owner_{}", std::process::id());
    ops.psql(&format!("CREATE ROLE {owner}; CREATE DATABASE {owner} OWNER {owner}"));
    let script = migration_sql()
        .replace("waypost_client", "waypost_absent_client")
        .replace("waypost_worker", "waypost_absent_worker");
    ops.psql(&format!("\\c {owner}\nSET ROLE {owner};\n{script}\nSELECT ops.queue_run('p', 'e', 's', 'r');\nSELECT ops.claim_next_run('w');"));
    let known = ops.psql("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'waypost_absent%'");
    ops.psql(&format!("DROP DATABASE {owner}"));
    ops.psql(&format!("DROP ROLE {owner}"));
    assert_eq!(known, "0");
}

/// Tests beside each other do it: roles are the cluster's.
#[test]
fn roles_are_made_once_however_many_migrate() {
    let ops = open();
    let roles = include_str!("../../../src/postgres/schema/roles.sql");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let other = Postgres::start().unwrap();
                other.psql(&migration_sql()).unwrap();
            });
        }
    });
    ops.psql(roles);
    let made = ops.psql("SELECT string_agg(rolname || rolcanlogin, ' ' ORDER BY rolname) FROM pg_roles WHERE rolname ~ '^waypost_(client|worker|admin)$'");
    assert_eq!(made, "waypost_adminfalse waypost_clientfalse waypost_workerfalse");
}

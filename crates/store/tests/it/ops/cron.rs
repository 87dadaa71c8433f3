//! Seed 002's table from psql: claim, heartbeat, finish, retry, steal, by the seed's own statements.
// proves C1, C3, C4, C9

use waypost_kernel::{Actor, Span, Time};
use waypost_store::postgres::PostgresStore;
use waypost_store::{
    Begin, Begun, Birth, FinishWrite, Firing, Housekeeping, ManualPlans, NewRun, Ownership, ScheduleChange,
    ScheduleWrite, Store,
};

use super::kit::{Ops, Refused, open};

const PLAN: &str = "2026-02-14 02:00+00";

fn claim(ops: &Ops, runner: &str) -> Option<(String, String)> {
    let sql = format!(
        "SELECT id || ' ' || lease_token FROM ops.claim_cron_execution('rollup', '{PLAN}', '{runner}', '10 minutes')"
    );
    let found = ops.psql(&sql);
    found.split_once(' ').map(|(id, token)| (id.to_owned(), token.to_owned()))
}

/// The seed's shape of a live write; gives how many rows it matched.
fn live(ops: &Ops, (id, token): &(String, String), set: &str) -> String {
    ops.psql(&format!(
        "WITH w AS (UPDATE ops.sys_cron_executions SET {set} WHERE id = '{id}' AND lease_token = '{token}' AND status = 'RUNNING' RETURNING 1) \
         SELECT count(*) FROM w"
    ))
}

fn one(ops: &Ops, column: &str) -> String {
    ops.psql(&format!("SELECT {column} FROM ops.sys_cron_executions"))
}

/// PostgreSQL's own words, as of any table.
#[track_caller]
fn native(refused: &Refused, sqlstate: &str, constraint: &str) {
    assert_eq!(refused.sqlstate, sqlstate, "{refused:?}");
    assert!(refused.message.contains(constraint), "{refused:?}");
}

#[test]
fn one_claims_a_plan_and_the_others_get_no_row() {
    let ops = open();
    let held = claim(&ops, "s1").unwrap();
    assert_eq!(claim(&ops, "s2"), None);
    assert_eq!(
        one(&ops, "status || attempt || max_attempts || runner_id || scope_kind || scope_id"),
        "RUNNING13s1globalglobal"
    );
    assert_eq!(
        live(&ops, &held, "heartbeat_at = now(), stale_after = waypost.now() + interval '20 minutes'"),
        "1"
    );
    assert_eq!(one(&ops, "stale_after > waypost.now() + interval '19 minutes'"), "t");
    let end = "status = 'SUCCESS', finished_at = now(), duration_ms = 12, rows_affected = 7, result = '{\"rows\": 7}'";
    assert_eq!(live(&ops, &held, end), "1");
    assert_eq!(live(&ops, &held, end), "0", "it is no longer RUNNING");
    assert_eq!(one(&ops, "status || duration_ms || rows_affected || result"), "SUCCESS127{\"rows\": 7}");
    ops.clock("40 days");
    assert_eq!(claim(&ops, "s2"), None, "a success never reruns");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn an_end_without_a_duration_has_one_to_the_millisecond_and_returning_tells_what_was_stored() {
    let ops = open();
    let held = claim(&ops, "s1").unwrap();
    ops.clock("1510 milliseconds");
    let told = ops.psql(&format!(
        "UPDATE ops.sys_cron_executions SET status = 'FAILED', error_msg = repeat('é', 9000) WHERE id = '{}' \
         RETURNING finished_at IS NOT NULL, length(error_msg), error_code, duration_ms BETWEEN 1510 AND 1999, updated_at = finished_at",
        held.0
    ));
    assert_eq!(told, "t|4000|handler_error|t|t");
    assert_eq!(one(&ops, "duration_ms BETWEEN 1510 AND 1999"), "t");
    let plan = "2026-02-14 03:00+00";
    let held = ops.psql(&format!("SELECT id FROM ops.claim_cron_execution('rollup', '{plan}', 's1')"));
    let told = ops.psql(&format!(
        "UPDATE ops.sys_cron_executions SET stale_after = waypost.now() + interval '20 minutes' WHERE id = '{held}' \
         RETURNING heartbeat_at IS NOT NULL, stale_after > waypost.now() + interval '19 minutes'"
    ));
    assert_eq!(told, "t|t");
    assert_eq!(ops.verify(), 2);
}

/// A schedule, and what its plan of this minute begins.
async fn fired(store: &PostgresStore, name: &str, birth: Birth) -> (Time, Begun) {
    let write = ScheduleWrite {
        name: name.into(),
        hash: name.into(),
        carried: true,
        kind: "global".into(),
        ids: Some(vec!["global".into()]),
        ..ScheduleWrite::default()
    };
    store.put_schedule(write).await.unwrap();
    let plan = Time::from_ms(store.now().await.unwrap().seconds() / 60 * 60_000);
    let firing = Firing {
        schedule: name.into(),
        kind: "global".into(),
        id: "global".into(),
        through: Some(plan),
        wake_at: Some(plan + Span::from_seconds(60)),
        plans: vec![(plan, birth)],
        ..Firing::default()
    };
    let begun = store.fire(vec![firing]).await.unwrap().remove(0).unwrap();
    (plan, begun.unwrap().remove(0))
}

fn born(lifecycle: &str, key: &str, actor: Actor) -> NewRun {
    NewRun {
        lifecycle: lifecycle.into(),
        idempotency_key: Some(format!("waypost:schedule:{key}")),
        max_attempts: 3,
        by: "s1".into(),
        actor,
        ..NewRun::default()
    }
}

fn execution(key: &str) -> Birth {
    Birth { run: born("cron", key, Actor::Worker), lease: Some(Span::from_seconds(600)) }
}

async fn end(store: &PostgresStore, begun: Begun, status: &str) {
    let Begun::Held(_, claimed) = begun else { panic!("{begun:?}") };
    let (run_id, token) = (claimed.run.id().to_owned(), Some(claimed.token));
    let write =
        FinishWrite { run_id, token, by: "s1".into(), status: status.into(), ..FinishWrite::default() };
    store.finish(vec![write]).await.unwrap().remove(0).unwrap();
}

// proves C1 and C5
#[tokio::test]
async fn a_run_that_a_schedule_queued_has_its_row() {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let run = born("deploy", "nightly", Actor::Client);
    let (_, begun) = fired(&store, "nightly", Birth { run, lease: None }).await;
    let columns = "status, attempt, max_attempts, runner_id, result, finished_at >= started_at, duration_ms, error_code IS NULL";
    let row = ops.psql(&format!("SELECT {columns} FROM ops.sys_cron_executions WHERE job_name = 'nightly'"));
    assert_eq!(row, format!("SUCCESS|1|1|s1|{{\"run_id\": \"{}\"}}|t|0|t", begun.run_id()));
    assert_eq!(ops.verify(), 1);
}

// proves C1 and C5
#[tokio::test]
async fn a_plan_that_is_executed_again_keeps_its_row_and_gets_more_attempts() {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let (plan, first) = fired(&store, "rollup", execution("first")).await;
    end(&store, first, "FAILED").await;
    let id = one(&ops, "id");
    let again = ManualPlans {
        schedule: "rollup".into(),
        kind: "global".into(),
        ids: vec!["global".into()],
        plans: Some(vec![plan]),
        again: true,
        how: "backfill".into(),
        by: "ann".into(),
    };
    store.change_schedule(ScheduleChange::Plan(again), "ann".into()).await.unwrap();
    let attempts = || one(&ops, "status || ' ' || attempt || ' ' || max_attempts");
    assert_eq!(attempts(), "FAILED 1 3", "until it begins");
    let by = Ownership { carried: true, ..Ownership::default() };
    let due = store.due(by, 10).await.unwrap().executions;
    let begin = Begin {
        schedule: "rollup".into(),
        kind: "global".into(),
        id: "global".into(),
        plan: due[0].plan,
        birth: execution("second"),
        by: "s1".into(),
        alone: true,
    };
    let begun = store.begin(begin).await.unwrap().unwrap();
    assert_eq!(attempts(), "RUNNING 2 6");
    end(&store, begun, "SUCCESS").await;
    assert_eq!((attempts(), one(&ops, "id")), ("SUCCESS 2 6".to_owned(), id), "one row per plan");
    assert_eq!(ops.verify(), 2);
}

#[test]
fn a_runner_that_lost_its_lease_writes_nothing() {
    let ops = open();
    let first = claim(&ops, "s1").unwrap();
    ops.clock("9 minutes");
    assert_eq!(claim(&ops, "s2"), None);
    ops.clock("11 minutes");
    let second = claim(&ops, "s2").unwrap();
    assert_eq!((&first.0, one(&ops, "attempt")), (&second.0, "2".to_owned()));
    assert_ne!(first.1, second.1, "the token is rotated");
    assert_eq!(live(&ops, &first, "stale_after = waypost.now() + interval '1 hour'"), "0");
    assert_eq!(live(&ops, &first, "status = 'SUCCESS'"), "0");
    assert_eq!(
        live(&ops, &second, "status = 'FAILED', error_code = 'run_timeout', error_msg = repeat('é', 5000)"),
        "1"
    );
    assert_eq!(one(&ops, "error_code || ' ' || length(error_msg)"), "run_timeout 4000");
    assert_eq!(claim(&ops, "s3"), None, "no retry time means never");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_failure_is_retried_when_it_is_due_and_attempts_come_to_an_end() {
    let ops = open();
    for attempt in 1..=3 {
        let held = claim(&ops, "s1").unwrap();
        assert_eq!(one(&ops, "attempt"), attempt.to_string());
        assert_eq!(
            live(&ops, &held, "status = 'FAILED', next_retry_at = waypost.now() + interval '1 minute'"),
            "1"
        );
        assert_eq!(claim(&ops, "s1"), None);
        ops.clock(&format!("{} minutes", 2 * attempt));
    }
    assert_eq!(claim(&ops, "s1"), None);
    assert_eq!(one(&ops, "status || error_code || (next_retry_at IS NULL)"), "FAILEDhandler_errortrue");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn the_seeds_checks_and_its_unique_key_hold() {
    let ops = open();
    let insert = |columns: &str, values: &str| {
        format!(
            "INSERT INTO ops.sys_cron_executions(job_name, plan_time, {columns}) VALUES ('j', '{PLAN}', {values})"
        )
    };
    ops.psql(&insert("status", "'RUNNING'"));
    let twice = ops.refused(&insert("status", "'RUNNING'"));
    native(&twice, "23505", "uq_sys_cron_execution");
    for (columns, values, sqlstate, words) in [
        ("scope_id, status", "'a', 'STALE'", "23514", "chk_sys_cron_status"),
        ("scope_id, status, attempt", "'a', 'RUNNING', 0", "23514", "chk_sys_cron_attempt"),
        ("scope_id, status, attempt, max_attempts", "'a', 'RUNNING', 4, 3", "23514", "chk_sys_cron_attempt"),
        ("scope_id, status, duration_ms", "'a', 'RUNNING', -1", "23514", "chk_sys_cron_duration"),
        ("scope_id, status", "'a', 'SUCCESS'", "WP409", "begins as RUNNING"),
    ] {
        ops.refused(&insert(columns, values)).is(sqlstate, words);
    }
    let update = |set: &str| format!("UPDATE ops.sys_cron_executions SET {set}");
    ops.refused(&update("stale_after = NULL")).is("23514", "chk_sys_cron_stale_after");
    ops.refused(&update("plan_time = now()")).is("WP409", "IMMUTABLE");
    ops.refused(&update("attempt = attempt + 1, lease_token = gen_random_uuid()"))
        .is("WP409", "INVALID_TRANSITION");
    ops.psql(&update("status = 'SUCCESS'"));
    ops.refused(&update("status = 'RUNNING', stale_after = now()")).is("WP409", "INVALID_TRANSITION");
    ops.refused("DELETE FROM ops.sys_cron_executions").is("WP405", "");
    assert_eq!(ops.verify(), 1);
}

/// As a caller writes the claim: the insert wins, or somebody else has.
fn insert(runner: &str, conflict: &str) -> String {
    format!(
        "WITH i AS (INSERT INTO ops.sys_cron_executions (job_name, scope_kind, scope_id, plan_time, status, attempt, max_attempts, runner_id, \
           lease_token, heartbeat_at, stale_after, started_at) VALUES ('rollup', 'global', 'global', '{PLAN}', 'RUNNING', 1, 3, '{runner}', \
           gen_random_uuid(), waypost.now(), waypost.now() + interval '10 minutes', waypost.now()) {conflict} RETURNING id, lease_token) \
         SELECT id || ' ' || lease_token FROM i"
    )
}

const TAKE: &str = "WITH u AS (UPDATE ops.sys_cron_executions SET status = 'RUNNING', attempt = attempt + 1, runner_id = 's9', \
    lease_token = gen_random_uuid(), heartbeat_at = waypost.now(), stale_after = waypost.now() + interval '10 minutes', started_at = waypost.now(), \
    finished_at = NULL, duration_ms = NULL, next_retry_at = NULL, error_code = NULL, error_msg = NULL \
  WHERE job_name = 'rollup' AND scope_kind = 'global' AND scope_id = 'global' AND plan_time = '2026-02-14 02:00+00' AND attempt < max_attempts \
    AND (status = 'FAILED' AND next_retry_at <= waypost.now() OR status = 'RUNNING' AND stale_after < waypost.now()) RETURNING id, lease_token) \
  SELECT id || ' ' || lease_token FROM u";

fn pair(found: &str) -> (String, String) {
    let (id, token) = found.split_once(' ').unwrap_or_else(|| panic!("no row: {found:?}"));
    (id.to_owned(), token.to_owned())
}

#[test]
fn an_insert_that_meets_the_key_gives_no_row_and_leaves_no_run() {
    let key = "(job_name, scope_kind, scope_id, plan_time)";
    for conflict in ["ON CONFLICT DO NOTHING".to_owned(), format!("ON CONFLICT {key} DO NOTHING")] {
        let ops = open();
        let held = pair(&ops.psql(&insert("s1", &conflict)));
        assert_eq!(ops.psql(&insert("s2", &conflict)), "");
        assert_eq!(one(&ops, "runner_id || id"), format!("s1{}", held.0));
        assert_eq!(ops.psql("SELECT count(*) FROM waypost.runs"), "1");
        assert_eq!(live(&ops, &held, "status = 'SUCCESS'"), "1");
        assert_eq!(ops.psql(&insert("s3", &conflict)), "", "a success never reruns");
        assert_eq!(ops.verify(), 1);
    }
    let ops = open();
    ops.psql(&insert("s1", ""));
    native(&ops.refused(&insert("s2", "")), "23505", "uq_sys_cron_execution");
    let update = format!("ON CONFLICT {key} DO UPDATE SET attempt = 2");
    ops.refused(&insert("s2", &update)).is("WP409", "not taken by an insert");
    assert_eq!(one(&ops, "runner_id || attempt"), "s11");
}

#[test]
fn of_eight_who_insert_at_once_one_wins() {
    let ops = open();
    let conflict = "ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO NOTHING";
    let won: Vec<String> = std::thread::scope(|scope| {
        let ops = &ops;
        let racers: Vec<_> =
            (0..8).map(|n| scope.spawn(move || ops.psql(&insert(&format!("s{n}"), conflict)))).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).filter(|found| !found.is_empty()).collect()
    });
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.runs"), "1");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn one_update_retries_or_steals_and_who_lost_writes_nothing() {
    let ops = open();
    let first = pair(&ops.psql(&insert("s1", "ON CONFLICT DO NOTHING")));
    assert_eq!(ops.psql(TAKE), "", "it is held");
    ops.clock("11 minutes");
    let second = pair(&ops.psql(TAKE));
    assert_eq!((&second.0, one(&ops, "attempt")), (&first.0, "2".to_owned()));
    for set in [
        "heartbeat_at = waypost.now(), stale_after = waypost.now() + interval '1 hour'",
        "status = 'SUCCESS', finished_at = waypost.now(), duration_ms = 1, result = '{\"late\": true}'",
        "status = 'FAILED', error_code = 'lease_lost', error_msg = 'late'",
        "result = '{}'",
    ] {
        assert_eq!(live(&ops, &first, set), "0", "{set}");
    }
    assert_eq!(one(&ops, "status || attempt || lease_token"), format!("RUNNING2{}", second.1));
    let failed = "status = 'FAILED', error_code = 'handler_error', error_msg = 'x', next_retry_at = waypost.now() + interval '1 minute'";
    assert_eq!(live(&ops, &second, failed), "1");
    assert_eq!(ops.psql(TAKE), "", "not before its time");
    ops.clock("13 minutes");
    let third = pair(&ops.psql(TAKE));
    assert_eq!(one(&ops, "attempt || ' ' || (error_code IS NULL) || (next_retry_at IS NULL)"), "3 truetrue");
    ops.clock("30 minutes");
    assert_eq!(ops.psql(TAKE), "", "attempts are over");
    let sweep = "WITH u AS (UPDATE ops.sys_cron_executions SET status = 'FAILED', error_code = 'stale_timeout', \
                 error_msg = 'lease expired without heartbeat', finished_at = waypost.now() WHERE status = 'RUNNING' AND stale_after < waypost.now() \
                 RETURNING 1) SELECT count(*) FROM u";
    assert_eq!((ops.psql(sweep), ops.psql(sweep)), ("1".to_owned(), "0".to_owned()));
    assert_eq!(live(&ops, &third, "status = 'SUCCESS'"), "0");
    assert_eq!(one(&ops, "error_code || (finished_at IS NOT NULL)"), "stale_timeouttrue");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn the_seeds_questions_are_answered() {
    let ops = open();
    let at = |hour: u32| PLAN.replace("02:00", &format!("{hour:02}:00"));
    for (hour, end) in [(2, "SUCCESS"), (3, "FAILED"), (4, "")] {
        let sql = insert("s1", "ON CONFLICT DO NOTHING").replace(PLAN, &at(hour));
        let held = pair(&ops.psql(&sql));
        if !end.is_empty() {
            assert_eq!(live(&ops, &held, &format!("status = '{end}'")), "1");
        }
    }
    let scope = "job_name = 'rollup' AND scope_kind = 'global' AND scope_id = 'global'";
    let ask = |what: &str, rest: &str| {
        ops.psql(&format!("SELECT {what} FROM ops.sys_cron_executions WHERE {rest}"))
    };
    let latest = format!("{scope} ORDER BY plan_time DESC LIMIT 1");
    assert_eq!(ask("status", &latest), "RUNNING");
    let success = format!("{scope} AND status = 'SUCCESS' ORDER BY plan_time DESC LIMIT 1");
    assert_eq!(ask("extract(hour FROM plan_time AT TIME ZONE 'UTC')", &success), "2");
    let failed = "job_name = 'rollup' AND status = 'FAILED' ORDER BY plan_time DESC LIMIT 1";
    assert_eq!(ask("max_attempts - attempt", failed), "2");
    assert_eq!(ask("count(*)", "status = 'RUNNING' AND stale_after < waypost.now()"), "0");
    ops.clock("11 minutes");
    assert_eq!(ask("count(*)", "status = 'RUNNING' AND stale_after < waypost.now()"), "1");
    let old = "status IN ('SUCCESS', 'FAILED') AND finished_at < waypost.now() - interval '10 minutes'";
    assert_eq!(ask("count(*)", old), "2");
    ops.refused(&format!("DELETE FROM ops.sys_cron_executions WHERE {old}")).is("WP405", "APPEND_ONLY");
}

#[test]
fn a_worker_may_claim_and_finish_and_a_client_may_not() {
    let ops = open();
    let conflict = "ON CONFLICT (job_name, scope_kind, scope_id, plan_time) DO NOTHING";
    let held = pair(
        ops.psql(&format!(
            "SET ROLE waypost_worker; {}",
            insert("s1", conflict).replace("waypost.now()", "now()")
        ))
        .lines()
        .last()
        .unwrap(),
    );
    let end = format!(
        "UPDATE ops.sys_cron_executions SET status = 'SUCCESS' WHERE id = '{}' AND lease_token = '{}'",
        held.0, held.1
    );
    ops.psql(&format!("SET ROLE waypost_worker; {end} AND status = 'RUNNING'"));
    assert_eq!(one(&ops, "status"), "SUCCESS");
    for sql in [
        insert("s2", conflict).replace("waypost.now()", "now()"),
        end,
        "SELECT * FROM waypost.executions".to_owned(),
    ] {
        let refused = ops.refused(&format!("SET ROLE waypost_client; {sql}"));
        assert_eq!(refused.sqlstate, "42501", "{refused:?}");
    }
    native(&ops.refused("SET ROLE waypost_worker; SELECT * FROM waypost.executions"), "42501", "executions");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn the_table_itself_holds_the_checks() {
    let ops = open();
    ops.psql(&insert("s1", ""));
    for (set, constraint) in [
        ("status = 'STALE'", "chk_sys_cron_status"),
        ("attempt = 4", "chk_sys_cron_attempt"),
        ("attempt = 0", "chk_sys_cron_attempt"),
        ("duration_ms = -1", "chk_sys_cron_duration"),
        ("stale_after = NULL", "chk_sys_cron_stale_after"),
    ] {
        // Whoever may do anything, and does it behind the triggers' backs.
        let sql = format!("SET session_replication_role = replica; UPDATE waypost.executions SET {set}");
        native(&ops.refused(&sql), "23514", constraint);
        ops.refused(&format!("UPDATE ops.sys_cron_executions SET {set}")).is("23514", constraint);
    }
}

#[test]
fn the_guides_statements_run() {
    let ops = open();
    let guide = include_str!("../../../../../docs/schedules.md");
    for block in guide.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()) {
        ops.psql(block);
    }
    assert_eq!(one(&ops, "status || rows_affected"), "SUCCESS7");
    assert_eq!(ops.verify(), 1);
}

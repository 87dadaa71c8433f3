//! What a planning tick touches does not grow with what was executed before, nor with schedules that are not due.

use std::sync::Arc;

use serde_json::{Value, json};
use waypost_kernel::{Span, Time};
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::{Housekeeping, Ownership, ScheduleWrite, Store};
use waypost_testkit::Postgres;

const SCHEDULES: usize = 10_000;
const DUE: usize = 100;

fn open() -> Postgres {
    Postgres::with_schema(&migration_sql()).unwrap()
}

/// Ten thousand schedules of which a hundred are due, and a history of executions behind each of those.
fn fill(server: &Postgres, history: usize) {
    server
        .psql(&format!(
            "SET session_replication_role = replica; INSERT INTO waypost.schedules(name, definition, folder, hash, timing, carried, updated_at) \
               SELECT 'job' || n, '{{}}', '/', 'h' || n, 't', true, now() FROM generate_series(1, {SCHEDULES}) n; \
             INSERT INTO waypost.schedule_scopes(schedule, kind, id, through, wake_at, hash, carried) \
               SELECT 'job' || n, 'global', 'global', now(), now() + CASE WHEN n <= {DUE} THEN interval '-1 s' ELSE interval '1 day' END, 'h' || n, true \
               FROM generate_series(1, {SCHEDULES}) n; \
             INSERT INTO waypost.executions(schedule, kind, id, plan_time, run_id) \
               SELECT 'job' || n, 'global', 'global', now() - p * interval '1 minute', 'r' || n || '-' || p \
               FROM generate_series(1, {DUE}) n, generate_series(1, {history}) p; \
             ANALYZE waypost.schedules, waypost.schedule_scopes, waypost.executions"
        ))
        .unwrap();
}

fn explained(server: &Postgres, sql: &str) -> Value {
    let plan = server.psql(&format!("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")).unwrap();
    serde_json::from_str::<Value>(&plan).unwrap()[0].take()
}

fn buffers(plan: &Value) -> u64 {
    plan["Plan"]["Shared Hit Blocks"].as_u64().unwrap() + plan["Plan"]["Shared Read Blocks"].as_u64().unwrap()
}

fn rows(node: &Value) -> f64 {
    let own = node["Actual Rows"].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(1.0);
    let removed =
        node["Rows Removed by Filter"].as_f64().unwrap_or(0.0) * node["Actual Loops"].as_f64().unwrap_or(1.0);
    own + removed + node["Plans"].as_array().into_iter().flatten().map(rows).sum::<f64>()
}

/// The tick's own statement, with its arguments written in.
fn tick_sql() -> String {
    waypost_store::postgres::due_scopes_sql()
        .replace("$1", "true")
        .replace("$2", "'{}'::text[]")
        .replace("$3", "'{}'::text[]")
        .replace("$4", "now()")
        .replace("$5", "500::bigint")
        .replace("$6", "NULL::text")
}

// proves C11 and C10
#[test]
fn a_tick_touches_what_is_due_and_nothing_else() {
    let mut seen = Vec::new();
    for history in [1, 200] {
        let server = open();
        fill(&server, history);
        explained(&server, &tick_sql());
        let plan = explained(&server, &tick_sql());
        assert_eq!(plan["Plan"]["Actual Rows"].as_f64(), Some(DUE as f64));
        let bare = explained(
            &server,
            "SELECT * FROM waypost.schedule_scopes WHERE wake_at <= now() ORDER BY wake_at LIMIT 500",
        );
        let ratio = plan["Execution Time"].as_f64().unwrap() / bare["Execution Time"].as_f64().unwrap();
        println!(
            "{SCHEDULES} schedules, {DUE} due, {history} executions each: {} buffers, {} rows, {ratio:.1} times a bare index scan ({} buffers)",
            buffers(&plan),
            rows(&plan["Plan"]),
            buffers(&bare)
        );
        assert!(rows(&plan["Plan"]) < 10.0 * DUE as f64, "{plan:#}");
        seen.push(buffers(&plan));
    }
    // An index that is a level deeper costs each look-up one more page.
    assert!(seen[1] <= seen[0] + 2 * DUE as u64, "{seen:?}");
    assert!(seen[1] < 12 * DUE as u64, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_due_is_not_told_of() {
    let server = open();
    let store = Arc::new(PostgresStore::open(&server.url()).await.unwrap());
    for n in 0..50 {
        let write = ScheduleWrite {
            name: format!("job{n}"),
            definition: json!({}),
            hash: format!("h{n}"),
            carried: true,
            kind: "global".into(),
            ids: Some(vec!["global".into()]),
            ..ScheduleWrite::default()
        };
        store.put_schedule(write).await.unwrap();
    }
    let due = store.due(Ownership { carried: true, ..Ownership::default() }, 20).await.unwrap();
    assert_eq!((due.scopes.len(), due.more), (20, true));
    let now = store.now().await.unwrap();
    assert!(now - due.now < Span::from_seconds(60) && due.now > Time::default());
}

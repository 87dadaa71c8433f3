//! What an operator does from SQL beside runs: queues that rest, runs that leave.
// proves X11

use waypost_store::Store;
use waypost_store::postgres::PostgresStore;

use super::kit::open;

#[tokio::test]
async fn a_queue_rests_and_goes_on_by_sql() {
    let ops = open();
    let store = PostgresStore::open(&ops.server.url()).await.unwrap();
    let run_id = ops.queue();
    let paused =
        "SELECT queue, paused_by, reason, paused_at IS NOT NULL FROM waypost.pause_queue('ops', 'a release')";
    assert_eq!(ops.psql(paused), "ops|postgres|a release|t");
    let claim = "SELECT run_id FROM ops.claim_next_run('w')";
    assert_eq!(ops.psql(claim), "");
    let told = store.queues(None).await.unwrap().into_iter().find(|queue| queue.name == "ops").unwrap();
    assert_eq!(
        told.paused.map(|pause| (pause.by, pause.reason)),
        Some(("postgres".into(), "a release".into()))
    );
    let resumed = "SELECT queue, paused_at IS NULL FROM waypost.resume_queue('ops')";
    assert_eq!([ops.psql(resumed), ops.psql(resumed)], ["ops|t", "ops|t"]);
    assert_eq!(ops.psql(claim), run_id);
    let kept = "SELECT string_agg(action || ' ' || subject || coalesce(' ' || reason, ''), ', ' ORDER BY number) FROM waypost.audit";
    assert_eq!(ops.psql(kept), "queue.pause ops a release, queue.resume ops, queue.resume ops");
    for (sql, code, words) in [
        ("SELECT waypost.pause_queue('', 'why')", "WP422", "p_queue: is empty"),
        ("SELECT waypost.pause_queue('ops', NULL)", "WP422", "p_reason: is null"),
        ("SELECT waypost.pause_queue('ops', repeat('x', 1025))", "WP422", "at most 1024 are allowed"),
        ("SELECT waypost.resume_queue('opps')", "WP404", "there is no queue 'opps'"),
        ("SELECT waypost.prune(0)", "WP422", "p_limit: is 0"),
        ("SELECT waypost.prune(NULL)", "WP422", "p_limit: is null"),
    ] {
        ops.refused(sql).is(code, words);
    }
}

#[test]
fn what_is_over_leaves_by_sql_and_nothing_else_does() {
    let ops = open();
    ops.clock("-40 days");
    let old: Vec<String> = (0..5).map(|_| ops.running()).collect();
    for run_id in &old {
        ops.psql(&format!("SELECT ops.finish_run('{run_id}', 'success')"));
    }
    let failed = ops.running();
    ops.psql(&format!("SELECT ops.finish_run('{failed}', 'failed')"));
    ops.clock("0");
    let young = ops.running();
    ops.psql(&format!("SELECT ops.finish_run('{young}', 'success')"));
    let waits = ops.queue();
    assert_eq!(ops.psql("SELECT * FROM waypost.prune(2)"), "2|8|t");
    assert_eq!(ops.psql("SELECT * FROM waypost.prune()"), "3|12|f");
    assert_eq!(ops.psql("SELECT * FROM waypost.prune()"), "0|0|f");
    let mut stay = vec![failed, young, waits];
    stay.sort();
    assert_eq!(ops.psql("SELECT run_id FROM ops.runs ORDER BY 1").lines().collect::<Vec<_>>(), stay);
    assert_eq!(ops.psql("SELECT lifecycle, runs, events FROM waypost.pruned"), "deploy|5|20");
    // The leave is the verb's own: whoever called it has none.
    ops.refused("BEGIN; SELECT waypost.prune(); DELETE FROM waypost.events").is("WP405", "APPEND_ONLY");
    assert_eq!(ops.verify(), 3);
}

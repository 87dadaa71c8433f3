//! The seed's "Key Metrics", as written there.
// proves D12

use super::kit::open;

#[test]
fn the_seeds_metrics_count_what_is_there() {
    let ops = open();
    let finish = |status: &str| {
        let run_id = ops.running();
        ops.psql(&format!("SELECT ops.finish_run('{run_id}', '{status}')"));
    };
    // A week and a half ago, and so not in any of them.
    ops.clock("-10 days");
    finish("failed");
    ops.clock("-90 seconds");
    let slow = ops.running();
    ops.clock("0");
    ops.psql(&format!("SELECT ops.finish_run('{slow}', 'success')"));
    finish("success");
    finish("failed");
    ops.claimed();
    ops.running();
    ops.queue();

    let depth = "SELECT COUNT(*) AS queued_count\nFROM ops.runs\nWHERE status = 'queued';";
    assert_eq!(ops.psql(depth), "1");
    let utilisation = "SELECT claimed_by, COUNT(*) AS active_runs\nFROM ops.runs\nWHERE status IN ('claimed', 'running')\nGROUP BY claimed_by;";
    assert_eq!(ops.psql(utilisation), "worker-001|2");
    let rate = "
SELECT
    COUNT(*) FILTER (WHERE status = 'success') AS success_count,
    COUNT(*) FILTER (WHERE status = 'failed') AS failed_count,
    ROUND(100.0 * COUNT(*) FILTER (WHERE status = 'success') / NULLIF(COUNT(*), 0), 2) AS success_rate
FROM ops.runs
WHERE created_at > NOW() - INTERVAL '24 hours'
  AND status IN ('success', 'failed');";
    assert_eq!(ops.psql(rate), "2|1|66.67");
    let duration = "
SELECT
    status,
    AVG(EXTRACT(EPOCH FROM (finished_at - started_at))) AS avg_duration_seconds
FROM ops.runs
WHERE finished_at IS NOT NULL
  AND created_at > NOW() - INTERVAL '7 days'
GROUP BY status;";
    let durations = ops.psql(&format!(
        "SELECT status, round(avg_duration_seconds) FROM ({}) d ORDER BY status",
        duration.trim_end_matches(';')
    ));
    assert_eq!(durations, "failed|0\nsuccess|45");
    assert_eq!(ops.verify(), 7);
}

#[test]
fn times_of_change_are_those_of_the_last_event() {
    let ops = open();
    let run_id = ops.running();
    let same = format!(
        "SELECT r.updated_at = e.created_at FROM ops.runs r JOIN ops.run_events e USING (run_id) WHERE r.run_id = '{run_id}' ORDER BY e.seq DESC LIMIT 1"
    );
    assert_eq!(ops.psql(&same), "t");
    assert_eq!(ops.one(&run_id, "created_at = queued_at AND updated_at > created_at"), "t");
}

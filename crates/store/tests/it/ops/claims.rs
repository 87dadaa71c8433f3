//! Many workers, no run twice, none skipped.
// proves D3, X9

use super::kit::open;
use tokio_postgres::{Client, NoTls};

pub async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The seed's "Concurrency Example": three workers, five runs, none of them waits for another.
#[tokio::test]
async fn three_workers_get_the_three_oldest_of_five_runs() {
    let ops = open();
    let runs: Vec<String> = (0..5).map(|_| ops.queue()).collect();
    let mut workers = Vec::new();
    // All three hold their locks at once: no claim is committed before the last one has been made.
    for at in 1..=3 {
        let worker = connect(&ops.server.url()).await;
        worker.batch_execute("BEGIN; SET LOCAL lock_timeout = '1s'").await.unwrap();
        let row =
            worker.query_one("SELECT * FROM ops.claim_next_run($1)", &[&format!("worker-00{at}")]).await;
        let claimed: String = row.unwrap().get("run_id");
        assert_eq!(claimed, runs[at - 1]);
        workers.push(worker);
    }
    for worker in &workers {
        worker.batch_execute("COMMIT").await.unwrap();
    }
    let state = ops.psql("SELECT run_id, status, claimed_by FROM ops.runs ORDER BY queued_at;");
    let expected = ["claimed|worker-001", "claimed|worker-002", "claimed|worker-003", "queued|", "queued|"];
    for ((run_id, line), expected) in runs.iter().zip(state.lines()).zip(expected) {
        assert_eq!(line, format!("{run_id}|{expected}"));
    }
    assert_eq!(ops.verify(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_workers_share_a_hundred_runs() {
    let ops = open();
    ops.psql("SELECT ops.queue_run('p', 'e', 'sha-' || n, 'main') FROM generate_series(1, 100) n");
    let mut workers = tokio::task::JoinSet::new();
    for at in 0..8 {
        let url = ops.server.url();
        workers.spawn(async move {
            let worker = connect(&url).await;
            let mut mine = Vec::new();
            while let Some(row) =
                worker.query_opt("SELECT * FROM ops.claim_next_run($1)", &[&format!("w{at}")]).await.unwrap()
            {
                let run_id: String = row.get("run_id");
                worker.execute("SELECT ops.append_event($1, 'info', 'begun')", &[&run_id]).await.unwrap();
                worker.execute("SELECT ops.finish_run($1, 'success')", &[&run_id]).await.unwrap();
                mine.push(run_id);
            }
            mine
        });
    }
    let mut all = workers.join_all().await.concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 100);
    assert_eq!(ops.psql("SELECT count(*) FROM ops.runs WHERE status = 'success'"), "100");
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.ready"), "0");
    assert_eq!(ops.verify(), 100);
}

#[test]
fn a_paused_queue_gives_nothing() {
    let ops = open();
    let run_id = ops.queue();
    ops.psql("INSERT INTO waypost.queues(tenant, name, paused_by, pause_reason, paused_at) VALUES ('default', 'ops', 'me', 'a freeze', now())");
    assert_eq!(ops.psql("SELECT * FROM ops.claim_next_run('w')"), "");
    ops.psql("UPDATE waypost.queues SET paused_at = NULL");
    assert_eq!(ops.psql("SELECT run_id FROM ops.claim_next_run('w')"), run_id);
}

#[test]
fn priority_comes_before_age_and_other_queues_are_not_served() {
    let ops = open();
    let put = |queue: &str, priority: i32| {
        let sql = format!(
            "SELECT (w.run).run_id FROM waypost.enqueue_one('deploy', '{queue}', p_priority := {priority}::smallint) w"
        );
        ops.psql(&sql)
    };
    put("default", 9);
    let (low, high) = (put("ops", 0), put("ops", 5));
    let agent = "SELECT waypost.enqueue_one('operation', 'ops')";
    ops.psql(agent);
    ops.psql("SELECT waypost.enqueue_one('deploy', 'ops', p_schedule_at := now() + interval '1 hour')");
    let claim = || ops.psql("SELECT run_id FROM ops.claim_next_run('w')");
    assert_eq!([claim(), claim(), claim()], [high, low, String::new()]);
    ops.clock("2 hours");
    assert_ne!(claim(), "", "its time has come");
}

/// A run that was cancelled leaves its row in the queue behind; the next claim steps over it.
#[test]
fn what_left_the_queue_is_stepped_over() {
    let ops = open();
    let (first, second) = (ops.queue(), ops.queue());
    ops.psql(&format!("SELECT ops.finish_run('{first}', 'cancelled')"));
    assert_eq!(ops.psql("SELECT run_id FROM ops.claim_next_run('w')"), second);
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.ready"), "0");
    assert_eq!(ops.verify(), 2);
}

#[test]
fn what_outlived_its_time_is_not_claimed() {
    let ops = open();
    ops.psql("SELECT waypost.enqueue_one('deploy', 'ops', p_ttl_ms := 60000)");
    ops.clock("2 minutes");
    assert_eq!(ops.psql("SELECT * FROM ops.claim_next_run('w')"), "");
    assert_eq!(ops.psql("SELECT count(*) FROM ops.runs WHERE status = 'queued'"), "1");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn a_limit_makes_claims_wait_and_is_free_again_with_each_end() {
    let ops = open();
    ops.psql("INSERT INTO waypost.queues(tenant, name, at_most) VALUES ('default', 'ops', 2)");
    let runs: Vec<String> = (0..4).map(|_| ops.queue()).collect();
    let claim = || ops.psql("SELECT run_id FROM ops.claim_next_run('w')");
    assert_eq!([claim(), claim(), claim()], [&runs[0], &runs[1], ""]);
    ops.psql(&format!("SELECT ops.finish_run('{}', 'failed')", runs[0]));
    assert_eq!([claim(), claim()], [&runs[2], ""]);
    ops.psql(&format!("SELECT ops.finish_run('{}', 'cancelled')", runs[1]));
    assert_eq!([claim(), claim()], [&runs[3], ""]);
    assert_eq!(ops.psql("SELECT count(*) FROM waypost.holders"), "2");
    assert_eq!(ops.verify(), 4);
}

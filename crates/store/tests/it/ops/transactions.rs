//! Runs come and go with their caller's transaction, and listeners are woken when something happened, not each time.
// proves D2, D13

use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_postgres::{AsyncMessage, NoTls};

use super::kit::open;

#[test]
fn a_run_is_there_with_the_commit_and_never_was_with_the_rollback() {
    let ops = open();
    ops.psql("CREATE TABLE orders(id int PRIMARY KEY, run_id text)");
    let order = |id: i32, end: &str| {
        ops.psql(&format!(
            "BEGIN; INSERT INTO orders SELECT {id}, run_id FROM ops.queue_run('p', 'e', 's', 'r', p_idempotency_key := 'order-{id}'); {end};"
        ));
    };
    order(1, "ROLLBACK");
    assert_eq!(ops.psql("SELECT (SELECT count(*) FROM ops.runs), (SELECT count(*) FROM waypost.events), (SELECT count(*) FROM waypost.ready)"), "0|0|0");
    assert_eq!(ops.psql("SELECT * FROM ops.claim_next_run('w')"), "");
    order(1, "COMMIT");
    assert_eq!(ops.psql("SELECT count(*) FROM ops.runs JOIN orders USING (run_id)"), "1");
    assert_ne!(ops.psql("SELECT * FROM ops.claim_next_run('w')"), "");
    assert_eq!(ops.verify(), 1);
}

#[test]
fn nobody_claims_what_is_not_committed() {
    let ops = open();
    // The claimer is a session of its own while the other one's transaction is open.
    let claim = format!(
        "\\! psql -X -A -t -d \"{}\" -c \"SELECT count(*) FROM ops.claim_next_run('w')\"",
        ops.server.url()
    );
    let shown = ops.psql(&format!(
        "BEGIN;\nSELECT count(*) FROM ops.queue_run('p', 'e', 's', 'r');\n{claim}\nCOMMIT;\n{claim}"
    ));
    assert_eq!(shown.lines().collect::<Vec<_>>(), ["1", "0", "1"]);
}

#[test]
fn a_savepoint_takes_its_moves_back() {
    let ops = open();
    let run_id = ops.claimed();
    ops.psql(&format!(
        "BEGIN; SELECT ops.append_event('{run_id}', 'info', 'kept'); SAVEPOINT s; SELECT ops.finish_run('{run_id}', 'success'); ROLLBACK TO s; COMMIT;"
    ));
    assert_eq!(ops.status(&run_id), "running");
    assert_eq!(ops.verify(), 1);
}

async fn listen(url: &str) -> (tokio_postgres::Client, UnboundedReceiver<String>) {
    let (client, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    let (send, receive) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(notice) = message {
                let _ = send.send(notice.payload().to_owned());
            }
        }
    });
    client.batch_execute("LISTEN waypost").await.unwrap();
    (client, receive)
}

#[tokio::test]
async fn listeners_are_woken_once_for_many_writes() {
    let ops = open();
    let (_client, mut heard) = listen(&ops.server.url()).await;
    ops.psql("SELECT ops.queue_run('p', 'e', 's', 'r')");
    assert_eq!(next(&mut heard).await, "", "a word without content: look");
    // A thousand commits in a row; at most one wake-up for each 20 ms that they took.
    let begun = std::time::Instant::now();
    let script: String =
        (0..1_000).map(|n| format!("SELECT ops.queue_run('p', 'e', '{n}', 'r');\n")).collect();
    ops.psql(&script);
    let allowed = begun.elapsed().as_millis() / 20 + 2;
    ops.psql("SELECT pg_notify('waypost', 'last')");
    let mut woken = 0;
    while next(&mut heard).await != "last" {
        woken += 1;
    }
    assert!((1..=allowed).contains(&woken), "{woken} of at most {allowed}");
}

async fn next(heard: &mut UnboundedReceiver<String>) -> String {
    tokio::time::timeout(Duration::from_secs(60), heard.recv()).await.unwrap().unwrap()
}

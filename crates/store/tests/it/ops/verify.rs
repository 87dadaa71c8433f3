//! What was written from SQL is what the kernel would have written: every run's log folds to its row. Also the rows as
//! they are stored, for those who compare them with another store's.

use std::sync::Arc;

use serde_json::Value;
use waypost_kernel::{Failure, Lease, Lifecycle, Run, Span, Time, Token};
use waypost_store::Housekeeping;
use waypost_store::codec::intent_from;
use waypost_store::postgres::PostgresStore;

use super::kit::Ops;

const RUNS: &str = "SELECT json_agg(j ORDER BY rid) FROM (SELECT r.*, s.lifecycle, s.state AS status, \
  (extract(epoch FROM r.queued_at) * 1000000)::bigint AS queued_us, (extract(epoch FROM r.started_at) * 1000000)::bigint AS started_us, \
  (extract(epoch FROM r.finished_at) * 1000000)::bigint AS finished_us, (extract(epoch FROM r.available_at) * 1000000)::bigint AS available_us, \
  (extract(epoch FROM r.expires_at) * 1000000)::bigint AS expires_us, \
  (SELECT json_agg(e ORDER BY e.seq) FROM (SELECT e.*, (extract(epoch FROM e.at) * 1000000)::bigint AS us, f.state AS \"from\", t.state AS \"to\" \
    FROM waypost.log e JOIN waypost.lifecycle_states t ON t.code = e.dst LEFT JOIN waypost.lifecycle_states f ON f.code = e.src \
    WHERE e.rid = r.rid) e) AS log \
  FROM waypost.runs r JOIN waypost.lifecycle_states s ON s.code = r.state) j";

impl Ops {
    /// Every run's row with its log, in the order of their births.
    pub fn stored(&self) -> Vec<Value> {
        let runs: Value = serde_json::from_str(&self.psql(RUNS)).unwrap();
        runs.as_array().unwrap().clone()
    }

    /// `waypost verify`: panics with the runs whose row and log differ. Gives how many runs there are.
    pub fn verify(&self) -> u64 {
        let verified = std::thread::scope(|scope| {
            let verify = scope.spawn(|| {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
                runtime.unwrap().block_on(async {
                    let store = PostgresStore::open(&self.server.url()).await.unwrap();
                    store.verify(Arc::new(|_, _| {})).await.unwrap()
                })
            });
            verify.join().unwrap()
        });
        assert_eq!(verified.differences, Vec::<String>::new());
        verified.runs
    }
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn run_of(row: &Value, lifecycle: &Lifecycle) -> Run {
    let number = |key: &str| row[key].as_u64().unwrap();
    let time = |key: &str| row[key].as_i64().map(Time::from_micros);
    let yes = |key: &str| row[key] == true;
    Run {
        id: text(&row["run_id"]).into(),
        state: lifecycle.state_named(text(&row["status"])).unwrap(),
        seq: number("seq"),
        attempt: number("attempt") as u32,
        max_attempts: number("max_attempts") as u32,
        take_overs: number("take_overs") as u32,
        fence: number("fence"),
        lease: row["lease_token"].is_string().then(|| Lease {
            token: Token(0),
            worker: row["claimed_by"].as_str().map(Into::into),
            length: Span::ZERO,
            until: Time::default(),
        }),
        ended_by: None,
        ended_with: None,
        last_command: text(&row["last_command"]).into(),
        intent: intent_from(&row["intent"], lifecycle),
        requires_cleanup: yes("requires_cleanup"),
        cleanup_failed: yes("cleanup_failed"),
        operating: yes("operating"),
        reentrant: yes("reentrant"),
        reason: row["reason"].as_str().map(Into::into),
        resolved: yes("resolved"),
        forced: yes("forced"),
        failure: row["error_code"].as_str().map(|code| Failure::new(code, text(&row["error_msg"]))),
        created_at: time("queued_us").unwrap(),
        started_at: time("started_us"),
        finished_at: time("finished_us"),
        available_at: time("available_us"),
        expires_at: time("expires_us"),
        tallies: lifecycle.no_items.clone(),
    }
}

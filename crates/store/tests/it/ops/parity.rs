//! The verbs in SQL beside the kernel: the same requests, by chance, to both. Answers, refusals, rows and logs agree.
// proves X3, X4, X5, X8

use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use waypost_kernel::request::Level;
use waypost_kernel::{Actor, Failure, Run, Span, Time, Token};
use waypost_store::codec::token_text;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{
    Claim, CommandWrite, FinishWrite, Held, Housekeeping, NewRun, NoteWrite, Repeat, Store, StoreError,
};

use super::claims::connect;
use super::kit::{Ops, open};
use super::verify::{run_of, text};

const CASES: usize = 60;

#[derive(Clone, Debug)]
enum Op {
    Claim { lease_ms: Option<i64> },
    Note { strange: bool, message: u8, payload: u8, repeat: u8, metadata: u8 },
    Renew { strange: bool },
    Finish { strange: bool, status: u8, failure: bool, reason: bool, metadata: u8 },
    Cancel { reason: bool, graceful: bool, operator: bool },
    Later { minutes: i64 },
}

impl Op {
    /// What a finish brings along.
    fn brings(&self) -> Option<(bool, bool, u8)> {
        match self {
            Op::Finish { failure, reason, metadata, .. } => Some((*failure, *reason, *metadata)),
            _ => None,
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let strange = || prop::bool::weighted(0.1);
    prop_oneof![
        3 => prop::option::of(1_000..7_200_000_i64).prop_map(|lease_ms| Op::Claim { lease_ms }),
        5 => (strange(), 0..2_u8, 0..3_u8, 0..4_u8, 0..3_u8)
            .prop_map(|(strange, message, payload, repeat, metadata)| Op::Note { strange, message, payload, repeat, metadata }),
        1 => strange().prop_map(|strange| Op::Renew { strange }),
        4 => (strange(), 0..9_u8, any::<bool>(), any::<bool>(), 0..3_u8)
            .prop_map(|(strange, status, failure, reason, metadata)| Op::Finish { strange, status, failure, reason, metadata }),
        2 => (any::<bool>(), any::<bool>(), any::<bool>())
            .prop_map(|(reason, graceful, operator)| Op::Cancel { reason, graceful, operator }),
        1 => (1..90_i64).prop_map(|minutes| Op::Later { minutes }),
    ]
}

fn payload(of: u8) -> Value {
    [json!({}), json!({"n": 1, "deep": [null, {"a": "é"}]}), json!([1])][usize::from(of)].clone()
}

fn metadata(of: u8) -> Value {
    [json!({}), json!({"a": 1, "none": null}), json!({"a": {"b": [2.5]}})][usize::from(of)].clone()
}

/// One of the states of either lifecycle, or none of any.
fn status(of: u8) -> &'static str {
    ["success", "failed", "cancelled", "completed", "partial", "queued", "failed", "success", "nonsense"]
        [usize::from(of)]
}

const STRANGE: Token = Token(7);
const REASON: &str = "for a reason";

/// Both stores, and one run in each.
struct Pair<'a> {
    sqlite: &'a SqliteStore,
    client: &'a Client,
    queue: String,
    runs: [String; 2],
    tokens: [Token; 2],
}

/// What was answered, in words that both have: a status and a number, or the refusal's code.
type Answer = Result<String, String>;

fn refused(error: &StoreError) -> String {
    error.code().to_owned()
}

impl Pair<'_> {
    async fn sql(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Answer {
        match self.client.query_opt(sql, values).await {
            Ok(row) => Ok(row.map(|row| row.get(0)).unwrap_or_default()),
            Err(error) => {
                let database = error.as_db_error().unwrap_or_else(|| panic!("{sql}: {error}"));
                assert!(database.code().code().starts_with("WP"), "{sql}: {database:?}");
                Err(database.message().split(':').next().unwrap_or_default().to_owned())
            }
        }
    }

    async fn apply(&mut self, op: &Op) -> [Answer; 2] {
        match op {
            Op::Claim { lease_ms } => self.claim(*lease_ms).await,
            Op::Note { .. } => self.note(op).await,
            Op::Renew { strange } => {
                let [ours, theirs] = self.tokens_of(*strange);
                let held = Held { run_id: self.runs[0].clone(), token: ours.0 };
                let renewed = self.sqlite.renew(vec![held]).await.unwrap().remove(0);
                let sql = "SELECT coalesce((w.run).intent ->> 'want', '') FROM waypost.renew_one($1, $2::text::uuid) w";
                let told = renewed.map(|renewed| renewed.intent.unwrap_or_default().to_owned());
                [told.map_err(|e| refused(&e)), self.sql(sql, &[&self.runs[1], &theirs.text()]).await]
            }
            Op::Finish { .. } => self.finish(op).await,
            Op::Cancel { reason, graceful, operator } => self.cancel(*reason, *graceful, *operator).await,
            Op::Later { minutes } => {
                self.sqlite.advance_clock(Span::from_seconds(minutes * 60)).await.unwrap();
                let ahead = format!("UPDATE waypost.clock SET ahead = ahead + interval '{minutes} minutes'");
                self.client.batch_execute(&ahead).await.unwrap();
                [Ok(String::new()), Ok(String::new())]
            }
        }
    }

    fn tokens_of(&self, strange: bool) -> [TokenOf; 2] {
        if strange { [STRANGE, STRANGE] } else { self.tokens }.map(TokenOf)
    }

    async fn claim(&mut self, lease_ms: Option<i64>) -> [Answer; 2] {
        let claim = Claim {
            worker: "w1".into(),
            queues: vec![self.queue.clone()],
            limit: 1,
            lease: lease_ms.map(Span::from_ms),
            ..Claim::default()
        };
        let ours = self.sqlite.claim(claim).await.unwrap().pop();
        let sql = "SELECT (c.run).lease_token::text FROM waypost.claim_one($1, NULL, 'w1', $2) c";
        let theirs = self.sql(sql, &[&self.queue, &lease_ms]).await.unwrap();
        if let Some(claimed) = &ours {
            self.tokens = [claimed.token, waypost_store::codec::token_from(&theirs).unwrap_or(STRANGE)];
        }
        [Ok(ours.is_some().to_string()), Ok((!theirs.is_empty()).to_string())]
    }

    async fn note(&self, op: &Op) -> [Answer; 2] {
        let Op::Note { strange, message, payload: carried, repeat, metadata: patch } = op else {
            unreachable!()
        };
        let [ours, theirs] = self.tokens_of(*strange);
        let (message, key, window) =
            (format!("step {message}"), format!("key {repeat}"), (*repeat == 1).then_some(10_000));
        let write = NoteWrite {
            held: Held { run_id: self.runs[0].clone(), token: ours.0 },
            by: "w1".into(),
            level: Level::Warn,
            message: message.clone(),
            payload: payload(*carried),
            repeat: match repeat {
                0 => Repeat::Never,
                1 => Repeat::Window,
                _ => Repeat::Key(key.clone()),
            },
            metadata: metadata(*patch).as_object().unwrap().clone(),
            details: metadata(*patch).as_object().unwrap().clone(),
        };
        let noted = self.sqlite.note(vec![write]).await.unwrap().remove(0);
        let sql = "SELECT w.seq || ' ' || w.repeated FROM waypost.note_one($1, $2::text::uuid, 'w1', 'warn', $3, $4::text::jsonb, $5, $6, \
                   $7::text::jsonb, $7::text::jsonb) w";
        let key = (*repeat > 1).then_some(key);
        let values: [&(dyn ToSql + Sync); 7] = [
            &self.runs[1],
            &theirs.text(),
            &message,
            &payload(*carried).to_string(),
            &key,
            &window,
            &metadata(*patch).to_string(),
        ];
        let told = noted.map(|noted| format!("{} {}", noted.seq, noted.repeated));
        [told.map_err(|e| refused(&e)), self.sql(sql, &values).await]
    }

    async fn finish(&self, op: &Op) -> [Answer; 2] {
        let Op::Finish { strange, status: end, failure, reason, metadata: patch } = op else {
            unreachable!()
        };
        let [ours, theirs] = self.tokens_of(*strange);
        let reason = reason.then_some(REASON);
        let code = failure.then_some("BROKEN");
        let write = FinishWrite {
            run_id: self.runs[0].clone(),
            token: Some(ours.0),
            by: "w1".into(),
            status: status(*end).into(),
            failure: code.map(|code| Failure::new(code, "it broke")),
            reason: reason.map(Into::into),
            metadata: metadata(*patch).as_object().unwrap().clone(),
            ..FinishWrite::default()
        };
        let ended = self.sqlite.finish(vec![write]).await.unwrap().remove(0);
        let sql = "SELECT w.status || ' ' || w.seq FROM waypost.finish_one($1, $2::text::uuid, 'w1', $3, $4, 'it broke', $5, $6::text::jsonb) w";
        let values: [&(dyn ToSql + Sync); 6] =
            [&self.runs[1], &theirs.text(), &status(*end), &code, &reason, &metadata(*patch).to_string()];
        let told = ended.map(|row| format!("{} {}", row.status(), row.run.seq));
        [told.map_err(|e| refused(&e)), self.sql(sql, &values).await]
    }

    async fn cancel(&self, reason: bool, graceful: bool, operator: bool) -> [Answer; 2] {
        let (reason, actor) =
            (reason.then_some(REASON), if operator { Actor::Operator } else { Actor::Client });
        let write = CommandWrite {
            tenant: "default".into(),
            run_id: self.runs[0].clone(),
            name: "cancel".into(),
            actor: Some(actor),
            by: "ann".into(),
            reason: reason.map(Into::into),
            graceful,
            ..CommandWrite::default()
        };
        let done = self.sqlite.command(write).await;
        let sql = "SELECT w.status || ' ' || (w.run).seq FROM waypost.cancel_one($1, 'ann', $2, p_actor := $3, p_graceful := $4) w";
        let told = done.map(|row| format!("{} {}", row.status(), row.run.seq));
        [
            told.map_err(|e| refused(&e)),
            self.sql(sql, &[&self.runs[1], &reason, &actor.name(), &graceful]).await,
        ]
    }
}

/// A token for either side.
#[derive(Clone, Copy)]
struct TokenOf(Token);

impl TokenOf {
    fn text(self) -> String {
        token_text(self.0)
    }
}

/// Times differ by what passed between the two calls; whether there is one does not.
fn timeless(mut run: Run) -> Run {
    run = waypost_kernel::fold::without_secrets(&run);
    run.id = "".into();
    run.created_at = Time::default();
    for time in [&mut run.started_at, &mut run.finished_at, &mut run.available_at, &mut run.expires_at] {
        *time = time.map(|_| Time::default());
    }
    run
}

fn timeless_event(event: &Value) -> Value {
    let mut effect = event["effect"].clone();
    for key in ["available_at", "expires_at"] {
        if effect[key].is_number() {
            effect[key] = json!(0);
        }
    }
    // What was merged is told or not where it is nothing.
    if let Value::Object(told) = &mut effect {
        told.retain(|key, value| !["metadata", "details"].contains(&key.as_str()) || *value != json!({}));
    }
    if effect == json!({}) {
        effect = Value::Null;
    }
    let column = |key: &str| event[key].clone();
    json!([
        column("seq"),
        column("command"),
        column("from"),
        column("to"),
        column("actor"),
        column("who"),
        column("level"),
        column("message"),
        column("payload"),
        column("key"),
        effect
    ])
}

/// The log as it stands in the file, in the order of the runs.
fn logs(file: &Path) -> Vec<Vec<Value>> {
    let sql = "SELECT b.rid, e.seq, e.command, e.\"from\", e.\"to\", e.actor, e.\"by\" AS who, e.level, e.message, e.payload, k.key, e.effect \
               FROM events e JOIN run_born b ON b.run_id = e.run_id LEFT JOIN run_events k ON k.rid = b.rid AND k.seq = e.seq ORDER BY b.rid, e.seq";
    let output = Command::new("sqlite3").arg("-json").arg(file).arg(sql).output();
    let output = output.expect("sqlite3 is needed for this test: apt-get install sqlite3");
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let mut logs: Vec<(Value, Vec<Value>)> = Vec::new();
    for mut row in rows {
        for key in ["payload", "effect"] {
            row[key] = row[key].as_str().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
        }
        if logs.last().is_none_or(|(rid, _)| *rid != row["rid"]) {
            logs.push((row["rid"].clone(), Vec::new()));
        }
        logs.last_mut().unwrap().1.push(timeless_event(&row));
    }
    logs.into_iter().map(|(_, log)| log).collect()
}

async fn begin<'a>(sqlite: &'a SqliteStore, client: &'a Client, case: usize) -> Pair<'a> {
    let lifecycle = if case.is_multiple_of(3) { "operation" } else { "deploy" };
    let (queue, odd) = (format!("q{case}"), !case.is_multiple_of(2));
    // An operation's lease is taken over when it ran out, which takes the kernel; so its time stands still.
    let new = NewRun {
        lifecycle: lifecycle.into(),
        queue: queue.clone(),
        priority: (case % 5) as i16,
        input: json!({"case": case}),
        metadata: metadata((case % 3) as u8).as_object().unwrap().clone(),
        max_attempts: 1 + (case % 2) as u32,
        ttl: (odd && lifecycle == "deploy").then_some(Span::from_seconds(3_600)),
        by: "ann".into(),
        ..NewRun::default()
    };
    let ours = sqlite.enqueue(vec![new.clone()]).await.unwrap().remove(0).unwrap();
    let sql = "SELECT (w.run).run_id FROM waypost.enqueue_one($1, $2, $3::text::json, $4::text::jsonb, 'ann', p_priority := $5, p_ttl_ms := $6, \
               p_max_attempts := $7) w";
    let (input, patch) = (new.input.to_string(), Value::Object(new.metadata.clone()).to_string());
    let ttl = new.ttl.map(Span::ms);
    let values: [&(dyn ToSql + Sync); 7] =
        [&lifecycle, &queue, &input, &patch, &new.priority, &ttl, &(new.max_attempts as i32)];
    let theirs: String = client.query_one(sql, &values).await.unwrap().get(0);
    Pair { sqlite, client, queue, runs: [ours.run.id().to_owned(), theirs], tokens: [STRANGE, STRANGE] }
}

#[tokio::test]
async fn the_verbs_in_sql_write_what_the_kernel_would() {
    let ops = open();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("waypost.db");
    let sqlite = SqliteStore::open(&file).unwrap();
    let client = connect(&ops.server.url()).await;
    client.batch_execute("INSERT INTO waypost.clock VALUES ('0')").await.unwrap();
    let mut chance = TestRunner::new_with_rng(
        Config::default(),
        prop::test_runner::TestRng::deterministic_rng(prop::test_runner::RngAlgorithm::ChaCha),
    );
    let sequence = prop::collection::vec(op(), 1..14);
    let mut ours = Vec::new();
    for case in 0..CASES {
        let mut pair = begin(&sqlite, &client, case).await;
        let ops = sequence.new_tree(&mut chance).unwrap().current();
        let mut ended = None;
        for (at, op) in ops.iter().enumerate() {
            if case.is_multiple_of(3) && matches!(op, Op::Later { .. }) {
                continue;
            }
            // SQL knows a repeated finish by its token and status alone: what it brings, the engine compares.
            if ended.is_some_and(|contents| op.brings().is_some_and(|brings| brings != contents)) {
                continue;
            }
            let [kernel, sql] = pair.apply(op).await;
            ended = ended.or(op.brings().filter(|_| kernel.is_ok()));
            assert_eq!(sql, kernel, "case {case}, the last of {:#?}", &ops[..=at]);
        }
        ours.push(pair.runs[0].clone());
    }
    compare(&ops, &sqlite, &file, &ours).await;
}

async fn compare(ops: &Ops, sqlite: &SqliteStore, file: &Path, ours: &[String]) {
    let (stored, logs) = (ops.stored(), logs(file));
    assert_eq!(ops.verify(), CASES as u64);
    for ((row, log), run_id) in stored.iter().zip(&logs).zip(ours) {
        let kernel = sqlite.run("default".into(), run_id.clone()).await.unwrap();
        assert_eq!(timeless(run_of(row, &kernel.lifecycle)), timeless(kernel.run), "{row:#}");
        assert_eq!(row["details"], json!(kernel.details));
        let written: Vec<Value> = row["log"].as_array().unwrap().iter().map(timeless_event).collect();
        assert_eq!(&written, log, "{row:#}");
        if text(&row["lifecycle"]) == "deploy" {
            let events = sqlite.events(run_id.clone(), 0, 500).await.unwrap();
            let words: Vec<String> =
                events.iter().map(|event| format!("{} {}", event.level, event.message)).collect();
            assert_eq!(ops.events(text(&row["run_id"])), words);
        }
    }
}

//! What people do with the `sqlite3` of their system: every illegal move is refused by the file itself, a legal
//! one gets its event, and the log verifies clean.
// proves X2

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use waypost_kernel::lifecycle::{Kind, Lifecycle, Phase, State, StateId};
use waypost_kernel::render::sql::moves;
use waypost_kernel::{Catalog, Guard, Outcome, Span};
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Claim, FinishWrite, Housekeeping, NewItem, NewRun, Pause, Store};
use waypost_testkit::Shorthand;

use crate::conformance::follow::work;
use crate::conformance::kit::{claim_plan, held_run, items, move_items};
use crate::tables::{RUNS, is_declared};

/// Debian's sqlite3 (3.40), not the library that is built in.
pub fn sqlite3(file: &Path, sql: &str) -> Result<String, String> {
    let output = Command::new("sqlite3").arg("-batch").arg(file).arg(sql).output();
    let output = output.expect("sqlite3 is needed for this test: apt-get install sqlite3");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

struct File {
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
    store: SqliteStore,
}

fn open() -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    File { _folder: folder, path, store }
}

impl File {
    async fn differences(&self) -> Vec<String> {
        self.store.verify(Arc::new(|_, _| {})).await.unwrap().differences
    }

    async fn start(&self, lifecycle: &Lifecycle) -> String {
        let items = lifecycle.items.first().map(|kind| {
            ["a", "b"].map(|key| NewItem {
                kind: kind.name.to_string(),
                key: key.into(),
                name: key.into(),
                status: None,
                max_retries: 3,
                reruns: true,
                role: waypost_kernel::item::Role::Step,
                details: serde_json::Map::new(),
                copied: false,
            })
        });
        let new = NewRun {
            lifecycle: lifecycle.name.to_string(),
            items: items.map(Vec::from).unwrap_or_default(),
            max_attempts: 3,
            reentrant: true,
            ..NewRun::default()
        };
        if lifecycle.phase(lifecycle.initial[0]) == Phase::Held {
            let key = format!("waypost:schedule:plan {}", self.store.now().await.unwrap().micros());
            let plan = NewRun {
                idempotency_key: Some(key.clone()),
                by: "w".into(),
                actor: waypost_kernel::Actor::Worker,
                ..new
            };
            let claimed = claim_plan(&self.store, &key, plan, Span::from_seconds(300)).await;
            return claimed.unwrap().unwrap().run.id().to_owned();
        }
        self.store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned()
    }

    /// A move as somebody who knows the table's columns would make it.
    fn set(&self, lifecycle: &Lifecycle, run_id: &str, to: StateId) -> Result<String, String> {
        let state = lifecycle.state(to);
        let with = match state.phase {
            Phase::Held => {
                ", lease_token = '0123456789abcdef0123456789abcdef', stale_after = '2099-01-01T00:00:00.000Z'"
            }
            Phase::Settled => ", reason = 'a look', finished_at = datetime('now')",
            Phase::Parked => ", reason = 'a look'",
            Phase::Ready => ", resolved = 1",
            Phase::Draft => "",
        };
        sqlite3(
            &self.path,
            &format!("UPDATE runs SET status = '{}'{with} WHERE run_id = '{run_id}'", state.name),
        )
    }

    /// Walks the items to where a guard wants them, by legal moves of their own.
    fn arrange(&self, lifecycle: &Lifecycle, run_id: &str, guards: &[Guard]) {
        let Some(kind) = lifecycle.items.first() else { return };
        for key in ["a", "b"] {
            let has = |guard: Guard| guards.contains(&guard);
            let ok = has(Guard::AllItemsOk) || has(Guard::SomeItemFailed) && key == "a";
            let done = has(Guard::NoItemOk) || has(Guard::SomeItemFailed);
            let fits = |state: &State| match state.outcome {
                _ if !ok && !done && !has(Guard::SomeItemOpen) => true,
                Some(Outcome::Succeeded) => ok,
                Some(_) => done && !ok,
                None => has(Guard::SomeItemOpen) && state.phase == Phase::Ready,
            };
            let of =
                format!("FROM items WHERE run_id = '{run_id}' AND key = '{key}' AND kind = '{}'", kind.name);
            let at = kind.state_named(&sqlite3(&self.path, &format!("SELECT status {of}")).unwrap()).unwrap();
            let goals = kind.state_ids().filter(|id| fits(kind.state(*id)));
            let way = goals.filter_map(|goal| path(kind, at, goal)).min_by_key(Vec::len).unwrap_or_default();
            for step in way {
                let set = format!("UPDATE items SET status = '{}'", kind.state(step).name);
                sqlite3(&self.path, &format!("{set} WHERE run_id = '{run_id}' AND key = '{key}'")).unwrap();
            }
        }
    }
}

/// The states on a shortest way, by single moves.
pub fn path(lifecycle: &Lifecycle, from: StateId, to: StateId) -> Option<Vec<StateId>> {
    let mut ways = vec![vec![from]];
    for at in 0.. {
        let Some(way) = ways.get(at).cloned() else { break };
        let last = *way.last().unwrap();
        if last == to {
            return Some(way[1..].to_vec());
        }
        for step in moves(lifecycle).iter().filter(|step| step.from == last && step.events == 1) {
            if !way.contains(&step.to) {
                ways.push([way.clone(), vec![step.to]].concat());
            }
        }
    }
    None
}

pub fn guards_between(lifecycle: &Lifecycle, from: StateId, to: StateId) -> Vec<Guard> {
    let row = lifecycle.transitions.iter().find(|row| row.from == from && row.to == to);
    row.map(|row| row.guards.clone()).unwrap_or_default()
}

/// A run in a state, brought there by hand, with items as the last guard wanted them.
async fn run_in(file: &File, lifecycle: &Lifecycle, goal: StateId) -> String {
    let run_id = file.start(lifecycle).await;
    let mut at = lifecycle.initial[0];
    for step in path(lifecycle, at, goal).unwrap() {
        file.arrange(lifecycle, &run_id, &guards_between(lifecycle, at, step));
        file.set(lifecycle, &run_id, step).unwrap_or_else(|error| panic!("{}: {error}", lifecycle.name));
        at = step;
    }
    run_id
}

#[tokio::test]
async fn all_pairs_of_states_are_judged_by_the_file_itself() {
    let file = open();
    let catalog = Catalog::shipped().unwrap();
    let mut judged = 0;
    for lifecycle in catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Run) {
        for from in lifecycle.state_ids() {
            for to in lifecycle.state_ids().filter(|to| *to != from) {
                let run_id = run_in(&file, lifecycle, from).await;
                let (was, will) = (&lifecycle.state(from).name, &lifecycle.state(to).name);
                let declared = is_declared(&RUNS, &lifecycle.name, was, will);
                if declared {
                    file.arrange(lifecycle, &run_id, &guards_between(lifecycle, from, to));
                }
                let names = format!("{} {was} → {will}", lifecycle.name);
                match file.set(lifecycle, &run_id, to) {
                    Ok(_) => assert!(declared, "{names} was accepted"),
                    Err(error) if declared => panic!("{names} was refused: {error}"),
                    Err(error) => assert!(
                        error.contains("INVALID_TRANSITION") || error.contains("SHAPE"),
                        "{names} was refused for another reason: {error}"
                    ),
                }
                judged += 1;
            }
        }
    }
    assert!(judged > 150, "{judged}");
    assert_eq!(file.differences().await, Vec::<String>::new());
}

#[tokio::test]
async fn events_cannot_be_changed_or_deleted() {
    let file = open();
    let deploy = Catalog::shipped().unwrap().latest("deploy").unwrap().clone();
    let run_id = run_in(&file, &deploy, deploy.state_named("claimed").unwrap()).await;
    for sql in [
        "UPDATE run_events SET command = 'x'",
        "DELETE FROM run_events",
        "INSERT OR REPLACE INTO run_now(rid, state, seq, queue, last_command) SELECT rid, state, 9, queue, 'x' FROM run_now",
        "UPDATE run_now SET last = NULL",
        "UPDATE run_now SET rid = rid + 1",
        "UPDATE run_now SET fence = -1",
        "UPDATE run_now SET seq = 0",
        "DELETE FROM run_now",
        "UPDATE run_born SET metadata = '{}'",
        "DELETE FROM run_born",
        "INSERT INTO runs(run_id, lifecycle, status) VALUES ('x', 'deploy', 'queued')",
        "UPDATE events SET message = 'x'",
        "DELETE FROM events",
        "INSERT INTO events(run_id, seq) VALUES ('x', 1)",
        "DELETE FROM runs",
        "UPDATE runs SET run_id = 'other'",
        "UPDATE runs SET input = '{\"x\":1}'",
        "UPDATE runs SET fence = -1",
        "UPDATE runs SET seq = 0",
    ] {
        assert!(sqlite3(&file.path, sql).is_err(), "{sql} was accepted");
    }
    assert_eq!(file.store.events(run_id, 0, 10).await.unwrap().len(), 2);
    assert_eq!(file.differences().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_settled_run_cannot_be_rewritten_and_a_shape_cannot_be_broken() {
    let file = open();
    let deploy = Catalog::shipped().unwrap().latest("deploy").unwrap().clone();
    let run_id = file.start(&deploy).await;
    for (sql, why) in [
        ("UPDATE runs SET status = 'claimed'", "held without a lease"),
        ("UPDATE runs SET status = 'cancelled'", "settled without finished_at"),
        ("UPDATE runs SET status = 'nonsense'", "an unknown state"),
        ("UPDATE run_now SET state = 999, seq = seq + 1", "an unknown code"),
        (
            "UPDATE run_now SET state = (SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = 'claimed'), seq = seq + 1",
            "held without a lease",
        ),
        (
            "UPDATE run_now SET state = (SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = 'running'), seq = seq + 1, \
          token = 'x', due_at = 1",
            "no such move",
        ),
        (
            "UPDATE run_now SET state = (SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = 'claimed'), token = 'x', due_at = 1",
            "no event",
        ),
        (
            "INSERT INTO run_permits SELECT rid, state, (SELECT code FROM state_codes WHERE lifecycle = 'deploy' AND state = 'running'), seq + 1, 1, NULL, 0, 1 \
          FROM run_now",
            "a permit for no move",
        ),
    ] {
        assert!(sqlite3(&file.path, sql).is_err(), "{why} was accepted");
    }
    let claim = Claim { worker: "w1".into(), queues: vec!["default".into()], limit: 1, ..Claim::default() };
    let claimed = file.store.claim(claim).await.unwrap().remove(0);
    let finish = FinishWrite {
        run_id: run_id.clone(),
        token: Some(claimed.token),
        by: "w1".into(),
        status: "success".into(),
        ..FinishWrite::default()
    };
    Store::finish(&file.store, vec![finish]).await.unwrap().remove(0).unwrap();
    for sql in [
        "UPDATE runs SET metadata = '{\"a\":1}'",
        "UPDATE runs SET finished_at = datetime('now')",
        "UPDATE runs SET error_code = 'X'",
        "UPDATE runs SET seq = seq + 1, error_code = 'X'",
        "UPDATE run_now SET seq = seq + 1, error_code = 'X'",
        "UPDATE run_now SET seq = seq + 1, finished_at = 1",
        "UPDATE run_now SET priority = 1",
    ] {
        assert!(sqlite3(&file.path, sql).is_err(), "{sql} was accepted");
    }
    assert_eq!(file.differences().await, Vec::<String>::new());
}

/// The seed's own auto-cancel of a stale claim, in SQLite's words.
// proves D8
#[tokio::test]
async fn a_legal_update_by_hand_gets_its_event() {
    let file = open();
    let deploy = Catalog::shipped().unwrap().latest("deploy").unwrap().clone();
    let run_id = run_in(&file, &deploy, deploy.state_named("claimed").unwrap()).await;
    let sql = "UPDATE runs SET status = 'cancelled', finished_at = datetime('now'), \
               metadata = json_patch(metadata, '{\"cancelled_by\":\"system\"}') WHERE status = 'claimed'";
    sqlite3(&file.path, sql).unwrap();
    let events = file.store.events(run_id.clone(), 0, 10).await.unwrap();
    let last = events.last().unwrap();
    assert_eq!((last.seq, last.to.as_str(), last.by.as_str()), (3, "cancelled", "by hand"));
    let run = file.store.run("default".into(), run_id).await.unwrap();
    assert_eq!((run.phase(), run.run.lease.is_none()), (Phase::Settled, true));
    assert_eq!(run.metadata["cancelled_by"], "system");
    assert_eq!(file.differences().await, Vec::<String>::new());
}

/// The writer remembers rows; what others write in between counts nevertheless.
#[tokio::test]
async fn what_a_hand_or_another_process_changed_is_seen_by_the_writer() {
    let file = open();
    let other = SqliteStore::open(&file.path).unwrap();
    let deploy = Catalog::shipped().unwrap().latest("deploy").unwrap().clone();
    let claim = || Claim { worker: "w".into(), queues: vec!["default".into()], limit: 1, ..Claim::default() };
    let run_id = file.start(&deploy).await;
    sqlite3(&file.path, "UPDATE runs SET status = 'cancelled', finished_at = datetime('now')").unwrap();
    assert!(file.store.claim_run(run_id, "w".into()).await.is_err());
    assert!(file.store.claim(claim()).await.unwrap().is_empty());

    let run_id = file.start(&deploy).await;
    let claimed = other.claim(claim()).await.unwrap().remove(0);
    assert_eq!(claimed.run.id(), run_id);
    assert!(file.store.claim(claim()).await.unwrap().is_empty());
    let finish = FinishWrite {
        run_id: run_id.clone(),
        token: Some(claimed.token),
        by: "w".into(),
        status: "success".into(),
        ..FinishWrite::default()
    };
    let finished = Store::finish(&file.store, vec![finish.clone()]).await.unwrap().remove(0);
    assert_eq!(finished.unwrap().run.seq, 4);
    let again = Store::finish(&other, vec![finish]).await.unwrap().remove(0);
    assert_eq!(again.unwrap().run.seq, 4);
    assert_eq!(file.differences().await, Vec::<String>::new());
}

/// Those that come to where others leave are not taken along with them.
#[tokio::test]
async fn items_follow_a_hand_all_at_once() {
    let file = open();
    let claimed = held_run(&file.store, work(&file.store, &["a", "b", "c"]).await).await;
    move_items(&file.store, &claimed, "part", &[("b", "doing")]).await.unwrap();
    let gate = claimed.run.lifecycle.state_named("gate").unwrap();
    file.set(&claimed.run.lifecycle, claimed.run.id(), gate).unwrap();
    assert_eq!(items(&file.store, claimed.run.id()).await, ["a=doing", "b=waiting", "c=doing"]);
    assert_eq!(file.differences().await, Vec::<String>::new());
}

const BEGIN: &str = "UPDATE runs SET status = 'claimed', claimed_by = 'sql', lease_token = '0123456789abcdef0123456789abcdef', \
                     stale_after = '2099-01-01T00:00:00.000Z' WHERE run_id = '{id}'";

/// Whoever begins a run by hand keeps to what claims keep to.
// proves D7, X5, X9
#[tokio::test]
async fn a_begin_by_hand_waits_for_its_time_its_queue_and_its_key() {
    let file = open();
    let store = &file.store;
    let begin = |id: &str| sqlite3(&file.path, &BEGIN.replace("{id}", id));
    let refused = |id: &str, words: &str| {
        let said = begin(id).expect_err(words);
        assert!(said.contains(words), "{said}");
    };
    let put = async |new: NewRun| {
        let new = NewRun { queue: "q".into(), lifecycle: "deploy".into(), ..new };
        store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned()
    };
    let later = store.now().await.unwrap() + Span::from_seconds(600);
    let deferred = put(NewRun { schedule_at: Some(later), ..NewRun::default() }).await;
    refused(&deferred, "NOT_DUE: it is not to be begun before its available_at");
    let short = put(NewRun { ttl: Some(Span::from_seconds(60)), ..NewRun::default() }).await;
    store.advance_clock(Span::from_seconds(61)).await.unwrap();
    refused(&short, "NOT_DUE: it was to be begun before its expires_at");

    let first = put(NewRun { concurrency_key: Some("k".into()), ..NewRun::default() }).await;
    let second = put(NewRun { concurrency_key: Some("k".into()), ..NewRun::default() }).await;
    let pause = Pause { by: "ann".into(), reason: "a release".into(), at: None };
    store.pause_queue("q".into(), Some(pause)).await.unwrap();
    refused(&first, "PAUSED: its queue is paused");
    store.pause_queue("q".into(), None).await.unwrap();
    begin(&first).unwrap();
    refused(&second, "NO_SLOT: its concurrency key is at its limit");
    store.limit_queue("q", Some(1)).await.unwrap();
    let third = put(NewRun::default()).await;
    refused(&third, "NO_SLOT: its queue is at its limit");
    store.limit_queue("q", Some(2)).await.unwrap();
    begin(&third).unwrap();
    store.advance_clock(Span::from_seconds(600)).await.unwrap();
    store.limit_queue("q", None).await.unwrap();
    begin(&deferred).unwrap();
    assert_eq!(file.differences().await, Vec::<String>::new());
}

/// Past the guards, `verify` finds it.
// proves X2
#[tokio::test]
async fn a_run_that_was_begun_before_its_time_is_found() {
    let file = open();
    let later = file.store.now().await.unwrap() + Span::from_seconds(600);
    let new = NewRun { lifecycle: "deploy".into(), schedule_at: Some(later), ..NewRun::default() };
    let run = file.store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run;
    let unguarded = "SELECT group_concat('DROP TRIGGER ' || name, ';') FROM sqlite_master WHERE name = 'hand_edits_judge'";
    let drop = sqlite3(&file.path, unguarded).unwrap();
    sqlite3(&file.path, &drop).unwrap();
    sqlite3(&file.path, &BEGIN.replace("{id}", run.id())).unwrap();
    let found = file.differences().await;
    assert!(found.iter().any(|line| line.contains("and it was not due before")), "{found:?}");
}

#[tokio::test]
async fn the_audit_log_is_not_replaced_and_no_text_has_a_nul() {
    let file = open();
    let deploy = Catalog::shipped().unwrap().latest("deploy").unwrap().clone();
    let run_id = file.start(&deploy).await;
    let cancel = waypost_store::CommandWrite {
        tenant: "default".into(),
        run_id: file.start(&deploy).await,
        name: "cancel".into(),
        by: "ann".into(),
        ..Default::default()
    };
    Store::command(&file.store, cancel).await.unwrap();
    let replaced = sqlite3(
        &file.path,
        "INSERT OR REPLACE INTO audit SELECT number, at, tenant, 'nobody', action, subject, reason FROM audit",
    );
    assert!(replaced.unwrap_err().contains("APPEND_ONLY: audit cannot be changed"));
    assert_eq!(sqlite3(&file.path, "SELECT who FROM audit").unwrap(), "ann");

    let set = |column: &str, text: &str| {
        sqlite3(&file.path, &format!("UPDATE runs SET {column} = '{text}' WHERE run_id = '{run_id}'"))
    };
    for column in ["metadata", "details"] {
        for text in [r#"{"a":"\u0000"}"#, r#"{"\u0000":1}"#, r#"{"a":"\\\u0000"}"#] {
            let said = set(column, text).expect_err(text);
            assert!(said.contains("no text or name has a NUL"), "{said}");
        }
    }
    set("metadata", r#"{"a":"\\u0000"}"#).unwrap();
    assert_eq!(file.differences().await, Vec::<String>::new());
}

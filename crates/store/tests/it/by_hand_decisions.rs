//! The databases' own guards know a lifecycle's words for decisions: whoever says by hand that a run is resolved has
//! decided about all that it asks. A lifecycle that asks for none has no such rule.
// proves J2 and X2

use serde_json::json;
use waypost_store::sqlite::SqliteStore;
use waypost_store::{Database, FinishWrite, NewRun};

use crate::by_hand::sqlite3;
use crate::conformance::decisions::{REVIEW, silent};
use crate::conformance::kit::{check, ending, get, held_run, map, new, write_finish};
use crate::ops::kit;

/// Asks about two subjects in both dialects of words: its own, and those of jobs, which mean nothing to it.
async fn asks(store: &dyn Database, lifecycle: &str) -> String {
    store.add_lifecycle(REVIEW.into(), "tests".into()).await.unwrap();
    store.add_lifecycle(silent(), "tests".into()).await.unwrap();
    let claimed = held_run(store, NewRun { items: Vec::new(), ..new(lifecycle) }).await;
    let details = map(json!({
        "unanswered": true, "questions": {"title": {}, "end": {}},
        "awaiting_blocker_resolution": true, "current_blockers": {"h": {}},
    }));
    let end = FinishWrite { reason: Some("2 questions".into()), details, ..ending(&claimed, "asking") };
    write_finish(store, end).await.unwrap();
    claimed.run.id().to_owned()
}

/// `resolve` says by hand that the run is resolved, with these verdicts.
async fn judged(store: &dyn Database, resolve: &dyn Fn(&str, &str) -> Result<String, String>) {
    let id = asks(store, "review").await;
    for some in [r#"{}"#, r#"{"verdicts": {"title": "keep"}}"#, r#"{"verdicts": 7}"#] {
        let error = resolve(&id, some).unwrap_err();
        assert!(
            error.contains("INVALID_TRANSITION") && error.contains("waits for decisions"),
            "{some}: {error}"
        );
    }
    assert_eq!(get(store, &id).await.status(), "asking");
    resolve(&id, r#"{"verdicts": {"title": "keep", "end": "x"}}"#).unwrap();
    assert_eq!(get(store, &id).await.status(), "open");
    let id = asks(store, "silent").await;
    resolve(&id, "{}").unwrap();
    assert_eq!(get(store, &id).await.status(), "open");
    check(store).await;
}

#[tokio::test]
async fn decisions_by_hand_are_judged_by_the_lifecycles_words_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let resolve = |id: &str, more: &str| {
        let details = format!("json_patch(details, '{more}')");
        sqlite3(
            &path,
            &format!(
                "UPDATE runs SET status = 'open', resolved = 1, details = {details} WHERE run_id = '{id}'"
            ),
        )
    };
    judged(&store, &resolve).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_by_hand_are_judged_by_the_lifecycles_words_in_postgres() {
    let ops = kit::open();
    let store = waypost_store::postgres::PostgresStore::open(&ops.server.url()).await.unwrap();
    let resolve = |id: &str, more: &str| {
        ops.server.psql(&format!(
            "UPDATE waypost.board SET status = 'open', resolved = true, details = details || '{more}' WHERE run_id = '{id}'"
        ))
    };
    judged(&store, &resolve).await;
}

/// A name without a word, another word than the choices, and another question are no decisions.
#[tokio::test]
async fn what_is_no_decision_lets_no_job_of_a_file_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let claimed = held_run(&store, NewRun { items: Vec::new(), ..new("job") }).await;
    let details = map(json!({
        "awaiting_blocker_resolution": true,
        "current_blockers": {"a": {"choices": ["power_off", "skip"]}, "b": {}},
    }));
    let end = FinishWrite { reason: Some("2 are blocked".into()), details, ..ending(&claimed, "paused") };
    write_finish(&store, end).await.unwrap();
    let set =
        |what: &str, details: &str| sqlite3(&path, &format!("UPDATE runs SET {what} details = '{details}'"));
    let go_on = "status = 'pending', resolved = 1,";
    for given in [
        r#"{"a": null, "b": null}"#,
        r#"{"a": "nonsense", "b": "x"}"#,
        r#"{"a": {}, "b": {}}"#,
        r#"{"a": "skip", "b": " "}"#,
        r#"{"a": "skip", "c": "x"}"#,
    ] {
        let given = format!(r#"{{"maintenance_blocker_resolutions": {given}}}"#);
        let error = set(go_on, &given).unwrap_err();
        assert!(error.contains("waits for decisions"), "{given}: {error}");
    }
    for question in [
        r#"{"current_blockers": {}}"#,
        r#"{"current_blockers": null}"#,
        r#"{"current_blockers": {"c": {}}}"#,
        r#"{"awaiting_blocker_resolution": false}"#,
    ] {
        let error = set("", question).unwrap_err();
        assert!(error.contains("what a waiting run asks stays"), "{question}: {error}");
    }
    assert_eq!(get(&store, claimed.run.id()).await.status(), "paused");
    set("", r#"{"maintenance_blocker_resolutions": {"a": "skip", "b": {"decision": "x"}}}"#).unwrap();
    sqlite3(&path, "UPDATE runs SET status = 'pending', resolved = 1").unwrap();
    assert_eq!(get(&store, claimed.run.id()).await.status(), "pending");
    check(&store).await;
}

/// Two questions, of which the second could be answered an hour ago, and an old answer to the first.
async fn questions(store: &dyn Database) -> String {
    let claimed = held_run(store, NewRun { items: Vec::new(), ..new("job") }).await;
    let ended = waypost_store::iso(claimed.now - waypost_kernel::Span::from_seconds(3_600));
    let about = json!({ "a": {"ask": "a?", "choices": ["yes", "no"]}, "b": {"ask": "b?", "until": ended} });
    let details = map(json!({
        "awaiting_blocker_resolution": true, "current_blockers": about,
        "maintenance_blocker_resolutions": {"a": {"decision": "yes", "by": "ann", "attempt": 0}},
    }));
    let end = FinishWrite { reason: Some("2 questions".into()), details, ..ending(&claimed, "paused") };
    write_finish(store, end).await.unwrap();
    claimed.run.id().to_owned()
}

// proves U4: of an answer by hand, too, the pause and the time count
#[tokio::test]
async fn answers_by_hand_are_of_their_pause_and_in_time_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("waypost.db");
    let store = SqliteStore::open(&path).unwrap();
    let id = questions(&store).await;
    let answer = |a: &str, b: &str| {
        let given = format!(r#"{{"maintenance_blocker_resolutions": {{"a": {a}, "b": {b}}}}}"#);
        let sql = format!(
            "UPDATE runs SET status = 'pending', resolved = 1, details = json_patch(details, '{given}') WHERE run_id = '{id}'"
        );
        sqlite3(&path, &sql)
    };
    let now = r#"{"decision": "yes", "attempt": 1}"#;
    for (a, b) in [(r#"{"decision": "yes", "attempt": 0}"#, now), (now, now), ("\"yes\"", "\"yes\"")] {
        let refused = answer(a, b).unwrap_err();
        assert!(refused.contains("waits for decisions"), "{a} {b}: {refused}");
    }
    assert_eq!(get(&store, &id).await.status(), "paused");
    check(&store).await;
}

// proves U4
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_by_hand_are_of_their_pause_and_in_time_in_postgres() {
    let ops = kit::open();
    let store = waypost_store::postgres::PostgresStore::open(&ops.server.url()).await.unwrap();
    let id = questions(&store).await;
    let answer = |given: &str| {
        let given = format!(r#"{{"maintenance_blocker_resolutions": {given}}}"#);
        ops.server.psql(&format!(
            "UPDATE waypost.board SET status = 'pending', resolved = true, details = details || '{given}' WHERE run_id = '{id}'"
        ))
    };
    let late = answer(r#"{"a": "no", "b": "yes"}"#).unwrap_err();
    assert!(late.contains("b could be answered until"), "{late}");
    let old = answer(r#"{"a": {"decision": "yes", "by": "ann", "attempt": 0}}"#).unwrap_err();
    assert!(old.contains("waits for decisions about a, b"), "{old}");
    assert_eq!(get(&store, &id).await.status(), "paused");
    check(&store).await;
}

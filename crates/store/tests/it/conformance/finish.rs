//! How runs end.

use serde_json::{Value, json};
use waypost_kernel::Failure;
use waypost_store::{Database, FinishWrite, NewRun};

use super::kit::*;

// proves D8
pub async fn a_finished_run_has_its_end_and_no_lease(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let row = finish(store, &claimed, "success").await.unwrap();
    let object = row.object();
    assert_eq!((row.status(), &object["outcome"]), ("success", &json!("succeeded")));
    assert_eq!((&object["claimed_by"], &object["stale_after"]), (&Value::Null, &Value::Null));
    assert!(row.run.finished_at.unwrap() >= row.run.started_at.unwrap());
    assert_eq!(get(store, row.id()).await.object(), object);
    let event = last_event(store, row.id()).await;
    assert_eq!((event.command.as_str(), event.message.as_str()), ("succeed", "Run finished: success"));
    assert_eq!((event.level.as_str(), event.actor.as_str()), ("info", "worker"));
    assert_eq!(Some(event.at), row.run.finished_at);
}

pub async fn a_bad_end_is_an_error_in_the_log(store: &dyn Database) {
    for status in ["failed", "cancelled"] {
        let claimed = begun_run(store, deploy()).await;
        finish(store, &claimed, status).await.unwrap();
        let event = last_event(store, claimed.run.id()).await;
        assert_eq!((event.level, event.message), ("error".into(), format!("Run finished: {status}")));
    }
}

// proves D8
pub async fn finishing_what_was_not_begun_is_both(store: &dyn Database) {
    for status in ["success", "failed"] {
        let claimed = held_run(store, deploy()).await;
        assert_eq!(finish(store, &claimed, status).await.unwrap().status(), status);
        let last = commands(store, claimed.run.id()).await.split_off(2);
        assert_eq!(last, ["start", if status == "success" { "succeed" } else { "fail" }]);
    }
    let claimed = held_run(store, deploy()).await;
    finish(store, &claimed, "cancelled").await.unwrap();
    assert_eq!(commands(store, claimed.run.id()).await, ["create", "claim", "cancel"], "nothing was begun");
}

// proves D8 and J7
pub async fn a_finish_merges_metadata(store: &dyn Database) {
    let asked = NewRun { metadata: map(json!({"a": 1, "b": 1})), ..deploy() };
    let claimed = begun_run(store, asked).await;
    let end = FinishWrite {
        metadata: map(json!({"b": 2, "c": 3})),
        details: map(json!({"d": 4})),
        ..ending(&claimed, "success")
    };
    let row = write_finish(store, end).await.unwrap();
    assert_eq!(json!(row.metadata), json!({"a": 1, "b": 2, "c": 3}));
    assert_eq!(json!(row.details), json!({"d": 4}));
}

// proves X3
pub async fn the_same_finish_again_is_answered_as_the_first(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let end = |value: i32| FinishWrite {
        metadata: map(json!({"value": value})),
        ..ending(&claimed, "success")
    };
    let first = write_finish(store, end(1)).await.unwrap();
    advance(store, 100).await;
    let again = write_finish(store, end(1)).await.unwrap();
    assert_eq!(again.object(), first.object(), "nothing is written twice");
    let refused = refusal(write_finish(store, end(2)).await);
    assert_eq!((refused.code.name(), &*refused.current), ("INVALID_TRANSITION", "success"));
    let without = write_finish(store, ending(&claimed, "success")).await.unwrap();
    assert_eq!(without.object(), first.object(), "and nothing of another one");
}

// proves D8 and X3
pub async fn a_second_different_finish_is_refused(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let first = finish(store, &claimed, "success").await.unwrap();
    let refused = refusal(finish(store, &claimed, "failed").await);
    assert_eq!((refused.code.name(), &*refused.current), ("INVALID_TRANSITION", "success"));
    assert_eq!(refused.requested, "failed");
    assert_eq!(get(store, first.id()).await.object(), first.object());
}

// proves X5
pub async fn a_finish_needs_the_token(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let tokenless = FinishWrite { token: None, ..ending(&claimed, "success") };
    assert_eq!(code(&write_finish(store, tokenless).await), "LEASE_LOST");
    let unknown = FinishWrite { run_id: "run-none".into(), ..ending(&claimed, "success") };
    assert_eq!(code(&write_finish(store, unknown).await), "NOT_FOUND");
    assert_eq!(status(store, claimed.run.id()).await, "running");
}

pub async fn a_failure_is_kept_with_code_and_words(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let end = FinishWrite {
        failure: Some(Failure::new("EXIT_1", "make: *** [all] Error 1\n")),
        ..ending(&claimed, "failed")
    };
    let row = write_finish(store, end).await.unwrap();
    let object = row.object();
    assert_eq!(object["error_code"], "EXIT_1");
    assert_eq!(object["error_msg"], "make: *** [all] Error 1\n");
    let claimed = begun_run(store, deploy()).await;
    let end = FinishWrite { failure: Some(Failure::new("A", "b")), ..ending(&claimed, "success") };
    assert_eq!(write_finish(store, end).await.unwrap().object()["error_code"], Value::Null);
}

// proves X10 and C9
pub async fn a_finish_is_never_lost_over_what_it_carries(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let end = FinishWrite {
        by: "w\0".repeat(400),
        failure: Some(Failure::new(&"C\0".repeat(300), &"x\0é".repeat(50_000))),
        reason: Some("r\0".repeat(5_000)),
        metadata: map(json!({"n\0": "v\0", "deep": nested(100)})),
        details: map(json!({"log": "y".repeat(2 * 1024 * 1024)})),
        ..ending(&claimed, "failed")
    };
    let row = write_finish(store, end).await.unwrap();
    let message = row.run.failure.as_ref().unwrap().message.clone();
    assert_eq!(message.chars().count(), 4_000);
    assert!(message.ends_with("… [cut]") && !message.contains('\0'));
    let object = row.object().to_string();
    assert!(!object.contains("\\u0000") && object.len() < 3 * 1024 * 1024);
    assert_eq!(get(store, row.id()).await.status(), "failed");
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

// proves X3 and X10
pub async fn an_unknown_end_is_refused_with_those_known(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let answer = finish(store, &claimed, "succes").await;
    assert_eq!(code(&answer), "INVALID_INPUT");
    assert!(answer.unwrap_err().to_string().contains("success"));
    assert_eq!(code(&finish(store, &claimed, "queued").await), "INVALID_TRANSITION");
    assert_eq!(finish(store, &claimed, "success").await.unwrap().status(), "success");
}

// proves X2
pub async fn what_is_settled_stays(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let settled = finish(store, &claimed, "failed").await.unwrap();
    advance(store, 10 * DAY).await;
    assert_eq!(code(&note(store, &claimed, "one more").await), "LEASE_LOST");
    assert_eq!(code(&renew(store, &claimed).await), "LEASE_LOST");
    assert_eq!(code(&release(store, &claimed).await), "LEASE_LOST");
    assert_eq!(code(&move_items(store, &claimed, "step", &[("a", "running")]).await), "LEASE_LOST");
    assert_eq!(code(&store.claim_run(settled.id().into(), "w2".into()).await), "INVALID_TRANSITION");
    assert_eq!(code(&command(store, settled.id(), "cancel").await), "INVALID_TRANSITION");
    assert!(claim(store, "w2").await.is_none() && sweep(store).await.moved.is_empty());
    assert_eq!(get(store, settled.id()).await.object(), settled.object());
}

// proves R3
pub async fn the_outcome_counts_all_targets(store: &dyn Database) {
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[("a", "APPLIED"), ("b", "APPLIED")], "APPLIED"),
        (&[("a", "APPLIED"), ("b", "FAILED")], "PARTIAL"),
        (&[("a", "FAILED"), ("b", "FAILED")], "FAILED"),
        (&[("a", "APPLIED")], "PARTIAL"),
    ];
    for (moves, outcome) in cases {
        let claimed = held_run(store, rule(&["a", "b"])).await;
        move_items(store, &claimed, "target", moves).await.unwrap();
        for wrong in ["APPLIED", "PARTIAL", "FAILED"].into_iter().filter(|it| *it != outcome) {
            let refused = refusal(finish(store, &claimed, wrong).await);
            assert!(refused.guard.is_some(), "{moves:?} as {wrong}: {refused}");
        }
        assert_eq!(finish(store, &claimed, outcome).await.unwrap().status(), outcome);
    }
}

pub async fn finishes_are_answered_each_by_itself(store: &dyn Database) {
    let (one, two) = (begun_run(store, deploy()).await, begun_run(store, deploy()).await);
    let crossed = FinishWrite { token: Some(two.token), ..ending(&one, "success") };
    let list = vec![crossed, ending(&two, "nowhere"), ending(&one, "success"), ending(&two, "failed")];
    let codes: Vec<&str> = store.finish(list).await.unwrap().iter().map(code).collect();
    assert_eq!(codes, ["LEASE_LOST", "INVALID_INPUT", "OK", "OK"]);
}

// proves X10 and J7
pub async fn what_there_is_no_room_for_is_named_and_the_rest_is_kept(store: &dyn Database) {
    let half = "x".repeat(600 * 1024);
    let asked = NewRun { metadata: map(json!({ "first": half.clone(), "cut": "theirs" })), ..deploy() };
    let claimed = begun_run(store, asked).await;
    let end = |value: i32| FinishWrite {
        metadata: map(json!({ "a": value, "large": half.clone(), "z": "last" })),
        details: map(json!({ "d": 1 })),
        ..ending(&claimed, "success")
    };
    let row = write_finish(store, end(1)).await.unwrap();
    assert_eq!((&row.metadata["a"], &row.metadata["z"]), (&json!(1), &json!("last")));
    assert_eq!((row.metadata.get("large"), &row.metadata["cut"]), (None, &json!("theirs")));
    assert_eq!((&row.details["metadata_left_out"], &row.details["d"]), (&json!(["large"]), &json!(1)));
    assert_eq!(get(store, row.id()).await.object(), row.object());
    assert_eq!(write_finish(store, end(1)).await.unwrap().object(), row.object(), "the same again");
    assert_eq!(code(&write_finish(store, end(2)).await), "INVALID_TRANSITION", "another one");
}

// proves X10
pub async fn a_member_that_no_run_has_room_for_costs_no_other(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let metadata = map(json!({ "a": 1, "large": "x".repeat(2 * 1024 * 1024) }));
    // A server refuses it, and says how long it may be; what a database is given has happened.
    match write_finish(store, FinishWrite { metadata, ..ending(&claimed, "success") }).await {
        Ok(row) => {
            assert_eq!(json!(row.metadata), json!({ "a": 1 }));
            assert_eq!(row.details["metadata_left_out"], json!(["large"]));
        }
        refused => {
            let (field, message) = invalid(refused);
            assert!(field == "metadata" && message.contains("at most 1048576"), "{field}: {message}");
        }
    }
}

// proves X3
pub async fn a_finish_that_brings_something_else_is_another_one(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    let end = || FinishWrite {
        failure: Some(Failure::new("EXIT_1", "no space")),
        details: map(json!({ "d": 1 })),
        items: vec![moving("step", "a", "failed")],
        ..ending(&claimed, "failed")
    };
    let first = write_finish(store, end()).await.unwrap();
    assert_eq!(write_finish(store, end()).await.unwrap().object(), first.object());
    for (other, again) in [
        ("error", FinishWrite { failure: Some(Failure::new("EXIT_1", "another")), ..end() }),
        ("details", FinishWrite { details: map(json!({ "d": 2 })), ..end() }),
        ("items", FinishWrite { items: vec![moving("step", "a", "completed")], ..end() }),
        ("metadata", FinishWrite { metadata: map(json!({ "m": 1 })), ..end() }),
    ] {
        let refused = refusal(write_finish(store, again).await);
        let words = format!("the run ended as failed already, with other {other}");
        assert_eq!((refused.code.name(), refused.message), ("INVALID_TRANSITION", words));
    }
    assert_eq!(get(store, first.id()).await.object(), first.object());
}

/// What was wanted of the run first says how it ended; the finish is the same all the same.
// proves X3 and X8
pub async fn a_finish_that_gave_way_is_known_again(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    command(store, claimed.run.id(), "cancel").await.unwrap();
    let end = || FinishWrite { failure: Some(Failure::new("E", "mine")), ..ending(&claimed, "cancelled") };
    let first = write_finish(store, end()).await.unwrap();
    assert_eq!(write_finish(store, end()).await.unwrap().object(), first.object());
}

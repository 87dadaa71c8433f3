//! Jobs that stop for a person.

use serde_json::json;
use waypost_store::{Claimed, CommandWrite, Database, FinishWrite, NewItem, NewRun, NoteWrite};

use super::kit::*;

async fn pause(store: &dyn Database, claimed: &Claimed) {
    let end = FinishWrite {
        reason: Some("2 blockers".into()),
        details: map(json!({"current_blockers": ["h1", "h2"]})),
        ..ending(claimed, "paused")
    };
    assert_eq!(write_finish(store, end).await.unwrap().status(), "paused");
}

fn resume(run_id: &str) -> CommandWrite {
    CommandWrite { resolutions: map(json!({"h1": "skip"})), ..asking(run_id, "resume") }
}

// proves J2 and J3
pub async fn a_worker_pauses_with_a_reason(store: &dyn Database) {
    let claimed = held_run(store, job(&["a", "b", "c"])).await;
    move_items(store, &claimed, "step", &[("a", "completed"), ("b", "running")]).await.unwrap();
    let refused = refusal(finish(store, &claimed, "paused").await);
    assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("has-reason"));
    pause(store, &claimed).await;
    let row = get(store, claimed.run.id()).await;
    let object = row.object();
    assert_eq!((&object["reason"], &object["phase"]), (&json!("2 blockers"), &json!("parked")));
    assert_eq!((&object["claimed_by"], &object["finished_at"]), (&json!(null), &json!(null)));
    assert_eq!(object["details"], json!({"current_blockers": ["h1", "h2"]}));
    assert_eq!(items(store, row.id()).await, ["a=completed", "b=paused", "c=pending"], "steps mirror it");
    assert_eq!(object["allowed"], json!(["resume", "cancel"]));
    assert_eq!(code(&note(store, &claimed, "more").await), "LEASE_LOST");
}

// proves X3
pub async fn a_pause_sent_again_is_answered_as_the_first(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    pause(store, &claimed).await;
    let before = get(store, claimed.run.id()).await.object();
    pause(store, &claimed).await;
    assert_eq!(get(store, claimed.run.id()).await.object(), before);
}

// proves J2
pub async fn a_paused_job_waits_for_a_person(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    pause(store, &claimed).await;
    advance(store, 30 * DAY).await;
    assert!(claim(store, "w2").await.is_none() && sweep(store).await.moved.is_empty());
    let refused = refusal(command(store, claimed.run.id(), "resume").await);
    assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("resolved-or-forced"));
    assert_eq!(status(store, claimed.run.id()).await, "paused");
    let forced = CommandWrite { force: true, ..asking(claimed.run.id(), "resume") };
    assert_eq!(store.command(forced).await.unwrap().status(), "pending");
}

// proves J3 and J5
pub async fn a_resumed_job_goes_on_after_the_last_completed_step(store: &dyn Database) {
    let disable = NewItem { reruns: true, ..item("step", "disable") };
    let asked =
        NewRun { items: vec![disable, item("step", "scan"), item("step", "update")], ..new("job") };
    let claimed = held_run(store, asked).await;
    let moves = [("disable", "completed"), ("scan", "completed"), ("update", "running")];
    move_items(store, &claimed, "step", &moves).await.unwrap();
    let started_at = get(store, claimed.run.id()).await.run.started_at;
    pause(store, &claimed).await;
    advance(store, 100).await;
    let row = store.command(resume(claimed.run.id())).await.unwrap();
    assert_eq!((row.status(), row.run.reason.clone()), ("pending", None));
    assert_eq!(
        items(store, row.id()).await,
        ["disable=pending", "scan=completed", "update=pending"],
        "a step that a cleanup undid runs again"
    );
    let again = claim(store, "w2").await.unwrap();
    assert_eq!((again.run.id(), again.run.run.attempt, again.fence), (row.id(), 2, 2));
    assert_eq!(again.run.run.started_at, started_at, "it keeps its first start");
    move_items(store, &again, "step", &[("disable", "completed"), ("update", "completed")]).await.unwrap();
    assert_eq!(finish(store, &again, "completed").await.unwrap().status(), "completed");
}

// proves X8 and J3
pub async fn an_operators_pause_is_an_intent(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    assert_eq!(code(&command(store, claimed.run.id(), "pause").await), "INVALID_TRANSITION");
    let because = CommandWrite { reason: Some("lunch".into()), ..asking(claimed.run.id(), "pause") };
    let row = store.command(because).await.unwrap();
    assert_eq!((row.status(), &row.object()["intent"]), ("running", &json!("pause")));
    assert_eq!(renew(store, &claimed).await.unwrap().intent, Some("pause"));
    let row = finish(store, &claimed, "paused").await.unwrap();
    assert_eq!((row.status(), &row.object()["reason"]), ("paused", &json!("lunch")));
    assert_eq!(row.object()["intent"], json!(null));
}

// proves X8
pub async fn a_cancel_wins_over_a_pause(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    let because = || CommandWrite { reason: Some("lunch".into()), ..asking(claimed.run.id(), "pause") };
    store.command(because()).await.unwrap();
    command(store, claimed.run.id(), "cancel").await.unwrap();
    assert_eq!(renew(store, &claimed).await.unwrap().intent, Some("cancel"));
    assert_eq!(code(&store.command(because()).await), "CANCEL_REQUESTED");
    assert_eq!(code(&finish(store, &claimed, "paused").await), "CANCEL_REQUESTED");
}

// proves J6
pub async fn a_paused_job_can_be_cancelled(store: &dyn Database) {
    let claimed = held_run(store, job(&["a", "b"])).await;
    move_items(store, &claimed, "step", &[("a", "running")]).await.unwrap();
    pause(store, &claimed).await;
    let row = command(store, claimed.run.id(), "cancel").await.unwrap();
    assert_eq!((row.status(), row.run.finished_at.is_some()), ("cancelled", true));
    assert_eq!(items(store, row.id()).await, ["a=failed", "b=skipped"]);
}

// proves X3
pub async fn a_resume_twice_is_answered_as_the_first(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    pause(store, &claimed).await;
    let first = store.command(resume(claimed.run.id())).await.unwrap();
    assert_eq!(store.command(resume(claimed.run.id())).await.unwrap().object(), first.object());
}

// proves X3
pub async fn what_a_parked_run_is_told_is_for_operators(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    pause(store, &claimed).await;
    let client = CommandWrite { actor: Some(waypost_kernel::Actor::Client), ..resume(claimed.run.id()) };
    assert_eq!(code(&store.command(client).await), "ACTOR_NOT_ALLOWED");
}

async fn blocked(store: &dyn Database) -> Claimed {
    let claimed = held_run(store, job(&["scan"])).await;
    let end = FinishWrite {
        reason: Some("2 hosts are blocked".into()),
        details: map(json!({
            "awaiting_blocker_resolution": true,
            "current_blockers": {"h1": {"choices": ["power_off", "skip"]}, "h2": {}},
        })),
        ..ending(&claimed, "paused")
    };
    assert_eq!(write_finish(store, end).await.unwrap().status(), "paused");
    claimed
}

fn deciding(run_id: &str, by: &str, resolutions: serde_json::Value) -> CommandWrite {
    CommandWrite {
        by: by.into(),
        reason: Some("agreed".into()),
        resolutions: map(resolutions),
        ..asking(run_id, "resume")
    }
}

// proves J3
pub async fn decisions_are_kept_with_who_and_why(store: &dyn Database) {
    let claimed = blocked(store).await;
    let id = claimed.run.id();
    let row = store.command(deciding(id, "ann", json!({"h1": "skip", "h2": {"decision": "wait"}}))).await.unwrap();
    assert_eq!(row.status(), "pending");
    let details = row.object()["details"].clone();
    assert_eq!(details["awaiting_blocker_resolution"], json!(false));
    let kept = &details["maintenance_blocker_resolutions"];
    assert_eq!(kept["h1"]["decision"], json!("skip"));
    assert_eq!((&kept["h2"]["by"], &kept["h2"]["reason"]), (&json!("ann"), &json!("agreed")));
    assert!(kept["h1"]["at"].is_string());
    let events = store.events(id.to_owned(), 0, 100).await.unwrap();
    let resumed = events.last().unwrap();
    assert_eq!((resumed.command.as_str(), &resumed.payload["resolutions"]), ("resume", kept));
}

// proves J3
pub async fn the_first_decision_counts(store: &dyn Database) {
    let claimed = blocked(store).await;
    let id = claimed.run.id();
    let decided = json!({"h1": "skip", "h2": "wait"});
    let first = store.command(deciding(id, "ann", decided.clone())).await.unwrap().object();
    let again = store.command(deciding(id, "ann", decided)).await.unwrap().object();
    assert_eq!(again, first, "the same again is answered as the first time");
    let late = store.command(deciding(id, "bob", json!({"h1": "power_off", "h2": "wait"}))).await;
    let message = late.unwrap_err().to_string();
    assert!(message.contains("h1 was decided already: skip by ann"), "{message}");
    assert_eq!(get(store, id).await.object()["details"], first["details"]);
}

// proves J3
pub async fn decisions_name_what_blocks(store: &dyn Database) {
    let claimed = blocked(store).await;
    let id = claimed.run.id();
    for (given, told) in [
        (json!({"h9": "skip", "h1": "skip", "h2": "skip"}), "nothing is asked about \"h9\"; asked are: h1, h2"),
        (json!({"h1": "burn", "h2": "skip"}), "\"burn\" is no choice; allowed: power_off, skip"),
        (json!({"h1": "", "h2": "skip"}), "needs a decision"),
        (json!({"h1": 7, "h2": "skip"}), "needs a decision"),
    ] {
        let message = store.command(deciding(id, "ann", given.clone())).await.unwrap_err().to_string();
        assert!(message.contains("resolutions") && message.contains(told), "{given}: {message}");
    }
    assert_eq!(status(store, id).await, "paused");
    let forced = CommandWrite { force: true, ..deciding(id, "ann", json!({"h1": "skip"})) };
    assert_eq!(store.command(forced).await.unwrap().status(), "pending");
}

// proves J2 and J3
pub async fn decisions_are_saved_one_by_one(store: &dyn Database) {
    let claimed = blocked(store).await;
    let id = claimed.run.id();
    let row = store.command(deciding(id, "ann", json!({"h1": "skip"}))).await.unwrap();
    let details = row.object()["details"].clone();
    assert_eq!((row.status(), &details["awaiting_blocker_resolution"]), ("paused", &json!(true)));
    let kept = &details["maintenance_blocker_resolutions"];
    assert_eq!((&kept["h1"]["by"], &kept["h1"]["reason"]), (&json!("ann"), &json!("agreed")));
    let events = store.events(id.to_owned(), 0, 100).await.unwrap();
    let decided = events.last().unwrap();
    assert_eq!((decided.command.as_str(), &decided.payload["resolutions"]), ("decide", kept));
    assert_eq!(decided.message, "Decided by ann; the run goes on waiting");
    // The same again changes nothing; another decision about it is too late, and so is not taken with a new one.
    let again = store.command(deciding(id, "bob", json!({"h1": "skip"}))).await.unwrap();
    assert_eq!(again.object(), row.object());
    let late = store.command(deciding(id, "bob", json!({"h1": "power_off", "h2": "wait"}))).await.unwrap_err();
    assert!(late.to_string().contains("h1 was decided already: skip by ann"), "{late}");
    let refused = refusal(command(store, id, "resume").await);
    assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("resolved-or-forced"));
    let row = store.command(deciding(id, "bob", json!({"h2": "wait"}))).await.unwrap();
    let kept = &row.object()["details"]["maintenance_blocker_resolutions"];
    assert_eq!((row.status(), &kept["h1"]["by"], &kept["h2"]["by"]), ("pending", &json!("ann"), &json!("bob")));
}

// proves J2
pub async fn decisions_of_an_earlier_pause_do_not_end_the_next(store: &dyn Database) {
    let claimed = blocked(store).await;
    let id = claimed.run.id();
    store.command(deciding(id, "ann", json!({"h1": "skip", "h2": "wait"}))).await.unwrap();
    let again = claim(store, "w2").await.unwrap();
    let end = FinishWrite { reason: Some("lunch".into()), ..ending(&again, "paused") };
    write_finish(store, end).await.unwrap();
    let refused = refusal(command(store, id, "resume").await);
    assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("resolved-or-forced"));
    let row = store.command(deciding(id, "bob", json!({"h1": "power_off"}))).await.unwrap();
    let kept = &row.object()["details"]["maintenance_blocker_resolutions"];
    assert_eq!((row.status(), &kept["h1"]["decision"]), ("pending", &json!("power_off")), "a new pause, a new decision");
}

/// As long as a step's details may be, so often that they fill all that handlers have.
async fn full_of_details(store: &dyn Database) -> Claimed {
    let claimed = held_run(store, job(&["scan"])).await;
    for at in 0..75 {
        let details = map(json!({ format!("host-{at}"): "x".repeat(15_500) }));
        write_note(store, NoteWrite { details, ..saying(&claimed, &format!("host {at}")) }).await.unwrap();
    }
    let row = get(store, claimed.run.id()).await;
    assert_eq!(row.details["cut"], json!(true), "they do not all fit");
    claimed
}

// proves J2 and J3
pub async fn a_run_full_of_details_still_waits_for_its_decision(store: &dyn Database) {
    let claimed = full_of_details(store).await;
    let id = claimed.run.id();
    let lines: Vec<String> = (0..100).map(|at| format!("{at} {}", "l".repeat(15_000))).collect();
    let end = FinishWrite {
        reason: Some("h1 is blocked".into()),
        details: map(json!({
            "awaiting_blocker_resolution": true,
            "current_blockers": {"h1": {"choices": ["go", "skip"], "why": "w".repeat(10_000)}},
            "hosts_with_blockers": 1,
            "console_log": lines,
            "artifacts": lines,
        })),
        ..ending(&claimed, "paused")
    };
    let row = write_finish(store, end).await.unwrap();
    let details = row.object()["details"].clone();
    assert_eq!(details["current_blockers"]["h1"]["choices"], json!(["go", "skip"]));
    assert_eq!((&details["awaiting_blocker_resolution"], &details["hosts_with_blockers"]), (&json!(true), &json!(1)));
    assert_eq!(details["console_log"].as_array().unwrap().last(), Some(&json!(lines[99])));
    assert!(details.to_string().len() <= 1024 * 1024);
    let refused = refusal(command(store, id, "resume").await);
    assert_eq!(refused.guard.map(waypost_kernel::Guard::name), Some("resolved-or-forced"));
    let row = store.command(deciding(id, "ann", json!({"h1": "go"}))).await.unwrap();
    let kept = &row.object()["details"]["maintenance_blocker_resolutions"];
    assert_eq!((row.status(), &kept["h1"]["decision"]), ("pending", &json!("go")));
}

// proves J3
pub async fn a_decision_that_would_not_be_kept_is_refused(store: &dyn Database) {
    let claimed = held_run(store, job(&["scan"])).await;
    let id = claimed.run.id();
    let hosts: serde_json::Map<_, _> = (0..100).map(|at| (format!("host-{at}"), json!({}))).collect();
    let end = FinishWrite {
        reason: Some("100 hosts are blocked".into()),
        details: map(json!({ "awaiting_blocker_resolution": true, "current_blockers": hosts })),
        ..ending(&claimed, "paused")
    };
    write_finish(store, end).await.unwrap();
    let before = get(store, id).await.object();
    let decided: serde_json::Map<_, _> = hosts.keys().map(|host| (host.clone(), json!("skip"))).collect();
    let long = CommandWrite { reason: Some("y".repeat(1_000)), ..deciding(id, "ann", json!(decided)) };
    let message = store.command(long).await.unwrap_err().to_string();
    assert!(message.contains("resolutions: ") && message.contains("shorter reason"), "{message}");
    assert_eq!(get(store, id).await.object(), before);
    let row = store.command(deciding(id, "ann", json!(decided))).await.unwrap();
    let kept = row.object()["details"]["maintenance_blocker_resolutions"].as_object().map(serde_json::Map::len);
    assert_eq!((row.status(), kept), ("pending", Some(100)));
}

pub async fn what_the_engine_told_before_can_be_taken_back(store: &dyn Database) {
    let claimed = held_run(store, job(&["scan"])).await;
    let tell = async |details: serde_json::Value| {
        let note = NoteWrite { details: map(details), ..saying(&claimed, "details") };
        write_note(store, note).await.unwrap();
        get(store, claimed.run.id()).await.object()["details"].clone()
    };
    tell(json!({ "cleanup_failed": ["unlock"], "own": 1 })).await;
    assert_eq!(tell(json!({ "cleanup_failed": null, "own": null })).await, json!({ "own": null }));
}

// proves X3
pub async fn a_resume_again_is_answered_after_a_worker_took_the_run(store: &dyn Database) {
    let claimed = held_run(store, job(&["a"])).await;
    pause(store, &claimed).await;
    let seq = get(store, claimed.run.id()).await.run.seq;
    let resume = || CommandWrite {
        reason: Some("looked at it".into()),
        force: true,
        if_seq: Some(seq),
        ..asking(claimed.run.id(), "resume")
    };
    store.command(resume()).await.unwrap();
    let taken = claim(store, "w2").await.unwrap();
    let before = get(store, taken.run.id()).await;
    assert_eq!(store.command(resume()).await.unwrap().object(), before.object(), "its effect stands");
    let unseen = CommandWrite { if_seq: None, ..resume() };
    assert_eq!(store.command(unseen).await.unwrap().object(), before.object());
    let others = CommandWrite { by: "bob".into(), if_seq: None, ..resume() };
    assert_eq!(code(&store.command(others).await), "INVALID_TRANSITION", "another one's is no repeat");
    let why = CommandWrite { reason: None, if_seq: None, ..resume() };
    assert_eq!(code(&store.command(why).await), "INVALID_TRANSITION");
    assert_eq!(get(store, taken.run.id()).await.run.seq, before.run.seq, "and nothing was written");
}

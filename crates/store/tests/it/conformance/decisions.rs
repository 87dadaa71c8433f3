//! Decisions are asked for and kept in the lifecycle's own words; a lifecycle that has no words for them has none.

use serde_json::json;
use waypost_store::{Claimed, CommandWrite, FinishWrite, NewRun, NoteWrite, Database};

use super::kit::*;

/// Articles that readers have questions about.
pub const REVIEW: &str = r#"
name    = "review"
version = 1
ids     = "rev-{uuid7}"
initial = ["open"]
decisions = { waiting = "unanswered", asked = "questions", given = "verdicts", asked_count = "how-many" }
cancelled_metadata = { dropped_by = "by", "last-reader" = "worker" }

[states]
open    = { phase = "ready" }
reading = { phase = "held", lease = "60s", on_stale = "lose" }
asking  = { phase = "parked" }
printed = { phase = "settled", outcome = "succeeded" }
wrong   = { phase = "settled", outcome = "failed" }
dropped = { phase = "settled", outcome = "cancelled" }

transitions = [
  ["open",    "claim",  "reading", "worker",         ""],
  ["open",    "cancel", "dropped", "client",         ""],
  ["reading", "print",  "printed", "worker",         ""],
  ["reading", "fail",   "wrong",   "worker",         ""],
  ["reading", "ask",    "asking",  "worker",         "has-reason"],
  ["reading", "cancel", "dropped", "client, worker", ""],
  ["reading", "lose",   "dropped", "engine",         ""],
  ["asking",  "answer", "open",    "operator",       "resolved-or-forced"],
  ["asking",  "cancel", "dropped", "client",         ""],
]
"#;

/// The same without a word about decisions.
pub fn silent() -> String {
    let own = |line: &&str| !line.starts_with("decisions") && !line.starts_with("cancelled_metadata");
    let text: Vec<&str> = REVIEW.lines().filter(own).collect();
    text.join("\n").replace("\"review\"", "\"silent\"").replace("resolved-or-forced", "")
}

async fn asks(store: &dyn Database, lifecycle: &str, details: serde_json::Value) -> Claimed {
    store.add_lifecycle(REVIEW.into(), "tests".into()).await.unwrap();
    store.add_lifecycle(silent(), "tests".into()).await.unwrap();
    let claimed = held_run(store, NewRun { items: Vec::new(), ..new(lifecycle) }).await;
    let reason = Some("2 questions".into());
    let end = FinishWrite { reason, details: map(details), ..ending(&claimed, "asking") };
    assert_eq!(write_finish(store, end).await.unwrap().status(), "asking");
    claimed
}

fn answering(run_id: &str, answers: serde_json::Value) -> CommandWrite {
    CommandWrite { resolutions: map(answers), ..asking(run_id, "answer") }
}

// proves J3 and X1
pub async fn a_lifecycle_has_words_of_its_own(store: &dyn Database) {
    let questions = json!({ "title": {"choices": ["keep", "cut"]}, "end": {} });
    let details = json!({ "unanswered": true, "questions": questions, "how-many": 2, "current_blockers": {"h": {}} });
    let claimed = asks(store, "review", details).await;
    let id = claimed.run.id();
    assert_eq!(refusal(command(store, id, "answer").await).guard.map(waypost_kernel::Guard::name), Some("resolved-or-forced"));
    for (given, told) in [
        (json!({"h": "skip", "title": "keep", "end": "x"}), "asked are: end, title"),
        (json!({"title": "burn", "end": "x"}), "allowed: keep, cut"),
    ] {
        let message = store.command(answering(id, given)).await.unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
    let row = store.command(answering(id, json!({"title": "keep", "end": "longer"}))).await.unwrap();
    assert_eq!((row.status(), &row.details["unanswered"]), ("open", &json!(false)));
    assert_eq!(row.details["verdicts"]["end"]["decision"], json!("longer"));
    for foreign in ["awaiting_blocker_resolution", "maintenance_blocker_resolutions"] {
        assert!(!row.details.contains_key(foreign), "{foreign} is another lifecycle's");
    }
    let events = store.events(id.to_owned(), 0, 100).await.unwrap();
    assert_eq!(events.last().unwrap().payload["resolutions"], row.details["verdicts"]);
    let late = store.command(answering(id, json!({"title": "cut", "end": "longer"}))).await;
    assert!(late.unwrap_err().to_string().contains("title was decided already: keep"));
}

// proves J3 and X1
pub async fn a_lifecycle_without_words_for_decisions_takes_none(store: &dyn Database) {
    let details = json!({ "awaiting_blocker_resolution": true, "current_blockers": {"h": {}} });
    let claimed = asks(store, "silent", details).await;
    let id = claimed.run.id();
    let message = store.command(answering(id, json!({"h": "skip"}))).await.unwrap_err().to_string();
    assert!(message.contains("resolutions") && message.contains("a silent run asks for no decisions"), "{message}");
    let row = command(store, id, "answer").await.unwrap();
    assert_eq!((row.status(), &row.details["awaiting_blocker_resolution"]), ("open", &json!(true)));
}

// proves J7
pub async fn a_null_takes_away_what_the_lifecycle_names(store: &dyn Database) {
    for (lifecycle, left) in [
        ("review", json!({ "current_blockers": null })),
        ("silent", json!({ "current_blockers": null, "questions": null })),
    ] {
        let claimed = asks(store, lifecycle, json!({ "questions": {"a": {}}, "current_blockers": {"h": {}} })).await;
        let id = claimed.run.id();
        store.command(CommandWrite { force: true, ..asking(id, "answer") }).await.unwrap();
        let again = claim(store, "w2").await.unwrap();
        let gone = map(json!({ "questions": null, "current_blockers": null }));
        write_note(store, NoteWrite { details: gone, ..saying(&again, "over") }).await.unwrap();
        let row = get(store, id).await;
        assert_eq!(row.object()["details"], left, "{lifecycle}");
        finish(store, &again, "printed").await.unwrap();
    }
}

// proves D7
pub async fn a_lost_run_says_so_in_the_lifecycles_words(store: &dyn Database) {
    for (lifecycle, told) in
        [("review", json!({ "dropped_by": "system", "last-reader": "w1" })), ("silent", json!({}))]
    {
        store.add_lifecycle(REVIEW.into(), "tests".into()).await.unwrap();
        store.add_lifecycle(silent(), "tests".into()).await.unwrap();
        let claimed = held_run(store, NewRun { items: Vec::new(), ..new(lifecycle) }).await;
        advance(store, DAY).await;
        sweep(store).await;
        let row = get(store, claimed.run.id()).await;
        assert_eq!((row.status(), &row.object()["metadata"]), ("dropped", &told));
    }
}

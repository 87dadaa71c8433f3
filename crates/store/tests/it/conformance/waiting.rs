//! Runs that wait for a time in nobody's hands.

use serde_json::json;
use waypost_kernel::{Span, Time};
use waypost_store::{Claim, Claimed, CleanupWrite, CommandWrite, Database, FinishWrite, NewRun, Pause, Wait};
use waypost_testkit::Shorthand;

use super::kit::*;

// proves U6, X5
pub async fn a_run_that_waits_is_taken_when_it_is_due(store: &dyn Database) {
    let first = held_run(store, job(&["a", "b"])).await;
    move_items(store, &first, "step", &[("a", "completed")]).await.unwrap();
    let left = wait(store, &first, 2 * HOUR).await.unwrap();
    let object = left.object();
    assert_eq!((left.status(), object["claimed_by"].is_null()), ("running", true));
    assert_eq!(object["reason"], Wait::WINDOW);
    advance(store, HOUR).await;
    assert!(sweep(store).await.moved.is_empty());
    assert!(claim(store, "w2").await.is_none());
    let early = store.claim_run(first.run.id().into(), "w2".into()).await;
    assert_eq!(code(&early), "NOT_DUE");
    assert_eq!(code(&renew(store, &first).await), "LEASE_LOST");
    advance(store, HOUR + 1).await;
    let second = claim(store, "w2").await.unwrap();
    let run = &second.run.run;
    assert_eq!((run.attempt, run.take_overs, run.fence, run.reason.clone()), (1, 0, 2, None));
    assert_eq!(items(store, second.run.id()).await, ["a=completed", "b=pending"]);
    assert_eq!(commands(store, second.run.id()).await.last().map(String::as_str), Some("take-over"));
}

// proves U6, X5: to the millisecond, whoever asks and how
pub async fn nobody_takes_it_a_moment_early_or_late(store: &dyn Database) {
    for by_id in [true, false] {
        let first = held_run(store, job(&["a"])).await;
        let left = wait(store, &first, HOUR).await.unwrap();
        let until = left.run.lease.as_ref().unwrap().until;
        let now = store.now().await.unwrap();
        store.advance_clock(Span::from_ms((until - now).ms() - 3)).await.unwrap();
        let taken = loop {
            let before = store.now().await.unwrap();
            let taken = match by_id {
                true => store.claim_run(left.id().into(), "w2".into()).await.ok(),
                false => claim(store, "w2").await,
            };
            if let Some(taken) = taken {
                break taken;
            }
            assert!(before < until, "it was due at {until}, and not to be had at {before}");
            store.advance_clock(Span::from_ms(1)).await.unwrap();
        };
        assert!(taken.now >= until, "it was due at {until}, and taken at {}", taken.now);
        finish(store, &taken, "completed").await.unwrap();
    }
}

// proves U6, X5: the day without a taker begins when it is due
pub async fn nobody_has_a_day_to_come(store: &dyn Database) {
    let first = held_run(store, job(&["a"])).await;
    wait(store, &first, 30 * HOUR).await.unwrap();
    advance(store, 53 * HOUR).await;
    assert!(sweep(store).await.moved.is_empty());
    advance(store, 2 * HOUR).await;
    assert_eq!(sweep(store).await.moved, [(first.run.id().to_owned(), "lose".to_owned())]);
}

// proves U6, X8
pub async fn a_cancel_does_not_wait(store: &dyn Database) {
    let plain = held_run(store, job(&["a"])).await;
    wait(store, &plain, HOUR).await.unwrap();
    assert_eq!(command(store, plain.run.id(), "cancel").await.unwrap().status(), "cancelled");

    let unclean = held_run(store, job(&["a"])).await;
    store
        .require_cleanup(CleanupWrite {
            held: held(&unclean),
            by: "w1".into(),
            required: true,
            failing: None,
        })
        .await
        .unwrap();
    wait(store, &unclean, HOUR).await.unwrap();
    advance(store, 60).await;
    assert!(claim(store, "w2").await.is_none());
    let asked = command(store, unclean.run.id(), "cancel").await.unwrap();
    assert_eq!((asked.status(), asked.object()["reason"].is_null()), ("running", true));
    let next = claim(store, "w2").await.unwrap();
    assert_eq!(next.run.id(), unclean.run.id());
}

// proves U6, X8
pub async fn a_pause_does_not_wait(store: &dyn Database) {
    let first = held_run(store, job(&["a"])).await;
    wait(store, &first, HOUR).await.unwrap();
    let pause = CommandWrite { reason: Some("night".into()), ..asking(first.run.id(), "pause") };
    let paused = store.command(pause).await.unwrap();
    assert_eq!((paused.status(), paused.object()["reason"].as_str()), ("paused", Some("night")));
}

// proves U6: whoever is asked for something before he gives the run back has no reason to let it wait
pub async fn what_is_wanted_of_a_run_comes_before_its_wait(store: &dyn Database) {
    let first = held_run(store, job(&["a"])).await;
    command(store, first.run.id(), "cancel").await.unwrap();
    assert_eq!(wait(store, &first, HOUR).await.unwrap().status(), "cancelled");
}

// proves U6, X9: it keeps its concurrency key, and not its place in its queue's limit
pub async fn a_waiting_run_keeps_its_key_and_frees_its_queue(store: &dyn Database) {
    store.limit_queue(QUEUE, Some(1)).await.unwrap();
    let keyed = || NewRun { concurrency_key: Some("prod".into()), ..job(&["a"]) };
    let first = held_run(store, keyed()).await;
    let second = put(store, keyed()).await;
    let other = put(store, job(&["a"])).await;
    wait(store, &first, HOUR).await.unwrap();
    let queue = store.queues(None).await.unwrap().remove(0);
    assert_eq!((queue.ready, queue.scheduled, queue.held), (2, 1, 0));
    let all = Claim { limit: 9, ..wants("w2", 9) };
    let taken = store.claim(all.clone()).await.unwrap();
    assert_eq!(taken.iter().map(|it| it.run.id()).collect::<Vec<_>>(), [other.id()]);
    advance(store, 30).await;
    renew(store, &taken[0]).await.unwrap();
    // When it is due it needs a place again, as everybody does.
    advance(store, HOUR).await;
    let other = store.claim_run(other.id().into(), "w2".into()).await.unwrap();
    let queue = store.queues(None).await.unwrap().remove(0);
    assert_eq!((queue.ready, queue.scheduled, queue.held), (2, 0, 1));
    assert!(store.claim(all.clone()).await.unwrap().is_empty());
    assert_eq!(code(&store.claim_run(first.run.id().into(), "w3".into()).await), "NOT_DUE");
    finish(store, &other, "completed").await.unwrap();
    let taken = store.claim(all.clone()).await.unwrap();
    assert_eq!(taken.iter().map(|it| it.run.id()).collect::<Vec<_>>(), [first.run.id()]);
    assert!(store.claim(all.clone()).await.unwrap().is_empty());
    finish(store, &taken[0], "completed").await.unwrap();
    let taken = store.claim(all).await.unwrap();
    assert_eq!(taken.iter().map(|it| it.run.id()).collect::<Vec<_>>(), [second.id()]);
}

// proves U4, X4: a parked run whose time has come goes on, and not before
pub async fn a_person_has_until_then_to_answer(store: &dyn Database) {
    let first = held_run(store, job(&["a"])).await;
    let until = first.now + Span::from_seconds(2 * HOUR);
    let park = FinishWrite {
        reason: Some("go ahead?".into()),
        goes_on_at: Some(until),
        details: map(json!({ "awaiting_blocker_resolution": true, "current_blockers": { "a": {} } })),
        ..ending(&first, "paused")
    };
    let parked = write_finish(store, park).await.unwrap();
    assert_eq!(parked.run.expires_at, Some(Time::from_ms(until.ms() + i64::from(until.micros() % 1_000 > 0))));
    advance(store, HOUR).await;
    assert!(sweep(store).await.moved.is_empty());
    advance(store, HOUR + 1).await;
    assert_eq!(sweep(store).await.moved, [(parked.id().to_owned(), "resume".to_owned())]);
    let row = get(store, parked.id()).await;
    assert_eq!((row.status(), &row.details["awaiting_blocker_resolution"]), ("pending", &json!(false)));
    assert_eq!((row.run.expires_at, last_event(store, row.id()).await.actor.as_str()), (None, "engine"));
    assert_eq!(claim(store, "w2").await.unwrap().run.run.attempt, 2);
}

/// A run that waits for an answer to `q`, for as many seconds if it is said.
async fn asks(store: &dyn Database, seconds: Option<i64>) -> waypost_store::RunRow {
    let first = held_run(store, job(&["a"])).await;
    let until = seconds.map(|seconds| first.now + Span::from_seconds(seconds));
    let mut about = json!({ "ask": "go ahead?", "choices": ["yes", "no"] });
    if let Some(until) = until {
        about["until"] = json!(waypost_store::iso(until));
    }
    write_finish(store, asking_about(&first, &about, until)).await.unwrap()
}

fn asking_about(claimed: &Claimed, about: &serde_json::Value, until: Option<Time>) -> FinishWrite {
    FinishWrite {
        reason: Some("go ahead?".into()),
        goes_on_at: until,
        details: map(json!({ "awaiting_blocker_resolution": true, "current_blockers": { "q": about } })),
        ..ending(claimed, "paused")
    }
}

fn answering(run_id: &str, choice: &str) -> CommandWrite {
    CommandWrite { resolutions: map(json!({ "q": choice })), ..asking(run_id, "resume") }
}

// proves U4: nobody answers once the run may go on without, though nobody has taken it up yet
pub async fn an_answer_that_comes_too_late_is_refused(store: &dyn Database) {
    let parked = asks(store, Some(HOUR)).await;
    advance(store, HOUR - 60).await;
    let early = asks(store, None).await;
    assert_eq!(store.command(answering(early.id(), "yes")).await.unwrap().status(), "pending", "no time was set");
    advance(store, 61).await;
    let late = store.command(answering(parked.id(), "yes")).await;
    assert_eq!(code(&late), "INVALID_INPUT");
    let message = late.unwrap_err().to_string();
    assert!(message.contains("q: it could be answered until"), "{message}");
    let row = get(store, parked.id()).await;
    assert_eq!((row.status(), row.details.get("maintenance_blocker_resolutions")), ("paused", None));
    assert_eq!(sweep(store).await.moved, [(parked.id().to_owned(), "resume".to_owned())]);
    let row = get(store, parked.id()).await;
    assert_eq!(row.undecided(), Vec::new(), "nobody is asked any more");
}

// proves U4: what was answered in an earlier pause, or in the run that this one repeats, answers no question of this one
pub async fn a_question_is_asked_anew_in_each_pause(store: &dyn Database) {
    let parked = asks(store, None).await;
    assert_eq!(parked.undecided().iter().map(|(subject, _)| *subject).collect::<Vec<_>>(), ["q"]);
    assert_eq!(store.command(answering(parked.id(), "yes")).await.unwrap().status(), "pending");
    let second = claim(store, "w2").await.unwrap();
    let about = json!({ "ask": "go ahead?", "choices": ["yes", "no"] });
    let parked = write_finish(store, asking_about(&second, &about, None)).await.unwrap();
    assert_eq!(parked.undecided().iter().map(|(subject, _)| *subject).collect::<Vec<_>>(), ["q"]);
    assert_eq!(code(&command(store, parked.id(), "resume").await), "INVALID_TRANSITION");
    let row = store.command(answering(parked.id(), "no")).await.unwrap();
    assert_eq!((row.status(), row.undecided()), ("pending", Vec::new()));
    let given = &row.details["maintenance_blocker_resolutions"]["q"];
    assert_eq!((&given["decision"], &given["attempt"]), (&json!("no"), &json!(2)));
    // What is decided about a thing holds in later pauses; a decision of the present one lets the run go on.
    let third = claim(store, "w2").await.unwrap();
    let mut both = asking_about(&third, &json!({}), None);
    both.details.insert("current_blockers".into(), json!({ "q": {}, "h": {} }));
    let parked = write_finish(store, both).await.unwrap();
    assert_eq!(parked.undecided().iter().map(|(subject, _)| *subject).collect::<Vec<_>>(), ["h"]);
    let about_h = CommandWrite { resolutions: map(json!({ "h": "skip" })), ..asking(parked.id(), "resume") };
    assert_eq!(store.command(about_h).await.unwrap().status(), "pending");
}

// proves U4
pub async fn who_answers_in_time_ends_the_wait(store: &dyn Database) {
    let first = held_run(store, job(&["a"])).await;
    let park = FinishWrite {
        reason: Some("go ahead?".into()),
        goes_on_at: Some(first.now + Span::from_seconds(HOUR)),
        ..ending(&first, "paused")
    };
    write_finish(store, park).await.unwrap();
    let force = CommandWrite { force: true, ..asking(first.run.id(), "resume") };
    assert_eq!(store.command(force).await.unwrap().run.expires_at, None);
    advance(store, 2 * HOUR).await;
    assert!(sweep(store).await.moved.is_empty());
}

// proves U6, X9: a limit that comes later does not count it, and a pause keeps it
pub async fn a_limit_that_comes_later_does_not_count_it(store: &dyn Database) {
    let first = held_run(store, job(&["a"])).await;
    wait(store, &first, HOUR).await.unwrap();
    store.limit_queue(QUEUE, Some(1)).await.unwrap();
    put(store, job(&["a"])).await;
    let other = claim(store, "w2").await.unwrap();
    finish(store, &other, "completed").await.unwrap();
    let pause = Pause { by: "ann".into(), reason: "freeze".into(), ..Pause::default() };
    store.pause_queue(QUEUE.into(), Some(pause)).await.unwrap();
    advance(store, 2 * HOUR).await;
    assert!(claim(store, "w2").await.is_none());
    store.pause_queue(QUEUE.into(), None).await.unwrap();
    assert_eq!(claim(store, "w2").await.unwrap().run.id(), first.run.id());
}

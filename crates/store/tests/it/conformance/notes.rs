//! What workers say of their runs.

use serde_json::json;
use waypost_kernel::request::Level;
use waypost_store::{Database, NewRun, NoteWrite, Repeat};

use super::kit::*;

// proves D4
pub async fn the_first_event_begins_the_work(store: &dyn Database) {
    let claimed = held_run(store, deploy()).await;
    assert_eq!(status(store, claimed.run.id()).await, "claimed");
    let noted = note(store, &claimed, "checking out").await.unwrap();
    assert_eq!((noted.seq, noted.repeated), (3, false));
    assert_eq!(status(store, claimed.run.id()).await, "running");
    note(store, &claimed, "building").await.unwrap();
    let said: Vec<(String, String)> =
        events(store, claimed.run.id()).await.into_iter().map(|it| (it.command, it.message)).collect();
    let expected = [
        ("create", "Run queued"),
        ("claim", "Run claimed by worker"),
        ("start", "checking out"),
        ("note", "building"),
    ];
    assert_eq!(said, expected.map(|(command, message)| (command.to_owned(), message.to_owned())));
}

// proves D1 and X4
pub async fn events_are_kept_as_they_were_said(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    for (at, level) in Level::ALL.into_iter().enumerate() {
        let payload = json!({"line": at, "text": "naïve – 😀"});
        let said = NoteWrite { level, payload, by: "w9".into(), ..saying(&claimed, "built\n2 files") };
        let noted = write_note(store, said).await.unwrap();
        let event = last_event(store, claimed.run.id()).await;
        assert_eq!(event.object()["event_id"], noted.event_id.as_str());
        assert_eq!((event.seq, event.level.as_str()), (noted.seq, level.name()));
        assert_eq!((event.message.as_str(), event.by.as_str()), ("built\n2 files", "w9"));
        assert_eq!(event.payload, json!({"line": at, "text": "naïve – 😀"}));
        assert_eq!((event.from.as_deref(), event.to.as_str()), (Some("running"), "running"));
    }
}

// proves D6
pub async fn an_equal_event_within_ten_seconds_is_a_repeat(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let said = || NoteWrite { repeat: Repeat::Window, payload: json!({"a": 1}), ..saying(&claimed, "pushed") };
    let first = write_note(store, said()).await.unwrap();
    let again = write_note(store, said()).await.unwrap();
    assert_eq!((first.repeated, again.repeated), (false, true));
    assert_eq!((&first.event_id, first.seq), (&again.event_id, again.seq));
    let others = [
        NoteWrite { payload: json!({"a": 2}), ..said() },
        NoteWrite { level: Level::Warn, ..said() },
        NoteWrite { message: "pulled".into(), ..said() },
    ];
    for other in others {
        assert!(!write_note(store, other).await.unwrap().repeated, "the payload counts, and so do the others");
    }
    advance(store, 4).await;
    assert!(write_note(store, said()).await.unwrap().repeated);
    advance(store, 20).await;
    let later = write_note(store, said()).await.unwrap();
    assert!(!later.repeated && later.seq > first.seq);
}

// proves D6
pub async fn a_key_is_a_repeat_for_ever(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let said = |message: &str| NoteWrite { repeat: Repeat::Key("k".into()), ..saying(&claimed, message) };
    let first = write_note(store, said("one")).await.unwrap();
    advance(store, 30).await;
    let again = write_note(store, said("two")).await.unwrap();
    assert_eq!((again.repeated, &again.event_id, again.seq), (true, &first.event_id, first.seq));
    assert_eq!(last_event(store, claimed.run.id()).await.message, "one");
    let other = begun_run(store, deploy()).await;
    let there = NoteWrite { repeat: Repeat::Key("k".into()), ..saying(&other, "one") };
    assert!(!write_note(store, there).await.unwrap().repeated, "keys are per run");
    for key in ["", "a\0", &"k".repeat(256)] {
        let wrong = NoteWrite { repeat: Repeat::Key(key.into()), ..saying(&claimed, "x") };
        assert_eq!(code(&write_note(store, wrong).await), "INVALID_INPUT");
    }
}

// proves D6
pub async fn without_a_rule_two_equal_events_are_two(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let first = note(store, &claimed, "tick").await.unwrap();
    let second = note(store, &claimed, "tick").await.unwrap();
    assert_eq!((second.repeated, second.seq), (false, first.seq + 1));
}

// proves X5 and D6
pub async fn a_repeat_needs_the_lease_too(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let said = || NoteWrite { repeat: Repeat::Key("k".into()), ..saying(&claimed, "one") };
    write_note(store, said()).await.unwrap();
    let mut stale = said();
    stale.held.token = waypost_kernel::Token(claimed.token.0 ^ 1);
    assert_eq!(code(&write_note(store, stale).await), "LEASE_LOST");
    finish(store, &claimed, "success").await.unwrap();
    assert_eq!(code(&write_note(store, said()).await), "LEASE_LOST");
}

// proves J7
pub async fn metadata_and_details_are_merged(store: &dyn Database) {
    let asked = NewRun {
        metadata: map(json!({"a": 1, "b": {"c": 1}})),
        details: map(json!({"x": 1})),
        ..deploy()
    };
    let claimed = held_run(store, asked).await;
    let said = NoteWrite {
        metadata: map(json!({"b": {"d": 2}, "e": null})),
        details: map(json!({"y": [1]})),
        ..saying(&claimed, "found")
    };
    write_note(store, said).await.unwrap();
    let row = get(store, claimed.run.id()).await;
    assert_eq!(json!(row.metadata), json!({"a": 1, "b": {"d": 2}, "e": null}), "member by member");
    assert_eq!(json!(row.details), json!({"x": 1, "y": [1]}));
}

// proves X3
pub async fn a_repeat_writes_nothing(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let said = |value: i32| NoteWrite {
        repeat: Repeat::Window,
        metadata: map(json!({"value": value})),
        ..saying(&claimed, "same")
    };
    write_note(store, said(1)).await.unwrap();
    let before = get(store, claimed.run.id()).await.object();
    assert!(write_note(store, said(2)).await.unwrap().repeated);
    assert_eq!(get(store, claimed.run.id()).await.object(), before);
}

// proves X10
pub async fn what_a_worker_says_is_cleaned_and_cut_but_never_refused(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let said = NoteWrite {
        payload: json!({"nul\0": "a\0b"}),
        by: "w\0".into(),
        ..saying(&claimed, "nul \0 bell \u{7} end")
    };
    write_note(store, said).await.unwrap();
    let event = last_event(store, claimed.run.id()).await;
    assert_eq!(event.message, "nul \u{fffd} bell \u{fffd} end");
    assert_eq!(event.payload, json!({"nul\u{fffd}": "a\u{fffd}b"}));
    assert!(!event.by.contains('\0'));
    let long = "é".repeat(100_000);
    let said = NoteWrite { payload: json!({"log": long.clone()}), ..saying(&claimed, &long) };
    write_note(store, said).await.unwrap();
    let event = last_event(store, claimed.run.id()).await;
    assert!(event.message.len() <= 64 * 1024 && event.message.ends_with("… [cut]"));
    assert_eq!(event.payload["cut"], true);
    assert!(event.payload.to_string().len() <= 64 * 1024);
}

// proves X4 and X5
pub async fn many_who_speak_at_once_leave_no_gap(store: &dyn Database) {
    let claimed = begun_run(store, deploy()).await;
    let seqs = in_parallel(16, |at| {
        let claimed = &claimed;
        async move {
            let mut seqs = Vec::new();
            for line in 0..10 {
                seqs.push(note(store, claimed, &format!("{at} {line}")).await.unwrap().seq);
            }
            seqs
        }
    });
    assert!(seqs.iter().all(|own| own.is_sorted()));
    let mut all: Vec<u64> = seqs.into_iter().flatten().collect();
    all.sort_unstable();
    assert!(all.into_iter().eq(4..164));
}

// proves X10
pub async fn an_event_whose_metadata_do_not_fit_is_refused(store: &dyn Database) {
    let half = "x".repeat(600 * 1024);
    let claimed = begun_run(store, NewRun { metadata: map(json!({ "a": half.clone() })), ..deploy() }).await;
    let said = |name: &str| NoteWrite {
        metadata: map(json!({ name: half.clone() })),
        ..saying(&claimed, &format!("about {name}"))
    };
    let before = get(store, claimed.run.id()).await.object();
    let (field, message) = invalid(write_note(store, said("b")).await);
    assert_eq!(field, "metadata");
    assert!(message.starts_with("would be 12288") && message.contains("at most 1048576"), "{message}");
    assert_eq!(get(store, claimed.run.id()).await.object(), before, "nothing is written");
    write_note(store, said("a")).await.unwrap();
}

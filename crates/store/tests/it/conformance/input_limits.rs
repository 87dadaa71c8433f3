//! What comes in has limits, and is refused with the field named.

use serde_json::{Value, json};
use waypost_store::{CommandWrite, Database, NewRun, Pause};
use waypost_testkit::Shorthand;

use super::kit::*;

const MEBIBYTE: usize = 1024 * 1024;

// proves X10
pub async fn names_and_keys_are_short_and_have_no_nul(store: &dyn Database) {
    let long = "n".repeat(256);
    for text in ["", "a\0b", &long] {
        let some = || Some(text.to_owned());
        let cases = [
            ("tenant", NewRun { tenant: text.into(), ..deploy() }),
            ("queue", NewRun { queue: text.into(), ..deploy() }),
            ("idempotency_key", NewRun { idempotency_key: some(), ..deploy() }),
            ("concurrency_key", NewRun { concurrency_key: some(), ..deploy() }),
            ("correlation_id", NewRun { correlation_id: some(), ..deploy() }),
            ("title", NewRun { title: some(), ..deploy() }),
            ("playbook", NewRun { playbook: some(), ..deploy() }),
            ("parent_run_id", NewRun { parent_run_id: some(), ..deploy() }),
            ("retry_of", NewRun { retry_of: some(), ..deploy() }),
        ];
        for (field, asked) in cases {
            assert_eq!(invalid(try_put(store, asked).await).0, field, "{text:?}");
        }
    }
    let fits = "é".repeat(127);
    let asked = NewRun {
        tenant: fits.clone(),
        queue: fits.clone(),
        idempotency_key: Some(fits.clone()),
        concurrency_key: Some(fits.clone()),
        correlation_id: Some("a'b\"c;--%_\\ \u{202e}".into()),
        ..deploy()
    };
    let run = put(store, asked).await;
    assert_eq!(run.correlation_id.as_deref(), Some("a'b\"c;--%_\\ \u{202e}"));
    assert_eq!(store.run(fits.clone(), run.id().into()).await.unwrap().queue, fits);
}

// proves X10
pub async fn payloads_have_a_size(store: &dyn Database) {
    let text = |bytes: usize| json!({"k": "x".repeat(bytes - 8)});
    let fits = NewRun {
        input: text(MEBIBYTE),
        metadata: map(text(MEBIBYTE)),
        details: map(text(MEBIBYTE / 4 * 3)),
        ..deploy()
    };
    assert_eq!(put(store, fits).await.input.to_string().len(), MEBIBYTE);
    let over = || text(MEBIBYTE + 1);
    for (field, asked) in [
        ("metadata", NewRun { metadata: map(text(10 * MEBIBYTE)), ..deploy() }),
        ("input", NewRun { input: over(), ..deploy() }),
        ("metadata", NewRun { metadata: map(over()), ..deploy() }),
        ("embedded", NewRun { carried: Some(over()), ..deploy() }),
    ] {
        let (named, message) = invalid(try_put(store, asked).await);
        assert_eq!(named, field);
        assert!(message.contains("1048576"), "the limit is named: {message}");
    }
    // The engine's own members have the last quarter, each its share.
    for (field, room, details) in [
        ("details", "786432", text(MEBIBYTE / 4 * 3 + 1)),
        ("details.console_log", "49152", json!({"console_log": ["x".repeat(49_149)]})),
    ] {
        let (named, message) = invalid(try_put(store, NewRun { details: map(details), ..deploy() }).await);
        assert_eq!(named, field);
        assert!(message.contains(room), "the limit is named: {message}");
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

// proves X10
pub async fn payloads_have_a_depth_and_no_nul(store: &dyn Database) {
    put(store, NewRun { input: nested(64), ..deploy() }).await;
    for (field, asked) in [
        ("input", NewRun { input: nested(65), ..deploy() }),
        ("input", NewRun { input: json!({"a": ["b\0"]}), ..deploy() }),
        ("metadata", NewRun { metadata: map(json!({"a\0": 1})), ..deploy() }),
        ("details", NewRun { details: map(json!({"a": {"b": "\0"}})), ..deploy() }),
    ] {
        assert_eq!(invalid(try_put(store, asked).await).0, field);
    }
}

// proves X10
pub async fn what_json_can_say_is_kept(store: &dyn Database) {
    let input = json!({
        "null": null, "yes": true, "max": u64::MAX, "min": i64::MIN, "float": 0.1, "small": 5e-324,
        "digits": [1.4527347821689774e-34, 2.5628235751480467e-265, 4.724831733247005e243, 0.30000000000000004],
        "text": "naïve 😀 \u{1}\u{7f}\u{feff}\u{2028}", "": {"empty": [[], {}]}, "quote\"'\\": "\r\n\t",
    });
    let run = put(store, NewRun { input: input.clone(), metadata: map(input.clone()), ..deploy() }).await;
    let row = get(store, run.id()).await;
    assert_eq!(((*row.input).clone(), json!(row.metadata)), (input.clone(), input));
    for plain in [json!(null), json!("text"), json!([1, 2]), json!(4.5)] {
        let run = put(store, NewRun { input: plain.clone(), ..deploy() }).await;
        assert_eq!(*get(store, run.id()).await.input, plain);
    }
}

// proves X10
pub async fn people_are_told_what_is_too_long(store: &dyn Database) {
    let run = put(store, deploy()).await;
    for reason in ["r".repeat(1_025), "a\0b".into()] {
        let because = CommandWrite { reason: Some(reason.clone()), ..asking(run.id(), "cancel") };
        assert_eq!(invalid(store.command(because).await).0, "reason");
        let pause = Pause { by: "ann".into(), reason, at: None };
        assert_eq!(invalid(store.pause_queue(QUEUE.into(), Some(pause)).await).0, "reason");
    }
    let by = CommandWrite { by: "a\0".into(), ..asking(run.id(), "cancel") };
    assert_eq!(invalid(store.command(by).await).0, "by");
    assert_eq!(code(&store.pause_queue(String::new(), None).await), "INVALID_INPUT");
    assert_eq!(code(&store.limit_key("a\0", Some(1)).await), "INVALID_INPUT");
    let fits = CommandWrite { reason: Some("ї".repeat(1_024)), ..asking(run.id(), "cancel") };
    assert_eq!(store.command(fits).await.unwrap().status(), "cancelled");
}

pub async fn ids_that_nobody_made_are_not_found(store: &dyn Database) {
    let claimed = held_run(store, deploy()).await;
    for id in ["", "a\0b", "../../etc/passwd", "' OR ''='", &"x".repeat(100_000)] {
        assert_eq!(code(&store.claim_run(id.into(), "w1".into()).await), "NOT_FOUND");
        assert_eq!(code(&command(store, id, "cancel").await), "NOT_FOUND");
        assert_eq!(code(&store.items(id.into(), None).await), "NOT_FOUND");
        let held = waypost_store::Held { run_id: id.into(), token: claimed.token };
        assert_eq!(code(&store.renew(vec![held]).await.unwrap()[0]), "NOT_FOUND");
    }
}

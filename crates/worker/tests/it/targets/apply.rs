//! Targets against a shop that throttles, fails and loses its answers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use waypost_kernel::breaker::State;
use waypost_kernel::{Phase, Span};
use waypost_worker::{Outcome, TargetCall, TargetHandlers};

use super::kit::{REST, Stage, settings};
use crate::support::{On, eventually, open};

// proves R2, R3, R4, R7, R9
#[tokio::test(flavor = "multi_thread")]
async fn every_target_ends_applied_or_failed_and_no_change_is_made_twice() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let faults = ["permanent=10%", "transient=5%", "lost=10%", "cut=5%"];
        let mut stage = Stage::new(store, 120, settings(&faults));
        let id = stage.queued(REST).await;
        let run = stage.worked(&id).await;
        let refused = stage.refused_for_good();
        assert!(!refused.is_empty() && run.status() == "PARTIAL", "{} {refused:?}", run.status());
        let changed = stage.changed_once(&id).await;
        for (id, target) in stage.targets(&id).await {
            let class = target.failure.as_ref().map(|failure| failure.code.to_string());
            match refused.contains(&id) {
                true => {
                    let class = class.unwrap();
                    assert!(class == "VALIDATION" || class == "AUTHORIZATION", "{class}");
                    assert_eq!(target.status, "FAILED", "{target:?}");
                }
                false => assert_eq!((target.status.as_str(), class), ("APPLIED", None), "{target:?}"),
            }
            assert_eq!(changed.contains(&id), !refused.contains(&id));
        }
        stage.own.verify().await;
    }
}

// proves R3, R5, R15
#[tokio::test(flavor = "multi_thread")]
async fn shopify_throttles_inside_a_200_and_the_run_waits_in_nobodys_hands() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut settings = settings(&["permanent=10%"]);
        settings.faults.0.insert(
            "rate_limited".to_owned(),
            serde_json::from_value(json!({"only": ["/products/7"]})).unwrap(),
        );
        let token = stage_token();
        let mut stage = Stage::with_token(store, 40, settings, Some(&token));
        let path = stage.own.path("token");
        std::fs::write(&path, &token).unwrap();
        let rest = format!(
            "[apply]\nshopify = {{ shop = \"{{{{ inputs.shop }}}}\", token = \"{{{{ secrets.token }}}}\", allow_private = true }}\n[secrets]\ntoken = \"file:{}\"\n[limit]\ncost = {{ call = 10, rate = \"100000/s\", burst = 100000 }}\n",
            path.display()
        );
        let id = stage.queued(&rest).await;
        stage.own.work().await;
        let run = stage.own.run(&id).await;
        let waits = stage.targets(&id).await;
        let throttled = &waits[&7];
        assert_eq!(
            (run.phase(), run.run.lease.as_ref().and_then(|lease| lease.worker.clone())),
            (Phase::Held, None),
            "{on:?}"
        );
        assert_eq!((throttled.status.as_str(), throttled.attempts, throttled.throttled), ("QUEUED", 0, 1));
        stage.own.store.advance_clock(Span::from_seconds(20)).await.unwrap();
        let run = stage.worked(&id).await;
        assert_eq!(run.status(), "PARTIAL");
        let (refused, changed) = (stage.refused_for_good(), stage.changed_once(&id).await);
        let all: BTreeSet<u64> = (1..=40).collect();
        assert_eq!(&all - &refused, changed);
        for id_of in &refused {
            let failure = stage.targets(&id).await[id_of].failure.clone().unwrap();
            assert_eq!(&*failure.code, "VALIDATION");
            assert!(failure.message.contains("INVALID_INPUT"), "{}", failure.message);
        }
        let destinations = stage.own.store.destinations(None).await.unwrap();
        assert_eq!(destinations.len(), 1);
        assert!(
            destinations[0].throttled == 1 && destinations[0].state.bucket.rate_milli_per_s == 100_000_000
        );
    }
}

fn stage_token() -> String {
    "shpat-0123456789".to_owned()
}

// proves R1
#[tokio::test(flavor = "multi_thread")]
async fn a_401_stops_the_run_and_a_missing_secret_too() {
    for (secret, code) in [("file:/nonexistent/token", "AUTHORIZATION"), ("env:PATH", "AUTHORIZATION")] {
        let (store, _kept) = open(On::Sqlite).await;
        let mut stage = Stage::with_token(store, 30, settings(&[]), Some("the-right-one"));
        let rest = format!(
            "{}[secrets]\ntoken = \"{secret}\"\n",
            REST.replace(
                "allow_private",
                "headers = { Authorization = \"Bearer {{ secrets.token }}\" }, allow_private"
            )
        );
        let id = stage.queued(&rest).await;
        let run = stage.worked(&id).await;
        assert_eq!((run.status(), stage.shop.state().changes().len()), ("FAILED", 0));
        let counted = stage.counted(&id).await;
        assert_eq!(counted.keys().collect::<Vec<_>>(), [&format!("FAILED {code}")], "{secret}");
    }
}

// proves R12
#[tokio::test(flavor = "multi_thread")]
async fn a_target_past_a_guardrail_fails_or_stops_the_run() {
    for (on_violation, status, classes) in [
        ("fail", "PARTIAL", &["APPLIED", "FAILED GUARDRAIL"][..]),
        ("stop", "FAILED", &["FAILED STOPPED"][..]),
    ] {
        let (store, _kept) = open(On::Sqlite).await;
        let mut stage = Stage::new(store, 40, settings(&[]));
        let rest = format!("{REST}[guardrails]\nfloor = 2\non_violation = \"{on_violation}\"\n");
        let id = stage.queued(&rest).await;
        let run = stage.worked(&id).await;
        let counted = stage.counted(&id).await;
        assert_eq!(run.status(), status, "{counted:?}");
        let found: Vec<&str> = counted
            .keys()
            .map(String::as_str)
            .filter(|class| *class != "FAILED GUARDRAIL" || on_violation == "fail")
            .collect();
        assert_eq!(found, classes, "{counted:?}");
        assert_eq!(stage.shop.state().changes().is_empty(), on_violation == "stop");
    }
}

// proves R1
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_lets_what_is_under_way_end_and_the_rest_is_failed() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 200, settings(&[]));
        stage.own.options.grace = Duration::from_secs(10);
        let id = stage.queued(&format!("{REST}parallel = 2\n[limit]\nrate = \"20/s\"\nburst = 5\n")).await;
        let worker = stage.own.start();
        eventually("some are changed", async || (stage.shop.state().changes().len() > 3).then_some(())).await;
        stage.own.cancel(&id).await;
        let run = stage.own.until_settled(&id).await;
        worker.stop().await;
        assert_eq!(run.status(), "PARTIAL");
        let targets = stage.targets(&id).await;
        let changed = stage.changed_once(&id).await;
        for (id, target) in &targets {
            assert_eq!(target.status == "APPLIED", changed.contains(id), "{target:?}");
            assert!(target.status == "APPLIED" || target.status == "FAILED", "{target:?}");
        }
        stage.own.verify().await;
    }
}

// proves R2, R9
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_leaves_no_target_stuck_and_none_is_changed_twice() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 150, settings(&["lost=10%"]));
        let id = stage.queued(&format!("{REST}[limit]\nrate = \"100/s\"\nburst = 5\n")).await;
        let worker = stage.own.start();
        eventually("some are changed", async || (stage.shop.state().changes().len() > 20).then_some(()))
            .await;
        worker.die().await;
        stage.own.options.name = "w2".to_owned();
        stage.own.store.advance_clock(Span::from_seconds(120)).await.unwrap();
        let run = stage.worked(&id).await;
        assert_eq!(run.status(), "APPLIED", "{:?}", stage.counted(&id).await);
        assert_eq!(stage.changed_once(&id).await.len(), 150);
        stage.own.verify().await;
    }
}

// proves R6
#[tokio::test(flavor = "multi_thread")]
async fn six_429s_in_a_row_open_the_breaker_and_the_run_is_given_back_meanwhile() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 30, settings(&["rate_limited=100%x0"]));
        let id = stage.queued(&format!("{REST}parallel = 2\n")).await;
        stage.own.work().await;
        let run = stage.own.run(&id).await;
        assert!(
            run.phase() == Phase::Held && run.run.lease.as_ref().is_none_or(|lease| lease.worker.is_none())
        );
        let destination = stage.own.store.destinations(None).await.unwrap().remove(0);
        assert!(matches!(destination.state.breaker.state, State::Open { .. }), "{destination:?}");
        // Those that were under way when the sixth came count too.
        assert!((6..=8).contains(&destination.throttled), "{destination:?}");
        let told = stage.own.messages(&id).await;
        assert_eq!(told.iter().filter(|message| message.contains("no calls for 1m")).count(), 1, "{told:?}");
        let healed = reqwest::Client::new().delete(format!("{}/admin/faults", stage.shop.url())).send().await;
        assert!(healed.unwrap().status().is_success());
        stage.own.store.advance_clock(Span::from_seconds(70)).await.unwrap();
        let run = stage.worked(&id).await;
        assert_eq!((run.status(), stage.changed_once(&id).await.len()), ("APPLIED", 30), "{on:?}");
        let destination = stage.own.store.destinations(None).await.unwrap().remove(0);
        assert_eq!(destination.state.breaker.state, State::Closed);
    }
}

// proves R12
#[tokio::test(flavor = "multi_thread")]
async fn a_target_changes_so_often_a_day_and_no_more() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 6, settings(&[]));
        let playbook =
            stage.playbook(&format!("{REST}[guardrails]\nper_day = 1\ntimezone = \"Europe/Kyiv\"\n"));
        // Both are previewed before anything is changed: the day is judged again when they are applied.
        let (first, _) = stage.gathered(&playbook).await.unwrap();
        let (second, preview) = stage.gathered(&playbook).await.unwrap();
        assert_eq!(preview.stopped, 0);
        stage.ask(first.id(), "queue").await;
        assert_eq!(stage.worked(first.id()).await.status(), "APPLIED");
        stage.ask(second.id(), "queue").await;
        assert_eq!(stage.worked(second.id()).await.status(), "FAILED");
        assert_eq!(stage.counted(second.id()).await.keys().collect::<Vec<_>>(), ["FAILED GUARDRAIL"]);
        let (_, preview) = stage.gathered(&playbook).await.unwrap();
        assert_eq!((preview.stopped, &preview.totals["stopped_by"]), (6, &json!({"per_day": 6})), "{on:?}");
        stage.own.store.advance_clock(Span::from_seconds(24 * 3_600)).await.unwrap();
        let (_, preview) = stage.gathered(&playbook).await.unwrap();
        assert_eq!(preview.stopped, 0, "it is another day");
    }
}

// proves R4, R9
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_in_rust_changes_targets_too() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 4, settings(&[]));
    let keys = Arc::new(Mutex::new(Vec::new()));
    let heard = keys.clone();
    let handler = move |call: TargetCall| {
        heard.lock().unwrap().push(call.idempotency_key.clone());
        let id = call.target["id"].as_str().unwrap_or_default().to_owned();
        let is_first = call.idempotency_key.ends_with(":1");
        async move {
            match id.as_str() {
                "2" => Outcome::fail("NOT_FOUND", "it is gone"),
                "3" if is_first => {
                    Outcome { retry_after: Some(Duration::from_millis(1)), ..Outcome::retry("busy") }
                }
                "4" => panic!("a handler's own fault"),
                _ => Outcome::done(),
            }
        }
    };
    stage.own.options.target_handlers = TargetHandlers::default().with("reprice", handler);
    let id = stage.queued("[apply]\nhandler = \"reprice\"\n").await;
    let run = stage.worked(&id).await;
    let counted = stage.counted(&id).await;
    assert_eq!(run.status(), "PARTIAL", "{counted:?}");
    assert_eq!(counted.keys().collect::<Vec<_>>(), ["APPLIED", "FAILED NOT_FOUND", "FAILED VALIDATION"]);
    let heard = keys.lock().unwrap().clone();
    assert!(
        heard.contains(&format!("{id}:3:apply:1")) && heard.contains(&format!("{id}:3:apply:2")),
        "{heard:?}"
    );
    // Another worker may have it.
    let missing = stage.queued("[apply]\nhandler = \"no-such\"\n").await;
    stage.own.work().await;
    assert_eq!(stage.own.run(&missing).await.phase(), Phase::Ready);
}

// proves R9
#[tokio::test(flavor = "multi_thread")]
async fn a_429_after_silence_leaves_the_key_as_it_is() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 1, settings(&[]));
    let keys = Arc::new(Mutex::new(Vec::new()));
    let heard = keys.clone();
    let handler = move |call: TargetCall| {
        let mut heard = heard.lock().unwrap();
        heard.push(call.idempotency_key.clone());
        let number = heard.len();
        async move {
            let soon = |code: &str| Outcome {
                code: Some(code.to_owned()),
                retry_after: Some(Duration::from_millis(1)),
                ..Outcome::retry("later")
            };
            match number {
                // It may have been done.
                1 => std::future::pending().await,
                2 | 3 => soon("THROTTLED"),
                4 => soon("TEMPORARILY_UNAVAILABLE"),
                _ => Outcome::done(),
            }
        }
    };
    stage.own.options.target_handlers = TargetHandlers::default().with("reprice", handler);
    let id = stage.queued("[apply]\nhandler = \"reprice\"\ntimeout = \"1s\"\n").await;
    assert_eq!(stage.worked(&id).await.status(), "APPLIED");
    let same = format!("{id}:1:apply:1");
    assert_eq!(keys.lock().unwrap()[..4], [same.clone(), same.clone(), same.clone(), same]);
}

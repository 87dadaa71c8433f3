//! What runs call outside: a limit and a breaker that all workers share.

use waypost_kernel::Span;
use waypost_kernel::breaker::{Alert, Settings};
use waypost_kernel::bucket::Reported;
use waypost_kernel::destination::{CallAnswer, Limit};
use waypost_store::{Admit, Admitted, Answered, Database};

use super::kit::*;

const LIMIT: Limit = Limit {
    capacity_milli: 40_000,
    rate_milli_per_s: 2_000,
    breaker: Settings {
        after: 5,
        pause: Span::from_seconds(60),
        probe_timeout: Span::from_seconds(60),
    },
};

fn asking_for(calls: u32) -> Admit {
    Admit {
        tenant: TENANT.into(),
        destination: "shop".into(),
        limit: LIMIT,
        calls,
        cost_milli: 1_000,
    }
}

async fn admit(store: &dyn Database, calls: u32) -> Admitted {
    store.admit(asking_for(calls)).await.unwrap()
}

fn answers(answers: &[CallAnswer]) -> Answered {
    Answered {
        tenant: TENANT.into(),
        destination: "shop".into(),
        answers: answers.to_vec(),
        unused_milli: 0,
    }
}

const OK: CallAnswer = CallAnswer { throttled: false, retry_after: None, reported: None };
const THROTTLED: CallAnswer = CallAnswer { throttled: true, ..OK };

// proves R6
pub async fn forty_calls_at_once_and_then_two_a_second(store: &dyn Database) {
    assert_eq!(admit(store, 30).await.granted, 30);
    let second = admit(store, 30).await;
    assert!((10..=14).contains(&second.granted), "{second:?}");
    let none = admit(store, 30).await;
    if none.granted == 0 {
        let wait = none.until.unwrap() - none.now;
        assert!(wait > Span::ZERO && wait <= Span::from_seconds(1), "{wait}");
    }
    advance(store, 5).await;
    let later = admit(store, 30).await.granted;
    assert!((10..=20).contains(&later), "{later}");
    let other = Admit { destination: "warehouse".into(), ..asking_for(30) };
    assert_eq!(store.admit(other).await.unwrap().granted, 30, "each has its own");
    let theirs = Admit { tenant: "other".into(), ..asking_for(30) };
    assert_eq!(store.admit(theirs).await.unwrap().granted, 30);
    let rows = store.destinations(Some(TENANT.into())).await.unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["shop", "warehouse"]);
    assert_eq!(store.destinations(None).await.unwrap().len(), 3);
}

// proves R6
pub async fn permits_are_given_once_however_many_ask(store: &dyn Database) {
    let granted = in_parallel(8, |_| async {
        let mut granted = 0;
        for _ in 0..5 {
            granted += store.admit(asking_for(3)).await.unwrap().granted;
        }
        granted
    });
    let all: u32 = granted.iter().sum();
    // Some seconds may pass meanwhile.
    assert!((40..=70).contains(&all), "{all}");
}

// proves R6
pub async fn six_throttled_answers_open_it_for_all(store: &dyn Database) {
    admit(store, 10).await;
    let row = store.answered(answers(&[THROTTLED; 3])).await.unwrap();
    assert_eq!((row.alert, row.state.breaker.consecutive), (None, 3));
    let row = store.answered(answers(&[THROTTLED; 2])).await.unwrap();
    assert_eq!(row.alert, None);
    let row = store.answered(answers(&[THROTTLED])).await.unwrap();
    assert_eq!((row.alert, row.calls, row.throttled), (Some(Alert::Opened), 6, 6));
    let again = store.answered(answers(&[THROTTLED])).await.unwrap();
    assert_eq!((again.alert, again.opened), (None, 1), "once");
    let shut = admit(store, 5).await;
    assert!(shut.granted == 0 && about(shut.until.unwrap() - shut.now, 60), "{shut:?}");
    advance(store, 61).await;
    let probe = admit(store, 5).await;
    assert_eq!((probe.granted, probe.is_probe), (1, true));
    assert_eq!(admit(store, 5).await.granted, 0, "one probe");
    let row = store.answered(answers(&[OK])).await.unwrap();
    assert_eq!(row.alert, Some(Alert::Closed));
    assert_eq!(admit(store, 5).await.granted, 5);
}

// proves R5
pub async fn a_destination_tells_what_is_left(store: &dyn Database) {
    admit(store, 1).await;
    let wait = CallAnswer { retry_after: Some(Span::from_seconds(600)), ..THROTTLED };
    store.answered(answers(&[wait])).await.unwrap();
    let shut = admit(store, 5).await;
    assert!(shut.granted == 0 && about(shut.until.unwrap() - shut.now, 600), "{shut:?}");
    advance(store, 700).await;
    let reported =
        Reported { available_milli: 3_000, rate_milli_per_s: Some(1), capacity_milli: Some(1_000_000) };
    let row = store.answered(answers(&[CallAnswer { reported: Some(reported), ..OK }])).await.unwrap();
    assert_eq!((row.state.bucket.capacity_milli, row.state.bucket.available_milli), (1_000_000, 3_000));
    assert_eq!(admit(store, 5).await.granted, 3, "what it told stands against what is asked with");
    let back = Answered { unused_milli: 2_000, ..answers(&[]) };
    store.answered(back).await.unwrap();
    assert_eq!(admit(store, 5).await.granted, 2);
    let another = Admit { limit: Limit { capacity_milli: 10_000, rate_milli_per_s: 1_000_000, ..LIMIT }, ..asking_for(50) };
    store.admit(another.clone()).await.unwrap();
    advance(store, 1).await;
    assert_eq!(store.admit(another).await.unwrap().granted, 10);
}

// proves R12
pub async fn a_burst_slows_it_down_to_half(store: &dyn Database) {
    admit(store, 1).await;
    let mut paces = Vec::new();
    for burst in [true, true, true, true, true, true, false] {
        let row = store.pace_destination(TENANT.into(), "shop".into(), burst).await.unwrap();
        paces.push(row.state.bucket.pace_percent);
    }
    assert_eq!(paces, [90, 80, 70, 60, 50, 50, 55]);
}

// proves R6
pub async fn what_is_no_destination_is_refused(store: &dyn Database) {
    let wrong = |limit: Limit| Admit { limit, ..asking_for(1) };
    for (ask, field) in [
        (Admit { destination: String::new(), ..asking_for(1) }, "destination"),
        (Admit { destination: "x".repeat(600), ..asking_for(1) }, "destination"),
        (wrong(Limit { capacity_milli: 0, ..LIMIT }), "capacity_milli"),
        (wrong(Limit { rate_milli_per_s: 1 << 60, ..LIMIT }), "rate_milli_per_s"),
        (wrong(Limit { breaker: Settings { pause: Span::from_seconds(90_000), ..LIMIT.breaker }, ..LIMIT }), "pause_ms"),
    ] {
        assert_eq!(invalid(store.admit(ask).await).0, field);
    }
    assert_eq!(invalid(store.answered(answers(&[OK])).await).0, "destination");
    assert_eq!(invalid(store.answered(answers(&[OK; 1_001])).await).0, "answers");
    assert_eq!(invalid(store.pace_destination(TENANT.into(), "shop".into(), true).await).0, "destination");
    assert!(store.destinations(None).await.unwrap().is_empty());
}

use super::*;
use Status::{Firing, Ok, Pending};

fn at(second: i64) -> Time {
    Time::from_ms(1_771_056_000_000 + second * 1_000)
}

fn play(name: &str, values: &[(i64, Option<i64>, Status)]) -> Condition {
    let policy = Policy::named(name).expect("a known policy");
    let mut it = Condition::default();
    for (second, value, status) in values {
        it = it.evaluated(policy, value.map(|value| value * 1_000), at(*second));
        assert_eq!(it.status, *status, "{name}: {value:?} at {second}");
    }
    it
}

// proves R13
#[test]
fn a_figure_has_to_be_bad_for_a_while_and_well_for_a_while() {
    let low = [
        (0, Some(96), Pending),
        (30, Some(97), Ok),
        (60, Some(96), Pending),
        (90, Some(10), Pending),
        (120, Some(96), Firing),
        (150, Some(97), Firing),
        (180, Some(98), Firing),
        (210, Some(97), Firing),
        (240, Some(98), Firing),
        (270, Some(99), Firing),
        (300, Some(98), Ok),
    ];
    let it = play("low-success-rate", &low);
    assert_eq!((it.episode, it.fired_at, it.resolved_at), (1, Some(at(120)), Some(at(300))));
    let backlog = [
        (0, Some(50), Ok),
        (30, Some(51), Pending),
        (90, Some(51), Firing),
        (120, Some(46), Firing),
        (150, Some(45), Firing),
        (210, Some(45), Ok),
    ];
    assert_eq!(play("dlq-backlog", &backlog).episode, 1);
}

// proves R13
#[test]
fn without_targets_there_is_no_alert() {
    play(
        "critical-success-rate",
        &[(0, None, Ok), (600, None, Ok), (900, Some(0), Pending), (930, None, Ok)],
    );
    let it = play(
        "critical-success-rate",
        &[(0, Some(0), Pending), (60, Some(0), Firing), (90, None, Firing), (150, None, Ok)],
    );
    assert_eq!(it.episode, 1);
}

// proves R13
#[test]
fn a_burst_fires_at_the_fourth_and_again_later() {
    let burst = [
        (0, Some(3), Ok),
        (30, Some(4), Firing),
        (60, Some(2), Firing),
        (90, Some(1), Ok),
        (120, Some(9), Firing),
    ];
    assert_eq!(play("429-burst", &burst).episode, 2);
    assert_eq!(
        play("breaker-open", &[(0, Some(0), Ok), (30, Some(1), Firing), (60, Some(0), Ok)]).episode,
        1
    );
}

// proves R6, R13
#[test]
fn a_sink_is_told_once_that_it_fires_and_once_that_it_is_over() {
    let firing = Condition { status: Firing, episode: 3, ..Condition::default() };
    let over = Condition { status: Ok, ..firing };
    let told = |is_firing, sent_at: Option<i64>| Delivery {
        episode: 3,
        is_firing,
        sent_at: sent_at.map(at),
        next_at: at(60),
        tries: 1,
        error: None,
    };
    let earlier = Delivery { episode: 2, ..told(false, Some(0)) };
    let again = Some(Span::from_seconds(60));
    for (what, condition, last, again, silenced, second, due_as) in [
        ("nobody was told", firing, None, None, false, 0, Some((true, 1))),
        ("of an earlier one alone", firing, Some(earlier.clone()), None, false, 0, Some((true, 1))),
        ("silenced", firing, None, None, true, 0, None),
        ("somebody sends it", firing, Some(told(true, None)), None, false, 59, None),
        ("whoever sent it died", firing, Some(told(true, None)), None, false, 60, Some((true, 2))),
        ("it was sent", firing, Some(told(true, Some(1))), None, false, 9_999, None),
        ("sent to who forgets", firing, Some(told(true, Some(1))), again, false, 60, None),
        ("who forgets is told again", firing, Some(told(true, Some(1))), again, false, 61, Some((true, 1))),
        ("over, and nobody was told", over, None, None, false, 0, None),
        ("over, and told of an earlier one", over, Some(earlier), None, false, 0, None),
        ("over", over, Some(told(true, Some(1))), None, false, 2, Some((false, 1))),
        ("over, while silenced", over, Some(told(true, Some(1))), None, true, 2, Some((false, 1))),
        ("over, somebody sends it", over, Some(told(false, None)), None, false, 59, None),
        ("over, and told so", over, Some(told(false, Some(5))), again, false, 9_999, None),
    ] {
        let found = due(&condition, last.as_ref(), again, silenced, at(second));
        assert_eq!(found.map(|it| (it.is_firing, it.tries)), due_as, "{what}");
    }
}

#[test]
fn what_cannot_be_sent_is_tried_again_later_and_later() {
    let waits = [
        (1, None, 15),
        (2, None, 30),
        (3, None, 60),
        (9, None, 900),
        (99, None, 900),
        (1, Some(120), 120),
        (1, Some(86_400), 3_600),
        (4, Some(1), 120),
    ];
    for (tries, told, seconds) in waits {
        let it = Delivery { tries, ..Delivery::default() };
        let failed = it.failed("away", told.map(Span::from_seconds), at(0));
        assert_eq!(
            (failed.next_at, failed.error.as_deref()),
            (at(seconds), Some("away")),
            "{tries} {told:?}"
        );
    }
}

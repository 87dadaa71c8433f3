//! What one try of a target comes to, as a table; and the end that all targets of a run say.

use std::sync::Arc;

use waypost_kernel::event::Change;
use waypost_kernel::fold;
use waypost_kernel::item::{Item, Take, Tried, Tries, decide_tries, gather_items};
use waypost_kernel::{
    Actor, Ask, Catalog, Code, Failure, Lifecycle, Phase, Refusal, Request, Run, Span, Time, Token, Who,
    counted_end,
};

const NOW: Time = Time::from_ms(1_771_056_000_000);
const HOUR: Span = Span::from_seconds(3_600);

fn rule() -> Arc<Lifecycle> {
    Catalog::shipped().unwrap().latest("rule").unwrap().clone()
}

fn who(actor: Actor) -> Who<'static> {
    Who { actor, by: "w", fresh: Token(7) }
}

fn target(lifecycle: &Lifecycle, key: &str, state: &str) -> Item {
    let kind = &lifecycle.items[0];
    Item::new(0, key, kind.state_named(state).unwrap())
}

/// A run that is held, with these targets.
fn applying(lifecycle: &Lifecycle, items: &[Item]) -> Run {
    let mut run = fold::blank(lifecycle, lifecycle.state_named("QUEUED").unwrap());
    run.seq = 1;
    run.available_at = Some(NOW);
    for item in items {
        run.tallies[0].add(item.state, 1);
    }
    let claim = Request { who: who(Actor::Worker), ask: Ask::Claim { lease: None, start: false } };
    waypost_kernel::decide(lifecycle, &run, &claim, NOW).unwrap().after
}

fn decide(
    lifecycle: &Lifecycle,
    run: &Run,
    results: &[(Item, u32, Tried)],
    take: &[Take],
) -> Result<(Change, Vec<String>), Refusal> {
    let tries = Tries { results, take, give_up_after: HOUR };
    let decided = decide_tries(lifecycle, run, &who(Actor::Worker), Token(7), tries, NOW)?;
    Ok((decided.0, decided.1.iter().map(ToString::to_string).collect()))
}

fn because() -> Failure {
    Failure::new("SERVER_ERROR", "it said 500")
}

// proves R4, R5, R9
#[test]
fn what_a_try_comes_to() {
    let lifecycle = rule();
    let wait = Span::from_seconds(4);
    let retry = |answered| Tried::Retry { failure: because(), wait, answered };
    let throttled = |wait| Tried::Throttled { failure: because(), wait, answered: true };
    let in_doubt = Tried::Throttled { failure: because(), wait, answered: false };
    for (name, used, waited_ms, tried, expected) in [
        ("applied", 0, 0, Tried::Applied, ("APPLIED", 0, 2, 0, 0)),
        ("the first retry", 0, 0, retry(true), ("QUEUED", 1, 2, 0, 0)),
        ("cut off: the same key again", 0, 0, retry(false), ("QUEUED", 1, 1, 0, 0)),
        ("the third retry", 2, 0, retry(true), ("QUEUED", 3, 2, 0, 0)),
        ("none is left", 3, 0, retry(true), ("FAILED", 3, 2, 0, 0)),
        ("throttled burns no retry", 3, 0, throttled(wait), ("QUEUED", 3, 2, 1, 4_000)),
        ("throttled for an hour in all", 0, 3_596_000, throttled(wait), ("QUEUED", 0, 2, 1, 3_600_000)),
        ("throttled after silence: the same key again", 1, 0, in_doubt, ("QUEUED", 1, 1, 1, 4_000)),
        ("and not longer", 0, 3_596_001, throttled(wait), ("FAILED", 0, 2, 0, 3_596_001)),
        ("failed for good", 0, 0, Tried::Failed { failure: because() }, ("FAILED", 0, 2, 0, 0)),
        ("not sent", 1, 5, Tried::Unsent { wait: Span::ZERO }, ("QUEUED", 1, 1, 0, 5)),
    ] {
        let item = Item { attempts: used, waited_ms, ..target(&lifecycle, "t", "APPLYING") };
        let run = applying(&lifecycle, std::slice::from_ref(&item));
        let (change, late) = decide(&lifecycle, &run, &[(item, 1, tried.clone())], &[]).unwrap();
        assert_eq!((change.events.len(), late.len()), (1, 0), "{name}");
        let moved = &change.events[0].effect.moved[0].item;
        let status = &*lifecycle.items[0].state(moved.state).name;
        let found = (status, moved.attempts, moved.try_no, moved.throttled, moved.waited_ms);
        assert_eq!(found, expected, "{name}");
        let waits = matches!(tried, Tried::Retry { .. } | Tried::Throttled { .. }) && expected.0 == "QUEUED";
        assert_eq!(moved.not_before, waits.then(|| NOW + wait), "{name}");
        assert_eq!(
            moved.failure.is_some(),
            !matches!(tried, Tried::Applied | Tried::Unsent { .. }),
            "{name}"
        );
    }
}

// proves R12
#[test]
fn what_is_forbidden_ends_where_it_is_ready_and_other_reports_of_it_are_late() {
    let lifecycle = rule();
    let item = target(&lifecycle, "t", "QUEUED");
    let run = applying(&lifecycle, std::slice::from_ref(&item));
    let refused = Tried::Refused { failure: because() };
    let (change, late) = decide(&lifecycle, &run, &[(item.clone(), 1, refused.clone())], &[]).unwrap();
    let moved = &change.events[0].effect.moved[0].item;
    assert_eq!(&*lifecycle.items[0].state(moved.state).name, "FAILED");
    assert_eq!((moved.attempts, moved.try_no, &moved.failure, late.len()), (0, 1, &Some(because()), 0));
    let (_, late) =
        decide(&lifecycle, &run, &[(item, 1, Tried::Failed { failure: because() })], &[]).unwrap();
    assert_eq!(late, ["t"]);
    let ended = target(&lifecycle, "t", "APPLIED");
    let run = applying(&lifecycle, std::slice::from_ref(&ended));
    assert_eq!(decide(&lifecycle, &run, &[(ended, 1, refused)], &[]).unwrap().1, ["t"]);
}

// proves R9
#[test]
fn a_lost_answer_keeps_the_key_until_an_answer_settles_it() {
    let lifecycle = rule();
    let wait = Span::from_seconds(1);
    let retry = |answered| Tried::Retry { failure: because(), wait, answered };
    let throttled = || Tried::Throttled { failure: because(), wait, answered: true };
    let unsent = || Tried::Unsent { wait: Span::ZERO };
    let failed = || Tried::Failed { failure: because() };
    // What comes of one try after another, the number under which the last of them leaves the target, and whether it is in doubt then.
    for (name, tries, expected) in [
        ("known answers raise it", vec![retry(true), throttled(), retry(true)], (4, false)),
        ("5xx twice after silence", vec![retry(false), retry(true), retry(true)], (1, true)),
        ("429 and 5xx after silence", vec![retry(false), throttled(), retry(true)], (1, true)),
        ("silence after a known answer", vec![retry(true), retry(false), throttled()], (2, true)),
        ("to the end of the budget", vec![retry(false), retry(true), retry(true), retry(true)], (1, true)),
        ("what was not sent tells nothing", vec![retry(false), unsent(), retry(true)], (1, true)),
        ("not sent, and never in doubt", vec![unsent(), retry(true)], (2, false)),
        ("a refusal settles it", vec![retry(false), retry(true), failed()], (2, false)),
        ("and so does success", vec![retry(false), retry(true), Tried::Applied], (2, false)),
    ] {
        let mut item = target(&lifecycle, "t", "APPLYING");
        for tried in tries {
            item.state = lifecycle.items[0].state_named("APPLYING").unwrap();
            let run = applying(&lifecycle, std::slice::from_ref(&item));
            let try_no = item.try_no;
            let (change, _) = decide(&lifecycle, &run, &[(item, try_no, tried)], &[]).unwrap();
            item = change.events[0].effect.moved[0].item.clone();
        }
        assert_eq!((item.try_no, item.in_doubt), expected, "{name}");
    }
}

// proves R2, R9
#[test]
fn only_what_is_being_tried_has_results() {
    let lifecycle = rule();
    for (state, try_no, reported, late) in [
        ("APPLYING", 2, 1, true),
        ("QUEUED", 1, 1, true),
        ("APPLIED", 2, 1, true),
        ("FAILED", 1, 1, true),
        ("APPLYING", 2, 2, false),
    ] {
        let item = Item { try_no, ..target(&lifecycle, "t", state) };
        let run = applying(&lifecycle, std::slice::from_ref(&item));
        let (change, told) = decide(&lifecycle, &run, &[(item, reported, Tried::Applied)], &[]).unwrap();
        assert_eq!((told.len() == 1, change.is_repeat(&run)), (late, late), "{state} {try_no} {reported}");
    }
    let item = target(&lifecycle, "t", "APPLYING");
    let run = applying(&lifecycle, std::slice::from_ref(&item));
    let ahead = decide(&lifecycle, &run, &[(item.clone(), 5, Tried::Applied)], &[]);
    assert_eq!(ahead.unwrap_err().code, Code::InvalidInput);
    let tries = Tries { results: &[(item, 1, Tried::Applied)], take: &[], give_up_after: HOUR };
    let other = decide_tries(&lifecycle, &run, &who(Actor::Worker), Token(8), tries, NOW);
    assert_eq!(other.unwrap_err().code, Code::LeaseLost);
}

// proves R12
#[test]
fn what_is_taken_begins_and_what_is_stopped_fails() {
    let lifecycle = rule();
    let (free, stopped) = (target(&lifecycle, "a", "QUEUED"), target(&lifecycle, "b", "QUEUED"));
    let run = applying(&lifecycle, &[free.clone(), stopped.clone()]);
    let take = [Take { item: free, violation: None }, Take { item: stopped, violation: Some(because()) }];
    let (change, _) = decide(&lifecycle, &run, &[], &take).unwrap();
    let moved = &change.events[0].effect.moved;
    let states: Vec<&str> =
        moved.iter().map(|moved| &*lifecycle.items[0].state(moved.item.state).name).collect();
    assert_eq!(states, ["APPLYING", "FAILED"]);
    assert_eq!(moved[1].item.failure, Some(because()));
    let begun = target(&lifecycle, "c", "APPLYING");
    let run = applying(&lifecycle, std::slice::from_ref(&begun));
    let again = decide(&lifecycle, &run, &[], &[Take { item: begun, violation: None }]);
    assert_eq!(again.unwrap_err().code, Code::InvalidTransition);
}

// proves R3
#[test]
fn all_targets_say_how_the_run_ends() {
    let lifecycle = rule();
    for (states, end) in [
        (&["APPLIED", "APPLIED"][..], "APPLIED"),
        (&["APPLIED", "FAILED"], "PARTIAL"),
        (&["FAILED", "FAILED"], "FAILED"),
        (&["APPLIED", "QUEUED"], "PARTIAL"),
        (&["QUEUED", "APPLYING"], "FAILED"),
        (&[], "FAILED"),
    ] {
        let items: Vec<Item> = states.iter().map(|state| target(&lifecycle, "t", state)).collect();
        let run = applying(&lifecycle, &items);
        let found = counted_end(&lifecycle, &run, &who(Actor::Worker), NOW).unwrap();
        assert_eq!(&*lifecycle.state(found).name, end, "{states:?}");
    }
}

// proves R1
#[test]
fn targets_are_gathered_in_a_draft_alone() {
    let lifecycle = rule();
    let item = target(&lifecycle, "a", "PREVIEW");
    for state in lifecycle.state_ids() {
        let mut run = fold::blank(&lifecycle, state);
        run.seq = 1;
        let found = gather_items(&lifecycle, &run, &who(Actor::Client), std::slice::from_ref(&item), NOW);
        assert_eq!(found.is_ok(), lifecycle.phase(state) == Phase::Draft, "{}", lifecycle.state(state).name);
    }
    let mut draft = fold::blank(&lifecycle, lifecycle.initial[0]);
    draft.seq = 1;
    let none = gather_items(&lifecycle, &draft, &who(Actor::Client), &[], NOW).unwrap();
    assert_eq!((none.events.len(), none.after.seq), (1, 2), "how far it is, is told");
    let queued = target(&lifecycle, "a", "QUEUED");
    let wrong = gather_items(&lifecycle, &draft, &who(Actor::Client), &[queued], NOW);
    assert_eq!(wrong.unwrap_err().code, Code::InvalidInput);
}

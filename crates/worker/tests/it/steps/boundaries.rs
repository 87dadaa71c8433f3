//! A worker that dies at any of its writes, before it is carried out or after: the next one ends the run the same, and
//! what must not run does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use waypost_kernel::{Phase, Span};
use waypost_store::{Database, NewRun, RunRow};

use super::ends::{ha, with_ha};
use super::kit::{answers, cleanup, job, map, step};
use crate::faulty::Faulty;
use crate::support::{On, Shop, code, eventually, open};

/// Longer than any run here has writes.
const MANY: i64 = 200;

/// A lifecycle of one's own: nothing in it is called as in the shipped ones, and what fails is reverted.
const ROLLOUT: &str = r#"
name = "rollout"
version = 1
ids = "rollout-{uuid7}"
initial = ["asked"]
items = ["step"]
[states]
asked = { phase = "ready" }
rolling = { phase = "held", lease = "60s", on_stale = "take-over", max_take_overs = 5 }
halted = { phase = "parked" }
live = { phase = "settled", outcome = "succeeded" }
reverted = { phase = "settled", outcome = "reverted" }
transitions = [
  ["asked", "claim", "rolling", "worker", ""],
  ["asked", "cancel", "reverted", "client", ""],
  ["rolling", "promote", "live", "worker", ""],
  ["rolling", "revert", "reverted", "worker", ""],
  ["rolling", "pause", "halted", "operator, worker", "has-reason"],
  ["rolling", "cancel", "reverted", "client, worker", ""],
  ["rolling", "lose", "reverted", "engine", ""],
  ["halted", "resume", "asked", "operator", ""],
  ["halted", "cancel", "reverted", "client", ""],
]
"#;

#[derive(Default)]
struct Story {
    text: String,
    /// The state in which it ends, and what it says.
    ends: &'static str,
    code: Option<&'static str>,
    /// How often each step is executed when nobody dies: with how many different keys.
    keys: &'static [(&'static str, usize)],
    /// Executed by nobody, whoever dies when.
    never: &'static [&'static str],
}

fn stories() -> Vec<Story> {
    let each = "id = \"update\"\nfor_each = \"['h1', 'h2']\"\ntasks = [\"enter\"]";
    let update = step("update {{ item }}", "echo '::task 50 enter'", each);
    let blocked = r#"{"outcome":"pause","reason":"h1","blockers":{"h1":{}}}"#;
    let scan = step("scan", &format!("cat > told; grep -q skip told && exit 0; {}", answers(blocked)), "");
    vec![
        Story {
            text: with_ha(std::slice::from_ref(&update)),
            ends: "completed",
            keys: &[("before", 1), ("disable HA", 1), ("update h1", 1), ("update h2", 1), ("restore HA", 1)],
            ..Story::default()
        },
        Story {
            text: with_ha(&[
                update.clone(),
                step("break", "exit 1", "retries = 1\nbackoff = [\"1ms\"]"),
                step("rest", "", ""),
            ]),
            ends: "failed",
            code: Some("EXIT_1"),
            keys: &[("disable HA", 1), ("update h2", 1), ("break", 2), ("restore HA", 1)],
            never: &["rest"],
        },
        Story {
            text: with_ha(&[scan, update, step("break", "exit 2", ""), step("rest", "", "")]),
            ends: "failed",
            code: Some("EXIT_2"),
            keys: &[
                ("before", 1),
                ("disable HA", 2),
                ("scan", 2),
                ("update h1", 1),
                ("update h2", 1),
                ("restore HA", 2),
            ],
            never: &["rest"],
        },
    ]
}

/// A step of a list waits for a person, and what is undone meanwhile fails.
fn asking_story() -> Story {
    let asks = format!(
        "cat > told; test $WAYPOST_STEP = 'update b' || grep -q skip told || {}",
        answers(r#"{"outcome":"pause","reason":"h1","blockers":{"h1":{}}}"#)
    )
    .replace("$WAYPOST_STEP", "\"$WAYPOST_STEP\"");
    Story {
        text: job(&[
            step("scan", &answers(r#"{"output":{"hosts":["a","b"]}}"#), ""),
            step("off", "", ""),
            step("update {{ item }}", &asks, "id = \"update\"\nfor_each = \"steps.scan.output.hosts\""),
            step("finalize", "", ""),
            cleanup("on", "exit 1", "after = \"off\""),
        ]),
        ends: "failed",
        code: Some("CLEANUP_FAILED"),
        keys: &[("scan", 1), ("off", 2), ("update a", 2), ("update b", 1), ("finalize", 1)],
        ..Story::default()
    }
}

/// What ends a run before its last step.
fn short_stories() -> Vec<Story> {
    let finish = step("enough", &answers(r#"{"outcome":"finish"}"#), "");
    let may_fail = "continue_on_failure = true";
    let rest = step("rest", "", "");
    vec![
        Story {
            text: job(&[step("check", "exit 1", ""), rest.clone()]),
            ends: "failed",
            code: Some("EXIT_1"),
            keys: &[("check", 1)],
            never: &["rest"],
        },
        Story {
            text: job(&[step("before", "", ""), finish.clone(), rest.clone()]),
            ends: "completed",
            keys: &[("before", 1), ("enough", 1)],
            never: &["rest"],
            ..Story::default()
        },
        Story {
            text: job(&[step("bad", "exit 3", may_fail), rest.clone()]),
            ends: "failed",
            code: Some("STEPS_FAILED"),
            keys: &[("bad", 1), ("rest", 1)],
            ..Story::default()
        },
        Story {
            text: job(&[step("bad", "exit 3", may_fail), finish, rest.clone()]),
            ends: "failed",
            code: Some("STEPS_FAILED"),
            keys: &[("bad", 1), ("enough", 1)],
            never: &["rest"],
        },
        Story {
            text: job(&[
                step("lock", "", ""),
                cleanup("unlock", "", "after = \"lock\"\nenv = { WAS = \"{{ steps.lock.output.was }}\" }"),
            ]),
            ends: "failed",
            code: Some("CLEANUP_FAILED"),
            keys: &[("lock", 1)],
            never: &["unlock"],
        },
        Story {
            text: job(&[step("check", "exit 1", ""), rest, cleanup("undo", "", "")])
                .replace("\"job\"", "\"rollout\""),
            ends: "reverted",
            code: Some("EXIT_1"),
            keys: &[("check", 1), ("undo", 1)],
            never: &["rest"],
        },
        asking_story(),
    ]
}

/// Three branches at once between a step that is undone and one that needs all of them.
fn branches(a: &str, b: &str, c: &str) -> String {
    let branch = |name: &str, script: &str| {
        step(name, &format!("touch began.{name}; {script}"), "needs = [\"disable HA\"]\ntimeout = \"60s\"")
    };
    let next = step("after a", "", "needs = [\"a\"]");
    let rest = step("rest", "", "needs = [\"after a\", \"b\", \"c\"]");
    with_ha(&[branch("a", a), branch("b", b), branch("c", c), next, rest])
}

fn parallel_stories() -> Vec<Story> {
    let all_began = "until test -e began.a -a -e began.b -a -e began.c; do sleep 0.005; done";
    let asks = answers(r#"{"outcome":"pause","reason":"h1","blockers":{"h1":{}}}"#);
    let each =
        "id = \"update\"\nfor_each = \"['h1', 'h2', 'h3']\"\nparallel = 3\nretries = 1\nbackoff = [\"1ms\"]";
    let flaky = "test \"$WAYPOST_STEP\" != 'update h2' || test \"$WAYPOST_IDEMPOTENCY_KEY\" != \"${WAYPOST_IDEMPOTENCY_KEY%:1}:1\"";
    vec![
        Story {
            text: branches(all_began, all_began, all_began),
            ends: "completed",
            keys: &[
                ("disable HA", 1),
                ("a", 1),
                ("b", 1),
                ("c", 1),
                ("after a", 1),
                ("rest", 1),
                ("restore HA", 1),
            ],
            ..Story::default()
        },
        // The others have begun by then, and end; nothing else begins.
        Story {
            text: branches(all_began, &format!("{all_began}; exit 1"), all_began),
            ends: "failed",
            code: Some("EXIT_1"),
            keys: &[("disable HA", 1), ("a", 1), ("b", 1), ("c", 1), ("restore HA", 1)],
            never: &["rest"],
        },
        Story {
            text: branches(
                all_began,
                &format!("{all_began}; cat > told.b; grep -q skip told.b || {asks}"),
                "",
            ),
            ends: "completed",
            keys: &[
                ("disable HA", 2),
                ("a", 1),
                ("b", 2),
                ("c", 1),
                ("after a", 1),
                ("rest", 1),
                ("restore HA", 2),
            ],
            ..Story::default()
        },
        Story {
            text: with_ha(&[step("update {{ item }}", flaky, each), step("rest", "", "")]),
            ends: "completed",
            keys: &[("update h1", 1), ("update h2", 2), ("update h3", 1), ("rest", 1), ("restore HA", 1)],
            ..Story::default()
        },
    ]
}

// proves U5, X5
#[tokio::test(flavor = "multi_thread")]
async fn several_steps_under_way_end_the_same_wherever_their_worker_dies() {
    dies_everywhere(On::Sqlite, &parallel_stories()).await;
}

// proves U5, X5
#[tokio::test(flavor = "multi_thread")]
async fn several_steps_under_way_end_the_same_wherever_their_worker_dies_on_postgres() {
    dies_everywhere(On::Postgres, &parallel_stories()).await;
}

// proves J3, J5, X5
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_the_same_wherever_its_worker_dies() {
    dies_everywhere(On::Sqlite, &stories()).await;
}

// proves J3, J5, X5
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_the_same_wherever_its_worker_dies_on_postgres() {
    dies_everywhere(On::Postgres, &stories()).await;
}

// proves J3, J5, X5
#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_run_does_not_wherever_a_worker_dies() {
    dies_everywhere(On::Sqlite, &short_stories()).await;
}

// proves J3, J5, X5
#[tokio::test(flavor = "multi_thread")]
async fn what_must_not_run_does_not_wherever_a_worker_dies_on_postgres() {
    dies_everywhere(On::Postgres, &short_stories()).await;
}

async fn dies_everywhere(on: On, stories: &[Story]) {
    let (store, _lives) = open(on).await;
    store.add_lifecycle(ROLLOUT.to_owned(), "tests".into()).await.unwrap();
    for (number, story) in stories.iter().enumerate() {
        for carried_out in [false, true] {
            // Of steps that end at once, who comes first says how many writes there are: one run that has fewer is not the
            // last word.
            let (mut write, mut whole) = (0, 0);
            while whole < 2 {
                write += 1;
                let died = died_at(&store, story, write, carried_out).await;
                whole = if died { 0 } else { whole + 1 };
                assert!(write < MANY, "story {number} has no end");
            }
            assert!(write > 4, "story {number}: {write} writes are too few to have proved anything");
        }
    }
    let verified = store.verify(Arc::new(|_, _| {})).await.unwrap();
    assert_eq!(verified.differences, Vec::<String>::new());
}

/// False: it rested before it came to that write.
async fn died_at(store: &Arc<dyn Database>, story: &Story, write: i64, carried_out: bool) -> bool {
    let what = format!("{}: {write} {carried_out}", story.text);
    let mut shop = Shop::on(store.clone());
    let playbook = shop.playbook_with(&story.text, &store.lifecycles().await.unwrap());
    // A claim of a worker that died before may still be under way: it must not find this run.
    let queue = uuid::Uuid::new_v4().to_string();
    shop.options.queues = vec![queue.clone()];
    let id = shop.queue(&playbook, NewRun { queue, ..NewRun::default() }).await;
    shop.faulty.die_at_write(write, carried_out);
    let running = shop.start();
    let (mut died, mut row) = (false, None::<RunRow>);
    while row.as_ref().is_none_or(|row| row.status() != story.ends) {
        row = eventually(&what, async || {
            let row = shop.run(&id).await;
            let rests = matches!(row.phase(), Phase::Parked | Phase::Settled);
            (rests || shop.faulty.is_dead()).then_some(rests.then_some(row))
        })
        .await;
        if shop.faulty.is_dead() {
            died = true;
            break;
        }
        if let Some(row) = row.as_ref() {
            if row.phase() == Phase::Parked {
                shop.resume(&id, map(json!({"h1": "skip"}))).await;
            } else {
                assert_eq!(row.status(), story.ends, "{what}");
            }
        }
    }
    running.die().await;
    if died {
        shop.faulty = Faulty::new(shop.store.clone());
        // A heartbeat of the dead one may still be on its way, and give it another lease.
        for _ in 0..10 {
            shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
            shop.work().await;
            // What was wanted of a run that requires nothing more is the engine's to carry out.
            shop.store.sweep("engine".into(), 10).await.unwrap();
            match shop.run(&id).await.phase() {
                Phase::Settled => break,
                Phase::Parked => shop.resume(&id, map(json!({"h1": "skip"}))).await,
                _ => {}
            }
        }
        assert_eq!(shop.run(&id).await.status(), story.ends, "{what}");
    }
    assert_eq!(code(&shop.run(&id).await), story.code, "{what}");
    if story.text.contains("HA") {
        assert_eq!(ha(&shop), "on", "{what}: HA is never left off");
    }
    let mut keys: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in shop.ledger() {
        let (name, key) = line.rsplit_once(' ').unwrap();
        let known = keys.entry(name.to_owned()).or_default();
        if known.last().is_none_or(|last| last != key) {
            known.push(key.to_owned());
        }
    }
    for (step, count) in story.keys {
        let used = keys.get(*step).map_or(0, Vec::len);
        // A result that was not stored is asked for again, under the same key.
        assert_eq!(used, *count, "{what}: {step}: {keys:?}");
    }
    for step in story.never {
        assert!(!keys.contains_key(*step), "{what}: {step} was executed");
    }
    assert!(!shop.run(&id).await.run.requires_cleanup, "{what}");
    died
}

//! A worker that dies at any of its writes, before it is carried out or after: the next one ends the run the same.

use std::collections::BTreeMap;

use serde_json::json;
use waypost_kernel::Span;
use waypost_store::{NewRun, RunRow};

use super::ends::{ha, with_ha};
use super::kit::{answers, map, step};
use crate::faulty::Faulty;
use crate::support::{Shop, eventually};

/// Longer than any run here has writes.
const MANY: i64 = 200;

struct Story {
    text: String,
    /// The states in which it rests, and the last one.
    ends: &'static str,
    /// How often each step is executed when nobody dies: with how many different keys.
    keys: &'static [(&'static str, usize)],
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
        },
        Story {
            text: with_ha(&[update.clone(), step("break", "exit 1", "retries = 1\nbackoff = [\"1ms\"]")]),
            ends: "failed",
            keys: &[("disable HA", 1), ("update h2", 1), ("break", 2), ("restore HA", 1)],
        },
        Story {
            text: with_ha(&[scan, update]),
            ends: "completed",
            keys: &[
                ("before", 1),
                ("disable HA", 2),
                ("scan", 2),
                ("update h1", 1),
                ("update h2", 1),
                ("restore HA", 2),
            ],
        },
    ]
}

// proves J3, J5, X5
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_the_same_wherever_its_worker_dies() {
    for (number, story) in stories().iter().enumerate() {
        for carried_out in [false, true] {
            let mut write = 1;
            while died_at(story, write, carried_out).await {
                write += 1;
                assert!(write < MANY, "story {number} has no end");
            }
            assert!(write > 8, "story {number}: {write} writes are too few to have proved anything");
        }
    }
}

/// False: it rested before it came to that write.
async fn died_at(story: &Story, write: i64, carried_out: bool) -> bool {
    let what = format!("{} {} {write} {carried_out}", story.ends, story.keys.len());
    let mut shop = Shop::new();
    let playbook = shop.playbook(&story.text);
    let id = shop.queue(&playbook, NewRun::default()).await;
    shop.faulty.die_at_write(write, carried_out);
    let running = shop.start();
    let (mut died, mut row) = (false, None::<RunRow>);
    while row.as_ref().is_none_or(|row| row.status() != story.ends) {
        row = eventually(&what, async || {
            let row = shop.run(&id).await;
            let rests = matches!(row.phase(), waypost_kernel::Phase::Parked | waypost_kernel::Phase::Settled);
            (rests || shop.faulty.is_dead()).then_some(rests.then_some(row))
        })
        .await;
        if shop.faulty.is_dead() {
            died = true;
            break;
        }
        if row.as_ref().is_some_and(|row| row.status() == "paused") {
            shop.resume(&id, map(json!({"h1": "skip"}))).await;
        }
    }
    running.die().await;
    if died {
        shop.faulty = Faulty::new(shop.store.clone());
        shop.store.advance_clock(Span::from_seconds(3_600)).await.unwrap();
        loop {
            shop.work().await;
            // What was wanted of a run that owes nothing more is the engine's to carry out.
            shop.store.sweep("engine".into(), 10).await.unwrap();
            let row = shop.run(&id).await;
            match row.status() {
                "paused" => shop.resume(&id, map(json!({"h1": "skip"}))).await,
                status => {
                    assert_eq!(status, story.ends, "{what}");
                    break;
                }
            }
        }
    }
    assert_eq!(ha(&shop), "on", "{what}: HA is never left off");
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
    assert!(!shop.run(&id).await.run.owes_cleanup, "{what}");
    shop.verify().await;
    died
}

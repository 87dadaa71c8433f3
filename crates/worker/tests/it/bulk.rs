//! One command for many runs.

use std::collections::BTreeMap;

use serde_json::Value;
use waypost_kernel::{Phase, Span};
use waypost_store::{Database, Filter, NewRun, RunRow};
use waypost_worker::bulk::{BulkCommand, Progress, Which};
use waypost_worker::loops::Operator;

use crate::support::{On, Shop, eventually, open};

const BOTH: [On; 2] = [On::Sqlite, On::Postgres];

async fn put(store: &dyn Database, count: usize, queue: &str) -> Vec<String> {
    let new = NewRun { lifecycle: "deploy".into(), queue: queue.into(), ..NewRun::default() };
    let made = store.enqueue(vec![new; count]).await.unwrap();
    made.into_iter().map(|made| made.unwrap().run.id().to_owned()).collect()
}

fn fitting(queue: &str) -> Which {
    let filter = Filter { tenant: "default".into(), queue: Some(queue.into()), ..Filter::default() };
    Which::Fitting(Box::new(filter))
}

async fn asked(store: &dyn Database, command: &str, which: Which) -> String {
    let reason = Some("enough".to_owned());
    let asked = BulkCommand { command: command.into(), which, reason, force: false, total: None };
    let mut made = store.enqueue(vec![asked.operation("default", "ada", None)]).await.unwrap();
    made.remove(0).unwrap().run.id().to_owned()
}

async fn run(store: &dyn Database, id: &str) -> RunRow {
    store.run("default".into(), id.into()).await.unwrap()
}

/// How often each run was given a command, as the audit log has it.
async fn given(store: &dyn Database, command: &str) -> BTreeMap<String, (String, usize)> {
    let mut given: BTreeMap<String, (String, usize)> = BTreeMap::new();
    let mut after = 0;
    loop {
        let entries = store.audits(None, after, 500).await.unwrap();
        let Some(last) = entries.last() else { return given };
        after = last.number;
        for entry in entries.into_iter().filter(|entry| entry.action == command) {
            given.entry(entry.subject).or_insert((entry.by, 0)).1 += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_fit_are_asked_once_by_who_asked() {
    for on in BOTH {
        let (store, _kept) = open(on).await;
        let meant = put(&*store, 120, "meant").await;
        let others = put(&*store, 3, "others").await;
        let operation = asked(&*store, "cancel", fitting("meant")).await;
        Operator::new(store.clone()).work_all().await.unwrap();
        let ended = run(&*store, &operation).await;
        assert_eq!(ended.status(), "completed", "{on:?}: {:?}", ended.details);
        let progress = Progress::of(&ended.details);
        assert_eq!((progress.done, progress.refused), (120, 0));
        for id in &meant {
            assert_eq!(run(&*store, id).await.status(), "cancelled");
        }
        for id in &others {
            assert_eq!(run(&*store, id).await.status(), "queued", "nobody meant it");
        }
        let given = given(&*store, "cancel").await;
        assert_eq!(given.len(), 120);
        assert!(given.values().all(|(who, times)| who == "ada" && *times == 1), "{given:?}");
        let failure = run(&*store, &meant[0]).await.run.failure.unwrap();
        assert_eq!(*failure.message, *format!("enough ({operation})"), "it says who is behind it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_refuse_are_told_of_and_the_others_go_on() {
    for on in BOTH {
        let (store, _kept) = open(on).await;
        let mut operator = Operator::new(store.clone());
        let mut ids = put(&*store, 1, "q").await;
        ids.push("run-nobody".to_owned());
        let refused = asked(&*store, "resume", Which::Ids(ids.clone())).await;
        operator.work_all().await.unwrap();
        let ended = run(&*store, &refused).await;
        assert_eq!((ended.status(), &*ended.run.failure.as_ref().unwrap().code), ("failed", "ALL_REFUSED"));
        let progress = Progress::of(&ended.details);
        assert_eq!((progress.done, progress.refused), (0, 2));
        let mut told: Vec<(&str, &str)> = progress
            .refusals
            .iter()
            .map(|it| (it["run_id"].as_str().unwrap(), it["code"].as_str().unwrap()))
            .collect();
        told.sort_unstable();
        let mut expected = [(ids[0].as_str(), "INVALID_TRANSITION"), ("run-nobody", "NOT_FOUND")];
        expected.sort_unstable();
        assert_eq!(told, expected);
        let events = store.events(refused, 0, 100).await.unwrap();
        assert_eq!(events.iter().filter(|event| event.level == "warn").count(), 2, "each is in its log");
        let some = asked(&*store, "cancel", Which::Ids(ids.clone())).await;
        operator.work_all().await.unwrap();
        let ended = run(&*store, &some).await;
        let progress = Progress::of(&ended.details);
        assert_eq!((ended.status(), progress.done, progress.refused), ("partial", 1, 1));
        assert_eq!(run(&*store, &ids[0]).await.status(), "cancelled");
    }
}

/// Killed before, in and after any of its writes, it goes on where it was, and asks nobody twice.
#[tokio::test(flavor = "multi_thread")]
async fn who_takes_it_over_asks_nobody_twice() {
    for on in BOTH {
        let (store, _kept) = open(on).await;
        for (round, (write, carried_out)) in [
            (1, false),
            (1, true),
            (2, true),
            (30, false),
            (30, true),
            (52, false),
            (52, true),
            (90, true),
            (123, true),
        ]
        .into_iter()
        .enumerate()
        {
            let queue = format!("q{round}");
            let meant = put(&*store, 120, &queue).await;
            let operation = asked(&*store, "cancel", fitting(&queue)).await;
            let shop = Shop::on(store.clone());
            shop.faulty.die_at_write(write, carried_out);
            let mut dying = Operator::new(shop.faulty.clone());
            let dies = tokio::spawn(async move { dying.work_all().await });
            eventually("it dies, or is done before", async || {
                (shop.faulty.is_dead() || dies.is_finished()).then_some(())
            })
            .await;
            dies.abort();
            store.advance_clock(Span::from_seconds(61)).await.unwrap();
            // What the dead one had begun to write is locked for a moment.
            eventually("it is taken over", async || {
                Operator::new(store.clone()).work_all().await.unwrap();
                (run(&*store, &operation).await.phase() == Phase::Settled).then_some(())
            })
            .await;
            let ended = run(&*store, &operation).await;
            assert_eq!(ended.status(), "completed", "{on:?} {write} {carried_out}: {:?}", ended.details);
            assert_eq!(Progress::of(&ended.details).done, 120, "{write} {carried_out}");
            let given = given(&*store, "cancel").await;
            let times = |id: &String| given.get(id).map_or(0, |(_, times)| *times);
            assert!(meant.iter().all(|id| times(id) == 1), "{on:?} {write} {carried_out}: {given:?}");
        }
        assert_eq!(store.verify(std::sync::Arc::new(|_, _| {})).await.unwrap().differences, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_cancelled_stops_and_says_how_far_it_was() {
    let (store, _kept) = open(On::Sqlite).await;
    put(&*store, 3, "q").await;
    let operation = asked(&*store, "cancel", fitting("q")).await;
    let stop = waypost_store::CommandWrite {
        tenant: "default".into(),
        run_id: operation.clone(),
        name: "cancel".into(),
        by: "ada".into(),
        ..waypost_store::CommandWrite::default()
    };
    store.command(stop).await.unwrap();
    Operator::new(store.clone()).work_all().await.unwrap();
    assert_eq!(run(&*store, &operation).await.status(), "cancelled");
    assert!(given(&*store, "cancel").await.len() == 1, "the operation's own");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_nobody_can_read_fails_in_words() {
    let (store, _kept) = open(On::Sqlite).await;
    for input in [
        serde_json::json!({ "operation": "command" }),
        serde_json::json!({ "operation": "command", "command": "cancel", "ids": [1] }),
        serde_json::json!({ "operation": "command", "command": "cancel", "filter": { "stauts": "queued" } }),
        Value::Null,
    ] {
        let new = NewRun {
            lifecycle: "operation".into(),
            queue: waypost_worker::bulk::QUEUE.into(),
            input: input.clone(),
            ..NewRun::default()
        };
        let made = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap();
        Operator::new(store.clone()).work_all().await.unwrap();
        let ended = run(&*store, made.run.id()).await;
        assert_eq!(
            (ended.status(), &*ended.run.failure.as_ref().unwrap().code),
            ("failed", "UNFIT"),
            "{input}"
        );
    }
}

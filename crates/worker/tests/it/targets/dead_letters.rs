//! Failed targets of many runs: which of them a retry and a discard are about.
// proves R8

use serde_json::{Value, json};
use waypost_kernel::{Failure, Span};
use waypost_store::{
    AddTargets, CommandWrite, Database, DeadLetterFilter, End, Held, ItemFilter, NewRun, NewTarget,
    RollBackTargets, TargetResult, Tried, WorkTargets,
};
use waypost_worker::targets::dead_letters::{Chosen, discard, report, retry};
use waypost_worker::targets::operation_of;

use crate::support::{On, Shop, open};

/// A run that has ended, with targets that failed with these codes; one without a code was applied.
async fn ended(store: &dyn Database, codes: &[Option<&str>]) -> String {
    let new = NewRun { lifecycle: "rule".into(), ..NewRun::default() };
    let run = store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run;
    let id = run.id().to_owned();
    for (at, chunk) in codes.chunks(500).enumerate() {
        let at = at * 500;
        let target = |n: usize| NewTarget {
            key: format!("t{n:05}"),
            before: json!(1),
            after: json!(2),
            ..NewTarget::default()
        };
        let add = AddTargets {
            tenant: "default".into(),
            run_id: id.clone(),
            by: "ann".into(),
            at: at as u64,
            rows: chunk.len() as u64,
            targets: (at..at + chunk.len()).map(target).collect(),
            last: at + chunk.len() == codes.len(),
            ..AddTargets::default()
        };
        store.add_targets(add).await.unwrap();
    }
    command(store, &id, "queue").await;
    worked(store, &id, codes).await;
    id
}

async fn command(store: &dyn Database, id: &str, name: &str) {
    store.command(CommandWrite { name: name.to_owned(), ..Shop::cancelling(id) }).await.unwrap();
}

async fn worked(store: &dyn Database, id: &str, codes: &[Option<&str>]) {
    let claimed = store.claim_run(id.to_owned(), "w1".into()).await.unwrap();
    let held = Held { run_id: id.to_owned(), token: claimed.token };
    let work = |results, take, end| WorkTargets {
        held: held.clone(),
        by: "w1".into(),
        results,
        take,
        give_up_after: Span::from_seconds(3_600),
        end,
    };
    let mut results = Vec::new();
    loop {
        let taken = store.work_targets(work(results, 500, End::WhenDone)).await.unwrap();
        if taken.ended.is_some() {
            return;
        }
        let result = |item: &waypost_store::ItemRow| {
            let code = codes[item.key[1..].parse::<usize>().unwrap()];
            let tried = code
                .map_or(Tried::Applied, |code| Tried::Failed { failure: Failure::new(code, "it said so") });
            TargetResult { key: item.key.clone(), try_no: item.try_no, tried, output: None }
        };
        results = taken.taken.iter().map(result).collect();
    }
}

async fn queued(store: &dyn Database, id: &str) -> Vec<String> {
    let mut filter = ItemFilter {
        run_id: id.to_owned(),
        kind: Some("target".into()),
        status: Some("QUEUED".into()),
        limit: 500,
        ..ItemFilter::default()
    };
    let mut keys = Vec::new();
    loop {
        let page = store.item_page(filter.clone()).await.unwrap();
        keys.extend(page.items.into_iter().map(|item| item.key));
        match page.next {
            Some(next) => filter.cursor = Some(next),
            None => return keys,
        }
    }
}

fn chosen(run_id: Option<&str>, code: Option<&str>) -> Chosen {
    Chosen {
        tenant: "default".into(),
        run_id: run_id.map(str::to_owned),
        code: code.map(str::to_owned),
        keys: None,
    }
}

fn all() -> DeadLetterFilter {
    DeadLetterFilter { tenant: "default".into(), ..DeadLetterFilter::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_is_of_a_class_or_of_all_that_a_run_has_left() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mixed = [None, Some("TIMEOUT"), Some("NOT_FOUND"), Some("TIMEOUT")];
        let one = ended(&*store, &mixed).await;
        let other = ended(&*store, &[Some("TIMEOUT"), Some("TIMEOUT")]).await;
        // A class: all of the one run, some of the other.
        let acted = retry(&*store, &chosen(None, Some("TIMEOUT")), "ann", None).await.unwrap();
        assert_eq!(acted.iter().map(|it| it.targets).collect::<Vec<_>>(), [2, 2], "{on:?}");
        assert_eq!(queued(&*store, &one).await, ["t00001", "t00003"]);
        assert_eq!(queued(&*store, &other).await.len(), 2);
        worked(&*store, &one, &mixed).await;
        // A run: all of it, but what was discarded.
        discard(&*store, &chosen(Some(&one), Some("NOT_FOUND")), "ann", "gone").await.unwrap();
        let acted = retry(&*store, &chosen(Some(&one), None), "ann", None).await.unwrap();
        assert_eq!((acted[0].targets, acted[0].refused.clone()), (2, None), "{on:?}");
        assert_eq!(queued(&*store, &one).await.len(), 2);
        // One that is being worked refuses.
        let refused = retry(&*store, &chosen(Some(&one), None), "ann", None).await.unwrap();
        assert!(refused.iter().all(|it| it.refused.is_some()), "{on:?}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_of_hundreds_is_retried_as_it_was_chosen() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let codes: Vec<_> =
            (0..900).map(|n| Some(if n % 3 == 0 { "NOT_FOUND" } else { "TIMEOUT" })).collect();
        let id = ended(&*store, &codes).await;
        let acted = retry(&*store, &chosen(None, Some("NOT_FOUND")), "ann", None).await.unwrap();
        assert_eq!((acted.len(), acted[0].targets), (1, 300), "{on:?}");
        let queued = queued(&*store, &id).await;
        assert_eq!((queued.len(), queued[299].as_str()), (300, "t00897"), "{on:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_of_a_run_that_was_rolled_back_can_be_discarded() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let id = ended(&*store, &[None, Some("TIMEOUT")]).await;
        let other = ended(&*store, &[None, Some("TIMEOUT"), Some("NETWORK")]).await;
        command(&*store, &id, "rollback").await;
        let run = store.run("default".into(), id.clone()).await.unwrap();
        let operation = operation_of(&*store, &run).await.unwrap().unwrap();
        let claimed = store.claim_run(operation.id().to_owned(), "w1".into()).await.unwrap();
        let held = Held { run_id: operation.id().to_owned(), token: claimed.token };
        let write = RollBackTargets { held, by: "w1".into(), keys: vec!["t00000".into()] };
        assert_eq!(store.roll_back_targets(write).await.unwrap().status(), "ROLLED_BACK");
        let told = report(&*store, all()).await.unwrap();
        let class = |code: &str| -> Value {
            let classes = told["classes"].as_array().unwrap();
            classes.iter().find(|class| class["error_code"] == code).unwrap().clone()
        };
        assert_eq!(
            (&class("TIMEOUT")["count"], &class("TIMEOUT")["of_rolled_back_runs"]),
            (&json!(2), &json!(1))
        );
        let advice = class("TIMEOUT")["advice"].as_str().unwrap().to_owned();
        assert!(advice.contains("1 of them are of runs that were rolled back"), "{advice}");
        assert_eq!(class("NETWORK")["of_rolled_back_runs"], json!(0));
        let of = DeadLetterFilter { run_id: Some(id.clone()), ..all() };
        let advice = report(&*store, of).await.unwrap()["classes"][0]["advice"].as_str().unwrap().to_owned();
        assert!(advice.contains("cannot be retried"), "{advice}");
        // A retry of all leaves it out; a discard does not.
        let acted = retry(&*store, &chosen(None, Some("NETWORK")), "ann", None).await.unwrap();
        assert_eq!(acted.iter().map(|it| it.run_id.as_str()).collect::<Vec<_>>(), [other.as_str()]);
        let acted = discard(&*store, &chosen(None, Some("TIMEOUT")), "ann", "undone").await.unwrap();
        assert!(acted.iter().any(|it| it.run_id == id && it.targets == 1), "{on:?}: {acted:?}");
    }
}

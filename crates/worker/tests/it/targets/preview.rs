//! Previews: gathered here or by a worker, and what cannot be gathered.

use serde_json::json;
use waypost_kernel::Phase;
use waypost_store::{CommandWrite, StoreError};
use waypost_worker::targets::gather::{NotGathered, gather};
use waypost_worker::targets::source::Reader;
use waypost_worker::targets::{check_command, preview_of};

use super::kit::{REST, Stage, settings};
use crate::support::{On, Shop, open};

// proves R1
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_has_before_and_after_and_changes_nothing() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 40, settings(&[]));
        let playbook = stage.playbook(&format!("{REST}[guardrails]\nfloor = 2\n"));
        let (run, preview) = stage.gathered(&playbook).await.unwrap();
        assert!(preview.ready && preview.rows == 40 && preview.targets == 40, "{preview:?}");
        let free = stage.shop.state().price_cents(1).is_some();
        assert!(
            free && preview.stopped > 0,
            "products that are free rise to 1, below the floor: {preview:?}"
        );
        let targets = stage.targets(run.id()).await;
        let first = &targets[&1];
        let cents = stage.shop.state().price_cents(1).unwrap();
        assert_eq!(
            first.details["before"],
            json!(cents as f64 / 100.0)
                .as_f64()
                .map_or(json!(0), |it| { if it.fract() == 0.0 { json!(it as i64) } else { json!(it) } })
        );
        assert_eq!(first.details["row"], json!({"product_id": "1"}));
        assert_eq!((run.phase(), stage.shop.state().changes().len()), (Phase::Draft, 0), "{on:?}");
        stage.own.verify().await;
    }
}

/// Asked again, a gatherer goes on where the one before it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_gathering_goes_on_after_a_crash() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 2_500, settings(&[]));
    let playbook = stage.playbook(REST);
    let run = stage.draft(&playbook).await;
    let rule = playbook.rule.as_ref().unwrap();
    let gathering = async {
        let reader = Reader::of_person("default", run.id()).unwrap();
        gather(&*stage.own.store, &run, (&playbook, rule), "ann", reader).await
    };
    let some_are_stored = async {
        crate::support::eventually("a batch is stored", async || {
            stage.own.run(run.id()).await.details.get("preview").map(drop)
        })
        .await;
    };
    tokio::select! {
        _ = gathering => {}
        () = some_are_stored => {}
    }
    let again = stage.own.run(run.id()).await;
    let reader = Reader::of_person("default", again.id()).unwrap();
    let preview = gather(&*stage.own.store, &again, (&playbook, rule), "ann", reader).await.unwrap();
    assert_eq!((preview.rows, preview.targets, preview.ready), (2_500, 2_500, true));
    assert_eq!(preview.totals["rises"], json!(2_500), "sums are of all rows");
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_cannot_be_used_are_told_together() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 3, settings(&[]));
    let playbook = stage.playbook(REST);
    std::fs::write(stage.own.path("prices.csv"), "id,before\n1,10\n,10\n2,ten\n1,12\n").unwrap();
    let Err(NotGathered::Rows(told, 0)) = stage.gathered(&playbook).await else { panic!("it was gathered") };
    let places: Vec<&str> = told.iter().map(|told| told.split(": ").next().unwrap()).collect();
    assert_eq!(places, ["prices.csv:3", "prices.csv:4", "prices.csv:5"], "{told:?}");
}

// proves R1
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_was_started_by_name_is_gathered_by_a_worker_and_has_one_run_at_a_time() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 5, settings(&[]));
        let playbook = stage.playbook(REST);
        let mut runs = Vec::new();
        for _ in 0..2 {
            let run = stage.draft(&playbook).await;
            let preview = stage.own.enqueue(preview_of(&run, "ann")).await;
            stage.own.work().await;
            let preview = stage.own.run(&preview).await;
            assert_eq!((preview.phase(), preview.run.failure.as_ref()), (Phase::Settled, None));
            runs.push(stage.own.run(run.id()).await);
        }
        assert_eq!(runs[0].details["preview"]["targets"], json!(5));
        check_command(&*stage.own.store, &runs[0], "queue", false).await.unwrap();
        stage.ask(runs[0].id(), "queue").await;
        let refused = check_command(&*stage.own.store, &runs[1], "queue", false).await;
        assert!(
            matches!(&refused, Err(StoreError::Refused(refusal)) if refusal.message.contains(runs[0].id())),
            "{refused:?}"
        );
        check_command(&*stage.own.store, &runs[1], "queue", true).await.unwrap();
        stage.worked(runs[0].id()).await;
        check_command(&*stage.own.store, &runs[1], "queue", false).await.unwrap();
    }
}

// proves R1
#[tokio::test(flavor = "multi_thread")]
async fn of_two_previews_that_are_queued_at_the_same_moment_one_is_refused() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 3, settings(&[]));
        let playbook = stage.playbook(REST);
        for _ in 0..3 {
            let (one, _) = stage.gathered(&playbook).await.unwrap();
            let (other, _) = stage.gathered(&playbook).await.unwrap();
            let queue = |id: &str, force: bool| {
                let write = CommandWrite { name: "queue".to_owned(), force, ..Shop::cancelling(id) };
                stage.own.store.command(write)
            };
            let answers = tokio::join!(queue(one.id(), false), queue(other.id(), false));
            let (queued, refused, left) = match answers {
                (Ok(queued), Err(refused)) => (queued, refused, other.id()),
                (Err(refused), Ok(queued)) => (queued, refused, one.id()),
                answers => panic!("{on:?}: {answers:?}"),
            };
            assert!(
                matches!(&refused, StoreError::Refused(refusal) if refusal.message.contains(queued.id())),
                "{on:?}: {refused:?}"
            );
            queue(left, true).await.unwrap();
            assert_eq!(stage.worked(queued.id()).await.status(), "APPLIED");
            assert_eq!(stage.worked(left).await.status(), "APPLIED", "{on:?}: it waited");
        }
    }
}

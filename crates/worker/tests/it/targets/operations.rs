//! Rollbacks and reconciliations against a simulated shop.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waypost_kernel::{Phase, Span};
use waypost_store::{CommandWrite, Filter, Parts, RunRow};

use waypost_worker::targets::operation_of;

use super::kit::{REST, Stage, settings};
use crate::support::{On, Shop, open};

impl Stage {
    /// The operation that a command begins.
    async fn begun(&self, id: &str, command: &str, targets: Option<&[&str]>) -> String {
        let items = targets.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect());
        let write = CommandWrite { name: command.to_owned(), items, ..Shop::cancelling(id) };
        let row = self.own.store.command(write).await.unwrap();
        let begun = operation_of(&*self.own.store, &row).await.unwrap().unwrap();
        begun.id().to_owned()
    }

    /// The same, worked to its end.
    async fn operated(&self, id: &str, command: &str, targets: Option<&[&str]>) -> RunRow {
        let operation = self.begun(id, command, targets).await;
        self.worked(&operation).await
    }

    async fn drift(&self, ids: &[u64]) {
        let url = format!("{}/admin/drift", self.shop.url());
        let answer = reqwest::Client::new()
            .post(url)
            .body(json!({ "products": ids }).to_string())
            .send()
            .await
            .unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
    }

    fn prices(&self) -> Vec<i64> {
        let shop = self.shop.state();
        (1..=self.products).map(|id| shop.price_cents(id).unwrap()).collect()
    }

    async fn operations(&self) -> Vec<RunRow> {
        let filter = Filter {
            tenant: "default".to_owned(),
            lifecycle: Some("operation".to_owned()),
            limit: 100,
            include: Parts::ALL,
            ..Filter::default()
        };
        self.own.store.runs(filter).await.unwrap().runs
    }
}

fn ids_of(list: &Value) -> BTreeSet<u64> {
    let ids = list.as_array().unwrap().iter();
    ids.map(|it| it["targetId"].as_str().unwrap().parse().unwrap()).collect()
}

// proves R10
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_leaves_the_shop_as_it_was_and_names_what_had_drifted() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let faults = ["permanent=10%", "transient=5%", "lost=10%", "cut=5%"];
        let mut stage = Stage::new(store, 80, settings(&faults));
        let before = stage.prices();
        let id = stage.queued(REST).await;
        assert_eq!(stage.worked(&id).await.status(), "PARTIAL");
        let applied = stage.changed_once(&id).await;
        let drifted: BTreeSet<u64> = applied.iter().copied().take(3).collect();
        stage.drift(&drifted.iter().copied().collect::<Vec<_>>()).await;
        let operation = stage.operated(&id, "rollback", None).await;
        assert_eq!(operation.status(), "completed", "{:?} {:?}", operation.run.failure, operation.details);
        let report = &operation.details["report"];
        assert_eq!(report["rolledBack"], json!(applied.len()));
        assert_eq!((&report["errors"], &report["drifted"]), (&json!(0), &json!(3)));
        assert_eq!(ids_of(&report["drift"]), drifted);
        assert_eq!(stage.prices(), before, "{on:?}");
        let parent = stage.own.run(&id).await;
        assert_eq!((parent.status(), parent.run.operating), ("ROLLED_BACK", false));
        let mut undone = BTreeSet::new();
        for change in stage.shop.state().changes() {
            if change.key.as_deref().is_some_and(|key| key.contains(":rollback:")) {
                assert!(undone.insert(change.id), "{} was undone twice", change.id);
            }
        }
        assert_eq!(undone, applied);
        stage.own.verify().await;
    }
}

// proves R10
#[tokio::test(flavor = "multi_thread")]
async fn chosen_targets_are_rolled_back_and_what_fails_can_be_asked_for_again() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 6, settings(&[]));
        let before = stage.prices();
        // The shop knows nothing of product 5 at the address that undoes it.
        let rest = format!(
            "{REST}[rollback]\nhttp = {{ method = \"PUT\", url = \"{{{{ inputs.shop }}}}/products/{{{{ '999' if target.id == '5' else target.id }}}}\", json = {{ price = \"{{{{ target.before }}}}\" }}, allow_private = true }}\n"
        );
        let id = stage.queued(&rest).await;
        assert_eq!(stage.worked(&id).await.status(), "APPLIED");
        let operation = stage.operated(&id, "rollback", Some(&["2", "5"])).await;
        assert_eq!(operation.status(), "partial");
        let report = &operation.details["report"];
        assert_eq!((&report["rolledBack"], &report["errors"]), (&json!(1), &json!(1)));
        assert_eq!(report["failures"][0]["targetId"], json!("5"));
        assert_eq!(report["failures"][0]["code"], json!("NOT_FOUND"));
        let counted = stage.counted(&id).await;
        assert_eq!((counted["APPLIED"], counted["ROLLED_BACK"]), (5, 1));
        assert_eq!(stage.own.run(&id).await.status(), "APPLIED");
        assert_eq!(stage.prices()[1], before[1]);
        let operation = stage.operated(&id, "rollback", None).await;
        assert_eq!((operation.status(), &operation.details["report"]["rolledBack"]), ("partial", &json!(4)));
        let only = stage.operated(&id, "rollback", Some(&["5"])).await;
        assert_eq!(only.status(), "failed");
        assert_eq!(stage.counted(&id).await["APPLIED"], 1);
        stage.own.verify().await;
    }
}

// proves R10
#[tokio::test(flavor = "multi_thread")]
async fn what_was_undone_and_not_told_is_not_undone_twice() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 4, settings(&[]));
        let before = stage.prices();
        let id = stage.queued(REST).await;
        stage.worked(&id).await;
        let operation = stage.begun(&id, "rollback", None).await;
        // A worker that undid the first one and died.
        stage.own.store.claim_run(operation.clone(), "gone".into()).await.unwrap();
        let price = stage.targets(&id).await[&1].details["before"].clone();
        let sent = reqwest::Client::new()
            .put(format!("{}/products/1", stage.shop.url()))
            .header("Idempotency-Key", format!("{operation}:1:rollback:1"))
            .body(json!({ "price": price }).to_string())
            .send();
        assert!(sent.await.unwrap().status().is_success());
        stage.own.store.advance_clock(Span::from_seconds(120)).await.unwrap();
        stage.own.store.sweep("sweeper".into(), 100).await.unwrap();
        let ended = stage.worked(&operation).await;
        assert_eq!((ended.status(), &ended.details["report"]["rolledBack"]), ("completed", &json!(4)));
        assert_eq!(ended.details["report"]["drifted"], json!(0), "what is as it was before has not drifted");
        assert_eq!(stage.prices(), before);
        let of_first = stage.shop.state().changes().iter().filter(|change| change.id == 1).count();
        assert_eq!(of_first, 2, "applied once, undone once");
    }
}

// proves R11
#[tokio::test(flavor = "multi_thread")]
async fn a_reconciliation_finds_exactly_what_drifted() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 600, settings(&["transient=5%"]));
        let id = stage.queued(REST).await;
        assert_eq!(stage.worked(&id).await.status(), "APPLIED");
        let drifted: BTreeSet<u64> = [3, 299, 300, 555].into();
        stage.drift(&drifted.iter().copied().collect::<Vec<_>>()).await;
        let operation = stage.operated(&id, "reconcile", None).await;
        let report = &operation.details["report"];
        assert_eq!(operation.status(), "completed", "{:?}", operation.run.failure);
        assert_eq!((&report["totalChecked"], &report["mismatches"]), (&json!(600), &json!(4)));
        assert_eq!((&report["fetchErrors"], &report["run_id"]), (&json!(0), &json!(id)));
        assert_eq!(ids_of(&report["details"]), drifted);
        let told: BTreeSet<u64> = stage
            .own
            .events(operation.id())
            .await
            .iter()
            .filter(|event| event.message == "automation.reconciliation.mismatch")
            .flat_map(|event| ids_of(&event.payload["mismatches"]))
            .collect();
        assert_eq!(told, drifted);
        let parent = stage.own.run(&id).await;
        assert_eq!((parent.status(), parent.run.operating), ("APPLIED", false));
        stage.own.verify().await;
    }
}

// proves R11
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_counted_apart() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 3, settings(&[]));
    let rest = format!(
        "{REST}[fetch]\nhttp = {{ method = \"GET\", url = \"{{{{ inputs.shop }}}}/products/{{{{ '999' if target.id == '2' else target.id }}}}\", allow_private = true }}\nvalue = \"/price\"\n"
    );
    let id = stage.queued(&rest).await;
    stage.worked(&id).await;
    let operation = stage.operated(&id, "reconcile", None).await;
    let report = &operation.details["report"];
    assert_eq!((operation.status(), &report["totalChecked"]), ("partial", &json!(2)));
    assert_eq!((&report["fetchErrors"], &report["mismatches"]), (&json!(1), &json!(0)));
    assert_eq!(report["failures"][0]["targetId"], json!("2"));
}

// proves R10: a holder that dies after a change leaves a target so, whatever its key was
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_does_not_change_what_is_as_it_was() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 3, settings(&[]));
        let before = stage.prices();
        let id = stage.queued(REST).await;
        assert_eq!(stage.worked(&id).await.status(), "APPLIED");
        let price = format!("{}.{:02}", before[1] / 100, before[1] % 100);
        let url = format!("{}/products/2", stage.shop.url());
        let put = reqwest::Client::new().put(url).body(json!({ "price": price }).to_string());
        assert!(put.send().await.unwrap().status().is_success());
        let rollback = stage.operated(&id, "rollback", None).await;
        assert_eq!((rollback.status(), &rollback.details["report"]["drifted"]), ("completed", &json!(0)));
        assert_eq!((stage.prices(), stage.counted(&id).await["ROLLED_BACK"]), (before, 3));
        let is_undo = |key: &Option<_>| key.as_deref().is_some_and(|key: &str| key.contains(":rollback:"));
        let shop = stage.shop.state();
        let undone = shop.changes().iter().filter(|it| is_undo(&it.key)).map(|it| it.id);
        assert_eq!(undone.collect::<BTreeSet<u64>>(), BTreeSet::from([1, 3]), "{on:?}");
    }
}

// proves R11, R13
#[tokio::test(flavor = "multi_thread")]
async fn reconciliations_come_by_themselves_each_once_and_mismatches_are_changed_by_a_new_run() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 5, settings(&[]));
        let policy = "[reconcile]\nafter = [\"5m\", \"1h\"]\ndaily_for = \"2d\"\non_mismatch = \"retry\"\n";
        let id = stage.queued(&format!("{REST}{policy}")).await;
        assert_eq!(stage.worked(&id).await.status(), "APPLIED");
        let planned = stage.operations().await;
        assert_eq!(planned.len(), 1);
        assert!(planned[0].schedule_at.is_some() && planned[0].parent_run_id.is_none());
        // Meanwhile the run is free, and what is not due is not done.
        assert!(!stage.own.run(&id).await.run.operating);
        stage.own.work().await;
        assert_eq!(stage.operations().await.len(), 1);
        stage.drift(&[2]).await;
        let mut passed = 0;
        for due in [330, 3_700, 24 * 3_600 + 60, 2 * 24 * 3_600 + 60] {
            stage.own.store.advance_clock(Span::from_seconds(due - passed)).await.unwrap();
            passed = due;
            // What comes late is asked for twice, and is one.
            stage.own.work().await;
            stage.own.work().await;
        }
        // The new run has a series of its own.
        let mut all = stage.operations().await;
        all.retain(|run| run.input["run_id"] == json!(id));
        assert!(all.iter().all(|run| run.phase() == Phase::Settled && run.run.failure.is_none()), "{all:?}");
        let mut found: Vec<(u64, u64)> = all
            .iter()
            .map(|run| {
                let number = |value: &Value| value.as_u64().unwrap();
                (number(&run.input["number"]), number(&run.details["report"]["mismatches"]))
            })
            .collect();
        found.sort_unstable();
        assert_eq!(found, [(1, 1), (2, 0), (3, 0), (4, 0)], "{on:?}");
        let first = all.iter().find(|run| run.details["report"]["mismatches"] == json!(1)).unwrap();
        let retry = first.details["report"]["retriedBy"].as_str().unwrap();
        let retry = stage.own.run(retry).await;
        assert_eq!((retry.status(), retry.retry_of.as_deref()), ("APPLIED", Some(id.as_str())));
        // Nobody is behind the first one here, so it is itself.
        let corrects = json!({ "actor": id, "source": "reconciliation", "corrects": id });
        let by_itself = json!({ "actor": id, "source": "schedule" });
        for (run, source) in [(stage.own.run(first.id()).await, by_itself), (retry, corrects)] {
            assert_eq!(Value::Object((*run.metadata).clone()), source);
            assert_eq!(run.correlation_id.as_deref(), Some(id.as_str()), "{source}");
        }
        assert_eq!(stage.counted(&id).await["APPLIED"], 5, "what was applied stays applied");
    }
}

// proves R10
#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_its_parent_does_not_know_changes_nothing() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 2, settings(&[]));
    let id = stage.queued(REST).await;
    let parent = stage.worked(&id).await;
    let after = stage.prices();
    let forged = waypost_store::NewRun {
        tenant: "default".into(),
        lifecycle: "operation".into(),
        parent_run_id: Some(id.clone()),
        playbook: parent.playbook.clone(),
        carried: parent.carried.clone(),
        input: json!({ "operation": "rollback" }),
        by: "eve".into(),
        ..waypost_store::NewRun::default()
    };
    let operation = stage.own.enqueue(forged).await;
    let ended = stage.worked(&operation).await;
    assert_eq!((ended.status(), stage.prices()), ("failed", after));
    assert_eq!(stage.own.run(&id).await.status(), "APPLIED");
}

// proves R9, R10, R11
#[tokio::test(flavor = "multi_thread")]
async fn what_failed_without_an_answer_is_looked_at_and_undone_if_it_was_made() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 60, settings(&["lost=30%", "cut=20%", "permanent=10%"]));
        let before = stage.prices();
        let id = stage.queued(&format!("{REST}retries = 0\n")).await;
        assert_eq!(stage.worked(&id).await.status(), "PARTIAL");
        stage.shop.state().heal();
        let changed = stage.changed_once(&id).await;
        let targets = stage.targets(&id).await;
        let silent = |id: &u64| {
            targets[id].status == "FAILED" && targets[id].failure.as_ref().unwrap().code == "NETWORK".into()
        };
        let doubtful: BTreeSet<u64> = targets.keys().copied().filter(silent).collect();
        let made: BTreeSet<u64> = doubtful.intersection(&changed).copied().collect();
        assert!(!made.is_empty() && made.len() < doubtful.len(), "{made:?} {doubtful:?}");
        let by_hand = *made.first().unwrap();
        stage.drift(&[by_hand]).await;
        let found = |report: &Value, word: &str| {
            let list = report["doubts"].as_array().unwrap().iter().filter(|it| it["found"] == json!(word));
            ids_of(&list.cloned().collect())
        };
        let operation = stage.operated(&id, "reconcile", None).await;
        let report = &operation.details["report"];
        assert_eq!((operation.status(), &report["mismatches"]), ("completed", &json!(0)));
        assert_eq!(report["totalChecked"], json!(stage.counted(&id).await["APPLIED"]));
        assert_eq!((&report["inDoubt"], &report["made"]), (&json!(doubtful.len()), &json!(made.len() - 1)));
        assert_eq!(found(report, "neither"), [by_hand].into());
        assert_eq!(found(report, "made").len(), made.len() - 1);
        assert_eq!(found(report, "not made"), &doubtful - &made);
        let operation = stage.operated(&id, "rollback", None).await;
        let report = &operation.details["report"];
        assert_eq!((operation.status(), &report["errors"]), ("completed", &json!(0)), "{report}");
        assert_eq!((&report["inDoubt"], &report["made"]), (&json!(doubtful.len()), &json!(made.len() - 1)));
        let after = stage.prices();
        for (product, (was, is)) in (1..).zip(before.iter().zip(&after)) {
            assert_eq!(was == is, product != by_hand, "{product}: what others made it is left alone");
        }
        assert_eq!(stage.own.run(&id).await.status(), "ROLLED_BACK");
        let targets = stage.targets(&id).await;
        assert!(doubtful.iter().all(|id| targets[id].status == "FAILED"), "failed stays failed");
        stage.own.verify().await;
    }
}

// proves R9, R11
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_only_answer_was_lost_can_be_compared_too() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 1, settings(&["lost=100%"]));
    let id = stage.queued(&format!("{REST}retries = 0\n")).await;
    assert_eq!(stage.worked(&id).await.status(), "FAILED");
    stage.shop.state().heal();
    let operation = stage.operated(&id, "reconcile", None).await;
    let report = &operation.details["report"];
    assert_eq!(
        (operation.status(), &report["made"], &report["totalChecked"]),
        ("completed", &json!(1), &json!(0))
    );
    // Asked for again under the same key, it is known to have been made.
    stage.ask(&id, "retry").await;
    assert_eq!(stage.worked(&id).await.status(), "APPLIED");
    assert_eq!(stage.shop.state().changes().len(), 1);
}

// proves R10, U6
#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_that_is_throttled_waits_in_nobodys_hands() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 12, settings(&[]));
        let before = stage.prices();
        let id = stage.queued(REST).await;
        assert_eq!(stage.worked(&id).await.status(), "APPLIED");
        let faults = json!({ "faults": { "rate_limited": { "share": 1.0, "times": 0 } } });
        let set = reqwest::Client::new().patch(format!("{}/admin/faults", stage.shop.url()));
        let set = set.body(faults.to_string()).send().await.unwrap();
        assert!(set.status().is_success(), "{}", set.text().await.unwrap());
        let operation = stage.begun(&id, "rollback", None).await;
        stage.own.work().await;
        let run = stage.own.run(&operation).await;
        assert!(
            run.phase() == Phase::Held && run.run.lease.as_ref().is_none_or(|it| it.worker.is_none()),
            "{run:?}"
        );
        assert_eq!(run.details["waited"]["pauses"], json!(1));
        stage.shop.state().heal();
        stage.own.store.advance_clock(Span::from_seconds(120)).await.unwrap();
        let ended = stage.worked(&operation).await;
        assert_eq!(
            (ended.status(), &ended.details["report"]["rolledBack"]),
            ("completed", &json!(12)),
            "{on:?}"
        );
        assert_eq!(stage.prices(), before);
    }
}

impl Stage {
    /// Time passes, and a worker looks.
    async fn passes(&self, seconds: i64) {
        self.own.store.advance_clock(Span::from_seconds(seconds)).await.unwrap();
        self.own.work().await;
        self.own.work().await;
    }

    /// Of the series that came by themselves: which pass they are of, their numbers, and how many targets each looked at.
    async fn series(&self, pass: u64) -> Vec<(u64, Option<u64>)> {
        let all = self.operations().await;
        let its = all.iter().filter(|run| run.input["pass"] == json!(pass) && run.phase() == Phase::Settled);
        let of = |run: &RunRow| {
            (
                run.input["number"].as_u64().unwrap(),
                run.details.get("report").and_then(|it| it["totalChecked"].as_u64()),
            )
        };
        let mut found: Vec<(u64, Option<u64>)> = its.map(of).collect();
        found.sort_unstable();
        found
    }
}

// proves R11
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_begins_a_series_of_its_own_and_the_older_one_ends() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 8, settings(&["permanent=0.5"]));
        // When is not said: after 5 minutes, after an hour, and daily for 30 days.
        let id = stage.queued(&format!("{REST}[reconcile]\n")).await;
        assert_eq!(stage.worked(&id).await.status(), "PARTIAL");
        let applied = stage.counted(&id).await["APPLIED"] as u64;
        for _ in 0..2 {
            stage.passes(3_700).await;
        }
        assert_eq!(stage.series(1).await, [(1, Some(applied)), (2, Some(applied))], "{on:?}");
        reqwest::Client::new().delete(format!("{}/admin/faults", stage.shop.url())).send().await.unwrap();
        stage.ask(&id, "retry").await;
        assert_eq!(stage.worked(&id).await.status(), "APPLIED");
        stage.passes(330).await;
        assert_eq!(stage.series(2).await, [(1, Some(8))], "{on:?}");
        stage.passes(3_400).await;
        assert_eq!(stage.series(2).await, [(1, Some(8)), (2, Some(8))], "{on:?}");
        for _ in 0..32 {
            stage.passes(24 * 3_600).await;
        }
        let every: Vec<(u64, Option<u64>)> = (1..=32).map(|number| (number, Some(8))).collect();
        assert_eq!(stage.series(2).await, every, "{on:?}: each day, and no longer than 30");
        // The older series was asked for once more, and found that it is over.
        assert_eq!(stage.series(1).await, [(1, Some(applied)), (2, Some(applied)), (3, None)], "{on:?}");
    }
}

// proves R10
#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_the_new_value_undoes_nothing() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 3, settings(&[]));
    let same = REST.replace("\"{{ target.after }}\"", "9.99");
    let id = stage.queued(&same).await;
    assert_eq!(stage.worked(&id).await.status(), "APPLIED");
    let prices = stage.prices();
    let operation = stage.operated(&id, "rollback", None).await;
    let failure = operation.run.failure.as_ref().unwrap();
    assert_eq!((operation.status(), &*failure.code), ("failed", "NO_ROLLBACK"));
    assert!(failure.message.contains("[rollback]"), "{}", failure.message);
    assert_eq!((stage.own.run(&id).await.status(), stage.prices()), ("APPLIED", prices));
}

//! Runs of one rule after each other: an older one does not undo what a newer one made, and corrections do not multiply.

use std::collections::BTreeMap;

use serde_json::json;
use waypost_kernel::{Phase, Span};
use waypost_store::{Filter, Parts, RunRow};
use waypost_worker::playbook::Playbook;
use waypost_worker::targets::gather::gather;
use waypost_worker::targets::source::Reader;

use super::kit::{REST, Stage, settings};
use crate::support::{On, open};

impl Stage {
    /// A playbook whose runs add what they are told.
    fn adding(&mut self, rest: &str) -> Playbook {
        // Writes the source.
        self.playbook(REST);
        self.own.playbook(&format!(
            "name = \"prices\"\nlifecycle = \"rule\"\n[inputs.shop]\ntype = \"string\"\n[inputs.plus]\ntype = \"number\"\n\
             [targets]\ncsv = \"prices.csv\"\nafter = \"{{{{ target.before + inputs.plus }}}}\"\n{REST}{rest}"
        ))
    }

    async fn applied(&self, playbook: &Playbook, plus: u64) -> String {
        let catalog = self.own.store.lifecycles().await.unwrap();
        let input = json!({ "shop": self.shop.url(), "plus": plus });
        let id = self.own.enqueue(playbook.new_run(&catalog, &input).unwrap()).await;
        let run = self.own.run(&id).await;
        let reader = Reader::of_person("default", &id).unwrap();
        gather(&*self.own.store, &run, (playbook, playbook.rule.as_ref().unwrap()), "ann", reader)
            .await
            .unwrap_or_else(|problem| panic!("{problem}"));
        self.ask(&id, "queue").await;
        assert_eq!(self.worked(&id).await.status(), "APPLIED");
        id
    }

    async fn all(&self, lifecycle: &str) -> Vec<RunRow> {
        let filter = Filter {
            tenant: "default".to_owned(),
            lifecycle: Some(lifecycle.to_owned()),
            limit: 500,
            include: Parts::ALL,
            ..Filter::default()
        };
        self.own.store.runs(filter).await.unwrap().runs
    }

    /// What the automatic comparisons of a run found: mismatches, and what later runs changed.
    async fn found(&self, id: &str) -> Vec<(u64, u64)> {
        let mut found = BTreeMap::new();
        for run in self.all("operation").await {
            let report = run.details.get("report").filter(|_| run.input["run_id"] == json!(id));
            let Some(report) = report.filter(|_| run.phase() == Phase::Settled) else { continue };
            let count = |name: &str| report[name].as_u64().unwrap();
            found.insert(run.input["number"].as_u64().unwrap(), (count("mismatches"), count("superseded")));
        }
        found.into_values().collect()
    }

    async fn days(&self, count: i64) {
        for _ in 0..count {
            self.own.store.advance_clock(Span::from_seconds(24 * 3_600)).await.unwrap();
            for _ in 0..4 {
                self.own.work().await;
            }
        }
    }
}

const RETRY: &str = "[reconcile]\nafter = [\"5m\"]\ndaily_for = \"4d\"\non_mismatch = \"retry\"\n";

// proves R11
#[tokio::test(flavor = "multi_thread")]
async fn what_a_later_run_changed_is_no_mismatch_of_the_earlier_one() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 4, settings(&[]));
        let playbook = stage.adding(RETRY);
        let first = stage.applied(&playbook, 1).await;
        stage.own.store.advance_clock(Span::from_seconds(60)).await.unwrap();
        let second = stage.applied(&playbook, 2).await;
        let made: Vec<i64> = (1..=4).map(|id| stage.shop.state().price_cents(id).unwrap()).collect();
        stage.days(5).await;
        let now: Vec<i64> = (1..=4).map(|id| stage.shop.state().price_cents(id).unwrap()).collect();
        assert_eq!(now, made, "{on:?}: nobody sets the older prices again");
        assert_eq!(stage.all("rule").await.len(), 2, "{on:?}: no run corrects anything");
        assert!(stage.found(&first).await.iter().all(|found| *found == (0, 4)), "{on:?}");
        assert!(stage.found(&second).await.iter().all(|found| *found == (0, 0)), "{on:?}");
        let of_first =
            stage.all("operation").await.into_iter().find(|run| run.input["run_id"] == json!(first));
        assert_eq!(of_first.unwrap().details["report"]["supersededBy"], json!([second]), "{on:?}");
    }
}

// proves R11
#[tokio::test(flavor = "multi_thread")]
async fn corrections_have_no_series_of_their_own_and_are_one_for_each_comparison() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 3, settings(&[]));
        let playbook = stage.adding(RETRY);
        let id = stage.applied(&playbook, 1).await;
        for _ in 0..4 {
            // Somebody else sets a price each day.
            let url = format!("{}/admin/drift", stage.shop.url());
            let drift = json!({ "products": [2] }).to_string();
            assert!(reqwest::Client::new().post(url).body(drift).send().await.unwrap().status().is_success());
            stage.days(1).await;
        }
        stage.days(2).await;
        let corrections: Vec<RunRow> =
            stage.all("rule").await.into_iter().filter(|run| run.id() != id).collect();
        let compared = stage.found(&id).await;
        let mismatches = compared.iter().filter(|(mismatches, _)| *mismatches > 0).count();
        // The first day has two of them, of which the second may come before the correction is done: none is begun then.
        assert!((4..=5).contains(&mismatches), "{on:?}: {compared:?}");
        assert!((4..=mismatches).contains(&corrections.len()), "{on:?}: {}", corrections.len());
        for run in &corrections {
            assert_eq!((run.status(), &run.metadata["corrects"]), ("APPLIED", &json!(id)));
            let has_series =
                stage.all("operation").await.iter().any(|it| it.input["run_id"] == json!(run.id()));
            assert!(!has_series, "{on:?}");
        }
        let target =
            stage.targets(&id).await[&2].details["after"].as_f64().map(|it| (it * 100.0).round() as i64);
        assert_eq!(stage.shop.state().price_cents(2), target, "{on:?}: what was applied is there again");
    }
}

fn failures(stage: &BTreeMap<u64, waypost_store::ItemRow>) -> BTreeMap<u64, (String, String)> {
    let of = |item: &waypost_store::ItemRow| {
        let failure = item.failure.as_ref()?;
        Some((failure.code.to_string(), failure.message.to_string()))
    };
    stage.iter().filter_map(|(id, item)| Some((*id, of(item)?))).collect()
}

// proves R12
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_judged_before_the_first_call_says_why_and_can_be_cured() {
    for on in [On::Sqlite, On::Postgres] {
        let (store, _kept) = open(on).await;
        let mut stage = Stage::new(store, 30, settings(&[]));
        let playbook = stage.adding("[guardrails]\nper_day = 1\non_violation = \"stop\"\n");
        // Both are previewed before anything is changed; the first changes the last target alone.
        let catalog = stage.own.store.lifecycles().await.unwrap();
        let mut ids = Vec::new();
        for plus in [1, 2] {
            let input = json!({ "shop": stage.shop.url(), "plus": plus });
            let id = stage.own.enqueue(playbook.new_run(&catalog, &input).unwrap()).await;
            let run = stage.own.run(&id).await;
            if plus == 1 {
                let csv = std::fs::read_to_string(stage.own.path("prices.csv")).unwrap();
                let lines: Vec<&str> = csv.lines().collect();
                std::fs::write(stage.own.path("prices.csv"), format!("{}\n{}\n", lines[0], lines[30]))
                    .unwrap();
                gathered(&stage, &run, &playbook).await;
                std::fs::write(stage.own.path("prices.csv"), csv).unwrap();
            } else {
                gathered(&stage, &run, &playbook).await;
            }
            ids.push(id);
        }
        stage.ask(&ids[0], "queue").await;
        assert_eq!(stage.worked(&ids[0]).await.status(), "APPLIED");
        let changes = stage.shop.state().changes().len();
        stage.ask(&ids[1], "queue").await;
        assert_eq!(stage.worked(&ids[1]).await.status(), "FAILED", "{on:?}");
        assert_eq!(stage.shop.state().changes().len(), changes, "{on:?}: nothing was changed");
        let told = failures(&stage.targets(&ids[1]).await);
        assert_eq!(told[&30].0, "GUARDRAIL");
        assert!(told[&30].1.starts_with("per_day: it was changed 1 times today"), "{}", told[&30].1);
        assert_eq!(told[&1].0, "STOPPED");
        assert!(told[&1].1.contains("1 target (\"30\") is past a guardrail"), "{}", told[&1].1);
        // All of them again is the same again; without the one that is past it the others go on.
        stage.ask(&ids[1], "retry").await;
        assert_eq!(stage.worked(&ids[1]).await.status(), "FAILED", "{on:?}");
        assert_eq!(stage.shop.state().changes().len(), changes, "{on:?}");
        let discard = waypost_store::DiscardTargets {
            tenant: "default".into(),
            run_id: ids[1].clone(),
            by: "ann".into(),
            reason: "tomorrow".into(),
            keys: Some(vec!["30".into()]),
            code: None,
        };
        assert_eq!(stage.own.store.discard_targets(discard).await.unwrap(), 1);
        stage.ask(&ids[1], "retry").await;
        assert_eq!(stage.worked(&ids[1]).await.status(), "PARTIAL", "{on:?}");
        assert_eq!(stage.counted(&ids[1]).await["APPLIED"], 29, "{on:?}");
        stage.own.verify().await;
    }
}

async fn gathered(stage: &Stage, run: &RunRow, playbook: &Playbook) {
    let reader = Reader::of_person("default", run.id()).unwrap();
    let preview =
        gather(&*stage.own.store, run, (playbook, playbook.rule.as_ref().unwrap()), "ann", reader).await;
    assert_eq!(preview.unwrap().totals["on_violation"], json!("stop"));
}

// proves R12
#[tokio::test(flavor = "multi_thread")]
async fn the_others_of_a_stopped_run_are_changed_by_a_retry_of_them_alone() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 5, settings(&[]));
    let lowest = (1..=5).min_by_key(|id| stage.shop.state().price_cents(*id)).unwrap();
    let floor = stage.shop.state().price_cents(lowest).unwrap() / 100 + 2;
    let id = stage.queued(&format!("{REST}[guardrails]\nfloor = {floor}\non_violation = \"stop\"\n")).await;
    assert_eq!(stage.worked(&id).await.status(), "FAILED");
    let told = failures(&stage.targets(&id).await);
    assert!(told[&lowest].0 == "GUARDRAIL" && told[&lowest].1.starts_with("floor: "), "{told:?}");
    let others: Vec<String> =
        told.iter().filter(|(_, (code, _))| code == "STOPPED").map(|(id, _)| id.to_string()).collect();
    assert!(!others.is_empty() && stage.shop.state().changes().is_empty());
    let count = others.len();
    let retry = waypost_store::CommandWrite {
        name: "retry".to_owned(),
        items: Some(others),
        ..crate::support::Shop::cancelling(&id)
    };
    stage.own.command(retry).await;
    assert_eq!(stage.worked(&id).await.status(), "PARTIAL");
    assert_eq!(stage.counted(&id).await["APPLIED"], count);
}

// proves R15
#[tokio::test(flavor = "multi_thread")]
async fn the_columns_of_id_and_before_have_their_own_names_in_apply_and_an_id_stays_one_part_of_the_url() {
    let (store, _kept) = open(On::Sqlite).await;
    let mut stage = Stage::new(store, 3, settings(&[]));
    let before = stage.shop.state().price_cents(2);
    let csv = "sku,was\n1,5\n3/../2,5\n2?a=b,5\n%32,5\n..,5\n";
    std::fs::write(stage.own.path("prices.csv"), csv).unwrap();
    let playbook = stage.own.playbook(
        "name = \"prices\"\nlifecycle = \"rule\"\n[inputs.shop]\ntype = \"string\"\n\
         [targets]\ncsv = \"prices.csv\"\nid = \"sku\"\nbefore = \"was\"\nafter = \"{{ target.was + 1 }}\"\n\
         [apply]\nhttp = { method = \"PUT\", url = \"{{ inputs.shop }}/products/{{ target.sku }}\", \
         json = { price = \"{{ target.after }}\" }, headers = { X-Was = \"{{ target.was }}\" }, allow_private = true }\n",
    );
    let (run, _) = stage.gathered(&playbook).await.unwrap_or_else(|problem| panic!("{problem}"));
    stage.ask(run.id(), "queue").await;
    assert_eq!(stage.worked(run.id()).await.status(), "PARTIAL");
    let items = stage.own.store.items(run.id().to_owned(), None).await.unwrap();
    for item in items {
        let failure = item.failure.as_ref().map(|failure| (&*failure.code, &*failure.message));
        match item.key.as_str() {
            "1" => assert_eq!((item.status.as_str(), failure), ("APPLIED", None)),
            key => {
                let (code, message) = failure.unwrap();
                assert!(code == "VALIDATION" && message.contains("|urlencode"), "{key}: {message}");
            }
        }
    }
    assert_eq!(stage.shop.state().price_cents(2), before, "no other product was reached");
    assert_eq!(stage.shop.state().price_cents(1), Some(600));
}

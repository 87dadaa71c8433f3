//! Bulk changes by the command line and over HTTP, against the simulated shop.

use serde_json::{Value, json};
use waypost_simulate::shop::{CatalogueFlags, Options, Settings, Shop as Simulated};

use crate::support::{Ran, SOON, Shop, eventually};

const PRICES: &str = r#"
name = "prices"
lifecycle = "rule"

[inputs.shop]
type = "string"

[targets]
csv = "prices.csv"
after = "{{ target.before|percent(10)|round(2) }}"

[apply]
http = { method = "PUT", url = "{{ inputs.shop }}/products/{{ target.id }}", json = { price = "{{ target.after }}" }, allow_private = true }

[guardrails]
floor = 1
"#;

/// On either stream.
#[track_caller]
fn says(ran: &Ran, code: i32, words: &[&str]) {
    let said = format!("{}{}", ran.out, ran.err);
    assert_eq!(ran.code, Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
}

pub fn simulated() -> waypost_simulate::Running<Simulated> {
    let settings = Settings { rate: 100_000.0, burst: 100_000.0, ..Settings::default() };
    let catalogue = CatalogueFlags { products: Some(20), ..CatalogueFlags::default() };
    let shop = Simulated::open(Options { catalogue, settings, ..Options::default() }).unwrap();
    shop.serve("127.0.0.1:0".parse().unwrap()).unwrap()
}

pub fn with_files(shop: &Shop, rows: &str) -> String {
    std::fs::create_dir_all(shop.path("rules")).unwrap();
    std::fs::write(shop.path("rules/prices.csv"), format!("id,before\n{rows}")).unwrap();
    std::fs::write(shop.path("rules/prices.toml"), PRICES).unwrap();
    shop.path("rules/prices.toml").display().to_string()
}

// proves R1, R3, R12
#[test]
fn a_file_is_previewed_queued_and_applied() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let simulated = simulated();
        let file = with_files(&shop, "1,10\n2,20.00\n3,0\n4,0.10\n999,5\n");
        let input = format!("shop={}", simulated.url());
        let looked = shop.run(&["run", "start", &file, "--input", &input, "--dry-run"]);
        says(&looked, 0, &["Nothing was written", "3 targets would change"]);
        let started = shop.run(&["run", "start", &file, "--input", &input]);
        says(
            &started,
            0,
            &["3 targets would change", "1 rows are unchanged", "past a guardrail", "floor 1", "run queue"],
        );
        let id = started.out.trim().to_owned();
        assert!(simulated.state().changes().is_empty(), "a preview changes nothing");
        let shown = shop.show(&id);
        assert_eq!(
            (&shown["status"], &shown["details"]["preview"]["targets"]),
            (&"PREVIEW".into(), &4.into())
        );
        let origin = &shown["metadata"];
        assert!(origin["source"] == "cli" && origin["actor"].is_string(), "{origin}");
        let csv = shop.ok(&["run", "targets", &id, "-o", "csv"]);
        assert!(csv.contains("2,PREVIEW,20,22,"), "{csv}");
        says(
            &shop.run(&["run", "queue", &id, "--wait"]),
            3,
            &["PARTIAL", "2 APPLIED", "2 FAILED", "NOT_FOUND", "GUARDRAIL"],
        );
        let changed: Vec<(u64, i64)> =
            simulated.state().changes().iter().map(|it| (it.id, it.to_cents)).collect();
        assert!(
            changed.contains(&(1, 1_100)) && changed.contains(&(2, 2_200)) && changed.len() == 2,
            "{changed:?}"
        );
        says(
            &shop.run(&["run", "targets", &id, "--status", "failed"]),
            0,
            &["999", "NOT_FOUND", "GUARDRAIL"],
        );
        says(&shop.run(&["run", "targets", &id, "--status", "gone"]), 2, &["status", "APPLIED"]);
        says(&shop.run(&["run", "show", &id]), 0, &["4 targets: ", "FAILED WITH", "NOT_FOUND"]);
        shop.verifies();
    }
}

// proves R3
#[test]
fn a_preview_without_targets_says_that_it_cannot_be_queued() {
    let shop = Shop::new();
    for rows in ["", "1,0\n"] {
        let file = with_files(&shop, rows);
        let started = shop.run(&["run", "start", &file, "--input", "shop=http://127.0.0.1:1"]);
        says(&started, 0, &["0 targets would change", "nothing to change", "run cancel"]);
        assert!(!started.err.contains("run queue"), "{}", started.err);
        shop.run(&["run", "queue", &id_in(&started)]).expect(5, &["at least one item"]);
    }
}

#[test]
fn rows_that_cannot_be_used_leave_no_run_to_queue() {
    let shop = Shop::new();
    let file = with_files(&shop, "1,10\n1,12\n2,ten\n");
    shop.run(&["run", "start", &file, "--input", "shop=http://127.0.0.1:1"]).expect(
        2,
        &["prices.csv:3: id: \"1\" is there twice", "prices.csv:4: after: ", "\"ten\" is no number"],
    );
    let runs = shop.runs();
    assert_eq!((runs.len(), &runs[0]["status"]), (1, &"FAILED".into()));
    let file = with_files(&shop, "1,10\n");
    std::fs::remove_file(shop.path("rules/prices.csv")).unwrap();
    shop.run(&["run", "start", &file, "--input", "shop=x"]).expect(2, &["prices.csv", "cannot be read"]);
    shop.run(&["run", "start", &file]).expect(2, &["input `shop`", "missing"]);
}

// proves R1
#[test]
fn a_rule_by_name_is_gathered_by_a_worker_and_a_second_run_is_refused() {
    let shop = Shop::new();
    let simulated = simulated();
    with_files(&shop, "1,10\n2,20\n");
    let folder = shop.path("rules").display().to_string();
    let input = format!("shop={}", simulated.url());
    let mut ids = Vec::new();
    for _ in 0..2 {
        let started =
            shop.run(&["run", "start", "prices", "--playbooks", &folder, "--input", &input, "--wait"]);
        says(&started, 6, &["2 targets would change"]);
        ids.push(started.out.lines().last().unwrap_or_default().to_owned());
    }
    shop.ok(&["run", "queue", &ids[0]]);
    shop.run(&["run", "queue", &ids[1]]).expect(5, &["prices has a run that is QUEUED already", &ids[0]]);
    let (_server, url) = shop.serve(&["serve", "--no-worker"]);
    let asked = std::process::Command::new("curl")
        .args(["-s", "--noproxy", "*", "-w", " %{http_code}", "-X", "POST", "-d", "{}"])
        .args(["-H", "content-type: application/json", &format!("{url}/v1/runs/{}/queue", ids[1])])
        .output()
        .unwrap();
    let answer = String::from_utf8(asked.stdout).unwrap();
    assert!(
        answer.ends_with(" 409") && answer.contains(&ids[0]) && answer.contains("INVALID_TRANSITION"),
        "{answer}"
    );
    shop.ok(&["run", "queue", &ids[1], "--force"]);
    assert!(simulated.state().changes().is_empty());
}

/// What a server answers to a request with a body.
fn posted(url: &str, path: &str, body: &str) -> (u16, Value) {
    let asked = std::process::Command::new("curl")
        .args(["-s", "--noproxy", "*", "-w", "\n%{http_code}", "-X", "POST", "-d", body])
        .args(["-H", "content-type: application/json", &format!("{url}{path}")])
        .output()
        .unwrap();
    let text = String::from_utf8(asked.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap_or_default())
}

// proves R8
#[test]
fn failed_targets_are_reported_retried_and_given_up() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let simulated = simulated();
        let file = with_files(&shop, "1,10\n998,5\n999,5\n2,0.10\n");
        let input = format!("shop={}", simulated.url());
        says(&shop.run(&["dlq", "report"]), 0, &["no target has failed"]);
        let id = shop.ok(&["run", "start", &file, "--input", &input]).trim().to_owned();
        says(&shop.run(&["run", "queue", &id, "--wait"]), 3, &["PARTIAL"]);
        says(
            &shop.run(&["dlq", "report"]),
            0,
            &["NOT_FOUND", "GUARDRAIL", "discard them, or correct the source"],
        );
        let report = shop.json(&["dlq", "report", "--class", "NOT_FOUND"]);
        assert_eq!((&report["total"], &report["classes"][0]["count"]), (&json!(2), &json!(2)));
        assert_eq!(report["classes"][0]["run_id"], json!(id));
        // Without saying which, nothing is done.
        assert_eq!(shop.run(&["dlq", "retry"]).code, Some(2));
        assert_eq!(shop.run(&["dlq", "discard", "--all"]).code, Some(2), "a reason is needed");
        assert_eq!(shop.run(&["dlq", "retry", "--target", "998"]).code, Some(2), "of which run?");

        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let gone =
            shop.asks(&url, &["dlq", "discard", "--run", &id, "--target", "998", "--reason", "not sold"]);
        says(&gone, 0, &["1 discarded"]);
        says(&shop.run(&["run", "targets", &id, "--status", "failed"]), 0, &["discarded: not sold"]);
        let csv = shop.ok(&["run", "targets", &id, "-o", "csv"]);
        assert!(
            csv.lines().any(|line| line.starts_with("998,FAILED") && line.ends_with(",not sold")),
            "{csv}"
        );
        assert_eq!(shop.curl(&url, "/v1/dlq?error_code=NOT_FOUND")["total"], json!(1));
        let (status, problem) = posted(&url, "/v1/dlq/retry", r#"{"targets": ["999"]}"#);
        assert_eq!((status, &problem["field"]), (422, &json!("targets")), "{problem}");
        let (status, acted) = posted(&url, "/v1/dlq/retry", r#"{"error_code": "NOT_FOUND"}"#);
        assert_eq!((status, &acted["targets"]), (200, &json!(1)), "{acted}");
        assert_eq!(shop.show(&id)["status"], json!("APPLYING"), "999 alone is tried again");
        says(&shop.run(&["run", "watch", &id, "--timeout", "1ms"]), 124, &[]);
        let (_, refused) = posted(&url, "/v1/dlq/retry", &json!({ "run_id": id }).to_string());
        assert!(refused["runs"][0]["refused"].is_string(), "{refused}");
        let (status, acted) =
            posted(&url, "/v1/dlq/discard", r#"{"error_code": "GUARDRAIL", "reason": "too cheap"}"#);
        assert_eq!((status, &acted["targets"]), (200, &json!(0)), "it is being worked: {acted}");
        shop.verifies();
    }
}

// proves R10, R11
#[test]
fn a_bulk_change_is_reconciled_and_rolled_back_through_a_server() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let simulated = simulated();
        let file = with_files(&shop, "1,10\n2,20\n3,30\n");
        let input = format!("shop={}", simulated.url());
        let id = shop.ok(&["run", "start", &file, "--input", &input]).trim().to_owned();
        shop.ok(&["run", "queue", &id, "--wait"]);
        let (_server, url) = shop.serve(&["serve", "--allow-commands"]);
        simulated.state().drift_now(&[2]);
        let found = shop.asks(&url, &["run", "reconcile", &id, "--wait", "-o", "json"]);
        let report: Value =
            serde_json::from_str(&found.out).unwrap_or_else(|_| panic!("{}{}", found.out, found.err));
        assert_eq!((found.code, &report["run_id"]), (Some(0), &json!(id)));
        assert_eq!((&report["totalChecked"], &report["mismatches"]), (&json!(3), &json!(1)));
        assert_eq!((&report["fetchErrors"], &report["details"][0]["targetId"]), (&json!(0), &json!("2")));
        let listed = shop.curl(&url, &format!("/v1/reconciliations?run_id={id}"));
        assert_eq!(listed["reconciliations"][0]["mismatches"], json!(1), "{listed}");
        assert_eq!(shop.curl(&url, "/v1/reconciliations?run_id=none")["reconciliations"], json!([]));
        let (status, problem) =
            posted(&url, &format!("/v1/runs/{id}/rollback"), r#"{"targets": ["nobody"]}"#);
        assert_eq!((status, &problem["field"]), (422, &json!("items")), "{problem}");
        says(&shop.asks(&url, &["run", "rollback", &id]), 2, &["--all"]);
        let some = shop.asks(&url, &["run", "rollback", &id, "--target", "1", "--wait"]);
        says(&some, 0, &["1 rolled back"]);
        assert_eq!(shop.show(&id)["status"], json!("APPLIED"));
        let rest = shop.asks(&url, &["run", "rollback", &id, "--all", "--wait"]);
        says(&rest, 0, &["2 rolled back", "1 had been changed by others"]);
        assert_eq!(shop.show(&id)["status"], json!("ROLLED_BACK"));
        let shop_now = simulated.state();
        let prices: Vec<Option<i64>> = (1..=3).map(|id| shop_now.price_cents(id)).collect();
        assert_eq!(prices, [Some(1_000), Some(2_000), Some(3_000)]);
        drop(shop_now);
        shop.run(&["run", "rollback", &id, "--all"]).expect(5, &["ROLLED_BACK"]);
        shop.verifies();
    }
}

// proves R1, R8, R10
#[test]
fn a_retry_and_a_rollback_wait_for_other_runs_of_their_rule() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let simulated = simulated();
        let file = with_files(&shop, "1,10\n2,20\n999,5\n");
        let input = format!("shop={}", simulated.url());
        let start = || shop.ok(&["run", "start", &file, "--input", &input]).trim().to_owned();
        let (first, second) = (start(), start());
        says(&shop.run(&["run", "queue", &first, "--wait"]), 3, &["PARTIAL"]);
        shop.ok(&["run", "queue", &second]);
        let named = ["prices has a run that is QUEUED already", second.as_str()];
        says(&shop.run(&["run", "retry", &first]), 5, &named);
        says(&shop.run(&["run", "do", &first, "retry"]), 5, &named);
        says(&shop.run(&["run", "rollback", &first, "--all"]), 5, &named);
        says(&shop.run(&["dlq", "retry", "--all"]), 5, &named);
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        for command in ["retry", "rollback"] {
            let (status, problem) = posted(&url, &format!("/v1/runs/{first}/{command}"), "{}");
            assert_eq!((status, &problem["code"]), (409, &json!("INVALID_TRANSITION")), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains(&second), "{problem}");
        }
        let (_, acted) = posted(&url, "/v1/dlq/retry", "{}");
        assert!(acted["runs"][0]["refused"].as_str().unwrap().contains(&second), "{acted}");
        assert_eq!(shop.show(&first)["status"], json!("PARTIAL"));
        // What only reads may go on beside it.
        says(&shop.run(&["run", "reconcile", &first, "--wait"]), 0, &["2 compared"]);
        // Meant all the same, the rollback waits its turn, and is named to others.
        let undo = shop.ok(&["run", "rollback", &first, "--all", "--force"]).trim().to_owned();
        shop.ok(&["run", "cancel", &second]);
        let third = start();
        says(
            &shop.run(&["run", "queue", &third]),
            5,
            &["prices has a rollback that is queued already", &undo],
        );
        shop.ok(&["run", "queue", &third, "--force"]);
        shop.ok(&["run", "cancel", &third]);

        // Nobody retries what was cancelled without naming it.
        let report = shop.json(&["dlq", "report"]);
        assert_eq!((&report["total"], &report["of_cancelled_runs"]), (&json!(7), &json!(6)), "{report}");
        shop.ok(&["run", "cancel", &undo]);
        says(&shop.run(&["dlq", "retry", "--class", "CANCELLED"]), 0, &["nothing was retried"]);
        let acted = shop.json(&["dlq", "retry", "--all"]);
        assert_eq!((&acted["targets"], acted["runs"].as_array().unwrap().len()), (&json!(1), 1), "{acted}");
        assert_eq!(shop.show(&first)["status"], json!("APPLYING"));
        shop.ok(&["run", "cancel", &first]);
        let acted = shop.json(&["dlq", "retry", "--run", &second]);
        assert_eq!(acted["targets"], json!(3), "{acted}");
        shop.verifies();
    }
}

// proves R1
#[test]
fn a_preview_that_is_too_old_is_queued_by_force_alone() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let file = with_files(&shop, "1,10\n");
        let input = "shop=http://127.0.0.1:1";
        let id = shop.ok(&["run", "start", &file, "--input", input]).trim().to_owned();
        let until = shop.show(&id)["details"]["preview"]["totals"]["valid_until"].clone();
        assert!(until.as_str().is_some_and(|until| until.ends_with('Z')), "{until}");
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        // Another gatherer's, which says until when it stands.
        let new = r#"{"lifecycle": "rule", "playbook": "prices@1", "unknown_playbook": true}"#;
        let (status, made) = posted(&url, "/v1/runs", new);
        assert_eq!(status, 201, "{made}");
        let old = made["run_id"].as_str().unwrap();
        let batch = json!({
            "at": 0, "rows": 1, "last": true, "totals": { "valid_until": "2020-01-01T00:00:00Z" },
            "targets": [{ "key": "1", "before": 1, "after": 2 }],
        });
        let (status, preview) = posted(&url, &format!("/v1/runs/{old}/targets"), &batch.to_string());
        assert_eq!(status, 200, "{preview}");
        let (status, problem) = posted(&url, &format!("/v1/runs/{old}/queue"), "{}");
        assert_eq!((status, &problem["code"]), (409, &json!("OUT_OF_DATE")), "{problem}");
        says(&shop.run(&["run", "queue", old]), 5, &["OUT_OF_DATE", "2020-01-01", "force"]);
        shop.ok(&["run", "queue", old, "--force"]);
        assert_eq!(shop.show(old)["status"], json!("QUEUED"));
        shop.ok(&["run", "cancel", old]);
        shop.ok(&["run", "queue", &id]);
    }
}

/// As the command line says it of a run that was gathered: its id is the last line.
fn id_in(ran: &Ran) -> String {
    ran.out.lines().last().unwrap_or_default().to_owned()
}

/// Who asked for a run, and through what.
fn origin(run: &Value) -> &Value {
    &run["metadata"]
}

// proves R1, R11, R13, U1
#[test]
fn a_rule_by_name_is_gathered_applied_and_reconciled_by_a_worker_through_a_server() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let simulated = simulated();
        with_files(&shop, "1,10\n2,20\n");
        let policy = "\n[reconcile]\nafter = [\"1h\"]\non_mismatch = \"retry\"\n";
        std::fs::write(shop.path("rules/prices.toml"), format!("{PRICES}{policy}")).unwrap();
        let (_server, url) = shop.serve(&["serve", "--no-worker"]);
        let folder = shop.path("rules").display().to_string();
        // It has the address of the server alone.
        let elsewhere = Shop::new();
        let _worker = elsewhere.spawn(&["worker", "--playbooks", &folder, "--url", &url]);
        eventually("the playbook is offered", SOON, || {
            shop.curl(&url, "/v1/playbooks")["playbooks"].as_array().is_some_and(|them| !them.is_empty())
        });
        let input = format!("shop={}", simulated.url());
        let start = ["run", "start", "prices", "--input", &input];
        let waited = elsewhere.asks(&url, &[&start[..], &["--wait"]].concat());
        says(&waited, 6, &["2 targets would change"]);
        let first = id_in(&waited);
        says(&elsewhere.asks(&url, &["run", "queue", &first, "--wait"]), 0, &["2 APPLIED"]);

        // The worker asked for the first reconciliation; this one is a person's.
        let operations = shop.json(&["run", "list", "--lifecycle", "operation"]);
        let titles: Vec<&str> =
            operations.as_array().unwrap().iter().filter_map(|run| run["title"].as_str()).collect();
        assert_eq!(titles.len(), 2, "a preview and a reconciliation: {titles:?}");
        assert!(titles.iter().any(|title| title.starts_with("reconcile 1 of ")), "{titles:?}");
        simulated.state().drift_now(&[2]);
        let found = elsewhere.asks(&url, &["run", "reconcile", &first, "--wait", "-o", "json"]);
        let report: Value =
            serde_json::from_str(&found.out).unwrap_or_else(|_| panic!("{}{}", found.out, found.err));
        let mended = report["retriedBy"].as_str().unwrap_or_else(|| panic!("{report}")).to_owned();
        eventually("the mismatch is changed again", SOON, || shop.show(&mended)["status"] == "APPLIED");
        let targets = shop.curl(&url, &format!("/v1/runs/{mended}/items"));
        assert_eq!(targets["items"].as_array().unwrap().len(), 1, "the mismatch alone: {targets}");
        assert_eq!(simulated.state().price_cents(2), Some(2_200));

        // Without waiting, and as others ask a server.
        let told = elsewhere.asks(&url, &start);
        says(&told, 0, &["a worker gathers its targets", "run watch"]);
        let asked = json!({ "playbook": "prices", "input": { "shop": simulated.url() } });
        let (status, made) = posted(&url, "/v1/runs", &asked.to_string());
        assert_eq!((status, &made["status"]), (201, &json!("PREVIEW")), "{made}");
        for id in [id_in(&told), made["run_id"].as_str().unwrap().to_owned()] {
            eventually("it is gathered", SOON, || shop.show(&id)["details"]["preview"]["ready"] == true);
            let (status, queued) = posted(&url, &format!("/v1/runs/{id}/queue"), "{}");
            assert_eq!((status, &queued["status"]), (200, &json!("QUEUED")), "{queued}");
            eventually("it is applied", SOON, || shop.show(&id)["status"] == "APPLIED");
        }
        let again = elsewhere.asks(&url, &["run", "replay", &first, "--wait"]);
        says(&again, 6, &["2 targets would change"]);
        let (status, replayed) = posted(&url, &format!("/v1/runs/{first}/replay"), r#"{"by": "eve"}"#);
        assert_eq!(status, 201, "{replayed}");
        let id = replayed["run_id"].as_str().unwrap();
        eventually("it is gathered", SOON, || shop.show(id)["details"]["preview"]["ready"] == true);
        let said = origin(&replayed);
        assert_eq!(said["source"], "api", "{replayed}");
        assert_ne!(said["actor"], origin(&shop.show(&first))["actor"], "whoever asks for it now: {replayed}");
        assert_eq!(
            (origin(&made)["source"].as_str(), origin(&shop.show(&first))["source"].as_str()),
            (Some("api"), Some("cli"))
        );
        let mended = shop.show(&mended);
        assert_eq!(origin(&mended)["source"], "reconciliation", "{mended}");
        assert_eq!(origin(&mended)["actor"], origin(&shop.show(&first))["actor"], "{mended}");
        assert_eq!(mended["correlation_id"], json!(first), "{mended}");
        shop.verifies();
    }
}

// proves R12
#[test]
fn a_preview_that_guardrails_stop_as_a_whole_is_not_to_be_queued() {
    let shop = Shop::new();
    let file = with_files(&shop, "1,0.10\n2,0.20\n");
    let started = shop.run(&["run", "start", &file, "--input", "shop=http://127.0.0.1:1"]);
    says(&started, 0, &["every target is past a guardrail", "run cancel"]);
    assert!(!started.err.contains("run queue"), "{}", started.err);
}

#[test]
fn the_benchmark_of_targets_goes_through_a_worker() {
    for shop in [Shop::new(), Shop::on_postgres()] {
        let measured = shop.json(&["bench", "--scenario", "targets", "--targets", "300"]);
        let row = &measured[0];
        assert_eq!(row["targets"], json!(300), "{row}");
        for rate in ["targets_per_s", "verbs_per_s", "raw_targets_per_s"] {
            assert!(row[rate].as_f64().is_some_and(|rate| rate > 0.0), "{rate}: {row}");
        }
    }
}

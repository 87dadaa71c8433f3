//! Runs that wait for a person.

use serde_json::json;
use waypost_kernel::Time;
use waypost_store::{CommandWrite, NewRun};

use super::ends::{ha, with_ha};
use super::kit::{answers, map, step, waits_for};
use crate::support::{Shop, code};

/// Blocked until somebody decided about h1 and h2.
fn scan() -> String {
    let blockers = r#"{"outcome":"pause","reason":"2 hosts are blocked","blockers":{"h1":{"blockers":[{"vm_name":"v","severity":"critical"}]},"h2":{"blockers":[{"severity":"warning"}]}}}"#;
    step("scan", &format!("cat > told; grep -q power_off told && exit 0; {}", answers(blockers)), "")
}

// proves J3 and J5
#[tokio::test(flavor = "multi_thread")]
async fn blockers_pause_the_run_and_decisions_let_it_go_on() {
    let mut shop = Shop::new();
    let row = shop.play(&with_ha(&[scan(), step("update", "", "")])).await;
    let id = row.id().to_owned();
    assert_eq!((row.status(), row.run.reason.as_deref()), ("paused", Some("2 hosts are blocked")));
    let told = json!({
        "awaiting_blocker_resolution": row.details["awaiting_blocker_resolution"],
        "pause_reason": row.details["pause_reason"],
        "hosts_with_blockers": row.details["hosts_with_blockers"],
        "total_critical_blockers": row.details["total_critical_blockers"],
    });
    let expected = json!({
        "awaiting_blocker_resolution": true, "pause_reason": "2 hosts are blocked", "hosts_with_blockers": 2,
        "total_critical_blockers": 1,
    });
    assert_eq!(told, expected);
    assert_eq!(row.details["current_blockers"]["h1"]["blockers"][0]["vm_name"], "v");
    assert_eq!(ha(&shop), "on", "restored while a person is waited for");
    assert_eq!(shop.standings(&id).await[2], "scan=paused", "steps mirror it");
    shop.resume(&id, map(json!({"h1": "power_off", "h2": "skip"}))).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), ha(&shop).as_str()), ("completed", "on"));
    let expected =
        ["before", "disable HA", "scan", "restore HA", "disable HA", "scan", "update", "restore HA"];
    assert_eq!(shop.executed(), expected, "on with the right step, HA off again");
    assert_eq!(row.details["awaiting_blocker_resolution"], false);
    shop.verify().await;
}

// proves J3
#[tokio::test(flavor = "multi_thread")]
async fn what_blocks_again_pauses_again() {
    let mut shop = Shop::new();
    let id = shop.play(&with_ha(&[scan(), step("update", "", "")])).await.id().to_owned();
    shop.resume(&id, map(json!({"h1": "skip", "h2": "skip"}))).await;
    shop.work().await;
    let row = shop.run(&id).await;
    assert_eq!((row.status(), &row.details["awaiting_blocker_resolution"]), ("paused", &json!(true)));
    assert_eq!(ha(&shop), "on");
    shop.resume(&id, map(json!({"h1": "power_off", "h2": "skip"}))).await;
    shop.work().await;
    assert_eq!(shop.run(&id).await.status(), "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_pause_stops_the_step_and_a_resume_begins_it_again() {
    let mut shop = Shop::new();
    let playbook = shop.playbook(&with_ha(&[step("update", &waits_for("go"), "")]));
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    shop.until_printed(&id, "waiting").await;
    let pause = CommandWrite { name: "pause".into(), reason: Some("freeze".into()), ..Shop::cancelling(&id) };
    shop.command(pause).await;
    let row = shop.until_rests(&id).await;
    assert_eq!(
        (row.status(), row.run.reason.as_deref(), ha(&shop).as_str()),
        ("paused", Some("freeze"), "on")
    );
    std::fs::write(shop.path("go"), "").unwrap();
    shop.resume(&id, map(json!({}))).await;
    assert_eq!(shop.until_settled(&id).await.status(), "completed");
    let keys: Vec<String> = shop.ledger().into_iter().filter(|line| line.starts_with("update")).collect();
    assert_eq!(keys[0], keys[1], "nobody knows what the stopped one did");
    running.stop().await;
    shop.verify().await;
}

// proves J5
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_waited_for_when_nobody_is_there() {
    for (setting, status, error, executed) in [
        ("skip", "completed", None, vec!["before", "disable HA", "scan", "update", "restore HA"]),
        ("fail", "failed", Some("UNATTENDED"), vec!["before", "disable HA", "scan", "restore HA"]),
    ] {
        let mut shop = Shop::new();
        let text = with_ha(&[scan(), step("update", "", "")]).replacen(
            "lifecycle",
            &format!("unattended = \"{setting}\"\nlifecycle"),
            1,
        );
        let playbook = shop.playbook(&text);
        let id =
            shop.queue(&playbook, NewRun { schedule_at: Some(Time::from_ms(1)), ..NewRun::default() }).await;
        shop.work().await;
        let row = shop.run(&id).await;
        assert_eq!((row.status(), code(&row)), (status, error));
        assert_eq!(
            (shop.executed(), ha(&shop)),
            (executed.iter().map(ToString::to_string).collect(), "on".into())
        );
        let told = std::fs::read_to_string(shop.path("told")).unwrap();
        assert!(told.contains(&format!("\"unattended\":\"{setting}\"")), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleanup_that_fails_on_the_way_to_a_pause_is_done_at_the_end() {
    let mut shop = Shop::new();
    let text = with_ha(&[scan()]).replace("test \"$WAS\" = on", "test -e mended");
    let row = shop.play(&text).await;
    assert_eq!((row.status(), &row.details["cleanup_failed"]), ("paused", &json!(["restore HA"])));
    std::fs::write(shop.path("mended"), "").unwrap();
    shop.resume(row.id(), map(json!({"h1": "power_off", "h2": "skip"}))).await;
    shop.work().await;
    assert_eq!((shop.run(row.id()).await.status(), ha(&shop).as_str()), ("completed", "on"));
    shop.verify().await;
}

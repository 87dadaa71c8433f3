//! When steps may begin, and how long a run may take.

use waypost_store::NewRun;

use super::ends::{ha, with_ha};
use super::kit::{step, waits_for};
use crate::support::{Shop, code, eventually};

/// Closed now: it opens in an hour or so, for a minute.
pub async fn closed(shop: &Shop, outside: &str) -> String {
    let now = shop.store.now().await.unwrap();
    let in_hours = |hours: i64| {
        let clock = waypost_store::iso(now + waypost_kernel::Span::from_seconds(hours * 3_600));
        clock[11..16].to_owned()
    };
    format!("[window]\nfrom = \"{}\"\nto = \"{}\"\noutside = \"{outside}\"\n", in_hours(1), in_hours(2))
}

// proves J4
#[tokio::test(flavor = "multi_thread")]
async fn nothing_begins_outside_of_the_window() {
    let mut shop = Shop::new();
    let window = closed(&shop, "fail").await;
    let row = shop.play(&with_ha(&[window])).await;
    assert_eq!((row.status(), code(&row)), ("failed", Some("OUTSIDE_WINDOW")));
    assert_eq!(shop.executed(), Vec::<String>::new());
}

// proves J4
#[tokio::test(flavor = "multi_thread")]
async fn what_is_left_waits_for_the_window_and_can_be_cancelled() {
    let mut shop = Shop::new();
    let window = closed(&shop, "wait").await;
    let playbook = shop.playbook(&with_ha(&[window]));
    let id = shop.queue(&playbook, NewRun::default()).await;
    let running = shop.start();
    eventually("it says what it waits for", async || {
        let messages = shop.messages(&id).await;
        messages.iter().any(|message| message.starts_with("Waiting for the maintenance window")).then_some(())
    })
    .await;
    shop.cancel(&id).await;
    assert_eq!(shop.until_settled(&id).await.status(), "cancelled");
    assert_eq!(shop.executed(), Vec::<String>::new());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_too_long_fails_after_its_cleanup() {
    let mut shop = Shop::new();
    let text = with_ha(&[step("update", &waits_for("never"), "")]).replacen(
        "lifecycle",
        "timeout = \"1s\"\nlifecycle",
        1,
    );
    let row = shop.play(&text).await;
    assert_eq!((row.status(), code(&row), ha(&shop).as_str()), ("failed", Some("RUN_TIMEOUT"), "on"));
    assert_eq!(shop.standings(row.id()).await[2], "update=failed");
    shop.verify().await;
}

//! After a failed step nothing begins but cleanups, and the run ends as failed, whoever has it then.

use serde_json::json;
use waypost_kernel::Failure;
use waypost_kernel::item::Role;
use waypost_store::{Claimed, CleanupWrite, CommandWrite, Database, ItemWrite, NewItem, NewRun};

use super::kit::*;

/// Two steps, one that may fail, and a cleanup.
fn maintenance() -> NewRun {
    let part = |key: &str, role: Role| NewItem { role, name: key.to_uppercase(), ..item("step", key) };
    let items = vec![
        part("check", Role::Step),
        part("destroy", Role::Step),
        part("report", Role::Optional),
        part("restore", Role::Cleanup),
    ];
    NewRun { items, ..new("job") }
}

fn failing(key: &str) -> ItemWrite {
    ItemWrite {
        failure: Some(Failure::new("EXIT_1", "exit code 1")),
        answered: true,
        ..moving("step", key, "failed")
    }
}

async fn failed_in(store: &dyn Database, claimed: &Claimed, key: &str) {
    move_items(store, claimed, "step", &[(key, "running")]).await.unwrap();
    write_items(store, claimed, vec![failing(key)]).await.unwrap();
}

pub async fn what_an_item_is_to_its_run_is_kept(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    let late = ItemWrite { role: Role::Cleanup, ..moving("step", "late", "pending") };
    let rows = write_items(store, &claimed, vec![late]).await.unwrap();
    assert_eq!((rows[0].role, &rows[0].object()["role"]), (Role::Cleanup, &json!("cleanup")));
    // Only a new item's: what it is it stays.
    let other = ItemWrite { role: Role::Optional, ..moving("step", "late", "running") };
    assert_eq!(write_items(store, &claimed, vec![other]).await.unwrap()[0].role, Role::Cleanup);
    let rows = store.items(claimed.run.id().into(), None).await.unwrap();
    let roles: Vec<&str> = rows.iter().map(|row| row.role.name()).collect();
    assert_eq!(roles, ["step", "step", "optional", "cleanup", "cleanup"]);
}

pub async fn nothing_begins_after_a_failed_step_but_cleanups(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    failed_in(store, &claimed, "check").await;
    assert_eq!(renew(store, &claimed).await.unwrap().intent, Some("fail"));
    let row = get(store, claimed.run.id()).await;
    let recorded = row.run.intent.as_ref().and_then(|intent| intent.failure.clone()).unwrap();
    assert_eq!(recorded, Failure::new("EXIT_1", "CHECK: exit code 1"));
    for (key, status) in [("destroy", "running"), ("destroy", "completed"), ("report", "running")] {
        let refused = refusal(move_items(store, &claimed, "step", &[(key, status)]).await);
        assert_eq!(refused.code.name(), "FAILURE_RECORDED", "{key} {status}");
        assert!(refused.message.contains("CHECK: exit code 1"), "{}", refused.message);
    }
    let new = ItemWrite { name: Some("New".into()), ..moving("step", "new", "running") };
    assert_eq!(code(&write_items(store, &claimed, vec![new]).await), "FAILURE_RECORDED");
    move_items(store, &claimed, "step", &[("restore", "running")]).await.unwrap();
    move_items(store, &claimed, "step", &[("restore", "completed"), ("destroy", "skipped")]).await.unwrap();
    assert_eq!(code(&finish(store, &claimed, "completed").await), "FAILURE_RECORDED");
    let row = finish(store, &claimed, "failed").await.unwrap();
    assert_eq!(row.run.failure, Some(recorded));
    let left = ["check=failed", "destroy=skipped", "report=skipped", "restore=completed"];
    assert_eq!(items(store, row.id()).await, left);
}

pub async fn a_run_whose_step_failed_ends_as_that_without_its_worker(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    failed_in(store, &claimed, "check").await;
    advance(store, 90).await;
    assert!(claim(store, "w2").await.is_none(), "nobody works on it again");
    sweep(store).await;
    let row = get(store, claimed.run.id()).await;
    assert_eq!((row.status(), &row.object()["error_code"]), ("failed", &json!("EXIT_1")));
    let left = ["check=failed", "destroy=skipped", "report=skipped", "restore=skipped"];
    assert_eq!(items(store, row.id()).await, left);
}

pub async fn the_next_worker_cleans_up_and_begins_nothing(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    let require_cleanup = |claimed: &Claimed, required| CleanupWrite { held: held(claimed), by: "w1".into(), required, failing: None };
    store.require_cleanup(require_cleanup(&claimed, true)).await.unwrap();
    failed_in(store, &claimed, "check").await;
    advance(store, 90).await;
    sweep(store).await;
    let next = claim(store, "w2").await.expect("what it required");
    assert_eq!(code(&move_items(store, &next, "step", &[("destroy", "running")]).await), "FAILURE_RECORDED");
    move_items(store, &next, "step", &[("restore", "running")]).await.unwrap();
    move_items(store, &next, "step", &[("restore", "completed")]).await.unwrap();
    store.require_cleanup(require_cleanup(&next, false)).await.unwrap();
    assert_eq!(finish(store, &next, "failed").await.unwrap().object()["error_code"], json!("EXIT_1"));
}

pub async fn one_that_may_fail_stops_nobody(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    failed_in(store, &claimed, "report").await;
    failed_in(store, &claimed, "restore").await;
    assert_eq!(renew(store, &claimed).await.unwrap().intent, None);
    move_items(store, &claimed, "step", &[("check", "running")]).await.unwrap();
    move_items(store, &claimed, "step", &[("check", "completed"), ("destroy", "completed")]).await.unwrap();
    assert_eq!(finish(store, &claimed, "completed").await.unwrap().status(), "completed");
}

pub async fn a_cancel_that_came_first_stands_and_still_nothing_begins(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    move_items(store, &claimed, "step", &[("check", "running")]).await.unwrap();
    command(store, claimed.run.id(), "cancel").await.unwrap();
    write_items(store, &claimed, vec![failing("check")]).await.unwrap();
    assert_eq!(renew(store, &claimed).await.unwrap().intent, Some("cancel"));
    for _ in 0..2 {
        let refused = refusal(move_items(store, &claimed, "step", &[("destroy", "running")]).await);
        assert_eq!(refused.code.name(), "FAILURE_RECORDED");
        assert!(refused.message.contains("check has failed"), "{}", refused.message);
        move_items(store, &claimed, "step", &[("restore", "running")]).await.unwrap();
    }
    assert_eq!(finish(store, &claimed, "cancelled").await.unwrap().status(), "cancelled");
}

/// The holder does not know of it yet: its next heartbeat tells. Until then the store lets nothing begin.
pub async fn nothing_begins_once_a_cancel_or_a_pause_is_stored(store: &dyn Database) {
    for (name, graceful, refused) in [
        ("cancel", false, "CANCEL_REQUESTED"),
        ("cancel", true, "CANCEL_REQUESTED"),
        ("pause", false, "PAUSE_REQUESTED"),
    ] {
        let claimed = held_run(store, maintenance()).await;
        move_items(store, &claimed, "step", &[("check", "running")]).await.unwrap();
        let asked = CommandWrite { graceful, reason: Some("why".into()), ..asking(claimed.run.id(), name) };
        store.command(asked).await.unwrap();
        for key in ["destroy", "report"] {
            let begun = move_items(store, &claimed, "step", &[(key, "running")]).await;
            assert_eq!(code(&begun), refused, "{name} {key}");
        }
        let new = ItemWrite { name: Some("New".into()), ..moving("step", "new", "running") };
        assert_eq!(code(&write_items(store, &claimed, vec![new]).await), refused);
        // What was under way ends, and what was done by then is known.
        move_items(store, &claimed, "step", &[("check", "completed"), ("destroy", "completed")]).await.unwrap();
        move_items(store, &claimed, "step", &[("restore", "running")]).await.unwrap();
        move_items(store, &claimed, "step", &[("restore", "completed")]).await.unwrap();
        let end = if name == "cancel" { "cancelled" } else { "paused" };
        let row = finish(store, &claimed, end).await.unwrap();
        assert_eq!(row.status(), end);
        assert_eq!(items(store, row.id()).await[..2], ["check=completed", "destroy=completed"]);
    }
}

/// Those of one write happen in their order.
pub async fn the_order_of_a_write_is_the_order_of_its_moves(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    let refused = write_items(store, &claimed, vec![failing("check"), moving("step", "destroy", "running")]);
    assert_eq!(code(&refused.await), "FAILURE_RECORDED");
    assert_eq!(renew(store, &claimed).await.unwrap().intent, None, "all or none");
    let write = vec![moving("step", "destroy", "running"), failing("check")];
    write_items(store, &claimed, write).await.unwrap();
    let write = vec![moving("step", "destroy", "completed"), moving("step", "restore", "running")];
    write_items(store, &claimed, write).await.unwrap();
    assert_eq!(finish(store, &claimed, "failed").await.unwrap().status(), "failed");
}

/// The holder goes, and the failure stays: nobody begins another step, and the cleanups are done.
// proves J6 and U6
pub async fn a_failed_run_that_is_given_back_waits_for_its_cleanups(store: &dyn Database) {
    let claimed = held_run(store, maintenance()).await;
    failed_in(store, &claimed, "check").await;
    let row = release(store, &claimed).await.unwrap();
    assert_eq!((row.status(), &row.object()["claimed_by"]), ("running", &json!(null)));
    assert_eq!(sweep(store).await.moved, []);
    let next = claim(store, "w2").await.expect("it is the next worker's");
    assert_eq!(next.run.id(), claimed.run.id());
    let refused = refusal(move_items(store, &next, "step", &[("destroy", "running")]).await);
    assert_eq!(refused.code.name(), "FAILURE_RECORDED");
    move_items(store, &next, "step", &[("restore", "running")]).await.unwrap();
    move_items(store, &next, "step", &[("restore", "completed")]).await.unwrap();
    let end = finish(store, &next, "failed").await.unwrap();
    assert_eq!(end.run.failure.map(|failure| failure.code.to_string()).as_deref(), Some("EXIT_1"));
}

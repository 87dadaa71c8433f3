//! Alerts: rows that are written by whoever read them last, silences, and the figures that are evaluated.

use waypost_kernel::{Failure, Span};
use waypost_kernel::alert::{Condition, Delivery, Status};
use waypost_store::{AlertRow, Database, DiscardTargets, End, RollBackTargets, SilenceAlert, TargetFigures, Tried, Who, WorkTargets};

use super::kit::*;
use super::targets::{applying, ended, failed, one, report, result, take, work};

fn row(subject: &str) -> AlertRow {
    AlertRow { tenant: TENANT.into(), name: "429-burst".into(), subject: subject.into(), ..AlertRow::default() }
}

fn ann() -> Who {
    Who { tenant: TENANT.into(), by: "ann".into(), reason: Some("known".into()) }
}

// proves R13
pub async fn an_alert_is_written_by_whoever_read_it_last(store: &dyn Database) {
    assert!(store.alerts(None).await.unwrap().is_empty());
    let now = store.now().await.unwrap();
    let condition = Condition {
        status: Status::Firing,
        since: now,
        well_since: Some(now),
        episode: 2,
        fired_at: Some(now),
        resolved_at: None,
        value_milli: Some(4_500),
        evaluated_at: now,
    };
    let told = Delivery { episode: 2, is_firing: true, sent_at: None, next_at: now, tries: 3, error: Some("away".into()) };
    let new = AlertRow {
        condition,
        summary: "4 answers".into(),
        samples: vec![(now, 4)],
        deliveries: [("slack".to_owned(), told)].into(),
        ..row("shop")
    };
    assert!(store.put_alert(new.clone()).await.unwrap());
    assert!(!store.put_alert(new.clone()).await.unwrap(), "it is there");
    let read = store.alerts(None).await.unwrap().remove(0);
    assert_eq!((read.revision, read.condition.status, read.condition.value_milli), (1, Status::Firing, Some(4_500)));
    assert_eq!((read.summary.as_str(), read.samples[0].1, read.deliveries["slack"].tries), ("4 answers", 4, 3));
    let mut next = read.clone();
    next.condition.status = Status::Ok;
    let written = in_parallel(4, |_| async { store.put_alert(next.clone()).await.unwrap() });
    assert_eq!(written.iter().filter(|it| **it).count(), 1, "one of them");
    assert!(!store.put_alert(read).await.unwrap(), "it is another one since");
    assert!(store.put_alert(row("another")).await.unwrap());
    assert!(store.put_alert(AlertRow { tenant: "other".into(), ..row("shop") }).await.unwrap());
    let of = |rows: Vec<AlertRow>| rows.into_iter().map(|row| row.subject).collect::<Vec<_>>();
    assert_eq!(of(store.alerts(Some(TENANT.into())).await.unwrap()), ["another", "shop"]);
    assert_eq!(store.alerts(None).await.unwrap().len(), 3);
    let unknown = AlertRow { name: "coffee".into(), ..row("") };
    assert_eq!(invalid(store.put_alert(unknown).await).0, "alert");
}

// proves R13
pub async fn an_alert_is_silenced_for_a_while_and_the_audit_log_knows(store: &dyn Database) {
    let silence = SilenceAlert { name: "dlq-backlog".into(), subject: String::new(), lasts: Some(Span::from_seconds(60)) };
    // What is not silenced stays so, and leaves nothing behind.
    let none = store.silence_alert(SilenceAlert { lasts: None, ..silence.clone() }, ann()).await.unwrap();
    assert_eq!((none.silence, none.revision, store.alerts(None).await.unwrap().len()), (None, 0, 0));
    let silenced = store.silence_alert(silence.clone(), ann()).await.unwrap();
    let now = store.now().await.unwrap();
    assert!(silenced.is_silenced(now) && silenced.condition.status == Status::Ok, "{silenced:?}");
    advance(store, 61).await;
    assert!(!silenced.is_silenced(store.now().await.unwrap()));
    let over = store.silence_alert(SilenceAlert { lasts: None, ..silence.clone() }, ann()).await.unwrap();
    assert_eq!((over.silence, over.revision), (None, silenced.revision + 1));
    let about = store.audits(None, 0, 10).await.unwrap();
    let about: Vec<(&str, &str)> = about.iter().map(|it| (it.action.as_str(), it.subject.as_str())).collect();
    assert_eq!(about, [("alert.silence", "dlq-backlog"), ("alert.unsilence", "dlq-backlog")]);
    for (wrong, field) in [
        (SilenceAlert { name: "coffee".into(), ..silence.clone() }, "alert"),
        (SilenceAlert { lasts: Some(Span::ZERO), ..silence.clone() }, "lasts_ms"),
        (SilenceAlert { lasts: Some(Span::from_seconds(40 * 86_400)), ..silence.clone() }, "lasts_ms"),
        (SilenceAlert { subject: "x".repeat(600), ..silence.clone() }, "subject"),
    ] {
        assert_eq!(invalid(store.silence_alert(wrong, ann()).await).0, field);
    }
    assert_eq!(store.audits(None, 0, 10).await.unwrap().len(), 2, "nothing is half-written");
}

// proves R13
pub async fn figures_are_of_what_finished_lately(store: &dyn Database) {
    assert_eq!(store.target_figures(None).await.unwrap(), []);
    ended(store, &[Tried::Applied, Tried::Applied, Tried::Applied, failed("TIMEOUT")]).await;
    let of = |applied, failed, dead_letters| TargetFigures { tenant: TENANT.into(), applied, failed, dead_letters };
    assert_eq!(store.target_figures(None).await.unwrap(), [of(3, 1, 1)]);
    assert_eq!(of(3, 1, 1).success_rate_milli(), Some(75_000));
    ended(store, &[failed("TIMEOUT"), failed("NOT_FOUND")]).await;
    assert_eq!(store.target_figures(Some(TENANT.into())).await.unwrap(), [of(3, 3, 3)]);
    assert_eq!(store.target_figures(Some("other".into())).await.unwrap(), []);
    advance(store, 3_601).await;
    // Failed targets wait for people however long.
    assert_eq!(store.target_figures(None).await.unwrap(), [of(0, 0, 3)]);
    assert_eq!(of(0, 0, 3).success_rate_milli(), None);
}

// proves R13
pub async fn what_was_rolled_back_had_been_applied(store: &dyn Database) {
    let of = |applied, failed, dead_letters| TargetFigures { tenant: TENANT.into(), applied, failed, dead_letters };
    let (_, parent) = ended(store, &[Tried::Applied, Tried::Applied, failed("NOT_FOUND"), failed("TIMEOUT")]).await;
    let gone = DiscardTargets { tenant: TENANT.into(), run_id: parent.id().into(), by: "ann".into(), reason: "gone".into(), keys: None, code: Some("NOT_FOUND".into()) };
    store.discard_targets(gone).await.unwrap();
    // What is discarded has failed, and waits for nobody.
    assert_eq!(store.target_figures(None).await.unwrap(), [of(2, 2, 1)]);
    command(store, parent.id(), "rollback").await.unwrap();
    let operation = super::operations::operation(store, &parent).await;
    let claimed = store.claim_run(operation, "w1".into()).await.unwrap();
    let roll_back = |key: &str| RollBackTargets { held: held(&claimed), by: "w1".into(), keys: vec![key.to_owned()] };
    store.roll_back_targets(roll_back("t0000")).await.unwrap();
    assert_eq!(store.target_figures(None).await.unwrap(), [of(2, 2, 1)]);
    assert_eq!(store.roll_back_targets(roll_back("t0001")).await.unwrap().status(), "ROLLED_BACK");
    // Nor does anything of a run that was undone.
    assert_eq!(store.target_figures(None).await.unwrap(), [of(2, 2, 0)]);
}

// proves R13
pub async fn what_a_cancel_ended_is_in_no_figure(store: &dyn Database) {
    let of = |applied, failed, dead_letters| TargetFigures { tenant: TENANT.into(), applied, failed, dead_letters };
    let claimed = applying(store, 70).await;
    let taken = take(store, &claimed, 3).await;
    command(store, claimed.run.id(), "cancel").await.unwrap();
    let results = vec![
        result(&taken[0], Tried::Applied),
        result(&taken[1], Tried::Applied),
        result(&taken[2], failed("NOT_FOUND")),
    ];
    report(store, &claimed, results).await.unwrap();
    assert_eq!(store.target_figures(None).await.unwrap(), [of(2, 1, 1)]);
    let end = End::Stop(Failure::new("CANCELLED", "as was asked"));
    store.work_targets(WorkTargets { end, ..work(&claimed, Vec::new(), 0) }).await.unwrap();
    assert_eq!(one(store, claimed.run.id(), "t0069").await.status, "FAILED");
    assert_eq!(store.target_figures(None).await.unwrap(), [of(2, 1, 1)]);
    // One that never began likewise.
    let queued = put(store, new("rule")).await;
    command(store, queued.id(), "cancel").await.unwrap();
    assert_eq!(store.target_figures(Some(TENANT.into())).await.unwrap(), [of(2, 1, 1)]);
}

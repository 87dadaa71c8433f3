//! Bulk changes: targets that are gathered, tried many at a time, retried, given up and rolled back.

use serde_json::json;
use waypost_kernel::{Failure, Span};
use waypost_store::{
    AddTargets, Claimed, Database, DeadLetterFilter, DiscardTargets, End, ItemFilter, ItemRow, NewTarget,
    Preview, Result, RollBackTargets, RunRow, StoreError, TargetResult, Tried, WorkTargets, Worked, target_key,
};

use super::kit::*;

fn target(key: &str) -> NewTarget {
    NewTarget {
        key: key.into(),
        before: json!({ "unit_amount": 1_000 }),
        after: json!({ "unit_amount": 0 }),
        destination: Some("shop".into()),
        ..NewTarget::default()
    }
}

fn batch(run: &RunRow, at: u64, keys: &[&str]) -> AddTargets {
    AddTargets {
        tenant: TENANT.into(),
        run_id: run.id().into(),
        by: "ann".into(),
        at,
        rows: keys.len() as u64,
        targets: keys.iter().map(|key| target(key)).collect(),
        ..AddTargets::default()
    }
}

/// A run with so many targets, queued, and held by `w1`.
pub async fn applying(store: &dyn Database, count: usize) -> Claimed {
    let run = put(store, new("rule")).await;
    let keys: Vec<String> = (0..count).map(|at| format!("t{at:04}")).collect();
    let mut at = 0;
    for chunk in keys.chunks(1_000) {
        let keys: Vec<&str> = chunk.iter().map(String::as_str).collect();
        let last = at as usize + chunk.len() == count;
        store.add_targets(AddTargets { last, ..batch(&run, at, &keys) }).await.unwrap();
        at += chunk.len() as u64;
    }
    command(store, run.id(), "queue").await.unwrap();
    store.claim_run(run.id().into(), "w1".into()).await.unwrap()
}

pub fn work(claimed: &Claimed, results: Vec<TargetResult>, take: usize) -> WorkTargets {
    WorkTargets {
        held: held(claimed),
        by: "w1".into(),
        results,
        take,
        give_up_after: Span::from_seconds(HOUR),
        end: End::Later,
    }
}

pub async fn take(store: &dyn Database, claimed: &Claimed, count: usize) -> Vec<ItemRow> {
    store.work_targets(work(claimed, Vec::new(), count)).await.unwrap().taken
}

pub async fn report(store: &dyn Database, claimed: &Claimed, results: Vec<TargetResult>) -> Result<Worked> {
    store.work_targets(work(claimed, results, 0)).await
}

fn because(code: &str) -> Failure {
    Failure::new(code, "it said so")
}

pub fn result(row: &ItemRow, tried: Tried) -> TargetResult {
    TargetResult { key: row.key.clone(), try_no: row.try_no, tried, output: None }
}

pub fn retry(seconds: i64, answered: bool) -> Tried {
    Tried::Retry { failure: because("NETWORK"), wait: Span::from_seconds(seconds), answered }
}

pub fn throttled(seconds: i64) -> Tried {
    Tried::Throttled { failure: because("RATE_LIMIT"), wait: Span::from_seconds(seconds), answered: true }
}

pub fn failed(code: &str) -> Tried {
    Tried::Failed { failure: because(code) }
}

fn keys(rows: &[ItemRow]) -> Vec<&str> {
    rows.iter().map(|row| row.key.as_str()).collect()
}

async fn page(store: &dyn Database, run_id: &str, status: &str) -> Vec<ItemRow> {
    let filter = ItemFilter {
        run_id: run_id.into(),
        kind: Some("target".into()),
        status: Some(status.into()),
        limit: 500,
        ..ItemFilter::default()
    };
    store.item_page(filter).await.unwrap().items
}

pub async fn one(store: &dyn Database, run_id: &str, key: &str) -> ItemRow {
    let rows = store.items(run_id.into(), None).await.unwrap();
    rows.into_iter().find(|row| row.key == key).unwrap()
}

/// Ends a run with these results of all its targets.
pub async fn ended(store: &dyn Database, tries: &[Tried]) -> (Claimed, RunRow) {
    let claimed = applying(store, tries.len()).await;
    let taken = take(store, &claimed, tries.len()).await;
    let results = taken.iter().zip(tries).map(|(row, tried)| result(row, tried.clone())).collect();
    let write = WorkTargets { end: End::WhenDone, ..work(&claimed, results, 0) };
    let worked = store.work_targets(write).await.unwrap();
    (claimed, worked.ended.unwrap())
}

// proves R1
pub async fn targets_are_gathered_batch_by_batch(store: &dyn Database) {
    let run = put(store, new("rule")).await;
    let stopped = NewTarget { violation: Some(because("GUARDRAIL")), ..target("c") };
    let first = AddTargets {
        rows: 4,
        targets: vec![target("a"), target("b"), stopped],
        unchanged: 1,
        cursor: Some(json!("page 2")),
        totals: map(json!({ "rise": "1.50" })),
        ..batch(&run, 0, &[])
    };
    let preview = store.add_targets(first.clone()).await.unwrap();
    let expected = Preview {
        rows: 4,
        targets: 3,
        unchanged: 1,
        stopped: 1,
        ready: false,
        cursor: Some(json!("page 2")),
        totals: map(json!({ "rise": "1.50" })),
    };
    assert_eq!(preview, expected);
    // A gatherer that crashed sends it again, or goes on from where the answer says.
    assert_eq!(store.add_targets(first).await.unwrap(), expected);
    assert_eq!(invalid(store.add_targets(batch(&run, 9, &["z"])).await).0, "at");
    assert_eq!(code(&command(store, run.id(), "queue").await), "INVALID_TRANSITION");
    // A key that is there is left alone, and a batch may have no target at all.
    let preview = store.add_targets(batch(&run, 4, &["a", "d"])).await.unwrap();
    assert_eq!((preview.rows, preview.targets), (6, 4));
    let last = AddTargets { unchanged: 2, rows: 2, last: true, ..batch(&run, 6, &[]) };
    let preview = store.add_targets(last).await.unwrap();
    assert_eq!((preview.rows, preview.targets, preview.unchanged, preview.ready), (8, 4, 3, true));
    let row = get(store, run.id()).await;
    assert_eq!((row.object()["items"].clone(), row.details["preview"]["unchanged"].clone()), (json!({ "target": { "PREVIEW": 4 } }), json!(3)));
    let found = one(store, run.id(), "a").await;
    assert_eq!(found.details["before"], json!({ "unit_amount": 1_000 }));
    assert_eq!((found.details["after"].clone(), found.details["destination"].clone()), (json!({ "unit_amount": 0 }), json!("shop")));
    assert_eq!(command(store, run.id(), "queue").await.unwrap().status(), "QUEUED");
    assert_eq!(store.add_targets(batch(&run, 0, &["a"])).await.unwrap().rows, 8, "known, though the run has gone on");
}

// proves R1 and R3
pub async fn what_cannot_be_gathered_is_refused(store: &dyn Database) {
    let run = put(store, new("rule")).await;
    let many: Vec<String> = (0..1_001).map(|at| at.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (write, field) in [
        (batch(&run, 0, &many), "targets"),
        (batch(&run, 0, &["a", "a"]), "targets"),
        (batch(&run, 0, &[""]), "targets.key"),
        (AddTargets { by: String::new(), ..batch(&run, 0, &["a"]) }, "by"),
        (AddTargets { targets: vec![NewTarget { before: json!("x".repeat(20_000)), ..target("a") }], ..batch(&run, 0, &[]) }, "targets.details"),
    ] {
        let (found, message) = invalid(store.add_targets(write).await);
        assert!(found.starts_with(field), "{field}: {found} {message}");
    }
    let other = AddTargets { tenant: "other".into(), ..batch(&run, 0, &["a"]) };
    assert_eq!(code(&store.add_targets(other).await), "NOT_FOUND");
    assert_eq!(get(store, run.id()).await.run.seq, 1);
    // No targets: refused at queueing.
    store.add_targets(AddTargets { last: true, ..batch(&run, 0, &[]) }).await.unwrap();
    assert_eq!(code(&command(store, run.id(), "queue").await), "INVALID_TRANSITION");
    let deploy = put(store, deploy()).await;
    assert_eq!(invalid(store.add_targets(batch(&deploy, 0, &["a"])).await).0, "run_id");
    let queued = put(store, rule(&["a"])).await;
    assert_eq!(code(&store.add_targets(batch(&queued, 0, &["b"])).await), "INVALID_TRANSITION");
}

// proves R2, R3 and R9
pub async fn targets_are_tried_in_turn_and_the_last_one_ends_the_run(store: &dyn Database) {
    let claimed = applying(store, 3).await;
    let id = claimed.run.id().to_owned();
    let worked = store.work_targets(work(&claimed, Vec::new(), 2)).await.unwrap();
    assert_eq!(keys(&worked.taken), ["t0000", "t0001"]);
    assert_eq!((worked.open, worked.next_due.is_some_and(|due| due <= worked.now)), (3, true));
    assert_eq!(worked.counts.get("APPLYING"), Some(&2));
    assert_eq!(target_key(&id, &worked.taken[0].key, worked.taken[0].try_no), format!("{id}:t0000:apply:1"));
    let results: Vec<TargetResult> = worked.taken.iter().map(|row| result(row, Tried::Applied)).collect();
    let first = TargetResult { output: Some(json!({ "was": 7 })), ..results[0].clone() };
    let write = WorkTargets { end: End::WhenDone, ..work(&claimed, vec![first, results[1].clone()], 5) };
    let worked = store.work_targets(write.clone()).await.unwrap();
    assert_eq!((keys(&worked.taken), worked.open, worked.next_due), (vec!["t0002"], 1, None));
    assert!(worked.ended.is_none() && worked.renewed.is_some());
    let found = one(store, &id, "t0000").await;
    assert_eq!((found.status.as_str(), found.output, found.finished_at.is_some()), ("APPLIED", json!({ "was": 7 }), true));
    // Sent again it changes nothing: those were reported, and what was taken is being tried.
    let seq = get(store, &id).await.run.seq;
    let again = store.work_targets(write).await.unwrap();
    assert_eq!((again.ignored.len(), again.taken.len(), get(store, &id).await.run.seq), (2, 0, seq));
    let last = vec![result(&worked.taken[0], Tried::Applied)];
    let write = WorkTargets { end: End::WhenDone, ..work(&claimed, last, 5) };
    let worked = store.work_targets(write.clone()).await.unwrap();
    let row = worked.ended.unwrap();
    assert_eq!((row.status(), row.run.failure.is_none(), worked.open), ("APPLIED", true, 0));
    assert_eq!(worked.counts, [("APPLIED".to_owned(), 3)].into());
    let again = store.work_targets(write).await.unwrap();
    assert_eq!((again.ended.unwrap().status().to_owned(), again.ignored.len()), ("APPLIED".into(), 1));
    let told: Vec<String> = commands(store, &id).await;
    assert_eq!(told, ["create", "items", "queue", "claim", "items", "items", "items", "complete"], "one event for each batch");
}

// proves R3
pub async fn all_targets_of_a_run_say_how_it_ended(store: &dyn Database) {
    for (tries, status) in [
        (vec![Tried::Applied, Tried::Applied], "APPLIED"),
        (vec![Tried::Applied, failed("VALIDATION")], "PARTIAL"),
        (vec![failed("NOT_FOUND"), failed("VALIDATION")], "FAILED"),
    ] {
        let (_, row) = ended(store, &tries).await;
        assert_eq!(row.status(), status);
        let failure = row.run.failure.as_ref().map(|failure| failure.message.to_string());
        let said = match status {
            "APPLIED" => None,
            "PARTIAL" => Some("1 of 2 targets failed".to_owned()),
            _ => Some("2 of 2 targets failed".to_owned()),
        };
        assert_eq!(failure, said, "{status}");
    }
}

// proves R4 and R9
pub async fn a_retry_waits_in_the_store_and_is_used_up(store: &dyn Database) {
    let claimed = applying(store, 2).await;
    let id = claimed.run.id().to_owned();
    let mut row = take(store, &claimed, 1).await.remove(0);
    for (tried, attempts, try_no) in [(retry(4, true), 1, 2), (retry(8, true), 2, 3), (retry(2, false), 3, 3)] {
        let worked = report(store, &claimed, vec![result(&row, tried)]).await.unwrap();
        let waiting = one(store, &id, "t0000").await;
        let told = (waiting.status.as_str(), waiting.attempts, waiting.try_no);
        assert_eq!(told, ("QUEUED", attempts, try_no));
        assert!(waiting.not_before.is_some_and(|at| at > worked.now) && waiting.failure.is_some());
        assert_eq!(take(store, &claimed, 1).await.len(), usize::from(attempts == 1), "the other one is there once");
        advance(store, 20).await;
        let taken = take(store, &claimed, 5).await;
        assert_eq!(keys(&taken), ["t0000"]);
        row = taken.into_iter().next().unwrap();
    }
    let worked = report(store, &claimed, vec![result(&row, retry(2, true))]).await.unwrap();
    assert_eq!(worked.counts.get("FAILED"), Some(&1));
    let gone = one(store, &id, "t0000").await;
    // Its last answer says nothing of the one that was lost before it.
    assert_eq!((gone.attempts, gone.try_no, gone.failure.unwrap().code.to_string()), (3, 3, "NETWORK".into()));
}

// proves R4
pub async fn what_waited_goes_before_what_was_never_tried(store: &dyn Database) {
    let claimed = applying(store, 6).await;
    let taken = take(store, &claimed, 2).await;
    let worked = report(store, &claimed, vec![result(&taken[0], retry(30, true)), result(&taken[1], retry(5, true))]);
    let worked = worked.await.unwrap();
    assert!(worked.next_due.is_some_and(|due| due <= worked.now), "others were never tried");
    let write = WorkTargets { take: 4, ..work(&claimed, Vec::new(), 4) };
    let worked = store.work_targets(write).await.unwrap();
    assert_eq!(keys(&worked.taken), ["t0002", "t0003", "t0004", "t0005"]);
    let due = worked.next_due.unwrap() - worked.now;
    assert!(about(due, 5), "{due}");
    advance(store, 60).await;
    assert_eq!(keys(&take(store, &claimed, 1).await), ["t0001"], "the one that is due longest");
    assert_eq!(keys(&take(store, &claimed, 9).await), ["t0000"]);
}

// proves R5
pub async fn a_throttled_target_uses_no_retry_and_does_not_wait_for_ever(store: &dyn Database) {
    let claimed = applying(store, 1).await;
    let id = claimed.run.id().to_owned();
    for (count, seconds) in [(1, 1_600), (2, 1_900)] {
        let taken = take(store, &claimed, 1).await;
        report(store, &claimed, vec![result(&taken[0], throttled(seconds))]).await.unwrap();
        let row = one(store, &id, "t0000").await;
        assert_eq!((row.status.as_str(), row.attempts, row.throttled, row.try_no), ("QUEUED", 0, count, 1 + count));
        advance(store, 2_000).await;
        renew(store, &claimed).await.unwrap();
    }
    assert_eq!(one(store, &id, "t0000").await.waited_ms, 3_500_000);
    let taken = take(store, &claimed, 1).await;
    let write = WorkTargets { end: End::WhenDone, ..work(&claimed, vec![result(&taken[0], throttled(101))], 0) };
    let row = store.work_targets(write).await.unwrap().ended.unwrap();
    assert_eq!(row.status(), "FAILED");
    let gone = one(store, &id, "t0000").await;
    assert_eq!((gone.failure.unwrap().code.to_string(), gone.attempts), ("RATE_LIMIT".into(), 0));
    // A person's retry is a new budget; the key goes on rising.
    command(store, &id, "retry").await.unwrap();
    let again = one(store, &id, "t0000").await;
    assert_eq!((again.throttled, again.waited_ms, again.try_no), (0, 0, 4));
}

// proves R2
pub async fn what_was_not_sent_comes_back_as_it_was(store: &dyn Database) {
    let claimed = applying(store, 2).await;
    let taken = take(store, &claimed, 2).await;
    let now = Tried::Unsent { wait: Span::ZERO };
    let later = Tried::Unsent { wait: Span::from_seconds(60) };
    let worked = report(store, &claimed, vec![result(&taken[0], now), result(&taken[1], later)]).await.unwrap();
    assert!(worked.next_due.is_some_and(|due| due <= worked.now));
    let again = take(store, &claimed, 2).await;
    assert_eq!(keys(&again), ["t0000"]);
    assert_eq!((again[0].try_no, again[0].attempts, again[0].throttled), (1, 0, 0));
}

// proves R2 and R9
pub async fn a_lost_lease_gives_its_targets_back_under_the_same_key(store: &dyn Database) {
    let claimed = applying(store, 70).await;
    let id = claimed.run.id().to_owned();
    let taken = take(store, &claimed, 66).await;
    advance(store, HOUR).await;
    let next = store.claim_run(id.clone(), "w2".into()).await.unwrap();
    let late: Vec<TargetResult> = taken.iter().map(|row| result(row, Tried::Applied)).collect();
    assert_eq!(code(&report(store, &claimed, late.clone()).await), "LEASE_LOST");
    assert_eq!(get(store, &id).await.object()["items"], json!({ "target": { "QUEUED": 70 } }));
    let again = take(store, &next, 500).await;
    assert_eq!((again.len(), again.iter().all(|row| row.try_no == 1)), (70, true));
    // Released in the middle, likewise.
    release(store, &next).await.unwrap();
    let third = store.claim_run(id.clone(), "w3".into()).await.unwrap();
    assert_eq!(take(store, &third, 500).await.len(), 70);
}

// proves R9
pub async fn a_report_of_an_earlier_try_changes_nothing(store: &dyn Database) {
    let claimed = applying(store, 1).await;
    let first = take(store, &claimed, 1).await.remove(0);
    report(store, &claimed, vec![result(&first, throttled(1))]).await.unwrap();
    let seq = get(store, claimed.run.id()).await.run.seq;
    // It waits: nobody is trying it.
    let worked = report(store, &claimed, vec![result(&first, Tried::Applied)]).await.unwrap();
    assert_eq!((worked.ignored, get(store, claimed.run.id()).await.run.seq), (vec!["t0000".to_owned()], seq));
    advance(store, 5).await;
    let second = take(store, &claimed, 1).await.remove(0);
    let worked = report(store, &claimed, vec![result(&first, failed("VALIDATION"))]).await.unwrap();
    assert_eq!((worked.ignored.len(), worked.counts.get("APPLYING")), (1, Some(&1)));
    let ahead = TargetResult { try_no: 9, ..result(&second, Tried::Applied) };
    assert_eq!(code(&report(store, &claimed, vec![ahead]).await), "INVALID_INPUT");
    let unknown = TargetResult { key: "nobody".into(), ..result(&second, Tried::Applied) };
    let both = vec![result(&second, Tried::Applied), unknown];
    assert_eq!(invalid(report(store, &claimed, both).await).0, "results");
    let twice = vec![result(&second, Tried::Applied), result(&second, Tried::Applied)];
    assert_eq!(invalid(report(store, &claimed, twice).await).0, "results");
    assert_eq!(invalid(store.work_targets(work(&claimed, Vec::new(), 1_001)).await).0, "take");
    assert_eq!(one(store, claimed.run.id(), "t0000").await.status, "APPLYING", "all or none");
}

// proves R12
pub async fn a_guardrail_fails_its_targets_instead_of_trying_them(store: &dyn Database) {
    let run = put(store, new("rule")).await;
    let stopped = NewTarget { violation: Some(Failure::new("GUARDRAIL", "below the floor")), ..target("b") };
    let write = AddTargets { rows: 2, targets: vec![target("a"), stopped], last: true, ..batch(&run, 0, &[]) };
    store.add_targets(write).await.unwrap();
    command(store, run.id(), "queue").await.unwrap();
    let claimed = store.claim_run(run.id().into(), "w1".into()).await.unwrap();
    let worked = store.work_targets(work(&claimed, Vec::new(), 5)).await.unwrap();
    assert_eq!((keys(&worked.taken), worked.counts.get("FAILED")), (vec!["a"], Some(&1)));
    let failure = one(store, run.id(), "b").await.failure.unwrap();
    assert_eq!((&*failure.code, &*failure.message), ("GUARDRAIL", "below the floor"));
}

// proves R1 and R12
pub async fn a_stop_fails_the_rest_and_then_it_is_counted(store: &dyn Database) {
    for applies in [true, false] {
        let claimed = applying(store, 80).await;
        let taken = take(store, &claimed, 2).await;
        let results: Vec<TargetResult> =
            taken.iter().take(usize::from(applies)).map(|row| result(row, Tried::Applied)).collect();
        let end = End::Stop(Failure::new("AUTHORIZATION", "the token was refused"));
        let worked = store.work_targets(WorkTargets { end, ..work(&claimed, results, 5) }).await.unwrap();
        let row = worked.ended.unwrap();
        assert_eq!(row.status(), if applies { "PARTIAL" } else { "FAILED" });
        assert_eq!(row.run.failure.as_ref().map(|failure| &*failure.code), Some("AUTHORIZATION"));
        assert_eq!(worked.counts.get("FAILED"), Some(&(80 - u32::from(applies))));
        assert_eq!(one(store, claimed.run.id(), "t0079").await.failure.unwrap().code.to_string(), "AUTHORIZATION");
    }
}

// proves R1
pub async fn a_cancel_is_told_and_ends_as_the_targets_say(store: &dyn Database) {
    let claimed = applying(store, 3).await;
    let taken = take(store, &claimed, 1).await;
    command(store, claimed.run.id(), "cancel").await.unwrap();
    let worked = report(store, &claimed, vec![result(&taken[0], Tried::Applied)]).await.unwrap();
    assert_eq!(worked.renewed.unwrap().intent, Some("cancel"));
    let end = End::Stop(Failure::new("CANCELLED", "as was asked"));
    let worked = store.work_targets(WorkTargets { end, ..work(&claimed, Vec::new(), 0) }).await.unwrap();
    let row = worked.ended.unwrap();
    assert_eq!((row.status(), row.run.failure.as_ref().map(|it| &*it.code)), ("PARTIAL", Some("CANCELLED")));
    assert_eq!(row.run.last_command.to_string(), "cancel");
}

// proves R8
pub async fn failed_targets_are_retried_as_a_whole_or_some(store: &dyn Database) {
    let tries = [Tried::Applied, failed("TIMEOUT"), failed("VALIDATION"), failed("TIMEOUT")];
    let (claimed, row) = ended(store, &tries).await;
    let id = row.id().to_owned();
    let some = waypost_store::CommandWrite { items: Some(vec!["t0001".into()]), ..asking(&id, "retry") };
    assert_eq!(store.command(some).await.unwrap().status(), "APPLYING");
    assert_eq!(keys(&page(store, &id, "QUEUED").await), ["t0001"]);
    let next = store.claim_run(id.clone(), "w2".into()).await.unwrap();
    let taken = take(store, &next, 9).await;
    let write = WorkTargets { end: End::WhenDone, ..work(&next, vec![result(&taken[0], Tried::Applied)], 9) };
    // Others of the run have failed, in an earlier pass: it is not APPLIED.
    assert_eq!(store.work_targets(write).await.unwrap().ended.unwrap().status(), "PARTIAL");
    let gone = DiscardTargets {
        tenant: TENANT.into(),
        run_id: id.clone(),
        by: "ann".into(),
        reason: "the product is gone".into(),
        keys: None,
        code: Some("VALIDATION".into()),
    };
    assert_eq!(store.discard_targets(gone.clone()).await.unwrap(), 1);
    assert_eq!(store.discard_targets(gone).await.unwrap(), 0);
    assert_eq!(command(store, &id, "retry").await.unwrap().status(), "APPLYING");
    assert_eq!(keys(&page(store, &id, "QUEUED").await), ["t0003"]);
    let last = store.claim_run(id.clone(), "w3".into()).await.unwrap();
    let taken = take(store, &last, 9).await;
    let write = WorkTargets { end: End::WhenDone, ..work(&last, vec![result(&taken[0], Tried::Applied)], 9) };
    assert_eq!(store.work_targets(write).await.unwrap().ended.unwrap().status(), "PARTIAL", "what was discarded has failed");
    assert_eq!(code(&report(store, &claimed, Vec::new()).await), "LEASE_LOST");
}

// proves R8
pub async fn a_discard_has_a_reason_and_is_for_what_failed(store: &dyn Database) {
    let (_, row) = ended(store, &[Tried::Applied, failed("TIMEOUT"), failed("NETWORK")]).await;
    let discard = |keys: Option<Vec<&str>>, reason: &str| DiscardTargets {
        tenant: TENANT.into(),
        run_id: row.id().into(),
        by: "ann".into(),
        reason: reason.into(),
        keys: keys.map(|keys| keys.into_iter().map(str::to_owned).collect()),
        code: None,
    };
    assert_eq!(invalid(store.discard_targets(discard(None, " ")).await).0, "reason");
    assert_eq!(invalid(store.discard_targets(discard(Some(vec!["t0000"]), "x")).await).0, "keys");
    assert_eq!(invalid(store.discard_targets(discard(Some(vec!["nobody"]), "x")).await).0, "keys");
    let other = DiscardTargets { tenant: "other".into(), ..discard(None, "x") };
    assert_eq!(code(&store.discard_targets(other).await), "NOT_FOUND");
    assert_eq!(store.discard_targets(discard(Some(vec!["t0001"]), "gone")).await.unwrap(), 1);
    let found = one(store, row.id(), "t0001").await;
    assert_eq!((found.status.as_str(), found.discarded), ("FAILED", true));
    assert_eq!((found.details["discard_reason"].clone(), found.details["after"].clone()), (json!("gone"), json!({ "unit_amount": 0 })));
    assert_eq!(store.discard_targets(discard(None, "all")).await.unwrap(), 1);
    let audit = store.audits(Some(TENANT.into()), 0, 100).await.unwrap();
    let entry = audit.iter().rev().find(|entry| entry.action == "discard").unwrap();
    assert_eq!((entry.subject.as_str(), entry.reason.as_deref()), (row.id(), Some("all")));
    assert_eq!(code(&command(store, row.id(), "retry").await), "INVALID_TRANSITION", "there is none left");
}

// proves R8
pub async fn dead_letters_are_told_by_class(store: &dyn Database) {
    let (_, first) = ended(store, &[failed("TIMEOUT"), failed("TIMEOUT"), failed("NOT_FOUND"), Tried::Applied]).await;
    advance(store, 60).await;
    let (_, second) = ended(store, &[failed("NOT_FOUND"), failed("NOT_FOUND")]).await;
    let of = |run_id: Option<&str>, code: Option<&str>| DeadLetterFilter {
        tenant: TENANT.into(),
        run_id: run_id.map(str::to_owned),
        code: code.map(str::to_owned),
    };
    let told = |classes: Vec<waypost_store::DeadLetterClass>| -> Vec<(String, u64, String)> {
        classes.into_iter().map(|class| (class.code, class.count, class.sample.run_id)).collect()
    };
    let all = told(store.dead_letters(of(None, None)).await.unwrap());
    assert_eq!(all, [("NOT_FOUND".into(), 3, first.id().into()), ("TIMEOUT".into(), 2, first.id().to_owned())]);
    let one = told(store.dead_letters(of(Some(second.id()), None)).await.unwrap());
    assert_eq!(one, [("NOT_FOUND".into(), 2, second.id().to_owned())]);
    let class = store.dead_letters(of(None, Some("TIMEOUT"))).await.unwrap();
    assert_eq!((class.len(), class[0].sample.message.as_str(), class[0].rolled_back), (1, "it said so", 0));
    assert!(class[0].oldest_at.is_some());
    assert_eq!(class[0].sample.key, "t0000", "of two that failed at once the first");
    let other = DeadLetterFilter { tenant: "other".into(), ..of(None, None) };
    assert!(store.dead_letters(other).await.unwrap().is_empty());
    // One class of a run's targets, page by page; with their state or without.
    for status in [Some("FAILED".to_owned()), None] {
        let mut filter = ItemFilter {
            run_id: first.id().into(),
            kind: Some("target".into()),
            status,
            key: None,
            code: Some("TIMEOUT".into()),
            limit: 1,
            cursor: None,
        };
        let mut found = Vec::new();
        loop {
            let page = store.item_page(filter.clone()).await.unwrap();
            found.extend(page.items.into_iter().map(|item| item.key));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
        }
        assert_eq!(found, ["t0000", "t0001"]);
    }
    // What is discarded, or tried again, is no dead letter.
    let gone = DiscardTargets { tenant: TENANT.into(), run_id: first.id().into(), by: "ann".into(), reason: "x".into(), keys: None, code: Some("TIMEOUT".into()) };
    store.discard_targets(gone).await.unwrap();
    command(store, second.id(), "retry").await.unwrap();
    let left = told(store.dead_letters(of(None, None)).await.unwrap());
    assert_eq!(left, [("NOT_FOUND".into(), 1, first.id().to_owned())]);
}

// proves R10
pub async fn the_run_is_rolled_back_with_its_last_applied_target(store: &dyn Database) {
    let (_, parent) = ended(store, &[Tried::Applied, Tried::Applied, failed("TIMEOUT")]).await;
    command(store, parent.id(), "rollback").await.unwrap();
    let operation = super::operations::operation(store, &parent).await;
    let claimed = store.claim_run(operation, "w1".into()).await.unwrap();
    let roll_back = |keys: &[&str]| RollBackTargets {
        held: held(&claimed),
        by: "w1".into(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    };
    let row = store.roll_back_targets(roll_back(&["t0000"])).await.unwrap();
    assert_eq!((row.id(), row.status()), (parent.id(), "PARTIAL"));
    assert_eq!(code(&store.roll_back_targets(roll_back(&["t0002"])).await), "INVALID_TRANSITION");
    assert_eq!(invalid(store.roll_back_targets(roll_back(&["nobody"])).await).0, "keys");
    let row = store.roll_back_targets(roll_back(&["t0000", "t0001"])).await.unwrap();
    assert_eq!(row.status(), "ROLLED_BACK");
    assert_eq!(store.roll_back_targets(roll_back(&["t0001"])).await.unwrap().run.seq, row.run.seq, "once");
    finish(store, &claimed, "completed").await.unwrap();
    assert_eq!(code(&store.roll_back_targets(roll_back(&["t0000"])).await), "LEASE_LOST");
    assert_eq!(items(store, parent.id()).await, ["t0000=ROLLED_BACK", "t0001=ROLLED_BACK", "t0002=FAILED"]);
    let undone = one(store, parent.id(), "t0000").await;
    assert!(undone.details["applied_at"].is_string(), "when it was applied is kept: {:?}", undone.details);
    assert_eq!(undone.details["after"], json!({ "unit_amount": 0 }));
    let left = DeadLetterFilter { tenant: TENANT.into(), run_id: Some(parent.id().into()), code: None };
    let left = store.dead_letters(left).await.unwrap().remove(0);
    assert_eq!((left.code.as_str(), left.count, left.rolled_back), ("TIMEOUT", 1, 1));
    assert_eq!(code(&command(store, parent.id(), "retry").await), "INVALID_TRANSITION");
}

// proves R2
pub async fn a_thousand_targets_are_counted_as_they_are(store: &dyn Database) {
    let claimed = applying(store, 1_500).await;
    let id = claimed.run.id().to_owned();
    let mut results = Vec::new();
    let mut applied = 0;
    let row = loop {
        let write = WorkTargets { end: End::WhenDone, ..work(&claimed, std::mem::take(&mut results), 400) };
        let worked = store.work_targets(write).await.unwrap();
        if let Some(row) = worked.ended {
            assert_eq!((worked.counts.get("APPLIED"), worked.counts.get("FAILED")), (Some(&1_485), Some(&15)));
            break row;
        }
        applied += worked.taken.len();
        let tried = |row: &ItemRow| if row.key.ends_with("00") { failed("VALIDATION") } else { Tried::Applied };
        results = worked.taken.iter().map(|row| result(row, tried(row))).collect();
    };
    assert_eq!((row.status(), applied), ("PARTIAL", 1_500));
    assert_eq!(get(store, &id).await.object()["items"], json!({ "target": { "APPLIED": 1_485, "FAILED": 15 } }));
    assert_eq!(page(store, &id, "FAILED").await.len(), 15);
    assert!(events(store, &id).await.len() < 20, "one event for each batch");
}

// proves R6
pub async fn an_answer_that_nobody_waits_for_is_an_error(store: &dyn Database) {
    let gone = store.work_targets(WorkTargets {
        held: waypost_store::Held { run_id: "rule-gone".into(), token: waypost_kernel::Token(1) },
        ..work(&applying(store, 1).await, Vec::new(), 1)
    });
    assert_eq!(code(&gone.await), "NOT_FOUND");
    let held_deploy = begun_run(store, deploy()).await;
    let answer: Result<Worked> = store.work_targets(work(&held_deploy, Vec::new(), 1)).await;
    assert!(matches!(answer, Err(StoreError::Invalid { .. })), "{answer:?}");
}

// proves X11: more targets than are read at once, and more events
pub async fn a_run_with_thousands_of_targets_verifies(store: &dyn Database) {
    let claimed = applying(store, 2_400).await;
    let mut results = Vec::new();
    loop {
        let worked = store.work_targets(work(&claimed, std::mem::take(&mut results), 60)).await.unwrap();
        if worked.taken.is_empty() {
            break;
        }
        results = worked.taken.iter().map(|row| result(row, Tried::Applied)).collect();
    }
    let ended = store.work_targets(WorkTargets { end: End::WhenDone, ..work(&claimed, Vec::new(), 0) }).await.unwrap();
    assert_eq!(ended.ended.unwrap().status(), "APPLIED");
    let verified = store.verify(std::sync::Arc::new(|_, _| {})).await.unwrap();
    assert_eq!((verified.differences, verified.runs), (Vec::new(), 1));
    assert!(verified.events > 40, "{}", verified.events);
}

//! Looking things up.

use serde_json::{Map, json};
use waypost_kernel::Span;
use waypost_store::{Database, Filter, HOUSEKEEPING, NewRun, PAGE_BYTES, Parts, QueueRow, RunRow};
use waypost_testkit::Shorthand;

use super::kit::*;

fn all() -> Filter {
    Filter { tenant: TENANT.into(), limit: 100, ..Filter::default() }
}

async fn ids(store: &dyn Database, filter: Filter) -> Vec<String> {
    store.runs(filter).await.unwrap().runs.iter().map(|row| row.id().to_owned()).collect()
}

pub async fn the_newest_comes_first_page_by_page(store: &dyn Database) {
    let answers = store.enqueue(vec![deploy(); 7]).await.unwrap();
    let mut expected: Vec<String> =
        answers.into_iter().map(|answer| answer.unwrap().run.id().to_owned()).collect();
    expected.reverse();
    let mut found = Vec::new();
    let mut filter = Filter { limit: 3, ..all() };
    for more in [true, true, false] {
        let page = store.runs(filter.clone()).await.unwrap();
        found.extend(page.runs.iter().map(|row| row.id().to_owned()));
        put(store, deploy()).await;
        assert_eq!(page.next.is_some(), more, "what comes in meanwhile is not for these pages");
        filter.cursor = page.next;
    }
    assert_eq!(found, expected);
    let exact = store.runs(Filter { limit: 10, ..all() }).await.unwrap();
    assert_eq!((exact.runs.len(), exact.next), (10, None), "no page is promised that would be empty");
}

pub async fn runs_are_found_by_what_they_are(store: &dyn Database) {
    let held = held_run(store, deploy()).await;
    let other = put(store, NewRun { queue: "other".into(), ..deploy() }).await;
    let change = put(store, rule(&["a"])).await;
    let by = |part: Filter| ids(store, part);
    let deploys = Filter { lifecycle: Some("deploy".into()), ..all() };
    assert_eq!(by(deploys.clone()).await, [other.id(), held.run.id()]);
    assert_eq!(by(Filter { status: Some("claimed".into()), ..all() }).await, [held.run.id()]);
    assert_eq!(by(Filter { status: Some("QUEUED".into()), ..all() }).await, [change.id()]);
    assert_eq!(by(Filter { queue: Some("other".into()), ..all() }).await, [other.id()]);
    assert_eq!(
        by(Filter { status: Some("claimed".into()), queue: Some("other".into()), ..deploys }).await,
        [""; 0]
    );
    assert_eq!(by(Filter { queue: Some("' OR 1=1 --".into()), ..all() }).await, [""; 0]);
    let child = put(store, NewRun { parent_run_id: Some(other.id().into()), ..deploy() }).await;
    let of = |parent: &str| Filter { parent: Some(parent.into()), ..all() };
    assert_eq!(by(of(other.id())).await, [child.id()]);
    assert_eq!(by(Filter { status: Some("claimed".into()), ..of(other.id()) }).await, [""; 0]);
    assert_eq!(by(of("run-none")).await, [""; 0]);
    assert_eq!(by(Filter { tenant: "other".into(), ..of(other.id()) }).await, [""; 0]);
    assert!(found(store, Filter { lifecycle: Some("' OR 1=1 --".into()), ..all() }).await.is_empty());
}

/// What the engine does for itself is in no list: a part of an id means it only if it means nothing else.
pub async fn a_part_of_an_id_means_what_lists_show(store: &dyn Database) {
    let hidden = put(store, NewRun { queue: HOUSEKEEPING.into(), ..job(&["a"]) }).await;
    let shown = put(store, deploy()).await;
    let (_, rest) = shown.id().split_once('-').unwrap();
    let same = hidden.id().bytes().zip(rest.bytes()).take_while(|(one, other)| one == other).count();
    let part = &rest[..same];
    assert!(same >= 4, "both begin with the time: {} {}", hidden.id(), shown.id());
    let found = |id: &str| store.run(TENANT.into(), id.to_owned());
    assert_eq!(found(part).await.unwrap().id(), shown.id());
    assert_eq!(found(hidden.id()).await.unwrap().id(), hidden.id(), "its whole id means it");
    assert_eq!(found(&hidden.id()[..same + 1]).await.unwrap().id(), hidden.id(), "there is no other");
    put(store, deploy()).await;
    let (field, message) = invalid(found(&part[..4]).await);
    assert_eq!(field, "run_id");
    assert!(!message.contains(&format!(" {}", hidden.id())), "{message}");
}

pub async fn runs_are_found_by_text(store: &dyn Database) {
    let correlated = put(store, NewRun { correlation_id: Some("order-4711".into()), ..deploy() }).await;
    let marked = put(store, NewRun { metadata: map(json!({"branch": "fix%_x"})), ..deploy() }).await;
    put(store, deploy()).await;
    let by = |text: &str| ids(store, Filter { text: Some(text.into()), ..all() });
    assert_eq!(by("er-47").await, [correlated.id()]);
    assert_eq!(by("fix%_").await, [marked.id()], "no pattern characters");
    assert_eq!(by(&marked.id()[10..]).await, [marked.id()]);
    assert_eq!(by("branch").await, [marked.id()]);
    assert_eq!(by("fix__x").await, [""; 0]);
}

pub async fn each_tenant_sees_its_own(store: &dyn Database) {
    let here = put(store, deploy()).await;
    let there = put(store, NewRun { tenant: "other".into(), ..deploy() }).await;
    assert_eq!(ids(store, all()).await, [here.id()]);
    assert_eq!(ids(store, Filter { tenant: "other".into(), ..all() }).await, [there.id()]);
    assert_eq!(code(&store.run("other".into(), here.id().into()).await), "NOT_FOUND");
    assert_eq!(code(&store.run("other".into(), here.id()[..8].into()).await), "OK", "its own prefix");
}

pub async fn a_run_is_found_by_a_unique_prefix(store: &dyn Database) {
    let one = put(store, deploy()).await;
    let change = put(store, rule(&["a"])).await;
    let found = |id: &str| store.run(TENANT.into(), id.into());
    assert_eq!(found(one.id()).await.unwrap().id(), one.id());
    assert_eq!(found("run-").await.unwrap().id(), one.id());
    assert_eq!(found(&change.id()[..20]).await.unwrap().id(), change.id());
    for unknown in ["run-zzz", "nope", "%", "run_"] {
        assert_eq!(code(&found(unknown).await), "NOT_FOUND", "{unknown}");
    }
    let two = put(store, deploy()).await;
    for prefix in ["run-", "r"] {
        let (field, message) = invalid(found(prefix).await);
        assert_eq!(field, "run_id");
        assert!([one.id(), two.id(), change.id()].iter().any(|id| message.contains(id)), "{message}");
    }
}

// proves X10
pub async fn a_page_has_an_end(store: &dyn Database) {
    for _ in 0..6 {
        store.enqueue(vec![deploy(); 100]).await.unwrap();
    }
    let page = store.runs(Filter { limit: usize::MAX, ..all() }).await.unwrap();
    assert_eq!(page.runs.len(), 500);
    let rest = store.runs(Filter { limit: usize::MAX, cursor: page.next, ..all() }).await.unwrap();
    assert_eq!((rest.runs.len(), rest.next), (100, None));
    let (field, _) = invalid(store.runs(Filter { cursor: Some("x'; --".into()), ..all() }).await);
    assert_eq!(field, "cursor");
}

pub async fn a_list_has_the_parts_that_were_asked_for(store: &dyn Database) {
    let members = |name: &str| Map::from_iter([(name.to_owned(), json!(1))]);
    let new = NewRun {
        input: json!({ "i": 1 }),
        metadata: members("m"),
        details: members("d"),
        carried: Some(json!({ "command": ["true"] })),
        ..deploy()
    };
    put(store, new).await;
    for (include, expected) in [
        ("", json!([null, {}, {}, null])),
        ("input", json!([{ "i": 1 }, {}, {}, null])),
        ("metadata,carried", json!([null, { "m": 1 }, {}, { "command": ["true"] }])),
        ("input,metadata,details,carried", json!([{ "i": 1 }, { "m": 1 }, { "d": 1 }, { "command": ["true"] }])),
    ] {
        let filter = Filter { include: Parts::read(include).unwrap(), ..all() };
        let row = store.runs(filter).await.unwrap().runs.remove(0);
        assert_eq!(json!([*row.input, *row.metadata, *row.details, row.carried]), expected, "{include}");
    }
}

// proves X10
pub async fn a_page_of_large_runs_is_short(store: &dyn Database) {
    let large = json!("x".repeat(1_000_000));
    for at in 0..7 {
        let input = if at == 3 { json!({}) } else { large.clone() };
        put(store, NewRun { input, metadata: Map::from_iter([("m".to_owned(), large.clone())]), ..deploy() }).await;
    }
    let lean = store.runs(all()).await.unwrap();
    assert_eq!((lean.runs.len(), lean.next), (7, None));
    let mut filter = Filter { include: Parts::ALL, ..all() };
    let mut seen = Vec::new();
    loop {
        let page = store.runs(filter.clone()).await.unwrap();
        assert!((1..=3).contains(&page.runs.len()), "{}", page.runs.len());
        let bytes: usize = page.runs.iter().map(|row| row.input.to_string().len() + 1_000_000).sum();
        assert!(bytes <= PAGE_BYTES, "{bytes}");
        seen.extend(page.runs.iter().map(|row| row.id().to_owned()));
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, ids(store, all()).await);
}

// proves D12 and X9
pub async fn queues_are_counted(store: &dyn Database) {
    assert!(store.queues(None).await.unwrap().is_empty());
    let now = store.now().await.unwrap();
    let first = put(store, NewRun { queue: "b".into(), ..deploy() }).await;
    advance(store, 5).await;
    put(store, NewRun { queue: "b".into(), ..deploy() }).await;
    let later = Some(now + Span::from_seconds(1_000));
    put(store, NewRun { queue: "b".into(), schedule_at: later, ..deploy() }).await;
    held_run(store, NewRun { queue: "b".into(), ..deploy() }).await;
    let done = begun_run(store, NewRun { queue: "done".into(), ..deploy() }).await;
    finish(store, &done, "success").await.unwrap();
    put(store, NewRun { queue: "c".into(), ..deploy() }).await;
    store.limit_queue("a", Some(4)).await.unwrap();
    let rows = store.queues(None).await.unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"], "those with something to do or to say, by name");
    assert_eq!(rows[0], QueueRow { tenant: TENANT.into(), name: "a".into(), at_most: Some(4), ..QueueRow::default() });
    assert_eq!((rows[1].ready, rows[1].scheduled, rows[1].held), (2, 1, 1));
    assert_eq!(rows[1].oldest_ready_at, first.run.available_at);
}

// proves X6
pub async fn the_clock_goes_ahead_only(store: &dyn Database) {
    let before = store.now().await.unwrap();
    advance(store, 1_000).await;
    assert!(about(store.now().await.unwrap() - before, 1_000));
    assert_eq!(code(&store.advance_clock(Span::from_seconds(-1)).await), "INVALID_INPUT");
    assert!(store.now().await.unwrap() - before >= Span::from_seconds(1_000));
}

pub async fn the_engines_own_runs_are_in_nobodys_way(store: &dyn Database) {
    let own = put(store, NewRun { queue: HOUSEKEEPING.into(), ..deploy() }).await;
    let run = put(store, deploy()).await;
    assert_eq!(ids(store, all()).await, [run.id()]);
    let asked = Filter { queue: Some(HOUSEKEEPING.into()), ..all() };
    assert_eq!(ids(store, asked).await, [own.id()]);
    let deploys = Filter { lifecycle: Some("deploy".into()), ..all() };
    assert_eq!(ids(store, deploys).await, [run.id(), own.id()]);
}

pub async fn runs_are_found_by_playbook_and_by_when_they_came_in(store: &dyn Database) {
    let of = |playbook: &str| NewRun { playbook: Some(playbook.into()), ..deploy() };
    let named = put(store, of("ship")).await;
    let pinned = put(store, of("ship@0123456789ab")).await;
    advance(store, 3_600).await;
    let other = put(store, of("shipping")).await;
    advance(store, 3_600).await;
    let last = put(store, deploy()).await;
    let by = |part: Filter| ids(store, part);
    assert_eq!(by(Filter { playbook: Some("ship".into()), ..all() }).await, [pinned.id(), named.id()]);
    assert_eq!(by(Filter { playbook: Some("shi%".into()), ..all() }).await, [""; 0]);
    let at = |row: &RunRow| Some(row.run.created_at);
    assert_eq!(by(Filter { since: at(&other), ..all() }).await, [last.id(), other.id()], "that time too");
    assert_eq!(by(Filter { until: at(&other), ..all() }).await, [pinned.id(), named.id()], "not that time");
    assert_eq!(by(Filter { since: at(&other), until: at(&last), ..all() }).await, [other.id()]);
    let later = last.run.created_at + Span::from_seconds(3_600);
    assert_eq!(by(Filter { since: Some(later), ..all() }).await, [""; 0]);
    assert_eq!(by(Filter { until: Some(named.run.created_at), ..all() }).await, [""; 0]);
    let first = Filter { limit: 1, since: at(&other), ..all() };
    let page = store.runs(first.clone()).await.unwrap();
    assert_eq!(ids(store, Filter { cursor: page.next, ..first }).await, [other.id()]);
}

const MANY: usize = 1_000;

pub async fn a_sample_has_the_newest_runs_that_fit(store: &dyn Database) {
    assert!(store.sample(all(), MANY, None).await.unwrap().runs.is_empty());
    let begun = begun_run(store, deploy()).await;
    finish(store, &begun, "success").await.unwrap();
    advance(store, 3_600).await;
    let waiting = put(store, NewRun { queue: "other".into(), ..deploy() }).await;
    put(store, NewRun { tenant: "other".into(), ..deploy() }).await;
    put(store, NewRun { queue: HOUSEKEEPING.into(), ..deploy() }).await;
    let found = store.sample(all(), MANY, None).await.unwrap();
    let told: Vec<(&str, bool, bool)> = found
        .runs
        .iter()
        .map(|it| (it.status(), it.took.is_some(), it.finished_at.is_some()))
        .collect();
    assert_eq!(told, [("queued", false, false), ("success", true, true)]);
    assert_eq!((found.runs[0].created_at, found.cut_at), (waiting.run.created_at, None));
    let since = Filter { since: Some(waiting.run.created_at), ..all() };
    assert_eq!(store.sample(since, MANY, None).await.unwrap().runs.len(), 1);
    let nobodys = Filter { queue: Some("nobody's".into()), ..all() };
    assert!(store.sample(nobodys, MANY, None).await.unwrap().runs.is_empty());
    // The newest three are enough for what came in since then. Two of them do not fit, and were looked at all the same.
    let cut = store.sample(all(), 3, Some(waiting.run.created_at)).await.unwrap();
    assert_eq!((cut.runs.len(), cut.cut_at, cut.one_in), (1, Some(begun.run.run.created_at), 1));
}

/// Of many runs a part is looked at, from the first to the last, and stands for the others.
pub async fn a_sample_of_many_is_spread_over_all(store: &dyn Database) {
    const RUNS: usize = 700;
    let mut new: Vec<NewRun> = (0..RUNS).map(|_| deploy()).collect();
    let first = store.enqueue(new.drain(..RUNS / 2).collect()).await.unwrap().remove(0).unwrap();
    advance(store, 3_600).await;
    let last = store.enqueue(new).await.unwrap().remove(0).unwrap();
    for (reach, many) in [(None, RUNS), (Some(last.run.run.created_at), RUNS / 2)] {
        let found = store.sample(all(), 100, reach).await.unwrap();
        let about = found.runs.iter().map(|run| run.stands_for).sum::<u64>() as usize;
        assert!((40..=100).contains(&found.runs.len()), "{reach:?}: {}", found.runs.len());
        assert!(found.one_in > 1 && about.abs_diff(many) <= many / 4, "{reach:?}: {about}");
        assert_eq!(found.cut_at, reach);
        assert!(found.runs.is_sorted_by(|newer, older| newer.created_at >= older.created_at));
        let is_early = found.runs.iter().any(|run| run.created_at < last.run.run.created_at);
        assert_eq!(is_early, reach.is_none(), "from {:?} on", first.run.run.created_at);
    }
    // The same of runs that came in one by one.
    for at in 0..300 {
        put(store, NewRun { queue: format!("q{}", at % 3), ..deploy() }).await;
    }
    let third = Filter { queue: Some("q0".into()), ..all() };
    let third: u64 = store.sample(third, 100, None).await.unwrap().runs.iter().map(|run| run.stands_for).sum();
    assert!(third.abs_diff(100) <= 60, "{third}");
    let nobodys = Filter { queue: Some("nobody's".into()), ..all() };
    assert!(store.sample(nobodys, 100, None).await.unwrap().runs.is_empty());
}

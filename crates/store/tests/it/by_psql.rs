//! What a superuser does to a PostgreSQL store by hand, through the table and through the board: every illegal move is
//! refused by the database itself, a legal one gets its event, and the log verifies clean.
// proves X2

use std::sync::Arc;

use tokio_postgres::{Client, NoTls};
use waypost_kernel::lifecycle::{Kind, Lifecycle, Phase, State, StateId};
use waypost_kernel::{Catalog, Guard, Outcome, Span};
use waypost_store::postgres::{PostgresStore, migration_sql};
use waypost_store::{Claim, Housekeeping, NewItem, NewRun, Store};
use waypost_testkit::Postgres;
use waypost_testkit::Shorthand;

use crate::by_hand::{guards_between, path};
use crate::conformance::follow::work;
use crate::conformance::kit::{claim_plan, held_run, items, move_items};
use crate::tables::{RUNS, is_declared};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Through {
    Table,
    Board,
}

struct Base {
    store: PostgresStore,
    client: Client,
    _database: Postgres,
}

async fn open() -> Base {
    let database = Postgres::with_schema(&migration_sql()).unwrap();
    let store = PostgresStore::open(&database.url()).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    Base { store, client, _database: database }
}

impl Base {
    async fn sql(&self, sql: &str) -> Result<String, String> {
        let said = self.client.simple_query(sql).await.map_err(|error| {
            error.as_db_error().map_or_else(
                || error.to_string(),
                |said| format!("{} {}", said.code().code(), said.message()),
            )
        })?;
        let text = |row| match row {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(said.into_iter().filter_map(text).collect::<Vec<_>>().join("\n"))
    }

    async fn differences(&self) -> Vec<String> {
        self.store.verify(Arc::new(|_, _| {})).await.unwrap().differences
    }

    async fn start(&self, lifecycle: &Lifecycle) -> String {
        let items = lifecycle.items.first().map(|kind| {
            ["a", "b"].map(|key| NewItem {
                kind: kind.name.to_string(),
                key: key.into(),
                name: key.into(),
                status: None,
                max_retries: 3,
                reruns: true,
                role: waypost_kernel::item::Role::Step,
                details: serde_json::Map::new(),
                copied: false,
            })
        });
        let new = NewRun {
            lifecycle: lifecycle.name.to_string(),
            items: items.map(Vec::from).unwrap_or_default(),
            max_attempts: 3,
            reentrant: true,
            ..NewRun::default()
        };
        if lifecycle.phase(lifecycle.initial[0]) == Phase::Held {
            let key = format!("waypost:schedule:plan {}", self.store.now().await.unwrap().micros());
            let plan = NewRun {
                idempotency_key: Some(key.clone()),
                by: "w".into(),
                actor: waypost_kernel::Actor::Worker,
                ..new
            };
            let claimed = claim_plan(&self.store, &key, plan, Span::from_seconds(300)).await;
            return claimed.unwrap().unwrap().run.id().to_owned();
        }
        self.store.enqueue(vec![new]).await.unwrap().remove(0).unwrap().run.id().to_owned()
    }

    /// A move as somebody who knows the table's columns would make it; of the board he need not.
    async fn set(
        &self,
        through: Through,
        lifecycle: &Lifecycle,
        run_id: &str,
        to: StateId,
    ) -> Result<String, String> {
        let state = lifecycle.state(to);
        let lease = match state.phase {
            Phase::Held => {
                "lease_token = coalesce(lease_token, gen_random_uuid()), stale_after = coalesce(stale_after, now() + '1 hour')"
            }
            _ => "lease_token = NULL, stale_after = NULL",
        };
        let end = if state.phase == Phase::Settled { "coalesce(finished_at, now())" } else { "NULL" };
        let with = if state.phase == Phase::Ready { "resolved = true" } else { "reason = 'a look'" };
        let sql = match through {
            Through::Table => format!(
                "UPDATE waypost.runs SET state = (SELECT code FROM waypost.lifecycle_states WHERE lifecycle = '{}' AND version = {} \
                 AND state = '{}'), {lease}, finished_at = {end}, {with} WHERE run_id = '{run_id}'",
                lifecycle.name, lifecycle.version, state.name
            ),
            Through::Board => {
                format!(
                    "UPDATE waypost.board SET status = '{}', {with} WHERE run_id = '{run_id}'",
                    state.name
                )
            }
        };
        self.sql(&sql).await
    }

    /// Walks the items to where a guard wants them, by legal moves of their own.
    async fn arrange(&self, lifecycle: &Lifecycle, run_id: &str, guards: &[Guard]) {
        let Some(kind) = lifecycle.items.first() else { return };
        for key in ["a", "b"] {
            let has = |guard: Guard| guards.contains(&guard);
            let ok = has(Guard::AllItemsOk) || has(Guard::SomeItemFailed) && key == "a";
            let done = has(Guard::NoItemOk) || has(Guard::SomeItemFailed);
            let fits = |state: &State| match state.outcome {
                _ if !ok && !done && !has(Guard::SomeItemOpen) => true,
                Some(Outcome::Succeeded) => ok,
                Some(_) => done && !ok,
                None => has(Guard::SomeItemOpen) && state.phase == Phase::Ready,
            };
            let of = format!(
                "waypost.items WHERE rid = (SELECT rid FROM waypost.runs WHERE run_id = '{run_id}') AND key = '{key}' AND kind = '{}'",
                kind.name
            );
            let at = self.sql(&format!("SELECT status FROM {of}")).await.unwrap();
            let at = kind.state_named(&at).unwrap();
            let goals = kind.state_ids().filter(|id| fits(kind.state(*id)));
            let way = goals.filter_map(|goal| path(kind, at, goal)).min_by_key(Vec::len).unwrap_or_default();
            for step in way {
                let set = format!("SET status = '{}' WHERE", kind.state(step).name);
                self.sql(&format!("UPDATE {}", of.replacen("WHERE", &set, 1))).await.unwrap();
            }
        }
    }

    /// A run in a state, brought there by hand, with items as the last guard wanted them.
    async fn run_in(&self, through: Through, lifecycle: &Lifecycle, goal: StateId) -> String {
        let run_id = self.start(lifecycle).await;
        let mut at = lifecycle.initial[0];
        for step in path(lifecycle, at, goal).unwrap() {
            self.arrange(lifecycle, &run_id, &guards_between(lifecycle, at, step)).await;
            let set = self.set(through, lifecycle, &run_id, step).await;
            set.unwrap_or_else(|error| panic!("{}: {error}", lifecycle.name));
            at = step;
        }
        run_id
    }
}

async fn judge_all_pairs(through: Through) {
    let base = open().await;
    let catalog = Catalog::shipped().unwrap();
    let mut judged = 0;
    for lifecycle in catalog.iter().filter(|lifecycle| lifecycle.kind == Kind::Run) {
        for from in lifecycle.state_ids() {
            for to in lifecycle.state_ids().filter(|to| *to != from) {
                let run_id = base.run_in(through, lifecycle, from).await;
                let (was, will) = (&lifecycle.state(from).name, &lifecycle.state(to).name);
                let declared = is_declared(&RUNS, &lifecycle.name, was, will);
                if declared {
                    base.arrange(lifecycle, &run_id, &guards_between(lifecycle, from, to)).await;
                }
                let names = format!("{} {was} → {will}", lifecycle.name);
                let answer = base.set(through, lifecycle, &run_id, to).await;
                assert_eq!(answer.is_ok(), declared, "{names}: {answer:?}");
                assert!(declared || answer.is_err_and(|said| said.starts_with("WP409 ")), "{names}");
                judged += 1;
            }
        }
    }
    assert!(judged > 150, "{judged}");
    assert_eq!(base.differences().await, Vec::<String>::new());
}

#[tokio::test]
async fn all_pairs_of_states_are_judged_in_the_table() {
    judge_all_pairs(Through::Table).await;
}

#[tokio::test]
async fn all_pairs_of_states_are_judged_on_the_board() {
    judge_all_pairs(Through::Board).await;
}

#[tokio::test]
async fn what_is_settled_cannot_be_rewritten_and_a_shape_cannot_be_broken() {
    let base = open().await;
    let deploy = Catalog::shipped().unwrap().latest("deploy").unwrap().clone();
    let run_id = base.start(&deploy).await;
    let state = |name: &str| {
        format!("(SELECT code FROM waypost.lifecycle_states WHERE lifecycle = 'deploy' AND state = '{name}')")
    };
    for (sql, why) in [
        (format!("UPDATE waypost.runs SET state = {}", state("claimed")), "held without a lease"),
        (format!("UPDATE waypost.runs SET state = {}", state("cancelled")), "settled without a time"),
        ("UPDATE waypost.runs SET state = 2999".into(), "an unknown state"),
        ("UPDATE waypost.board SET status = 'nonsense'".into(), "an unknown status"),
        ("UPDATE waypost.board SET seq = 9, status = 'cancelled'".into(), "the log's length"),
        ("UPDATE waypost.runs SET input = '[]'".into(), "what it is born with"),
        ("DELETE FROM waypost.runs".into(), "a deleted run"),
        ("DELETE FROM waypost.events".into(), "a deleted event"),
        ("TRUNCATE waypost.events".into(), "an empty log"),
        ("UPDATE waypost.events SET who = 'nobody'".into(), "a rewritten event"),
    ] {
        assert!(base.sql(&sql).await.is_err(), "{why} was accepted");
    }
    base.set(Through::Board, &deploy, &run_id, deploy.state_named("cancelled").unwrap()).await.unwrap();
    for sql in [
        "UPDATE waypost.runs SET metadata = '{\"a\":1}'",
        "UPDATE waypost.runs SET finished_at = now()",
        "UPDATE waypost.runs SET error_code = 'X'",
        "UPDATE waypost.runs SET seq = seq + 1, error_code = 'X'",
    ] {
        assert!(base.sql(sql).await.is_err(), "{sql} was accepted");
    }
    assert_eq!(base.differences().await, Vec::<String>::new());
}

/// A run that was queued again, or given to a worker, by hand is one that claims and sweeps find.
#[tokio::test]
async fn what_was_moved_by_hand_is_worked_on() {
    let base = open().await;
    let deploy = Catalog::shipped().unwrap().latest("deploy").unwrap().clone();
    let limited = base.store.limit_queue("default", Some(1));
    limited.await.unwrap();
    let keyed = NewRun { concurrency_key: Some("k".into()), lifecycle: "deploy".into(), ..NewRun::default() };
    let answers = base.store.enqueue(vec![keyed.clone(), keyed]).await.unwrap();
    let ids: Vec<String> = answers.into_iter().map(|it| it.unwrap().run.id().to_owned()).collect();
    let claim = Claim { worker: "w1".into(), queues: vec!["default".into()], limit: 9, ..Claim::default() };
    let sql = format!(
        "UPDATE waypost.board SET status = 'claimed', claimed_by = 'ann' WHERE run_id = '{}'",
        ids[0]
    );
    base.sql(&sql).await.unwrap();
    assert!(base.store.claim(claim.clone()).await.unwrap().is_empty(), "its slots are taken");
    let held = base.store.run("default".into(), ids[0].clone()).await.unwrap();
    assert_eq!(held.run.lease.as_ref().unwrap().worker.as_deref(), Some("ann"));
    base.set(Through::Board, &deploy, &ids[0], deploy.state_named("cancelled").unwrap()).await.unwrap();
    let taken = base.store.claim(claim).await.unwrap();
    assert_eq!(taken.len(), 1, "its slots are free");
    let events = base.store.events(ids[0].clone(), 0, 10).await.unwrap();
    let last = events.last().unwrap();
    assert_eq!((last.seq, last.to.as_str(), last.by.as_str()), (3, "cancelled", "by hand"));
    assert_eq!(base.differences().await, Vec::<String>::new());
}

/// Those that come to where others leave are not taken along with them.
#[tokio::test]
async fn items_follow_a_hand_all_at_once() {
    let base = open().await;
    let claimed = held_run(&base.store, work(&base.store, &["a", "b", "c"]).await).await;
    move_items(&base.store, &claimed, "part", &[("b", "doing")]).await.unwrap();
    let gate = claimed.run.lifecycle.state_named("gate").unwrap();
    base.set(Through::Board, &claimed.run.lifecycle, claimed.run.id(), gate).await.unwrap();
    assert_eq!(items(&base.store, claimed.run.id()).await, ["a=doing", "b=waiting", "c=doing"]);
    assert_eq!(base.differences().await, Vec::<String>::new());
}

/// A rule that is broken is named.
#[tokio::test]
async fn a_broken_shape_is_told_by_its_rule() {
    let base = open().await;
    held_run(&base.store, NewRun { lifecycle: "deploy".into(), ..NewRun::default() }).await;
    let said = base.sql("UPDATE waypost.runs SET stale_after = NULL").await.unwrap_err();
    assert!(said.contains("SHAPE: held, and only that, has lease_token and stale_after"), "{said}");
    let said = base.sql("UPDATE waypost.runs SET finished_at = now()").await.unwrap_err();
    assert!(said.contains("SHAPE: settled, and only that, has finished_at"), "{said}");
}

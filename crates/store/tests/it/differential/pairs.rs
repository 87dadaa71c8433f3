//! Every move of an item from every state to every other one, asked for by a worker: what happens is what a person reads in
//! the kind's file, whichever store it is. The expectation is made from the file's lines, not from what the loader made of
//! them.

use std::collections::{BTreeMap, BTreeSet};

use waypost_kernel::Time;
use waypost_kernel::item::Role;
use waypost_kernel::lifecycle::SHIPPED;
use waypost_store::{Claimed, Database, ItemRow, ItemWrite, NewItem, NewRun, Result};
use waypost_testkit::lifecycles::table::{State, initial, rows, states};

use super::made;
use crate::conformance::kit::{code, held_run, item, new, write_items};
use crate::conformance::{Opened, open_memory, open_postgres, open_sqlite};

/// So many of the generated lifecycles.
const MADE: usize = 24;

/// A file of a kind of items.
struct Kind<'t> {
    name: &'t str,
    states: Vec<State>,
    rows: Vec<[&'t str; 5]>,
    initial: Vec<&'t str>,
}

/// What an item has that guards ask about.
#[derive(Clone, Copy)]
struct Budget {
    retries: u32,
    reruns: bool,
}

const BUDGETS: [Budget; 2] = [Budget { retries: 1, reruns: true }, Budget { retries: 0, reruns: false }];

impl<'t> Kind<'t> {
    fn read(text: &'t str) -> Kind<'t> {
        let line = text.lines().find(|line| line.starts_with("name")).unwrap();
        let name = line.split('"').nth(1).unwrap();
        Kind { name, states: states(text), rows: rows(text).collect(), initial: initial(text) }
    }

    fn state(&self, name: &str) -> &State {
        self.states.iter().find(|state| state.name == name).unwrap()
    }

    fn by_worker(&self, from: &str) -> impl Iterator<Item = &[&'t str; 5]> {
        let from = from.to_owned();
        self.rows.iter().filter(move |row| row[0] == from && row[3].split(", ").any(|by| by == "worker"))
    }

    /// The states through which a worker leads a new item to each state, without a guard.
    fn ways(&self) -> BTreeMap<&str, Vec<&str>> {
        let is_asked_for = |name: &&&str| self.state(name).phase != "draft";
        let mut ways: BTreeMap<&str, Vec<&str>> =
            self.initial.iter().filter(is_asked_for).map(|name| (*name, vec![*name])).collect();
        let mut open: Vec<&str> = ways.keys().copied().collect();
        while let Some(from) = open.pop() {
            for row in self.by_worker(from).filter(|row| row[4].is_empty()) {
                if !ways.contains_key(row[2]) {
                    let way = ways[from].iter().copied().chain([row[2]]).collect();
                    ways.insert(row[2], way);
                    open.push(row[2]);
                }
            }
        }
        ways
    }

    /// The rows that a worker's report takes: the one that leads there, or the one that begins the work and then that one.
    /// None if there are none, or a guard of theirs does not hold.
    fn path(&self, from: &str, to: &str, budget: Budget) -> Option<Vec<&[&'t str; 5]>> {
        let leads = |from: &str| self.by_worker(from).find(|row| row[2] == to);
        let path = match leads(from) {
            Some(row) => vec![row],
            None => {
                let begin = self.by_worker(from).find(|row| self.state(row[2]).phase == "held")?;
                vec![begin, leads(begin[2])?]
            }
        };
        let holds = |guard: &str| match guard {
            "" | "not-discarded" => true,
            "attempts-left" => budget.retries > 0,
            "reruns" => budget.reruns,
            other => panic!("{other} is no guard of an item"),
        };
        path.iter().all(|row| row[4].split(", ").all(holds)).then_some(path)
    }

    /// What a row of the table makes of an item, from the phases that it leads between.
    fn take(&self, row: &[&str; 5], item: &mut ItemRow) {
        let (from, to) = (self.state(row[0]), self.state(row[2]));
        item.status.clone_from(&to.name);
        item.attempts += u32::from(row[4].contains("attempts-left"));
        if from.phase == "settled" && to.phase != "settled" {
            (item.attempts, item.progress, item.finished_at) = (0, 0, None);
        }
        match to.phase.as_str() {
            "held" => item.started_at = item.started_at.or(Some(Time::default())),
            "settled" => item.finished_at = Some(Time::default()),
            _ => {}
        }
        if to.outcome.as_deref() == Some("succeeded") {
            item.progress = 100;
        }
    }

    /// What is wrong with the answer, if anything is.
    fn judge(
        &self,
        (from, to): (&str, &str),
        budget: Budget,
        before: &ItemRow,
        answer: Result<Vec<ItemRow>>,
    ) -> Option<String> {
        let wrong = |expected: &str, found: String| {
            Some(format!("{}, {from} to {to}: {expected}, but {found}", self.name))
        };
        if from == to {
            return match answer {
                Ok(rows) if rows[0] == *before => None,
                other => wrong("it stays as it is", format!("{other:?}")),
            };
        }
        let Some(path) = self.path(from, to, budget) else {
            return (code(&answer) != "INVALID_TRANSITION")
                .then(|| wrong("refused", format!("{answer:?}")))
                .flatten();
        };
        let after = match answer {
            Ok(mut rows) => rows.remove(0),
            Err(refused) => return wrong("allowed", refused.to_string()),
        };
        let mut expected = before.clone();
        path.iter().for_each(|row| self.take(row, &mut expected));
        let told = |it: &ItemRow| {
            let times = [it.started_at.is_some(), it.finished_at.is_some()];
            (it.status.clone(), it.attempts, it.progress, times)
        };
        let fits = told(&after) == told(&expected);
        (!fits).then(|| wrong("as its states say", format!("{after:?}"))).flatten()
    }
}

/// A run of the lifecycle that a worker holds, with an item of its first kind, if one can be had without more ado.
async fn held(store: &dyn Database, lifecycle: &str, run: &str, first: &Kind<'_>) -> Option<Claimed> {
    let is_ready = |name: &&str| states(run).iter().any(|it| it.name == *name && it.phase == "ready");
    let ready = initial(run).into_iter().find(is_ready)?;
    let status = first.initial.iter().find(|name| first.state(name).phase != "draft")?;
    let items = vec![NewItem { status: Some((*status).into()), ..item(first.name, "first") }];
    Some(held_run(store, NewRun { status: Some(ready.into()), items, ..new(lifecycle) }).await)
}

/// Brings items to a state and tries each move from there.
async fn try_from(store: &dyn Database, claimed: &Claimed, kind: &Kind<'_>, way: &[&str]) -> Vec<String> {
    let from = way[way.len() - 1];
    let mut wrong = Vec::new();
    for (at, budget) in BUDGETS.into_iter().enumerate() {
        let key = |to: &State| format!("{from} {} {at}", to.name);
        let asked = |to: &State, status: &str| ItemWrite {
            kind: kind.name.into(),
            key: key(to),
            status: status.into(),
            max_retries: Some(budget.retries),
            reruns: budget.reruns,
            // Begins whatever failed before: that is another rule's.
            role: Role::Cleanup,
            ..ItemWrite::default()
        };
        let mut there = Vec::new();
        for step in way {
            let items = kind.states.iter().map(|to| asked(to, step)).collect();
            there = write_items(store, claimed, items)
                .await
                .unwrap_or_else(|error| panic!("{} {way:?}: {error}", kind.name));
        }
        for (to, before) in kind.states.iter().zip(&there) {
            let answer = write_items(store, claimed, vec![asked(to, &to.name)]).await;
            wrong.extend(kind.judge((from, &to.name), budget, before, answer));
        }
    }
    wrong
}

/// The run lifecycle's name, and the files of its items and its own.
fn subjects() -> Vec<(String, Vec<String>, String)> {
    let text = |name: &str| SHIPPED.iter().find(|(shipped, _)| *shipped == name).unwrap().1.to_owned();
    let shipped = [
        ("deploy", vec!["step"]),
        ("agent", vec!["step"]),
        ("job", vec!["step", "task"]),
        ("rule", vec!["target"]),
    ];
    let shipped = shipped
        .into_iter()
        .map(|(run, kinds)| (run.to_owned(), kinds.into_iter().map(text).collect(), text(run)));
    let made = made::all().iter().take(MADE).map(|family| {
        let (run, kinds) = family.files.split_last().unwrap();
        (family.name.clone(), kinds.to_vec(), run.clone())
    });
    shipped.chain(made).collect()
}

async fn items_move_as_their_files_say((store, _lives): Opened) {
    let (mut wrong, mut tried, mut unreached) = (Vec::new(), 0, BTreeSet::new());
    for (lifecycle, kinds, run) in subjects() {
        for text in kinds.iter().chain([&run]) {
            store.add_lifecycle(text.clone(), "tests".into()).await.unwrap();
        }
        let kinds: Vec<Kind<'_>> = kinds.iter().map(|text| Kind::read(text)).collect();
        for kind in &kinds {
            let ways = kind.ways();
            let missing = kind.states.iter().filter(|state| !ways.contains_key(state.name.as_str()));
            unreached.extend(missing.map(|state| format!("{} {}", kind.name, state.name)));
            for way in ways.values() {
                let Some(claimed) = held(&*store, &lifecycle, &run, &kinds[0]).await else { continue };
                tried += BUDGETS.len() * kind.states.len();
                wrong.extend(try_from(&*store, &claimed, kind, way).await);
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {tried} moves:\n{}", wrong.len(), wrong.join("\n"));
    assert!(tried > 1_000, "{tried} moves were tried");
    let shipped: Vec<&String> =
        unreached.iter().filter(|it| !it.contains("part") && !it.contains("bit")).collect();
    assert_eq!(shipped, ["target PREVIEW", "target ROLLED_BACK"], "no worker leads there");
}

// proves X1 and X3
#[tokio::test]
async fn in_memory_items_move_as_their_files_say() {
    items_move_as_their_files_say(open_memory().await).await;
}

// proves X1 and X3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_items_move_as_their_files_say() {
    items_move_as_their_files_say(open_sqlite().await).await;
}

// proves X1 and X3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_items_move_as_their_files_say() {
    items_move_as_their_files_say(open_postgres().await).await;
}

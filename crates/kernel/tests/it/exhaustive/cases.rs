//! Every request in every situation, by everybody, against the oracle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::scene::{FOREIGN, FRESH, NOW, OURS, Scene};
use super::scenes::scenes;
use super::table::{ITEMS, RUNS, Table};
use super::verdict::Verdict;
use super::{effects, oracle};
use crate::shipped::catalog;
use waypost_kernel::request::{Finish, Level, Note, Wait, With};
use waypost_kernel::{Actor, Ask, Failure, Lifecycle, Refusal, Request, Run, Span, Token, Who, decide};

pub static NOTE: LazyLock<Note> = LazyLock::new(|| Note {
    level: Level::Info,
    message: "building".into(),
    payload: serde_json::json!({"step": "build"}),
    key: None,
});
pub static FAILURE: LazyLock<Failure> = LazyLock::new(|| Failure::new("HANDLER_ERROR", "exit 1"));
pub const RETRY_IN: Span = Span::from_seconds(60);
pub const ASKED_LEASE: Span = Span::from_seconds(90);

/// What a run of the cases leaves: how many, which moves were made, and what was not as it should be.
#[derive(Default)]
pub struct Seen {
    pub combinations: u64,
    pub verdicts: [u64; 3],
    /// From, to, actor, command.
    pub moves: BTreeSet<(String, String, &'static str, String)>,
    /// By kind of difference: how often, and the first of them.
    pub wrong: BTreeMap<String, (u64, String)>,
}

pub struct Case<'a> {
    pub scene: &'a Scene<'a>,
    pub ask: &'a Ask<'a>,
    pub actor: Actor,
    pub fresh: Token,
}

pub fn asks(table: &Table) -> Vec<Ask<'static>> {
    let mut asks = vec![Ask::Sweep, Ask::QueuePaused, Ask::OperationEnded];
    for start in [false, true] {
        asks.extend([None, Some(ASKED_LEASE)].map(|lease| Ask::Claim { lease, start }));
    }
    let states: Vec<&'static str> = table.states.iter().map(|state| state.name).chain(["nonsense"]).collect();
    for token in [OURS, FOREIGN] {
        asks.extend([Ask::Renew { token }, Ask::Note { token, note: &NOTE }]);
        asks.extend([None, Some(NOW), Some(NOW + RETRY_IN)].map(|until| {
            let wait = until.map(|until| Wait { until, reason: "retry" });
            Ask::Release { token, wait }
        }));
        asks.extend([true, false].map(|required| Ask::RequireCleanup { token, required, failing: None }));
        for to in states.iter().copied() {
            let bare = Finish { to, ..Finish::default() };
            let full = Finish {
                to,
                failure: Some(&FAILURE),
                reason: Some("why"),
                retry_in: Some(RETRY_IN),
                goes_on_at: Some(NOW + RETRY_IN),
                brings: None,
            };
            asks.extend([bare, full].map(|finish| Ask::Finish { token, finish }));
            asks.push(Ask::RequireCleanup { token, required: true, failing: Some((to, &FAILURE)) });
        }
    }
    let nothing = With::default();
    let withs = [
        nothing,
        With { reason: Some("why"), ..nothing },
        With { reason: Some("  "), resolved: true, ..nothing },
        With { reason: Some("why"), graceful: true, available_at: Some(NOW + RETRY_IN), ..nothing },
        With { force: true, ..nothing },
    ];
    for name in commands() {
        asks.extend(withs.map(|with| Ask::Command { name, with }));
    }
    // R8: a retry of given targets, of which there are none here; that of some is in `item_rules`.
    asks.push(Ask::Command { name: "retry", with: With { chosen: Some(&[]), ..nothing } });
    asks
}

/// Every command name that occurs in any lifecycle, and one that occurs in none.
fn commands() -> BTreeSet<&'static str> {
    let mut names = BTreeSet::from(["nonsense"]);
    for (name, _) in RUNS.iter().chain(&ITEMS) {
        let table = Table::named(name);
        names.extend(table.legal.iter().map(|row| row.how));
        names.extend(table.operations.iter().map(|(how, _)| *how));
    }
    names
}

pub fn run_all(table: &Table, lifecycle: &Lifecycle) -> Seen {
    let mut seen = Seen::default();
    let asks = asks(table);
    for scene in scenes(table) {
        let before = scene.row(lifecycle);
        let allowed = oracle::allowed(&scene);
        for ask in &asks {
            let freshes: &[Token] = if matches!(ask, Ask::Claim { .. }) { &[FRESH, OURS] } else { &[FRESH] };
            for (actor, fresh) in
                Actor::ALL.into_iter().flat_map(|actor| freshes.iter().map(move |f| (actor, *f)))
            {
                let case = Case { scene: &scene, ask, actor, fresh };
                one(&case, lifecycle, &before, &allowed, &mut seen);
            }
        }
    }
    seen
}

fn one(case: &Case<'_>, lifecycle: &Lifecycle, before: &Run, allowed: &[&str], seen: &mut Seen) {
    let who = Who { actor: case.actor, by: "w9", fresh: case.fresh };
    let decided = decide(lifecycle, before, &Request { who, ask: case.ask.clone() }, NOW);
    let expected = oracle::expect(case.scene, case.ask, case.actor, case.fresh);
    let observed = Verdict::of(lifecycle, before, &decided);
    seen.combinations += 1;
    seen.verdicts[match observed {
        Verdict::Moves(_) => 0,
        Verdict::Stays(_) => 1,
        Verdict::Refused(_) => 2,
    }] += 1;
    if observed != expected {
        seen.differs(&format!("expected {expected:?}, but was {observed:?}"), case);
        return;
    }
    match &decided {
        Err(refusal) => {
            if let Some(detail) = check_refusal(case.scene, refusal, allowed) {
                seen.differs(&detail, case);
            }
        }
        Ok(change) => {
            for event in change.events.iter().filter(|e| e.from != Some(e.to) || &*e.command == "steal") {
                let name = |id| lifecycle.state(id).name.to_string();
                let from = event.from.map(name).unwrap_or_default();
                seen.moves.insert((from, name(event.to), event.actor.name(), event.command.to_string()));
            }
            for (what, detail) in effects::check(case, lifecycle, before, change, &observed) {
                seen.differs(&format!("{what} {detail}"), case);
            }
        }
    }
}

/// X3: a refusal names the current state and what is allowed.
fn check_refusal(scene: &Scene<'_>, refusal: &Refusal, allowed: &[&str]) -> Option<String> {
    let listed: Vec<&str> = refusal.allowed.iter().map(|command| &**command).collect();
    let right = &*refusal.current == scene.state && listed == allowed;
    (!right).then(|| format!("current {}, allowed {listed:?}, expected {allowed:?}", refusal.current))
}

impl Seen {
    fn differs(&mut self, what: &str, case: &Case<'_>) {
        let found = self.wrong.entry(format!("{} {what}", case.scene.state)).or_default();
        found.0 += 1;
        if found.0 == 1 {
            found.1 = format!("{case}\n    {what}");
        }
    }
}

impl std::fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Scene { table, state, lease, wish, required, attempt_left, take_overs, .. } = self.scene;
        let Scene { reentrant, operating, available, expires, last, items, .. } = self.scene;
        write!(f, "{} {state}: {:?} by {}", table.name, self.ask, self.actor.name())?;
        write!(f, "\n    lease {lease:?}, wish {wish:?}, required {required}, attempt left {attempt_left}")?;
        write!(f, ", take-overs {take_overs}, re-entry {reentrant}, operating {operating}")?;
        write!(f, ", available {available:?}, expires {expires:?}, last {last}, items {items:?}")
    }
}

pub fn load(name: &str) -> (Table, std::sync::Arc<Lifecycle>) {
    (Table::named(name), catalog().latest(name).unwrap().clone())
}

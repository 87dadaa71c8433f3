//! From a script's numbers to a request in the words of a lifecycle.

use std::sync::OnceLock;

use waypost_kernel::item::{Item, ItemAsk, Role};
use waypost_kernel::lifecycle::{Outcome, Phase, Transition};
use waypost_kernel::request::{Finish, Level, Note, Wait, With};
use waypost_kernel::run::Text;
use waypost_kernel::*;

use super::script::{Extras, ItemMove, Pick, Step, Verb};
use super::world::World;

pub const WORKERS: [&str; 3] = ["w1", "w2", "w3"];
pub const MAX_ITEMS: usize = 8;

/// What is asked: of the run, of its items, or that there be more of them.
#[derive(Clone, Debug)]
pub enum Asked {
    Nothing,
    Run(Request<'static>),
    Items(Who<'static>, Option<Token>, Vec<(Item, ItemAsk<'static>)>),
    Add(Who<'static>, Option<Token>, Vec<Item>),
}

impl Asked {
    pub fn who(&self) -> Option<Who<'static>> {
        match self {
            Asked::Nothing => None,
            Asked::Run(request) => Some(request.who),
            Asked::Items(who, ..) | Asked::Add(who, ..) => Some(*who),
        }
    }

    /// What a worker shows for a write.
    pub fn token(&self) -> Option<Token> {
        match self {
            Asked::Items(who, token, _) | Asked::Add(who, token, _) => {
                token.filter(|_| who.actor == Actor::Worker)
            }
            Asked::Run(request) => match request.ask {
                Ask::Renew { token }
                | Ask::Note { token, .. }
                | Ask::Finish { token, .. }
                | Ask::Release { token, .. }
                | Ask::RequireCleanup { token, .. } => Some(token),
                _ => None,
            },
            Asked::Nothing => None,
        }
    }

    pub fn command(&self) -> Option<&'static str> {
        match self {
            Asked::Run(Request { ask: Ask::Command { name, .. }, .. }) => Some(name),
            _ => None,
        }
    }
}

pub fn item_key(at: usize) -> Text {
    format!("i{at}").into()
}

/// A request that lives as long as the test, which its word about failures and notes must, too.
fn failure() -> &'static Failure {
    static FAILURE: OnceLock<Failure> = OnceLock::new();
    FAILURE.get_or_init(|| Failure::new("BROKEN", "it broke"))
}

pub fn note() -> &'static Note {
    static NOTE: OnceLock<Note> = OnceLock::new();
    NOTE.get_or_init(|| Note {
        level: Level::Info,
        message: "working".into(),
        payload: serde_json::json!({}),
        key: None,
    })
}

fn words(reason: Option<bool>) -> Option<&'static str> {
    reason.map(|real| if real { "because" } else { "  " })
}

fn state_name(lifecycle: &'static Lifecycle, pick: u8) -> &'static str {
    &lifecycle.states[usize::from(pick) % lifecycle.states.len()].name
}

impl World {
    pub fn who(&self, actor: Actor, worker: u8) -> Who<'static> {
        let by = match actor {
            Actor::Client => "ann",
            Actor::Operator => "olga",
            Actor::Engine => "engine",
            Actor::Worker => WORKERS[usize::from(worker) % WORKERS.len()],
        };
        Who { actor, by, fresh: self.fresh() }
    }

    pub fn asked(&self, step: &Step) -> Asked {
        match step {
            Step::Wait { .. } | Step::WaitForEnd { .. } => Asked::Nothing,
            Step::Die { worker } => {
                let ask = Ask::Claim { lease: None, start: false };
                Asked::Run(Request { who: self.who(Actor::Worker, *worker), ask })
            }
            Step::Worker { worker, token, verb } => {
                let ask = self.verb(verb, self.token(*token, *worker));
                Asked::Run(Request { who: self.who(Actor::Worker, *worker), ask })
            }
            Step::Command { actor, pick, extras } => {
                let (name, usual) = self.command_name(*pick);
                let actor = usual.filter(|_| !extras.graceful).unwrap_or(*actor);
                let ask = Ask::Command { name, with: self.with(extras) };
                Asked::Run(Request { who: self.who(actor, *pick), ask })
            }
            // A run that is operated on is settled: there is nothing to sweep.
            Step::Sweep if self.run.operating => self.engine(Ask::OperationEnded),
            Step::Sweep => self.engine(Ask::Sweep),
            Step::OperationEnded => self.engine(Ask::OperationEnded),
            Step::Items { actor, worker, token, moves } => {
                // An operation moves the items of a settled run, which no worker holds.
                let operates = self.phase() == Phase::Settled && moves[0].failure;
                let who = self.who(if operates { Actor::Engine } else { *actor }, *worker);
                self.item_moves(who, self.token(*token, *worker), moves)
            }
            Step::AddItem { actor, worker, token, kind, state } => {
                let who = self.who(*actor, *worker);
                let token = self.token(*token, *worker);
                let item = self.new_item(self.items.len(), (*kind, *state, false));
                let item = item.filter(|_| self.items.len() < MAX_ITEMS);
                item.map_or(Asked::Nothing, |item| Asked::Add(who, Some(token), vec![item]))
            }
        }
    }

    pub fn engine(&self, ask: Ask<'static>) -> Asked {
        Asked::Run(Request { who: self.who(Actor::Engine, 0), ask })
    }

    fn token(&self, pick: Pick, worker: u8) -> Token {
        let worker = usize::from(worker) % WORKERS.len();
        let own = &self.tokens[worker];
        let other = &self.tokens[(worker + 1) % WORKERS.len()];
        let current = self.run.lease.as_ref().filter(|lease| !lease.is_vacant()).map(|lease| lease.token);
        let token = match pick {
            Pick::Right => current.or(self.run.ended_by).or(own.last().copied()),
            Pick::Own => own.last().copied(),
            Pick::OwnFirst => own.first().copied(),
            Pick::Foreign => other.last().copied(),
            Pick::Zero => None,
        };
        token.unwrap_or(Token(0))
    }

    fn verb(&self, verb: &Verb, token: Token) -> Ask<'static> {
        match verb {
            Verb::Claim { lease_seconds, start } => {
                Ask::Claim { lease: lease_seconds.map(Span::from_seconds), start: *start }
            }
            Verb::Renew => Ask::Renew { token },
            Verb::Note => Ask::Note { token, note: note() },
            Verb::Finish { pick, failure: fails, reason, retry_seconds } => {
                let finish = Finish {
                    to: self.finish_state(token, *pick),
                    failure: fails.then(failure),
                    reason: words(*reason),
                    retry_in: retry_seconds.map(Span::from_seconds),
                    goes_on_at: retry_seconds.map(|seconds| self.now + Span::from_seconds(seconds)),
                    brings: None,
                };
                Ask::Finish { token, finish }
            }
            Verb::Release { wait_seconds } => {
                let wait = |seconds| Wait { until: self.now + Span::from_seconds(seconds), reason: "window" };
                Ask::Release { token, wait: wait_seconds.map(wait) }
            }
            Verb::RequireCleanup { required, failing } => {
                let failing = failing.map(|pick| (state_name(self.lifecycle, pick), failure()));
                Ask::RequireCleanup { token, required: *required, failing }
            }
        }
    }

    /// Mostly a command that leads away from here, with somebody who may ask for it, lest a long script stand
    /// still; sometimes any command or operation, or one of nobody's.
    fn command_name(&self, pick: u8) -> (&'static str, Option<Actor>) {
        let by = [Actor::Engine, Actor::Operator, Actor::Client];
        // An early cancel ends every story.
        let cancels = pick % 8 < 3;
        let rows = self.lifecycle.transitions_from(self.run.state);
        let rows = rows.filter(|row| cancels || &*row.command != "cancel");
        let asker = |row: &Transition| by.into_iter().find(|actor| row.by.permits(*actor));
        let here: Vec<_> = rows.map(|row| (&*row.command, asker(row))).collect();
        let at = usize::from(pick / 8);
        if !pick.is_multiple_of(8) && !here.is_empty() {
            return here[at % here.len()];
        }
        let operations = self.lifecycle.operations.iter().map(|(command, _)| &**command);
        let mut names: Vec<&'static str> = operations.collect();
        names.extend(self.lifecycle.transitions.iter().map(|row| &*row.command));
        names.extend(["dance", "create"]);
        (names[at % names.len()], None)
    }

    /// Mostly somewhere that a worker may go, and not only in name.
    fn finish_state(&self, token: Token, pick: u8) -> &'static str {
        let accepts = |to: &&'static str| {
            let finish = Finish { to, reason: Some("because"), ..Finish::default() };
            let who = self.who(Actor::Worker, 0);
            self.answer(&Asked::Run(Request { who, ask: Ask::Finish { token, finish } }), self.now).is_ok()
        };
        let names = self.lifecycle.states.iter().map(|state| &*state.name);
        let there: Vec<&'static str> = names.filter(|to| pick.is_multiple_of(4) || accepts(to)).collect();
        match there.len() {
            0 => state_name(self.lifecycle, pick / 4),
            count => there[usize::from(pick / 4) % count],
        }
    }

    fn with(&self, extras: &Extras) -> With<'static> {
        With {
            reason: words(extras.reason),
            force: extras.force,
            resolved: extras.resolved,
            partly: !extras.resolved && extras.graceful,
            graceful: extras.graceful,
            failure: None,
            available_at: extras.delay_seconds.map(|seconds| self.now + Span::from_seconds(seconds)),
            chosen: extras.chosen.map(|bits| self.chosen(bits)),
        }
    }

    /// Some of the first kind's items, whether they can follow or not. Leaked, since a request borrows them.
    fn chosen(&self, bits: u8) -> &'static [Item] {
        let items = self.items.iter().enumerate();
        let items = items.filter(|(at, item)| item.kind == 0 && bits & 1 << at != 0);
        Vec::leak(items.map(|(_, item)| item.clone()).collect())
    }

    fn item_moves(&self, who: Who<'static>, token: Token, moves: &[ItemMove]) -> Asked {
        let mut asks: Vec<(Item, ItemAsk<'static>)> = Vec::new();
        for it in moves.iter().filter(|_| !self.items.is_empty()) {
            let item = &self.items[usize::from(it.item) % self.items.len()];
            let kind = &self.lifecycle.items[usize::from(item.kind)];
            // Mostly somewhere that the table leads whoever asks.
            let rows = kind.transitions_from(item.state).filter(|row| row.by.permits(who.actor));
            let rows: Vec<_> = rows.collect();
            let succeeds = |row: &&&Transition| kind.state(row.to).outcome == Some(Outcome::Succeeded);
            let begins = |row: &&&Transition| kind.phase(row.to) == Phase::Held;
            let good = rows.iter().find(succeeds).or_else(|| rows.iter().find(begins));
            let good = good.filter(|_| it.answered);
            let to = match good.or_else(|| rows.get(usize::from(it.state) % (rows.len() + 1))) {
                Some(row) => &kind.state(row.to).name,
                None => &kind.states[usize::from(it.state) % kind.states.len()].name,
            };
            let command =
                it.command.map(|pick| &*kind.transitions[usize::from(pick) % kind.transitions.len()].command);
            let failed = kind.state(item.state).outcome == Some(Outcome::Failed);
            let discards = failed && who.actor.is_person();
            let ask = ItemAsk {
                to,
                command,
                progress: it.progress,
                failure: it.failure.then(failure),
                retry_in: it.retry_seconds.map(Span::from_seconds),
                try_no: it.try_no.map(|late| (item.try_no + 1).saturating_sub(u32::from(late))),
                answered: it.answered,
                again: it.retry_seconds.is_some(),
                unanswered: !it.answered && it.retry_seconds.is_some(),
                throttled: it.answered && it.retry_seconds.is_some(),
                discard: it.discard || discards && it.answered,
                name: None,
            };
            if asks.iter().all(|(other, _)| other.key != item.key) {
                asks.push((item.clone(), ask));
            }
        }
        if asks.is_empty() { Asked::Nothing } else { Asked::Items(who, Some(token), asks) }
    }

    pub fn new_item(&self, at: usize, (kind, state, reruns): (u8, u8, bool)) -> Option<Item> {
        let kinds = &self.lifecycle.items;
        let kind = usize::from(kind).checked_rem(kinds.len())?;
        let initial = &kinds[kind].initial;
        let state = initial[usize::from(state) % initial.len()];
        let role = Role::ALL[at % Role::ALL.len()];
        Some(Item { reruns, role, ..Item::new(kind as u8, &item_key(at), state) })
    }

    pub fn phase(&self) -> Phase {
        self.lifecycle.phase(self.run.state)
    }
}

//! A run walked from its birth, request by request. After every one the log folds into the row.

use std::sync::Arc;

use super::cases::{NOTE, load};
use super::scene::NOW;
use waypost_kernel::decide::NewRun;
use waypost_kernel::item::{Item, ItemAsk, decide_items};
use waypost_kernel::request::{Finish, Wait, With};
use waypost_kernel::{
    Actor, Ask, Change, Event, Failure, Lifecycle, Refusal, Request, Run, Span, Time, Token, Who, create,
    decide, fold,
};

pub const NOBODY: Token = Token(999);

pub struct Walk {
    pub lifecycle: Arc<Lifecycle>,
    pub run: Run,
    pub events: Vec<Event>,
    pub items: Vec<Item>,
    pub now: Time,
}

pub fn seconds(count: i64) -> Span {
    Span::from_seconds(count)
}

impl Walk {
    pub fn new(name: &str) -> Walk {
        // A deploy is queued for one attempt, unless somebody asks for more.
        let max_attempts = if name == "deploy" { 1 } else { 3 };
        Walk::with(name, &NewRun { max_attempts, reentrant: true, ..NewRun::default() }, &[])
    }

    /// With items of the first kind, each in a state by name.
    pub fn with_items(name: &str, state: &str, item_state: &str, count: usize) -> Walk {
        let (_, lifecycle) = load(name);
        let id = lifecycle.items[0].state_named(item_state).unwrap();
        let items: Vec<Item> = (0..count).map(|at| Item::new(0, &format!("i{at}"), id)).collect();
        let new = NewRun { state: Some(state), max_attempts: 3, items: &items, ..NewRun::default() };
        Walk::with(name, &new, &items)
    }

    pub fn with(name: &str, new: &NewRun<'_>, items: &[Item]) -> Walk {
        let (table, lifecycle) = load(name);
        let cron = table.phase(table.initial[0]) == waypost_kernel::Phase::Held;
        let actor = if cron { Actor::Worker } else { Actor::Client };
        let new = NewRun { id: "r", ..new.clone() };
        let change = create(&lifecycle, &new, &Who { actor, by: "ann", fresh: Token(1) }, NOW).unwrap();
        Walk { lifecycle, run: change.after, events: change.events, items: items.to_vec(), now: NOW }
    }

    pub fn later(&mut self, span: Span) -> &mut Walk {
        self.now = self.now + span;
        self
    }

    pub fn state(&self) -> &str {
        &self.lifecycle.state(self.run.state).name
    }

    pub fn code(&self) -> &str {
        self.run.failure.as_ref().map_or("", |failure| &*failure.code)
    }

    /// The commands of the last events, newest last.
    pub fn log(&self, count: usize) -> Vec<&str> {
        self.events[self.events.len() - count..].iter().map(|event| &*event.command).collect()
    }

    pub fn ask(&mut self, actor: Actor, fresh: Token, ask: Ask<'_>) -> Result<Change, Refusal> {
        let by = format!("{}-{}", actor.name(), fresh.0);
        let request = Request { who: Who { actor, by: &by, fresh }, ask };
        let change = decide(&self.lifecycle, &self.run, &request, self.now)?;
        self.take(change)
    }

    fn take(&mut self, change: Change) -> Result<Change, Refusal> {
        self.events.extend(change.events.iter().cloned());
        self.run = change.after.clone();
        let folded = fold::fold(&self.lifecycle, &self.events).unwrap();
        assert_eq!(folded, fold::without_secrets(&self.run));
        Ok(change)
    }

    pub fn claim(&mut self, token: Token) -> Result<Change, Refusal> {
        self.ask(Actor::Worker, token, Ask::Claim { lease: None, start: false })
    }

    pub fn renew(&mut self, token: Token) -> Result<Change, Refusal> {
        self.ask(Actor::Worker, NOBODY, Ask::Renew { token })
    }

    pub fn note(&mut self, token: Token) -> Result<Change, Refusal> {
        self.ask(Actor::Worker, NOBODY, Ask::Note { token, note: &NOTE })
    }

    pub fn finish(&mut self, token: Token, to: &str) -> Result<Change, Refusal> {
        self.finish_with(token, Finish { to, ..Finish::default() })
    }

    pub fn finish_with(&mut self, token: Token, finish: Finish<'_>) -> Result<Change, Refusal> {
        self.ask(Actor::Worker, NOBODY, Ask::Finish { token, finish })
    }

    pub fn release(&mut self, token: Token) -> Result<Change, Refusal> {
        self.ask(Actor::Worker, NOBODY, Ask::Release { token, wait: None })
    }

    pub fn wait(&mut self, token: Token, span: Span) -> Result<Change, Refusal> {
        let wait = Some(Wait { until: self.now + span, reason: "window" });
        self.ask(Actor::Worker, NOBODY, Ask::Release { token, wait })
    }

    pub fn require_cleanup(&mut self, token: Token, required: bool) -> Result<Change, Refusal> {
        self.ask(Actor::Worker, NOBODY, Ask::RequireCleanup { token, required, failing: None })
    }

    pub fn fail_after_cleanup(&mut self, token: Token, to: &str, code: &str) -> Result<Change, Refusal> {
        let failure = Failure::new(code, "it broke");
        self.ask(
            Actor::Worker,
            NOBODY,
            Ask::RequireCleanup { token, required: true, failing: Some((to, &failure)) },
        )
    }

    pub fn command(&mut self, actor: Actor, name: &str, with: With<'_>) -> Result<Change, Refusal> {
        self.ask(actor, NOBODY, Ask::Command { name, with })
    }

    pub fn cancel(&mut self) -> Result<Change, Refusal> {
        self.command(Actor::Client, "cancel", With::default())
    }

    pub fn sweep(&mut self) -> Change {
        self.ask(Actor::Engine, NOBODY, Ask::Sweep).unwrap()
    }

    /// The lease runs out, and the next worker takes the run.
    pub fn dies_and_is_taken_over(&mut self, token: Token) {
        self.later(seconds(61)).sweep();
        self.claim(token).unwrap();
    }

    pub fn item(&mut self, token: Token, at: usize, ask: ItemAsk<'_>) -> Result<Item, Refusal> {
        self.item_by(Actor::Worker, Some(token), at, ask)
    }

    /// What a store finds that ended the run's course.
    pub fn failed(&self) -> Vec<Item> {
        let kind = |item: &Item| self.lifecycle.items[usize::from(item.kind)].clone();
        self.items.iter().filter(|item| item.ends_course(&kind(item))).cloned().collect()
    }

    pub fn item_by(
        &mut self,
        actor: Actor,
        token: Option<Token>,
        at: usize,
        ask: ItemAsk<'_>,
    ) -> Result<Item, Refusal> {
        let who = Who { actor, by: "w", fresh: NOBODY };
        let asked = [(self.items[at].clone(), ask)];
        let failed = self.failed();
        let change = decide_items(&self.lifecycle, &self.run, &who, token, (&asked, &failed), self.now)?;
        let moved = change.events.last().and_then(|event| event.effect.moved.first());
        let after = moved.map_or(self.items[at].clone(), |moved| moved.item.clone());
        self.items[at] = after.clone();
        self.take(change)?;
        Ok(after)
    }
}

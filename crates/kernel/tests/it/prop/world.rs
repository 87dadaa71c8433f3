//! One run, its items, its log and the clock: a store of the smallest kind. It commits what `decide` answers.

use waypost_kernel::decide::NewRun;
use waypost_kernel::item::{Item, add_items, decide_items};
use waypost_kernel::lifecycle::Phase;
use waypost_kernel::*;

use super::ask::{Asked, WORKERS};
use super::script::{Birth, Script, Step};
use super::store;

/// Steps that a run stays settled before the next one begins: fewer where no way leads out.
const STEPS_SETTLED: u32 = 20;
const STEPS_AT_THE_END: u32 = 5;

#[derive(Debug)]
pub struct World {
    pub lifecycle: &'static Lifecycle,
    pub now: Time,
    pub run: Run,
    pub items: Vec<Item>,
    pub events: Vec<Event>,
    /// What each worker was ever given for this run.
    pub tokens: [Vec<Token>; WORKERS.len()],
    /// A cancel was accepted, and nobody has asked for more since.
    pub cancelled: bool,
    /// What happened, if somebody wants to know: to tell it takes longer than to do it.
    pub story: Option<Vec<String>>,
    /// An event that does not fit the items that it is about.
    pub wrong_items: Option<String>,
    asked: u64,
    at_end: u32,
    births: Vec<Birth>,
    born: usize,
}

/// A step and what came of it.
#[derive(Debug)]
pub struct Taken {
    pub before: Run,
    pub asked: Asked,
    pub answer: Result<Change, Refusal>,
    pub is_birth: bool,
}

impl Taken {
    pub fn events(&self) -> &[Event] {
        self.answer.as_ref().map_or(&[], |change| &change.events)
    }
}

impl World {
    pub fn new(lifecycle: &'static Lifecycle, script: &Script, told: bool) -> World {
        let now = Time::from_ms(1_000_000);
        let mut world = World {
            lifecycle,
            now,
            // Replaced at once by the first birth.
            run: first_run(lifecycle, now),
            items: Vec::new(),
            events: Vec::new(),
            tokens: Default::default(),
            cancelled: false,
            story: told.then(Vec::new),
            wrong_items: None,
            asked: 0,
            at_end: 0,
            births: script.births.clone(),
            born: 0,
        };
        world.begin();
        world
    }

    /// A token that was never seen before.
    pub fn fresh(&self) -> Token {
        Token(u128::from(1_000 + self.asked))
    }

    pub fn step(&mut self, step: &Step) -> Taken {
        let terminal = self.lifecycle.is_terminal(self.run.state);
        self.at_end = if self.phase() == Phase::Settled { self.at_end + 1 } else { 0 };
        if self.at_end > if terminal { STEPS_AT_THE_END } else { STEPS_SETTLED } {
            self.begin();
            let answer = Ok(Change { events: self.events.clone(), after: self.run.clone() });
            let before = self.run.clone();
            return Taken { before, asked: Asked::Nothing, answer, is_birth: true };
        }
        match step {
            Step::Wait { ms } => self.now = self.now + Span::from_ms(*ms),
            Step::WaitForEnd { micros } => self.wait_for_end(*micros),
            Step::Die { .. } => self.wait_for_end(1),
            _ => {}
        }
        let asked = self.asked(step);
        self.ask(asked)
    }

    /// Asks, commits and tells.
    pub fn ask(&mut self, asked: Asked) -> Taken {
        self.asked += 1;
        let before = self.run.clone();
        let answer = self.answer(&asked, self.now);
        if let Ok(change) = &answer {
            self.commit(&asked, change);
        }
        self.tell(&asked, &answer);
        Taken { before, asked, answer, is_birth: false }
    }

    fn tell(&mut self, asked: &Asked, answer: &Result<Change, Refusal>) {
        let Some(story) = self.story.as_mut().filter(|_| !matches!(asked, Asked::Nothing)) else { return };
        let told: String = match answer {
            Ok(change) => change.events.iter().map(|event| format!("{} ", event.command)).collect(),
            Err(refusal) => refusal.to_string(),
        };
        let state = &self.lifecycle.state(self.run.state).name;
        story.push(format!("{} {asked:?}\n    -> {told} = {state}", self.now.ms()));
    }

    /// What would be answered at that time: nothing is changed by asking.
    pub fn answer(&self, asked: &Asked, now: Time) -> Result<Change, Refusal> {
        let (lifecycle, run) = (self.lifecycle, &self.run);
        match asked {
            Asked::Nothing => Ok(Change { events: Vec::new(), after: run.clone() }),
            Asked::Run(request) => decide(lifecycle, run, request, now),
            Asked::Items(who, token, asks) => {
                decide_items(lifecycle, run, who, *token, (asks, &self.failed()), now)
            }
            Asked::Add(who, token, items) => {
                add_items(lifecycle, run, who, *token, (items, &self.failed()), now)
            }
        }
    }

    /// What a store finds that ended the run's course.
    fn failed(&self) -> Vec<Item> {
        let ends = |item: &&Item| item.ends_course(&self.lifecycle.items[usize::from(item.kind)]);
        self.items.iter().filter(ends).cloned().collect()
    }

    fn commit(&mut self, asked: &Asked, change: &Change) {
        let settled = self.phase() == Phase::Settled;
        for event in &change.events {
            let applied = store::apply(self.lifecycle, &mut self.items, event);
            self.wrong_items = self.wrong_items.take().or(applied.err());
        }
        self.events.extend(change.events.iter().cloned());
        self.run = change.after.clone();
        if asked.command() == Some("cancel") && !settled {
            self.cancelled = true;
        }
        if settled && self.phase() != Phase::Settled && asked.command().is_some() {
            self.cancelled = false;
        }
        let who = asked.who();
        if let Some((lease, who)) = self.run.lease.as_ref().zip(who).filter(|(lease, _)| !lease.is_vacant())
            && lease.token == who.fresh
            && let Some(worker) = WORKERS.iter().position(|name| *name == who.by)
            && self.tokens[worker].last() != Some(&lease.token)
        {
            self.tokens[worker].push(lease.token);
        }
    }

    fn wait_for_end(&mut self, micros: i64) {
        let run = &self.run;
        let ends = [run.lease.as_ref().map(|lease| lease.until), run.expires_at, run.available_at];
        let ahead = ends.into_iter().flatten().filter(|end| *end > self.now).min();
        if let Some(end) = ahead {
            self.now = self.now.max(end + Span::from_micros(micros));
        }
    }

    fn begin(&mut self) {
        let birth = self.births[self.born % self.births.len()].clone();
        self.born += 1;
        self.asked += 1;
        (self.at_end, self.cancelled, self.tokens) = (0, false, Default::default());
        let initial = &self.lifecycle.initial;
        let picked = initial[usize::from(birth.state) % initial.len()];
        let born = [picked, initial[0]].into_iter().find_map(|state| {
            let items = birth.items.iter().enumerate();
            let items: Vec<Item> = items.filter_map(|(at, item)| self.new_item(at, *item)).collect();
            self.birth(&birth, state, &items)
        });
        let born = born.expect("a run can begin in the first initial state");
        if let Some(story) = &mut self.story {
            *story = vec![format!("{} {birth:?}", self.now.ms())];
        }
        self.items.clear();
        let items = store::apply(self.lifecycle, &mut self.items, &born.events[0]);
        (self.wrong_items, self.run, self.events) = (items.err(), born.after, born.events);
        if let Some(lease) = &self.run.lease {
            self.tokens[0].push(lease.token);
        }
        self.asked += 1;
    }

    fn birth(&self, birth: &Birth, state: StateId, items: &[Item]) -> Option<Change> {
        let held = self.lifecycle.phase(state) == Phase::Held;
        let expires = self.lifecycle.transitions_from(state).any(|row| &*row.command == "expire");
        let new = NewRun {
            repeats: false,
            id: "run-1",
            state: Some(&self.lifecycle.state(state).name),
            available_at: birth.delay_seconds.map(|seconds| self.now + Span::from_seconds(seconds)),
            ttl: birth.ttl_seconds.filter(|_| expires).map(Span::from_seconds),
            lease: None,
            max_attempts: birth.max_attempts,
            reentrant: birth.reentrant,
            note: None,
            items,
        };
        let who = self.who(if held { Actor::Worker } else { Actor::Client }, 0);
        create(self.lifecycle, &new, &who, self.now).ok()
    }
}

fn first_run(lifecycle: &'static Lifecycle, now: Time) -> Run {
    let held = lifecycle.phase(lifecycle.initial[0]) == Phase::Held;
    let actor = if held { Actor::Worker } else { Actor::Client };
    let who = Who { actor, by: "w1", fresh: Token(1) };
    create(lifecycle, &NewRun { id: "run-0", ..NewRun::default() }, &who, now).unwrap().after
}

//! How a move is made: the transition is picked, its guards are asked about the row as it would be, the
//! event is written and applied, and the items that follow are shifted.

use std::collections::BTreeSet;

use crate::event::{Change, Effect, Event, Hold, Shift};
use crate::fold;
use crate::guard::{Facts, Guard};
use crate::item::Item;
use crate::lifecycle::{Actor, Lifecycle, Outcome, Phase, StateId, Transition};
use crate::refusal::{Code, Refusal};
use crate::request::{Note, Who};
use crate::run::{Failure, Lease, Run, Text};
use crate::tally::{Counts, Tally};
use crate::time::{Span, Time};

/// A lease for a claimer that asks for none in a state that declares none.
pub(crate) const DEFAULT_LEASE: Span = Span::from_seconds(60);

pub(crate) struct Draft<'a> {
    pub lifecycle: &'a Lifecycle,
    pub run: &'a Run,
    pub who: &'a Who<'a>,
    /// What was asked for by name, for a refusal to say.
    pub requested: &'a str,
    /// The items that a command is about, where it is not about all of them.
    pub chosen: Option<&'a [Item]>,
    pub now: Time,
    pub after: Run,
    pub events: Vec<Event>,
}

impl<'a> Draft<'a> {
    pub fn new(lifecycle: &'a Lifecycle, run: &'a Run, who: &'a Who<'a>, now: Time) -> Draft<'a> {
        Draft {
            lifecycle,
            run,
            who,
            requested: "",
            chosen: None,
            now,
            after: run.clone(),
            // One event, or begin and end: room for four is a block that allocators share between threads.
            events: Vec::with_capacity(2),
        }
    }

    pub fn phase(&self) -> Phase {
        self.lifecycle.phase(self.run.state)
    }

    pub fn done(self) -> Result<Change, Refusal> {
        Ok(Change { events: self.events, after: self.after })
    }

    /// The row of the table for this command, from where the run now is, whose guards hold.
    pub fn pick(&self, command: &str, actor: Actor, extra: &Effect) -> Result<&'a Transition, Refusal> {
        let lifecycle = self.lifecycle;
        let rows = || lifecycle.transitions_from(self.after.state).filter(|row| &*row.command == command);
        if rows().next().is_none() {
            return Err(self.no_such_move(command));
        }
        if !rows().any(|row| row.by.permits(actor)) {
            let message = format!("{command} is not for {} here", actor.name());
            return Err(self.refusal(Code::ActorNotAllowed, message));
        }
        self.first_that_holds(rows().filter(|row| row.by.permits(actor)), extra)
    }

    pub fn first_that_holds(
        &self,
        rows: impl Iterator<Item = &'a Transition>,
        extra: &Effect,
    ) -> Result<&'a Transition, Refusal> {
        let mut failing = None;
        for row in rows {
            match self.failing_guard(row, extra) {
                None => return Ok(row),
                Some(guard) => failing = failing.or(Some((row, guard))),
            }
        }
        let Some((row, guard)) = failing else { return Err(self.no_such_move("")) };
        let message = format!("{} needs that {}", row.command, guard.meaning());
        Err(Refusal { guard: Some(guard), ..self.refusal(Code::InvalidTransition, message) })
    }

    pub fn failing_guard(&self, row: &Transition, extra: &Effect) -> Option<Guard> {
        if row.guards.is_empty() {
            return None;
        }
        let mut items = self.after.tallies.clone();
        for shift in self.shifts(row, None) {
            let tally = &mut items[usize::from(shift.kind)];
            tally.remove(shift.from, shift.count);
            tally.add(shift.to, shift.count);
        }
        let facts = Facts {
            has_reason: extra.reason.as_ref().is_some_and(|reason| !reason.trim().is_empty()),
            resolved: extra.resolved || self.after.resolved,
            forced: extra.forced,
            attempt: self.after.attempt + u32::from(self.begins_attempt(row)),
            max_attempts: self.after.max_attempts,
            reentrant: self.after.reentrant,
            operating: self.after.operating,
            items: first_counts(self.lifecycle, &items),
            ..Facts::default()
        };
        row.guards.iter().copied().find(|guard| !guard.holds(&facts))
    }

    fn begins_attempt(&self, row: &Transition) -> bool {
        let (from, to) = (self.lifecycle.phase(row.from), self.lifecycle.phase(row.to));
        to == Phase::Held && (from != Phase::Held || row.from == row.to)
    }

    /// Makes a move of the table.
    pub fn make(&mut self, row: &Transition, actor: Actor, mut effect: Effect, note: Option<&Note>) {
        effect.shifts = self.shifts(row, effect.failure.as_ref());
        let (from, to) = (self.lifecycle.phase(row.from), self.lifecycle.state(row.to));
        match to.phase {
            Phase::Ready | Phase::Draft => {
                effect.expires_at = effect.expires_at.or(to.ttl.map(|ttl| self.now + ttl));
            }
            Phase::Settled if from != Phase::Settled => {
                if to.outcome == Some(Outcome::Succeeded) {
                    effect.failure = None;
                }
                // What was cancelled is not taken up again by itself.
                if !to.retry || &*row.command == "cancel" || self.after.attempt >= self.after.max_attempts {
                    effect.available_at = None;
                }
            }
            Phase::Parked if effect.reason.as_ref().is_none_or(|reason| reason.trim().is_empty()) => {
                effect.reason = Some(row.command.clone());
            }
            _ => {}
        }
        self.push(row.command.clone(), row.to, actor, effect, note);
        self.after.ended_by = None;
        self.after.ended_with = None;
    }

    /// An event that leaves the run in its state.
    pub fn stay(&mut self, command: &str, actor: Actor, effect: Effect) {
        self.push(command.into(), self.after.state, actor, effect, None);
    }

    pub fn push(&mut self, command: Text, to: StateId, actor: Actor, effect: Effect, note: Option<&Note>) {
        let event = Event {
            seq: self.after.seq + 1,
            at: self.now,
            command,
            from: Some(self.after.state),
            to,
            actor,
            by: self.who.by.into(),
            note: note.cloned(),
            effect,
        };
        fold::apply(self.lifecycle, &mut self.after, &event);
        self.events.push(event);
    }

    /// Gives the lease to whoever asks, for as long as the state and the claimer say.
    pub fn grant(&mut self, asked: Option<Span>) {
        let state = self.lifecycle.state(self.after.state);
        let length = asked.filter(|length| *length > Span::ZERO).or(state.lease).unwrap_or(DEFAULT_LEASE);
        self.after.lease = Some(Lease {
            token: self.who.fresh,
            worker: Some(self.who.by.into()),
            length,
            until: self.now + state.deadline.unwrap_or(length),
        });
    }

    /// A lease that nobody holds, with a token that nobody knows, to be taken from then on.
    pub fn vacate(&mut self, until: Time) {
        let state = self.lifecycle.state(self.after.state);
        let length =
            self.run.lease.as_ref().map(|lease| lease.length).or(state.lease).unwrap_or(DEFAULT_LEASE);
        self.after.lease = Some(Lease { token: self.who.fresh, worker: None, length, until });
    }

    /// Which items follow a move of the run.
    fn shifts(&self, row: &Transition, failure: Option<&Failure>) -> Vec<Shift> {
        let (from, to) = (self.lifecycle.phase(row.from), self.lifecycle.phase(row.to));
        let general = match to {
            Phase::Settled if from != Phase::Settled => Some("end"),
            Phase::Held if row.from == row.to => Some("lost"),
            _ => None,
        };
        self.shifts_on(&row.command, general, failure)
    }

    /// Items in a state that names `command` or, failing that, `general`.
    pub fn shifts_on(&self, command: &str, general: Option<&str>, failure: Option<&Failure>) -> Vec<Shift> {
        let mut shifts = Vec::new();
        for (kind, lifecycle) in self.lifecycle.items.iter().enumerate() {
            for from in lifecycle.state_ids() {
                let all = self.after.tallies[kind].following(from);
                if all == 0 && self.chosen.is_none() {
                    continue;
                }
                let state = lifecycle.state(from);
                let named = state.follow(command);
                let to = named.or_else(|| general.and_then(|general| state.follow(general)));
                let Some(to) = to.filter(|to| *to != from) else { continue };
                // Some of those that are done may be taken up again; what is under way goes along as a whole.
                let choosable = named.is_some() && kind == 0 && state.phase == Phase::Settled;
                let chosen = self.chosen.filter(|_| choosable).map(|items| {
                    let meant = |item: &&Item| item.kind == 0 && item.state == from && !item.stays(lifecycle);
                    let follow = items.iter().filter(meant);
                    follow.map(|item| item.key.clone()).collect::<BTreeSet<Text>>()
                });
                let count = chosen.as_ref().map_or(all, |chosen| chosen.len() as u32);
                if count > 0 {
                    let failed = lifecycle.state(to).outcome == Some(Outcome::Failed);
                    shifts.push(Shift {
                        kind: kind as u8,
                        from,
                        to,
                        count,
                        chosen: chosen.map(|keys| keys.into_iter().collect()),
                        failure: failure.filter(|_| failed).cloned(),
                    });
                }
            }
        }
        shifts
    }

    /// The error code that a command of the engine's or a person's leaves behind.
    pub fn failure_of(&self, command: &str, message: &str) -> Option<Failure> {
        self.lifecycle.code_of(command).map(|code| Failure::new(code, message))
    }

    pub fn no_such_move(&self, requested: &str) -> Refusal {
        let current = &self.lifecycle.state(self.after.state).name;
        self.refusal(Code::InvalidTransition, format!("no {requested} from {current}"))
    }

    pub fn refusal(&self, code: Code, message: String) -> Refusal {
        Refusal {
            code,
            message,
            current: self.lifecycle.state(self.run.state).name.clone(),
            requested: self.requested.to_owned(),
            allowed: super::allowed(self.lifecycle, self.run),
            guard: None,
            field: None,
        }
    }
}

impl Effect {
    pub fn hold(hold: Hold) -> Effect {
        Effect { hold, ..Effect::default() }
    }

    pub fn failing(failure: Option<Failure>) -> Effect {
        Effect { failure, ..Effect::default() }
    }
}

/// Guards count the items of the first kind.
pub fn counts(lifecycle: &Lifecycle, run: &Run) -> Counts {
    first_counts(lifecycle, &run.tallies)
}

fn first_counts(lifecycle: &Lifecycle, tallies: &[Tally]) -> Counts {
    lifecycle
        .items
        .first()
        .zip(tallies.first())
        .map_or_else(Counts::default, |(kind, tally)| tally.counts(kind))
}

//! A setting that calls change one after the other or at once: which values it may have had when.

use super::super::record::{Call, Moment};

/// What a killed server or a database that went away had begun is over after this: nobody sends the rest of it.
const LATE: Moment = 2_000_000;

#[derive(Clone, Debug)]
struct Write<T> {
    value: T,
    invoked: Moment,
    /// It has taken effect by then, if at all.
    done: Moment,
    is_certain: bool,
}

/// All writes to one setting, the first one being what it was in the beginning.
#[derive(Clone, Debug)]
pub struct Register<T> {
    writes: Vec<Write<T>>,
}

impl<T: Clone> Register<T> {
    pub fn new(first: T) -> Register<T> {
        Register { writes: vec![Write { value: first, invoked: 0, done: 0, is_certain: true }] }
    }

    /// A refused call wrote nothing.
    pub fn add(&mut self, value: T, call: &Call) {
        if call.is_refused() {
            return;
        }
        let is_certain = !call.is_unknown();
        let done = if is_certain { call.answered } else { call.answered + LATE };
        self.writes.push(Write { value, invoked: call.invoked, done, is_certain });
    }

    /// What it may have been at some instant between these two: a write counts from its call on at the earliest, and no
    /// longer once another that began after its answer was answered itself.
    pub fn possible(&self, from: Moment, until: Moment) -> impl Iterator<Item = &T> {
        let known = self.writes.iter().filter(|write| write.is_certain && write.done <= from);
        let newest = known.map(|write| write.invoked).max().unwrap_or(0);
        self.writes
            .iter()
            .filter(move |write| write.invoked <= until && write.done >= newest)
            .map(|write| &write.value)
    }
}

/// The instants between which a call may have had its effect.
pub fn window(call: &Call) -> (Moment, Moment) {
    (call.invoked, if call.is_unknown() { call.answered + LATE } else { call.answered })
}

//! One try of one step, as a task of its own: several of a run may be under way at once, and each is stopped in time
//! whatever the others and the store are doing.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::Instant;
use waypost_kernel::Span;
use waypost_store::{ItemRow, RunRow};

use super::idempotency_key;
use super::tasks::TaskBoard;
use crate::actions::Rendered;
use crate::execute::{Answer, Try};
use crate::lease::Lease;
use crate::pace;
use crate::pipeline::Shared;
use crate::report::journal::Journal;

pub(super) struct Attempt {
    pub shared: Shared,
    pub run: RunRow,
    pub lease: Arc<Lease>,
    pub journal: Arc<Journal>,
    pub row: ItemRow,
    pub rendered: Rendered,
    pub board: Option<Arc<TaskBoard>>,
    pub is_cleanup: bool,
    /// Of this try.
    pub timeout: Option<Span>,
    /// Of the run.
    pub deadline: Option<Instant>,
    pub inputs: Map<String, Value>,
    /// What its handler is told besides.
    pub more: Map<String, Value>,
}

/// What a try came to.
pub(super) struct Tried {
    /// Where its step is in the course.
    pub at: usize,
    /// As it was when the try began.
    pub row: ItemRow,
    /// `None`: something else is wanted of the run, or its time is over.
    pub answer: Option<Answer>,
}

impl Attempt {
    pub async fn carry_out(self, at: usize) -> Tried {
        let own = self.timeout.map(|limit| Instant::now() + pace::duration(limit));
        let it = Try {
            row: &self.run,
            lease: &self.lease,
            journal: &self.journal,
            grace: self.shared.options.grace,
            number: self.row.attempts + 1,
            until: own.into_iter().chain(self.deadline).min(),
            is_cleanup: self.is_cleanup,
            board: self.board.as_ref(),
            step: Some(&self.row.key),
        };
        let key = idempotency_key(self.run.id(), &self.row.key, self.row.try_no);
        let mut call = it.call(&self.row.name, key);
        call.input = Value::Object(self.inputs);
        call.more = self.more;
        let answer = it.act(&self.shared, &self.rendered, &call, self.timeout.map(pace::duration)).await;
        let is_interrupted = if self.is_cleanup { self.lease.is_leaving() } else { self.lease.is_stopped() };
        let is_late = own.is_some_and(|own| own <= Instant::now()) && !is_interrupted;
        let answer = answer.or_else(|| self.timeout.filter(|_| is_late).map(Answer::too_late));
        Tried { at, row: self.row, answer }
    }
}

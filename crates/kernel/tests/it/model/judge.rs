//! Who decides: the kernel, or one of the broken kernels of `broken`.

use waypost_kernel::item::{Item, ItemAsk, decide_items};
use waypost_kernel::{Change, Lifecycle, Refusal, Request, Run, Time, Token, Who, decide};

/// One request and the row that it meets.
#[derive(Clone, Debug)]
pub struct Case<'a> {
    pub lifecycle: &'a Lifecycle,
    pub run: &'a Run,
    pub request: Request<'a>,
    pub now: Time,
    /// The lease's end as the sweeper read it earlier.
    pub read: Option<Time>,
}

/// Moves of items and the row that they meet.
#[derive(Clone, Debug)]
pub struct ItemCase<'a> {
    pub lifecycle: &'a Lifecycle,
    pub run: &'a Run,
    pub who: Who<'a>,
    pub token: Option<Token>,
    pub asks: Vec<(Item, ItemAsk<'a>)>,
    /// What ended the run's course, as the store finds it.
    pub failed: Vec<Item>,
    pub now: Time,
}

pub type Ruling = Result<Change, Refusal>;

#[derive(Clone, Copy, Debug)]
pub struct Judge {
    pub decide: fn(&Case<'_>) -> Ruling,
    pub decide_items: fn(&ItemCase<'_>) -> Ruling,
}

impl Judge {
    pub const KERNEL: Judge = Judge { decide: kernel, decide_items: kernel_items };

    pub const fn deciding(decide: fn(&Case<'_>) -> Ruling) -> Judge {
        Judge { decide, ..Judge::KERNEL }
    }
}

pub fn kernel(case: &Case<'_>) -> Ruling {
    decide(case.lifecycle, case.run, &case.request, case.now)
}

pub fn kernel_items(case: &ItemCase<'_>) -> Ruling {
    decide_items(case.lifecycle, case.run, &case.who, case.token, (&case.asks, &case.failed), case.now)
}

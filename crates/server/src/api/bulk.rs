//! One command for many runs.

use serde_json::json;
use waypost_kernel::tenant::is_seen_by;
use waypost_kernel::{Span, Time};
use waypost_schema::instead_of;
use waypost_store::{Filter, StoreError};
use waypost_worker::bulk::{BulkCommand, REASON_CHARS, Which};

use super::request_keys::request_key;
use super::requests::filter_of;
use super::runs::{KEY_HEADER, answer_made, check_filter};
use super::shapes::RUN;
use super::wire::bulk::NewOperationBody;
use super::{BODY_BYTES, Content, POST, Route, RouteResponse, takes};
use crate::answer::Result;
use crate::call::Call;
use crate::guard::RequiredRole;
use crate::problem::{CHANGED_MEANWHILE, IDEMPOTENCY_KEY_REUSED, INVALID_INPUT, Problem};

pub const ROUTES: &[Route] = &[Route {
    path: "/v1/operations",
    name: "commandRuns",
    description: "Gives one command to many runs: to those that are named, or to all that fit a filter. What is answered is the operation, a run \
        that asks them one by one, each once, and goes on wherever its server stops. Its `details.report` has how many did it (`done`), how many were so already (`unchanged`), how many \
        refused (`refused`), and why (`refusals`); `cancel` stops it.",
    required_role: RequiredRole::Operate,
    headers: &[KEY_HEADER],
    body_bytes: BODY_BYTES,
    responses: &[
        RouteResponse {
            status: 202,
            description: "it is stored, and will be done",
            body: Content::Json(&RUN),
        },
        RouteResponse {
            status: 200,
            description: "the key was known: the operation that it made",
            body: Content::Json(&RUN),
        },
    ],
    refuses: &[&IDEMPOTENCY_KEY_REUSED, &CHANGED_MEANWHILE],
    ..takes!(POST, start, NewOperationBody)
}];

async fn start(call: Call, body: NewOperationBody) -> Result {
    check_command(&call, &body.command).await?;
    if body.reason.as_ref().is_some_and(|reason| reason.chars().count() > REASON_CHARS) {
        let message = format!("has more than {REASON_CHARS} characters");
        return Err(Problem::field(&INVALID_INPUT, "reason", &message));
    }
    let (which, total) = match (body.filter, body.ids) {
        (Some(filter), None) => {
            let mut filter: Filter = filter_of!(call, filter);
            if !filter.is_narrowed() {
                return Err(Problem::field(
                    &INVALID_INPUT,
                    "filter",
                    "names nothing: that would be every run",
                ));
            }
            check_filter(&call, &filter).await?;
            // Whoever asked has not seen what comes in later.
            end_at(&mut filter, call.store().now().await?);
            let counted = count(&call, &filter).await?;
            check_expected(body.expected, &counted)?;
            (Which::Fitting(Box::new(filter)), Some(counted.count).filter(|_| !counted.is_more))
        }
        (None, Some(mut ids)) => {
            ids.sort_unstable();
            ids.dedup();
            let total = ids.len() as u64;
            (Which::Ids(ids), Some(total))
        }
        (Some(_), Some(_)) => {
            return Err(Problem::field(
                &INVALID_INPUT,
                "ids",
                "are there, and a filter too: send one of them",
            ));
        }
        (None, None) => {
            return Err(Problem::field(
                &INVALID_INPUT,
                "filter",
                "is missing, and so are ids: send one of them",
            ));
        }
    };
    let asked = BulkCommand { command: body.command, which, reason: body.reason, force: body.force, total };
    let by = call.caller.by(body.by);
    let new = asked.operation(&call.caller.tenant, &by, request_key(&call, None)?);
    let made = call.store().enqueue(vec![new]).await?.remove(0)?;
    Ok(answer_made(&call, &made, |status| call.json_of(if status == 201 { 202 } else { status }, &made.run)))
}

/// Whatever came in up to this moment is meant, and nothing after it.
pub fn end_at(filter: &mut Filter, seen_at: Time) {
    let end = seen_at + Span::from_ms(1);
    filter.until = Some(filter.until.map_or(end, |until| until.min(end)));
}

/// A word that was typed wrongly must not be refused by each of a thousand runs.
async fn check_command(call: &Call, command: &str) -> Result<()> {
    let catalog = call.store().lifecycles().await?;
    let seen = catalog.iter().filter(|lifecycle| is_seen_by(&call.caller.tenant, &lifecycle.name));
    let people = seen.flat_map(|lifecycle| lifecycle.transitions.iter().filter(|it| it.by.any_person()));
    let mut known: Vec<&str> = people.map(|it| &*it.command).collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&command) {
        return Ok(());
    }
    let message = format!("no lifecycle has {command:?}; {}", instead_of(command, &known));
    Err(Problem::field(&INVALID_INPUT, "command", &message))
}

/// How many runs fit, as far as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub count: u64,
    pub is_more: bool,
}

/// Further than this nobody counts before a command is given.
const COUNTED: u64 = 10_000;

pub async fn count(call: &Call, filter: &Filter) -> std::result::Result<Counted, StoreError> {
    let mut filter = Filter { limit: waypost_kernel::text::MAX_PAGE, cursor: None, ..filter.clone() };
    let mut counted = Counted { count: 0, is_more: false };
    loop {
        let page = call.store().runs(filter.clone()).await?;
        counted.count += page.runs.len() as u64;
        counted.is_more = page.next.is_some();
        if !counted.is_more || counted.count >= COUNTED {
            return Ok(counted);
        }
        filter.cursor = page.next;
    }
}

fn check_expected(expected: Option<u64>, counted: &Counted) -> Result<()> {
    let Some(expected) = expected.filter(|expected| counted.is_more || *expected != counted.count) else {
        return Ok(());
    };
    if counted.is_more && expected > counted.count {
        return Ok(());
    }
    let more = if counted.is_more { " or more" } else { "" };
    let message = format!("expected: {expected} runs were to fit, and {}{more} do", counted.count);
    Err(Problem::new(&CHANGED_MEANWHILE, message).with("count", json!(counted.count)))
}

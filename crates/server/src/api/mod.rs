//! The one table of routes. The router, the role of each, the OpenAPI document and the reference are made of it.

mod access;
mod activity;
mod agents;
mod alerts;
mod batches;
pub mod bulk;
mod claims;
mod commands;
mod events;
mod executions;
mod health;
mod held;
mod lifecycles;
mod operations;
pub mod playbooks;
mod queues;
mod request_keys;
pub mod runs;
mod schedules;
mod stats;
mod targets;
mod webhooks;
mod wire;
pub mod workers;

use std::future::Future;
use std::pin::Pin;

use waypost_schema::{Field, Shape};

use crate::answer::{Answer, Result};
use crate::call::{Asked, Call};
use crate::guard::RequiredRole;
use crate::problem::Reason;
use wire::{kinds, schedule_shapes};
pub use wire::{proposals as proposal_wire, requests, shapes};

pub type Running = Pin<Box<dyn Future<Output = Result<Answer>> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
}

impl Method {
    pub fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
        }
    }
}

#[derive(Debug)]
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    /// Unique: what clients made from the OpenAPI document call it.
    pub name: &'static str,
    pub description: &'static str,
    pub required_role: RequiredRole,
    pub query: &'static [Field],
    /// Beside those that every route reads.
    pub headers: &'static [Field],
    pub body: Option<&'static Shape>,
    pub body_bytes: usize,
    /// The function takes the body's bytes as they came: they are signed.
    pub is_raw: bool,
    /// What handlers put out is cleaned by the store, never refused.
    pub is_lenient: bool,
    pub responses: &'static [RouteResponse],
    /// Beside those that any request can meet.
    pub refuses: &'static [&'static Reason],
    /// The kernel may refuse it: 409 with `current` and `allowed`.
    pub may_conflict: bool,
    /// What goes wrong is told in the envelope of seed 001.
    pub is_front: bool,
    /// A page or form of the console: for people with browsers, and no part of the API's document.
    pub is_page: bool,
    /// Kept for clients of before, for a release; the description says what to call instead.
    pub is_deprecated: bool,
    pub run: fn(Call, Asked) -> Running,
}

/// An answer that goes well.
#[derive(Debug)]
pub struct RouteResponse {
    pub status: u16,
    pub description: &'static str,
    pub body: Content,
}

#[derive(Clone, Copy, Debug)]
pub enum Content {
    Nothing,
    Json(&'static Shape),
    /// JSON that is described elsewhere.
    AnyJson,
    Text(&'static str),
    /// Server-sent events, for as long as the client stays.
    Events,
}

pub const EVENT_STREAM: &str = "text/event-stream";

/// Room for a run's input and metadata, both at their largest.
pub const BODY_BYTES: usize = 4 * 1024 * 1024;
pub const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// Of requests that carry a few words.
pub const SMALL_BYTES: usize = 64 * 1024;

pub const GET: Route = Route {
    method: Method::Get,
    path: "",
    name: "",
    description: "",
    required_role: RequiredRole::Read,
    query: &[],
    headers: &[],
    body: None,
    body_bytes: 0,
    is_raw: false,
    is_lenient: false,
    responses: &[],
    refuses: &[],
    may_conflict: false,
    is_front: false,
    is_page: false,
    is_deprecated: false,
    run: |_, _| Box::pin(async { Ok(crate::answer::empty(204)) }),
};
pub const POST: Route = Route { method: Method::Post, body_bytes: SMALL_BYTES, ..GET };

/// The rest of a route whose function takes the call alone.
macro_rules! plain {
    ($base:expr, $handler:expr) => {
        Route { run: |call, _| Box::pin(($handler)(call)), ..$base }
    };
}

/// Of one whose function takes a body: the struct says its shape, and another one does not compile.
macro_rules! takes {
    ($base:expr, $handler:expr, $body:ty) => {
        Route {
            body: Some(<$body as waypost_schema::Request>::SHAPE),
            run: |call, asked| Box::pin(async move { ($handler)(call, asked.body::<$body>()?).await }),
            ..$base
        }
    };
}

/// The same with a query.
macro_rules! asks {
    ($base:expr, $handler:expr, $query:ty) => {
        Route {
            query: <$query as waypost_schema::Request>::SHAPE.fields,
            run: |call, asked| Box::pin(async move { ($handler)(call, asked.query::<$query>()?).await }),
            ..$base
        }
    };
}

pub(crate) use {asks, plain, takes};

pub const fn ok(body: &'static Shape) -> RouteResponse {
    RouteResponse { status: 200, description: "as asked", body: Content::Json(body) }
}

const GROUPS: &[&[Route]] = &[
    runs::ROUTES,
    playbooks::replays::ROUTES,
    playbooks::ROUTES,
    claims::ROUTES,
    held::ROUTES,
    batches::ROUTES,
    targets::ROUTES,
    operations::ROUTES,
    bulk::ROUTES,
    activity::ROUTES,
    events::ROUTES,
    crate::stream::ROUTES,
    queues::ROUTES,
    schedules::ROUTES,
    executions::ROUTES,
    workers::ROUTES,
    stats::ROUTES,
    lifecycles::ROUTES,
    access::ROUTES,
    alerts::ROUTES,
    agents::ROUTES,
    agents::front::ROUTES,
    agents::proposals::ROUTES,
    agents::stream::ROUTES,
    webhooks::ROUTES,
    health::ROUTES,
    crate::console::ROUTES,
];

pub fn routes() -> impl Iterator<Item = &'static Route> {
    GROUPS.iter().flat_map(|group| group.iter())
}

/// Those that clients call.
pub fn documented() -> impl Iterator<Item = &'static Route> {
    routes().filter(|route| !route.is_page)
}

/// Whether a route is for those who watch the server: they are answered when nobody else is.
pub fn is_health(route: &Route) -> bool {
    matches!(route.path, "/livez" | "/readyz")
}

/// What a path takes, whatever its parameters are. As the router does, a part that is spelt out goes before one that is a
/// parameter: `/v1/runs/batch` is no run.
pub fn methods_of(path: &str) -> Vec<&'static str> {
    let Some(best) = best_of(path) else { return Vec::new() };
    let of_path = routes().filter(|route| route.path == best.path);
    let mut methods: Vec<&str> = of_path.map(|route| route.method.name()).collect();
    if methods.contains(&"GET") {
        methods.push("HEAD");
    }
    methods
}

/// Whether front ends of agents ask for it, whatever they ask by: they know one form of errors.
pub fn is_front(path: &str) -> bool {
    best_of(path).is_some_and(|route| route.is_front)
}

fn best_of(path: &str) -> Option<&'static Route> {
    let spelt =
        |route: &&Route| -> Vec<bool> { route.path.split('/').map(|part| part.starts_with('{')).collect() };
    routes().filter(|route| fits(route.path, path)).min_by_key(spelt)
}

fn fits(known: &str, given: &str) -> bool {
    let parts = || known.split('/').zip(given.split('/'));
    known.split('/').count() == given.split('/').count()
        && parts().all(|(known, given)| known == given || known.starts_with('{') && !given.is_empty())
}

#[cfg(test)]
mod tests {
    use waypost_kernel::lifecycle::RESERVED_COMMANDS;

    use super::routes;

    // proves U10: a command of a lifecycle is asked for where these are
    #[test]
    fn no_command_of_a_lifecycle_can_hide_behind_a_route() {
        let words = routes().filter_map(|route| route.path.strip_prefix("/v1/runs/{run_id}/"));
        let words = words.filter_map(|rest| rest.split('/').next()).filter(|word| !word.starts_with('{'));
        // `claim` is the command itself: every lifecycle has it.
        let free: Vec<&str> =
            words.filter(|word| *word != "claim" && !RESERVED_COMMANDS.contains(word)).collect();
        assert_eq!(free, Vec::<&str>::new(), "each is a line of RESERVED_COMMANDS");
    }
}

//! The console: pages for people, made of the same functions as the API. A page asks the table of routes (`ask`) or the functions behind
//! it, and draws what it is told; a form posts, is told, and leads back to a page. Nothing here decides anything about runs, and nothing
//! needs a script: the one module in `assets` keeps pages up to date and reads keys.

mod ask;
pub mod assets;
mod draw;
mod filter;
mod form;
mod layout;
mod pages;
mod parts;
pub mod session;

use waypost_schema::{Field, Kind, optional};

use crate::answer::{self, Answer, Result};
use crate::api::{BODY_BYTES, GET, Method, POST, Route, SMALL_BYTES, plain};
use crate::call::{Asked, Call};
use crate::guard::RequiredRole;

pub use layout::refused;
pub use pages::reference::page as reference;

const PAGE: Route = Route { is_page: true, ..GET };
const OPEN: Route = Route { required_role: RequiredRole::Nothing, ..PAGE };
/// The body is a form's, which is read by the page's own function.
const FORM: Route = Route {
    is_page: true,
    is_raw: true,
    required_role: RequiredRole::Operate,
    body_bytes: SMALL_BYTES,
    ..POST
};

const fn word(name: &'static str, description: &'static str) -> Field {
    optional(name, Kind::Text(4_096), description)
}

const CURSOR: Field = word("cursor", "From the page before.");

/// A form's function takes the call and the body's bytes.
macro_rules! posts {
    ($base:expr, $handler:expr) => {
        Route { run: |call, asked: Asked| Box::pin(($handler)(call, asked.raw)), ..$base }
    };
}

pub const ROUTES: &[Route] = &[
    Route { path: "/", ..plain!(PAGE, pages::overview::page) },
    Route {
        path: "/runs",
        query: &[word("filter", "What to show."), CURSOR],
        ..plain!(PAGE, pages::runs::page)
    },
    Route {
        path: "/runs/export",
        query: &[word("filter", "What to export."), word("format", "csv or jsonl.")],
        ..plain!(PAGE, pages::export::download)
    },
    Route { path: "/runs/bulk", body_bytes: BODY_BYTES, ..posts!(FORM, pages::many::post) },
    Route { path: "/operations/{run_id}", ..plain!(PAGE, pages::many::page) },
    Route {
        path: "/runs/{run_id}",
        query: &[
            word("tab", "Which part of the run."),
            word("after", "Events after this one."),
            word("before", "Lines before this event."),
            word("q", "Only lines with this in them."),
            word("kind", "Items of this kind."),
            word("status", "Items in this state."),
            word("class", "Items that failed with this code."),
            CURSOR,
        ],
        ..plain!(PAGE, pages::run::page)
    },
    Route { path: "/runs/{run_id}/log", ..plain!(PAGE, pages::run::log::download) },
    Route { path: "/runs/{run_id}/replay", ..plain!(PAGE, pages::replay::page) },
    Route { path: "/runs/{run_id}/replay", body_bytes: BODY_BYTES, ..posts!(FORM, pages::replay::post) },
    Route {
        path: "/runs/{run_id}/targets",
        body_bytes: BODY_BYTES,
        ..posts!(FORM, pages::run::targets::post)
    },
    Route { path: "/runs/{run_id}/{command}", ..posts!(FORM, pages::run::actions::post) },
    Route { path: "/waiting", query: &[CURSOR], ..plain!(PAGE, pages::people::waiting::page) },
    Route { path: "/playbooks", ..plain!(PAGE, pages::playbooks::page) },
    Route { path: "/playbooks/{name}", ..plain!(PAGE, pages::start::page) },
    Route { path: "/playbooks/{name}", body_bytes: BODY_BYTES, ..posts!(FORM, pages::start::post) },
    Route { path: "/schedules", query: &[CURSOR], ..plain!(PAGE, pages::schedules::page) },
    Route { path: "/schedules/{schedule}", query: &[CURSOR], ..plain!(PAGE, pages::schedules::one::page) },
    Route { path: "/schedules/{schedule}/{command}", ..posts!(FORM, pages::schedules::one::post) },
    Route { path: "/workers", query: &[CURSOR], ..plain!(PAGE, pages::workers::page) },
    Route { path: "/queues", query: &[CURSOR], ..plain!(PAGE, pages::queues::page) },
    Route { path: "/keys/{key}/limit", ..posts!(FORM, pages::queues::limit_key) },
    Route { path: "/queues", ..posts!(FORM, pages::queues::post_named) },
    Route { path: "/queues/{queue}/{command}", ..posts!(FORM, pages::queues::post) },
    Route {
        path: "/dlq",
        query: &[word("run_id", "Of this run alone.")],
        ..plain!(PAGE, pages::bulk::dead_letters::page)
    },
    Route { path: "/dlq", ..posts!(FORM, pages::bulk::dead_letters::post) },
    Route {
        path: "/reconciliations",
        query: &[word("run_id", "Of this run alone."), CURSOR],
        ..plain!(PAGE, pages::bulk::reconciliations::page)
    },
    Route { path: "/destinations", ..plain!(PAGE, pages::bulk::destinations::page) },
    Route { path: "/alerts", ..plain!(PAGE, pages::bulk::alerts::page) },
    Route { path: "/alerts/{command}", ..posts!(FORM, pages::bulk::alerts::post_any) },
    Route { path: "/alerts/{alert}/{command}", ..posts!(FORM, pages::bulk::alerts::post) },
    Route {
        path: "/proposals",
        query: &[word("status", "Those in this state; `all`: in any."), CURSOR],
        ..plain!(PAGE, pages::people::proposals::page)
    },
    Route { path: "/proposals", ..posts!(FORM, pages::people::proposals::post) },
    Route { path: "/agents", ..plain!(PAGE, pages::agents::page) },
    Route { path: "/agents/{slug}/{command}", ..posts!(FORM, pages::agents::post) },
    Route { path: "/lifecycles", ..plain!(PAGE, pages::lifecycles::page) },
    Route {
        path: "/audit",
        required_role: RequiredRole::Admin,
        query: &[word("before", "Entries before this one.")],
        ..plain!(PAGE, pages::audit::page)
    },
    Route { path: "/sign-in", query: &[word("to", "Where to go then.")], ..plain!(OPEN, session::page) },
    Route { path: "/sign-in", required_role: RequiredRole::Nothing, ..posts!(FORM, session::sign_in) },
    Route { path: "/sign-out", required_role: RequiredRole::Nothing, ..posts!(FORM, session::sign_out) },
    Route { path: "/preferences", required_role: RequiredRole::Nothing, ..posts!(FORM, session::prefer) },
    Route { path: "/assets/{file}", ..plain!(OPEN, assets::file) },
    Route {
        path: "/console/events",
        query: &[word("run", "Events of this run alone.")],
        ..plain!(PAGE, live)
    },
];

/// What is read here and is no page: a stream, and files.
const NO_PAGES: [&str; 4] = ["/console/events", "/assets/{file}", "/runs/export", "/runs/{run_id}/log"];

/// Where each page is, with the names of its parts: for those who look at all of them.
pub fn paths() -> impl Iterator<Item = &'static str> {
    let is_page = |route: &&Route| route.method == Method::Get && !NO_PAGES.contains(&route.path);
    // The page of the API is a route of the API.
    ROUTES.iter().filter(is_page).map(|route| route.path).chain(["/reference"])
}

/// What the page's module listens to: the API's own stream, for those who are signed in by a cookie.
async fn live(call: Call) -> Result {
    let run = parts::asked(&call, "run").unwrap_or_default().to_owned();
    ask::passed(call, "streamEvents", &[("run", &run)]).await
}

/// Back to a page, after a form.
fn see(path: &str) -> Answer {
    answer::with(answer::empty(303), "location", path)
}

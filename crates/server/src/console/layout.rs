//! What all pages have in common.

use axum::body::Body;
use axum::http::Response;
use axum::http::request::Parts;
use maud::{DOCTYPE, Markup, html};

use super::parts::shown;
use super::{ask, assets, parts, session};
use crate::answer::{self, Answer};
use crate::app::App;
use crate::call::Call;
use crate::guard::Role;
use crate::problem::Problem;

/// Nothing is loaded from elsewhere, nothing inline is executed, and no other page shows this one.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nav {
    Overview,
    Runs,
    Waiting,
    Playbooks,
    Schedules,
    Queues,
    Workers,
    DeadLetters,
    Reconciliations,
    Destinations,
    Alerts,
    Proposals,
    Agents,
    Lifecycles,
    Audit,
    Reference,
    /// A page that is under none of these.
    None,
}

struct Entry {
    nav: Nav,
    path: &'static str,
    label: &'static str,
    /// Typed after `g`.
    key: &'static str,
    /// Who may not ask for this does not see the entry.
    needs: &'static str,
}

const fn entry(
    nav: Nav,
    path: &'static str,
    label: &'static str,
    key: &'static str,
    needs: &'static str,
) -> Entry {
    Entry { nav, path, label, key, needs }
}

/// By what people come for.
const GROUPS: &[(&str, &[Entry])] = &[
    (
        "Now",
        &[
            entry(Nav::Overview, "/", "Overview", "o", "getStats"),
            entry(Nav::Runs, "/runs", "Runs", "r", "listRuns"),
            entry(Nav::Waiting, "/waiting", "Waiting for you", "w", "listRuns"),
            entry(Nav::Proposals, "/proposals", "Proposals", "i", "listProposals"),
        ],
    ),
    (
        "Start",
        &[
            entry(Nav::Playbooks, "/playbooks", "Playbooks", "p", "listPlaybooks"),
            entry(Nav::Schedules, "/schedules", "Schedules", "s", "listSchedules"),
            entry(Nav::Agents, "/agents", "Agents", "a", "listAgents"),
        ],
    ),
    (
        "Capacity",
        &[
            entry(Nav::Queues, "/queues", "Queues and keys", "q", "listQueues"),
            entry(Nav::Workers, "/workers", "Workers", "k", "listWorkers"),
            entry(Nav::Destinations, "/destinations", "Destinations", "t", "listDestinations"),
        ],
    ),
    (
        "Put right",
        &[
            entry(Nav::DeadLetters, "/dlq", "Dead letters", "d", "listDeadLetters"),
            entry(Nav::Reconciliations, "/reconciliations", "Reconciliation", "c", "listReconciliations"),
            entry(Nav::Alerts, "/alerts", "Alerts", "e", "listAlerts"),
        ],
    ),
    (
        "Look up",
        &[
            entry(Nav::Lifecycles, "/lifecycles", "Lifecycles", "l", "listLifecycles"),
            entry(Nav::Audit, "/audit", "Audit", "u", "listAudit"),
            entry(Nav::Reference, "/reference", "HTTP API", "h", "getReference"),
        ],
    ),
];

/// How a page keeps up to date.
#[derive(Clone, Debug)]
pub enum Live {
    /// With events of all runs.
    AllRuns,
    /// With those of one, by its id.
    Run(String),
    /// Once in a while: what it shows has no events.
    Polled,
}

#[derive(Debug)]
pub struct Sheet<'a> {
    pub title: &'a str,
    pub nav: Nav,
    /// None: nothing more will change here.
    pub live: Option<Live>,
}

pub fn answered(call: &Call, status: u16, sheet: &Sheet<'_>, content: &Markup) -> Answer {
    let is_signed_in = call.caller.token.is_some();
    let is_known = is_signed_in || !call.app.options.needs_tokens;
    let body = html! {
        (head(is_known.then_some(call.caller.role), sheet.nav))
        main #main tabindex="-1" {
            @if sheet.live.is_some() && is_typed_into(content) {
                @let same: Vec<(&str, &str)> = call.query.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_str()?))).collect();
                noscript { p.hint { a href={ "?" (ask::written(&same)) } { "Reload" } " to see what is new: a page with forms does not reload by itself." } }
            }
            (content)
        }
        footer { (preferences(call, is_signed_in, is_known)) }
        (help(call.caller.role))
    };
    page(status, sheet, session::theme(&call.headers), &body, sheet.live.is_some() && !is_typed_into(content))
}

/// A form that somebody fills in would be thrown away by a page that loads itself again.
fn is_typed_into(content: &Markup) -> bool {
    content.0.contains("method=\"post\"")
}

/// `role`: whose pages are led to; nobody's without one.
fn head(role: Option<Role>, current: Nav) -> Markup {
    html! {
        header.top {
            a.brand href="/" { img src=(assets::ICON.path()) alt="" width="24" height="24"; "Waypost" }
            @if let Some(role) = role { (menu(role, current)) (nav(role, current)) }
        }
    }
}

fn page(status: u16, sheet: &Sheet<'_>, theme: &str, body: &Markup, reloads: bool) -> Answer {
    let (kind, run) = match &sheet.live {
        None => (None, None),
        Some(Live::AllRuns) => (Some("runs"), None),
        Some(Live::Run(run)) => (Some("run"), Some(run)),
        Some(Live::Polled) => (Some("poll"), None),
    };
    let markup = html! {
        (DOCTYPE)
        html lang="en" data-theme=(theme) {
            head {
                meta charset="utf-8";
                title { (shown(sheet.title)) " · Waypost" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                link rel="icon" href=(assets::ICON.path()) type="image/svg+xml";
                link rel="stylesheet" href=(assets::STYLE.path());
                script type="module" src=(assets::MODULE.path()) {}
                // Who has no scripts sees what is new by the page as a whole.
                @if reloads { noscript { meta http-equiv="refresh" content="10"; } }
            }
            body data-live=[kind] data-run=[run] {
                a.skip href="#main" { "Skip to the content" }
                (body)
            }
        }
    };
    let answer = answer::text(status, HTML, markup.into_string());
    let answer = answer::with(answer, "content-security-policy", POLICY);
    // With `no-referrer` browsers would send forms with the origin "null".
    answer::with(answer, "referrer-policy", "same-origin")
}

/// The same on a phone, behind a click.
fn menu(role: Role, current: Nav) -> Markup {
    let mut entries = GROUPS.iter().flat_map(|(_, entries)| *entries);
    let label = entries.find(|entry| entry.nav == current).map_or("Pages", |entry| entry.label);
    html! { details.menu { summary.button { "☰ " (label) } (nav(role, current)) } }
}

fn nav(role: Role, current: Nav) -> Markup {
    let seen =
        |entries: &'static [Entry]| entries.iter().filter(move |entry| ask::role_may(role, entry.needs));
    html! {
        nav aria-label="Pages" {
            @for (name, entries) in GROUPS {
                @if seen(entries).next().is_some() {
                    div.group role="group" aria-label=(name) {
                        span.group-name aria-hidden="true" { (name) }
                        @for entry in seen(entries) {
                            a href=(entry.path) data-key=(entry.key) aria-current=[(entry.nav == current).then_some("page")] { (entry.label) }
                        }
                    }
                }
            }
        }
    }
}

fn preferences(call: &Call, is_signed_in: bool, is_known: bool) -> Markup {
    let chosen = session::theme(&call.headers);
    let token = session::form_token(call);
    html! {
        form.inline method="post" action="/preferences" data-here="to" {
            (parts::hidden(&token))
            input type="hidden" name="to" value="/";
            span #theme { "Theme" }
            @for theme in ["auto", "light", "dark"] {
                button.link name="theme" value=(theme) aria-pressed=(if theme == chosen { "true" } else { "false" })
                    aria-describedby="theme" { (theme) }
            }
        }
        @if is_known && call.caller.may_name_any {
            form.inline method="post" action="/preferences" {
                (parts::hidden(&token))
                label for="tenant" { "Tenant" }
                input #tenant name="tenant" value=(call.caller.tenant) size="12" maxlength="255" required;
                button.link type="submit" { "show" }
            }
        }
        @if is_signed_in {
            form.inline method="post" action="/sign-out" {
                (parts::hidden(&token))
                span { "Signed in as " b { (shown(&call.caller.by(None))) } " (" (call.caller.role.name()) ")" }
                button.link type="submit" { "sign out" }
            }
        }
        span.links {
            a href="/reference" { "API" }
            span.version { "Waypost " (env!("CARGO_PKG_VERSION")) }
        }
    }
}

/// Shown by `?`.
fn help(role: Role) -> Markup {
    html! {
        dialog #help aria-labelledby="help-title" {
            h2 #help-title { "Keys" }
            dl.keys {
                dt { kbd { "/" } } dd { "filter" }
                dt { kbd { "j" } " " kbd { "k" } } dd { "next, previous row" }
                dt { kbd { "Enter" } } dd { "open the row" }
                dt { kbd { "x" } } dd { "select a row" }
                dt { kbd { "c" } } dd { "cancel what is selected, or the row" }
                @for entry in GROUPS.iter().flat_map(|(_, entries)| *entries).filter(|entry| ask::role_may(role, entry.needs)) {
                    dt { kbd { "g" } " " kbd { (entry.key) } } dd { (entry.label) }
                }
                dt { kbd { "?" } } dd { "this help" }
            }
            form method="dialog" { button { "Close" } }
        }
    }
}

/// What a page's request is refused with. Who is not known is asked who they are.
pub fn refused(app: &App, problem: &Problem, request_id: &str, parts: &Parts) -> Response<Body> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    if problem.status == 401 {
        let to = if parts.method == axum::http::Method::GET { path } else { "/" };
        return super::see(&format!("/sign-in?to={}", ask::encoded(to)));
    }
    // Whoever it is may look, where nobody is asked who they are; of others it is not known what they may do besides.
    let needs_tokens = app.options.needs_tokens;
    let role = if needs_tokens { Role::Viewer } else { Role::Admin };
    let is_stranger = needs_tokens && !session::brings_token(&parts.headers);
    // Whoever sent a form is led back to it, and mends there what was wrong.
    let back = session::came_from(&parts.headers).filter(|_| parts.method == axum::http::Method::POST);
    let body = html! {
        (head(Some(role), Nav::None))
        main #main tabindex="-1" {
            section.card.narrow {
                h1 { (title(problem.status)) }
                p role="alert" { (shown(&problem.detail)) }
                p.hint { code { (problem.code) } " · request " code { (request_id) } }
                @if let Some(back) = back { p { a.button.primary href=(back) { "Back to the page" } } }
                p { a href="/" { "Overview" } " · " a href="/runs" { "Runs" } @if is_stranger { " · " a href="/sign-in" { "Sign in" } } }
            }
        }
    };
    let sheet = Sheet { title: title(problem.status), nav: Nav::None, live: None };
    page(problem.status, &sheet, session::theme(&parts.headers), &body, false)
}

fn title(status: u16) -> &'static str {
    match status {
        403 => "This is not for you",
        404 => "There is no such thing",
        409 | 412 => "It cannot be done now",
        400..500 => "That cannot be done so",
        _ => "It did not work",
    }
}

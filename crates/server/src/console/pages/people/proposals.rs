//! What agents propose, and people decide: one by one, or several at once.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::{Lifecycle, Phase, Time};
use waypost_store::{APPROVE, PROPOSAL, REJECT, RunRow};
use waypost_worker::proposals;

use crate::answer::{Answer, Result};
use crate::call::Call;
use crate::console::ask::{ask, encoded, may, tell};
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{
    ONE_OPEN, act, ago, asked, badge, empty, excerpt, hidden, list, next_page, now, pick, run_link, run_path,
    shown, text, time,
};
use crate::console::{see, session};
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

const CHOSEN: &str = "chosen";
const LIMIT: &str = "50";
/// Of each: fifty stay below 300 KB. The whole is among its run's input.
const MOST_SHOWN: usize = 3_000;

pub async fn page(call: Call) -> Result {
    shown_page(&call, &[]).await
}

/// `refused`: what was not decided, and why.
async fn shown_page(call: &Call, refused: &[Value]) -> Result<Answer> {
    let now = now(call).await?;
    let catalog = call.lifecycles().await?;
    let lifecycle = catalog.latest(PROPOSAL).cloned();
    let first = lifecycle.as_ref().and_then(|it| Some(it.state(*it.initial.first()?).name.to_string()));
    let status = match asked(call, "status") {
        Some("all") => "",
        Some(status) => status,
        None => first.as_deref().unwrap_or_default(),
    };
    let cursor = asked(call, "cursor").unwrap_or_default();
    let found =
        ask(call, "listProposals", &[], &[("status", status), ("cursor", cursor), ("limit", LIMIT)]).await?;
    let proposals = list(&found, "proposals");
    let content = html! {
        h1 { "Proposals" }
        (states(lifecycle.as_deref(), status))
        (not_decided(refused))
        div #rows data-part {
            @if proposals.is_empty() { (empty("There are none. What a step of an agent proposes waits here:", Some("waypost agent run SLUG"))) }
            @else {
                @if may(call, "decideProposalsV1") { (with_chosen(call)) }
                @for proposal in proposals { (card(call, proposal, lifecycle.as_deref(), On::Many, now)) }
            }
        }
        (next_page("/proposals", &[("status", asked(call, "status").unwrap_or_default())], found["next_cursor"].as_str()))
    };
    let live = cursor.is_empty().then_some(Live::AllRuns);
    Ok(answered(call, 200, &Sheet { title: "Proposals", nav: Nav::Proposals, live }, &content))
}

fn states(lifecycle: Option<&Lifecycle>, chosen: &str) -> Markup {
    html! {
        p.chips {
            a.chip href="/proposals?status=all" aria-current=[chosen.is_empty().then_some("true")] { "All" }
            @for state in lifecycle.map(|it| &it.states).into_iter().flatten() {
                a.chip href={ "/proposals?status=" (encoded(&state.name)) } aria-current=[(*state.name == *chosen).then_some("true")] { (state.name) }
            }
        }
    }
}

fn not_decided(refused: &[Value]) -> Markup {
    html! {
        @if !refused.is_empty() {
            div.alert role="alert" {
                p { "These were not decided:" }
                ul { @for it in refused { li { code { (shown(text(it, "proposal_id"))) } ": " (shown(text(&it["error"], "message"))) } } }
            }
        }
    }
}

fn with_chosen(call: &Call) -> Markup {
    html! {
        div.actions {
            details.act name=(ONE_OPEN) {
                summary.button { "With the chosen" }
                form #(CHOSEN) method="post" action="/proposals" {
                    (hidden(&session::form_token(call)))
                    (note(false))
                    p.hint { "Who rejects says why." }
                    div.actions {
                        button.primary type="submit" name="act" value=(APPROVE) { "Approve" }
                        button type="submit" name="act" value=(REJECT) { "Reject" }
                    }
                }
            }
        }
    }
}

fn note(is_needed: bool) -> Markup {
    html! { label { "Note" @if !is_needed { " (optional)" } input name="note" maxlength="1024" required[is_needed]; } }
}

/// Where a proposal is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// Among others of which some are chosen.
    Many,
    /// Among other things that wait.
    Waiting,
    /// Its own page, which has its buttons already.
    ItsRun,
}

/// Of a run that is a proposal.
pub fn of_run(call: &Call, row: &RunRow, now: Time) -> Option<Markup> {
    of_row(call, row, On::Waiting, now)
}

/// The same on that run's own page.
pub fn of_its_run(call: &Call, row: &RunRow, now: Time) -> Option<Markup> {
    of_row(call, row, On::ItsRun, now)
}

fn of_row(call: &Call, row: &RunRow, on: On, now: Time) -> Option<Markup> {
    (&*row.lifecycle.name == PROPOSAL)
        .then(|| card(call, &proposals::object(row), Some(&row.lifecycle), on, now))
}

/// What it proposes, besides what has a place of its own.
fn content(proposal: &Value) -> Markup {
    let mut proposed = proposal["proposal"].clone();
    if let Some(members) = proposed.as_object_mut() {
        members.retain(|name, value| {
            !(["title", "target", "base_revision"].contains(&&**name) && *value == proposal[name])
        });
    }
    html! {
        @match (proposed.as_object(), proposed["text"].as_str()) {
            (Some(members), Some(words)) if members.len() == 1 => pre tabindex="0" { (shown_lines(words)) },
            (Some(members), _) if members.is_empty() => {},
            _ => (excerpt(&proposed, MOST_SHOWN)),
        }
    }
}

/// A text of several lines, cut where a page has no room for it.
fn shown_lines(text: &str) -> String {
    let cut: String = text.chars().take(MOST_SHOWN).collect();
    cut.lines().map(shown).collect::<Vec<_>>().join("\n")
}

fn card(call: &Call, proposal: &Value, lifecycle: Option<&Lifecycle>, on: On, now: Time) -> Markup {
    let id = text(proposal, "proposal_id");
    let state = lifecycle.and_then(|it| Some(it.state(it.state_named(text(proposal, "status"))?)));
    let is_open = state.is_some_and(|state| state.phase == Phase::Draft)
        && may(call, "approveProposalV1")
        && on != On::ItsRun;
    let title = Some(text(proposal, "title")).filter(|title| !title.is_empty()).unwrap_or(id);
    html! {
        section.card.proposal {
            h2 {
                @if is_open && on == On::Many { (pick(CHOSEN, "proposal", id, &format!("choose {}", shown(title)))) " " }
                @if let Some(state) = state { (badge(&state.name, state.phase, state.outcome)) " " }
                @if on == On::ItsRun { "What is proposed" } @else { a href=(run_path(id)) { (shown(title)) } }
            }
            p.hint {
                @if let Some(agent) = proposal["agent_slug"].as_str() { "by " b { (shown(agent)) } " " }
                @if let Some(run) = proposal["run_id"].as_str() { "in " (run_link(run)) " " }
                (ago(time(proposal, "created_at"), now))
                @if proposal["expires_at"].is_string() { " · decide before it expires " (ago(time(proposal, "expires_at"), now)) }
                @if !proposal["target"].is_null() { " · about " b { (shown(proposal["target"].as_str().unwrap_or("an object"))) } }
                @if let Some(revision) = revision(proposal) { " at " code { (shown(&revision)) } }
            }
            (content(proposal))
            @if let Some(note) = proposal["note"].as_str() { p { "Note: " (shown(note)) } }
            @if let Some(error) = proposal["error"].as_str() { p.alert { (shown(error)) } }
            @if is_open { div.actions { (one(call, id, APPROVE, false)) (one(call, id, REJECT, true)) } }
        }
    }
}

fn one(call: &Call, id: &str, verdict: &str, needs_note: bool) -> Markup {
    let fields = html! {
        input type="hidden" name="proposal" value=(id);
        (note(needs_note))
        button.primary type="submit" name="act" value=(verdict) { (verdict) }
    };
    act(call, "/proposals", verdict, &fields)
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let verdict = form.get("act").filter(|act| [APPROVE, REJECT].contains(act));
    let verdict = verdict.ok_or_else(|| Problem::new(&NOT_FOUND, "a proposal is approved or rejected"))?;
    let chosen = form.all("proposal");
    if chosen.is_empty() {
        return Err(Problem::field(&INVALID_INPUT, "proposal", "choose at least one"));
    }
    let decision = |id: &&str| {
        let mut decision: Map<String, Value> = Map::new();
        decision.insert("proposal_id".into(), (*id).into());
        decision.insert("decision".into(), verdict.into());
        decision.extend(form.get("note").map(|note| ("note".to_owned(), note.into())));
        Value::Object(decision)
    };
    let decisions: Vec<Value> = chosen.iter().map(decision).collect();
    let body = Map::from_iter([("decisions".to_owned(), decisions.into())]);
    let told = tell(&call, "decideProposalsV1", &[], body).await?;
    let refused: Vec<Value> =
        list(&told, "results").iter().filter(|it| it["error"].is_object()).cloned().collect();
    match refused.is_empty() {
        true => Ok(see("/proposals")),
        false => shown_page(&call, &refused).await,
    }
}

/// A text, or a number.
fn revision(proposal: &Value) -> Option<String> {
    match &proposal["base_revision"] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

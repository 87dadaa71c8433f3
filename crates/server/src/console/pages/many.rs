//! One command for many runs: what it would be about and how many those are, which the person types; then how far it is.

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use waypost_kernel::{Phase, Time};
use waypost_store::{Page, RunRow};
use waypost_worker::bulk::{BulkCommand, Progress};

use super::runs;
use crate::answer::{Answer, Result};
use crate::api::bulk::{Counted, count, end_at};
use crate::call::Call;
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{
    ago, button_with_reason, fresh_key, hidden, list, run_link, run_path, shown, state, text, title,
};
use crate::console::{ask, parts, see, session};
use crate::problem::{IDEMPOTENCY_KEY_REUSED, INVALID_INPUT, NOT_FOUND, Problem};

/// Of the runs that it is about, so that it is seen what kind they are.
const SHOWN: usize = 10;

/// What a person chose on the list.
struct Chosen {
    command: String,
    /// All that the filter finds, or those that are named.
    typed: Option<String>,
    ids: Vec<String>,
    /// When they saw it: what came in since is not meant.
    seen_at: Time,
    counted: Counted,
    /// The first ones.
    runs: Vec<RunRow>,
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let chosen = chosen(&call, &form).await?;
    let (key, reason) = (form.get("key"), form.get("reason").unwrap_or_default());
    let Some(typed) = form.get("typed") else { return Ok(confirm(&call, 200, &chosen, None, (key, ""))) };
    if typed.trim() != wanted(&chosen.counted) {
        let wrong = format!("Type {} to go on: that is how many there are.", wanted(&chosen.counted));
        return Ok(confirm(&call, 422, &chosen, Some(&wrong), (key, reason)));
    }
    let mut body = Map::from_iter([("command".to_owned(), json!(chosen.command))]);
    if !reason.is_empty() {
        body.insert("reason".to_owned(), json!(reason));
    }
    match &chosen.typed {
        Some(typed) => {
            let mut filter = runs::filter(&call, typed, chosen.seen_at).await?;
            end_at(&mut filter, chosen.seen_at);
            body.insert("filter".to_owned(), Value::Object(filter.object()));
            if !chosen.counted.is_more {
                body.insert("expected".to_owned(), json!(chosen.counted.count));
            }
        }
        None => {
            body.insert("ids".to_owned(), json!(chosen.ids));
        }
    }
    // Sent twice it is one operation, and who sent it again sees how far that is.
    match ask::make(&call, "commandRuns", &[], body, key).await {
        Ok(made) => Ok(see(&format!("/operations/{}", ask::encoded(text(&made.run, "run_id"))))),
        Err(problem) if problem.status == 409 || problem.status == 422 => {
            let key = key.filter(|_| problem.code != IDEMPOTENCY_KEY_REUSED.code);
            Ok(confirm(&call, problem.status, &chosen, Some(&problem.detail), (key, reason)))
        }
        Err(problem) => Err(problem),
    }
}

async fn chosen(call: &Call, form: &Form) -> Result<Chosen> {
    let command = form.get("command").unwrap_or_default().to_owned();
    if command.is_empty() {
        return Err(Problem::field(&INVALID_INPUT, "command", "is missing: choose what to do"));
    }
    let now = parts::now(call).await?;
    let seen_at = form.get("seen_at").and_then(waypost_store::parse_time).unwrap_or(now).min(now);
    if form.is_ticked("all") {
        let typed = form.get("filter").unwrap_or_default().trim().to_owned();
        let mut filter = runs::filter(call, &typed, seen_at).await?;
        if !filter.is_narrowed() {
            return Err(Problem::field(
                &INVALID_INPUT,
                "filter",
                "is empty: that would be every run; filter the list first",
            ));
        }
        end_at(&mut filter, seen_at);
        let counted = count(call, &filter).await?;
        filter.limit = SHOWN;
        let runs = call.store().runs(filter).await?.runs;
        return Ok(Chosen { command, typed: Some(typed), ids: Vec::new(), seen_at, counted, runs });
    }
    let mut ids: Vec<String> = form.all("run").into_iter().map(str::to_owned).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Err(Problem::field(
            &INVALID_INPUT,
            "run",
            "is missing: tick the runs that are meant, or choose all that match",
        ));
    }
    let mut runs = Vec::new();
    for id in ids.iter().take(SHOWN) {
        runs.push(call.store().run(call.caller.tenant.clone(), id.clone()).await?);
    }
    let counted = Counted { count: ids.len() as u64, is_more: false };
    Ok(Chosen { command, typed: None, ids, seen_at, counted, runs })
}

/// What has to be typed.
fn wanted(counted: &Counted) -> String {
    format!("{}{}", counted.count, if counted.is_more { "+" } else { "" })
}

fn runs_in_words(counted: &Counted) -> String {
    let runs = if counted.count == 1 && !counted.is_more { "run" } else { "runs" };
    format!("{} {runs}", wanted(counted))
}

/// With the key that it is sent under, which is a new one if there is none, and the reason that was typed.
fn confirm(
    call: &Call,
    status: u16,
    chosen: &Chosen,
    wrong: Option<&str>,
    (key, reason): (Option<&str>, &str),
) -> Answer {
    let runs = runs_in_words(&chosen.counted);
    let heading = format!("{} {runs}?", shown(&chosen.command));
    let back = format!("/runs?filter={}", ask::encoded(chosen.typed.as_deref().unwrap_or_default()));
    let content = html! {
        section.card.narrow {
            h1 { (heading) }
            @if let Some(wrong) = wrong { p.alert role="alert" { (shown(wrong)) } }
            @if let Some(typed) = &chosen.typed { p { "All that match " code { (shown(typed)) } " and came in before " (waypost_store::iso(chosen.seen_at)) "." } }
            @if chosen.counted.count == 0 {
                p { "There is none: nothing is done." }
                p { a.button href=(back) { "Back" } }
            } @else {
                ul.plain {
                    @for run in &chosen.runs { li { (state(run)) " " (title(run)) " " code.id { (parts::short(run.id())) } } }
                    @if chosen.counted.count > chosen.runs.len() as u64 { li.hint { "and " (chosen.counted.count - chosen.runs.len() as u64) @if chosen.counted.is_more { " or more" } " others" } }
                }
                p.hint { "Each is asked once. Those that refuse are listed with why, and the others go on." }
                form method="post" action="/runs/bulk" {
                    (hidden(&session::form_token(call)))
                    input type="hidden" name="key" value=(key.map_or_else(fresh_key, str::to_owned));
                    input type="hidden" name="command" value=(chosen.command);
                    input type="hidden" name="seen_at" value=(waypost_store::iso(chosen.seen_at));
                    @match &chosen.typed {
                        Some(typed) => { input type="hidden" name="all" value="yes"; input type="hidden" name="filter" value=(typed); }
                        None => @for id in &chosen.ids { input type="hidden" name="run" value=(id); }
                    }
                    label { "Reason (optional)" input name="reason" maxlength="900" value=(reason) placeholder="why, for each run's log"; }
                    label { "Type " strong { (wanted(&chosen.counted)) } " to confirm"
                        input name="typed" required autocomplete="off" inputmode="numeric" autofocus; }
                    p.actions {
                        button.primary type="submit" { (shown(&chosen.command)) " " (runs) }
                        a.button href=(back) { "Leave them alone" }
                    }
                }
            }
        }
    };
    answered(call, status, &Sheet { title: &heading, nav: Nav::Runs, live: None }, &content)
}

/// How far an operation is.
pub async fn page(call: Call) -> Result {
    let row = call.run().await?;
    let Some(Ok(asked)) = BulkCommand::of(&row) else {
        return Err(Problem::new(&NOT_FOUND, format!("{} is no command for many runs", row.id())));
    };
    let progress = Progress::of(&row.details);
    let now = parts::now(&call).await?;
    let is_over = row.phase() == Phase::Settled;
    let content = html! {
        div #progress data-part {
            h1 { (title(&row)) " " (state(&row)) }
            (bar(&asked, &progress, is_over))
            dl.facts {
                dt { "Reason" } dd { (shown(asked.reason.as_deref().unwrap_or("–"))) }
                dt { "Asked" } dd { (ago(Some(row.run.created_at), now)) }
                @if let Some(failure) = &row.run.failure { dt { "Error" } dd { (shown(&failure.message)) } }
                dt { "Run" } dd { a href=(run_path(row.id())) { "its log and events" } }
            }
            @if !is_over && ask::may(&call, "commandRun") {
                div.actions { (button_with_reason(&call, &format!("{}/cancel", run_path(row.id())), "Stop it")) }
            }
            (refusals(&progress))
        }
        p { a.button href="/runs" { "Runs" } }
    };
    let live = (!is_over).then(|| Live::Run(row.id().to_owned()));
    let heading = title(&row);
    Ok(answered(&call, 200, &Sheet { title: &heading, nav: Nav::Runs, live }, &content))
}

fn bar(asked: &BulkCommand, progress: &Progress, is_over: bool) -> Markup {
    let told = progress.told();
    let left = asked.total.map(|total| total.saturating_sub(told));
    html! {
        progress.wide-bar max=[asked.total.map(|total| total.max(1))] value=[asked.total.map(|_| told)] aria-label="Runs that were asked" {}
        dl.figures {
            div.figure { dt { "Done" } dd { (progress.done) } }
            @if progress.unchanged > 0 { div.figure { dt { "Were so already" } dd { (progress.unchanged) } } }
            div.figure.urgent[progress.refused > 0] { dt { "Refused" } dd { (progress.refused) } }
            @if let Some(left) = left {
                div.figure { dt { @if is_over { "Moved on before" } @else { "Left" } } dd { (left) } }
            }
        }
    }
}

fn refusals(progress: &Progress) -> Markup {
    let report = json!({ "refusals": progress.refusals });
    html! {
        @if !progress.refusals.is_empty() {
            h2 { "Refused" }
            table.list {
                thead { tr { th scope="col" { "Run" } th scope="col" { "Why" } } }
                tbody {
                    @for refusal in list(&report, "refusals") {
                        tr data-row { td { (run_link(text(refusal, "run_id"))) } td.main { code { (shown(text(refusal, "code"))) } " " (shown(text(refusal, "message"))) } }
                    }
                }
            }
            @if progress.refused > progress.refusals.len() as u64 { p.hint { "The others are in its log." } }
        }
    }
}

/// What people may ask of any of these runs, cancelling first.
pub fn commands(found: &Page) -> Vec<String> {
    let of = |run: &RunRow| {
        let people = run.lifecycle.transitions.iter().filter(|it| it.by.any_person() && it.guards.is_empty());
        people.map(|it| it.command.to_string()).collect::<Vec<_>>()
    };
    let mut names: Vec<String> = found.runs.iter().flat_map(of).collect();
    names.sort_unstable_by_key(|name| (name != "cancel", name != "retry", name.clone()));
    names.dedup();
    names
}

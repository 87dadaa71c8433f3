//! One schedule: when it fires, what came of it, and what may be done about it.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::{Outcome, Time};

use super::{lag, warnings};
use crate::answer::Result;
use crate::call::Call;
use crate::console::ask::{ask, encoded, may, tell};
use crate::console::draw::heat::{Fire, heat};
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::pages::queues::PAUSE;
use crate::console::parts::{
    ONE_OPEN, ago, asked, badge_of, button_with_reason, document, hidden, list, next_page, now, outcome_of,
    run_link, shown, text, time,
};
use crate::console::{see, session};
use crate::problem::{NOT_FOUND, Problem};

/// What the page's forms ask for, and the route that does it.
const COMMANDS: [(&str, &str); 4] = [
    ("pause", "pauseSchedule"),
    ("resume", "resumeSchedule"),
    ("trigger", "triggerSchedule"),
    ("backfill", "backfillSchedule"),
];

/// So many of the latest fires are in the calendar.
const CALENDAR: &str = "200";

fn fires(executions: &[Value]) -> Vec<Fire> {
    let fire = |it: &Value| Some(Fire { at: time(it, "plan_time")?, outcome: outcome_of(&it["run"]) });
    executions.iter().filter_map(fire).collect()
}

pub async fn page(call: Call) -> Result {
    let now = now(&call).await?;
    let name = call.path("schedule");
    let cursor = asked(&call, "cursor").unwrap_or_default();
    let path = [("schedule", name.as_str())];
    let schedule = ask(&call, "getSchedule", &path, &[]).await?;
    let next = ask(&call, "nextPlans", &path, &[("count", "5")]).await?;
    let history = ask(&call, "scheduleHistory", &path, &[("cursor", cursor), ("limit", "50")]).await?;
    let calendar = ask(&call, "scheduleHistory", &path, &[("limit", CALENDAR)]).await?;
    let own = format!("/schedules/{}", encoded(&name));
    let content = html! {
        div #head data-part {
            h1 { (shown(&name)) }
            @if let Some(words) = schedule["description"].as_str() { p { (shown(words)) } }
            p { b { (shown(text(&schedule, "when"))) } " " (warnings(&schedule)) }
        }
        div #actions data-part { (actions(&call, &schedule, &own)) }
        div.columns {
            section.card { h2 { "Next fires" }
                ul { @for plan in list(&next, "next") { li { (shown(text(plan, "local"))) " " span.hint { (ago(time(plan, "plan_time"), now)) } } } }
                @if let Some(words) = next["clock_change"].as_str() { p.warn { (shown(words)) } }
            }
            section.card { h2 { "How it goes" }
                dl.facts {
                    dt { "Lag, since the latest plan that succeeded" } dd { (lag(&schedule)) }
                    dt { "Succeeded" } dd { (schedule["succeeded"]) }
                    dt { "Failed for good" } dd { (schedule["failed_unretried"]) }
                    dt { "Under way without a renewed lease" } dd { (schedule["running_stale"]) }
                }
                h3 { "Plans that were not executed" }
                dl.facts { @for (reason, count) in skipped(&schedule) { dt { (shown(&reason.replace('_', " "))) } dd { (count) } } }
            }
        }
        h2 { "Past fires" }
        div #calendar data-part { (heat(&fires(list(&calendar, "executions")))) }
        h3 { "One by one" }
        div #rows data-part { (past(&call, list(&history, "executions"), &own, now)) }
        (next_page(&own, &[], history["next_cursor"].as_str()))
        details { summary { "The definition" } (document(&schedule["definition"])) }
    };
    Ok(answered(&call, 200, &Sheet { title: &name, nav: Nav::Schedules, live: Some(Live::Polled) }, &content))
}

/// Plans that were not executed: how many for which reason.
pub fn skipped(schedule: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schedule["skipped"].as_object().into_iter().flatten()
}

fn actions(call: &Call, schedule: &Value, own: &str) -> Markup {
    if !may(call, "pauseSchedule") {
        return html! {};
    }
    html! {
        div.actions role="group" aria-label="Actions" {
            @if schedule[PAUSE].is_object() { (button_with_reason(call, &format!("{own}/resume"), "resume")) }
            @else { (button_with_reason(call, &format!("{own}/pause"), "pause")) }
            (button_with_reason(call, &format!("{own}/trigger"), "run now"))
            details.act name=(ONE_OPEN) {
                summary.button { "backfill" }
                form method="post" action={ (own) "/backfill" } {
                    (hidden(&session::form_token(call)))
                    label { "From" input name="from" required placeholder="2026-02-14T08:00:00Z"; }
                    label { "To" input name="to" required placeholder="2026-02-15T08:00:00Z"; }
                    label.tick { input type="checkbox" name="again" value="yes"; "plans that failed for good too" }
                    label { "Reason" input name="reason" maxlength="1024"; }
                    button.primary type="submit" { "backfill" }
                }
            }
        }
    }
}

fn past(call: &Call, executions: &[Value], own: &str, now: Time) -> Markup {
    html! {
        @if executions.is_empty() { p.empty { "None yet." } }
        @else {
            table.list {
                thead { tr { th scope="col" { "Plan" } th scope="col" { "State" } th scope="col" { "Run" } th.wide.num scope="col" { "Attempt" } } }
                tbody { @for execution in executions { (execution_line(call, execution, own, now)) } }
            }
        }
    }
}

fn execution_line(call: &Call, execution: &Value, own: &str, now: Time) -> Markup {
    let run = &execution["run"];
    let outcome = outcome_of(run);
    let plan = text(execution, "plan_time");
    html! {
        tr {
            td.when { (ago(time(execution, "plan_time"), now)) @if let Some(manual) = execution["manual"].as_str() { " " span.hint { (shown(manual)) } } }
            td { @match badge_of(run) { Some(badge) => (badge), None => span.hint { "has not begun" } } }
            td.main { @if run.is_object() { (run_link(text(run, "run_id"))) }
                @if let Some(words) = run["error_msg"].as_str() { span.why { (shown(words)) } }
                @if outcome == Some(Outcome::Failed) && may(call, "backfillSchedule") {
                    form.inline method="post" action={ (own) "/backfill" } {
                        (hidden(&session::form_token(call)))
                        input type="hidden" name="plan" value=(plan);
                        input type="hidden" name="again" value="yes";
                        button type="submit" { "execute again" }
                    }
                }
            }
            td.wide.num { (execution["attempt"]) " of " (execution["max_attempts"]) }
        }
    }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let command = call.path("command");
    let route = COMMANDS.iter().find(|(name, _)| *name == command).map(|(_, route)| *route);
    let route = route.ok_or_else(|| Problem::new(&NOT_FOUND, "a schedule has no such command"))?;
    let mut body: Map<String, Value> = Map::new();
    for name in ["reason", "from", "to"] {
        if let Some(given) = form.get(name) {
            body.insert(name.into(), given.into());
        }
    }
    if let Some(plan) = form.get("plan") {
        body.insert("plan_times".into(), vec![Value::from(plan)].into());
    }
    if form.is_ticked("again") {
        body.insert("again".into(), true.into());
    }
    let name = call.path("schedule");
    tell(&call, route, &[("schedule", &name)], body).await?;
    Ok(see(&format!("/schedules/{}", encoded(&name))))
}

//! Targets that failed and that nobody gave up, by why: retried or given up a class at a time, or several.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::Time;

use crate::answer::{Answer, Result};
use crate::call::Call;
use crate::console::ask::{ask, encoded, may, tell};
use crate::console::form::Form;
use crate::console::layout::{Live, Nav, Sheet, answered};
use crate::console::parts::{
    ONE_OPEN, act, ago, asked, empty, figure, hidden, list, now, pick, reason, run_link, run_path, shown,
    text, time,
};
use crate::console::{see, session};
use crate::problem::{INVALID_INPUT, NOT_FOUND, Problem};

const CHOSEN: &str = "chosen";
const CLASS: &str = "class";

pub async fn page(call: Call) -> Result {
    let run = asked(&call, "run_id").unwrap_or_default().to_owned();
    shown_page(&call, &run, &[]).await
}

/// `refused`: runs that would not be retried.
async fn shown_page(call: &Call, run: &str, refused: &[Value]) -> Result<Answer> {
    let now = now(call).await?;
    let found = ask(call, "listDeadLetters", &[], &[("run_id", run)]).await?;
    let classes = list(&found, "classes");
    let content = html! {
        h1 { "Dead letters" }
        p.hint { "Targets of bulk changes that failed and were not given up, by class, the class with the oldest first." }
        @if !run.is_empty() { p.chips { span.chip { "only of " (run_link(run)) } a.chip href="/dlq" { "of all runs" } } }
        (not_done(refused))
        div #rows data-part {
            @if classes.is_empty() { (empty("No target failed for good.", None)) }
            @else {
                dl.figures.few {
                    (figure("Targets", &html! { (found["total"]) }, true))
                    (figure("Classes", &html! { (classes.len()) }, false))
                }
                (table(call, classes, run, now))
            }
        }
    };
    let sheet = Sheet { title: "Dead letters", nav: Nav::DeadLetters, live: Some(Live::Polled) };
    Ok(answered(call, 200, &sheet, &content))
}

fn table(call: &Call, classes: &[Value], run: &str, now: Time) -> Markup {
    let may_act = may(call, "retryDeadLetters");
    html! {
        @if may_act { (with_chosen(call, run)) }
        table.list {
            thead { tr {
                @if may_act { th scope="col" { span.unseen { "Choose" } } }
                th scope="col" { "Class" } th.num scope="col" { "Targets" } th scope="col" { "Oldest" } th scope="col" { "For example" }
                @if may_act { th scope="col" { span.unseen { "Actions" } } }
            } }
            tbody { @for class in classes { (line(call, class, run, may_act, now)) } }
        }
    }
}

fn with_chosen(call: &Call, run: &str) -> Markup {
    html! {
        div.actions {
            details.act name=(ONE_OPEN) {
                summary.button { "With the chosen classes" }
                form #(CHOSEN) method="post" action="/dlq" {
                    (hidden(&session::form_token(call)))
                    input type="hidden" name="run_id" value=(run);
                    (reason(false))
                    p.hint { "Who gives them up says why." }
                    div.actions {
                        button.primary type="submit" name="act" value="retry" { "Retry" }
                        button type="submit" name="act" value="discard" { "Discard" }
                    }
                }
            }
        }
    }
}

fn line(call: &Call, class: &Value, run: &str, may_act: bool, now: Time) -> Markup {
    let code = text(class, "error_code");
    let sample = text(class, "run_id");
    let same = format!("{}?tab=items&class={}#tab", run_path(sample), encoded(code));
    html! {
        tr data-row {
            @if may_act { td { (pick(CHOSEN, CLASS, code, &format!("choose {}", shown(code)))) } }
            td { code { (shown(code)) } }
            td.num { (class["count"]) }
            td { (ago(time(class, "oldest_at"), now)) }
            td.main {
                b { (shown(text(class, "key"))) } " of " (run_link(sample)) " " a href=(same) { "the others of this run" }
                span.why { (shown(text(class, "error_msg"))) }
                span.advice { (shown(text(class, "advice"))) }
            }
            @if may_act {
                td { div.actions {
                    (one(call, class, run, "retry", false))
                    (one(call, class, run, "discard", true))
                } }
            }
        }
    }
}

fn one(call: &Call, class: &Value, run: &str, command: &str, needs_reason: bool) -> Markup {
    let words = match class["count"].as_u64() {
        Some(1) => format!("{command} it"),
        _ => format!("{command} {} targets", class["count"]),
    };
    let fields = html! {
        input type="hidden" name="run_id" value=(run);
        input type="hidden" name=(CLASS) value=(text(class, "error_code"));
        (reason(needs_reason))
        button.primary type="submit" name="act" value=(command) { (words) }
    };
    act(call, "/dlq", command, &fields)
}

fn not_done(refused: &[Value]) -> Markup {
    html! {
        @if !refused.is_empty() {
            div.alert role="alert" {
                p { "Of these runs nothing was done:" }
                ul { @for run in refused.iter().take(20) { li { (run_link(text(run, "run_id"))) ": " (shown(text(run, "refused"))) } } }
                @if refused.len() > 20 { p { "and " (refused.len() - 20) " more" } }
            }
        }
    }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let route = match form.get("act") {
        Some("retry") => "retryDeadLetters",
        Some("discard") => "discardDeadLetters",
        _ => return Err(Problem::new(&NOT_FOUND, "dead letters are retried or discarded")),
    };
    let classes = form.all(CLASS);
    if classes.is_empty() {
        return Err(Problem::field(&INVALID_INPUT, CLASS, "choose at least one"));
    }
    let run = form.get("run_id");
    let mut refused = Vec::new();
    for class in classes {
        let mut body: Map<String, Value> = Map::from_iter([("error_code".to_owned(), class.into())]);
        body.extend(run.map(|run| ("run_id".to_owned(), run.into())));
        body.extend(form.get("reason").map(|reason| ("reason".to_owned(), reason.into())));
        let told = tell(&call, route, &[], body).await?;
        refused.extend(list(&told, "runs").iter().filter(|run| run["refused"].is_string()).cloned());
    }
    let run = run.unwrap_or_default();
    if !refused.is_empty() {
        return shown_page(&call, run, &refused).await;
    }
    Ok(see(&if run.is_empty() { "/dlq".to_owned() } else { format!("/dlq?run_id={}", encoded(run)) }))
}

//! What a run asks people, and a form to answer it: questions of its steps, and things that block it, one by one or many at once.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::Time;
use waypost_kernel::guard::Guard;
use waypost_store::{RunRow, answer_by};
use waypost_worker::blockers_in_words;

use crate::call::Call;
use crate::console::form::Form;
use crate::console::parts::{ago, hidden, run_path, shown};
use crate::console::{ask, session};

const ONE: &str = "decision.";
const OTHERS: &str = "others";

/// The command that hands in decisions, as this lifecycle calls it.
pub fn command(row: &RunRow) -> Option<&str> {
    let mut edges = row.lifecycle.transitions_from(row.run.state);
    let edge = edges.find(|it| it.by.any_person() && it.guards.contains(&Guard::ResolvedOrForced));
    edge.map(|it| &*it.command)
}

pub fn form(call: &Call, row: &RunRow, now: Time) -> Markup {
    let (open, Some(command)) = (row.undecided(), command(row)) else { return html! {} };
    let open: Vec<(&str, &Value)> =
        open.into_iter().filter(|(_, about)| answer_by(about).is_none_or(|until| until > now)).collect();
    if open.is_empty() {
        return html! {};
    }
    if !ask::may(call, "commandRun") {
        return html! { div.card { @for (subject, about) in &open { h3 { (question(subject, about)) } (more(subject, about, now)) } } };
    }
    let shared = choices(open[0].1);
    let is_shared =
        open.len() > 1 && open.iter().all(|(_, about)| choices(about) == shared) && !shared.is_empty();
    html! {
        form.card.decide method="post" action={ (run_path(row.id())) "/" (ask::encoded(command)) } {
            (hidden(&session::form_token(call)))
            @for (subject, about) in &open {
                fieldset {
                    legend { (question(subject, about)) }
                    (more(subject, about, now))
                    @let choices = choices(about);
                    @if choices.is_empty() {
                        label { "Decision" input name={ (ONE) (subject) } maxlength="255"; }
                    }
                    @for choice in &choices {
                        label.tick { input type="radio" name={ (ONE) (subject) } value=(choice) required[open.len() == 1]; (in_words(choice)) }
                    }
                }
            }
            @if is_shared {
                label { "All others" select name=(OTHERS) {
                    option value="" { "decide later" }
                    @for choice in &shared { option value=(choice) { (in_words(choice)) } }
                } }
            }
            label { "Reason (optional)" input name="reason" maxlength="1024" placeholder="why, for the log"; }
            button.primary type="submit" { (if open.len() == 1 { "Answer" } else { "Save decisions" }) }
        }
    }
}

/// What a step asks, or what is blocked.
fn question<'a>(subject: &'a str, about: &'a Value) -> Markup {
    html! { b { (shown(about["ask"].as_str().unwrap_or(subject))) } }
}

/// What else is known: which step asks, until when, and what blocks it.
fn more(subject: &str, about: &Value, now: Time) -> Markup {
    let lines = blockers_in_words(about);
    let asker = about["ask"].as_str().filter(|asked| *asked != subject).map(|_| subject);
    let until = answer_by(about);
    html! {
        @if asker.is_some() || until.is_some() {
            p.hint {
                @if let Some(asker) = asker { "asked by " (shown(asker)) " " }
                @if let Some(until) = until { "answer " (ago(Some(until), now)) }
            }
        }
        @if !lines.is_empty() { ul.blockers { @for line in &lines { li { (shown(line)) } } } }
    }
}

/// `power_off` is a word for programs.
fn in_words(choice: &str) -> String {
    shown(&choice.replace('_', " "))
}

fn choices(about: &Value) -> Vec<&str> {
    about["choices"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// What a form decides: each by itself, and the others together.
pub fn given(row: &RunRow, form: &Form) -> Map<String, Value> {
    let decided = |decision: &str| Value::from(decision);
    let mut given: Map<String, Value> =
        form.under(ONE).map(|(subject, decision)| (subject.to_owned(), decided(decision))).collect();
    if let Some(others) = form.get(OTHERS) {
        for (subject, _) in row.undecided() {
            given.entry(subject).or_insert_with(|| decided(others));
        }
    }
    given
}

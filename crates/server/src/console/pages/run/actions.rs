//! What a person may do to a run: the commands of its lifecycle, and why those that are not open are not.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::guard::Guard;
use waypost_kernel::lifecycle::Transition;
use waypost_kernel::run::Want;
use waypost_kernel::{Phase, allowed};
use waypost_store::RunRow;
use waypost_worker::proposals::follows_proposal;

use crate::answer::Result;
use crate::call::Call;
use crate::console::form::Form;
use crate::console::pages::people::decisions;
use crate::console::parts::{ONE_OPEN, closed_button, hidden, run_path, shown};
use crate::console::{ask, see, session};
use crate::guard::Role;

/// Who may do nothing is shown nothing.
pub fn bar(call: &Call, row: &RunRow) -> Markup {
    shown_bar(call, row, true)
}

/// What may be done now, and nothing else.
pub fn open(call: &Call, row: &RunRow) -> Markup {
    shown_bar(call, row, false)
}

fn shown_bar(call: &Call, row: &RunRow, with_closed: bool) -> Markup {
    if !ask::may(call, "commandRun") {
        return html! {};
    }
    if follows_proposal(row) && row.phase() == Phase::Draft {
        return html! { p.waits { "It is decided with its proposal: " a href="/proposals" { "Proposals" } "." } };
    }
    let open = allowed(&row.lifecycle, &row.run);
    let answers = decisions::command(row).filter(|_| !row.undecided().is_empty());
    let path = run_path(row.id());
    html! {
        div.actions role="group" aria-label="Actions" {
            @for command in commands(row) {
                // What answers a question has its form below.
                @if answers == Some(command) {}
                @else if open.iter().any(|name| **name == *command) { (form(call, row, command)) }
                @else if with_closed { (closed_button(&shown(command), &closed(row, command))) }
            }
            @if row.phase() == Phase::Settled { (again(call, row, &path)) }
        }
    }
}

/// People's, in the order of the lifecycle's table.
fn commands(row: &RunRow) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for transition in row.lifecycle.transitions.iter().filter(|it| it.by.any_person()) {
        if !names.contains(&&*transition.command) {
            names.push(&transition.command);
        }
    }
    // What is carried out by a run of its own.
    names.extend(row.lifecycle.operations.iter().map(|(name, _)| &**name));
    names
}

fn from_here<'r>(row: &'r RunRow, command: &'r str) -> impl Iterator<Item = &'r Transition> {
    let edges = row.lifecycle.transitions_from(row.run.state);
    edges.filter(move |it| it.by.any_person() && *it.command == *command)
}

/// Why it cannot be asked for now.
pub fn closed(row: &RunRow, command: &str) -> String {
    if row.run.intent.as_ref().is_some_and(|intent| intent.want.command() == command) {
        return "It was asked for already, and is under way.".to_owned();
    }
    let guards: Vec<&str> =
        from_here(row, command).flat_map(|it| &it.guards).map(|guard| guard.meaning()).collect();
    if !guards.is_empty() {
        return format!("It needs that {}.", guards.join(", and that "));
    }
    if let Some((_, states)) = row.lifecycle.operations.iter().find(|(name, _)| **name == *command) {
        if row.run.operating {
            return "Another operation is under way.".to_owned();
        }
        let states: Vec<&str> = states.iter().map(|state| &*row.lifecycle.state(*state).name).collect();
        return format!("It is for runs that are {}; this one is {}.", states.join(" or "), row.status());
    }
    let states = row.lifecycle.transitions.iter().filter(|it| it.by.any_person() && *it.command == *command);
    let mut states: Vec<&str> = states.map(|it| &*row.lifecycle.state(it.from).name).collect();
    states.dedup();
    format!("It is for runs that are {}; this one is {}.", states.join(" or "), row.status())
}

fn form(call: &Call, row: &RunRow, command: &str) -> Markup {
    let needs = |guard: Guard| from_here(row, command).any(|it| it.guards.contains(&guard));
    let may_wait =
        command == Want::Cancel.command() && row.phase() == Phase::Held && !row.run.tallies.is_empty();
    html! {
        details.act name=(ONE_OPEN) {
            summary.button { (shown(command)) }
            form method="post" action={ (run_path(row.id())) "/" (ask::encoded(command)) } {
                (hidden(&session::form_token(call)))
                label { "Reason" @if !needs(Guard::HasReason) { " (optional)" }
                    input name="reason" maxlength="1024" required[needs(Guard::HasReason)] placeholder="why, for the log"; }
                @if may_wait { label.tick { input type="checkbox" name="graceful" value="yes"; "after the step that is under way" } }
                @if needs(Guard::ResolvedOrForced) { label.tick { input type="checkbox" name="force" value="yes"; "without decisions" } }
                button.primary type="submit" { (shown(command)) }
            }
        }
    }
}

fn again(call: &Call, row: &RunRow, path: &str) -> Markup {
    html! {
        @if row.carried.is_some() && call.caller.role != Role::Admin {
            (closed_button("replay", "The run brought its command along: to repeat it needs the role admin."))
        } @else if ask::may(call, "replayRun") {
            a.button href={ (path) "/replay" } { "replay" }
        }
    }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let mut body: Map<String, Value> = Map::new();
    if let Some(reason) = form.get("reason") {
        body.insert("reason".into(), reason.into());
    }
    for flag in ["graceful", "force"] {
        body.insert(flag.into(), form.is_ticked(flag).into());
    }
    let row = call.run().await?;
    let resolutions = decisions::given(&row, &form);
    if !resolutions.is_empty() {
        body.insert("resolutions".into(), resolutions.into());
    }
    let (run_id, command) = (row.id().to_owned(), call.path("command"));
    ask::tell(&call, "commandRun", &[("run_id", &run_id), ("command", &command)], body).await?;
    Ok(see(&run_path(&run_id)))
}

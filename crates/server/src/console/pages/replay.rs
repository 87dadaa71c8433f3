//! A run again: all of it, with another input if one likes; or from a step on.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_store::{PLACEHOLDER, RunRow};

use crate::answer::{Answer, Result};
use crate::call::Call;
use crate::console::ask::{Made, ask, make, may};
use crate::console::form::Form;
use crate::console::layout::{Nav, Sheet, answered};
use crate::console::parts::{self, hidden, list, run_path, shown, text};
use crate::console::{see, session};
use crate::guard::Role;
use crate::problem::{INVALID_INPUT, Problem};

pub async fn page(call: Call) -> Result {
    let row = call.run().await?;
    // Who may not send the form is shown none.
    if !may(&call, "replayRun") || row.carried.is_some() && call.caller.role != Role::Admin {
        return Ok(see(&run_path(row.id())));
    }
    shown_page(&call, 200, &row, None, None).await
}

async fn shown_page(
    call: &Call,
    status: u16,
    row: &RunRow,
    input: Option<&str>,
    wrong: Option<&str>,
) -> Result<Answer> {
    let kind = row.lifecycle.items.first().map_or("", |kind| &kind.name);
    let items = match kind {
        "" => Value::Null,
        kind => ask(call, "listItems", &[("run_id", row.id())], &[("kind", kind), ("limit", "200")]).await?,
    };
    let steps: Vec<&Value> =
        list(&items, "items").iter().filter(|item| text(item, "key") != PLACEHOLDER).collect();
    let written = seen(&serde_json::to_string_pretty(&*row.input).unwrap_or_default());
    let content = html! {
        h1 { "Replay " (parts::title(row)) }
        p { "A new run like " (parts::run_link(row.id())) ", which stays as it is." }
        @if let Some(wrong) = wrong { p.alert role="alert" { (shown(wrong)) } }
        (form(call, row, &steps, input.unwrap_or(&written)))
    };
    Ok(answered(call, status, &Sheet { title: "Replay", nav: Nav::Runs, live: None }, &content))
}

/// JSON in which what is unseen is spelt out, so that it can be read and sent back.
fn seen(json: &str) -> String {
    let mut seen = String::with_capacity(json.len());
    for letter in json.chars() {
        let own = letter.to_string();
        if letter == '\n' || shown(&own) == own {
            seen.push(letter);
        } else {
            seen.extend(letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    seen
}

fn form(call: &Call, row: &RunRow, steps: &[&Value], input: &str) -> Markup {
    html! {
        form.card method="post" action={ (run_path(row.id())) "/replay" } {
            (hidden(&session::form_token(call)))
            input type="hidden" name="key" value=(parts::fresh_key());
            fieldset {
                legend { "What to do again" }
                label.tick { input type="radio" name="what" value="all" checked; "all of it" }
                @if !steps.is_empty() {
                    label.tick { input type="radio" name="what" value="failed"; "what did not complete" }
                    label.tick { input type="radio" name="what" value="from"; "from this step on "
                        select name="from" aria-label="Step" {
                            @for step in steps { option value=(text(step, "key")) { (shown(text(step, "name"))) } }
                        }
                    }
                }
            }
            label { "Input" span.hint { " of all of it; with a step it stays as it was" }
                textarea name="input" rows="10" spellcheck="false" { (input) } }
            button.primary type="submit" { "Replay" }
        }
    }
}

fn body(row: &RunRow, form: &Form) -> Result<Map<String, Value>> {
    let mut body = Map::new();
    match form.get("what") {
        Some("failed") => drop(body.insert("failed".into(), true.into())),
        Some("from") => drop(body.insert("from".into(), form.get("from").unwrap_or_default().into())),
        _ => {
            let text = form.get("input").unwrap_or("{}");
            let input: Value = serde_json::from_str(text)
                .map_err(|error| Problem::field(&INVALID_INPUT, "input", &format!("is no JSON: {error}")))?;
            if input != *row.input {
                body.insert("input".into(), input);
            }
        }
    }
    Ok(body)
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let row = call.run().await?;
    let made = async {
        make(&call, "replayRun", &[("run_id", row.id())], body(&row, &form)?, form.get("key")).await
    };
    match made.await {
        Ok(Made { run, is_known: false }) => Ok(see(&run_path(text(&run, "run_id")))),
        // Whoever goes back and sends it again means another run, or does not know that there is one.
        Ok(Made { run, .. }) => {
            let words = format!(
                "This form was sent before: it made {}. Replay makes another run.",
                text(&run, "run_id")
            );
            shown_page(&call, 200, &row, form.get("input"), Some(&words)).await
        }
        Err(problem) if problem.status == 422 || problem.status == 409 => {
            shown_page(&call, problem.status, &row, form.get("input"), Some(&problem.detail)).await
        }
        Err(problem) => Err(problem),
    }
}

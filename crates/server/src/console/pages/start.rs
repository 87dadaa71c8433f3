//! One playbook: what it does, and a form that starts a run of it.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::text::shell_word;

use crate::answer::{Answer, Result};
use crate::call::Call;
use crate::console::ask::{self, ask, encoded, tell};
use crate::console::form::Form;
use crate::console::layout::{Nav, Sheet, answered};
use crate::console::parts::{document, excerpt, hidden, list, run_path, shown, text};
use crate::console::{see, session};
use crate::problem::{INVALID_INPUT, Problem};

const INPUT: &str = "input.";
/// Of what a step does, if it is no command.
const MOST_SHOWN: usize = 2_000;

/// What is shown beside the form: what was wrong with it, or what would come of it.
enum Told {
    Nothing,
    Wrong(String),
    Preview(Value),
}

pub async fn page(call: Call) -> Result {
    let playbook = ask(&call, "getPlaybook", &[("name", &call.path("name"))], &[]).await?;
    Ok(shown_page(&call, 200, &playbook, &|_| None, &Told::Nothing))
}

fn shown_page(
    call: &Call,
    status: u16,
    playbook: &Value,
    given: &dyn Fn(&str) -> Option<String>,
    told: &Told,
) -> Answer {
    let name = text(playbook, "name");
    let content = html! {
        h1 { (shown(name)) }
        @if let Some(words) = playbook["description"].as_str() { p { (shown(words)) } }
        dl.facts {
            dt { "Lifecycle" } dd { (shown(text(playbook, "lifecycle"))) }
            @if let Some(queue) = playbook["queue"].as_str() { dt { "Queue" } dd { (shown(queue)) } }
            dt { "File" } dd { code { (shown(text(playbook, "file"))) } }
        }
        @match told {
            Told::Wrong(words) => p.alert role="alert" { (shown(words)) },
            Told::Preview(preview) => section.card role="status" { h2 { "It would do this" } (document(preview)) },
            Told::Nothing => {}
        }
        @if ask::may(call, "startRun") { (form(call, playbook, given)) }
        h2 { "Steps" }
        (steps(list(playbook, "steps")))
        details { summary { "The file" } pre.json tabindex="0" { (shown(text(playbook, "text"))) } }
    };
    answered(call, status, &Sheet { title: name, nav: Nav::Playbooks, live: None }, &content)
}

/// What it does, in order; everything about them is in the file.
fn steps(steps: &[Value]) -> Markup {
    html! {
        table.list {
            thead { tr { th scope="col" { "Step" } th scope="col" { "What it does" } th.wide.num scope="col" { "Tries" } th.wide scope="col" { "Time limit" } } }
            tbody {
                @for step in steps {
                    tr {
                        td { b { (shown(text(step, "name"))) } @if !["", "step"].contains(&text(step, "kind")) { " " span.hint { (shown(text(step, "kind"))) } } }
                        td.main { (does(step)) }
                        td.wide.num { (step["retries"].as_u64().unwrap_or(0) + 1) }
                        td.wide { @match step["timeout"].as_str() { Some(limit) => (shown(limit)), None => span.none { "–" } } }
                    }
                }
            }
        }
    }
}

/// A command as it would be typed, a question as it is asked, a request with its method and address; anything else as it is declared.
fn does(step: &Value) -> Markup {
    let does = &step["does"];
    let words = does["exec"].as_array();
    let command = words
        .map(|words| words.iter().filter_map(Value::as_str).map(shell_word).collect::<Vec<_>>().join(" "));
    html! {
        @match (command, does["ask"].as_str()) {
            (Some(command), _) => code.command { (shown(&command)) },
            (_, Some(question)) => { "asks: " (shown(question)) " " span.hint { (choices(does)) } },
            _ if does["http"].is_object() => { code.command { (shown(text(&does["http"], "method"))) " " (shown(text(&does["http"], "url"))) } @if does["http"]["has_body"] == true { " " span.hint { "with a body" } } },
            _ if does["output"] == true => { "gives what it makes of " (used(step)) },
            _ => (excerpt(does, MOST_SHOWN)),
        }
    }
}

/// Whose outputs a step is made of; how is in the file.
fn used(step: &Value) -> String {
    let steps: Vec<String> =
        list(step, "needs_output_of").iter().filter_map(Value::as_str).map(shown).collect();
    if steps.is_empty() { "its inputs".to_owned() } else { steps.join(", ") }
}

fn choices(does: &Value) -> String {
    list(does, "choices").iter().filter_map(Value::as_str).map(shown).collect::<Vec<_>>().join(" / ")
}

fn form(call: &Call, playbook: &Value, given: &dyn Fn(&str) -> Option<String>) -> Markup {
    let key = given("key").unwrap_or_else(|| format!("console-{}", uuid::Uuid::now_v7().simple()));
    html! {
        form.card method="post" action={ "/playbooks/" (encoded(text(playbook, "name"))) } {
            h2 { "Start a run" }
            (hidden(&session::form_token(call)))
            // Sent twice, it is still one run.
            input type="hidden" name="key" value=(key);
            @for input in list(playbook, "inputs") { (field(input, given(&format!("{INPUT}{}", text(input, "name"))))) }
            div.actions {
                button.primary type="submit" { "Start" }
                button type="submit" name="act" value="preview" formnovalidate { "Preview" }
            }
        }
    }
}

fn field(input: &Value, given: Option<String>) -> Markup {
    let (name, kind) = (text(input, "name"), text(input, "type"));
    let is_needed = input["required"] == true;
    let default = match &input["default"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_secret = input["secret"] == true;
    let value = given.unwrap_or(if is_secret { String::new() } else { default });
    let wire = format!("{INPUT}{name}");
    html! {
        label {
            span { (shown(name)) @if !is_needed { span.hint { " (optional)" } } }
            @match kind {
                "boolean" => select name=(wire) {
                    option value="" { "as the playbook says" }
                    @for choice in ["true", "false"] { option value=(choice) selected[value == choice] { (choice) } }
                },
                "list" | "object" => textarea name=(wire) rows="4" required[is_needed] spellcheck="false" placeholder="JSON" { (value) },
                "number" => input name=(wire) inputmode="decimal" value=(value) required[is_needed];,
                _ if is_secret => input type="password" name=(wire) required[is_needed] autocomplete="off";,
                _ => input name=(wire) value=(value) required[is_needed] autocomplete="off";,
            }
            @if let Some(words) = input["description"].as_str() { span.hint { (shown(words)) } }
        }
    }
}

/// Texts of a form as the playbook's types. What cannot be read is named as the API would name it.
fn inputs(playbook: &Value, form: &Form) -> Result<Map<String, Value>> {
    let mut inputs = Map::new();
    for (name, given) in form.under(INPUT) {
        let declared = list(playbook, "inputs").iter().find(|input| text(input, "name") == name);
        let value = match declared.map_or("", |input| text(input, "type")) {
            "boolean" | "number" | "list" | "object" => serde_json::from_str(given).map_err(|error| {
                Problem::field(&INVALID_INPUT, &format!("input.{name}"), &format!("is no JSON: {error}"))
            })?,
            _ => Value::from(given),
        };
        inputs.insert(name.to_owned(), value);
    }
    Ok(inputs)
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let playbook = ask(&call, "getPlaybook", &[("name", &call.path("name"))], &[]).await?;
    let is_preview = form.get("act") == Some("preview");
    let asked_for = async {
        let mut body = Map::new();
        body.insert("playbook".into(), call.path("name").into());
        body.insert("input".into(), inputs(&playbook, &form)?.into());
        if let Some(key) = form.get("key").filter(|_| !is_preview) {
            body.insert("idempotency_key".into(), key.into());
        }
        tell(&call, if is_preview { "previewRun" } else { "startRun" }, &[], body).await
    };
    let given = |name: &str| form.get(name).map(str::to_owned);
    match asked_for.await {
        Ok(preview) if is_preview => Ok(shown_page(&call, 200, &playbook, &given, &Told::Preview(preview))),
        Ok(run) => Ok(see(&run_path(text(&run, "run_id")))),
        Err(problem) if (400..500).contains(&problem.status) => {
            Ok(shown_page(&call, problem.status, &playbook, &given, &Told::Wrong(problem.detail)))
        }
        Err(problem) => Err(problem),
    }
}

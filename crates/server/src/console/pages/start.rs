//! One playbook: what it does, and a form that starts a run of it.

use maud::{Markup, html};
use serde_json::{Map, Value};
use waypost_kernel::text::shell_word;

use crate::answer::{self, Answer, Result};
use crate::call::Call;
use crate::console::ask::{self, Made, ask, encoded, make, tell};
use crate::console::form::Form;
use crate::console::layout::{Nav, Sheet, answered};
use crate::console::parts::{document, excerpt, fresh_key, hidden, list, run_link, run_path, shown, text};
use crate::console::{see, session};
use crate::problem::{IDEMPOTENCY_KEY_REUSED, Problem};

const INPUT: &str = "input.";
/// Of what a step does, if it is no command.
const MOST_SHOWN: usize = 2_000;

/// What is shown beside the form: what was wrong with it, or what would come of it.
enum Told {
    Nothing,
    Wrong(Vec<String>),
    Preview(Value),
    /// It was sent before, and made this run.
    Known(String),
}

pub async fn page(call: Call) -> Result {
    let playbook = ask(&call, "getPlaybook", &[("name", &call.path("name"))], &[]).await?;
    Ok(shown_page(&call, 200, &playbook, &Filled::default(), &Told::Nothing))
}

/// What stands in the form.
#[derive(Default)]
struct Filled<'f> {
    form: Option<&'f Form>,
    /// Under which it is sent; a new one if there is none.
    key: Option<&'f str>,
}

impl Filled<'_> {
    /// What was typed, if the form was sent: nothing, where it was emptied.
    fn typed(&self, name: &str) -> Option<&str> {
        let form = self.form?;
        form.get(name).or_else(|| form.is_emptied(name).then_some(""))
    }
}

fn shown_page(call: &Call, status: u16, playbook: &Value, filled: &Filled<'_>, told: &Told) -> Answer {
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
            Told::Wrong(words) => @for words in words { p.alert role="alert" { (shown(words)) } },
            Told::Preview(preview) => section.card role="status" { h2 { "It would do this" } (document(preview)) },
            Told::Known(run) => p.waits role="status" { "This form was sent before: it started " (run_link(run)) ". Start starts another run like it." },
            Told::Nothing => {}
        }
        @if ask::may(call, "startRun") { (form(call, playbook, filled)) }
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

fn form(call: &Call, playbook: &Value, filled: &Filled<'_>) -> Markup {
    html! {
        form.card method="post" action={ "/playbooks/" (encoded(text(playbook, "name"))) } {
            h2 { "Start a run" }
            (hidden(&session::form_token(call)))
            // Sent twice, it is still one run.
            input type="hidden" name="key" value=(filled.key.map_or_else(fresh_key, str::to_owned));
            @for input in list(playbook, "inputs") { (field(input, filled.typed(&wire(input)))) }
            div.actions {
                button.primary type="submit" { "Start" }
                button type="submit" name="act" value="preview" formnovalidate { "Preview" }
            }
        }
    }
}

/// What an input's field is called.
fn wire(input: &Value) -> String {
    format!("{INPUT}{}", text(input, "name"))
}

fn default_of(input: &Value) -> Option<String> {
    match &input["default"] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn field(input: &Value, typed: Option<&str>) -> Markup {
    let (name, kind) = (text(input, "name"), text(input, "type"));
    let is_needed = input["required"] == true;
    let is_secret = input["secret"] == true;
    // No page has a secret in it: one that was typed is asked for again, or the run would go without.
    let is_typed_again = is_secret && typed.is_some_and(|typed| !typed.is_empty());
    let value = match typed {
        _ if is_secret => String::new(),
        Some(typed) => typed.to_owned(),
        None => default_of(input).unwrap_or_default(),
    };
    let wire = wire(input);
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
                _ if is_secret => input type="password" name=(wire) required[is_needed || is_typed_again] autocomplete="off";,
                _ => input name=(wire) value=(value) required[is_needed] autocomplete="off";,
            }
            @if is_typed_again { span.warn { "Type it again: a secret is not sent back to the page." } }
            @if let Some(words) = input["description"].as_str() { span.hint { (shown(words)) } }
        }
    }
}

/// Texts of a form as the playbook's types, or all that is wrong with them.
fn inputs(playbook: &Value, form: &Form) -> std::result::Result<Map<String, Value>, Vec<String>> {
    let (mut inputs, mut wrong) = (Map::new(), Vec::new());
    for input in list(playbook, "inputs") {
        let (name, kind) = (text(input, "name"), text(input, "type"));
        match form.get(&wire(input)) {
            Some(given) => match value(kind, given) {
                Ok(value) => drop(inputs.insert(name.to_owned(), value)),
                Err(words) => wrong.push(format!("{name}: {words}")),
            },
            // What one emptied is not to be what stood there.
            None if form.is_emptied(&wire(input)) && input["secret"] != true => {
                match (kind, default_of(input)) {
                    ("boolean", _) | (_, None) if input["required"] != true => {}
                    (_, None) => wrong.push(format!("{name}: is missing")),
                    ("number" | "list" | "object", Some(default)) => {
                        wrong.push(format!("{name}: is empty; leave it at {default}, or type another value"));
                    }
                    _ => drop(inputs.insert(name.to_owned(), "".into())),
                }
            }
            None => {}
        }
    }
    if wrong.is_empty() { Ok(inputs) } else { Err(wrong) }
}

fn value(kind: &str, given: &str) -> std::result::Result<Value, String> {
    let read = serde_json::from_str::<Value>(given.trim());
    match (kind, read) {
        ("number", Ok(value)) if value.is_number() => Ok(value),
        ("number", _) => Err(format!("{given} is no number")),
        ("list", Ok(value)) if value.is_array() => Ok(value),
        ("list", Ok(_)) => Err("is no list in JSON: [\"a\", \"b\"]".to_owned()),
        ("object", Ok(value)) if value.is_object() => Ok(value),
        ("object", Ok(_)) => Err("is no object in JSON: {\"a\": 1}".to_owned()),
        ("boolean", Ok(value)) => Ok(value),
        ("list" | "object" | "boolean", Err(error)) => Err(format!("is no JSON: {error}")),
        _ => Ok(Value::from(given)),
    }
}

/// All that the API says is wrong, each by its field.
fn wrongs(problem: &Problem) -> Vec<String> {
    let errors = problem.more.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let words = |error: &Value| {
        let field = text(error, "pointer").trim_start_matches("#/").replace('/', ".");
        format!("{field}: {}", text(error, "detail"))
    };
    if errors.len() > 1 { errors.iter().map(words).collect() } else { vec![problem.detail.clone()] }
}

pub async fn post(call: Call, raw: Vec<u8>) -> Result {
    let form = Form::of_page(&call, &raw)?;
    let playbook = ask(&call, "getPlaybook", &[("name", &call.path("name"))], &[]).await?;
    let key = form.get("key");
    let again = |status: u16, key: Option<&str>, told: &Told| {
        Ok(shown_page(&call, status, &playbook, &Filled { form: Some(&form), key }, told))
    };
    let input = match inputs(&playbook, &form) {
        Ok(input) => input,
        Err(wrong) => return again(422, key, &Told::Wrong(wrong)),
    };
    let mut body = Map::new();
    body.insert("playbook".into(), call.path("name").into());
    body.insert("input".into(), input.into());
    let asked_for = if form.get("act") == Some("preview") {
        tell(&call, "previewRun", &[], body).await.map(Told::Preview)
    } else {
        match make(&call, "startRun", &[], body, key).await {
            Ok(Made { run, is_known: false }) => return Ok(see(&run_path(text(&run, "run_id")))),
            // Whoever goes back and presses Start again means another run, or does not know that there is one.
            Ok(Made { run, .. }) => return again(200, None, &Told::Known(text(&run, "run_id").to_owned())),
            Err(problem) => Err(problem),
        }
    };
    match asked_for {
        // Who goes back to it is shown it as it was: a browser does not send a form again by itself, and has no page then.
        Ok(told) => Ok(answer::with(again(200, key, &told)?, "cache-control", "private, no-cache")),
        Err(problem) if problem.code == IDEMPOTENCY_KEY_REUSED.code => {
            let words = "This form was sent before, with other values, and started a run. Start starts another one, with these.";
            again(problem.status, None, &Told::Wrong(vec![words.to_owned()]))
        }
        Err(problem) if (400..500).contains(&problem.status) => {
            again(problem.status, key, &Told::Wrong(wrongs(&problem)))
        }
        Err(problem) => Err(problem),
    }
}

//! One step and a scope become something to execute. What holds secrets is rendered apart from what is stored
//! and shown: the latter never sees them, whatever an expression makes up while it runs.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use minijinja::value::Value;
use serde_json::{Map, Value as Json, json};
use waypost_kernel::text::{MAX_KEY_BYTES, MAX_NAME_BYTES, clean_line};

use super::action::{ActionTemplate, BodyTemplate, ExecTemplate, HttpTemplate, JsonTemplate, Way};
use super::build::RUN_KEYS;
use super::secret::{Needs, Reference, Sealed, Secrets};
use super::template::{Expression, Template, from_json, to_text};
use super::{Ask, Playbook, Step, Tasks};
use crate::actions::{Action, Body, Exec, Http, Mask, Rendered};

/// Items of one `for_each`.
pub(super) const MAX_ITEMS: usize = 10_000;
/// Of one of them: it is kept with its step, whose details must have room for more than that.
const MAX_ITEM_BYTES: usize = 256 * 1024;
/// Linux takes no longer word.
const MAX_WORD_BYTES: usize = 128 * 1024 - 1;
const MAX_HEADER_BYTES: usize = 16 * 1024;
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// What templates see.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// As [`Playbook::accept`] gave them.
    pub inputs: Map<String, Json>,
    /// By the step's key: `{"output": …, "ran": true, "ok": true}`; the output of a `for_each` is the list
    /// of its items' outputs. Steps that are not there have not run.
    pub steps: Map<String, Json>,
    pub item: Option<Json>,
    pub target: Option<Json>,
    /// `{"next": …}`: what the page of targets before said.
    pub page: Option<Json>,
    pub run: Map<String, Json>,
}

/// A scope made ready for templates. That takes as long as the scope is large, so it is done once for all the items
/// of a `for_each`: between them only `item` differs.
#[derive(Clone, Debug)]
pub struct Context {
    /// With references in the place of secrets.
    inputs: Arc<Map<String, Json>>,
    /// What is stored and shown may be made of this.
    shown: Arc<[(&'static str, Value)]>,
    item: Option<Value>,
}

impl Context {
    pub fn with_item(&self, item: &Json) -> Context {
        Context { item: Some(from_json(item)), ..self.clone() }
    }

    /// The same for another target: what else templates see is made ready once for all of them.
    pub fn with_target(&self, target: &Json) -> Context {
        let others = self.shown.iter().filter(|(name, _)| *name != "target").cloned();
        Context { shown: others.chain([("target", from_json(target))]).collect(), ..self.clone() }
    }

    /// Without secrets; none if it cannot be rendered.
    pub(super) fn text_of(&self, template: &Template) -> Option<String> {
        template.text(&self.shown()).ok()
    }

    fn shown(&self) -> Value {
        let pairs = self.shown.iter().map(|(name, value)| (*name, value.clone()));
        Value::from_pairs(pairs.chain(self.item.clone().map(|item| ("item", item))))
    }
}

/// A template that could not be rendered: no later try would do better with the same scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderError {
    pub field: &'static str,
    pub message: String,
}

impl RenderError {
    pub const CODE: &'static str = "BAD_TEMPLATE";
}

impl fmt::Display for RenderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for RenderError {}

type Result<T> = std::result::Result<T, RenderError>;

fn at<T>(field: &'static str, result: std::result::Result<T, String>) -> Result<T> {
    result.map_err(|message| RenderError { field, message })
}

impl Playbook {
    pub fn context(&self, scope: &Scope) -> Context {
        let mut inputs = scope.inputs.clone();
        for input in self.inputs.iter().filter(|input| input.secret) {
            inputs.remove(&input.name);
        }
        let mut steps: Map<String, Json> = self
            .steps
            .iter()
            .map(|step| {
                (
                    step.key.clone(),
                    json!({ "ran": false, "ok": false, "total": 0, "done": 0, "ended": 0, "percent": 0 }),
                )
            })
            .collect();
        steps.extend(scope.steps.clone());
        let object = |name: &'static str, map: Map<String, Json>| (name, from_json(&Json::Object(map)));
        let mut shown = vec![object("inputs", inputs), object("steps", steps), object("run", run_of(scope))];
        shown.extend(scope.target.as_ref().map(|target| ("target", from_json(target))));
        shown.extend(scope.page.as_ref().map(|page| ("page", from_json(page))));
        Context {
            inputs: Arc::new(scope.inputs.clone()),
            shown: shown.into(),
            item: scope.item.as_ref().map(from_json),
        }
    }

    /// Before the first step: what this run must not overlap with.
    pub fn concurrency_key_for(&self, context: &Context) -> Result<Option<String>> {
        let Some(template) = &self.concurrency_key else { return Ok(None) };
        let key = at("concurrency_key", template.text(&context.shown()))?;
        if key.trim().is_empty() || key.len() > MAX_KEY_BYTES || key.contains('\0') {
            let message = format!("the key is empty or longer than {MAX_KEY_BYTES} bytes");
            return Err(RenderError { field: "concurrency_key", message });
        }
        Ok(Some(key))
    }

    /// The items of a `for_each`; nothing for a step without one, which is executed once.
    pub fn items_of(&self, step: &Step, context: &Context) -> Result<Option<Vec<Json>>> {
        let Some(expression) = &step.for_each else { return Ok(None) };
        let items = list("for_each", expression, &context.shown())?;
        for (index, item) in items.iter().enumerate() {
            let bytes = item.to_string().len();
            if bytes > MAX_ITEM_BYTES {
                let message = format!(
                    "{}: item {} is {bytes} bytes long; at most {MAX_ITEM_BYTES} are allowed",
                    expression.source(),
                    index + 1
                );
                return Err(RenderError { field: "for_each", message });
            }
        }
        Ok(Some(items))
    }

    pub fn applies(&self, step: &Step, context: &Context) -> Result<bool> {
        step.when.as_ref().map_or(Ok(true), |when| at("when", when.is_true(&context.shown())))
    }

    pub fn question_of(&self, ask: &Ask, context: &Context) -> Result<String> {
        let question = at("ask", ask.question.text(&context.shown()))?;
        let is_blank = |character: char| character.is_whitespace() || character.is_control();
        if question.chars().all(is_blank) {
            let message = "it comes to an empty text, and a person cannot be asked that".to_owned();
            return Err(RenderError { field: "ask", message });
        }
        Ok(question)
    }

    /// A text that is stored and shown.
    pub(crate) fn text_of(
        &self,
        field: &'static str,
        template: &Template,
        context: &Context,
    ) -> Result<String> {
        let text = at(field, template.text(&context.shown()))?;
        let text = checked(field, text, MAX_NAME_BYTES)?;
        if text.trim().is_empty() {
            return Err(RenderError { field, message: "the text is empty".to_owned() });
        }
        Ok(text)
    }

    pub fn name_of(&self, step: &Step, context: &Context) -> Result<String> {
        let name = at("name", step.name.text(&context.shown()))?;
        Ok(clean_line(name.as_bytes(), MAX_NAME_BYTES).text)
    }

    /// For a run's details: what comes to nothing is left out.
    pub fn details_of(
        &self,
        details: &[(String, JsonTemplate)],
        context: &Context,
    ) -> Result<Map<String, Json>> {
        let shown = context.shown();
        let mut rendered = Map::new();
        for (name, template) in details {
            let value = json_of("details", template, &shown)?;
            if !value.is_null() {
                rendered.insert(name.clone(), value);
            }
        }
        Ok(rendered)
    }

    pub fn tasks_of(&self, step: &Step, context: &Context) -> Result<Vec<String>> {
        let shown = context.shown();
        let names = match &step.tasks {
            Tasks::None => Vec::new(),
            Tasks::Named(names) => {
                names.iter().map(|name| at("tasks", name.text(&shown))).collect::<Result<Vec<_>>>()?
            }
            Tasks::Given(expression) => list("tasks", expression, &shown)?.iter().map(to_text).collect(),
        };
        Ok(names.iter().map(|name| clean_line(name.as_bytes(), MAX_NAME_BYTES).text).collect())
    }

    /// The references that must be resolved before [`Playbook::render`].
    pub fn needs(&self, action: &ActionTemplate, context: &Context) -> Result<Needs> {
        let mut needs = Needs::default();
        for (name, reference) in self.secrets.iter().filter(|(name, _)| action.secrets.contains(name)) {
            needs.declared.insert(name.clone(), reference.clone());
        }
        for name in &action.secret_inputs {
            let Some(text) = context.inputs.get(name).and_then(Json::as_str) else { continue };
            // A default is the file's own word and may name what a run may not.
            let default = self.input(name).and_then(|input| input.default.as_ref()).and_then(Json::as_str);
            let parsed =
                if default == Some(text) { Reference::parse(text) } else { Reference::parse_given(text) };
            let reference = parsed.map_err(|mend| RenderError {
                field: "inputs",
                message: format!("{name} is no reference to a secret: {mend}"),
            })?;
            needs.inputs.insert(name.clone(), reference);
        }
        Ok(needs)
    }

    /// The action, ready to execute, and what must be hidden of all that comes of it.
    pub fn render(&self, action: &ActionTemplate, context: &Context, secrets: &Secrets) -> Result<Rendered> {
        let mut renderer = Renderer {
            shown: context.shown(),
            open: self.open(context, secrets),
            mask: Mask::new(secrets.values()),
        };
        let rendered = match &action.way {
            Way::Exec(exec) => renderer.exec(exec, &self.folder).map(Action::Exec),
            Way::Http(http) => renderer.http(http).map(|http| Action::Http(Box::new(http))),
            Way::Output(output) => json_of("output", output, &renderer.shown).map(Action::Output),
        };
        match rendered {
            Ok(action) => Ok(Rendered { action, mask: renderer.mask }),
            Err(error) => {
                Err(RenderError { message: renderer.mask.hide(&error.message).into_owned(), ..error })
            }
        }
    }

    /// With the secrets that the action needs.
    fn open(&self, context: &Context, secrets: &Secrets) -> Value {
        let mut pairs: Vec<(&str, Value)> =
            context.shown.iter().map(|(name, value)| (*name, value.clone())).collect();
        if !secrets.inputs.is_empty() {
            let mut inputs = (*context.inputs).clone();
            inputs.retain(|name, _| self.input(name).is_none_or(|input| !input.secret));
            inputs.extend(secrets.inputs.iter().map(|(name, value)| (name.clone(), json!(value.open()))));
            pairs.retain(|(name, _)| *name != "inputs");
            pairs.push(("inputs", from_json(&Json::Object(inputs))));
        }
        let declared = secrets.declared.iter().map(|(name, value)| (name.clone(), json!(value.open())));
        pairs.push(("secrets", from_json(&Json::Object(declared.collect()))));
        pairs.extend(context.item.clone().map(|item| ("item", item)));
        Value::from_pairs(pairs)
    }
}

/// With everything that the checker lets templates name.
fn run_of(scope: &Scope) -> Map<String, Json> {
    let empty = |key: &str| match key {
        "resolutions" | "metadata" | "details" => json!({}),
        "unattended" => json!(false),
        _ => Json::Null,
    };
    let mut run: Map<String, Json> = RUN_KEYS.into_iter().map(|key| (key.to_owned(), empty(key))).collect();
    run.extend(scope.run.clone());
    run
}

fn list(field: &'static str, expression: &Expression, context: &Value) -> Result<Vec<Json>> {
    match at(field, expression.evaluate(context))? {
        Json::Array(items) if items.len() <= MAX_ITEMS => Ok(items),
        Json::Array(items) => {
            let message =
                format!("{}: {} items, at most {MAX_ITEMS} are allowed", expression.source(), items.len());
            Err(RenderError { field, message })
        }
        _ => Err(RenderError { field, message: format!("{}: this is not a list", expression.source()) }),
    }
}

/// Without secrets.
fn json_of(field: &'static str, template: &JsonTemplate, shown: &Value) -> Result<Json> {
    match template {
        JsonTemplate::Plain(value) => Ok(value.clone()),
        JsonTemplate::Text(template) => at(field, template.value(shown)),
        JsonTemplate::List(items) => items.iter().map(|item| json_of(field, item, shown)).collect(),
        JsonTemplate::Object(entries) => {
            let member =
                |(name, value): &(String, JsonTemplate)| Ok((name.clone(), json_of(field, value, shown)?));
            entries.iter().map(member).collect::<Result<Map<String, Json>>>().map(Json::Object)
        }
    }
}

struct Renderer {
    shown: Value,
    /// With secrets in it.
    open: Value,
    mask: Mask,
}

impl Renderer {
    fn exec(&mut self, template: &ExecTemplate, folder: &Path) -> Result<Exec> {
        let mut command = vec![program(&template.program, folder)];
        for word in &template.arguments {
            command.push(checked("exec", at("exec", word.text(&self.shown))?, MAX_WORD_BYTES)?);
        }
        let mut env = Vec::new();
        for (name, value) in &template.env {
            env.push((name.clone(), self.sealed("env", value, MAX_WORD_BYTES)?));
        }
        Ok(Exec { command, folder: folder.to_owned(), env })
    }

    fn http(&mut self, template: &HttpTemplate) -> Result<Http> {
        let url = checked("url", at("url", template.url.url(&self.shown))?, MAX_HEADER_BYTES)?;
        let mut headers = Vec::new();
        for (name, value) in &template.headers {
            let value = self.sealed("headers", value, MAX_HEADER_BYTES)?;
            if value.open().chars().any(|c| c.is_control() && c != '\t') {
                let message = format!("{name} has a line end or another control character");
                return Err(RenderError { field: "headers", message });
            }
            headers.push((name.clone(), value));
        }
        let body = match &template.body {
            BodyTemplate::None => Body::None,
            BodyTemplate::Envelope => Body::Envelope,
            BodyTemplate::Text(text) => Body::Text(self.sealed("body", text, MAX_BODY_BYTES)?),
            BodyTemplate::Json(json) => {
                let text = self.json(json)?.to_string();
                if text.len() > MAX_BODY_BYTES {
                    let message = format!("it is longer than {MAX_BODY_BYTES} bytes");
                    return Err(RenderError { field: "json", message });
                }
                Body::Json(Sealed::new(text))
            }
        };
        Ok(Http {
            method: template.method.clone(),
            url,
            headers,
            body,
            allow_private: template.allow_private,
            reads: template.reads,
        })
    }

    /// A text that may hold secrets; then it is one itself.
    fn sealed(&mut self, field: &'static str, template: &Template, limit: usize) -> Result<Sealed> {
        let text = checked(field, at(field, template.text(&self.open))?, limit)?;
        self.remember(template, &text);
        Ok(Sealed::new(text))
    }

    fn json(&mut self, template: &JsonTemplate) -> Result<Json> {
        template.rendered(&mut |text| {
            let value = at("json", text.value(&self.open))?;
            self.remember(text, value.as_str().unwrap_or_default());
            Ok(value)
        })
    }

    /// What was made from a secret is hidden as well: its base64, for instance.
    fn remember(&mut self, template: &Template, text: &str) {
        let is_rendered_alike = template.text(&self.shown).is_ok_and(|shown| shown == text);
        if !is_rendered_alike {
            self.mask.add(text);
        }
    }
}

/// Found by PATH, or relative to the file. Where the folder itself is relative, so is what runs in it.
fn program(name: &str, folder: &Path) -> String {
    let path = Path::new(name);
    if name.contains('/') && path.is_relative() && folder.is_absolute() {
        let below = path.strip_prefix(".").unwrap_or(path);
        return folder.join(below).display().to_string();
    }
    name.to_owned()
}

fn checked(field: &'static str, text: String, limit: usize) -> Result<String> {
    if text.len() > limit {
        let message = format!("a value is {} bytes long; at most {limit} are allowed", text.len());
        return Err(RenderError { field, message });
    }
    if text.contains('\0') {
        return Err(RenderError { field, message: "a value has a NUL character".to_owned() });
    }
    Ok(text)
}

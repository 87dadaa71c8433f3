//! What a step does, as the file declares it: templates that a scope turns into an action.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use waypost_schema::{Node, Value};

use super::template::{Named, Template};
use crate::actions::Reads;

#[derive(Clone, Debug, PartialEq)]
pub struct ActionTemplate {
    pub way: Way,
    /// `secrets.NAME` of its env, headers and body.
    pub secrets: BTreeSet<String>,
    /// `inputs.NAME` of these, where the input is a secret.
    pub secret_inputs: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Way {
    Exec(ExecTemplate),
    Http(Box<HttpTemplate>),
    /// What the step gives, without anything being executed.
    Output(JsonTemplate),
}

#[derive(Clone, Debug, PartialEq)]
pub struct ExecTemplate {
    /// As the file names it: found by PATH, or relative to the file.
    pub program: String,
    pub arguments: Vec<Template>,
    pub env: Vec<(String, Template)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HttpTemplate {
    pub method: String,
    pub url: Template,
    pub headers: Vec<(String, Template)>,
    pub body: BodyTemplate,
    pub allow_private: bool,
    pub reads: Reads,
}

#[derive(Clone, Debug, PartialEq)]
pub enum BodyTemplate {
    None,
    /// What a command reads on its standard input.
    Envelope,
    Text(Template),
    Json(JsonTemplate),
}

/// JSON whose texts are templates.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonTemplate {
    Text(Template),
    Plain(Json),
    List(Vec<JsonTemplate>),
    Object(Vec<(String, JsonTemplate)>),
}

impl JsonTemplate {
    /// Of a value of the file; its texts are made by `template`.
    pub(crate) fn of(node: &Node, template: &mut impl FnMut(&Node) -> Template) -> JsonTemplate {
        match &node.value {
            Value::Text(_) => JsonTemplate::Text(template(node)),
            Value::List(items) => {
                JsonTemplate::List(items.iter().map(|item| JsonTemplate::of(item, template)).collect())
            }
            Value::Table(entries) => {
                let entry =
                    |(name, value): &(String, Node)| (name.clone(), JsonTemplate::of(value, template));
                JsonTemplate::Object(entries.iter().map(entry).collect())
            }
            _ => JsonTemplate::Plain(node.to_json()),
        }
    }

    /// The value, its texts rendered by `value`.
    pub(crate) fn rendered<E>(
        &self,
        value: &mut impl FnMut(&Template) -> Result<Json, E>,
    ) -> Result<Json, E> {
        Ok(match self {
            JsonTemplate::Text(template) => value(template)?,
            JsonTemplate::Plain(plain) => plain.clone(),
            JsonTemplate::List(items) => {
                Json::Array(items.iter().map(|item| item.rendered(value)).collect::<Result<_, E>>()?)
            }
            JsonTemplate::Object(entries) => {
                let entry =
                    |(name, inner): &(String, JsonTemplate)| Ok((name.clone(), inner.rendered(value)?));
                Json::Object(entries.iter().map(entry).collect::<Result<_, E>>()?)
            }
        })
    }

    pub fn templates(&self) -> Vec<&Template> {
        match self {
            JsonTemplate::Text(template) => vec![template],
            JsonTemplate::Plain(_) => Vec::new(),
            JsonTemplate::List(items) => items.iter().flat_map(JsonTemplate::templates).collect(),
            JsonTemplate::Object(entries) => {
                entries.iter().flat_map(|(_, value)| value.templates()).collect()
            }
        }
    }
}

impl Way {
    /// The templates that may hold secrets.
    fn open_templates(&self) -> Vec<&Template> {
        match self {
            Way::Exec(exec) => exec.env.iter().map(|(_, template)| template).collect(),
            Way::Output(_) => Vec::new(),
            Way::Http(http) => http.open_templates(),
        }
    }
}

impl HttpTemplate {
    /// The templates that may hold secrets.
    fn open_templates(&self) -> Vec<&Template> {
        let mut all: Vec<&Template> = self.headers.iter().map(|(_, template)| template).collect();
        match &self.body {
            BodyTemplate::Text(template) => all.push(template),
            BodyTemplate::Json(json) => all.extend(json.templates()),
            BodyTemplate::None | BodyTemplate::Envelope => {}
        }
        all
    }

    pub fn templates(&self) -> Vec<&Template> {
        let mut all = self.open_templates();
        all.push(&self.url);
        all
    }
}

impl ActionTemplate {
    pub fn new(way: Way, is_secret_input: impl Fn(&str) -> bool) -> ActionTemplate {
        let named: Vec<&Named> = way.open_templates().into_iter().flat_map(Template::named).collect();
        let of = |root: &str| {
            let names = named.iter().filter(|named| named.path.first().is_some_and(|first| first == root));
            names.filter_map(|named| named.path.get(1).cloned()).collect::<BTreeSet<String>>()
        };
        let secrets = of("secrets");
        let secret_inputs = of("inputs").into_iter().filter(|name| is_secret_input(name)).collect();
        ActionTemplate { way, secrets, secret_inputs }
    }
}

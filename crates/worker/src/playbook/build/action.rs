//! What a step does: a command or a request.

use std::path::Path;

use reqwest::Url;
use waypost_schema::quoted;

use super::place::Place;
use super::{Builder, no_action};
use crate::actions::Reads;
use crate::playbook::action::{ActionTemplate, BodyTemplate, ExecTemplate, HttpTemplate, JsonTemplate, Way};
use crate::playbook::template::Template;
use waypost_schema::Node;

/// Programs that take a program as a text, and the letter of the option for it.
const INTERPRETERS: [(&str, char); 11] = [
    ("sh", 'c'),
    ("bash", 'c'),
    ("dash", 'c'),
    ("ash", 'c'),
    ("zsh", 'c'),
    ("ksh", 'c'),
    ("python", 'c'),
    ("python3", 'c'),
    ("perl", 'e'),
    ("ruby", 'e'),
    ("node", 'e'),
];

fn object<const N: usize>(members: [(&str, JsonTemplate); N]) -> JsonTemplate {
    JsonTemplate::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

impl Builder<'_> {
    pub(super) fn action(&mut self, node: &Node, place: &Place) -> ActionTemplate {
        let way = if let Some(exec) = node.get("exec") {
            self.exec(exec, node.get("env"), place).map(Way::Exec)
        } else if let Some(http) = node.get("http") {
            self.no_environment(node);
            Some(Way::Http(Box::new(self.http(http, place))))
        } else if let Some(chat) = node.get("chat") {
            self.no_environment(node);
            Some(Way::Http(Box::new(self.chat(chat, place))))
        } else if let Some(output) = node.get("output") {
            self.no_environment(node);
            Some(Way::Output(self.json(output, place)))
        } else {
            None
        };
        match way {
            Some(way) => ActionTemplate::new(way, |name| {
                self.inputs.iter().any(|input| input.secret && input.name == name)
            }),
            None => no_action(),
        }
    }

    fn no_environment(&mut self, node: &Node) {
        if let Some(env) = node.get("env") {
            let message = "only a command has an environment";
            self.problem(env, "misplaced-key", message, "use headers or json, or remove it");
        }
    }

    fn exec(&mut self, node: &Node, env: Option<&Node>, place: &Place) -> Option<ExecTemplate> {
        let (program, arguments) = node.items().split_first()?;
        let env = env.map(|env| self.templates(env, &place.open_to_secrets())).unwrap_or_default();
        let arguments_found: Vec<Template> =
            arguments.iter().map(|word| self.template(word, place)).collect();
        let name = program.text();
        if name.trim().is_empty() {
            self.problem(program, "bad-command", "the command has no program", "write its name first");
        } else if self.template(program, place).literal().is_none() {
            let message = "which program runs is made by a template";
            let mend = "name the program, and let templates make its arguments only";
            self.problem(program, "bad-command", message, mend);
        }
        self.no_templates_for_shells(name, arguments, &arguments_found);
        Some(ExecTemplate { program: name.to_owned(), arguments: arguments_found, env })
    }

    /// Whoever may start a run must not thereby write a program for a shell.
    fn no_templates_for_shells(&mut self, program: &str, words: &[Node], arguments: &[Template]) {
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((_, letter)) = INTERPRETERS.iter().find(|(known, _)| *known == name) else { return };
        let is_option = |word: &Node| {
            let letters = word.text().strip_prefix('-').filter(|rest| !rest.starts_with('-'));
            letters.is_some_and(|letters| letters.ends_with(*letter))
        };
        let Some(at) = words.iter().position(is_option) else { return };
        if let (Some(word), Some(program)) = (words.get(at + 1), arguments.get(at + 1))
            && program.named().next().is_some()
        {
            let message = format!("{} would run what the template makes", quoted(name));
            let mend = r#"pass it as an argument: ["sh", "-c", "echo \"$1\"", "sh", "{{ inputs.x }}"]"#;
            self.problem(word, "shell-template", &message, mend);
        }
    }

    fn http(&mut self, node: &Node, place: &Place) -> HttpTemplate {
        let open = place.open_to_secrets();
        let method = node.of::<String>("method").unwrap_or_else(|| "POST".to_owned());
        let url = node.get("url").map(|url| self.url(url, place)).unwrap_or_default();
        let headers = node.get("headers").map(|headers| self.headers(headers, &open)).unwrap_or_default();
        let body = match (node.get("json"), node.get("body")) {
            (Some(json), body) => {
                if let Some(body) = body {
                    self.problem(body, "two-bodies", "there is json already", "keep one of json and body");
                }
                BodyTemplate::Json(self.json(json, &open))
            }
            (None, Some(body)) => BodyTemplate::Text(self.template(body, &open)),
            (None, None) if method == "POST" || method == "PUT" || method == "PATCH" => {
                BodyTemplate::Envelope
            }
            (None, None) => BodyTemplate::None,
        };
        if let Some(body) = node.get("json").or(node.get("body"))
            && (method == "GET" || method == "HEAD")
        {
            let message = format!("a {method} request has no body");
            self.problem(body, "misplaced-key", &message, "remove it, or use another method");
        }
        let allow_private = node.of::<bool>("allow_private").unwrap_or(false);
        HttpTemplate { method, url, headers, body, allow_private, reads: Reads::Outcome }
    }

    /// A request to a chat endpoint, as OpenAI's API has it and many others do.
    fn chat(&mut self, node: &Node, place: &Place) -> HttpTemplate {
        let open = place.open_to_secrets();
        let base = node.get("url").map(|url| self.url(url, place)).unwrap_or_default();
        let key = node.get("key").map(|key| self.template(key, &open));
        let authorization = key.map(|key| ("authorization".to_owned(), key.with("Bearer ", "")));
        let is_json = node.of::<bool>("json").unwrap_or(false);
        let text = |text: &str| JsonTemplate::Plain(text.into());
        let mut messages = Vec::new();
        for (role, key) in [("system", "system"), ("user", "prompt")] {
            if let Some(said) = node.get(key) {
                let content = JsonTemplate::Text(self.template(said, &open).with("", ""));
                let message = [("role", text(role)), ("content", content)];
                messages.push(object(message));
            }
        }
        let model = node.get("model").map(|model| self.template(model, place)).unwrap_or_default();
        let mut body = vec![
            ("model".to_owned(), JsonTemplate::Text(model.with("", ""))),
            ("messages".to_owned(), JsonTemplate::List(messages)),
        ];
        if is_json {
            let format = object([("type", text("json_object"))]);
            body.push(("response_format".to_owned(), format));
        }
        for key in ["temperature", "max_tokens"] {
            body.extend(node.get(key).map(|value| (key.to_owned(), JsonTemplate::Plain(value.to_json()))));
        }
        HttpTemplate {
            method: "POST".to_owned(),
            url: base.joined("/chat/completions"),
            headers: authorization.into_iter().collect(),
            body: BodyTemplate::Json(JsonTemplate::Object(body)),
            allow_private: node.of::<bool>("allow_private").unwrap_or(false),
            reads: Reads::Chat { is_json },
        }
    }

    fn url(&mut self, node: &Node, place: &Place) -> Template {
        self.url_of(node, node.text(), place)
    }

    /// `text` is the URL that was made of what the node says.
    pub(super) fn url_of(&mut self, node: &Node, text: &str, place: &Place) -> Template {
        self.not_empty(node);
        let template = self.template_of(node, text, place);
        let beginning = template.beginning();
        let problem = match template.literal() {
            Some("") => None,
            Some(whole) => match Url::parse(whole) {
                Err(error) => Some(format!("this is no URL: {error}")),
                Ok(url) if !matches!(url.scheme(), "http" | "https") || !url.has_host() => {
                    Some("this is no URL of a web server".to_owned())
                }
                Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                    Some("the URL holds credentials".to_owned())
                }
                Ok(_) => None,
            },
            // The host may be made by a template; what stands before it says enough.
            None if beginning.is_empty() => None,
            None => {
                let lower = beginning.to_ascii_lowercase();
                let rest = lower.strip_prefix("https://").or_else(|| lower.strip_prefix("http://"));
                match rest {
                    None => Some("this is no URL of a web server".to_owned()),
                    Some(rest) if rest.split('/').next().is_some_and(|host| host.contains('@')) => {
                        Some("the URL holds credentials".to_owned())
                    }
                    Some(_) => None,
                }
            }
        };
        if let Some(message) = problem {
            let mend = "write https://host/path, and put credentials into a header";
            self.problem(node, "bad-url", &message, mend);
        }
        template
    }

    fn headers(&mut self, node: &Node, place: &Place) -> Vec<(String, Template)> {
        let headers = self.templates(node, place);
        for (at, (name, value)) in node.entries().iter().enumerate() {
            let is_twin = |(other, _): &(String, Node)| other.eq_ignore_ascii_case(name);
            if node.entries()[..at].iter().any(is_twin) {
                let message = format!("the header {} stands twice", quoted(name));
                self.problem(value, "bad-header", &message, "remove one of the two");
            }
            let is_allowed = |c: char| c == '\t' || !c.is_control();
            if !value.text().chars().all(is_allowed) {
                let message = "a header has no line ends and no other control characters";
                self.problem(value, "bad-header", message, "write it on one line");
            }
        }
        headers
    }

    fn templates(&mut self, node: &Node, place: &Place) -> Vec<(String, Template)> {
        let entries = node.entries().iter();
        entries.map(|(name, value)| (name.clone(), self.template(value, place))).collect()
    }

    pub(super) fn json(&mut self, node: &Node, place: &Place) -> JsonTemplate {
        JsonTemplate::of(node, &mut |text| self.template(text, place))
    }
}

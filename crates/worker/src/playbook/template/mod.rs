//! Templates: text with `{{ expressions }}`, and nothing else of the template language. A value that is one
//! lone expression keeps its type.

pub mod engine;
mod json;
mod scan;

use minijinja::value::Value;
use serde_json::Value as Json;

pub use json::{from_json, to_text};
pub use scan::Named;

/// What templates see, where that is one value.
pub fn context_of(name: &'static str, value: &Json) -> Value {
    Value::from_pairs([(name, from_json(value))])
}

const MAX_EXPRESSION_CHARS: usize = 2_000;

/// What is wrong with a template: `line` counts from its own first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub line: usize,
    pub rule: &'static str,
    pub message: String,
    pub mend: String,
}

/// One expression that is sound in itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    source: String,
    named: Vec<Named>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Expression(Expression),
}

impl Expression {
    pub fn parse(source: &str) -> Result<Expression, Trouble> {
        let trouble = |line, message: String, mend: &str| {
            Err(Trouble { line, rule: "template-syntax", message, mend: mend.to_owned() })
        };
        if source.trim_start().starts_with("{{") && source.trim_end().ends_with("}}") {
            return trouble(
                0,
                "this is an expression already".to_owned(),
                "write it without the {{ and }} around it",
            );
        }
        if source.trim().is_empty() {
            return trouble(0, "the expression is empty".to_owned(), "write what should stand there");
        }
        if source.chars().count() > MAX_EXPRESSION_CHARS {
            return trouble(
                0,
                "the expression is longer than 2,000 characters".to_owned(),
                "let a step compute it",
            );
        }
        let named = scan::scan(source)?;
        if let Err(error) = engine::check(source) {
            let line = error.line().unwrap_or(1).saturating_sub(1);
            let detail = error.detail().unwrap_or("it cannot be read").to_owned();
            return trouble(
                line,
                detail,
                "write a value such as inputs.cluster, or a comparison such as item.size > 3",
            );
        }
        Ok(Expression { source: source.to_owned(), named })
    }

    pub fn named(&self) -> &[Named] {
        &self.named
    }

    /// Whether it looks at this variable.
    pub fn names(&self, variable: &str) -> bool {
        self.named.iter().any(|named| named.path.first().is_some_and(|root| root == variable))
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    fn value(&self, context: &Value) -> Result<Value, String> {
        let within = |message: String| format!("{}: {message}", self.source.trim());
        engine::evaluate(&self.source, context).map_err(|error| {
            let detail = error.detail().map(str::to_owned);
            within(detail.unwrap_or_else(|| error.kind().to_string()))
        })
    }

    pub fn evaluate(&self, context: &Value) -> Result<Json, String> {
        let value = self.value(context)?;
        json::to_json(&value).map_err(|message| format!("{}: {message}", self.source.trim()))
    }

    pub fn is_true(&self, context: &Value) -> Result<bool, String> {
        self.value(context).map(|value| value.is_true())
    }
}

impl Template {
    pub fn parse(text: &str) -> Result<Template, Trouble> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find("{{") {
            literal(&mut parts, &rest[..open], text.len() - rest.len(), text)?;
            let inner = &rest[open + 2..];
            let line = scan::lines_before(text, text.len() - inner.len());
            let Some(length) = scan::end_of_expression(inner) else {
                return Err(Trouble {
                    line,
                    rule: "template-syntax",
                    message: "the {{ is never closed".to_owned(),
                    mend: r#"close it with }}, or write {{ "{{" }} for the braces themselves"#.to_owned(),
                });
            };
            let mut expression = Expression::parse(&inner[..length])
                .map_err(|trouble| Trouble { line: trouble.line + line, ..trouble })?;
            expression.named.iter_mut().for_each(|named| named.line += line);
            parts.push(Part::Expression(expression));
            rest = &inner[length + 2..];
        }
        literal(&mut parts, rest, text.len() - rest.len(), text)?;
        Ok(Template { parts })
    }

    /// All variables of all expressions.
    pub fn named(&self) -> impl Iterator<Item = &Named> {
        self.parts.iter().flat_map(|part| match part {
            Part::Expression(expression) => expression.named(),
            Part::Literal(_) => &[],
        })
    }

    /// The text, if it has no expressions.
    pub fn literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    /// What stands before the first expression.
    pub fn beginning(&self) -> &str {
        match self.parts.first() {
            Some(Part::Literal(text)) => text,
            _ => "",
        }
    }

    /// The same with literal text around it, which makes it a text whatever its expressions give.
    #[must_use]
    pub(crate) fn with(mut self, before: &str, after: &str) -> Template {
        self.parts.insert(0, Part::Literal(before.to_owned()));
        self.parts.push(Part::Literal(after.to_owned()));
        self
    }

    /// A URL's path goes on with this.
    #[must_use]
    pub(crate) fn joined(mut self, path: &str) -> Template {
        if let Some(Part::Literal(end)) = self.parts.last_mut() {
            end.truncate(end.trim_end_matches('/').len());
        }
        self.with("", path)
    }

    /// As it was written.
    pub fn source(&self) -> String {
        let part = |part: &Part| match part {
            Part::Literal(text) => text.clone(),
            Part::Expression(expression) => format!("{{{{{}}}}}", expression.source),
        };
        self.parts.iter().map(part).collect()
    }

    pub fn text(&self, context: &Value) -> Result<String, String> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.push_str(literal),
                Part::Expression(expression) => text.push_str(&to_text(&expression.evaluate(context)?)),
            }
        }
        Ok(text)
    }

    /// A URL. What an expression gives into its path or query stays one part of it, or is refused: `1/../2` in the place of a product's id
    /// would reach another product.
    pub fn url(&self, context: &Value) -> Result<String, String> {
        let mut url = String::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => url.push_str(literal),
                Part::Expression(expression) => {
                    let value = expression.value(context)?;
                    let text = json::to_json(&value).map(|json| to_text(&json));
                    let text = text.map_err(|message| format!("{}: {message}", expression.source.trim()))?;
                    if !value.is_safe() && is_past_host(&url) && !is_one_part(&text) {
                        return Err(format!(
                            "{}: {text:?} would be more than one part of the URL; write {{{{ {}|urlencode }}}}, or |safe if it is meant to be",
                            expression.source.trim(),
                            expression.source.trim()
                        ));
                    }
                    url.push_str(&text);
                }
            }
        }
        Ok(url)
    }

    /// A lone expression keeps its type; everything else is a text.
    pub fn value(&self, context: &Value) -> Result<Json, String> {
        match self.parts.as_slice() {
            [Part::Expression(expression)] => expression.evaluate(context),
            _ => self.text(context).map(Json::String),
        }
    }
}

/// Whether a URL that begins like this is past its host.
fn is_past_host(url: &str) -> bool {
    let rest = url.split_once("://").map(|(_, rest)| rest);
    rest.is_some_and(|rest| rest.contains(['/', '?', '#', '\\']))
}

/// Whether a text stays what it is as a part of a path or query: what reads URLs takes a backslash for a slash, drops tabs and line ends, and
/// blanks at an end.
fn is_one_part(text: &str) -> bool {
    let is_dots = text == "." || text == "..";
    let changes = |character: char| "/\\?#%".contains(character) || character.is_control();
    !is_dots && !text.contains(changes) && text.trim() == text
}

fn literal(parts: &mut Vec<Part>, text: &str, at: usize, whole: &str) -> Result<(), Trouble> {
    if let Some(found) = text.find("{%") {
        return Err(Trouble {
            line: scan::lines_before(whole, at + found),
            rule: "template-syntax",
            message: "there are no {% statements %} in a playbook".to_owned(),
            mend: "write {{ a if condition else b }}, for_each or when".to_owned(),
        });
    }
    if !text.is_empty() {
        parts.push(Part::Literal(text.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
